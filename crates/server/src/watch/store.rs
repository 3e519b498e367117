//! A store that is timed. It changes nothing of what the store does.

use steadfast_core::event::{JobId, Recorded};
use steadfast_core::time::Timestamp;
use steadfast_store::{Claimed, Filter, Page, Refused, Row, Store, StoreError, Stored, Write};
use tokio::time::Instant;

use super::Metrics;

/// How long commits take, and how much they make durable at once.
#[derive(Debug)]
pub struct TimedStore<S> {
    store: S,
    metrics: Metrics,
}

impl<S: Store> TimedStore<S> {
    pub fn new(store: S, metrics: Metrics) -> Self {
        Self { store, metrics }
    }
}

impl<S: Store> Store for TimedStore<S> {
    fn commit(&mut self, writes: &[Write]) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let (began, jobs) = (Instant::now(), writes.len());
        let answers = self.store.commit(writes);
        self.metrics.committed(began.elapsed().as_secs_f64(), jobs);
        if let Err(error) = &answers {
            tracing::error!(event = "StoreFailed", %error);
        }
        answers
    }

    fn claim(&mut self, jobs: &[&str], owner: &str) -> Result<Vec<Option<Claimed>>, StoreError> {
        self.store.claim(jobs, owner)
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

    fn events(&mut self, job: &str, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.store.events(job, after, limit)
    }

    fn due(
        &mut self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.store.due(until, limit)
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<u64, StoreError> {
        self.store.purge(finished_before)
    }

    fn remove(&mut self, job: &str, epoch: u64) -> Result<bool, StoreError> {
        self.store.remove(job, epoch)
    }
}
