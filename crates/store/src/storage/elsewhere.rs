//! A storage whose files and logs are elsewhere, in an object store.

use std::io;
use std::sync::Arc;

use steadfast_core::event::Requester;
use steadfast_core::time::Timestamp;

use super::{Claim, ClaimError, Exchange, Space, Storage};
use crate::blobs::layered::LayeredBlobs;
use crate::folder::Folder;
use crate::objects::ObjectBlobs;
use crate::run_claim::{RunClaim, RunClaimError};
use crate::{Blobs, Finding, Journal, Reader, Settings, StoreError};

/// Files and logs of a storage in an object store: `s3://BUCKET/PREFIX?…` or `file:///FOLDER`. What the storage itself has of them
/// stays there, and goes with its jobs.
pub fn with_blobs_at(storage: Arc<dyn Storage>, url: &str) -> Result<Arc<dyn Storage>, StoreError> {
    let objects = ObjectBlobs::open(url)?;
    let blobs = LayeredBlobs {
        new: Arc::new(objects.clone()),
        old: storage.blobs(),
        on_this_machine: !url.starts_with("s3:"),
    };
    Ok(Arc::new(BlobsElsewhere { storage, objects, blobs: Arc::new(blobs) }))
}

#[derive(Debug)]
struct BlobsElsewhere {
    storage: Arc<dyn Storage>,
    objects: ObjectBlobs,
    blobs: Arc<LayeredBlobs>,
}

impl Storage for BlobsElsewhere {
    fn claim(&self) -> Result<Box<dyn Claim>, ClaimError> {
        self.storage.claim()
    }

    fn journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        self.storage.journal()
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        self.storage.reader()
    }

    fn blobs(&self) -> Arc<dyn Blobs> {
        self.blobs.clone()
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

    fn is_run(&self, job: &str) -> bool {
        self.storage.is_run(job)
    }

    fn is_served(&self) -> bool {
        self.storage.is_served()
    }

    fn maintain(&self) -> Result<(), StoreError> {
        self.storage.maintain()
    }

    fn examine(&self, now: Timestamp, reserve: u64) -> Vec<Finding> {
        let mut found = self.storage.examine(now, reserve);
        found.push(self.objects.examine());
        found
    }

    fn place(&self) -> String {
        self.storage.place()
    }
}
