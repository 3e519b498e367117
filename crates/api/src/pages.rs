//! Pages of jobs, events, attempts, outputs, readiness and logs, as REST answers them and clients read them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use steadfast_core::event::{ItemId, Role};
use steadfast_core::plan::Plan;
use steadfast_core::readiness::ItemReadiness;
use steadfast_core::time::Timestamp;

use crate::{AttemptStatus, ShownState};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsPage {
    pub jobs: Vec<JobRow>,
    /// Where the next page begins, if there is more.
    pub next: Option<String>,
}

/// How many jobs of servers the store has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    /// Each job once: in its state, or as `stuck`.
    pub by_state: BTreeMap<String, u64>,
    /// Those that have not ended, and can go on.
    pub open: u64,
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
    /// Of a job that failed or is partial: why an item of it was given up, or why it ended, as far as the end of its log tells.
    #[serde(default)]
    pub stop_reason: Option<String>,
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

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadinessPage {
    pub job: String,
    /// When it was so: what is due then may start.
    pub at_ms: Timestamp,
    pub readiness: Vec<ReadinessRow>,
    /// Where the next page begins, if there is more.
    pub next: Option<String>,
}

impl ReadinessPage {
    /// Nothing starts of a job of `run` whose process is gone.
    #[must_use]
    pub fn without_a_process(mut self) -> Self {
        for row in self.readiness.iter_mut().filter(|row| row.ready) {
            row.ready = false;
            row.reason = Some(ShownState::Interrupted.name().to_owned());
        }
        self
    }
}

/// Whether an item may start, or several in a row that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "the columns of Tasker's view")]
pub struct ReadinessRow {
    /// `eu-west/index[2]`; of several, that of their step
    pub name: String,
    pub datacenter: Option<String>,
    pub step: String,
    pub role: Role,
    /// The first of them.
    pub item: u32,
    /// How many; None: a step that this one needs will say.
    pub items: Option<u32>,
    pub dependencies_satisfied: bool,
    /// All that have started. None: not kept, of items of a fan-out and others that have ended without failing.
    pub attempts: Option<u32>,
    /// Those that `max_attempts` counts. None: not kept, of items that have ended without failing.
    pub failures: Option<u32>,
    /// None: without limit.
    pub max_attempts: Option<u32>,
    pub retryable: bool,
    pub eligible: bool,
    pub next_retry_at_ms: Option<Timestamp>,
    pub ready: bool,
    /// Why it is not ready.
    pub reason: Option<String>,
}

impl ReadinessRow {
    pub fn new(plan: &Plan, of: &ItemReadiness) -> Self {
        let ItemId { run, step, role, index } = of.id;
        let is_one = of.items == Some(1);
        Self {
            name: if is_one { plan.item_name(of.id) } else { plan.step_name(run, step) },
            datacenter: plan.datacenter(run).map(str::to_owned),
            step: plan.step(step).name.clone(),
            role,
            item: index,
            items: of.items,
            dependencies_satisfied: of.dependencies_satisfied,
            attempts: of.attempts,
            failures: of.failures,
            max_attempts: of.max_attempts,
            retryable: of.retryable,
            eligible: of.eligible,
            next_retry_at_ms: of.next_retry_at,
            ready: of.not_ready.is_none(),
            reason: of.not_ready.map(|reason| reason.name().to_owned()),
        }
    }
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
    /// Of its slots, those that it has for this server: all, unless it has other servers too.
    pub credits: u32,
    pub busy: u32,
    /// None: not said, and not counted.
    pub cpu: Option<f64>,
    pub cpu_used: f64,
    pub memory_bytes: Option<u64>,
    pub memory_used: u64,
    /// In how long it is taken for lost, if nothing is heard of it.
    pub lease_left_ms: u64,
    pub labels: BTreeMap<String, String>,
    /// Names of functions that it has registered.
    pub functions: Vec<String>,
}
