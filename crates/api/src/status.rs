//! The status of a job, as `status -o json` and `GET /v1/jobs/{id}` show it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use steadfast_core::account::{Accounts, Charges};
use steadfast_core::event::{
    Event, FailedOn, ItemId, JobState, RecordedEvent, Requester, Role, StepState,
};
use steadfast_core::job::{Job, Phase};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{Action, Allowance, BudgetCounts, LateResults, Plan};
use steadfast_core::result::{JobResult, OrderedMap, ShownOutputs};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;

use crate::ShownState;

/// Of a large fan-out the first so many items are shown, and of an item the last so many attempts.
const SHOWN: usize = 100;

#[derive(Clone, Debug, Serialize)]
pub struct JobStatus {
    pub id: String,
    pub name: String,
    pub state: ShownState,
    pub submitted_at_ms: Timestamp,
    pub finished_at_ms: Option<Timestamp>,
    pub completion: Option<CompletionView>,
    pub retried_from: Option<String>,
    pub retry_budget: Option<BudgetView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_effort: Option<BestEffortView>,
    /// Who cancelled it, or what was left of it after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_request: Option<RequestView>,
    /// Who paused it, while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_request: Option<RequestView>,
    /// Who asked for it, if it is the retry of another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_request: Option<RequestView>,
    /// Once it has ended: what the runs that count gave.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    pub runs: Vec<RunView>,
    #[serde(skip)]
    pub totals: Totals,
    #[serde(skip)]
    pub plan: Arc<Plan>,
    /// Begun by `run`.
    #[serde(skip)]
    pub local: bool,
}

/// Over all items, also those that are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub failures: u32,
    /// Of workers: all that were survived, and those that were one too many.
    pub losses: u32,
    /// When the first attempt of all began.
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Serialize)]
pub struct CompletionView {
    pub reason: &'static str,
    pub ratio: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct BudgetView {
    pub total: Option<Allowance>,
    pub per_step: Option<Allowance>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    pub counts: BudgetCounts,
    pub used: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct BestEffortView {
    pub min_datacenters: MinDatacenters,
    pub deadline_ms: u64,
    pub deadline_at_ms: Option<Timestamp>,
    pub grace_ms: u64,
    pub late_results: LateResults,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct MinDatacenters {
    /// None: the job left it to the operator.
    pub requested: Option<u32>,
    pub effective: u32,
}

/// Who asked for something, and why; null where that is not known.
#[derive(Clone, Debug, Serialize)]
pub struct RequestView {
    pub at_ms: Timestamp,
    pub by: Option<Arc<str>>,
    pub reason: Option<Arc<str>>,
}

impl RequestView {
    fn new(at: Timestamp, requested: &Requester) -> Self {
        let Requester { by, reason } = requested.clone();
        Self { at_ms: at, by, reason }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    pub datacenter: Option<String>,
    pub state: JobState,
    /// It ended after the job had.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    pub steps: OrderedMap<StepView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepView {
    pub state: StepState,
    pub counts: BTreeMap<&'static str, u32>,
    /// Of the job's budget, by this step in all datacenters together, as its share is counted.
    pub retries_used: u32,
    /// The step that failed, and without which this one cannot be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub items: Vec<ItemView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<ItemView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compensation: Option<ItemView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ItemView {
    pub index: u32,
    pub value: Option<Value>,
    pub state: &'static str,
    pub failures: u32,
    pub preemptions: u32,
    pub delay_spent_ms: u64,
    pub retry_available_at_ms: Option<Timestamp>,
    pub last_error: Option<String>,
    pub reason: Option<&'static str>,
    pub output: Option<Value>,
    /// It gave one that is not shown, because all of them together would be too large.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub output_left_out: bool,
    /// Likewise of its value.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub value_left_out: bool,
    /// What its attempts said last about how far they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressView>,
    pub attempts: VecDeque<AttemptView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ProgressView {
    pub attempt: u32,
    pub at_ms: Timestamp,
    pub said: Arc<Value>,
}

#[derive(Clone, Debug, Serialize)]
pub struct AttemptView {
    pub attempt: u32,
    pub worker: Arc<str>,
    pub state: &'static str,
    pub exit_code: Option<u8>,
    pub signal: Option<u8>,
    pub error: Option<String>,
    pub started_at_ms: Timestamp,
    pub finished_at_ms: Option<Timestamp>,
    pub is_worker_failure: bool,
}

impl AttemptView {
    pub fn started(attempt: u32, worker: Arc<str>, at: Timestamp) -> Self {
        Self {
            attempt,
            worker,
            state: "running",
            exit_code: None,
            signal: None,
            error: None,
            started_at_ms: at,
            finished_at_ms: None,
            is_worker_failure: false,
        }
    }

    /// `process`: see [`is_process`].
    pub fn ended(&mut self, outcome: &Outcome, process: bool, at: Timestamp) {
        self.finished_at_ms = Some(at);
        match outcome {
            Outcome::Succeeded { .. } => {
                self.state = "succeeded";
                self.exit_code = process.then_some(0);
            }
            Outcome::Lost { .. } => {
                self.state = "worker_lost";
                self.is_worker_failure = true;
                self.error = outcome.error();
            }
            Outcome::Failed(failure) => {
                self.error = Some(failure.describe());
                self.state = match failure.kind {
                    FailureKind::TimedOut => "timed_out",
                    FailureKind::NotCompleted => "not_completed",
                    _ => "failed",
                };
                match failure.kind {
                    FailureKind::Exited(code) => self.exit_code = Some(code),
                    FailureKind::Signalled(signal) => self.signal = Some(signal),
                    _ => {}
                }
            }
        }
    }

    /// It was cut off.
    pub fn killed(&mut self, at: Timestamp) {
        self.finished_at_ms = Some(at);
        self.state = "killed";
    }
}

/// Whether an item is run as a process, which ends with an exit code.
pub fn is_process(plan: &Plan, item: ItemId) -> bool {
    let step = plan.step(item.step);
    let action = match item.role {
        Role::Item => Some(&step.action),
        Role::Fallback => step.on_failure.as_ref().and_then(|then| then.action.as_ref()),
        Role::Compensation => step.compensate.as_ref(),
    };
    matches!(action, Some(Action::Run(_) | Action::Argv(_)))
}

/// What the log tells of the items that are shown.
#[derive(Clone, Debug, Default)]
pub struct Attempts {
    plan: Option<Arc<Plan>>,
    items: BTreeMap<ItemId, ItemHistory>,
    totals: Totals,
    /// The attempt that ended last was lost; its verdict is the next event. Whether it had started.
    lost: Option<bool>,
}

#[derive(Clone, Debug, Default)]
struct ItemHistory {
    attempts: VecDeque<AttemptView>,
    accounts: Option<Accounts>,
    last_error: Option<String>,
    reason: Option<&'static str>,
}

impl Attempts {
    /// Takes the next event of the log.
    pub fn add(&mut self, record: &RecordedEvent) {
        match &record.event {
            Event::JobAccepted(accepted) => {
                self.plan = Some(accepted.plan.clone());
                for (_, failures) in accepted.kept.iter().flat_map(|kept| &kept.failures) {
                    self.charge(Charges { failures: *failures, ..Charges::default() });
                }
            }
            Event::AttemptStarted { item, attempt, worker, .. } => {
                self.totals.started_at.get_or_insert(record.at);
                let Some(told) = self.told(*item) else { return };
                if told.attempts.len() == SHOWN {
                    told.attempts.pop_front();
                }
                told.attempts.push_back(AttemptView::started(*attempt, worker.clone(), record.at));
            }
            Event::AttemptEnded { item, outcome, .. } => {
                self.lost = match outcome {
                    Outcome::Lost { started, .. } => Some(*started),
                    _ => None,
                };
                let process = self.plan.as_ref().is_some_and(|plan| is_process(plan, *item));
                let Some(told) = self.told(*item) else { return };
                let Some(view) = told.attempts.back_mut() else { return };
                view.ended(outcome, process, record.at);
                if matches!(outcome, Outcome::Failed(_)) {
                    told.last_error.clone_from(&view.error);
                }
            }
            Event::ItemSucceeded { item, accounts, .. } => {
                if let Some(told) = self.told(*item) {
                    told.accounts = Some(*accounts);
                }
            }
            Event::RetryScheduled { item, accounts, charged, .. } => {
                self.charge(*charged);
                if let Some(told) = self.told(*item) {
                    told.accounts = Some(*accounts);
                }
            }
            Event::ItemFailed { item, on, accounts, charged, reason, .. } => {
                self.charge(*charged);
                // The loss that was one too many is charged to nothing.
                let halted =
                    [StopReason::Cancelled, StopReason::StepFailed, StopReason::JobTimedOut];
                let lost = self.lost.take().filter(|_| *on == FailedOn::Outcome);
                if lost.is_some_and(|started| started || !halted.contains(reason)) {
                    self.totals.losses = self.totals.losses.saturating_add(1);
                }
                if let Some(told) = self.told(*item) {
                    told.accounts = Some(*accounts);
                    told.reason = Some(reason.name());
                }
            }
            Event::RunFailing { run, .. } | Event::RunEnded { run, .. } => {
                self.killed(*run, record.at);
            }
            _ => {}
        }
    }

    fn charge(&mut self, charged: Charges) {
        self.totals.failures = self.totals.failures.saturating_add(charged.failures);
        self.totals.losses = self.totals.losses.saturating_add(charged.preemptions);
    }

    fn told(&mut self, item: ItemId) -> Option<&mut ItemHistory> {
        ((item.index as usize) < SHOWN).then(|| self.items.entry(item).or_default())
    }

    /// Attempts that were cut off.
    fn killed(&mut self, run: u32, at: Timestamp) {
        let of_run = self.items.iter_mut().filter(|(item, _)| item.run == run);
        for view in of_run.flat_map(|(_, told)| &mut told.attempts) {
            if view.finished_at_ms.is_none() {
                view.killed(at);
            }
        }
    }
}

impl JobStatus {
    pub fn new(job: &Job, attempts: &Attempts) -> Self {
        let mut shown = Shown::default();
        let runs = (0..job.runs.len() as u32).map(|run| RunView {
            datacenter: job.plan.datacenter(run).map(str::to_owned),
            state: job.run_state(run),
            late: job.runs[run as usize].late,
            steps: OrderedMap(
                (0..job.plan.steps().len() as u32)
                    .map(|step| {
                        let view = StepView::new(job, attempts, &mut shown, run, step);
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
            completion: job.completion.map(|completion| CompletionView {
                reason: completion.reason.name(),
                ratio: completion.ratio(),
            }),
            retried_from: job.retried_from.as_ref().map(ToString::to_string),
            retry_budget: job.plan.budget().map(|budget| BudgetView {
                total: budget.total,
                per_step: budget.per_step,
                ratio: budget.ratio.map(|ratio| ratio.ratio),
                counts: budget.counts,
                used: job.retries,
            }),
            best_effort: job.plan.best_effort().map(|best| BestEffortView {
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
                .map(|cancel| RequestView::new(cancel.at, &cancel.requested)),
            pause_request: job.paused_at.map(|at| RequestView::new(at, &job.paused_by)),
            retry_request: (job.retried_from.as_ref())
                .map(|_| RequestView::new(job.accepted_at, &job.retried_by)),
            result: job.result(),
            runs: runs.collect(),
            totals: attempts.totals,
            plan: job.plan.clone(),
            local: job.source.is_some(),
        }
    }

    /// As it is shown when nobody runs it: a job of `run` is interrupted then.
    #[must_use]
    pub fn without_a_process(mut self) -> Self {
        if let ShownState::Of(state) = self.state {
            self.state = ShownState::new(state, self.local, false);
        }
        self
    }
}

/// Room for outputs, and for the values of items.
#[derive(Default)]
struct Shown {
    outputs: ShownOutputs,
    values: ShownOutputs,
}

impl StepView {
    fn new(job: &Job, attempts: &Attempts, shown: &mut Shown, run: u32, step: u32) -> Self {
        let state = &job.runs[run as usize].steps[step as usize];
        let mut item =
            |role, index| ItemView::new(job, attempts, shown, ItemId { run, step, role, index });
        let mut counts = BTreeMap::new();
        let mut count = |name, n: u32| {
            if n > 0 {
                *counts.entry(name).or_default() += n;
            }
        };
        count("succeeded", state.succeeded.len());
        count("failed", state.failed.len() as u32);
        count("skipped", state.skipped);
        count("cancelled", state.cancelled);
        for live in state.live.values() {
            count(phase_name(live.phase), 1);
        }
        let untouched = state.open_items().saturating_sub(state.live.len() as u32);
        count(if state.state == StepState::Waiting { "waiting" } else { "ready" }, untouched);
        Self {
            state: state.state,
            counts,
            retries_used: job.step_retries[step as usize],
            skipped_because: state.because.map(|because| job.plan.step(because).name.clone()),
            error: match &state.failure {
                Some(steadfast_core::event::StepFailure::FanOut(error)) => Some(error.clone()),
                _ => None,
            },
            items: (0..state.items.min(SHOWN as u32)).map(|i| item(Role::Item, i)).collect(),
            fallback: state.fallback.as_ref().map(|_| item(Role::Fallback, 0)),
            compensation: state.compensation.as_ref().map(|_| item(Role::Compensation, 0)),
        }
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Ready => "ready",
        Phase::Running => "running",
        Phase::AwaitingCallback => "awaiting_callback",
        Phase::BackingOff { .. } => "backing_off",
    }
}

impl ItemView {
    fn new(job: &Job, attempts: &Attempts, shown: &mut Shown, id: ItemId) -> Self {
        let step = &job.runs[id.run as usize].steps[id.step as usize];
        let told = attempts.items.get(&id);
        let live = job.live(id);
        let retry_available_at_ms = match live.map(|live| live.phase) {
            Some(Phase::BackingOff { due_at, .. }) => Some(due_at),
            _ => None,
        };
        let accounts = told.and_then(|told| told.accounts);
        let is_item = id.role == Role::Item;
        let value = job.item_value(id).filter(|_| is_item);
        let value_left_out = value.as_ref().is_some_and(|value| !shown.values.has_room_for(value));
        let output = step.outputs.get(&id.index).filter(|_| is_item);
        let output_left_out = output.is_some_and(|output| !shown.outputs.has_room_for(output));
        Self {
            index: id.index,
            value: value.filter(|_| !value_left_out),
            state: state_name(job, id),
            failures: accounts.map_or(0, |accounts| accounts.failures),
            preemptions: accounts.map_or(0, |accounts| accounts.preemptions),
            delay_spent_ms: accounts.map_or(0, |accounts| accounts.delay_spent_ms),
            retry_available_at_ms,
            last_error: told.and_then(|told| told.last_error.clone()),
            reason: told.and_then(|told| told.reason),
            output: output.filter(|_| !output_left_out).cloned(),
            output_left_out,
            value_left_out,
            progress: live.and_then(|live| live.progress.as_ref()).map(|progress| ProgressView {
                attempt: progress.attempt,
                at_ms: progress.at,
                said: progress.said.clone(),
            }),
            attempts: told.map(|told| told.attempts.clone()).unwrap_or_default(),
        }
    }
}

fn state_name(job: &Job, id: ItemId) -> &'static str {
    use steadfast_core::job::AuxiliaryItem;
    if let Some(live) = job.live(id) {
        return phase_name(live.phase);
    }
    let step = &job.runs[id.run as usize].steps[id.step as usize];
    let aside = match id.role {
        Role::Item => None,
        Role::Fallback => step.fallback.as_ref(),
        Role::Compensation => step.compensation.as_ref(),
    };
    match aside {
        Some(AuxiliaryItem::Succeeded) => return "succeeded",
        Some(AuxiliaryItem::Failed(_)) => return "failed",
        Some(AuxiliaryItem::Cancelled | AuxiliaryItem::Live(_)) => return "cancelled",
        None => {}
    }
    if step.succeeded.contains(id.index) {
        "succeeded"
    } else if step.failed.contains_key(&id.index) {
        "failed"
    } else {
        match step.state {
            StepState::Waiting => "waiting",
            StepState::Running if !step.failing() => "ready",
            StepState::Cancelled => "cancelled",
            _ if step.cancelled > 0 => "cancelled",
            _ => "skipped",
        }
    }
}
