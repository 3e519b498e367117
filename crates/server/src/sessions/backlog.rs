//! What a worker said of its attempts while the engine had no room for it: kept until the store is back, so that the
//! session goes on being listened to and its heartbeats are answered.

use std::collections::VecDeque;

use prost::Message as _;
use steadfast_api::proto;

/// Bytes of reports and progress of one session. More is dropped, and the session is ended once these are taken: the worker
/// keeps its reports until they are acknowledged, and sends them again in the next session.
const MOST_BYTES: usize = 16 << 20;

#[derive(Clone, Debug)]
pub(super) enum Word {
    Report(proto::Report),
    Progress(proto::Progress),
}

#[derive(Debug, Default)]
pub(super) struct Backlog {
    waiting: VecDeque<Word>,
    bytes: usize,
    overflowed: bool,
}

impl Word {
    fn bytes(&self) -> usize {
        match self {
            Self::Report(report) => report.encoded_len(),
            Self::Progress(progress) => progress.encoded_len(),
        }
    }
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Something was dropped, and all the rest is taken.
    pub(super) fn has_lost(&self) -> bool {
        self.overflowed && self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, word: Word) {
        let bytes = word.bytes();
        if self.overflowed || self.bytes + bytes > MOST_BYTES {
            self.overflowed = true;
            return;
        }
        self.bytes += bytes;
        self.waiting.push_back(word);
    }

    pub(super) fn first(&self) -> Option<&Word> {
        self.waiting.front()
    }

    pub(super) fn taken(&mut self) {
        if let Some(word) = self.waiting.pop_front() {
            self.bytes -= word.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: usize) -> Word {
        Word::Progress(proto::Progress { attempt: None, progress_json: "x".repeat(bytes) })
    }

    #[test]
    fn what_is_too_much_is_told_once_the_rest_is_taken() {
        let mut backlog = Backlog::default();
        backlog.push(word(MOST_BYTES / 2));
        backlog.push(word(MOST_BYTES / 2 + 1));
        backlog.push(word(1));
        assert!(!backlog.is_empty() && !backlog.has_lost());
        backlog.taken();
        assert!(
            backlog.is_empty() && backlog.has_lost(),
            "in order: nothing after what was dropped"
        );
    }

    #[test]
    fn room_comes_back_with_what_is_taken() {
        let mut backlog = Backlog::default();
        for _ in 0..4 {
            backlog.push(word(MOST_BYTES - 100));
            backlog.taken();
        }
        assert!(backlog.is_empty() && !backlog.has_lost());
    }
}
