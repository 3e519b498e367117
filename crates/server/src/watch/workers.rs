//! What workers do that is no event of a job, told by those who talk to them.

use steadfast_core::event::JobId;
use tracing::{info, warn};

use super::Watch;

/// A report that does not count.
#[derive(Clone, Copy, Debug)]
pub struct Rejected<'a> {
    pub job: &'a JobId,
    /// As people write it: `eu-west/index[2]`.
    pub item: &'a str,
    pub attempt: Option<u32>,
    pub token: u64,
    pub worker: &'a str,
    pub reason: &'a str,
}

impl Watch {
    /// A report of an attempt that is not the current one: stale, and without effect.
    pub fn attempt_rejected(&self, rejected: &Rejected) {
        let Rejected { job, item, attempt, token, worker, reason } = *rejected;
        self.metrics().counted().reports_rejected.inc();
        warn!(
            target: "steadfast::attempt",
            job_id = &**job,
            item,
            attempt,
            token,
            worker,
            reason,
            "AttemptRejected"
        );
    }

    pub fn worker_connected(&self, worker: &str, datacenter: Option<&str>, slots: u32) {
        info!(target: "steadfast::worker", worker, datacenter, slots, "WorkerConnected");
    }

    /// It said that it leaves, and has nothing under way.
    pub fn worker_left(&self, worker: &str) {
        info!(target: "steadfast::worker", worker, "WorkerLeft");
    }

    /// Its lease ran out: `attempts` of it are lost.
    pub fn worker_lost(&self, worker: &str, attempts: usize, silent_ms: u64) {
        self.metrics().counted().leases_lost.inc();
        warn!(target: "steadfast::worker", worker, attempts, silent_ms, "WorkerLost");
    }

    /// It gets nothing more to do.
    pub fn worker_draining(&self, worker: &str, reason: &str) {
        info!(target: "steadfast::worker", worker, reason, "WorkerDraining");
    }

    /// It gets nothing to do for a while, because too much goes wrong there.
    pub fn worker_quarantined(&self, worker: &str, reason: &str, for_ms: u64) {
        warn!(target: "steadfast::worker", worker, reason, for_ms, "WorkerQuarantined");
    }

    /// It was turned away: wrong token, wrong version, a name that is taken.
    pub fn worker_refused(&self, worker: &str, reason: &str) {
        warn!(target: "steadfast::worker", worker, reason, "WorkerRefused");
    }
}
