//! When the bytes of a log were printed, kept beside it in `NAME.times`: a line `OFFSET MS` says that the
//! bytes from there on were printed then, up to the next line's. A log without such a file was printed all
//! at once, when it was written.
//!
//! Processes that `run` starts are read by `worker`, which writes such files too. What a worker elsewhere
//! prints is noted here as it comes in.

use std::fs::{self, File, Metadata};
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

/// How exactly it is known.
pub(crate) const TICK_MS: u64 = 100;

/// Where bytes begin, and when they were printed (Unix milliseconds); by place, the first one 0. Empty of a
/// log that nothing was printed to.
pub(crate) fn read(log: &Path) -> io::Result<Vec<(u64, u64)>> {
    match fs::read_to_string(log.with_extension("times")) {
        Ok(text) => {
            // A line that a crash cut off says nothing.
            let mut marks: Vec<(u64, u64)> = text.split_inclusive('\n').filter_map(mark).collect();
            marks.dedup_by(|later, earlier| later.0 <= earlier.0);
            Ok(marks)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let about = fs::metadata(log)?;
            Ok(if about.len() > 0 { vec![(0, written_ms(&about)?)] } else { vec![] })
        }
        Err(error) => Err(error),
    }
}

fn mark(line: &str) -> Option<(u64, u64)> {
    let (offset, ms) = line.strip_suffix('\n')?.split_once(' ')?;
    Some((offset.parse().ok()?, ms.parse().ok()?))
}

fn written_ms(about: &Metadata) -> io::Result<u64> {
    let since = about.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(since.as_millis() as u64)
}

/// Bytes from `offset` to `end` were just written to a log that had `length` bytes before. What was sent
/// before, and is sent again, keeps its time; what comes whole at the end needs no file.
pub(super) fn note(log: &File, path: &Path, length: u64, offset: u64, end: u64) -> io::Result<()> {
    if end <= length {
        return Ok(());
    }
    let mut file = File::options().append(true).create(true).open(path.with_extension("times"))?;
    let (about, now_ms) = (file.metadata()?, written_ms(&log.metadata()?)?);
    // Of a log that was begun before anything was noted, the beginning has this time too.
    let from = if about.len() == 0 { 0 } else { offset.max(length) };
    // When the last of it was noted.
    if from > 0 && now_ms < written_ms(&about)?.saturating_add(TICK_MS) {
        return Ok(());
    }
    file.write_all(format!("{from} {now_ms}\n").as_bytes())
}

/// Of a log that was copied: instead of what was noted here. The log is as old as the last of it.
pub(super) fn keep(log: &Path, times: &[(u64, u64)]) -> io::Result<()> {
    let Some((_, last_ms)) = times.last() else { return Ok(()) };
    let lines: Vec<_> = times.iter().map(|(offset, ms)| format!("{offset} {ms}\n")).collect();
    fs::write(log.with_extension("times"), lines.concat())?;
    let then = fs::FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_millis(*last_ms));
    File::options().append(true).open(log)?.set_times(then)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_from_the_notes_or_from_the_file_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("a_0_attempt_1.log");
        fs::write(&log, "").expect("writes");
        assert_eq!(read(&log).expect("reads"), []);
        fs::write(&log, "one\n").expect("writes");
        let written = written_ms(&fs::metadata(&log).expect("there")).expect("a time");
        assert_eq!(read(&log).expect("reads"), [(0, written)]);
        fs::write(log.with_extension("times"), "0 5\n4 120\n4 130\n9 2").expect("writes");
        assert_eq!(read(&log).expect("reads"), [(0, 5), (4, 120)]);
    }

    #[test]
    fn what_is_sent_again_keeps_its_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a_0_attempt_1.log");
        let log = File::create(&path).expect("a file");
        let times = path.with_extension("times");
        note(&log, &path, 0, 0, 10).expect("notes");
        let first = fs::read_to_string(&times).expect("noted");
        assert!(first.starts_with("0 "), "{first}");
        note(&log, &path, 10, 0, 10).expect("notes");
        note(&log, &path, 10, 10, 12).expect("notes");
        assert_eq!(fs::read_to_string(&times).expect("noted"), first, "again, and at once");
        let long_ago = fs::FileTimes::new().set_modified(UNIX_EPOCH);
        let noted = File::options().append(true).open(&times).expect("opens");
        noted.set_times(long_ago).expect("sets");
        note(&log, &path, 12, 0, 14).expect("notes");
        let marks = fs::read_to_string(&times).expect("noted");
        assert!(marks.lines().nth(1).is_some_and(|line| line.starts_with("12 ")), "{marks}");
    }
}
