//! What an owner of jobs writes, and what it must know to go on with them.

use std::collections::HashMap;

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use crate::{Gap, Owner, QueueEntry, Reader, Refused, Snapshot, StoreError, Write};

/// Jobs of an owner.
#[derive(Clone, Copy, Debug)]
pub struct Whose<'a> {
    pub owner: &'a str,
    /// Only those in these of its shards. None: all.
    pub shards: Option<&'a [u16]>,
}

impl<'a> Whose<'a> {
    pub fn all(owner: &'a str) -> Self {
        Self { owner, shards: None }
    }
}

pub trait Journal: Send {
    /// Makes writes durable: all are synced when this returns. One transaction for the whole group;
    /// a write that is refused fails alone, the others commit. They are taken in order, so that a
    /// later write of the group may follow on an earlier one, and is refused with it.
    ///
    /// On an error nothing of the group is known to be kept. After [`StoreError::Full`] and
    /// [`StoreError::Busy`] nothing is, and the store goes on working; after [`StoreError::Unknown`] all of it or
    /// nothing, and [`Journal::take`] sees to it that it stays so; after any other, see [`StoreError::is_fatal`].
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError>;

    /// Whether its SQL answers which items may start: writes of open jobs then say what of them has not ended.
    fn keeps_readiness(&self) -> bool;

    /// Whether a write of this owner about the job would be taken, but for its number: it is in its epoch, and has the job, or would have
    /// it if there were one.
    fn is_owned(&mut self, owner: &Owner, job: &str) -> Result<bool, StoreError>;

    /// Whether the log has the very events of a write whose answer was lost.
    fn is_kept(&mut self, write: &Write) -> Result<bool, StoreError>;

    /// Takes an owner over, or makes it: from now on the groups of the process that had it are refused. Whether that one
    /// is still alive is for the caller to know. `down_since`: nothing was decided between then and `at`; that
    /// is kept as a gap, joined with one that it touches. An epoch is at least the second it begins in (`at`, or by
    /// the clock of a store that has one), so that none is repeated after an older copy was put back.
    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError>;

    /// The gaps that a job of an owner may have been in and that ended after a moment, in order. Those that no open job can
    /// have been in are forgotten.
    fn gaps(&mut self, owner: &str, job: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError>;

    /// Jobs of an owner that are to be woken up to a moment, soonest first; `after`: from the one after this on.
    fn due(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError>;

    /// Jobs of an owner that wait for a worker and have nothing under way, oldest first; `after`: from the one
    /// after this on.
    fn queued(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError>;

    /// Gives shards of an owner to another one, unless it has lost them meanwhile. What was committed before is there for the
    /// other; from now on nothing more is.
    fn hand_over(&mut self, owner: &Owner, shards: &[u16], to: &str) -> Result<(), StoreError>;

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

    /// The same for what is kept for a time and no longer: a store may leave some of it for a while, where all that came with it
    /// goes at once later. On `PostgreSQL` that is a week, or two.
    fn expire(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.purge(finished_before)
    }

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

/// Writes of a group that follow on one that was refused: by its number alone such a write may fit what is stored, which is not what
/// it was decided on.
#[derive(Debug, Default)]
pub(crate) struct Chains<'a>(HashMap<&'a str, (u64, Refused)>);

impl<'a> Chains<'a> {
    /// Why this write is refused, if it follows on one that was.
    pub(crate) fn refused(&mut self, write: &'a Write) -> Option<Refused> {
        let (last, why) = self.0.get_mut(&*write.job)?;
        if *last != write.expected_seq {
            self.0.remove(&*write.job);
            return None;
        }
        *last = write.last_seq();
        Some(match why {
            Refused::Conflict { found, .. } => {
                Refused::Conflict { expected: write.expected_seq, found: *found }
            }
            // A new job, and there is none.
            Refused::KeyTaken { .. } => {
                Refused::Conflict { expected: write.expected_seq, found: 0 }
            }
            why => why.clone(),
        })
    }

    pub(crate) fn answered(&mut self, write: &'a Write, answer: &Result<(), Refused>) {
        if let Err(why) = answer {
            self.0.insert(&write.job, (write.last_seq(), why.clone()));
        }
    }
}
