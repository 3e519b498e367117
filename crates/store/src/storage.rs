//! All that a server keeps, by use, from one factory: a server knows these traits, and not where things are.
//!
//! | | |
//! |---|---|
//! | [`Journal`] | groups of decisions, owners and their epochs, what an owner has to go on with |
//! | [`Reader`] | what is asked about jobs: pages, snapshots, events |
//! | [`Blobs`] | attached files, and what attempts print |
//! | [`Settings`] | tokens, the key of callbacks |
//! | [`Space`] | how much room is left for all of it |

use std::fmt::Debug;
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use steadfast_core::time::Timestamp;

use crate::blobs::{Blobs, FolderBlobs};
use crate::folder::Folder;
use crate::lock::lock;
use crate::settings::{FolderSettings, Settings};
use crate::sqlite::{InPlace, SqliteStore};
use crate::{Journal, Reader, StoreError};

/// A lock of another process is told of after this long; it is waited for as long as it takes.
const LOCKED_AFTER: Duration = Duration::from_secs(1);

pub trait Storage: Debug + Send + Sync {
    /// For the life of one server: there is no second one meanwhile.
    fn claim(&self) -> Result<Box<dyn Claim>, ClaimError>;

    /// For the one thread that writes, and for the one that loads jobs for it.
    fn journal(&self) -> Result<Box<dyn Journal>, StoreError>;

    /// For requests.
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;

    fn blobs(&self) -> Arc<dyn Blobs>;

    fn settings(&self) -> Arc<dyn Settings>;

    /// To be asked once there is a journal.
    fn space(&self) -> Arc<dyn Space>;

    /// Whether some process runs this job of `run` right now.
    fn is_run(&self, job: &str) -> bool;

    /// For messages.
    fn place(&self) -> String;
}

/// Given back by the system however the process ends.
pub trait Claim: Debug + Send {
    /// When who had it before was last alive.
    fn alive_at(&self) -> Option<Timestamp>;

    /// Its holder is alive.
    fn renew(&self, now: Timestamp) -> io::Result<()>;
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("another server has it")]
    Taken,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The disk under all of it.
pub trait Space: Debug + Send + Sync {
    /// What was opened is still where a restart will look.
    fn is_in_place(&self) -> bool;

    fn free_bytes(&self) -> io::Result<u64>;

    /// Takes room that can be given up later.
    fn lay_ballast(&self, bytes: u64) -> io::Result<()>;

    fn has_ballast(&self) -> bool;

    /// Whether there was any.
    fn release_ballast(&self) -> bool;

    /// For messages.
    fn place(&self) -> String;
}

/// A data folder: `SQLite`, and files beside it.
#[derive(Clone, Debug)]
pub struct FolderStorage {
    folder: Folder,
}

impl FolderStorage {
    pub fn new(folder: &Folder) -> Self {
        Self { folder: folder.clone() }
    }
}

impl Folder {
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(FolderStorage::new(self))
    }
}

impl Storage for FolderStorage {
    fn claim(&self) -> Result<Box<dyn Claim>, ClaimError> {
        self.folder.create()?;
        let path = self.folder.server_lock();
        let existed = path.exists();
        let file = File::options().create(true).truncate(false).write(true).open(&path)?;
        if !lock(&file)? {
            return Err(ClaimError::Taken);
        }
        let since = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
        let alive_at = existed.then_some(Timestamp(since.as_millis() as u64));
        Ok(Box::new(FolderClaim { file, alive_at }))
    }

    fn journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        Ok(Box::new(SqliteStore::open_waiting(&self.folder.database(), LOCKED_AFTER)?))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(SqliteStore::open(&self.folder.database())?))
    }

    fn blobs(&self) -> Arc<dyn Blobs> {
        Arc::new(FolderBlobs::new(&self.folder))
    }

    fn settings(&self) -> Arc<dyn Settings> {
        Arc::new(FolderSettings::new(self.folder.root().to_owned()))
    }

    fn space(&self) -> Arc<dyn Space> {
        let root = self.folder.root().to_owned();
        Arc::new(FolderSpace { root, database: InPlace::of(&self.folder.database()).ok() })
    }

    fn is_run(&self, job: &str) -> bool {
        self.folder.is_run(job)
    }

    fn place(&self) -> String {
        self.folder.root().display().to_string()
    }
}

/// A locked file, whose time says when its holder was last alive.
#[derive(Debug)]
struct FolderClaim {
    file: File,
    alive_at: Option<Timestamp>,
}

impl Claim for FolderClaim {
    fn alive_at(&self) -> Option<Timestamp> {
        self.alive_at
    }

    fn renew(&self, now: Timestamp) -> io::Result<()> {
        let now = UNIX_EPOCH + Duration::from_millis(now.0);
        self.file.set_times(FileTimes::new().set_modified(now))
    }
}

#[derive(Debug)]
struct FolderSpace {
    root: PathBuf,
    database: Option<InPlace>,
}

impl FolderSpace {
    fn ballast(&self) -> PathBuf {
        self.root.join(Folder::BALLAST)
    }
}

impl Space for FolderSpace {
    fn is_in_place(&self) -> bool {
        self.database.as_ref().is_none_or(InPlace::holds)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = statvfs(&self.root)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }

    fn lay_ballast(&self, bytes: u64) -> io::Result<()> {
        let path = self.ballast();
        let lay = || -> io::Result<()> {
            fallocate(File::create_new(&path)?, FallocateFlags::empty(), 0, bytes)?;
            Ok(())
        };
        // Of no use if it takes no room; on a disk that cannot give it any, the reserve is all there is.
        lay().inspect_err(|_| drop(fs::remove_file(&path)))
    }

    fn has_ballast(&self) -> bool {
        self.ballast().exists()
    }

    fn release_ballast(&self) -> bool {
        fs::remove_file(self.ballast()).is_ok()
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }
}
