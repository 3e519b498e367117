//! What an owner of jobs writes, and what it must know to go on with them.

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use crate::{Gap, Owner, QueueEntry, Reader, Refused, Snapshot, StoreError, Write};

pub trait Journal: Send {
    /// Makes writes durable: all are synced when this returns. One transaction for the whole group;
    /// a write that is refused fails alone, the others commit. They are taken in order, so that a
    /// later write of the group may follow on an earlier one.
    ///
    /// On an error nothing of the group is known to be kept. After [`StoreError::Full`] and
    /// [`StoreError::Busy`] nothing is, and the store goes on working; after [`StoreError::Unknown`] all of it or
    /// nothing, and [`Journal::take`] sees to it that it stays so; after any other, see [`StoreError::is_fatal`].
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError>;

    /// Whether the log has the very events of a write whose answer was lost.
    fn is_kept(&mut self, write: &Write) -> Result<bool, StoreError>;

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

    /// Keeps what was made of a job's events up to one, so that a reader need not read them: see
    /// [`Reader::projection`]. It is of events that are kept already, so that anybody may make it, and the log stays
    /// the truth. False: there is no such job.
    fn project(&mut self, job: &str, projection: &Snapshot) -> Result<bool, StoreError>;

    /// Marks a job that cannot go on, without reading it: it is woken no more. False: there is no
    /// such job, or it is over.
    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError>;

    /// Everything of jobs that are over and finished before a moment goes, their idempotency keys
    /// too; which these were.
    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError>;

    /// Everything of one job goes, over or not, without reading any of it. Whether there was such a one.
    fn remove(&mut self, job: &str) -> Result<bool, StoreError>;
}

/// [`Journal::is_kept`], by reading.
pub(crate) fn is_kept(store: &mut impl Reader, write: &Write) -> Result<bool, StoreError> {
    let mut after = write.expected_seq;
    let mut left = &write.records[..];
    while !left.is_empty() {
        let stored = store.events(&write.job, after, left.len())?;
        if stored.is_empty() || stored[..] != left[..stored.len()] {
            return Ok(false);
        }
        after += stored.len() as u64;
        left = &left[stored.len()..];
    }
    Ok(true)
}
