//! A worker on which everything fails is put aside for a while, and says why.
//!
//! Failures alone prove nothing: a broken job fails everywhere, and a flaky step half of the time. A worker is
//! put aside when it fails what others do not, by more than chance allows (`evidence`), or cannot even begin
//! what it is given. When its time is over it gets one attempt at a time, until one succeeds.

use std::collections::{BTreeSet, VecDeque};

use super::FleetRules;
use super::evidence::{Ends, StepKey};

/// The natural logarithm of one in how many healthy workers may be put aside by chance, at each look: ten
/// million, because there is a look at every failure. A worker that fails everything has failed 8 then, if
/// the others succeed with 60; and 22, if with 10.
const PROOF: f64 = 16.118;
/// The same of a worker that has been put aside before and is on probation: a hundred.
const PROOF_ON_PROBATION: f64 = 4.605;
/// A single failure on probation is forgiven.
const FAILURES_ON_PROBATION: u32 = 2;
/// Steps that are held against a worker in a spell of failures; the oldest jobs' go first.
const STEPS: usize = 32;
/// One that failed an item counts no more failures of it until it has failed this many others: an item that
/// fails everywhere says nothing about it, although it gets it again and again.
const ITEMS: usize = 8;
/// This many failures in a row, and nothing more is given to it ahead: should it be broken, whatever waits
/// there breaks too.
const DOUBTED: u32 = 3;
/// While the failures of a spell double, there are about this many looks at them, no further apart than this.
const LOOKS: u32 = 16;
const LOOKS_APART: u32 = 64;
/// Before a worker that could not be spared is judged again.
const SPARED_MS: u64 = 1000;

/// What the end of an attempt says of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HealthSignal {
    Good,
    /// The attempt failed, which can be its own fault.
    Bad,
    /// The worker could not begin it.
    NotBegun,
}

/// The end of an attempt at a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended<'a> {
    pub(crate) step: StepKey,
    pub(crate) step_name: &'a str,
    pub(crate) item: u32,
    pub(crate) sign: HealthSignal,
    pub(crate) took_ms: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Health {
    failures_in_row: u32,
    not_begun: u32,
    spell: Option<Spell>,
    state: State,
    /// How often it has been put aside without a success since.
    times: u32,
    /// There is proof, but what waits could run nowhere else: why, and until when that is believed.
    spared: Option<(String, u64)>,
}

/// Since the first of its failures that its successes have not made up for.
#[derive(Debug, Default)]
struct Spell {
    /// The number of that end.
    since: u64,
    failures: u32,
    successes: u32,
    /// With how many failures it is looked at again.
    next_look: u32,
    /// Those that it failed.
    steps: BTreeSet<StepKey>,
    /// What it failed last.
    items: VecDeque<(StepKey, u32)>,
    /// An attempt that has run for longer is not about to fail like these.
    slowest_ms: u64,
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
    /// With what it was put aside for.
    Probation(String),
}

impl Health {
    pub(crate) fn quarantined(&self) -> bool {
        matches!(self.state, State::Quarantined { .. })
    }

    pub(crate) fn on_probation(&self) -> bool {
        matches!(self.state, State::Probation(_))
    }

    /// It may be about to be put aside.
    pub(crate) fn doubted(&self) -> bool {
        self.failures_in_row >= DOUBTED || self.not_begun > 0
    }

    pub(crate) fn ends(&self) -> Option<u64> {
        match self.state {
            State::Quarantined { ends, .. } => Some(ends),
            _ => None,
        }
    }

    pub(crate) fn quarantine_reason(&self) -> Option<(u64, String)> {
        match &self.state {
            State::Quarantined { for_ms, why, .. } => Some((*for_ms, why.clone())),
            _ => None,
        }
    }

    /// For people, of one that is not put aside.
    pub(crate) fn remark(&self) -> Option<String> {
        match (&self.state, &self.spared) {
            (State::Probation(why), _) => {
                Some(format!("on probation, one attempt at a time until one succeeds; {why}"))
            }
            (_, Some((why, _))) => {
                Some(format!("{why}; not put aside, as nobody else could run what waits"))
            }
            _ => None,
        }
    }

    /// True: its quarantine is over, and it is on probation.
    pub(crate) fn release(&mut self, mono: u64) -> bool {
        self.ends().is_some_and(|ends| ends <= mono) && self.release_early()
    }

    /// True: it was put aside, and is on probation now.
    pub(crate) fn release_early(&mut self) -> bool {
        let State::Quarantined { why, .. } = &mut self.state else { return false };
        self.state = State::Probation(std::mem::take(why));
        // What it was still at when it was put aside is not held against it twice.
        (self.spell, self.failures_in_row, self.not_begun) = (None, 0, 0);
        true
    }

    /// It has failed this item a moment ago.
    pub(crate) fn repeats(&self, ended: &Ended<'_>) -> bool {
        let items = self.spell.as_ref().map(|spell| &spell.items);
        ended.sign == HealthSignal::Bad
            && items.is_some_and(|it| it.contains(&(ended.step, ended.item)))
    }

    /// `number`: of this end, among all.
    pub(crate) fn note(&mut self, ended: &Ended<'_>, number: u64) {
        match ended.sign {
            HealthSignal::Good => {
                self.failures_in_row = 0;
                self.not_begun = 0;
                self.times = 0;
                if self.on_probation() {
                    self.state = State::Well;
                    self.spell = None;
                }
                if let Some(spell) = &mut self.spell {
                    spell.successes += 1;
                    if spell.successes >= spell.failures {
                        self.spell = None;
                    }
                }
                if self.spell.is_none() {
                    self.spared = None;
                }
            }
            HealthSignal::Bad => {
                self.failures_in_row += 1;
                self.not_begun = 0;
                let repeats = self.repeats(ended);
                let new = || Spell { since: number, ..Spell::default() };
                let spell = self.spell.get_or_insert_with(new);
                spell.failures += 1;
                spell.slowest_ms = spell.slowest_ms.max(ended.took_ms);
                spell.steps.insert(ended.step);
                if spell.steps.len() > STEPS {
                    spell.steps.pop_first();
                }
                if !repeats {
                    spell.items.push_back((ended.step, ended.item));
                    if spell.items.len() > ITEMS {
                        spell.items.pop_front();
                    }
                }
            }
            HealthSignal::NotBegun => self.not_begun += 1,
        }
    }

    /// Why it is to be put aside, if it is. `running`: how many attempts it has been at for longer than so
    /// many milliseconds.
    pub(crate) fn accused(
        &mut self,
        name: &str,
        ends: &Ends,
        rules: &FleetRules,
        running: impl FnOnce(u64) -> u32,
        mono: u64,
    ) -> Option<String> {
        if self.quarantined() || self.spared.as_ref().is_some_and(|(_, until)| mono < *until) {
            return None;
        }
        let (not_begun, failures, proof) = if self.on_probation() {
            (FAILURES_ON_PROBATION, FAILURES_ON_PROBATION, PROOF_ON_PROBATION)
        } else {
            (rules.not_begun, rules.failures, PROOF)
        };
        if self.not_begun >= not_begun {
            return Some(format!(
                "{} attempts in a row could not even begin there",
                self.not_begun
            ));
        }
        let spell = self.spell.as_mut().filter(|spell| spell.failures >= failures)?;
        // Of many failures not every one is worth a look.
        if spell.failures < spell.next_look {
            return None;
        }
        spell.next_look = spell.failures + 1 + (spell.failures / LOOKS).min(LOOKS_APART);
        let trials = ends.compare(name, &spell.steps, spell.since);
        let proven =
            trials.own.failed >= failures && trials.surprise(running(spell.slowest_ms)) >= proof;
        proven.then(|| trials.describe())
    }

    pub(crate) fn put_aside(&mut self, why: String, rules: &FleetRules, mono: u64) {
        let doubled = 1u64.checked_shl(self.times).unwrap_or(u64::MAX);
        let for_ms = rules.quarantine_ms.saturating_mul(doubled).min(rules.quarantine_most_ms);
        self.times += 1;
        (self.spell, self.spared, self.not_begun) = (None, None, 0);
        self.state = State::Quarantined { ends: mono + for_ms, for_ms, why };
    }

    pub(crate) fn spare(&mut self, why: String, mono: u64) {
        self.spared = Some((why, mono + SPARED_MS));
    }
}
