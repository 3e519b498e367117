//! What workers do that is no event of a job.

use steadfast_core::event::JobId;
use steadfast_engine::FleetNotification;
use tracing::{info, warn};

use super::Observability;

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

/// Why the server ended a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The worker does not read what it is told.
    Unread,
    /// It said nothing for longer than its lease.
    Silent,
    /// Its token was revoked, or has expired.
    Token,
    /// The store stalled for longer than what it reported meanwhile could be kept.
    Overflow,
}

impl SessionEnd {
    const fn name(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Silent => "silent",
            Self::Token => "token",
            Self::Overflow => "overflow",
        }
    }
}

impl Observability {
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

    /// What the engine has to say of its workers.
    pub(super) fn of_worker(&self, notifications: &FleetNotification) {
        match notifications {
            FleetNotification::Connected { worker, datacenter, returning } => {
                let (worker, datacenter) = (&**worker, datacenter.as_deref());
                info!(target: "steadfast::worker", worker, datacenter, returning, "WorkerConnected");
            }
            FleetNotification::Away { worker } => {
                info!(target: "steadfast::worker", worker = &**worker, "WorkerAway");
            }
            FleetNotification::Lost { worker, attempts, why } => {
                self.metrics().counted().leases_lost.inc();
                let worker = &**worker;
                warn!(target: "steadfast::worker", worker, attempts, reason = why, "WorkerLost");
            }
            FleetNotification::Left { worker } => {
                info!(target: "steadfast::worker", worker = &**worker, "WorkerLeft");
            }
            FleetNotification::Draining { worker } => {
                info!(target: "steadfast::worker", worker = &**worker, "WorkerDraining");
            }
            FleetNotification::Undrained { worker } => {
                info!(target: "steadfast::worker", worker = &**worker, "WorkerUndrained");
            }
            FleetNotification::Quarantined { worker, for_ms, why } => {
                let (worker, reason) = (&**worker, &**why);
                warn!(target: "steadfast::worker", worker, for_ms, reason, "WorkerQuarantined");
            }
            FleetNotification::OnProbation { worker } => {
                info!(target: "steadfast::worker", worker = &**worker, "WorkerOnProbation");
            }
        }
    }

    /// It was turned away: wrong token, wrong version, a name that is taken.
    pub fn worker_refused(&self, worker: &str, reason: &str) {
        warn!(target: "steadfast::worker", worker, reason, "WorkerRefused");
    }

    /// The server has ended its session.
    pub fn session_ended(&self, worker: &str, end: SessionEnd, reason: &str) {
        self.metrics().session_ended(end.name());
        warn!(target: "steadfast::worker", worker, reason, "WorkerSessionEnded");
    }

    /// What a worker says that an attempt printed that was not assigned to it.
    pub fn output_refused(&self, worker: &str) {
        self.metrics().counted().reports_rejected.inc();
        warn!(target: "steadfast::worker", worker, "OutputRefused");
    }
}
