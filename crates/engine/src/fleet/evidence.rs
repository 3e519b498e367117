//! What a worker's failures prove: how often it fails the very steps that others run at the same time.
//!
//! Of each step the latest ends of attempts are kept, with who ran them. The others' share of failures is
//! taken as high as they leave room for (the upper end of a Wilson interval of three standard deviations), and
//! [`Trials::surprise`] bounds how likely a worker that is as good as they are fails so many of its own
//! (Chernoff's bound on a binomial tail). So chance, a flaky step, a job that is broken everywhere and an
//! outage that all see alike prove nothing, however long they go on; and without others there is no proof.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use steadfast_core::event::{ItemId, Role};

use crate::engine::JobKey;

/// Ends of attempts that are remembered of each step: `ENDS_PER_WORKER` of each worker, if they share alike, and `ENDS_LEAST`
/// at least. All workers are seen over the same time by that, also the fastest.
const ENDS_PER_WORKER: usize = 64;
const ENDS_LEAST: usize = 4096;
/// Of all steps together; the steps that began first are forgotten first.
const ENDS_MOST: usize = 400_000;
/// On each step the others count for so many times the worker's own attempts at most: otherwise a step that
/// they run and it does not would speak for those that it does.
const OTHERS_PER_OWN: f64 = 4.0;
/// Standard deviations.
const MARGIN: f64 = 3.0;

/// A step of a job in one of its runs: the same action in the same place.
pub(crate) type StepKey = (JobKey, u32, u32, Role);

pub(crate) fn step_of(job: JobKey, item: ItemId) -> StepKey {
    (job, item.run, item.step, item.role)
}

/// The latest ends of attempts, by step.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    of: BTreeMap<StepKey, Step>,
    order: VecDeque<StepKey>,
    /// All that are kept.
    kept: usize,
    last: u64,
}

#[derive(Debug)]
struct Step {
    name: Box<str>,
    ends: VecDeque<End>,
}

#[derive(Debug)]
struct End {
    number: u64,
    worker: Arc<str>,
    failed: bool,
    /// The worker has failed this item a moment ago: no further evidence against it.
    repeated: bool,
}

/// Attempts that ended, and those of them that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) failed: u32,
    pub(crate) ended: u32,
}

impl Tally {
    fn add(&mut self, failed: bool) {
        self.failed += u32::from(failed);
        self.ended += 1;
    }
}

impl Ends {
    /// The number of the next.
    pub(crate) fn next(&self) -> u64 {
        self.last + 1
    }

    /// `workers`: how many there are.
    pub(crate) fn add(
        &mut self,
        step: StepKey,
        name: &str,
        worker: &Arc<str>,
        failed: bool,
        repeated: bool,
        workers: usize,
    ) {
        self.last += 1;
        let kept = self.of.entry(step).or_insert_with(|| {
            self.order.push_back(step);
            Step { name: name.into(), ends: VecDeque::new() }
        });
        let most = (workers * ENDS_PER_WORKER).max(ENDS_LEAST);
        kept.ends.push_back(End { number: self.last, worker: worker.clone(), failed, repeated });
        self.kept += 1;
        while kept.ends.len() > most {
            kept.ends.pop_front();
            self.kept -= 1;
        }
        while self.kept > ENDS_MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.kept -= self.of.remove(&oldest).map_or(0, |step| step.ends.len());
        }
    }

    /// What a worker has made of these steps since, and beside it what others have.
    pub(crate) fn compare(&self, worker: &str, steps: &BTreeSet<StepKey>, since: u64) -> Trials {
        let mut trials = Trials::default();
        let mut most = 0;
        for step in steps.iter().filter_map(|step| self.of.get(step)) {
            let (mut own, mut others) = (Tally::default(), Tally::default());
            for end in step.ends.iter().rev().take_while(|end| end.number >= since) {
                if *end.worker != *worker {
                    others.add(end.failed);
                } else if !end.repeated {
                    own.add(end.failed);
                }
            }
            trials.own.failed += own.failed;
            trials.own.ended += own.ended;
            trials.others.failed += others.failed;
            trials.others.ended += others.ended;
            if others.ended > 0 {
                let most = OTHERS_PER_OWN * f64::from(own.ended) / f64::from(others.ended);
                let weight = most.min(1.0);
                trials.weighed_failed += weight * f64::from(others.failed);
                trials.weighed += weight * f64::from(others.ended);
            }
            trials.steps += 1;
            if own.failed > most {
                most = own.failed;
                trials.name.clone_from(&step.name);
            }
        }
        trials
    }
}

/// A worker beside the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trials {
    pub(crate) own: Tally,
    pub(crate) others: Tally,
    weighed: f64,
    weighed_failed: f64,
    steps: usize,
    /// Of the step that it failed most.
    name: Box<str>,
}

impl Trials {
    /// The natural logarithm of one in how many workers as good as the others would fail so many. `running`:
    /// attempts that it is still at, after it would have failed them.
    pub(crate) fn surprise(&self, running: u32) -> f64 {
        let usual = upper_share(self.weighed_failed, self.weighed);
        let ended = f64::from(self.own.ended + running);
        let share = f64::from(self.own.failed) / ended.max(1.0);
        if share <= usual { 0.0 } else { ended * divergence(share, usual) }
    }

    /// For people.
    pub(crate) fn describe(&self) -> String {
        let Self { own, others, steps, name, .. } = self;
        let more = match steps {
            0 | 1 => String::new(),
            2 => " and another step".to_owned(),
            more => format!(" and {} other steps", more - 1),
        };
        format!(
            "failed {} of {} of `{name}`{more}, others {} of {}",
            own.failed, own.ended, others.failed, others.ended
        )
    }
}

/// The highest share that so many failures are still likely with.
fn upper_share(failed: f64, ended: f64) -> f64 {
    let square = MARGIN * MARGIN;
    if ended <= 0.0 {
        return 1.0;
    }
    let spread = failed * (ended - failed) / ended + square / 4.0;
    let upper = (failed + square / 2.0 + MARGIN * spread.max(0.0).sqrt()) / (ended + square);
    upper.min(1.0)
}

/// Of one share from another, both of a thing that happens or not: how much each trial tells them apart.
fn divergence(share: f64, from: f64) -> f64 {
    let part = |share: f64, from: f64| if share > 0.0 { share * (share / from).ln() } else { 0.0 };
    part(share, from) + part(1.0 - share, 1.0 - from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trials(own: (u32, u32), others: (u32, u32)) -> Trials {
        let tally = |(failed, ended)| Tally { failed, ended };
        Trials {
            own: tally(own),
            others: tally(others),
            weighed_failed: f64::from(others.0),
            weighed: f64::from(others.1),
            steps: 1,
            name: "index".into(),
        }
    }

    #[test]
    fn what_others_fail_too_and_what_nobody_else_has_tried_proves_nothing() {
        for (own, others) in [((50, 50), (0, 0)), ((50, 50), (60, 60)), ((30, 60), (30, 60))] {
            assert!(trials(own, others).surprise(0) <= 0.0, "{own:?} {others:?}");
        }
        assert!(trials((3, 3), (0, 3)).surprise(0) < 1.0, "three are no proof");
    }

    #[test]
    fn a_share_that_cannot_be_chance_is_proof() {
        for (own, others) in [((18, 20), (3, 60)), ((9, 9), (0, 60)), ((160, 160), (0, 1))] {
            let surprise = trials(own, others).surprise(0);
            assert!(surprise > 16.0, "{own:?} {others:?}: {surprise}");
        }
        assert!(
            trials((20, 20), (30, 60)).surprise(20) <= 0.0,
            "what still runs is not among what has failed quickly"
        );
        assert_eq!(
            trials((18, 20), (3, 60)).describe(),
            "failed 18 of 20 of `index`, others 3 of 60"
        );
    }

    /// Others run a solid step, it runs a flaky one, and both have touched the other's.
    #[test]
    fn a_step_that_others_run_does_not_speak_for_another() {
        let (mut ends, a, b) = (Ends::default(), Arc::from("a"), Arc::from("b"));
        let (flaky, solid) = ((1, 0, 0, Role::Item), (1, 0, 1, Role::Item));
        for n in 0..50 {
            ends.add(flaky, "flaky", &a, n % 10 != 0, false, 2);
        }
        for failed in [true, true, true, false] {
            ends.add(flaky, "flaky", &b, failed, false, 2);
        }
        for _ in 0..200 {
            ends.add(solid, "solid", &b, false, false, 2);
        }
        ends.add(solid, "solid", &a, false, false, 2);
        let surprise = ends.compare("a", &BTreeSet::from([flaky, solid]), 0).surprise(0);
        assert!(surprise < 5.0, "{surprise}");
    }

    #[test]
    fn memory_is_bounded() {
        let (mut ends, a) = (Ends::default(), Arc::from("a"));
        for job in 0..10 {
            for _ in 0..ENDS_MOST / 4 {
                ends.add((job, 0, 0, Role::Item), "s", &a, true, false, 1000);
            }
            assert!(ends.of.values().all(|step| step.ends.len() <= 1000 * ENDS_PER_WORKER));
            let kept: usize = ends.of.values().map(|step| step.ends.len()).sum();
            assert!(kept == ends.kept && kept <= ENDS_MOST, "{kept} {}", ends.kept);
        }
        assert!(ends.of.len() == ends.order.len() && ends.of.len() < 10);
    }
}
