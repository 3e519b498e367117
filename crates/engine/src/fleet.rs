//! Workers that come and go: what each can run, what it runs, and how long it is believed.
//!
//! All of it is in memory. After a restart the workers come back and say what they hold; those that do
//! not are lost when the lease ends that they are given then. Leases run on a monotonic clock, so that
//! a clock that is set does not end them.

mod credits;
mod evidence;
mod expected;
mod health;
mod member;
mod needs;
mod place;
mod quarantine;
mod why;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;

use crate::prefetch::Prefetch;
use crate::workers::Arriving;
use evidence::Ends;
pub(crate) use evidence::step_of;
use health::Health;
pub(crate) use health::{Ended, HealthSignal};
pub(crate) use member::Held;
use member::Member;
pub(crate) use needs::Needs;
pub use words::{
    CreditNotice, Credits, FleetNotification, FleetRules, Identity, Missed, NameInUse, Undraining,
    WorkerInfo, WorkerSpec, WorkerState,
};

#[derive(Debug)]
pub struct Fleet {
    rules: FleetRules,
    members: BTreeMap<Arc<str>, Member>,
    /// By when each lease ends.
    leases: BTreeSet<(u64, Arc<str>)>,
    /// Members with room for new work, the least busy first: those with a free slot before those without.
    open: BTreeSet<(u64, Arc<str>)>,
    /// Members that have become able to take more since the queue last asked.
    newly_free: BTreeSet<Arc<str>>,
    quarantined: BTreeSet<Arc<str>>,
    /// Attempts that all members hold together.
    held: usize,
    ends: Ends,
    /// A member takes no more work, since the queue last asked.
    fewer: bool,
    /// See [`Fleet::take_unasked`].
    unasked: BTreeSet<Arc<str>>,
    /// Members that have some of their slots for other servers.
    limited: BTreeSet<Arc<str>>,
    /// When they were last asked for more.
    asked: Option<u64>,
    credit_notices: Vec<(Arc<str>, CreditNotice)>,
    /// When the last stored job was taken up: no worker could come back before.
    returned: u64,
    news: Vec<FleetNotification>,
}

/// What a worker that has come is to be told, and what its predecessor left.
#[derive(Debug, Default)]
pub(crate) struct Arrival {
    /// Assigned to it, and never arrived.
    pub(crate) again: Vec<(AttemptId, Held)>,
    /// Gone with an earlier life of it.
    pub(crate) lost: Vec<(AttemptId, Held)>,
    /// It holds these, and no job wants them any more.
    pub(crate) unwanted: Vec<AttemptId>,
    /// It holds these for another server, and they are this one's.
    pub(crate) adopted: Vec<AttemptId>,
}

impl Fleet {
    pub fn new(rules: FleetRules) -> Self {
        Self {
            rules,
            members: BTreeMap::new(),
            leases: BTreeSet::new(),
            open: BTreeSet::new(),
            newly_free: BTreeSet::new(),
            quarantined: BTreeSet::new(),
            held: 0,
            ends: Ends::default(),
            fewer: false,
            unasked: BTreeSet::new(),
            limited: BTreeSet::new(),
            asked: None,
            credit_notices: Vec::new(),
            returned: 0,
            news: Vec::new(),
        }
    }

    pub fn rules(&self) -> FleetRules {
        self.rules
    }

    /// A worker says that it is there. Until a lease has ended, its name is that worker's alone; and no other
    /// is ever given what the worker was assigned.
    pub(crate) fn connect(&mut self, arriving: Arriving, mono: u64) -> Result<Arrival, NameInUse> {
        let Arriving { spec, identity, session, returning, holds, elsewhere, in_vain, credits } =
            arriving;
        let name = spec.name.clone();
        let mut arrival = Arrival::default();
        let mut known = BTreeMap::new();
        let mut health = Health::default();
        let mut open = None;
        // This worker, and this life of it, was here before.
        let (mut itself, mut same) = (false, false);
        let (mut draining, mut undrain) = (false, false);
        if let Some(before) = self.members.get(&name) {
            itself = before.is(&identity);
            same = itself && before.spec.incarnation == spec.incarnation;
            let in_use = !itself || (before.connected && !same);
            if in_use && before.lease_ends > mono {
                return Err(NameInUse { name });
            }
            self.leases.remove(&(before.lease_ends, name.clone()));
        }
        if let Some(before) = self.members.remove(&name) {
            health = before.health;
            open = before.open;
            draining = same && before.draining;
            undrain = same && before.undrain;
            for (key, held) in before.held {
                if itself && holds.contains(&key) {
                    known.insert(key, held);
                } else if itself && elsewhere.contains(&key) {
                    arrival.adopted.push(key.clone());
                    known.insert(key, held);
                } else if itself && held.never_came_to(&spec, same || returning) {
                    arrival.again.push((key.clone(), held.clone()));
                    known.insert(key, held);
                } else {
                    // Still its, until the loss is decided, which gives it back.
                    arrival.lost.push((key.clone(), held.clone()));
                    known.insert(key, held);
                }
            }
        }
        let unwanted = holds.iter().chain(&in_vain).filter(|key| !known.contains_key(*key));
        arrival.unwanted = unwanted.cloned().collect();
        self.news.push(FleetNotification::Connected {
            worker: name.clone(),
            datacenter: spec.datacenter.clone(),
            returning,
        });
        let lease_ends = mono + self.rules.lease_ms;
        self.leases.insert((lease_ends, name.clone()));
        let member = Member {
            cpu_used_milli: known.values().map(|held| held.cpu_milli).sum(),
            memory_used: known.values().map(|held| held.memory).sum(),
            credits: credits.unwrap_or(spec.slots),
            cpu_left_milli: None,
            memory_left: None,
            spec,
            fingerprint: Some(identity.fingerprint),
            session,
            connected: true,
            since: mono,
            heard: mono,
            draining,
            undrain,
            lease_ends,
            held: known,
            health,
            pace: Prefetch::default(),
            wanted: false,
            open,
        };
        self.members.insert(name.clone(), member);
        self.keep_open(&name);
        Ok(arrival)
    }

    /// Believed for another lease. False: this life of it is not known here, and must come in anew.
    pub(crate) fn beat(&mut self, name: &str, incarnation: &str, mono: u64) -> bool {
        let Some((name, member)) = self.members.get_key_value(name) else { return false };
        if &*member.spec.incarnation != incarnation {
            return false;
        }
        let (name, before) = (name.clone(), member.lease_ends);
        // It may have longer, for what it has of another server.
        let ends = before.max(mono + self.rules.lease_ms);
        self.leases.remove(&(before, name.clone()));
        self.leases.insert((ends, name.clone()));
        if let Some(member) = self.members.get_mut(&name) {
            member.lease_ends = ends;
            member.heard = mono;
        }
        true
    }

    /// That session of it has ended; it may have another by now.
    pub(crate) fn away(&mut self, name: &str, session: u64) {
        let Some(member) = self.members.get_mut(name) else { return };
        if member.session != session || !member.connected {
            return;
        }
        member.connected = false;
        let name = member.spec.name.clone();
        if member.draining && member.held.is_empty() {
            self.news.push(FleetNotification::Left { worker: name.clone() });
            self.remove(&name);
            return;
        }
        self.news.push(FleetNotification::Away { worker: name.clone() });
        self.keep_open(&name);
    }

    /// It takes nothing new. False: there is no such worker.
    pub(crate) fn drain(&mut self, name: &str) -> bool {
        let Some(member) = self.members.get_mut(name) else { return false };
        let name = member.spec.name.clone();
        member.undrain = false;
        if !member.draining {
            member.draining = true;
            self.news.push(FleetNotification::Draining { worker: name.clone() });
        }
        self.keep_open(&name);
        true
    }

    /// An operator takes a drain back. It is in force until the worker says that it has heard.
    pub(crate) fn want_undrain(&mut self, name: &str) -> Undraining {
        let Some(member) = self.members.get_mut(name) else { return Undraining::Unknown };
        if !member.draining {
            return Undraining::NotDraining;
        }
        member.undrain = true;
        if member.connected { Undraining::Ask } else { Undraining::Away }
    }

    /// The worker takes new work again. Unless an operator has drained it since it was asked to.
    pub(crate) fn undrained(&mut self, name: &str) {
        let Some(member) = self.members.get_mut(name) else { return };
        if !member.undrain {
            return;
        }
        let name = member.spec.name.clone();
        member.undrain = false;
        if member.draining {
            member.draining = false;
            self.news.push(FleetNotification::Undrained { worker: name.clone() });
        }
        self.keep_open(&name);
    }

    /// What a worker that comes back must be told.
    pub(crate) fn missed(&self, name: &str) -> Missed {
        match self.members.get(name) {
            Some(member) if member.undrain => Missed::Undrain,
            Some(member) if member.draining => Missed::Drain,
            _ => Missed::Nothing,
        }
    }

    /// Whether a worker would have said by now how an attempt ended that is `overdue`: it has been here for a
    /// while, and was heard of since. One that is not known has nothing to say.
    pub(crate) fn could_report(&self, name: &str, overdue: u64, after: u64, mono: u64) -> bool {
        self.members.get(name).is_none_or(|member| {
            member.connected
                && mono.saturating_sub(member.since) >= after
                && mono.saturating_sub(member.heard) <= overdue
        })
    }

    pub(crate) fn take(&mut self, name: &Arc<str>, key: AttemptId, held: Held) {
        let Some(member) = self.members.get_mut(name) else { return };
        member.pace.look(Timestamp(held.since));
        member.cpu_used_milli += held.cpu_milli;
        member.memory_used += held.memory;
        if member.held.insert(key, held).is_none() {
            self.held += 1;
        }
        self.keep_open(name);
    }

    /// Returns when the worker was given it.
    pub(crate) fn give_back(&mut self, name: &str, key: &AttemptId) -> Option<u64> {
        let member = self.members.get_mut(name)?;
        let held = member.held.remove(key)?;
        member.cpu_used_milli -= held.cpu_milli;
        member.memory_used -= held.memory;
        self.held -= 1;
        let name = member.spec.name.clone();
        if !member.connected && member.draining && member.held.is_empty() {
            self.news.push(FleetNotification::Left { worker: name.clone() });
            self.remove(&name);
        } else {
            self.keep_open(&name);
        }
        Some(held.since)
    }

    /// The worker said that an attempt is over: how soon its slots are free again.
    pub(crate) fn reported(&mut self, name: &str, outcome: &Outcome, mono: u64) {
        let Some(member) = self.members.get_mut(name).filter(|member| member.spec.queues) else {
            return;
        };
        let before = member.pace.ahead();
        member.pace.reported(member.slots(), outcome, Timestamp(mono));
        if before != member.pace.ahead() {
            let name = member.spec.name.clone();
            self.keep_open(&name);
        }
    }

    /// When something happens by itself.
    pub(crate) fn next_wake(&self) -> Option<u64> {
        let lease = self.leases.first().map(|(ends, _)| *ends);
        let quarantined = self.quarantined.iter().filter_map(|name| self.members.get(name));
        let quarantine = quarantined.filter_map(|member| member.health.ends()).min();
        lease.into_iter().chain(quarantine).min()
    }

    /// Ends quarantines and leases that are over; what the lost ones held is lost.
    pub(crate) fn tick(&mut self, mono: u64) -> Vec<(AttemptId, Held)> {
        for name in self.quarantined.clone() {
            let Some(member) = self.members.get_mut(&name) else { continue };
            if member.health.release(mono) {
                self.news.push(FleetNotification::OnProbation { worker: name.clone() });
                self.keep_open(&name);
            }
        }
        let mut lost = Vec::new();
        while let Some((ends, name)) = self.leases.first().cloned()
            && ends <= mono
            && !is_on(Defect::LeaseNeverExpires)
        {
            self.leases.remove(&(ends, name.clone()));
            let Some(member) = self.members.get_mut(&name) else { continue };
            let could_come_until = self.returned + self.rules.lease_ms;
            if member.spec.incarnation.is_empty() && could_come_until > mono {
                member.lease_ends = could_come_until;
                self.leases.insert((could_come_until, name));
                continue;
            }
            member.connected = false;
            let why = if member.spec.incarnation.is_empty() {
                "it did not come back after the restart"
            } else {
                "it was silent for longer than its lease"
            };
            lost.extend(member.held.iter().map(|(key, held)| (key.clone(), held.clone())));
            let attempts = member.held.len();
            self.news.push(FleetNotification::Lost { worker: name.clone(), attempts, why });
            self.remove(&name);
        }
        lost
    }

    /// All leases are so much longer: the engine itself was not there to hear.
    pub(crate) fn extend_leases(&mut self, by: u64) {
        self.leases.clear();
        for (name, member) in &mut self.members {
            member.lease_ends += by;
            self.leases.insert((member.lease_ends, name.clone()));
        }
    }

    pub(crate) fn take_news(&mut self) -> Vec<FleetNotification> {
        std::mem::take(&mut self.news)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.held
    }

    pub fn views(&self, mono: u64) -> Vec<WorkerInfo> {
        self.members
            .values()
            .map(|member| {
                let (state, why) = member.standing();
                WorkerInfo {
                    spec: member.spec.clone(),
                    state,
                    why,
                    running: (member.held.len() as u32).min(member.spec.slots),
                    credits: member.credits,
                    cpu_used: member.cpu_used_milli as f64 / 1000.0,
                    memory_used: member.memory_used,
                    lease_left_ms: member.lease_ends.saturating_sub(mono),
                }
            })
            .collect()
    }

    fn remove(&mut self, name: &Arc<str>) {
        self.fewer = true;
        if let Some(member) = self.members.remove(name) {
            self.leases.remove(&(member.lease_ends, name.clone()));
            self.held -= member.held.len();
            if let Some(busy) = member.open {
                self.open.remove(&(busy, name.clone()));
            }
        }
        self.newly_free.remove(name);
        self.quarantined.remove(name);
        self.limited.remove(name);
    }

    /// Brings the sets that a member is in up to date with it.
    fn keep_open(&mut self, name: &Arc<str>) {
        let Some(member) = self.members.get_mut(name) else { return };
        self.fewer |= !member.takes_work();
        member.wanted &= !member.has_slot();
        let open = member.has_room().then(|| member.busy());
        if open != member.open {
            if let Some(before) = member.open {
                self.open.remove(&(before, name.clone()));
            }
            self.open.extend(open.map(|busy| (busy, name.clone())));
            member.open = open;
        }
        if open.is_some() {
            self.newly_free.insert(name.clone());
        } else {
            self.newly_free.remove(name);
        }
        if member.credits < member.spec.slots {
            self.limited.insert(name.clone());
        } else {
            self.limited.remove(name);
        }
        if member.health.quarantined() {
            self.quarantined.insert(name.clone());
        } else {
            self.quarantined.remove(name);
        }
    }
}
