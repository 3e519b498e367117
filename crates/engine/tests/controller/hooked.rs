//! A store whose commits a test has in its hand, and what a driver needs beside it.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::time::Timestamp;
use steadfast_engine::{Arriving, Identity, WorkerSpec};
use steadfast_store::{
    Filter, Gap, MemoryStore, Owner, Page, QueueEntry, Refused, Row, Store, StoreError, Stored,
    Write,
};

/// What a store answers to a group.
pub(crate) type Committed = Result<Vec<Result<(), Refused>>, StoreError>;

pub(crate) struct Hooked<F> {
    pub(crate) store: MemoryStore,
    pub(crate) commit: F,
}

impl<F> Store for Hooked<F>
where
    F: FnMut(&mut MemoryStore, &Owner, &[Write]) -> Committed + Send,
{
    fn commit(&mut self, owner: &Owner, writes: &[Write]) -> Committed {
        (self.commit)(&mut self.store, owner, writes)
    }
    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError> {
        self.store.take(owner, at, down_since)
    }
    fn gaps(&mut self, owner: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        self.store.gaps(owner, after)
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

/// A worker that is let in for the first time.
pub(crate) fn arriving(name: &str, slots: u32) -> Arriving {
    let spec = WorkerSpec {
        name: name.into(),
        incarnation: "1".into(),
        datacenter: None,
        labels: BTreeMap::new(),
        slots,
        cpu: None,
        memory_bytes: None,
        functions: BTreeSet::new(),
        processes: true,
        http: false,
        queues: false,
    };
    let identity = Identity { fingerprint: "f".into(), proven: false, owns_name: false };
    Arriving { spec, identity, session: 1, returning: false, holds: BTreeSet::new() }
}
