//! A store that is timed, and whose troubles are told where the server is asked whether it is ready.

use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::time::Timestamp;
use steadfast_store::{
    Filter, Gap, Owner, Page, QueueEntry, Refused, Row, Store, StoreError, Stored, Write,
};
use tokio::time::Instant;

use super::Metrics;
use crate::health::Health;

/// How long commits take, and how much they make durable at once. A full disk gives its ballast up here.
pub struct TimedStore {
    store: Box<dyn Store>,
    metrics: Metrics,
    health: Health,
}

impl std::fmt::Debug for TimedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimedStore").field("health", &self.health).finish_non_exhaustive()
    }
}

impl TimedStore {
    pub fn new(store: Box<dyn Store>, metrics: Metrics, health: Health) -> Self {
        Self { store, metrics, health }
    }
}

impl Store for TimedStore {
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let (began, jobs) = (Instant::now(), writes.len());
        let mut answers = self.store.commit(owner, writes);
        if matches!(answers, Err(StoreError::Full { .. })) && self.health.release_ballast() {
            answers = self.store.commit(owner, writes);
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

    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError> {
        let mut told = false;
        loop {
            match self.store.take(owner, at, down_since) {
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
        self.store.gaps(owner, after)
    }

    fn queued(
        &mut self,
        owner: &str,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        self.store.queued(owner, after, limit)
    }

    fn count(&mut self, owner: &str) -> Result<(u64, u64), StoreError> {
        self.store.count(owner)
    }

    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        self.store.get(job)
    }

    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError> {
        self.store.row(job)
    }

    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError> {
        self.store.key(key)
    }

    fn list(
        &mut self,
        filter: &Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.store.list(filter, cursor, limit)
    }

    fn events(
        &mut self,
        job: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        self.store.events(job, after, limit)
    }

    fn due(
        &mut self,
        owner: &str,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.store.due(owner, after, until, limit)
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.store.purge(finished_before)
    }

    fn remove(&mut self, job: &str) -> Result<bool, StoreError> {
        self.store.remove(job)
    }

    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        self.store.park(job, why)
    }

    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError> {
        self.store.damage(job)
    }
}
