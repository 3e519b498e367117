//! What is asked about stored jobs.

use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_store::{Filter, JobCounts, Page, Reader, Row, Snapshot, StoreError, Stored};

use super::Connection;

impl Reader for Connection {
    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        Ok(self.store.held().database.stored(job))
    }

    fn projection(&mut self, _job: &str) -> Result<Option<Snapshot>, StoreError> {
        Ok(None)
    }

    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError> {
        Ok(self.get(job)?.map(|stored| (stored.row, stored.seq)))
    }

    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError> {
        Ok(self.store.held().database.key(key).cloned())
    }

    fn list(&mut self, _: &Filter, _: Option<&str>, _: usize) -> Result<Page, StoreError> {
        Ok(Page::default())
    }

    fn events(
        &mut self,
        job: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let shared = self.store.held();
        let log = shared.database.log(job);
        let from = (after as usize).min(log.len());
        Ok(log[from..].iter().take(limit).cloned().collect())
    }

    fn pin(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    fn counts(&mut self) -> Result<JobCounts, StoreError> {
        Ok(JobCounts::default())
    }

    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError> {
        Ok(self.get(job)?.and_then(|stored| stored.stuck))
    }
}
