//! The status of a job in the words of gRPC, which are Fluster's: attempts from 0, no nulls.

use serde_json::Value;
use steadfast_core::event::{JobState, StepState};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;

use crate::{AttemptState, AttemptStatus, ItemState, ItemStatus, JobStatus, ShownState, proto};

/// Clients take 4 MiB for a message unless they are told otherwise: with an output of 1 MiB beside it
/// this fits.
const STATUS_JSON_BYTES: usize = 2 << 20;

/// Without what only the job's items tell: why it failed.
pub const fn wire_state(state: ShownState) -> proto::JobState {
    let ShownState::Of(state) = state else { return proto::JobState::Pending };
    match state {
        JobState::Pending => proto::JobState::Pending,
        JobState::Running => proto::JobState::Running,
        JobState::Paused => proto::JobState::Paused,
        JobState::Succeeded => proto::JobState::Succeeded,
        JobState::Partial => proto::JobState::Partial,
        JobState::Failed => proto::JobState::Failed,
        JobState::Cancelled => proto::JobState::Killed,
    }
}

impl From<&JobStatus> for proto::JobStatus {
    fn from(status: &JobStatus) -> Self {
        let first = status.runs.first().and_then(|run| run.steps.0.first());
        let first = first.and_then(|(_, step)| step.items.first());
        let failed = failed_item(status);
        let stop = failed.and_then(|item| item.reason);
        let reason = stop.map(StopReason::name).or_else(|| match status.state {
            ShownState::Of(JobState::Failed | JobState::Cancelled) => {
                status.completion.as_ref().map(|completion| completion.reason.name())
            }
            _ => None,
        });
        let state = match (status.state, stop) {
            (ShownState::Of(JobState::Failed), Some(StopReason::PreemptionsExhausted)) => {
                proto::JobState::WorkerFailed
            }
            (ShownState::Of(JobState::Failed), Some(StopReason::Unschedulable)) => {
                proto::JobState::Unschedulable
            }
            // What only waits is pending there, however often it has run.
            (ShownState::Of(JobState::Running), _) if !runs(status) => proto::JobState::Pending,
            (state, _) => wire_state(state),
        };
        let last = first.and_then(|item| item.attempts.last());
        let running = last.filter(|attempt| attempt.finished_at_ms.is_none());
        let items = status.runs.iter().flat_map(|run| &run.steps.0);
        let items = items.flat_map(|(_, step)| &step.items);
        let retry_at = items.filter_map(|item| item.retry_available_at_ms).min();
        let limits = status.totals.limits;
        let retries = |most: Option<u32>| most.map_or(i32::MAX, count);
        let status_json = status_json(status);
        Self {
            job_id: status.id.clone(),
            state: state.into(),
            name: status.name.clone(),
            exit_code: last.and_then(exit_code),
            error: failed.or(first).and_then(|item| error(status, item)).unwrap_or_default(),
            reason: reason.unwrap_or_default().to_owned(),
            submitted_at_ms: ms(Some(status.submitted_at_ms)),
            started_at_ms: ms(status.totals.started_at),
            finished_at_ms: ms(status.finished_at_ms),
            worker_id: running.map(|attempt| attempt.worker.to_string()).unwrap_or_default(),
            failure_count: count(status.totals.failures),
            preemption_count: count(status.totals.losses),
            current_attempt_id: last.map_or(0, |attempt| from_zero(attempt.attempt)),
            attempts: first
                .map(|item| item.attempts.iter().map(attempt).collect())
                .unwrap_or_default(),
            output_json: first
                .and_then(|item| item.output.as_ref())
                .map(Value::to_string)
                .unwrap_or_default(),
            status_json,
            max_retries_failure: retries(limits.failures),
            max_retries_preemption: retries(limits.losses),
            retry_available_at_ms: ms(retry_at),
        }
    }
}

/// The result says again what items gave: of a large one that goes first.
fn status_json(status: &JobStatus) -> String {
    let fits = |text: &String| text.len() <= STATUS_JSON_BYTES;
    let whole = serde_json::to_string(status).ok().filter(fits);
    let smaller = || {
        let without = JobStatus { result: None, ..status.clone() };
        serde_json::to_string(&without).ok().filter(fits)
    };
    whole.or_else(smaller).unwrap_or_default()
}

/// The item that failed its step, and with it the job.
fn failed_item(status: &JobStatus) -> Option<&ItemStatus> {
    if status.state != JobState::Failed {
        return None;
    }
    let runs = status.runs.iter().filter(|run| run.state == JobState::Failed);
    let steps = runs.flat_map(|run| &run.steps.0).map(|(_, step)| step);
    let steps = steps.filter(|step| step.state == StepState::Failed);
    steps.flat_map(|step| &step.items).find(|item| item.state == ItemState::Failed)
}

/// The last thing that went wrong, unless all is well now.
fn error(status: &JobStatus, item: &ItemStatus) -> Option<String> {
    if status.state == JobState::Succeeded || item.state == ItemState::Succeeded {
        return None;
    }
    let ended = item.attempts.iter().rev().find(|attempt| attempt.finished_at_ms.is_some());
    ended.and_then(|attempt| attempt.error.clone()).or_else(|| item.last_error.clone())
}

/// Some attempt is under way: at a worker, or at a service that has taken it.
fn runs(status: &JobStatus) -> bool {
    let mut steps = status.runs.iter().flat_map(|run| &run.steps.0).map(|(_, step)| step);
    steps.any(|step| {
        let auxiliary = step.fallback.iter().chain(&step.compensation).map(|item| item.state);
        step.counts.keys().copied().chain(auxiliary).any(ItemState::is_under_way)
    })
}

/// As a shell tells it: death by signal N is 128 + N.
fn exit_code(view: &AttemptStatus) -> Option<i32> {
    let killed = view.signal.map(|signal| 128 + i32::from(signal));
    view.exit_code.map(i32::from).or(killed)
}

const fn attempt_state(state: AttemptState) -> proto::JobState {
    match state {
        AttemptState::Running => proto::JobState::Running,
        AttemptState::Succeeded => proto::JobState::Succeeded,
        AttemptState::WorkerLost => proto::JobState::WorkerFailed,
        AttemptState::Killed => proto::JobState::Killed,
        AttemptState::Failed | AttemptState::NotCompleted | AttemptState::TimedOut => {
            proto::JobState::Failed
        }
    }
}

fn attempt(view: &AttemptStatus) -> proto::JobAttempt {
    proto::JobAttempt {
        attempt_id: from_zero(view.attempt),
        worker_id: view.worker.to_string(),
        state: attempt_state(view.state).into(),
        outcome: view.state.to_string(),
        exit_code: exit_code(view),
        signal: view.signal.map(i32::from),
        error: view.error.clone().unwrap_or_default(),
        started_at_ms: ms(Some(view.started_at_ms)),
        finished_at_ms: ms(view.finished_at_ms),
        is_worker_failure: view.is_worker_failure,
    }
}

fn from_zero(attempt: u32) -> i32 {
    count(attempt.saturating_sub(1))
}

fn count(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn ms(at: Option<Timestamp>) -> i64 {
    at.map_or(0, |at| i64::try_from(at.0).unwrap_or(i64::MAX))
}
