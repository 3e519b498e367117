//! What a process prints, in one file of bounded size: its beginning and its end.
//!
//! The first half of the cap is written once. What follows goes round in a ring behind it, in the same
//! file, which is put in order at the end: memory stays flat, and a full disk cannot take the end away.
//! Up to the cap the file only grows, so it can be followed. Printing never waits for the log, and never
//! fails because of it.
//!
//! When it was printed is kept beside it, in `NAME.times`: a line `OFFSET MS` says that the bytes from
//! there on were printed then. Only where more than [`TICK_MS`] lie between two prints, so that a short
//! attempt has no such file: the file's own time says it all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::mask::{Mask, MaskedStream};

/// Room for the line about what was left out, on top of the cap.
const NOTE: u64 = 64;

/// With less free on the disk a log ends: what is left is for the outputs and reports of attempts. Of a
/// disk below 256 MiB, a sixteenth.
const DISK_RESERVE: u64 = 16 << 20;
const DISK_SHARE: u64 = 16;

/// How far a log grows before the disk is looked at again, at most.
const LOOK_EVERY: u64 = 1 << 20;

/// Bytes held in memory while the ring is put in order.
const CHUNK: u64 = 32 * 1024;

/// How exactly it is known when something was printed.
const TICK_MS: u64 = 100;

/// When bytes were printed.
#[derive(Debug, Default)]
struct Times {
    file: Option<File>,
    /// Of the first byte of all.
    first: Option<u64>,
    last: u64,
}

impl Times {
    /// Bytes from `offset` on are about to be written. A time that cannot be kept is not worth an outcome.
    fn note(&mut self, log: &Path, offset: u64, now_ms: u64) {
        let Some(first) = self.first else {
            (self.first, self.last) = (Some(now_ms), now_ms);
            return;
        };
        if now_ms.saturating_sub(self.last) < TICK_MS {
            return;
        }
        self.last = now_ms;
        let line = match &self.file {
            Some(_) => format!("{offset} {now_ms}\n"),
            None => format!("0 {first}\n{offset} {now_ms}\n"),
        };
        if self.file.is_none() {
            self.file = File::create(log.with_extension("times")).ok();
        }
        if let Some(file) = &mut self.file {
            let _ = file.write_all(line.as_bytes());
        }
    }
}

pub(crate) struct Log {
    path: PathBuf,
    file: Option<File>,
    head: u64,
    ring: u64,
    written: u64,
    /// Bytes that may be written before the disk is looked at again.
    granted: u64,
    /// Bytes of the disk that are left to others.
    reserve: u64,
    /// Why writing ended, and the bytes that came afterwards.
    broken: Option<(io::Error, u64)>,
    /// None: nobody wants to know.
    times: Option<Times>,
    /// What must not be in it.
    mask: Option<MaskedStream>,
}

impl Log {
    pub(crate) fn new(path: &Path, cap: u64, timed: bool, mask: &Mask) -> Self {
        let (head, ring) = (cap / 2, (cap - cap / 2).saturating_add(NOTE));
        Self {
            path: path.to_owned(),
            file: None,
            head,
            ring,
            written: 0,
            granted: 0,
            reserve: DISK_RESERVE,
            broken: None,
            times: timed.then(Times::default),
            mask: mask.stream(),
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        match self.mask.take() {
            None => self.put(bytes),
            Some(mut mask) => {
                mask.write(bytes, |bytes| self.put(bytes));
                self.mask = Some(mask);
            }
        }
    }

    fn put(&mut self, mut bytes: &[u8]) {
        // What goes round has no place of its own until the end.
        if self.written < self.head
            && let Some(times) = &mut self.times
        {
            times.note(&self.path, self.written, unix_ms());
        }
        while !bytes.is_empty() {
            if let Some((_, lost)) = &mut self.broken {
                *lost += bytes.len() as u64;
                return;
            }
            match self.write_some(bytes) {
                Ok(count) => {
                    self.written += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.broken = Some((error, 0)),
            }
        }
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(create(&self.path)?),
        };
        // What goes round in the ring takes no more room.
        let grows = self.written < self.head.saturating_add(self.ring);
        if grows && self.written >= self.granted {
            self.granted = self.written + grant(file, self.reserve)?;
        }
        let (position, room) = if self.written < self.head {
            (self.written, self.head - self.written)
        } else {
            let position = (self.written - self.head) % self.ring;
            (self.head + position, self.ring - position)
        };
        let room = if grows { room.min(self.granted - self.written) } else { room };
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        match file.write_at(bytes, position)? {
            0 => Err(io::ErrorKind::WriteZero.into()),
            count => Ok(count),
        }
    }

    /// Puts the file in order. What cannot be written now is not worth an attempt's outcome.
    pub(crate) fn finish(mut self) {
        if let Some(mut mask) = self.mask.take() {
            mask.finish(|bytes| self.put(bytes));
        }
        let Some(file) = &self.file else { return };
        if self.written > self.head.saturating_add(self.ring) {
            let _ = self.put_in_order(file);
        }
        if let Some((error, lost)) = &self.broken {
            let note = format!("\n… {lost} more bytes could not be written: {error} …\n");
            let _ = append_or_overwrite(file, note.as_bytes());
        }
    }

    fn put_in_order(&self, file: &File) -> io::Result<()> {
        let oldest = (self.written - self.head) % self.ring;
        rotate(file, self.head, self.ring, oldest)?;
        let mut last = *b"\n";
        if self.head > 0 {
            file.read_exact_at(&mut last, self.head - 1)?;
        }
        let break_line = if last == *b"\n" { "" } else { "\n" };
        // The line takes the place of the oldest bytes, so they are left out too: more of them can make
        // the number longer, never shorter.
        let mut left_out = self.written - self.head - self.ring;
        let mut note = String::new();
        loop {
            let longer = format!("{break_line}… {left_out} bytes left out …\n");
            if longer.len() == note.len() {
                return file.write_all_at(longer.as_bytes(), self.head);
            }
            left_out += (longer.len() - note.len()) as u64;
            note = longer;
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "when a process prints is when it is read")]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// How many bytes a file may grow before somebody looks again; an error if none.
fn grant(file: &File, reserve: u64) -> io::Result<u64> {
    let disk = rustix::fs::fstatvfs(file)?;
    let [free, size] = [disk.f_bavail, disk.f_blocks].map(|n| n.saturating_mul(disk.f_frsize));
    match free.saturating_sub(reserve.min(size / DISK_SHARE)) {
        0 => Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is nearly full")),
        grant => Ok(grant.min(LOOK_EVERY)),
    }
}

fn create(path: &Path) -> io::Result<File> {
    let open = || File::options().read(true).write(true).create(true).truncate(true).open(path);
    match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(folder)?;
            open()
        }
        (opened, _) => opened,
    }
}

/// On a full disk the last bytes give way: what is there already can be written over.
fn append_or_overwrite(file: &File, note: &[u8]) -> io::Result<()> {
    let end = file.metadata()?.len();
    file.write_all_at(note, end).or_else(|_| {
        file.set_len(end)?;
        file.write_all_at(note, end.saturating_sub(note.len() as u64))
    })
}

/// Turns `length` bytes from `start` so that the one at `first` comes first.
fn rotate(file: &File, start: u64, length: u64, first: u64) -> io::Result<()> {
    if first == 0 {
        return Ok(());
    }
    reverse(file, start, start + first)?;
    reverse(file, start + first, start + length)?;
    reverse(file, start, start + length)
}

fn reverse(file: &File, mut from: u64, mut to: u64) -> io::Result<()> {
    let (mut low, mut high) = (Vec::new(), Vec::new());
    while to - from > 1 {
        let size = ((to - from) / 2).min(CHUNK);
        low.resize(size as usize, 0);
        high.resize(size as usize, 0);
        file.read_exact_at(&mut low, from)?;
        file.read_exact_at(&mut high, to - size)?;
        low.reverse();
        high.reverse();
        file.write_all_at(&high, from)?;
        file.write_all_at(&low, to - size)?;
        from += size;
        to -= size;
    }
    Ok(())
}
