//! All that a server keeps, by use, from one factory: a server knows these traits, and not where things are.
//!
//! | | |
//! |---|---|
//! | [`Journal`] | groups of decisions, owners and their epochs, what an owner has to go on with |
//! | [`Reader`] | what is asked about jobs: pages, snapshots, events |
//! | [`Blobs`] | attached files, and what attempts print |
//! | [`Settings`] | tokens, the key of callbacks |
//! | [`Space`] | how much room is left for all of it |

mod elsewhere;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File, FileTimes};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{FallocateFlags, fallocate, statvfs};
use steadfast_core::event::{JobId, Requester};
use steadfast_core::time::Timestamp;

use crate::blobs::{Blobs, FolderBlobs};
use crate::folder::Folder;
use crate::lock::lock;
use crate::postgres::PostgresStorage;
use crate::run_claim::{self, FolderRunClaim, RunClaim, RunClaimError};
use crate::settings::{FolderSettings, Settings};
use crate::shards::OwnedShards;
use crate::sqlite::{InPlace, SqliteStore};
use crate::transfer::{
    FolderReservation, Movable, MovableBlobs, MoveRecord, MoveSide, Reservation, ReserveError,
    Transfer,
};
use crate::{Finding, Journal, Owner, Reader, StoreError, doctor};

pub use elsewhere::with_blobs_at;

/// A lock of another process is told of after this long; it is waited for as long as it takes.
const LOCKED_AFTER: Duration = Duration::from_secs(1);

pub trait Storage: Debug + Send + Sync {
    /// For the life of one server: there is no second one meanwhile, or they share what is there.
    fn claim(&self) -> Result<Box<dyn Claim>, ClaimError>;

    /// For the one thread that writes, and for the one that loads jobs for it.
    fn journal(&self) -> Result<Box<dyn Journal>, StoreError>;

    /// For requests.
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError>;

    fn blobs(&self) -> Arc<dyn Blobs>;

    fn settings(&self) -> Arc<dyn Settings>;

    /// To be asked once there is a journal.
    fn space(&self) -> Arc<dyn Space>;

    /// Between the servers that share it. None: there is one.
    fn exchange(&self) -> Option<Arc<dyn Exchange>>;

    /// For a process that is to run a job of `run`. `place`: where it keeps what the job's attempts work with.
    fn claim_run(&self, job: &str, place: &Folder) -> Result<Box<dyn RunClaim>, RunClaimError>;

    /// Asks the process that runs a job of `run` to cancel it.
    fn ask_to_cancel(&self, job: &str, requested: &Requester) -> io::Result<()>;

    /// Whether some process runs this job of `run` right now.
    fn is_run(&self, job: &str) -> bool;

    /// Whether there is a server that goes on with what was submitted to one.
    fn is_served(&self) -> bool;

    /// What nobody else sees to: about once an hour, beside everything else.
    fn maintain(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// What an operator should know of it. Changes nothing. `reserve`: bytes of the disk that are kept free.
    fn examine(&self, now: Timestamp, reserve: u64) -> Vec<Finding>;

    /// For messages.
    fn place(&self) -> String;
}

/// Given back when it is dropped; by the system, or by the end of its term, however the process ends.
pub trait Claim: Debug + Send + Sync {
    /// What the server writes as: [`Owner::id`].
    fn owner(&self) -> Arc<str>;

    /// When who had it before was last alive. None: that is kept with what is taken over.
    fn alive_at(&self) -> Option<Timestamp>;

    /// Waits until there is something to serve, or until it is clear that others have it. May take some seconds, after
    /// a server that had no time to give it up. True: others took the holder for dead meanwhile, and the epoch that it has taken is over.
    fn begin(&self, now: Timestamp) -> io::Result<bool>;

    /// Its holder is alive: once a second, from the moment on that the time in which nobody was is kept. May wait for a
    /// database.
    fn renew(&self, now: Timestamp) -> io::Result<Renewal>;

    fn shards(&self) -> Arc<OwnedShards>;
}

/// What has changed between servers that share a store.
#[derive(Debug, Default)]
pub struct Renewal {
    /// Shards that have become this server's: it goes on with their jobs.
    pub gained: Vec<u16>,
    /// Shards that it is to give away, by the owner that is to have them: [`Journal::hand_over`].
    pub give: BTreeMap<Arc<str>, Vec<u16>>,
    /// Servers that it found dead, and ended.
    pub lost: Vec<Arc<str>>,
    /// Servers that have ended, however, and the epochs in which nothing more of theirs is written.
    pub ended: Vec<(Arc<str>, u64)>,
    /// Others took it for dead. It has nothing any more, and begins anew, in an epoch that it is still to take.
    pub is_ended: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    #[error("another server has it")]
    Taken,
    /// Why, and what to do.
    #[error("{0}")]
    Moved(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// How servers that share a store reach each other: through it, and in no other way.
pub trait Exchange: Debug + Send + Sync {
    /// Asks the server that has the job, in the servers' own words. By what its answer is asked for.
    fn ask(&self, job: &str, body: &[u8]) -> io::Result<i64>;

    /// Fetches an answer, once. None: not yet.
    fn answered(&self, input: i64) -> io::Result<Option<Vec<u8>>>;

    /// What is asked of an owner, and not yet answered; oldest first.
    fn asked(&self, owner: &str, limit: usize) -> io::Result<Vec<AskedInput>>;

    fn answer(&self, input: i64, answer: &[u8]) -> io::Result<()>;

    /// The last events of jobs, and whether they have finished.
    fn ends(&self, jobs: &[JobId]) -> io::Result<Vec<(JobId, u64, bool)>>;
}

/// What one server asks of another.
#[derive(Clone, Debug)]
pub struct AskedInput {
    pub id: i64,
    pub job: JobId,
    pub body: Vec<u8>,
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

/// Where a store is said to be: `postgres://…`, or a folder.
pub fn storage_at(place: &str) -> Result<Arc<dyn Storage>, StoreError> {
    storage_with_shards(place, None)
}

/// The same of a server, which makes what is not there: with so many shards, if it is a database.
pub fn storage_with_shards(
    place: &str,
    shards: Option<u16>,
) -> Result<Arc<dyn Storage>, StoreError> {
    if is_postgres(place) {
        return Ok(Arc::new(PostgresStorage::with_shards(place, shards)?));
    }
    // May have a password in it, and is no folder's name.
    if place.contains("://") {
        let why = "it begins with something else than postgres://. Write postgres://USER@HOST/NAME"
            .to_owned();
        return Err(StoreError::Unsuitable { store: "the URL of the store".to_owned(), why });
    }
    Ok(Folder::new(place.into()).storage())
}

/// The same, for a move.
pub fn movable_at(place: &str) -> Result<Arc<dyn Movable>, StoreError> {
    if is_postgres(place) {
        return Ok(Arc::new(PostgresStorage::new(place)?));
    }
    Ok(Arc::new(FolderStorage::new(&Folder::new(place.into()))))
}

/// Whether it is the URL of a `PostgreSQL` database.
pub fn is_postgres(place: &str) -> bool {
    place.starts_with("postgres://") || place.starts_with("postgresql://")
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

/// The file that only one process has locked, and when a server last said there that it is alive. None: another one has it.
pub(crate) fn claim_folder(folder: &Folder) -> io::Result<Option<(File, Option<Timestamp>)>> {
    folder.create()?;
    let path = folder.server_lock();
    let existed = path.exists();
    let file = File::options().create(true).truncate(false).write(true).open(&path)?;
    if !lock(&file)? {
        return Ok(None);
    }
    let since = file.metadata()?.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Some((file, existed.then_some(Timestamp(since.as_millis() as u64)))))
}

impl Movable for FolderStorage {
    fn reserve(&self, side: MoveSide) -> Result<Box<dyn Reservation>, ReserveError> {
        Ok(Box::new(FolderReservation::new(&self.folder, side)?))
    }

    fn transfer(&self) -> Result<Box<dyn Transfer>, StoreError> {
        Ok(Box::new(SqliteStore::open(&self.folder.database())?))
    }

    fn own_blobs(&self) -> Arc<dyn MovableBlobs> {
        Arc::new(FolderBlobs::new(&self.folder))
    }
}

impl Storage for FolderStorage {
    fn claim(&self) -> Result<Box<dyn Claim>, ClaimError> {
        let (file, alive_at) = claim_folder(&self.folder)?.ok_or(ClaimError::Taken)?;
        match MoveRecord::of(&*self.settings())?.closes(&self.place()) {
            Some(why) => Err(ClaimError::Moved(why)),
            None => Ok(Box::new(FolderClaim { file, alive_at })),
        }
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

    fn exchange(&self) -> Option<Arc<dyn Exchange>> {
        None
    }

    fn claim_run(&self, job: &str, _place: &Folder) -> Result<Box<dyn RunClaim>, RunClaimError> {
        Ok(Box::new(FolderRunClaim::take(&self.folder, job)?))
    }

    fn ask_to_cancel(&self, job: &str, requested: &Requester) -> io::Result<()> {
        run_claim::ask_to_cancel(&self.folder, job, requested)
    }

    fn is_run(&self, job: &str) -> bool {
        self.folder.is_run(job)
    }

    fn is_served(&self) -> bool {
        self.folder.is_served()
    }

    fn examine(&self, now: Timestamp, reserve: u64) -> Vec<Finding> {
        doctor::folder(&self.folder, now, reserve)
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
    fn owner(&self) -> Arc<str> {
        Owner::SHARD.into()
    }

    fn alive_at(&self) -> Option<Timestamp> {
        self.alive_at
    }

    fn begin(&self, _now: Timestamp) -> io::Result<bool> {
        Ok(false)
    }

    fn renew(&self, now: Timestamp) -> io::Result<Renewal> {
        let now = UNIX_EPOCH + Duration::from_millis(now.0);
        self.file.set_times(FileTimes::new().set_modified(now))?;
        Ok(Renewal::default())
    }

    fn shards(&self) -> Arc<OwnedShards> {
        Arc::new(OwnedShards::all())
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
