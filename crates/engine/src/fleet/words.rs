//! The words of the fleet: what is known of workers, and told about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a worker says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSpec {
    pub name: Arc<str>,
    /// Of this life; a restarted worker has another.
    pub incarnation: Arc<str>,
    pub datacenter: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub slots: u32,
    /// None: not counted.
    pub cpu: Option<f64>,
    pub memory_bytes: Option<u64>,
    pub functions: BTreeSet<String>,
    /// It can run processes.
    pub processes: bool,
    /// It can call web services.
    pub http: bool,
    /// It keeps what it has no slot for yet, and gives back what has waited too long.
    pub queues: bool,
}

/// What tells a worker from others that would use its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Of a secret that only this worker knows; all lives of it have the same.
    pub fingerprint: Arc<str>,
    /// It was let in under this name before, if only by a server that has ended since.
    pub proven: bool,
    /// No other worker may have this name: what lets it in is good for no other worker.
    pub owns_name: bool,
}

/// How workers are treated. Milliseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct FleetRules {
    /// A worker that is silent for this long is lost.
    pub lease_ms: u64,
    /// For so long another server may have vouched for what a worker runs, though it could reach its store no more. None: there is no
    /// other.
    pub tolerance_ms: Option<u64>,
    /// A worker that has failed less is not put aside, however seldom the same steps fail elsewhere.
    pub failures: u32,
    /// Attempts in a row that a worker could not even begin.
    pub not_begun: u32,
    /// How long the first time; each further time twice as long, up to the most.
    pub quarantine_ms: u64,
    pub quarantine_most_ms: u64,
    /// However long nothing is due, the engine looks at deadlines this often: a clock that was set is
    /// noticed.
    pub check_every_ms: u64,
}

impl Default for FleetRules {
    fn default() -> Self {
        Self {
            lease_ms: 15_000,
            tolerance_ms: None,
            failures: 5,
            not_begun: 3,
            quarantine_ms: 30_000,
            quarantine_most_ms: 600_000,
            check_every_ms: 5000,
        }
    }
}

/// Something about a worker that people want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetNotification {
    Connected {
        worker: Arc<str>,
        datacenter: Option<String>,
        returning: bool,
    },
    /// Its session broke; it is believed until its lease ends.
    Away {
        worker: Arc<str>,
    },
    Lost {
        worker: Arc<str>,
        attempts: usize,
        why: &'static str,
    },
    /// It left with nothing under way.
    Left {
        worker: Arc<str>,
    },
    Draining {
        worker: Arc<str>,
    },
    /// It takes new work again.
    Undrained {
        worker: Arc<str>,
    },
    Quarantined {
        worker: Arc<str>,
        for_ms: u64,
        why: String,
    },
    /// It may show with one attempt that it is well again.
    OnProbation {
        worker: Arc<str>,
    },
}

/// A worker, to be shown.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerInfo {
    pub spec: WorkerSpec,
    pub state: WorkerState,
    /// For people: why it is in that state.
    pub why: Option<String>,
    pub running: u32,
    /// Of its slots, those that it has for this server.
    pub credits: u32,
    pub cpu_used: f64,
    pub memory_used: u64,
    /// When it is lost, if nothing is heard of it.
    pub lease_left_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkerState {
    Connected,
    /// Not heard of at the moment; its lease has not ended.
    Away,
    Draining,
    Quarantined,
}

impl WorkerState {
    pub const ALL: [Self; 4] = [Self::Connected, Self::Away, Self::Draining, Self::Quarantined];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Away => "away",
            Self::Draining => "draining",
            Self::Quarantined => "quarantined",
        }
    }
}

/// What a worker says is for this server, until it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credits {
    pub slots: u32,
    /// What its other servers leave of its cpus, in thousandths, and of its memory. None: not counted.
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    /// Of this word.
    pub number: u64,
}

/// What a worker is told about its credits: the slots that it has for this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditNotice {
    /// Its word of this number is counted by.
    Taken(u64),
    /// It could run something that no worker has a slot for.
    Wanted,
}

/// What a worker that comes back has to be told, because it was away when an operator wanted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    Nothing,
    Drain,
    Undrain,
}

/// What becomes of a command to take a drain back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undraining {
    /// There is no such worker.
    Unknown,
    /// There is nothing to take back.
    NotDraining,
    /// The worker must be told, and says when it has heard.
    Ask,
    /// It is told when it comes back.
    Away,
}

/// Why a worker cannot come in. Says nothing of the one that has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a worker named {name} is connected already, or is expected back within its lease; give this one another \
     name, or wait until the other has left"
)]
pub struct NameInUse {
    pub name: Arc<str>,
}
