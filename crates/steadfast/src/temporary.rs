//! Folders of workers that have none of their own: made for one life, and removed at its end. What a life
//! left behind that was killed, the next one removes.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

const PREFIX: &str = "steadfast-worker-";
/// A younger one may belong to a worker that has not locked it yet.
const SETTLED: Duration = Duration::from_mins(1);

/// A new one in `parent`.
pub(crate) fn folder(parent: &Path) -> io::Result<TempDir> {
    sweep(parent, SETTLED);
    tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)
}

/// Removes those in `parent` that nobody holds and that are at least so old. What cannot be removed, such
/// as another user's, stays.
fn sweep(parent: &Path, settled: Duration) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let modified = entry.metadata().and_then(|found| found.modified());
        let is_settled = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= settled));
        if is_ours && is_folder && is_settled && !is_held(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A worker holds the file `lock` for as long as it lives, however it ends.
fn is_held(folder: &Path) -> bool {
    match File::open(folder.join("lock")) {
        Ok(lock) => lock.try_lock().is_err(),
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_worker_left_is_removed_by_the_next_one() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join("steadfast-worker-left");
        let held = parent.path().join("steadfast-worker-held");
        let other = parent.path().join("something-else");
        for folder in [&left, &held, &other] {
            fs::create_dir_all(folder.join("work/job")).unwrap();
            fs::write(folder.join("lock"), "").unwrap();
        }
        let lock = File::open(held.join("lock")).unwrap();
        lock.try_lock().unwrap();
        sweep(parent.path(), SETTLED);
        assert!(left.exists(), "it may be about to be locked");
        sweep(parent.path(), Duration::ZERO);
        assert!(!left.exists() && held.exists() && other.exists());
        let made = folder(parent.path()).unwrap();
        let path = made.path().to_owned();
        drop(made);
        assert!(!path.exists(), "a worker that ends takes its own along");
    }
}
