//! Pages of jobs, events, attempts, outputs and logs, as REST answers them and clients read them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use steadfast_core::event::Role;
use steadfast_core::time::Timestamp;

use crate::{AttemptStatus, ShownState};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsPage {
    pub jobs: Vec<JobRow>,
    /// Where the next page begins, if there is more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    pub id: String,
    pub name: String,
    pub state: ShownState,
    pub submitted_at_ms: Timestamp,
    pub finished_at_ms: Option<Timestamp>,
    pub labels: BTreeMap<String, String>,
    pub retried_from: Option<String>,
    /// Of a job that is stuck: what is wrong with what is stored of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AttemptsPage {
    pub attempts: Vec<AttemptRow>,
    /// Where the next page begins, if there is more.
    pub next: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRow {
    pub datacenter: Option<String>,
    pub step: String,
    pub role: Role,
    pub item: u32,
    #[serde(flatten)]
    pub status: AttemptStatus,
}

impl AttemptRow {
    pub fn name(&self) -> AttemptName {
        let Self { datacenter, step, role, item, status } = self;
        let (datacenter, step) = (datacenter.clone(), step.clone());
        AttemptName { datacenter, step, role: *role, item: *item, attempt: status.attempt }
    }
}

/// Which attempt of a job, in the words of its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AttemptName {
    pub datacenter: Option<String>,
    pub step: String,
    pub role: Role,
    pub item: u32,
    pub attempt: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutputsPage {
    pub outputs: Vec<OutputRow>,
    /// Where the next page begins, if there is more.
    pub next: Option<String>,
}

/// What an item has given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputRow {
    pub datacenter: Option<String>,
    pub step: String,
    pub item: u32,
    pub output: Value,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogsPage {
    pub logs: Vec<LogRow>,
    /// Where the next page begins, if there is more.
    pub next: Option<String>,
}

/// What an attempt has printed so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRow {
    #[serde(flatten)]
    pub of: AttemptName,
    pub name: String,
    pub size: u64,
    /// The attempt has ended, and the rest of its log has not arrived from its worker yet.
    pub arriving: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTimes {
    pub times: Vec<LogTime>,
}

/// What was printed from a byte on, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogTime {
    pub offset: u64,
    pub at_ms: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkersPage {
    pub workers: Vec<WorkerInfo>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerInfo {
    pub name: String,
    pub datacenter: Option<String>,
    /// `connected`, `draining`, `quarantined` or `away`.
    pub state: String,
    /// Why it is not simply connected, for people.
    pub why: Option<String>,
    pub slots: u32,
    pub busy: u32,
    /// None: not said, and not counted.
    pub cpu: Option<f64>,
    pub cpu_used: f64,
    pub memory_bytes: Option<u64>,
    pub memory_used: u64,
    pub labels: BTreeMap<String, String>,
    /// Names of functions that it has registered.
    pub functions: Vec<String>,
}
