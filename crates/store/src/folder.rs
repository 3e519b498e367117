//! The data folder: where the database, logs, working folders and files of jobs are.
//!
//! Names are made of ids, checked names and numbers, so that every one is a plain file name.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

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
        self.locks().join(format!("{job}.lock"))
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
        self.root.join("work").join(job)
    }

    /// The folder of what its attempts have written, with a folder for each step in it.
    pub fn logs(&self, job: &str) -> PathBuf {
        self.root.join("logs").join(job)
    }

    /// What an attempt has written.
    pub fn log(&self, job: &str, step: &str, item: ItemId, attempt: u32) -> PathBuf {
        self.logs(job).join(step).join(format!("{}.log", item.attempt_name(step, attempt)))
    }

    /// The folder of the files that came with a job.
    pub fn files(&self, job: &str) -> PathBuf {
        self.root.join("files").join(job)
    }
}

fn is_held(lock: &Path) -> bool {
    let file = File::open(lock);
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}
