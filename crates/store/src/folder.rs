//! The data folder: where the database, logs, working folders and files of jobs are.
//!
//! Names are made of ids, checked names and numbers, so that every one is a plain file name. One that is not, as
//! nobody should hand in here, becomes a path that every call of the system refuses, and never one elsewhere.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};

use steadfast_core::event::ItemId;

#[derive(Clone, Debug)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes it, for its owner alone: jobs bring private things along.
    pub fn create(&self) -> io::Result<()> {
        if !self.root.exists() {
            DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        }
        DirBuilder::new().recursive(true).create(self.locks())
    }

    /// Makes a folder below the root and all between them, for their owner alone; never the root. A data
    /// folder that was moved away must not come to be again in its old place, with nothing in it.
    pub fn create_inside(&self, folder: &Path) -> io::Result<()> {
        let outside = || io::Error::other(format!("{} is outside", folder.display()));
        let below = folder.strip_prefix(&self.root).map_err(|_| outside())?;
        let mut path = self.root.clone();
        for name in below.components() {
            if !matches!(name, Component::Normal(_)) {
                return Err(outside());
            }
            path.push(name);
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        Ok(())
    }

    pub fn database(&self) -> PathBuf {
        self.root.join("steadfast.db")
    }

    /// What the tokens of callbacks are signed with.
    pub fn callback_key(&self) -> PathBuf {
        self.root.join("callback.key")
    }

    pub fn locks(&self) -> PathBuf {
        self.root.join("locks")
    }

    /// Held by the process that runs a job of `run`.
    pub fn job_lock(&self, job: &str) -> PathBuf {
        self.locks().join(format!("{}.lock", plain(job)))
    }

    /// Whether some process runs the job right now.
    pub fn is_run(&self, job: &str) -> bool {
        is_held(&self.job_lock(job))
    }

    /// Whether a server has the folder right now.
    pub fn is_served(&self) -> bool {
        is_held(&self.locks().join("server.lock"))
    }

    /// The folder of all attempts of a job.
    pub fn work(&self, job: &str) -> PathBuf {
        self.root.join("work").join(plain(job))
    }

    /// The folder of what its attempts have written, with a folder for each step in it.
    pub fn logs(&self, job: &str) -> PathBuf {
        self.root.join("logs").join(plain(job))
    }

    /// What an attempt has written.
    pub fn log(&self, job: &str, step: &str, item: ItemId, attempt: u32) -> PathBuf {
        let step = plain(step);
        self.logs(job).join(step).join(format!("{}.log", item.attempt_name(step, attempt)))
    }

    /// The folder of the files that came with a job.
    pub fn files(&self, job: &str) -> PathBuf {
        self.root.join("files").join(plain(job))
    }
}

/// A file name that leads nowhere else, whatever it is put before or behind.
pub fn is_plain_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let one = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    one && !name.contains(['/', '\0'])
}

/// The name itself, or one that no file can have. Empty: of all jobs.
fn plain(name: &str) -> &str {
    if name.is_empty() || is_plain_name(name) { name } else { "\0" }
}

fn is_held(lock: &Path) -> bool {
    let file = File::open(lock);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use steadfast_core::event::Role;

    use super::*;

    #[test]
    fn no_name_of_a_job_or_step_leads_out_of_its_place() {
        let here = tempfile::tempdir().unwrap();
        let folder = Folder::new(here.path().join("data"));
        folder.create().unwrap();
        let item = ItemId { run: 0, step: 0, role: Role::Item, index: 0 };
        for odd in ["..", ".", "/etc", "a/b", "z/../../../pwned", "a/", "a\0", "../pwned"] {
            assert!(!is_plain_name(odd), "{odd:?}");
            for path in [
                folder.log(odd, "step", item, 1),
                folder.log("job", odd, item, 1),
                folder.files(odd),
                folder.work(odd),
                folder.job_lock(odd),
            ] {
                assert!(path.starts_with(folder.root()), "{path:?}");
                let refused = File::create(&path).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path:?}");
            }
        }
        let outside = folder.root().join("logs/../../pwned");
        assert!(folder.create_inside(&outside).is_err());
        assert!(!here.path().join("pwned").exists());
        assert!(folder.log("01k", "fetch-2_x.y", item, 1).starts_with(folder.logs("01k")));
    }
}
