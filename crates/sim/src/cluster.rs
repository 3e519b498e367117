//! A whole cluster on one seed: real controllers over a simulated store, real executors over a simulated network, clients that ask
//! again, clocks that are set, and faults of every kind; single-threaded, in virtual time, the same bytes for the same seed.
//!
//! | | |
//! |---|---|
//! | `scenario`, `jobs`, `fates` | what a seed says: who is there, what is wanted, what goes wrong, how attempts go |
//! | `world` | one queue of what happens when; the network, the clients, the faults |
//! | `server`, `worker`, `store` | the real parts, and the thin models around them, which say so |
//! | `check` | what must hold, apart from all of it |
//! | `counts` | how often each thing occurred |
//! | `sweep` | many seeds, and a failing one made smaller |

mod check;
mod clock;
mod counts;
mod fates;
mod jobs;
mod messages;
mod requests;
mod rng;
mod scenario;
mod server;
mod store;
mod sweep;
mod worker;
mod world;

pub use check::Violation;
pub use counts::Counts;
pub use scenario::Parts;
pub use sweep::{Found, Sweep, Swept, hunt, regressions, shrink};

use std::panic::{AssertUnwindSafe, catch_unwind};

use scenario::Scenario;
use steadfast_core::defects::{Defect, switch_on};
use world::World;

/// What became of one seed.
#[derive(Clone, Debug)]
pub struct Run {
    pub violation: Option<Violation>,
    pub counts: Counts,
    /// Empty unless it was asked for.
    pub trace: String,
    /// In milliseconds of virtual time.
    pub ended_at: u64,
    pub events: u64,
    /// Of the whole scenario, to be left out one by one.
    pub jobs: usize,
    pub faults: usize,
}

/// What one seed says, with a defect switched on or none.
pub fn run(seed: u64, parts: &Parts, defect: Option<Defect>, is_traced: bool) -> Run {
    switch_on(defect);
    let scenario = Scenario::new(seed, parts);
    let (jobs, faults) = (scenario.jobs.len(), scenario.faults.len());
    let ran = catch_unwind(AssertUnwindSafe(|| World::new(scenario, is_traced).run()));
    switch_on(None);
    let ended = match ran {
        Ok(ended) => ended,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
            let detail = text.unwrap_or_default();
            let violation = Some(Violation { invariant: "0 nothing panics", detail });
            let counts = Counts::default();
            let trace = String::new();
            return Run { violation, counts, trace, ended_at: 0, events: 0, jobs, faults };
        }
    };
    let counts = ended.checker.counts;
    let (violation, trace) = (ended.violation, ended.trace);
    Run { violation, counts, trace, ended_at: ended.at, events: ended.events, jobs, faults }
}
