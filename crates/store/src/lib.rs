//! Where jobs are kept: their events, the latest snapshot of each, and a row for lists and timers.
//!
//! A store keeps what it is given and gives it back. It folds no events, decides nothing about
//! retries, and does not ask what time it is. Everything it promises is in [`Store`]; the same
//! conformance suite holds every implementation to it.
//!
//! | | |
//! |---|---|
//! | [`Write`], [`Row`], [`Stored`] | what goes in and comes out |
//! | [`SqliteStore`] | one file, shared by several processes |
//! | [`MemoryStore`] | for tests and rehearsals |
//! | [`Folder`] | where the file is, and what lies beside it |
//! | [`Storage`] | all that a server keeps: a store, [`Blobs`], [`Settings`], from one factory |

pub mod backup;
mod blobs;
mod cursor;
mod error;
mod folder;
mod lock;
mod memory;
mod model;
mod plans;
mod settings;
mod sqlite;
mod storage;

use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::time::Timestamp;

pub use blobs::log_times::read as log_times;
pub use blobs::{
    AttachedFile, AttachedFiles, Blobs, FolderBlobs, LogChunk, LogName, LogProgress, LogReader,
};
pub use error::StoreError;
pub use folder::{Folder, is_plain_name};
pub use lock::lock;
pub use memory::MemoryStore;
pub use model::{
    Filter, Gap, IdempotencyKey, Owner, Page, QueueEntry, Refused, Row, Snapshot, Stored, Write,
};
pub use plans::Plans;
pub use settings::{Change, FolderSettings, Settings, Version};
pub use sqlite::SqliteStore;
pub use storage::{Claim, ClaimError, FolderStorage, Space, Storage};

pub trait Store: Send {
    /// Makes writes durable: all are synced when this returns. One transaction for the whole group;
    /// a write that is refused fails alone, the others commit. They are taken in order, so that a
    /// later write of the group may follow on an earlier one.
    ///
    /// On an error nothing of the group is known to be kept. After [`StoreError::Full`] and
    /// [`StoreError::Busy`] nothing is, and the store goes on working; after [`StoreError::Unknown`] all of it or
    /// nothing, and [`Store::take`] sees to it that it stays so; after any other, see [`StoreError::is_fatal`].
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError>;

    /// Takes an owner over, or makes it: from now on the groups of the process that had it are refused. Whether that one
    /// is still alive is for the caller to know. `down_since`: nothing was decided between then and `at`; that
    /// is kept as a gap, joined with one that it touches. An epoch is at least the second it begins in, so that
    /// none is repeated after an older copy of the file was put back.
    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError>;

    /// The gaps of an owner that ended after a moment, in order. Those that no open job can have been in are
    /// forgotten.
    fn gaps(&mut self, owner: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError>;

    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError>;

    /// What lists show of the job, and the number of its last event: [`Store::get`] without the
    /// snapshot, which may be large.
    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError>;

    /// The job that was submitted with an idempotency key, and the digest of its body.
    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError>;

    /// Newest first; of the same moment, the highest id first. The cursor is a page's `next`.
    fn list(
        &mut self,
        filter: &Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError>;

    /// A job's log from the event after `after` on. Plans are stored once for all jobs that have the same, and
    /// are put back here; those that are in use share one. Of an unknown job, nothing. Fewer than `limit` where they are
    /// large, but none only if there are no more.
    fn events(
        &mut self,
        job: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError>;

    /// Jobs of an owner that are to be woken up to a moment, soonest first; `after`: from the one after this on.
    fn due(
        &mut self,
        owner: &str,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError>;

    /// Jobs of an owner that wait for a worker and have nothing under way, oldest first; `after`: from the one
    /// after this on.
    fn queued(
        &mut self,
        owner: &str,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError>;

    /// How many jobs of an owner are not over, without those that are stuck, and how many are stuck.
    fn count(&mut self, owner: &str) -> Result<(u64, u64), StoreError>;

    /// Everything of jobs that are over and finished before a moment goes, their idempotency keys
    /// too; which these were.
    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError>;

    /// Everything of one job goes, over or not, without reading any of it. Whether there was such a one.
    fn remove(&mut self, job: &str) -> Result<bool, StoreError>;

    /// Marks a job that cannot go on, without reading it: it is woken no more. False: there is no
    /// such job, or it is over.
    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError>;

    /// Why a job was parked, or what is wrong with its stored log, as far as its checksums tell; none: nothing, or there
    /// is no such job. Of a long log only the beginning and the end are looked at, so that a list can ask
    /// for every job that it shows.
    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError>;
}
