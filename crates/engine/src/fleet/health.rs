//! A worker on which everything fails is put aside for a while, and says why.
//!
//! Failures alone prove nothing: a broken job fails everywhere. A worker is put aside when it keeps
//! failing what succeeds elsewhere, or cannot even begin what it is given. When its time is over it gets
//! one attempt to show that it is well.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::FleetRules;

/// Steps remembered as broken in a row of failures.
const BROKE: usize = 16;
/// Steps of which it is remembered where they last succeeded.
const REMEMBERED: usize = 10_000;

/// What the end of an attempt says of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Good,
    /// The attempt failed, which can be its own fault.
    Bad,
    /// The worker could not begin it.
    NotBegun,
}

/// So many failures in a row, and nothing more is given to it ahead: should it be broken, whatever waits
/// there breaks too.
const DOUBTED: u32 = 3;

/// A step of a job.
type StepKey = (u64, u32);

/// Where steps have succeeded lately, on up to two workers each.
#[derive(Debug, Default)]
pub(crate) struct Succeeded {
    on: BTreeMap<StepKey, Vec<Arc<str>>>,
    order: VecDeque<StepKey>,
}

impl Succeeded {
    /// True: that is new.
    pub(crate) fn add(&mut self, step: StepKey, worker: &Arc<str>) -> bool {
        let on = self.on.entry(step).or_default();
        if on.is_empty() {
            self.order.push_back(step);
        }
        let new = on.len() < 2 && !on.contains(worker);
        if new {
            on.push(worker.clone());
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.on.remove(&oldest);
        }
        new
    }

    fn elsewhere(&self, step: StepKey, worker: &str) -> bool {
        self.on.get(&step).is_some_and(|on| on.iter().any(|name| &**name != worker))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Health {
    failures: u32,
    not_begun: u32,
    broke: BTreeSet<StepKey>,
    state: State,
    /// How often it has been put aside without a success since.
    times: u32,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Well,
    Quarantined {
        ends: u64,
        for_ms: u64,
        why: String,
    },
    Probation,
}

impl Health {
    pub(crate) fn quarantined(&self) -> bool {
        matches!(self.state, State::Quarantined { .. })
    }

    pub(crate) fn on_probation(&self) -> bool {
        matches!(self.state, State::Probation)
    }

    /// It may be about to be put aside.
    pub(crate) fn doubted(&self) -> bool {
        self.failures >= DOUBTED || self.not_begun > 0
    }

    pub(crate) fn ends(&self) -> Option<u64> {
        match self.state {
            State::Quarantined { ends, .. } => Some(ends),
            _ => None,
        }
    }

    pub(crate) fn sentence(&self) -> Option<(u64, String)> {
        match &self.state {
            State::Quarantined { for_ms, why, .. } => Some((*for_ms, why.clone())),
            _ => None,
        }
    }

    /// True: its quarantine is over, and it is on probation.
    pub(crate) fn release(&mut self, mono: u64) -> bool {
        let over = self.ends().is_some_and(|ends| ends <= mono);
        if over {
            self.state = State::Probation;
        }
        over
    }

    pub(crate) fn note(
        &mut self,
        name: &str,
        step: StepKey,
        sign: Sign,
        succeeded: &Succeeded,
        rules: &FleetRules,
        mono: u64,
    ) {
        match sign {
            Sign::Good => {
                let quarantined = self.quarantined();
                self.failures = 0;
                self.not_begun = 0;
                self.broke.clear();
                self.times = 0;
                if !quarantined {
                    self.state = State::Well;
                }
                return;
            }
            Sign::Bad => {
                self.failures += 1;
                self.not_begun = 0;
                if self.broke.len() < BROKE {
                    self.broke.insert(step);
                }
            }
            Sign::NotBegun => self.not_begun += 1,
        }
        self.judge(name, succeeded, rules, mono);
    }

    /// True: it is put aside now.
    pub(crate) fn judge(
        &mut self,
        name: &str,
        succeeded: &Succeeded,
        rules: &FleetRules,
        mono: u64,
    ) -> bool {
        if self.quarantined() {
            return false;
        }
        let elsewhere = || self.broke.iter().any(|step| succeeded.elsewhere(*step, name));
        let probation = self.on_probation();
        let why = if self.not_begun >= rules.not_begun || probation && self.not_begun > 0 {
            format!("{} attempts in a row could not even begin there", self.not_begun)
        } else if (self.failures >= rules.failures || probation && self.failures > 0) && elsewhere()
        {
            format!(
                "{} attempts in a row failed there, of steps that succeed elsewhere",
                self.failures
            )
        } else {
            return false;
        };
        let doubled = 1u64.checked_shl(self.times).unwrap_or(u64::MAX);
        let for_ms = rules.quarantine_ms.saturating_mul(doubled).min(rules.quarantine_most_ms);
        self.times += 1;
        self.state = State::Quarantined { ends: mono + for_ms, for_ms, why };
        true
    }
}
