//! A job as its author wrote it: every key of the job file that the engine knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::DAY_MS;
use crate::backoff::whole;
use crate::policy::Policy;
use crate::spelling::Spelling;
/// A job as its author wrote it, with names instead of indices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanDraft {
    pub name: String,
    pub steps: Vec<StepDraft>,
    /// Empty: the steps that nothing else needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<String>,
    /// Empty: one run, nowhere in particular.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub datacenters: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_effort: Option<BestEffort>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<NotBefore>,
    /// The operator's limit of a fan-out that only an output tells. None: [`MAX_ITEMS`](super::MAX_ITEMS).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_items: Option<u32>,
    #[serde(default)]
    pub priority: i32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub surroundings: ProcessEnvironment,
    /// What its author calls the job's own keys.
    #[serde(default, skip_serializing_if = "Spelling::is_native")]
    pub spelling: Spelling,
}

impl PlanDraft {
    pub fn new(name: &str, steps: Vec<StepDraft>) -> Self {
        Self {
            name: name.to_owned(),
            steps,
            goals: vec![],
            datacenters: vec![],
            best_effort: None,
            budget: None,
            timeout_ms: None,
            not_before: None,
            max_items: None,
            priority: 0,
            labels: BTreeMap::new(),
            surroundings: ProcessEnvironment::default(),
            spelling: Spelling::default(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepDraft {
    pub name: String,
    pub action: Action,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    #[serde(default)]
    pub for_each: ForEach,
    /// How many of its items may run at once; none: as many as there are slots.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
    #[serde(default)]
    pub max_failed: MaxFailed,
    pub policy: Policy,
    /// The longest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// The longest silence of a handler or function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_ms: Option<u64>,
    /// None: it waits for a worker forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling_timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<OnFailure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensate: Option<Action>,
    #[serde(default)]
    pub resources: Resources,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    #[serde(default)]
    pub surroundings: ProcessEnvironment,
    /// What its author calls the keys of the policy.
    #[serde(default, skip_serializing_if = "Spelling::is_native")]
    pub spelling: Spelling,
    /// Who gave the keys of the policy that were given: `operator`, `job`, `step`, or a dialect. Shown, and nothing is decided by it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub policy_sources: BTreeMap<String, String>,
}

impl StepDraft {
    pub fn new(name: &str, action: Action, policy: Policy) -> Self {
        Self {
            name: name.to_owned(),
            action,
            needs: vec![],
            for_each: ForEach::Once,
            parallelism: None,
            max_failed: MaxFailed::Count(0),
            policy,
            timeout_ms: None,
            heartbeat_ms: None,
            scheduling_timeout_ms: Some(DAY_MS),
            on_failure: None,
            compensate: None,
            resources: Resources::default(),
            labels: BTreeMap::new(),
            ports: vec![],
            surroundings: ProcessEnvironment::default(),
            spelling: Spelling::default(),
            policy_sources: BTreeMap::new(),
        }
    }
}

/// The one thing a step does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// `/bin/sh -c`; never templated.
    Run(String),
    Argv(Vec<String>),
    Http(Http),
    /// In the steps of a [`Plan`](super::Plan) the input is null, as it is the job's: [`Plan::input_of`](super::Plan::input_of).
    Call {
        name: String,
        input: Value,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Http {
    pub method: String,
    pub url: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub query: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    #[serde(default)]
    pub mode: HttpMode,
    #[serde(default)]
    pub expect: HttpExpect,
    /// How many are followed.
    #[serde(default, skip_serializing_if = "is_none")]
    pub redirects: u8,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the shape serde wants
const fn is_none(count: &u8) -> bool {
    *count == 0
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpMode {
    #[default]
    Sync,
    /// Answered with 202 and finished by a callback.
    Async,
}

impl HttpMode {
    /// The longest attempt, where nothing else is written.
    pub const fn default_timeout_ms(self) -> u64 {
        match self {
            Self::Sync => 30_000,
            Self::Async => 3_600_000,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpExpect {
    /// A 2xx is a success, whatever its body.
    #[default]
    Any,
    /// A 2xx without `success` in its body is not completed.
    Envelope,
}

/// The items of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForEach {
    #[default]
    Once,
    List(Arc<[Value]>),
    Range(u32),
    /// The output of an earlier step, or something inside it.
    Output {
        step: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        path: Vec<String>,
    },
}

impl ForEach {
    /// How many there are. None: only a run tells.
    pub fn items(&self) -> Option<u32> {
        match self {
            Self::Once => Some(1),
            Self::List(list) => Some(list.len() as u32),
            Self::Range(count) => Some(*count),
            Self::Output { .. } => None,
        }
    }
}

/// How many items may fail without failing the step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaxFailed {
    Count(u32),
    Percent(f64),
}

impl Default for MaxFailed {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl MaxFailed {
    pub fn of(self, items: u32) -> u32 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => whole(f64::from(items) * percent / 100.0) as u32,
        }
    }
}

/// What happens when a step has failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnFailure {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    pub then: AfterFailure,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterFailure {
    #[default]
    Fail,
    /// What needs the step goes on, unless the fallback itself has failed.
    Continue,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

impl Resources {
    pub fn cpu_milli(&self) -> u64 {
        self.cpu.map_or(0, milli_cpus)
    }
}

/// In thousandths, rounded up: a step that wants a little must not seem to want nothing.
pub fn milli_cpus(cpus: f64) -> u64 {
    (cpus * 1000.0).ceil() as u64
}

/// What a process finds around it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessEnvironment {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Cwd>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cwd {
    /// The job file's folder.
    Source,
    /// The attempt's own folder.
    Attempt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotBefore {
    At(crate::time::Timestamp),
    InMs(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BestEffort {
    pub min_datacenters: u32,
    /// What the job itself asked for; none: it left that to the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_requested: Option<u32>,
    pub deadline_ms: u64,
    #[serde(default)]
    pub grace_ms: u64,
    #[serde(default)]
    pub late_results: LateResults,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LateResults {
    #[default]
    LogOnly,
    UpdateResult,
}

/// Retries that the whole job shares, over all its steps and datacenters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<Allowance>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_step: Option<Allowance>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Ratio>,
    #[serde(default, skip_serializing_if = "BudgetCounts::is_failures")]
    pub counts: BudgetCounts,
}

/// Which retries spend a job's budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetCounts {
    /// Those after failures: a worker that goes away is not the job's fault.
    #[default]
    Failures,
    /// Those after losses and failed dispatches too. Deferrals and waiting for a worker never.
    All,
}

impl BudgetCounts {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failures => "failures",
            Self::All => "all",
        }
    }

    #[allow(clippy::trivially_copy_pass_by_ref)] // the shape serde wants
    fn is_failures(&self) -> bool {
        *self == Self::Failures
    }
}

/// What was asked for, and what the operator's ceiling left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    pub requested: u32,
    pub effective: u32,
}

/// Retries in proportion to the items started, and never fewer than `floor`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub ratio: f64,
    pub floor: u32,
}

impl Budget {
    /// How many retries the job may have spent once `started` of its items have started.
    pub fn total_at(&self, started: u64) -> Option<u32> {
        let total = self.total.map(|total| total.effective);
        let by_ratio = self.ratio.map(|Ratio { ratio, floor }| {
            u32::try_from(whole(ratio * started as f64)).unwrap_or(u32::MAX).max(floor)
        });
        match (total, by_ratio) {
            (Some(total), Some(by_ratio)) => Some(total.min(by_ratio)),
            (total, by_ratio) => total.or(by_ratio),
        }
    }

    pub fn per_step(&self) -> Option<u32> {
        self.per_step.map(|share| share.effective)
    }
}
