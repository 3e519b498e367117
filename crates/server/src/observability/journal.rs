//! A journal that is timed, and whose troubles are told where the server is asked whether it is ready.

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use steadfast_store::{Gap, Journal, Owner, QueueEntry, Refused, Snapshot, StoreError, Write};
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
            Ok(_) | Err(StoreError::Full { .. } | StoreError::Busy { .. }) => {}
            Err(error) => tracing::error!(event = "StoreFailed", %error),
        }
        answers
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

    fn gaps(&mut self, owner: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        self.journal.gaps(owner, after)
    }

    fn queued(
        &mut self,
        owner: &str,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        self.journal.queued(owner, after, limit)
    }

    fn due(
        &mut self,
        owner: &str,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.journal.due(owner, after, until, limit)
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.journal.purge(finished_before)
    }

    fn remove(&mut self, job: &str) -> Result<bool, StoreError> {
        self.journal.remove(job)
    }

    fn project(&mut self, job: &str, projection: &Snapshot) -> Result<bool, StoreError> {
        self.journal.project(job, projection)
    }

    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        self.journal.park(job, why)
    }
}
