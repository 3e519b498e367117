//! One worker, as the fleet knows it.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::event::{AttemptId, ItemId};
use steadfast_core::plan::milli_cpus;

use super::health::Health;
use super::needs::Needs;
use super::words::{Identity, WorkerSpec, WorkerState};
use crate::prefetch::Prefetch;

#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "facts about a worker that vary apart")]
pub(super) struct Member {
    pub(super) spec: WorkerSpec,
    /// Of its slots, those that it has for this server.
    pub(super) credits: u32,
    /// What its other servers leave of its cpus and memory, as it has said. None: all that there is, if that is counted.
    pub(super) cpu_left_milli: Option<u64>,
    pub(super) memory_left: Option<u64>,
    /// Of its secret. None: it was here before a restart, and has not come back yet.
    pub(super) fingerprint: Option<Arc<str>>,
    /// The number of its latest session.
    pub(super) session: u64,
    pub(super) connected: bool,
    /// When that session began, and when it was last heard of.
    pub(super) since: u64,
    pub(super) heard: u64,
    pub(super) draining: bool,
    /// It was away when an operator took a drain back: it hears of that when it returns.
    pub(super) undrain: bool,
    pub(super) lease_ends: u64,
    pub(super) cpu_used_milli: u64,
    pub(super) memory_used: u64,
    pub(super) held: BTreeMap<AttemptId, Held>,
    pub(super) health: Health,
    /// How far ahead of its slots it is given work.
    pub(super) pace: Prefetch,
    /// An attempt that cannot wait here has found no slot: nothing is given ahead until there is one.
    pub(super) wanted: bool,
    /// Where it stands among the open ones.
    pub(super) open: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) item: ItemId,
    pub(crate) attempt: u32,
    pub(super) cpu_milli: u64,
    pub(super) memory: u64,
    /// When the worker was given it.
    pub(super) since: u64,
    /// Which life of the worker that was. None: it is not recorded, because there is no other server.
    incarnation: Option<Arc<str>>,
}

impl Held {
    pub(crate) fn new(
        item: ItemId,
        attempt: u32,
        incarnation: Option<Arc<str>>,
        needs: &Needs,
        since: u64,
    ) -> Self {
        let (cpu_milli, memory) = (needs.cpu_milli, needs.memory);
        Self { item, attempt, cpu_milli, memory, since, incarnation }
    }

    /// Whether a worker that comes, and does not have it, was never told of it: it can be assigned again. A life of it that is gone may
    /// have run it. `is_same`: it is the one that this server has assigned it.
    pub(super) fn never_came_to(&self, worker: &WorkerSpec, is_same: bool) -> bool {
        match &self.incarnation {
            Some(incarnation) => *incarnation == worker.incarnation,
            None => is_same,
        }
    }
}

impl Member {
    /// Whether it is this worker that has come: only then is what it holds, or has lost, the other's to say.
    pub(super) fn is(&self, who: &Identity) -> bool {
        let same = match &self.fingerprint {
            Some(fingerprint) => *fingerprint == who.fingerprint,
            None => who.proven,
        };
        same || who.owns_name
    }

    pub(super) fn slots(&self) -> u32 {
        if self.health.on_probation() { self.credits.min(1) } else { self.credits }
    }

    pub(super) fn takes_work(&self) -> bool {
        self.connected && !self.draining && !self.health.quarantined()
    }

    /// Also for what must wait there for a slot.
    pub(super) fn has_room(&self) -> bool {
        let doubted = self.wanted || self.health.on_probation() || self.health.doubted();
        let ahead = if doubted || self.credits == 0 { 0 } else { self.pace.ahead() };
        self.takes_work() && (self.held.len() as u32) < self.slots().saturating_add(ahead)
    }

    pub(super) fn has_slot(&self) -> bool {
        (self.held.len() as u32) < self.slots()
    }

    /// In thousandths of its slots.
    pub(super) fn busy(&self) -> u64 {
        self.held.len() as u64 * 1000 / u64::from(self.slots().max(1))
    }

    pub(super) fn can_ever(&self, needs: &Needs) -> bool {
        needs.fits(&self.spec)
    }

    /// It could run it, at the latest when it has room.
    pub(super) fn serves(&self, needs: &Needs) -> bool {
        self.takes_work() && self.can_ever(needs)
    }

    /// It has other servers too, and could run it with another credit.
    pub(super) fn lacks_credit_for(&self, needs: &Needs) -> bool {
        let is_limited = self.credits < self.spec.slots && !self.health.on_probation();
        is_limited && self.takes_work() && !self.has_slot() && self.fits_now(needs)
    }

    /// Unless only a slot is missing.
    pub(super) fn fits_now(&self, needs: &Needs) -> bool {
        let enough = |has: Option<u64>, used: u64, wanted: u64| {
            has.is_none_or(|has| used.saturating_add(wanted) <= has)
        };
        let (cpu, memory) = (self.spec.cpu.map(milli_cpus), self.spec.memory_bytes);
        self.can_ever(needs)
            && enough(self.cpu_left_milli.or(cpu), self.cpu_used_milli, needs.cpu_milli)
            && enough(self.memory_left.or(memory), self.memory_used, needs.memory)
    }

    pub(super) fn can_now(&self, needs: &Needs, may_wait: bool) -> bool {
        self.has_room() && (may_wait || self.has_slot()) && self.fits_now(needs)
    }

    pub(super) fn standing(&self) -> (WorkerState, Option<String>) {
        if !self.connected {
            let why = "its session has ended; it is believed until its lease ends";
            (WorkerState::Away, Some(why.to_owned()))
        } else if self.draining {
            (WorkerState::Draining, Some("it takes nothing new".to_owned()))
        } else if let Some((_, why)) = self.health.quarantine_reason() {
            (WorkerState::Quarantined, Some(why))
        } else {
            (WorkerState::Connected, self.health.remark())
        }
    }
}

/// How many of them have been given out for longer than `ms`, without those that wait.
pub(super) fn running_longer(
    held: &BTreeMap<AttemptId, Held>,
    slots: u32,
    ms: u64,
    mono: u64,
) -> u32 {
    let longer = held.values().filter(|held| mono.saturating_sub(held.since) > ms);
    (longer.count() as u32).min(slots)
}
