//! Which process has a job of `run`. On a data folder a lock on a file says so, which the system gives back however the
//! process ends; see [`postgres`](crate::PostgresStorage) for a database, which several machines share.

use std::fmt::Debug;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use steadfast_core::event::Requester;
use steadfast_core::time::Timestamp;

use crate::folder::Folder;
use crate::lock::lock;
use crate::sqlite::SqliteStore;
use crate::{Journal, StoreError};

/// Held while this process may write the job. Given back when it is dropped; by the system, or by the end of its term,
/// however the process ends.
pub trait RunClaim: Debug + Send + Sync {
    /// When the process that had it before was last alive. None: nobody had it.
    fn alive_at(&self) -> Option<Timestamp>;

    /// What writes the job. [`Journal::take`] of one that another process has taken the job from gives an epoch in which all is
    /// refused.
    fn journal(&self) -> Result<Box<dyn Journal>, StoreError>;

    /// This process is alive: once a second. May wait for a database.
    fn renew(&self, now: Timestamp) -> io::Result<RunRenewal>;

    /// The job is over, or not there: nothing is left to hold.
    fn forget(&self);
}

/// What a process that runs a job hears when it says that it is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunRenewal {
    /// It has the job. `cancel`: who asked that it be cancelled, and why.
    Kept { cancel: Option<Requester> },
    /// Another process took it for dead, and has the job now, or had it: which one, if that is known.
    Taken { by: Option<String> },
}

/// Why a job is not this process's to run.
#[derive(Debug, thiserror::Error)]
pub enum RunClaimError {
    #[error("job {job} is being run by another process right now{}", who(.by.as_deref()))]
    Run { job: String, by: Option<String> },
    #[error("cannot take job {job}: {why}")]
    Io { job: String, why: io::Error },
}

fn who(by: Option<&str>) -> String {
    by.map(|by| format!(": {by}")).unwrap_or_default()
}

/// The locked file of a job, in the folder of the process that runs it.
#[derive(Debug)]
pub(crate) struct RunLock {
    file: File,
    path: PathBuf,
}

impl RunLock {
    /// None: another process has it.
    pub(crate) fn take(folder: &Folder, job: &str) -> io::Result<Option<Self>> {
        let path = folder.job_lock(job);
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot lock {}: {error}", path.display()))
        };
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(named)?;
        let is_ours = lock(&file).map_err(named)?;
        Ok(is_ours.then_some(Self { file, path }))
    }

    /// When it was last said that its holder was alive.
    fn alive_at(&self) -> Option<Timestamp> {
        let modified = self.file.metadata().ok()?.modified().ok()?;
        let since = modified.duration_since(UNIX_EPOCH).ok()?;
        Some(Timestamp(since.as_millis() as u64))
    }

    pub(crate) fn forget(&self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[derive(Debug)]
pub(crate) struct FolderRunClaim {
    folder: Folder,
    job: String,
    lock: RunLock,
    alive_at: Option<Timestamp>,
}

impl FolderRunClaim {
    pub(crate) fn take(folder: &Folder, job: &str) -> Result<Self, RunClaimError> {
        let io = |why| RunClaimError::Io { job: job.to_owned(), why };
        match RunLock::take(folder, job).map_err(io)? {
            Some(lock) => {
                let alive_at = lock.alive_at();
                Ok(Self { folder: folder.clone(), job: job.to_owned(), lock, alive_at })
            }
            None => Err(RunClaimError::Run { job: job.to_owned(), by: None }),
        }
    }

    fn cancel_file(&self) -> PathBuf {
        self.folder.cancel_file(&self.job)
    }
}

impl RunClaim for FolderRunClaim {
    fn alive_at(&self) -> Option<Timestamp> {
        self.alive_at
    }

    fn journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        Ok(Box::new(SqliteStore::open(&self.folder.database())?))
    }

    fn renew(&self, now: Timestamp) -> io::Result<RunRenewal> {
        let now = UNIX_EPOCH + Duration::from_millis(now.0);
        let _ = self.lock.file.set_times(FileTimes::new().set_modified(now));
        // The file is there whole or not at all.
        let asked = fs::read_to_string(self.cancel_file()).ok();
        let cancel = asked.map(|text| serde_json::from_str(&text).unwrap_or(Requester::NOBODY));
        Ok(RunRenewal::Kept { cancel })
    }

    fn forget(&self) {
        self.lock.forget();
        let _ = fs::remove_file(self.cancel_file());
    }
}

/// Asks the process that runs a job of the folder to cancel it.
pub(crate) fn ask_to_cancel(folder: &Folder, job: &str, requested: &Requester) -> io::Result<()> {
    let path = folder.cancel_file(job);
    let draft = path.with_extension(format!("cancel.{}", std::process::id()));
    let text = serde_json::to_string(requested)?;
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, &path)).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
    })
}
