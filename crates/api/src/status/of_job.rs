//! The status of a job, made of its state and of what its log tells of its attempts.

use std::collections::BTreeMap;

use steadfast_core::event::{ItemId, Requester, Role, StepFailure, StepState};
use steadfast_core::job::{AuxiliaryItem, Job, Phase, StepRun};
use steadfast_core::plan::Plan;
use steadfast_core::result::{OrderedMap, ShownOutputs};
use steadfast_core::time::Timestamp;

use super::{
    Attempts, BestEffortStatus, CompletionStatus, ItemProgress, ItemState, ItemStatus, JobStatus,
    MinDatacenters, RequestInfo, RetryBudgetStatus, RetryLimits, RunStatus, SHOWN, StepStatus,
    Totals,
};

impl JobStatus {
    pub fn new(job: &Job, attempts: &Attempts) -> Self {
        let mut shown = Shown::default();
        let runs = (0..job.runs.len() as u32).map(|run| RunStatus {
            datacenter: job.plan.datacenter(run).map(str::to_owned),
            state: job.run_state(run),
            late: job.runs[run as usize].late,
            steps: OrderedMap(
                (0..job.plan.steps().len() as u32)
                    .map(|step| {
                        let view = StepStatus::new(job, attempts, &mut shown, run, step);
                        (job.plan.step(step).name.clone(), view)
                    })
                    .collect(),
            ),
        });
        Self {
            id: job.id.to_string(),
            name: job.plan.name().to_owned(),
            state: job.state().into(),
            submitted_at_ms: job.accepted_at,
            finished_at_ms: job.finished_at,
            completion: job.completion.map(|completion| CompletionStatus {
                reason: completion.reason,
                ratio: completion.ratio(),
            }),
            retried_from: job.retried_from.as_ref().map(ToString::to_string),
            retry_budget: job.plan.budget().map(|budget| RetryBudgetStatus {
                total: budget.total,
                per_step: budget.per_step,
                ratio: budget.ratio.map(|ratio| ratio.ratio),
                counts: budget.counts,
                used: job.retries,
            }),
            best_effort: job.plan.best_effort().map(|best| BestEffortStatus {
                min_datacenters: MinDatacenters {
                    requested: best.min_requested,
                    effective: best.min_datacenters,
                },
                deadline_ms: best.deadline_ms,
                deadline_at_ms: job.deadline_at(),
                grace_ms: best.grace_ms,
                late_results: best.late_results,
            }),
            cancel_request: (job.cancel.as_ref())
                .map(|cancel| RequestInfo::new(cancel.at, &cancel.requested)),
            pause_request: job.paused_at.map(|at| RequestInfo::new(at, &job.paused_by)),
            retry_request: (job.retried_from.as_ref())
                .map(|_| RequestInfo::new(job.accepted_at, &job.retried_by)),
            result: job.result(),
            reason: None,
            runs: runs.collect(),
            totals: Totals { limits: limits(&job.plan), ..attempts.totals },
            local: job.source.is_some(),
        }
    }
}

/// Room for outputs, and for the values of items.
#[derive(Default)]
pub(super) struct Shown {
    outputs: ShownOutputs,
    values: ShownOutputs,
}

impl StepStatus {
    fn new(job: &Job, attempts: &Attempts, shown: &mut Shown, run: u32, step: u32) -> Self {
        let state = &job.runs[run as usize].steps[step as usize];
        let mut item =
            |role, index| ItemStatus::new(job, attempts, shown, ItemId { run, step, role, index });
        Self {
            state: state.state,
            counts: counts(state),
            retries_used: job.step_retries[step as usize],
            skipped_because: state.because.map(|because| job.plan.step(because).name.clone()),
            error: match &state.failure {
                Some(StepFailure::FanOut(error)) => Some(error.clone()),
                _ => None,
            },
            items: (0..state.items.min(SHOWN as u32)).map(|i| item(Role::Item, i)).collect(),
            fallback: state.fallback.as_ref().map(|_| item(Role::Fallback, 0)),
            compensation: state.compensation.as_ref().map(|_| item(Role::Compensation, 0)),
        }
    }
}

/// All items of a step, by their state.
pub(super) fn counts(state: &StepRun) -> BTreeMap<ItemState, u32> {
    let mut counts = BTreeMap::new();
    let mut count = |state: ItemState, n: u32| {
        if n > 0 {
            *counts.entry(state).or_default() += n;
        }
    };
    count(ItemState::Succeeded, state.succeeded.len());
    count(ItemState::Failed, state.failed.len() as u32);
    count(ItemState::Skipped, state.skipped);
    count(ItemState::Cancelled, state.cancelled);
    for live in state.live.values() {
        count(live.phase.into(), 1);
    }
    let untouched = state.open_items().saturating_sub(state.live.len() as u32);
    let waits = state.state == StepState::Waiting;
    count(if waits { ItemState::Waiting } else { ItemState::Ready }, untouched);
    counts
}

impl From<Phase> for ItemState {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Ready => Self::Ready,
            Phase::Running => Self::Running,
            Phase::AwaitingCallback => Self::AwaitingCallback,
            Phase::BackingOff { .. } => Self::BackingOff,
        }
    }
}

impl ItemStatus {
    pub(super) fn new(job: &Job, attempts: &Attempts, shown: &mut Shown, id: ItemId) -> Self {
        let step = &job.runs[id.run as usize].steps[id.step as usize];
        let history = attempts.items.get(&id);
        let live = job.live(id);
        let retry_available_at_ms = match live.map(|live| live.phase) {
            Some(Phase::BackingOff { due_at, .. }) => Some(due_at),
            _ => None,
        };
        let accounts = history.and_then(|history| history.accounts);
        let is_item = id.role == Role::Item;
        let value = job.item_value(id).filter(|_| is_item);
        let value_left_out = value.as_ref().is_some_and(|value| !shown.values.has_room_for(value));
        let output = step.outputs.get(&id.index).filter(|_| is_item);
        let output_left_out = output.is_some_and(|output| !shown.outputs.has_room_for(output));
        Self {
            index: id.index,
            value: value.filter(|_| !value_left_out),
            state: item_state(job, id),
            failures: accounts.map_or(0, |accounts| accounts.failures),
            preemptions: accounts.map_or(0, |accounts| accounts.preemptions),
            delay_spent_ms: accounts.map_or(0, |accounts| accounts.delay_spent_ms),
            retry_available_at_ms,
            last_error: history.and_then(|history| history.last_error.clone()),
            reason: history.and_then(|history| history.reason),
            output: output.filter(|_| !output_left_out).cloned(),
            output_left_out,
            value_left_out,
            progress: live.and_then(|live| live.progress.as_ref()).map(|progress| ItemProgress {
                attempt: progress.attempt,
                at_ms: progress.at,
                said: progress.said.clone(),
            }),
            attempts: history.map_or(vec![], |history| history.attempts.iter().cloned().collect()),
        }
    }
}

pub(super) fn item_state(job: &Job, id: ItemId) -> ItemState {
    if let Some(live) = job.live(id) {
        return live.phase.into();
    }
    let step = &job.runs[id.run as usize].steps[id.step as usize];
    let auxiliary = match id.role {
        Role::Item => None,
        Role::Fallback => step.fallback.as_ref(),
        Role::Compensation => step.compensation.as_ref(),
    };
    match auxiliary {
        Some(AuxiliaryItem::Succeeded) => return ItemState::Succeeded,
        Some(AuxiliaryItem::Failed(_)) => return ItemState::Failed,
        Some(AuxiliaryItem::Cancelled | AuxiliaryItem::Live(_)) => return ItemState::Cancelled,
        None => {}
    }
    if step.succeeded.contains(id.index) {
        ItemState::Succeeded
    } else if step.failed.contains_key(&id.index) {
        ItemState::Failed
    } else {
        match step.state {
            StepState::Waiting => ItemState::Waiting,
            StepState::Running if !step.failing() => ItemState::Ready,
            StepState::Cancelled => ItemState::Cancelled,
            _ if step.cancelled > 0 => ItemState::Cancelled,
            _ => ItemState::Skipped,
        }
    }
}

/// What the first step may retry after failures and after losses.
fn limits(plan: &Plan) -> RetryLimits {
    let Some(step) = plan.steps().first() else {
        return RetryLimits { failures: Some(0), losses: Some(0) };
    };
    let policy = step.policy.draft();
    let failures = policy.max_attempts.map(|attempts| attempts.saturating_sub(1));
    let never_lost = !policy.retryable && !policy.max_preemptions_written;
    RetryLimits {
        failures: if policy.retryable { failures } else { Some(0) },
        losses: if never_lost { Some(0) } else { policy.max_preemptions },
    }
}

impl RequestInfo {
    fn new(at: Timestamp, requested: &Requester) -> Self {
        let Requester { by, reason } = requested.clone();
        Self { at_ms: at, by, reason }
    }
}
