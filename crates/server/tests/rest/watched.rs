//! A storage whose readers tell what they are asked for.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use steadfast_core::event::{JobId, RecordedEvent, Requester};
use steadfast_core::time::Timestamp;
use steadfast_store::{
    Blobs, Claim, ClaimError, Exchange, Filter, Finding, Folder, JobCounts, Journal, Page, Reader,
    Row, RunClaim, RunClaimError, Settings, Snapshot, Space, Storage, StoreError, Stored,
};

/// A page of events that was asked for: from which on, how many at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub after: u64,
    pub limit: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct WatchedStorage {
    storage: Arc<dyn Storage>,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Pages of jobs that were read.
    lists: Arc<AtomicUsize>,
    /// Where a count waits for the test, if it is the next one after [`WatchedStorage::hold_count`].
    count: Arc<Barrier>,
    is_held: Arc<AtomicBool>,
}

impl WatchedStorage {
    pub(crate) fn new(storage: Arc<dyn Storage>) -> Self {
        let count = Arc::new(Barrier::new(2));
        let lists = Arc::default();
        Self { storage, asked: Arc::default(), lists, count, is_held: Arc::default() }
    }

    /// Where the next count waits.
    pub(crate) fn hold_count(&self) -> Arc<Barrier> {
        self.is_held.store(true, Ordering::Relaxed);
        self.count.clone()
    }

    /// How many pages of jobs were read since the last time.
    pub(crate) fn lists(&self) -> usize {
        self.lists.swap(0, Ordering::Relaxed)
    }

    /// What was asked for since the last time.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().expect("no reader panics"))
    }
}

impl Storage for WatchedStorage {
    fn claim(&self) -> Result<Box<dyn Claim>, ClaimError> {
        self.storage.claim()
    }
    fn journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        self.storage.journal()
    }
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        let (asked, count) = (self.asked.clone(), self.count.clone());
        let (reader, is_held) = (self.storage.reader()?, self.is_held.clone());
        let lists = self.lists.clone();
        Ok(Box::new(WatchedReader { reader, asked, lists, count, is_held }))
    }
    fn blobs(&self) -> Arc<dyn Blobs> {
        self.storage.blobs()
    }
    fn settings(&self) -> Arc<dyn Settings> {
        self.storage.settings()
    }
    fn space(&self) -> Arc<dyn Space> {
        self.storage.space()
    }
    fn exchange(&self) -> Option<Arc<dyn Exchange>> {
        self.storage.exchange()
    }
    fn claim_run(&self, job: &str, place: &Folder) -> Result<Box<dyn RunClaim>, RunClaimError> {
        self.storage.claim_run(job, place)
    }
    fn ask_to_cancel(&self, job: &str, requested: &Requester) -> io::Result<()> {
        self.storage.ask_to_cancel(job, requested)
    }
    fn is_served(&self) -> bool {
        self.storage.is_served()
    }
    fn is_run(&self, job: &str) -> bool {
        self.storage.is_run(job)
    }
    fn maintain(&self) -> Result<(), StoreError> {
        self.storage.maintain()
    }
    fn examine(&self, now: Timestamp, reserve: u64) -> Vec<Finding> {
        self.storage.examine(now, reserve)
    }
    fn place(&self) -> String {
        self.storage.place()
    }
}

struct WatchedReader {
    reader: Box<dyn Reader>,
    asked: Arc<Mutex<Vec<Asked>>>,
    lists: Arc<AtomicUsize>,
    count: Arc<Barrier>,
    is_held: Arc<AtomicBool>,
}

impl Reader for WatchedReader {
    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        self.reader.get(job)
    }
    fn projection(&mut self, job: &str) -> Result<Option<Snapshot>, StoreError> {
        self.reader.projection(job)
    }
    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError> {
        self.reader.row(job)
    }
    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError> {
        self.reader.key(key)
    }
    fn list(
        &mut self,
        filter: &Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.lists.fetch_add(1, Ordering::Relaxed);
        self.reader.list(filter, cursor, limit)
    }
    fn events(
        &mut self,
        job: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        self.asked.lock().expect("no reader panics").push(Asked { after, limit });
        self.reader.events(job, after, limit)
    }
    fn pin(&mut self) -> Result<(), StoreError> {
        self.reader.pin()
    }
    fn counts(&mut self) -> Result<JobCounts, StoreError> {
        if self.is_held.swap(false, Ordering::Relaxed) {
            self.count.wait();
        }
        self.reader.counts()
    }
    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError> {
        self.reader.damage(job)
    }
}
