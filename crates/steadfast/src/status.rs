//! How a job stands, as `steadfast status -o json` and `GET /v1/jobs/{id}` show it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use steadfast_api::proto;

use crate::ClientError;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Pending,
    Running,
    Paused,
    Succeeded,
    /// Some of its datacenters succeeded, fewer than it wanted.
    Partial,
    Failed,
    Cancelled,
}

impl State {
    /// As job files and commands write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Nothing changes it any more.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Partial | Self::Failed | Self::Cancelled)
    }
}

impl From<proto::JobState> for State {
    fn from(state: proto::JobState) -> Self {
        use proto::JobState as Wire;
        match state {
            Wire::Unspecified | Wire::Pending => Self::Pending,
            Wire::Running => Self::Running,
            Wire::Succeeded => Self::Succeeded,
            Wire::Failed | Wire::WorkerFailed | Wire::Unschedulable => Self::Failed,
            Wire::Killed => Self::Cancelled,
            Wire::Paused => Self::Paused,
            Wire::Partial => Self::Partial,
        }
    }
}

/// Times are Unix milliseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    pub id: String,
    pub name: String,
    pub state: State,
    pub submitted_at_ms: u64,
    pub finished_at_ms: Option<u64>,
    /// The last error of its first item; `None` once it has succeeded.
    pub error: Option<String>,
    /// Why that was not tried again: `attempts_exhausted`, `permanent_error`, …
    pub reason: Option<String>,
    /// Over all items.
    pub failures: u32,
    /// Losses of workers, likewise, also the one that was one too many.
    pub preemptions: u32,
    /// One, or one for each datacenter. Empty if all of it would be more than 2 MiB.
    pub runs: Vec<Run>,
}

#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Run {
    pub datacenter: Option<String>,
    pub state: State,
    pub steps: BTreeMap<String, StepStatus>,
}

#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct StepStatus {
    pub state: String,
    /// Items by their state.
    pub counts: BTreeMap<String, u64>,
    /// The first 100.
    pub items: Vec<Item>,
}

#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Item {
    pub index: u32,
    pub value: Option<Value>,
    pub state: String,
    pub failures: u32,
    pub preemptions: u32,
    pub delay_spent_ms: u64,
    pub retry_available_at_ms: Option<u64>,
    pub last_error: Option<String>,
    /// Why it was not tried again.
    pub reason: Option<String>,
    pub output: Option<Value>,
    /// There is one that is not here, because all of them would be too large: see [`Client::outputs`](crate::Client::outputs).
    #[serde(default)]
    pub output_left_out: bool,
    /// The last 100.
    pub attempts: Vec<Attempt>,
}

#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Attempt {
    /// From 1.
    pub attempt: u32,
    pub worker: String,
    pub state: String,
    pub exit_code: Option<u8>,
    pub signal: Option<u8>,
    pub error: Option<String>,
    pub started_at_ms: u64,
    pub finished_at_ms: Option<u64>,
    /// The worker was lost; not charged to failures.
    pub is_worker_failure: bool,
}

/// What an item has given.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Output {
    pub datacenter: Option<String>,
    pub step: String,
    pub item: u32,
    pub output: Value,
}

#[derive(Deserialize)]
struct Shown {
    runs: Vec<Run>,
}

impl Status {
    pub(crate) fn read(told: proto::JobStatus) -> Result<Self, ClientError> {
        let state = match told.state().into() {
            // There it is pending whenever nothing runs; here until its first attempt has started.
            State::Pending if told.started_at_ms > 0 => State::Running,
            state => state,
        };
        let runs = match told.status_json.as_str() {
            "" => Vec::new(),
            json => serde_json::from_str::<Shown>(json).map_err(ClientError::unintelligible)?.runs,
        };
        let some = |text: String| (!text.is_empty()).then_some(text);
        let count = |number: i32| u32::try_from(number).unwrap_or_default();
        Ok(Self {
            id: told.job_id,
            name: told.name,
            state,
            submitted_at_ms: u64::try_from(told.submitted_at_ms).unwrap_or_default(),
            finished_at_ms: u64::try_from(told.finished_at_ms).ok().filter(|ms| *ms > 0),
            error: some(told.error),
            reason: some(told.reason),
            failures: count(told.failure_count),
            preemptions: count(told.preemption_count),
            runs,
        })
    }

    pub fn is_over(&self) -> bool {
        self.state.is_over()
    }

    pub fn is_success(&self) -> bool {
        self.state == State::Succeeded
    }

    /// A step of the first run.
    pub fn step(&self, name: &str) -> Option<&StepStatus> {
        self.runs.first()?.steps.get(name)
    }

    /// What a step of the first run, with one item, has given. `None` if it has given nothing, or if that is
    /// [left out](Item::output_left_out).
    pub fn output<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>, serde_json::Error> {
        let item = self.step(step).and_then(|step| step.items.first());
        item.and_then(|item| item.output.clone()).map(serde_json::from_value).transpose()
    }

    /// The same of a step with `for_each`: of its first 100 items, in order.
    pub fn outputs<T: DeserializeOwned>(
        &self,
        step: &str,
    ) -> Result<Vec<Option<T>>, serde_json::Error> {
        let items = self.step(step).map_or(&[][..], |step| &step.items);
        items
            .iter()
            .map(|item| item.output.clone().map(serde_json::from_value).transpose())
            .collect()
    }
}
