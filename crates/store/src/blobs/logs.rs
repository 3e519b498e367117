//! What attempts have printed, a file each.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::{LogChunk, LogReader, log_times};
use crate::folder::Folder;

/// The last line of a log that ends before the attempt did. Nothing is added after it: it would not fit on.
const CUT_OFF: &str = "\n… the server's disk is nearly full: what follows is not kept …\n";

pub(super) fn write(data: &Folder, path: &Path, chunk: LogChunk<'_>, room: bool) -> io::Result<()> {
    let LogChunk { offset, bytes, last } = chunk;
    if bytes.is_empty() && !path.exists() {
        return Ok(());
    }
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            data.create_inside(folder)?;
            open()?
        }
        (opened, _) => opened?,
    };
    let (length, end) = (file.metadata()?.len(), offset + bytes.len() as u64);
    if is_cut_off(&file, length)? {
        return Ok(());
    }
    // What is written over what is there takes no room.
    if end > length && !room {
        return file.write_all_at(CUT_OFF.as_bytes(), length);
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
    Ok(())
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

    #[test]
    fn a_log_ends_with_a_mark_where_the_room_did() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().to_owned());
        let path = data.logs("job").join("step").join("log");
        let put = |chunk: LogChunk<'_>, room| {
            write(&data, &path, chunk, room).unwrap();
            fs::read_to_string(&path).unwrap()
        };
        assert_eq!(put(chunk(0, "one\n", false), true), "one\n");
        let cut = format!("one\n{CUT_OFF}");
        assert_eq!(put(chunk(4, "two\n", false), false), cut);
        assert_eq!(put(chunk(8, "three\n", false), false), cut);
        assert_eq!(put(chunk(14, "four\n", true), true), cut, "there is a gap before it");
        assert_eq!(put(chunk(0, "one\ntwo\nthree\nfour\n", true), true), cut);
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
