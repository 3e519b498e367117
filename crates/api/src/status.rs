//! The status of a job: what `status -o json` prints, `GET /v1/jobs/{id}` answers, and clients read. The server, the
//! command line and the Rust library have these types and no others.

mod attempts;
mod items;
mod of_job;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use steadfast_core::event::{CompletionReason, ItemId, JobState, Role, StepState};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{Action, Allowance, BudgetCounts, LateResults, Plan};
use steadfast_core::result::{JobResult, OrderedMap};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;

use crate::ShownState;

pub use attempts::Attempts;
pub use items::{ItemRow, ItemsPage, NoSuchPlace};

/// Of a step the first `SHOWN` items are in a status, and of an item the last `SHOWN` attempts.
const SHOWN: usize = 100;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct JobStatus {
    pub id: String,
    pub name: String,
    pub state: ShownState,
    pub submitted_at_ms: Timestamp,
    pub finished_at_ms: Option<Timestamp>,
    pub completion: Option<CompletionStatus>,
    pub retried_from: Option<String>,
    pub retry_budget: Option<RetryBudgetStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort: Option<BestEffortStatus>,
    /// Who cancelled it, or what was left of it after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_request: Option<RequestInfo>,
    /// Who paused it, while it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_request: Option<RequestInfo>,
    /// Who asked for it, if it is the retry of another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_request: Option<RequestInfo>,
    /// Once it has ended: what the runs that count gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<JobResult>,
    /// Of a job that is stuck: what is wrong with what is stored of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub runs: Vec<RunStatus>,
    /// For gRPC, whose status says them; not part of the JSON.
    #[serde(skip)]
    pub totals: Totals,
    /// Begun by `run`. Not part of the JSON.
    #[serde(skip)]
    pub local: bool,
}

impl JobStatus {
    /// Of a job of which no log can be read; `why` says what is wrong with it.
    pub fn stuck(
        id: &str,
        name: String,
        submitted_at: Timestamp,
        finished_at: Option<Timestamp>,
        why: String,
    ) -> Self {
        Self {
            id: id.to_owned(),
            name,
            state: ShownState::Stuck,
            submitted_at_ms: submitted_at,
            finished_at_ms: finished_at,
            completion: None,
            retried_from: None,
            retry_budget: None,
            best_effort: None,
            cancel_request: None,
            pause_request: None,
            retry_request: None,
            result: None,
            reason: Some(why),
            runs: vec![],
            totals: Totals::default(),
            local: false,
        }
    }

    /// Nothing of it goes on any more; after a best-effort completion something may.
    pub fn is_over(&self) -> bool {
        self.state.is_terminal() && self.runs.iter().all(|run| run.state.is_terminal())
    }

    /// As it is shown when no process runs it: a job of `run` is interrupted then.
    #[must_use]
    pub fn without_a_process(mut self) -> Self {
        if let ShownState::Of(state) = self.state {
            self.state = ShownState::new(state, self.local, false);
        }
        self
    }
}

/// Over all items, also those that are not shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub failures: u32,
    /// Of workers: all that were survived, and those that were one too many.
    pub losses: u32,
    /// When the first attempt of all began.
    pub started_at: Option<Timestamp>,
    /// The plan has them.
    #[serde(skip)]
    pub limits: RetryLimits,
}

/// What the first step may retry; None: without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryLimits {
    pub failures: Option<u32>,
    pub losses: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CompletionStatus {
    pub reason: CompletionReason,
    pub ratio: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RetryBudgetStatus {
    pub total: Option<Allowance>,
    pub per_step: Option<Allowance>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    pub counts: BudgetCounts,
    pub used: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BestEffortStatus {
    pub min_datacenters: MinDatacenters,
    pub deadline_ms: u64,
    pub deadline_at_ms: Option<Timestamp>,
    pub grace_ms: u64,
    pub late_results: LateResults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MinDatacenters {
    /// None: the job left it to the operator.
    pub requested: Option<u32>,
    pub effective: u32,
}

/// Who asked for something, and why; null where that is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RequestInfo {
    pub at_ms: Timestamp,
    pub by: Option<Arc<str>>,
    pub reason: Option<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RunStatus {
    pub datacenter: Option<String>,
    pub state: JobState,
    /// It ended after the job had.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// In the order of the job file.
    pub steps: OrderedMap<StepStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StepStatus {
    pub state: StepState,
    /// All its items, by their state.
    pub counts: BTreeMap<ItemState, u32>,
    /// Of the job's budget, by this step in all datacenters together, as its share is counted.
    pub retries_used: u32,
    /// The step that failed, and without which this one cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped_because: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The first 100.
    pub items: Vec<ItemStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<ItemStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<ItemStatus>,
}

impl StepStatus {
    pub fn count(&self, state: ItemState) -> u32 {
        self.counts.get(&state).copied().unwrap_or(0)
    }
}

/// In the order of their names, as the counts of a step are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ItemState {
    AwaitingCallback,
    BackingOff,
    Cancelled,
    Failed,
    Ready,
    Running,
    Skipped,
    Succeeded,
    Waiting,
}

impl ItemState {
    pub const ALL: [Self; 9] = [
        Self::AwaitingCallback,
        Self::BackingOff,
        Self::Cancelled,
        Self::Failed,
        Self::Ready,
        Self::Running,
        Self::Skipped,
        Self::Succeeded,
        Self::Waiting,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::AwaitingCallback => "awaiting_callback",
            Self::BackingOff => "backing_off",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Skipped => "skipped",
            Self::Succeeded => "succeeded",
            Self::Waiting => "waiting",
        }
    }

    /// An attempt of it is at a worker, or at a service that has taken it.
    pub const fn is_under_way(self) -> bool {
        matches!(self, Self::Running | Self::AwaitingCallback)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ItemStatus {
    pub index: u32,
    /// The element of `for_each`.
    pub value: Option<Value>,
    pub state: ItemState,
    pub failures: u32,
    pub preemptions: u32,
    pub delay_spent_ms: u64,
    pub retry_available_at_ms: Option<Timestamp>,
    pub last_error: Option<String>,
    /// Why it was not tried again.
    pub reason: Option<StopReason>,
    pub output: Option<Value>,
    /// It gave one that is not shown, because all of them together would be too large.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub output_left_out: bool,
    /// Likewise of its value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub value_left_out: bool,
    /// What its attempts said last about how far they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<ItemProgress>,
    /// The last 100.
    pub attempts: Vec<AttemptStatus>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ItemProgress {
    pub attempt: u32,
    pub at_ms: Timestamp,
    pub said: Arc<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AttemptState {
    Running,
    Succeeded,
    Failed,
    TimedOut,
    NotCompleted,
    WorkerLost,
    /// It was cut off.
    Killed,
}

impl AttemptState {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::NotCompleted => "not_completed",
            Self::WorkerLost => "worker_lost",
            Self::Killed => "killed",
        }
    }
}

impl fmt::Display for AttemptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AttemptStatus {
    /// From 1.
    pub attempt: u32,
    pub worker: Arc<str>,
    pub state: AttemptState,
    pub exit_code: Option<u8>,
    pub signal: Option<u8>,
    pub error: Option<String>,
    pub started_at_ms: Timestamp,
    pub finished_at_ms: Option<Timestamp>,
    /// The worker was lost; not charged to failures.
    pub is_worker_failure: bool,
}

impl AttemptStatus {
    pub fn started(attempt: u32, worker: Arc<str>, at: Timestamp) -> Self {
        Self {
            attempt,
            worker,
            state: AttemptState::Running,
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
                self.state = AttemptState::Succeeded;
                self.exit_code = process.then_some(0);
            }
            Outcome::Lost { .. } => {
                self.state = AttemptState::WorkerLost;
                self.is_worker_failure = true;
                self.error = outcome.error();
            }
            Outcome::Failed(failure) => {
                self.error = Some(failure.describe());
                self.state = match failure.kind {
                    FailureKind::TimedOut => AttemptState::TimedOut,
                    FailureKind::NotCompleted => AttemptState::NotCompleted,
                    _ => AttemptState::Failed,
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
        self.state = AttemptState::Killed;
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
