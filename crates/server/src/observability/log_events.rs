//! The events of the log, each under its stable name with its stable fields.
//!
//! | target | what |
//! |---|---|
//! | `steadfast::job` | a job, its runs and steps |
//! | `steadfast::attempt` | attempts, retries, items given up |
//! | `steadfast::worker` | workers that come, go and misbehave |

use steadfast_core::account::Accounts;
use steadfast_core::event::{
    AcceptedJob, CompletionReason, Event, FailedOn, ItemId, JobState, RecordedEvent, Requester,
    Role, RunEnd,
};
use steadfast_core::job::Completion;
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{Budget, ForEach, Plan};
use steadfast_core::verdict::{Cause, StopReason};
use tracing::{debug, info, warn};

use super::job::ObservedJob;
use super::lines::JsonList;
use super::metrics::cause_name;

/// What is as it should be is for whoever looks closely: thousands of small jobs a second would fill the log with it.
macro_rules! info_unless {
    ($usual:expr, $($line:tt)+) => {
        if $usual {
            debug!($($line)+);
        } else {
            info!($($line)+);
        }
    };
}

pub(super) fn accepted(accepted: &AcceptedJob) {
    let plan = &accepted.plan;
    let budget = plan.budget();
    debug!(
        target: "steadfast::job",
        job_id = &*accepted.id,
        job = plan.name(),
        steps = plan.steps().len(),
        datacenters = plan.datacenters().len(),
        retry_budget = budget.and_then(|budget| budget.total).map(|total| total.effective),
        retry_budget_per_step = budget.and_then(Budget::per_step),
        best_effort = plan.best_effort().is_some(),
        retried_from = accepted.retried_from.as_deref(),
        by = accepted.requested.by.as_deref(),
        reason = accepted.requested.reason.as_deref(),
        "JobAccepted"
    );
}

/// What of a job happened to it as a whole and needs no more words than its name and who asked for it.
pub(super) fn simple(job: &ObservedJob, record: &RecordedEvent, requested: &Requester) {
    info_unless!(
        matches!(record.event, Event::JobStarted),
        target: "steadfast::job",
        job_id = &*job.id,
        event_seq = record.seq,
        by = requested.by.as_deref(),
        reason = requested.reason.as_deref(),
        "{}",
        record.event.name()
    );
}

pub(super) fn restarted(job: &ObservedJob, down_ms: u64) {
    info!(target: "steadfast::job", job_id = &*job.id, job = job.plan.name(), down_ms, "EngineRestarted");
}

pub(super) fn step(job: &ObservedJob, run: u32, step: u32, event: &'static str) {
    debug!(
        target: "steadfast::job",
        job_id = &*job.id,
        datacenter = job.plan.datacenter(run),
        step = step_name(&job.plan, step),
        "{event}"
    );
}

pub(super) fn step_failed(job: &ObservedJob, run: u32, step: u32, continues: bool) {
    warn!(
        target: "steadfast::job",
        job_id = &*job.id,
        datacenter = job.plan.datacenter(run),
        step = step_name(&job.plan, step),
        continues,
        "StepFailed"
    );
}

pub(super) fn run_ended(job: &ObservedJob, run: u32, end: RunEnd) {
    let state = run_state(end).name();
    info_unless!(
        end == RunEnd::Succeeded && job.plan.datacenters().is_empty(),
        target: "steadfast::job",
        job_id = &*job.id,
        datacenter = job.plan.datacenter(run),
        state,
        timed_out = end == RunEnd::TimedOut,
        "RunEnded"
    );
}

pub(super) const fn run_state(end: RunEnd) -> JobState {
    match end {
        RunEnd::Succeeded => JobState::Succeeded,
        RunEnd::Failed | RunEnd::TimedOut => JobState::Failed,
        RunEnd::Cancelled => JobState::Cancelled,
    }
}

pub(super) fn job_ended(job: &ObservedJob, state: JobState, completion: Completion, took_ms: u64) {
    info_unless!(
        state == JobState::Succeeded,
        target: "steadfast::job",
        job_id = &*job.id,
        job = job.plan.name(),
        state = state.name(),
        reason = completion.reason.name(),
        attempts = job.attempts,
        retries_charged = job.consumed,
        took_ms,
        "JobEnded"
    );
    let Some(best) = job.plan.best_effort() else { return };
    if completion.reason == CompletionReason::Cancelled {
        return;
    }
    let among = |state: JobState| -> Vec<&str> {
        let runs = job.runs.iter().enumerate().filter(|(_, run)| **run == state);
        runs.filter_map(|(run, _)| job.plan.datacenter(run as u32)).collect()
    };
    info!(
        target: "steadfast::job",
        job_id = &*job.id,
        job = job.plan.name(),
        reason = completion.reason.name(),
        state = state.name(),
        is_success = state == JobState::Succeeded,
        ratio = completion.ratio(),
        datacenters_succeeded = completion.succeeded,
        datacenters = completion.of,
        min_datacenters = best.min_datacenters,
        deadline_ms = best.deadline_ms,
        completed = ?JsonList(&among(JobState::Succeeded)),
        failed = ?JsonList(&among(JobState::Failed)),
        "BestEffortCompletion"
    );
}

pub(super) fn late_result(job: &ObservedJob, run: u32, added: bool) {
    let state = job.runs.get(run as usize).copied().unwrap_or(JobState::Failed);
    info!(
        target: "steadfast::job",
        job_id = &*job.id,
        job = job.plan.name(),
        datacenter = job.plan.datacenter(run),
        state = state.name(),
        added,
        "LateDatacenterResult"
    );
}

pub(super) fn attempt_started(
    job: &ObservedJob,
    item: ItemId,
    attempt: u32,
    token: u64,
    worker: &str,
) {
    debug!(
        target: "steadfast::attempt",
        job_id = &*job.id,
        datacenter = job.plan.datacenter(item.run),
        step = step_name(&job.plan, item.step),
        item = index(&job.plan, item),
        role = role(item),
        attempt,
        token,
        worker,
        "AttemptStarted"
    );
}

/// A service has an attempt, or said too late how it ended.
pub(super) fn callback(job: &ObservedJob, item: ItemId, attempt: u32, event: &str) {
    info!(
        target: "steadfast::attempt",
        job_id = &*job.id,
        datacenter = job.plan.datacenter(item.run),
        step = step_name(&job.plan, item.step),
        item = index(&job.plan, item),
        role = role(item),
        attempt,
        "{event}"
    );
}

/// `outcome` is its name in `status`.
pub(super) fn attempt_ended(
    job: &ObservedJob,
    item: ItemId,
    attempt: u32,
    worker: &str,
    how: (&'static str, Option<&Outcome>),
    took_ms: u64,
) {
    let (name, outcome) = how;
    let (exit_code, signal) = codes(outcome);
    let error = outcome.and_then(error_of);
    macro_rules! ended {
        ($level:ident) => {
            $level!(
                target: "steadfast::attempt",
                job_id = &*job.id,
                datacenter = job.plan.datacenter(item.run),
                step = step_name(&job.plan, item.step),
                item = index(&job.plan, item),
                role = role(item),
                attempt,
                worker,
                outcome = name,
                exit_code,
                signal,
                error,
                took_ms,
                "AttemptEnded"
            )
        };
    }
    match outcome {
        Some(Outcome::Failed(_) | Outcome::Lost { .. }) => ended!(warn),
        Some(Outcome::Succeeded { .. }) | None => ended!(debug),
    }
}

/// A retry that was decided: when, why, and what it was charged to.
pub(super) fn retry_scheduled(job: &ObservedJob, item: ItemId, retry: &Retry, accounts: &Accounts) {
    info!(
        target: "steadfast::attempt",
        job_id = &*job.id,
        datacenter = job.plan.datacenter(item.run),
        step = step_name(&job.plan, item.step),
        item = index(&job.plan, item),
        role = role(item),
        attempt = retry.attempt,
        cause = cause_name(retry.cause),
        delay_ms = retry.delay_ms,
        due_at_ms = retry.due_at_ms,
        failures = accounts.failures,
        max_attempts = accounts.max_attempts,
        preemptions = accounts.preemptions,
        deferrals = accounts.deferrals,
        budget_consumed = accounts.job_budget.map(|_| accounts.job_retries),
        budget_total = accounts.job_budget,
        "RetryScheduled"
    );
}

pub(super) struct Retry {
    pub(super) attempt: u32,
    pub(super) cause: Cause,
    pub(super) delay_ms: u64,
    pub(super) due_at_ms: u64,
}

pub(super) fn item_failed(
    job: &ObservedJob,
    item: ItemId,
    attempt: u32,
    stop: (StopReason, FailedOn, Option<&str>),
    accounts: &Accounts,
) {
    let (reason, on, error) = stop;
    let on = match on {
        FailedOn::Outcome => "outcome",
        FailedOn::Restart => "restart",
        FailedOn::Resume => "resume",
        FailedOn::NoWorker => "no_worker",
    };
    let step = step_name(&job.plan, item.step);
    warn!(
        target: "steadfast::attempt",
        job_id = &*job.id,
        datacenter = job.plan.datacenter(item.run),
        step,
        item = index(&job.plan, item),
        role = role(item),
        attempt,
        reason = reason.name(),
        on,
        error,
        "ItemFailed"
    );
    if (reason, stop.1) == (StopReason::DelayBudgetExhausted, FailedOn::Restart) {
        // The line of Prodigy's document; what it calls a command is an item here.
        let command_id = job.plan.item_name(item);
        debug!(target: "steadfast::attempt", job_id = &*job.id, "Command {command_id} retry budget expired");
    }
    let budget = match reason {
        StopReason::JobBudgetExhausted => "job",
        StopReason::StepBudgetExhausted => "step",
        StopReason::DelayBudgetExhausted => "delay",
        _ => return,
    };
    warn!(
        target: "steadfast::attempt",
        job_id = &*job.id,
        job = job.plan.name(),
        datacenter = job.plan.datacenter(item.run),
        step,
        item = index(&job.plan, item),
        role = role(item),
        attempt,
        budget,
        reason = reason.name(),
        on,
        consumed = accounts.job_retries,
        total_budget = accounts.job_budget,
        step_consumed = accounts.step_retries,
        per_step_max = accounts.step_budget,
        delay_spent_ms = accounts.delay_spent_ms.saturating_add(accounts.downtime_ms),
        delay_budget_ms = accounts.delay_budget_ms,
        error,
        explanation = reason.message_on(stop.1),
        "RetryBudgetExhausted"
    );
}

pub(super) fn step_name(plan: &Plan, step: u32) -> &str {
    plan.steps().get(step as usize).map_or("", |step| &step.name)
}

/// Of a step without `for_each` there is nothing to tell.
pub(super) fn index(plan: &Plan, item: ItemId) -> Option<u32> {
    let once =
        plan.steps().get(item.step as usize).is_some_and(|step| step.for_each == ForEach::Once);
    (!once && item.role == Role::Item).then_some(item.index)
}

pub(super) const fn role(item: ItemId) -> Option<&'static str> {
    match item.role {
        Role::Item => None,
        Role::Fallback => Some("fallback"),
        Role::Compensation => Some("compensation"),
    }
}

/// Exit code and signal, as far as there was one.
pub(super) fn codes(outcome: Option<&Outcome>) -> (Option<u8>, Option<u8>) {
    match outcome {
        Some(Outcome::Failed(failure)) => match failure.kind {
            FailureKind::Exited(code) => (Some(code), None),
            FailureKind::Signalled(signal) => (None, Some(signal)),
            _ => (None, None),
        },
        _ => (None, None),
    }
}

pub(super) fn error_of(outcome: &Outcome) -> Option<String> {
    outcome.error()
}
