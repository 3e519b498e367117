//! A store whose commits a test has in its hand, and what a driver needs beside it.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use steadfast_engine::{Arriving, Identity, WorkerSpec};
use steadfast_store::{
    Gap, Journal, MemoryStore, Owner, QueueEntry, Refused, Snapshot, StoreError, Whose, Write,
};

/// What a store answers to a group.
pub(crate) type Committed = Result<Vec<Result<(), Refused>>, StoreError>;

pub(crate) struct Hooked<F> {
    pub(crate) store: MemoryStore,
    pub(crate) commit: F,
}

impl<F> Journal for Hooked<F>
where
    F: FnMut(&mut MemoryStore, &Owner, &[Write]) -> Committed + Send,
{
    fn commit(&mut self, owner: &Owner, writes: &[Write]) -> Committed {
        (self.commit)(&mut self.store, owner, writes)
    }
    fn keeps_readiness(&self) -> bool {
        self.store.keeps_readiness()
    }

    fn is_owned(&mut self, owner: &Owner, job: &str) -> Result<bool, StoreError> {
        self.store.is_owned(owner, job)
    }

    fn is_kept(&mut self, write: &Write) -> Result<bool, StoreError> {
        self.store.is_kept(write)
    }
    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError> {
        self.store.take(owner, at, down_since)
    }
    fn gaps(&mut self, owner: &str, job: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        self.store.gaps(owner, job, after)
    }
    fn due(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.store.due(whose, after, until, limit)
    }
    fn queued(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        self.store.queued(whose, after, limit)
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.store.purge(finished_before)
    }
    fn remove(&mut self, job: &str) -> Result<bool, StoreError> {
        self.store.remove(job)
    }
    fn hand_over(&mut self, owner: &Owner, shards: &[u16], to: &str) -> Result<(), StoreError> {
        self.store.hand_over(owner, shards, to)
    }

    fn project(&mut self, job: &str, projection: &Snapshot) -> Result<bool, StoreError> {
        self.store.project(job, projection)
    }
    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        self.store.park(job, why)
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
    let holds = BTreeSet::new();
    let elsewhere = BTreeSet::new();
    let in_vain = BTreeSet::new();
    Arriving {
        spec,
        identity,
        session: 1,
        returning: false,
        holds,
        elsewhere,
        in_vain,
        credits: None,
    }
}
