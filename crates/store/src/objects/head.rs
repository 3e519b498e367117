//! A log as an object store has it, which cannot append.
//!
//! What no longer changes is in pieces of one size, an object each. All else is in one more object, the log's head, which is replaced as a
//! whole: how many bytes are in pieces, whether more is to come, when bytes were printed, and behind that the bytes that fill no
//! piece yet. So a short log is one object, written once, and how far a log is and what it says are never at odds.
//!
//! Pure: no requests, no clock.

use serde::{Deserialize, Serialize};

use crate::blobs::log_times::TICK_MS;
use crate::blobs::logs::CUT_OFF;
use crate::{LogChunk, LogProgress};

/// Of the pieces.
pub(super) const PIECE: usize = 256 << 10;
/// Of a log that is printed to for long, every second time is forgotten when there are so many.
const TIMES_MOST: usize = 1000;
/// A head's first line is shorter: times have 30 bytes at most.
pub(super) const LINE_MOST: u64 = 32 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) about: About,
    /// The bytes behind those in pieces.
    pub(super) tail: Vec<u8>,
}

/// The first line of a head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    /// Bytes in pieces.
    pub(super) start: u64,
    /// More is to come.
    pub(super) partial: bool,
    /// It ends with [`CUT_OFF`], and nothing is added.
    cut: bool,
    written_ms: u64,
    times: Vec<(u64, u64)>,
}

/// What is asked of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Nothing has changed.
    Same(LogProgress),
    Changed(LogProgress),
}

impl About {
    /// Of the first bytes of a head, at least [`LINE_MOST`] if there are as many. With the length of the line.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        Some((serde_json::from_slice(&bytes[..end]).ok()?, end + 1))
    }

    /// Of a log of which nothing is here.
    pub(super) fn awaited() -> Self {
        Self { partial: true, ..Self::default() }
    }

    pub(super) fn times(&self, length: u64) -> Vec<(u64, u64)> {
        match self.times.is_empty() {
            false => self.times.clone(),
            true if length > 0 => vec![(0, self.written_ms)],
            true => vec![],
        }
    }

    fn note(&mut self, from: u64, now_ms: u64) {
        let Some((_, last_ms)) = self.times.last() else {
            // Of a log that was begun before anything was noted, the beginning has this time too.
            self.times.push((0, now_ms));
            return;
        };
        if now_ms < last_ms.saturating_add(TICK_MS) {
            return;
        }
        if self.times.len() >= TIMES_MOST {
            let mut keep = false;
            self.times.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.times.push((from, now_ms));
    }
}

impl Head {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (about, line) = About::read(bytes)?;
        Some(Self { about, tail: bytes[line..].to_vec() })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(&self.about).expect("it has no maps with odd keys");
        bytes.push(b'\n');
        bytes.extend_from_slice(&self.tail);
        bytes
    }

    pub(super) fn length(&self) -> u64 {
        self.about.start + self.tail.len() as u64
    }

    pub(super) fn is_cut(&self) -> bool {
        self.about.cut
    }

    /// Puts a chunk in its place. What of it lies in pieces is the caller's to put there; so is what a last chunk leaves of them,
    /// which is to be the tail before this.
    pub(super) fn put(
        &mut self,
        chunk: LogChunk<'_>,
        room: bool,
        is_new: bool,
        now_ms: u64,
    ) -> Answer {
        let LogChunk { offset, bytes, last } = chunk;
        let (length, end) = (self.length(), offset + bytes.len() as u64);
        if self.about.cut {
            return Answer::Same(LogProgress { length, complete: true });
        }
        // A question, or what would leave a hole: it goes on from where this ends.
        if (bytes.is_empty() && !last) || offset > length {
            let complete = !self.about.partial && !is_new;
            return Answer::Same(LogProgress { length, complete });
        }
        if is_new && bytes.is_empty() {
            return Answer::Same(LogProgress { length, complete: last });
        }
        if is_new {
            self.about.partial = true;
        }
        // What is written over what is there takes no room.
        if end > length && !room {
            self.tail.extend_from_slice(CUT_OFF.as_bytes());
            (self.about.cut, self.about.partial) = (true, false);
            return Answer::Changed(LogProgress { length: self.length(), complete: true });
        }
        let skipped = self.about.start.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (bytes, at) = (&bytes[skipped..], offset.saturating_sub(self.about.start) as usize);
        let over = bytes.len().min(self.tail.len() - at.min(self.tail.len()));
        self.tail[at..at + over].copy_from_slice(&bytes[..over]);
        self.tail.extend_from_slice(&bytes[over..]);
        // What comes whole was printed when it was written.
        if (offset > 0 || !last) && end > length {
            self.about.note(offset.max(length), now_ms);
        }
        if skipped + bytes.len() > 0 {
            self.about.written_ms = now_ms;
        }
        if last {
            self.tail.truncate(end.saturating_sub(self.about.start) as usize);
            self.about.partial = false;
        }
        Answer::Changed(LogProgress { length: end, complete: last })
    }

    /// Pieces that are full, by their numbers. [`Head::forget_pieces`] once they are kept.
    pub(super) fn full_pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        (self.about.start / PIECE as u64..).zip(self.tail.chunks_exact(PIECE))
    }

    pub(super) fn forget_pieces(&mut self) {
        let full = self.tail.len() - self.tail.len() % PIECE;
        self.tail.drain(..full);
        self.about.start += full as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(offset: u64, bytes: &[u8], last: bool) -> LogChunk<'_> {
        LogChunk { offset, bytes, last }
    }

    #[test]
    fn a_head_comes_back_as_it_was_however_long_it_was_printed_to() {
        let mut head = Head::default();
        for n in 0..10_000 {
            head.put(chunk(n * 2, b"x\n", false), true, n == 0, 1_800_000_000_000 + n * 500);
            head.forget_pieces();
        }
        let bytes = head.bytes();
        assert!(bytes.len() as u64 - (head.tail.len() as u64) < LINE_MOST);
        assert_eq!(Head::read(&bytes), Some(head.clone()));
        let times = head.about.times(head.length());
        assert!(times.len() > TIMES_MOST / 2 && times[0] == (0, 1_800_000_000_000));
        assert!(times.is_sorted() && times.last().unwrap().0 > 19_900, "{:?}", times.last());
    }

    #[test]
    fn what_is_printed_at_once_has_one_time() {
        let mut head = Head::default();
        head.put(chunk(0, b"one\n", false), true, true, 1000);
        head.put(chunk(4, b"two\n", false), true, false, 1050);
        head.put(chunk(0, b"one\n", false), true, false, 9000);
        head.put(chunk(8, b"three\n", false), true, false, 9000);
        assert_eq!(head.about.times(head.length()), [(0, 1000), (8, 9000)]);
    }
}
