//! What is asked about stored jobs. Nothing here writes.

use steadfast_core::event::{JobId, RecordedEvent};

use crate::{Filter, JobCounts, Page, Row, Snapshot, StoreError, Stored};

pub trait Reader: Send {
    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError>;

    /// What was last kept by [`Journal::project`](crate::Journal::project). None: nothing, or it does not fit its checksum.
    fn projection(&mut self, job: &str) -> Result<Option<Snapshot>, StoreError>;

    /// What lists show of the job, and the number of its last event: [`Reader::get`] without the
    /// snapshot, which may be large.
    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError>;

    /// The job that was submitted with an idempotency key, and the digest of its body.
    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError>;

    /// The last one that was accepted first. The cursor is a page's `next`.
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

    /// What is read from here on is as of this moment, until the reader is dropped.
    fn pin(&mut self) -> Result<(), StoreError>;

    /// How many jobs of servers are in which state. Kept with every write, so that no job is looked at.
    fn counts(&mut self) -> Result<JobCounts, StoreError>;

    /// Why a job was parked, or what is wrong with its stored log, as far as its checksums tell; none: nothing, or there
    /// is no such job. Of a long log only the beginning and the end are looked at, so that a list can ask
    /// for every job that it shows.
    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError>;
}
