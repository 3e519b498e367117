//! How a job stands: what gRPC says of it as a whole, and the server's own status of its runs.

use serde::de::DeserializeOwned;
use steadfast_api::{JobStatus, RunStatus, StepStatus, proto};
use steadfast_core::event::JobState;

use crate::ClientError;

/// Our word for a state of gRPC, which are Fluster's.
pub(crate) fn job_state(state: proto::JobState) -> JobState {
    use proto::JobState as Wire;
    match state {
        Wire::Unspecified | Wire::Pending => JobState::Pending,
        Wire::Running => JobState::Running,
        Wire::Succeeded => JobState::Succeeded,
        Wire::Failed | Wire::WorkerFailed | Wire::Unschedulable => JobState::Failed,
        Wire::Killed => JobState::Cancelled,
        Wire::Paused => JobState::Paused,
        Wire::Partial => JobState::Partial,
    }
}

/// Times are Unix milliseconds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    pub id: String,
    pub name: String,
    pub state: JobState,
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
    pub runs: Vec<RunStatus>,
}

impl Status {
    pub(crate) fn read(told: proto::JobStatus) -> Result<Self, ClientError> {
        let state = match job_state(told.state()) {
            // There it is pending whenever nothing runs; here until its first attempt has started.
            JobState::Pending if told.started_at_ms > 0 => JobState::Running,
            state => state,
        };
        let runs = match told.status_json.as_str() {
            "" => Vec::new(),
            json => {
                let status = serde_json::from_str::<JobStatus>(json);
                status.map_err(ClientError::unintelligible)?.runs
            }
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
        self.state.is_terminal()
    }

    pub fn is_success(&self) -> bool {
        self.state == JobState::Succeeded
    }

    /// A step of the first run.
    pub fn step(&self, name: &str) -> Option<&StepStatus> {
        self.runs.first()?.steps.get(name)
    }

    /// What a step of the first run, with one item, has given. `None` if it has given nothing, or if that is
    /// [left out](steadfast_api::ItemStatus::output_left_out).
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
