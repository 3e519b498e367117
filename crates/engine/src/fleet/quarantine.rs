//! Workers that fail more than others are put aside, and come back on probation.

use super::health::{Ended, Health, HealthSignal};
use super::words::FleetNotification;
use super::{Fleet, Needs, member};

impl Fleet {
    /// What an attempt's end says about the worker it ended on. Some: that worker is to be put aside, and why.
    pub(crate) fn note(&mut self, name: &str, ended: &Ended<'_>, mono: u64) -> Option<String> {
        let workers = self.members.len();
        let member = self.members.get_mut(name)?;
        if member.draining {
            return None;
        }
        let name = member.spec.name.clone();
        let was = standing(&member.health);
        let number = self.ends.next();
        if ended.sign != HealthSignal::NotBegun {
            let (failed, repeated) =
                (ended.sign == HealthSignal::Bad, member.health.repeats(ended));
            self.ends.add(ended.step, ended.step_name, &name, failed, repeated, workers);
        }
        member.health.note(ended, number);
        let accused = if ended.sign == HealthSignal::Good {
            None
        } else {
            let (held, slots) = (&member.held, member.spec.slots);
            let running = |ms| member::running_longer(held, slots, ms, mono);
            member.health.accused(&name, &self.ends, &self.rules, running, mono)
        };
        if was != standing(&member.health) {
            self.keep_open(&name);
        }
        accused
    }

    /// Puts a worker aside, unless one of those `wanted` could then run nowhere.
    pub(crate) fn put_aside<'a>(
        &mut self,
        name: &str,
        why: String,
        mut wanted: impl Iterator<Item = &'a Needs>,
        mono: u64,
    ) {
        let others = || self.members.values().filter(|other| *other.spec.name != *name);
        let Some(accused) = self.members.get(name) else { return };
        let spare = wanted
            .any(|needs| accused.can_ever(needs) && !others().any(|other| other.serves(needs)));
        let Some(member) = self.members.get_mut(name) else { return };
        if spare {
            member.health.spare(why, mono);
            return;
        }
        let name = member.spec.name.clone();
        member.health.put_aside(why, &self.rules, mono);
        if let Some((for_ms, why)) = member.health.quarantine_reason() {
            self.news.push(FleetNotification::Quarantined { worker: name.clone(), for_ms, why });
        }
        self.keep_open(&name);
    }

    /// A member takes no more work: what could run nowhere then, can it on one that is put aside?
    pub(crate) fn has_fewer(&mut self) -> bool {
        std::mem::take(&mut self.fewer)
    }

    /// If no worker takes such work but those that are put aside, they are on probation from now on. False: that
    /// changes nothing.
    pub(crate) fn release_for(&mut self, needs: &Needs) -> bool {
        if self.quarantined.is_empty() || self.members.values().any(|member| member.serves(needs)) {
            return false;
        }
        let mut released = false;
        for name in self.quarantined.clone() {
            let Some(member) = self.members.get_mut(&name) else { continue };
            let could = member.connected && !member.draining && member.can_ever(needs);
            if could && member.health.release_early() {
                self.news.push(FleetNotification::OnProbation { worker: name.clone() });
                self.keep_open(&name);
                released = true;
            }
        }
        released
    }
}

/// What decides how much a member is given.
fn standing(health: &Health) -> (bool, bool, bool) {
    (health.quarantined(), health.on_probation(), health.doubted())
}
