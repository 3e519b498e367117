//! Where jobs of `run` are kept: in a data folder, or in a database that other machines share. Their attempts work in a folder of this machine
//! either way.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use steadfast_core::event::Requester;
use steadfast_engine::{Patience, Placement, Slots, Stopped};
use steadfast_store::{Folder, Reader, RunClaimError, Storage, StoreError};

use super::keeper::KeptClaim;
use super::{RunError, failed};

#[derive(Clone, Debug)]
pub struct RunPlace {
    pub storage: Arc<dyn Storage>,
    /// Of working folders; also of jobs and logs, if there is no database.
    pub folder: Folder,
    /// How long the database may be away before a run ends. None: there is no database.
    tolerance: Option<Duration>,
}

impl RunPlace {
    pub fn in_folder(folder: Folder) -> Self {
        Self { storage: folder.storage(), folder, tolerance: None }
    }

    pub fn in_database(storage: Arc<dyn Storage>, folder: Folder, tolerance: Duration) -> Self {
        Self { storage, folder, tolerance: Some(tolerance) }
    }

    /// For the process that is to run a job, or to end one that no process runs.
    pub fn claim(&self, job: &str) -> Result<KeptClaim, RunClaimError> {
        Ok(KeptClaim::keep(self.storage.claim_run(job, &self.folder)?))
    }

    pub fn ask_to_cancel(&self, job: &str, requested: &Requester) -> Result<(), RunError> {
        self.storage.ask_to_cancel(job, requested).map_err(failed)
    }

    /// The job is over, or not there: nothing of it is left here but what was asked to be kept.
    pub fn forget(&self, claim: &KeptClaim, job: &str) {
        claim.forget();
        super::port::forget_callback_port(&self.folder, job);
    }

    /// For messages.
    pub(super) fn what(&self) -> &'static str {
        if self.is_shared() { "database" } else { "data folder" }
    }

    /// Others may run its jobs on, on machines of their own.
    pub(super) fn is_shared(&self) -> bool {
        self.tolerance.is_some()
    }

    pub(super) fn reader(&self) -> Result<Box<dyn Reader>, RunError> {
        Ok(self.storage.reader()?)
    }

    pub(super) fn create(&self) -> Result<(), RunError> {
        self.folder.create().map_err(|error| {
            let root = self.folder.root().display();
            failed(format!("cannot make the data folder {root}: {error}"))
        })
    }

    /// By what attempts of this folder are told from those of other machines. None: there are no others.
    pub(super) fn incarnation(&self) -> Result<Option<String>, RunError> {
        self.is_shared().then(|| self.folder.id().map_err(failed)).transpose()
    }

    pub(super) fn placement(&self, slots: u32) -> Result<Placement, RunError> {
        const WORKER: &str = "local";
        let slots = Slots::shared(slots);
        Ok(match self.incarnation()? {
            None => Placement::here(slots, WORKER),
            Some(incarnation) => Placement::here_as(slots, WORKER, &incarnation),
        })
    }

    /// `tolerance_ms` may be changed while it runs.
    pub(super) fn patience(&self) -> (Patience, Option<Arc<AtomicU64>>) {
        let Some(tolerance) = self.tolerance else { return (Patience::None, None) };
        let tolerance_ms = u64::try_from(tolerance.as_millis()).unwrap_or(u64::MAX);
        let tolerance_ms = Arc::new(AtomicU64::new(tolerance_ms));
        (Patience::Outage(tolerance_ms.clone()), Some(tolerance_ms))
    }
}

/// That the database did not come back in time, if that is what ended the run.
pub(super) fn outage(error: &Stopped) -> Option<String> {
    match error {
        Stopped::Store(
            StoreError::Unavailable { store, why } | StoreError::Unknown { store, why },
        ) => Some(format!("{store} was away for too long: {why}")),
        _ => None,
    }
}
