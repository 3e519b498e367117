//! A journal that is timed, and whose troubles are told where the server is asked whether it is ready.

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use steadfast_store::{
    Gap, Journal, Owner, QueueEntry, Refused, Snapshot, StoreError, Whose, Write,
};
use tokio::time::Instant;

use super::Metrics;
use crate::health::Health;

/// How long commits take, and how much they make durable at once. A full disk gives its ballast up here.
pub struct TimedJournal {
    journal: Box<dyn Journal>,
    metrics: Metrics,
    health: Health,
}

impl std::fmt::Debug for TimedJournal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimedJournal").field("health", &self.health).finish_non_exhaustive()
    }
}

impl TimedJournal {
    pub fn new(journal: Box<dyn Journal>, metrics: Metrics, health: Health) -> Self {
        Self { journal, metrics, health }
    }
}

impl Journal for TimedJournal {
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let (began, jobs) = (Instant::now(), writes.len());
        let mut answers = self.journal.commit(owner, writes);
        if matches!(answers, Err(StoreError::Full { .. })) && self.health.release_ballast() {
            answers = self.journal.commit(owner, writes);
        }
        self.metrics.committed(began.elapsed().as_secs_f64(), jobs);
        self.health.wrote(&answers);
        match &answers {
            // Waited for: that it does not work, and that it works again, is told by the server's health.
            Ok(_)
            | Err(
                StoreError::Full { .. } | StoreError::Busy { .. } | StoreError::Unavailable { .. },
            ) => {}
            Err(error @ StoreError::Unknown { .. }) => {
                tracing::warn!(event = "CommitUnknown", %error);
            }
            Err(error) => tracing::error!(event = "StoreFailed", %error),
        }
        answers
    }

    fn keeps_readiness(&self) -> bool {
        self.journal.keeps_readiness()
    }

    fn is_owned(&mut self, owner: &Owner, job: &str) -> Result<bool, StoreError> {
        self.journal.is_owned(owner, job)
    }

    fn is_kept(&mut self, write: &Write) -> Result<bool, StoreError> {
        self.journal.is_kept(write)
    }

    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError> {
        let mut told = false;
        loop {
            match self.journal.take(owner, at, down_since) {
                Err(error @ StoreError::Busy { .. }) => {
                    if !told {
                        tracing::warn!(event = "WaitsForLock", %error);
                    }
                    told = true;
                }
                taken => return taken,
            }
        }
    }

    fn gaps(&mut self, owner: &str, job: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        self.journal.gaps(owner, job, after)
    }

    fn queued(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        self.journal.queued(whose, after, limit)
    }

    fn due(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.journal.due(whose, after, until, limit)
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.journal.purge(finished_before)
    }

    fn expire(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.journal.expire(finished_before)
    }

    fn remove(&mut self, job: &str) -> Result<bool, StoreError> {
        self.journal.remove(job)
    }

    fn hand_over(&mut self, owner: &Owner, shards: &[u16], to: &str) -> Result<(), StoreError> {
        self.journal.hand_over(owner, shards, to)
    }

    fn project(&mut self, job: &str, projection: &Snapshot) -> Result<bool, StoreError> {
        self.journal.project(job, projection)
    }

    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        self.journal.park(job, why)
    }
}
