//! What attempts have printed, a file each.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::{LogChunk, LogProgress, LogReader, log_times};
use crate::folder::Folder;

/// The last line of a log that ends before the attempt did. Nothing is added after it: it would not fit on.
pub(crate) const CUT_OFF: &str =
    "\n… the server's disk is nearly full: what follows is not kept …\n";

/// Is there, empty, while more of a log is to come.
pub(super) fn part(log: &Path) -> PathBuf {
    log.with_extension("part")
}

pub(super) fn mark_partial(data: &Folder, path: &Path) -> io::Result<()> {
    open_to_write(data, path)?;
    File::create(part(path)).map(drop)
}

pub(super) fn mark_whole(path: &Path) -> io::Result<()> {
    match fs::remove_file(part(path)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open_to_write(data: &Folder, path: &Path) -> io::Result<File> {
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
    match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            data.create_inside(folder)?;
            open()
        }
        (opened, _) => opened,
    }
}

pub(super) fn write(
    data: &Folder,
    path: &Path,
    chunk: LogChunk<'_>,
    room: bool,
) -> io::Result<LogProgress> {
    let LogChunk { offset, bytes, last } = chunk;
    let is_new = !path.exists();
    if bytes.is_empty() && is_new {
        return Ok(LogProgress { length: 0, complete: last });
    }
    let file = open_to_write(data, path)?;
    if is_new && !last {
        File::create(part(path))?;
    }
    let (length, end) = (file.metadata()?.len(), offset + bytes.len() as u64);
    if is_cut_off(&file, length)? {
        return Ok(LogProgress { length, complete: true });
    }
    // A question, or what would leave a hole: it goes on from where this ends.
    if (bytes.is_empty() && !last) || offset > length {
        return Ok(LogProgress { length, complete: !part(path).exists() });
    }
    // What is written over what is there takes no room.
    if end > length && !room {
        file.write_all_at(CUT_OFF.as_bytes(), length)?;
        return Ok(LogProgress { length: length + CUT_OFF.len() as u64, complete: true });
    }
    file.write_all_at(bytes, offset)?;
    // What comes whole was printed when the file was written. Without times the log is still there.
    if offset > 0 || !last {
        let _ = log_times::note(&file, path, length, offset, end);
    }
    // Nothing but what is printed changes the file's time.
    if last && length.max(end) != end {
        file.set_len(end)?;
    }
    Ok(LogProgress { length: end, complete: last })
}

/// Bytes that are copied at once.
const COPIED: usize = 1 << 20;

/// Not synced.
pub(super) fn put(
    data: &Folder,
    path: &Path,
    content: &dyn LogReader,
    partial: bool,
) -> io::Result<()> {
    let file = open_to_write(data, path)?;
    if partial {
        File::create(part(path))?;
    } else {
        mark_whole(path)?;
    }
    let mut length = 0;
    loop {
        let piece = content.read(length, COPIED)?;
        if piece.is_empty() {
            return file.set_len(length);
        }
        file.write_all_at(&piece, length)?;
        length += piece.len() as u64;
    }
}

fn is_cut_off(file: &File, length: u64) -> io::Result<bool> {
    let Some(start) = length.checked_sub(CUT_OFF.len() as u64) else { return Ok(false) };
    let mut end = [0; CUT_OFF.len()];
    file.read_exact_at(&mut end, start)?;
    Ok(end == *CUT_OFF.as_bytes())
}

pub(super) fn each(folder: &Path, see: &mut dyn FnMut(&str)) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        if let Some(name) = entry?.file_name().to_str().and_then(|file| file.strip_suffix(".log")) {
            see(name);
        }
    }
    Ok(())
}

pub(super) fn size(path: &Path) -> io::Result<Option<u64>> {
    match fs::symlink_metadata(path) {
        Ok(about) => Ok(about.is_file().then_some(about.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

pub(super) fn open(path: &Path) -> io::Result<LogFile> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    if file.metadata()?.is_file() { Ok(LogFile(file)) } else { Err(io::ErrorKind::NotFound.into()) }
}

#[derive(Debug)]
pub(super) struct LogFile(File);

impl LogReader for LogFile {
    fn read(&self, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        if offset >= self.0.metadata()?.len() {
            return Ok(vec![]);
        }
        let mut chunk = vec![0; most];
        let count = self.0.read_at(&mut chunk, offset)?;
        chunk.truncate(count);
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(offset: u64, text: &str, last: bool) -> LogChunk<'_> {
        LogChunk { offset, bytes: text.as_bytes(), last }
    }

    fn progress(length: usize, complete: bool) -> LogProgress {
        LogProgress { length: length as u64, complete }
    }

    #[test]
    fn a_log_ends_with_a_mark_where_the_room_did() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().to_owned());
        let path = data.logs("job").join("step").join("log");
        let put = |chunk: LogChunk<'_>, room| {
            let answer = write(&data, &path, chunk, room).unwrap();
            (fs::read_to_string(&path).unwrap(), answer)
        };
        let one = put(chunk(0, "one\n", false), true);
        assert_eq!(one, ("one\n".to_owned(), progress(4, false)));
        let cut = format!("one\n{CUT_OFF}");
        let told = (cut.clone(), progress(cut.len(), true));
        assert_eq!(put(chunk(4, "two\n", false), false), told);
        assert_eq!(put(chunk(8, "three\n", false), false), told);
        assert_eq!(put(chunk(14, "four\n", true), true), told, "there is a gap before it");
        assert_eq!(put(chunk(0, "one\ntwo\nthree\nfour\n", true), true), told);
    }

    #[test]
    fn a_log_goes_on_where_the_server_says_and_is_not_whole_before_its_last_piece() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().to_owned());
        let path = data.logs("job").join("step").join("log");
        let take = |chunk: LogChunk<'_>| {
            let answer = write(&data, &path, chunk, true).unwrap();
            if answer.complete {
                mark_whole(&path).unwrap();
            }
            answer
        };
        assert_eq!(take(chunk(0, "", false)), progress(0, false), "a question");
        assert_eq!(take(chunk(0, "one\ntwo\n", false)), progress(8, false));
        assert_eq!(take(chunk(100, "far", false)), progress(8, false), "there would be a hole");
        assert_eq!(take(chunk(0, "", false)), progress(8, false));
        // Its last bytes have changed, and it is shorter now.
        assert_eq!(take(chunk(4, "2\n", false)), progress(6, false));
        assert!(part(&path).exists());
        assert_eq!(take(chunk(6, "", true)), progress(6, true));
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n2\n");
        assert!(!part(&path).exists());
        // The worker did not hear that, and asks.
        assert_eq!(take(chunk(0, "", false)), progress(6, true));
    }

    #[test]
    fn a_log_does_not_make_a_data_folder_anew_that_was_moved_away() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().join("data"));
        let path = data.logs("job").join("step").join("log");
        let written = write(&data, &path, chunk(0, "one\n", false), true);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!data.root().exists());
    }
}
