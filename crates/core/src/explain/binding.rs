//! Which limit will stop an item that keeps failing, and what is left until each of them.

use serde::{Deserialize, Serialize};

use crate::account::History;
use crate::event::ItemId;
use crate::job::{Job, WorkItem};
use crate::outcome::{FailureKind, Outcome};
use crate::time::{Timestamp, human_ms};
use crate::verdict::{Decision, StopReason, verdict};

use super::words::count;

/// Failures that are asked about; a limit further off is named by its number alone.
const ASKED: u32 = 50;

/// The limit that binds next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextLimit {
    /// `max_attempts`, `delay_budget`, `window`, `job_budget`, `step_budget`, `timeout`, or the stop that comes whatever is left;
    /// `none`: it is tried without end.
    pub limit: String,
    /// `2 attempts or 41s of delay, whichever first`
    pub sentence: String,
}

/// The next failures of the item are judged by [`verdict`], each where the one before would have led, until one stops it.
pub(super) fn next_limit(job: &Job, id: ItemId, item: &WorkItem, now: Timestamp) -> NextLimit {
    let policy = &job.plan.step(id.step).policy;
    let failure: Outcome = FailureKind::HandlerFailed.into();
    let mut history: History = item.history;
    let mut shared = job.shared(id, history.attempts.max(1));
    let mut at = now;
    let mut stop = None;
    for _ in 0..ASKED {
        let judged = verdict(policy, &history, &shared, &failure, at);
        match judged.decision {
            Decision::Complete => break,
            Decision::Stop { reason } => {
                stop = Some(reason);
                break;
            }
            Decision::Retry { cause, delay_ms, due_at } => {
                history.attempt_ended(&failure);
                history.charge(judged.charged, at);
                history.backs_off(cause, delay_ms);
                history.attempts = history.attempts.saturating_add(1);
                let (retries, of_step) =
                    (judged.accounts.job_retries, judged.accounts.step_retries);
                shared = job.shared(id, history.attempts);
                (shared.job_retries, shared.step_retries) = (retries, of_step);
                at = due_at;
            }
        }
    }
    let name = match stop {
        None if policy.max_attempts.is_some() => "max_attempts",
        None => "none",
        Some(StopReason::AttemptsExhausted) => "max_attempts",
        Some(StopReason::DelayBudgetExhausted) => "delay_budget",
        Some(StopReason::WindowExpired) => "window",
        Some(StopReason::JobBudgetExhausted) => "job_budget",
        Some(StopReason::StepBudgetExhausted) => "step_budget",
        Some(StopReason::JobTimedOut) => "timeout",
        Some(reason) => reason.name(),
    };
    NextLimit { limit: name.to_owned(), sentence: sentence(job, id, item, stop, now) }
}

/// What is left of everything that has a limit.
fn sentence(
    job: &Job,
    id: ItemId,
    item: &WorkItem,
    stop: Option<StopReason>,
    now: Timestamp,
) -> String {
    let policy = &job.plan.step(id.step).policy;
    let (history, shared) = (&item.history, job.shared(id, item.history.attempts.max(1)));
    match stop {
        Some(StopReason::NotRetryable) => return "no other attempt: retryable is false".to_owned(),
        Some(StopReason::StepFailed) => {
            return "no other attempt: another item has failed the step".to_owned();
        }
        _ => {}
    }
    let retries =
        |left: u32, of: &str| format!("{} of the {of}", count(left.into(), "retry", "retries"));
    let parts = [
        policy
            .max_attempts
            .map(|most| count(most.saturating_sub(history.failures).into(), "attempt", "attempts")),
        policy.delay_budget_ms.map(|most| {
            let spent = history.delay_spent_ms.saturating_add(history.downtime_ms);
            format!("{} of delay", human_ms(most.saturating_sub(spent)))
        }),
        policy.window_ms.map(|most| {
            let ends = history.first_failure_at.map_or(most, |at| at.plus(most).since(now));
            format!("{} of the window", human_ms(ends))
        }),
        shared
            .job_budget
            .map(|most| retries(most.saturating_sub(shared.job_retries), "job's budget")),
        shared
            .step_budget
            .map(|most| retries(most.saturating_sub(shared.step_retries), "step's share")),
        shared.timeout_at.map(|at| format!("{} until the job's timeout", human_ms(at.since(now)))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.split_last() {
        None => "no limit".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} or {last}, whichever first", others.join(", ")),
    }
}
