//! Many seeds, on as many threads as are wanted: each is a world of its own. A failing one is made smaller before it is shown.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use steadfast_core::defects::Defect;

use super::counts::Counts;
use super::scenario::Parts;
use super::{Run, Violation, run};

/// Seeds that are known to have failed once, with the reason.
const SEEDS: &str = include_str!("../../seeds.txt");

/// A seed is made smaller in no more runs than this.
const SHRINKS_MOST: u32 = 200;

#[derive(Clone, Copy, Debug)]
pub struct Sweep {
    pub from: u64,
    pub seeds: u64,
    pub threads: usize,
    pub defect: Option<Defect>,
    /// Also after a seed that fails.
    pub keeps_going: bool,
}

/// A seed that fails.
#[derive(Clone, Debug)]
pub struct Found {
    pub seed: u64,
    pub violation: Violation,
}

#[derive(Clone, Debug, Default)]
pub struct Swept {
    pub counts: Counts,
    pub events: u64,
    /// The failing seeds, in order. Unless it keeps going, the first of them.
    pub found: Vec<Found>,
    /// Seeds that were run.
    pub seeds: u64,
}

impl Sweep {
    /// Stops soon after the first seed that fails, unless it keeps going.
    pub fn run(self) -> Swept {
        let (next, swept) = (AtomicU64::new(self.from), Mutex::new(Swept::default()));
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    let mut own = Swept::default();
                    while !failed.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= self.from + self.seeds {
                            break;
                        }
                        let Run { violation, counts, events, .. } =
                            run(seed, &Parts::default(), self.defect, false);
                        own.counts.join(&counts);
                        own.events += events;
                        own.seeds += 1;
                        if let Some(violation) = violation {
                            failed.store(!self.keeps_going, Ordering::Relaxed);
                            own.found.push(Found { seed, violation });
                        }
                    }
                    let mut all = swept.lock().unwrap_or_else(PoisonError::into_inner);
                    all.counts.join(&own.counts);
                    all.events += own.events;
                    all.seeds += own.seeds;
                    all.found.extend(own.found);
                });
            }
        });
        let mut swept = swept.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Whichever thread was faster.
        swept.found.sort_by_key(|found| found.seed);
        if !self.keeps_going {
            swept.found.truncate(1);
        }
        swept
    }
}

/// After how many seeds a defect is found, and by which check. None: not within so many. A seed that fails without it has found
/// something else.
pub fn hunt(defect: Defect, seeds: u64) -> Option<(u64, Violation)> {
    (0..seeds).find_map(|seed| {
        let violation = run(seed, &Parts::default(), Some(defect), false).violation?;
        let is_its = run(seed, &Parts::default(), None, false).violation.is_none();
        is_its.then_some((seed + 1, violation))
    })
}

/// Leaves jobs and faults out as long as the same invariant is violated.
pub fn shrink(seed: u64, defect: Option<Defect>) -> (Parts, Option<Violation>) {
    let whole = run(seed, &Parts::default(), defect, false);
    let Some(violation) = whole.violation else { return (Parts::default(), None) };
    let mut parts =
        Parts { jobs: Some((0..whole.jobs).collect()), faults: Some((0..whole.faults).collect()) };
    let mut smallest = violation;
    let mut runs = 0;
    loop {
        let before = parts.clone();
        for is_jobs in [false, true] {
            let part =
                |parts: &Parts| if is_jobs { parts.jobs.clone() } else { parts.faults.clone() };
            for left_out in part(&parts).unwrap_or_default() {
                let mut kept = part(&parts).unwrap_or_default();
                kept.retain(|n| *n != left_out);
                runs += 1;
                if runs > SHRINKS_MOST {
                    return (parts, Some(smallest));
                }
                let smaller = if is_jobs {
                    Parts { jobs: Some(kept), faults: parts.faults.clone() }
                } else {
                    Parts { jobs: parts.jobs.clone(), faults: Some(kept) }
                };
                let again = run(seed, &smaller, defect, false).violation;
                if let Some(again) = again.filter(|again| again.invariant == smallest.invariant) {
                    (parts, smallest) = (smaller, again);
                }
            }
        }
        if parts == before {
            return (parts, Some(smallest));
        }
    }
}

/// The seeds that are kept, with their reasons.
pub fn regressions() -> Vec<(u64, &'static str)> {
    let lines =
        SEEDS.lines().map(str::trim).filter(|line| !(line.is_empty() || line.starts_with('#')));
    let parsed = lines.filter_map(|line| {
        let (seed, reason) = line.split_once(' ')?;
        Some((seed.parse().ok()?, reason.trim()))
    });
    parsed.collect()
}
