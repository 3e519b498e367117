//! What a server answers, as far as people are shown it. Fields that nobody shows are not asked for,
//! so that a newer server can say more; text is inert as soon as it is read.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use steadfast_api::ShownState;
use steadfast_core::event::{JobState, Role, StepState};

use crate::style::Inert;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Created {
    pub(crate) id: Inert,
    #[serde(default)]
    pub(crate) warnings: Vec<Warning>,
}

/// What the server found odd about a job file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Warning {
    pub(crate) code: Inert,
    pub(crate) path: Inert,
    pub(crate) line: u32,
    pub(crate) message: Inert,
}

/// Who wanted something, and why.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Request {
    pub(crate) by: Option<Inert>,
    pub(crate) reason: Option<Inert>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct JobResult {
    pub(crate) datacenters: Vec<Inert>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct JobsPage {
    pub(crate) jobs: Vec<JobRow>,
    pub(crate) next: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct JobRow {
    pub(crate) id: Inert,
    pub(crate) name: Inert,
    pub(crate) state: ShownState,
    pub(crate) submitted_at_ms: u64,
    pub(crate) finished_at_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Status {
    pub(crate) id: Inert,
    pub(crate) name: Inert,
    pub(crate) state: ShownState,
    pub(crate) submitted_at_ms: u64,
    pub(crate) finished_at_ms: Option<u64>,
    pub(crate) completion: Option<Completion>,
    #[serde(default)]
    pub(crate) cancel_request: Option<Request>,
    #[serde(default)]
    pub(crate) pause_request: Option<Request>,
    #[serde(default)]
    pub(crate) result: Option<JobResult>,
    pub(crate) runs: Vec<Run>,
}

impl Status {
    /// Nothing of it goes on any more; after a best-effort completion something may.
    pub(crate) fn is_over(&self) -> bool {
        self.state.is_terminal() && self.runs.iter().all(|run| run.state.is_terminal())
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Completion {
    pub(crate) reason: Inert,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Run {
    pub(crate) datacenter: Option<Inert>,
    pub(crate) state: JobState,
    #[serde(default)]
    pub(crate) late: bool,
    #[serde(deserialize_with = "in_order")]
    pub(crate) steps: Vec<(Inert, Step)>,
}

/// A map whose order says something.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Inert, Step)>, D::Error> {
    struct Steps;
    impl<'de> serde::de::Visitor<'de> for Steps {
        type Value = Vec<(Inert, Step)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("steps by name")
        }

        fn visit_map<A: serde::de::MapAccess<'de>>(
            self,
            mut map: A,
        ) -> Result<Self::Value, A::Error> {
            let mut steps = Vec::new();
            while let Some(entry) = map.next_entry()? {
                steps.push(entry);
            }
            Ok(steps)
        }
    }
    deserializer.deserialize_map(Steps)
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Step {
    pub(crate) state: StepState,
    pub(crate) counts: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) error: Option<Inert>,
    pub(crate) items: Vec<Item>,
    #[serde(default)]
    pub(crate) fallback: Option<Item>,
    #[serde(default)]
    pub(crate) compensation: Option<Item>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Item {
    pub(crate) index: u32,
    #[serde(default)]
    pub(crate) value: Option<Value>,
    pub(crate) state: Inert,
    pub(crate) retry_available_at_ms: Option<u64>,
    pub(crate) last_error: Option<Inert>,
    pub(crate) reason: Option<Inert>,
    #[serde(default)]
    pub(crate) progress: Option<Progress>,
    pub(crate) attempts: Vec<Attempt>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Progress {
    pub(crate) said: Value,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Attempt {
    pub(crate) attempt: u32,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct EventsPage {
    pub(crate) events: Vec<Value>,
    pub(crate) next: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct AttemptsPage {
    pub(crate) attempts: Vec<AttemptOfJob>,
    pub(crate) next: Option<String>,
}

/// Which attempt a log is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) struct AttemptOfJob {
    pub(crate) datacenter: Option<String>,
    pub(crate) step: String,
    pub(crate) role: Role,
    pub(crate) item: u32,
    pub(crate) attempt: u32,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LogsPage {
    pub(crate) logs: Vec<Log>,
    pub(crate) next: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Log {
    pub(crate) name: String,
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) arriving: bool,
    #[serde(flatten)]
    pub(crate) of: AttemptOfJob,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LogTimes {
    pub(crate) times: Vec<LogTime>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct LogTime {
    pub(crate) offset: u64,
    pub(crate) at_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Workers {
    pub(crate) workers: Vec<Worker>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Worker {
    pub(crate) name: Inert,
    pub(crate) datacenter: Option<Inert>,
    pub(crate) state: Inert,
    pub(crate) why: Option<Inert>,
    pub(crate) slots: u32,
    pub(crate) busy: u32,
    /// None: not said, and not counted.
    pub(crate) cpu: Option<f64>,
    pub(crate) cpu_used: f64,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) memory_used: u64,
    #[serde(default)]
    pub(crate) labels: BTreeMap<Inert, Inert>,
}
