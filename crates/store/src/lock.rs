//! Files that say by a lock that their process lives. The system gives it back however the process ends.

use std::fs::{File, TryLockError};
use std::io;
use std::thread::sleep;
use std::time::Duration;

/// A lock that is taken is tried this often, this long apart (2 s), before its holder is believed to live: a child that has
/// not yet become its program has the files of the process that made it, also when that one was just killed; and a
/// process that only looks has it for a moment.
const LOOKS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Whether the file is this process's now.
#[allow(
    clippy::disallowed_methods,
    reason = "a lock of another process is given back without a word"
)]
pub(crate) fn lock(file: &File) -> io::Result<bool> {
    for look in 0..LOOKS {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) if look + 1 < LOOKS => sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn opened(path: &std::path::Path) -> File {
        File::options().create(true).truncate(false).write(true).open(path).unwrap()
    }

    #[test]
    fn a_lock_that_is_given_back_soon_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let holder = opened(&path);
        assert!(lock(&holder).unwrap());
        let second = opened(&path);
        assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
        let (begins, begun) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            begins.send(()).unwrap();
            lock(&second).unwrap()
        });
        begun.recv().unwrap();
        drop(holder);
        assert!(waits.join().unwrap());
    }

    #[test]
    fn a_lock_that_is_kept_is_anothers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let holder = opened(&path);
        assert!(lock(&holder).unwrap());
        assert!(!lock(&opened(&path)).unwrap());
    }
}
