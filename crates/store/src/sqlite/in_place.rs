//! Whether a file is still where it was opened.
//!
//! A process that has a file open can go on writing to it after its folder was moved or replaced, and a restart
//! finds nothing of that under the old path. Nothing here opens the file: closing it again would give the
//! locks back that `SQLite` holds on it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The file that a path led to when it was opened, and its write-ahead log. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct InPlace {
    path: PathBuf,
    file: FileId,
    /// Known from the first write on. It is the same file as long as a process has the database open.
    wal: Arc<OnceLock<FileId>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> io::Result<Self> {
        let about = fs::metadata(path)?;
        Ok(Self { device: about.dev(), inode: about.ino() })
    }
}

impl InPlace {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: FileId::of(path)?, wal: Arc::default() })
    }

    /// Whether the path still leads to the same file.
    pub(crate) fn holds(&self) -> bool {
        let Self { path, file, wal } = self;
        FileId::of(path).is_ok_and(|found| found == *file)
            && wal
                .get()
                .is_none_or(|wal| FileId::of(&log_of(path)).is_ok_and(|found| found == *wal))
    }

    /// The same, after something was written.
    pub(super) fn holds_after_write(&self) -> bool {
        if self.wal.get().is_none()
            && let Ok(wal) = FileId::of(&log_of(&self.path))
        {
            let _ = self.wal.set(wal);
        }
        self.holds()
    }
}

pub(crate) fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}
