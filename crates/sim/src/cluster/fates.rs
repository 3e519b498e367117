//! How attempts go: a pure function of the seed and of what is attempted, so that an attempt goes the same way wherever it runs.

use serde_json::json;
use steadfast_core::event::Role;
use steadfast_core::outcome::{
    ErrorText, Failure, FailureKind, Outcome, Permanence, RequestedDelay,
};
use steadfast_core::plan::{Action, HttpMode};
use steadfast_engine::Work;

use super::rng::Rng;

/// From this attempt on everything succeeds, so that policies without a limit end.
const PATIENCE: u32 = 7;

#[derive(Clone, Debug)]
pub(crate) struct AttemptFate {
    pub(crate) takes_ms: u64,
    pub(crate) end: AttemptEnd,
    /// Asked to stop, it does not, and is killed after its grace.
    pub(crate) ignores_stop: bool,
    /// It says how far it is, so often.
    pub(crate) progress: u32,
}

#[derive(Clone, Debug)]
pub(crate) enum AttemptEnd {
    Outcome(Outcome),
    /// It would never end by itself.
    Hangs,
    /// A service has it, and says this so long after it was asked, so many times.
    CallsBack {
        outcome: Outcome,
        after_ms: u64,
        times: u32,
    },
}

pub(crate) fn fate(seed: u64, work: &Work) -> AttemptFate {
    let assignment = &work.assignment;
    let item = assignment.item;
    let mut temper = Rng::new(seed, &format!("temper {} {}", assignment.job, work.step));
    let failures_percent = *temper.pick(&[0, 5, 15, 30, 30, 60, 100]);
    let mut rng = Rng::new(
        seed,
        &format!("fate {} {} {item:?} {}", assignment.job, work.step, assignment.attempt),
    );
    let takes_ms = match rng.below(20) {
        0..11 => rng.between(5, 200),
        11..17 => rng.between(200, 3000),
        17 | 18 => rng.between(3000, 18_000),
        _ => rng.between(30_000, 60_000),
    };
    let fails = rng.percent(failures_percent)
        && assignment.attempt < PATIENCE
        && item.role != Role::Compensation;
    let ignores_stop = rng.percent(20);
    let progress = if rng.percent(15) { rng.between(1, 3) as u32 } else { 0 };
    let Ok(action) = &work.action else {
        let end = AttemptEnd::Outcome(permanent());
        return AttemptFate { takes_ms: 1, end, ignores_stop, progress: 0 };
    };
    let end = if fails && work.timeout_ms.is_some() && rng.percent(15) {
        AttemptEnd::Hangs
    } else {
        AttemptEnd::Outcome(if fails { failure(action, &mut rng) } else { success(&mut rng) })
    };
    let end = match (action, end) {
        (Action::Http(http), AttemptEnd::Outcome(outcome)) if http.mode == HttpMode::Async => {
            // Some services refuse at once; some forget what they were asked.
            match rng.below(10) {
                0 => AttemptEnd::Outcome(outcome),
                1 if work.timeout_ms.is_some() && assignment.attempt < PATIENCE => {
                    AttemptEnd::CallsBack { outcome, after_ms: 0, times: 0 }
                }
                _ => {
                    let after_ms = rng.between(1, 6000);
                    AttemptEnd::CallsBack { outcome, after_ms, times: rng.between(1, 3) as u32 }
                }
            }
        }
        (_, end) => end,
    };
    AttemptFate { takes_ms, end, ignores_stop, progress }
}

fn success(rng: &mut Rng) -> Outcome {
    let output = match rng.below(3) {
        0 => None,
        // What a fan-out can be made of.
        _ => Some(json!({ "list": (0..rng.between(1, 4)).collect::<Vec<u64>>() })),
    };
    Outcome::Succeeded { output }
}

fn permanent() -> Outcome {
    let permanence = Permanence::Said;
    Outcome::Failed(Failure { permanence, ..Failure::new(FailureKind::HandlerFailed) })
}

fn failure(action: &Action, rng: &mut Rng) -> Outcome {
    let kind = match action {
        Action::Run(_) | Action::Argv(_) => match rng.below(6) {
            0..3 => FailureKind::Exited(*rng.pick(&[1, 2, 7, 75, 137])),
            3 => FailureKind::Signalled(*rng.pick(&[9, 11, 15])),
            _ => FailureKind::NotCompleted,
        },
        Action::Call { .. } => FailureKind::HandlerFailed,
        Action::Http(_) => return Outcome::from_http_status(*rng.pick(&[500, 503, 429, 404, 502])),
    };
    let mut failure = Failure::new(kind);
    let is_answer = matches!(kind, FailureKind::HandlerFailed);
    match rng.below(12) {
        0 if is_answer => return permanent(),
        1 | 2 if is_answer => failure.asked = Some(RequestedDelay::DeferMs(rng.between(50, 3000))),
        3 if is_answer => {
            failure.asked = Some(RequestedDelay::RetryAfterMs(rng.between(50, 5000)));
        }
        4 | 5 => {
            let kind = Some("Flaky".to_owned());
            failure.error = Some(ErrorText { kind, message: "it broke".to_owned() });
        }
        _ => {}
    }
    Outcome::Failed(failure)
}
