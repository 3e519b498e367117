//! What a job is made of: its steps as a graph, its goals, budgets and datacenters.
//!
//! A [`PlanDraft`] names things; [`Plan::new`] resolves the names, refuses what cannot run (with
//! every reason at once) and keeps what `decide` looks up often. A plan never changes.

mod check;
mod reach;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backoff::whole;
use crate::event::{ItemId, Role};
use crate::policy::{Policy, Problems};
use crate::spelling::Spelling;
use check::PlanCheck;

pub use check::nearest;
pub use reach::Reachability;

/// Enough for any job a person can read; every run holds a record for each.
pub const MAX_STEPS: usize = 10_000;
/// Fan-out of one step, unless the operator says otherwise.
pub const MAX_ITEMS: u32 = 1_000_000;
/// Of a job, a step or a worker: they are held beside each job in lists.
pub const MAX_LABELS: usize = 64;
pub const MAX_DATACENTERS: usize = 100;
pub const DAY_MS: u64 = 24 * 3600 * 1000;

/// A job as somebody wrote it, with names instead of indices.
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
    /// The operator's limit of a fan-out that only an output tells. None: [`MAX_ITEMS`].
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
    /// Those after failures: a worker that goes away is nobody's fault.
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

/// A job that can run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PlanDraft", into = "PlanDraft")]
pub struct Plan {
    draft: PlanDraft,
    steps: Vec<Step>,
    index: HashMap<String, u32>,
    goals: Vec<u32>,
}

/// A step with its place in the graph. Everything else is in its draft.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    draft: StepDraft,
    pub needs: Vec<u32>,
    pub needed_by: Vec<u32>,
    pub goal: bool,
}

impl Step {
    /// Everything it may do: its own work, its fallback, its compensation.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        let fallback = self.on_failure.as_ref().and_then(|aside| aside.action.as_ref());
        [Some(&self.action), fallback, self.compensate.as_ref()].into_iter().flatten()
    }
}

impl std::ops::Deref for Step {
    type Target = StepDraft;

    fn deref(&self) -> &StepDraft {
        &self.draft
    }
}

impl From<Plan> for PlanDraft {
    fn from(plan: Plan) -> Self {
        plan.draft()
    }
}

impl TryFrom<PlanDraft> for Plan {
    type Error = Problems;

    fn try_from(draft: PlanDraft) -> Result<Self, Problems> {
        Self::new(draft)
    }
}

impl Plan {
    pub fn new(mut draft: PlanDraft) -> Result<Self, Problems> {
        let mut check = PlanCheck::default();
        let index = check.index(&draft);
        if draft.steps.len() > MAX_STEPS {
            return Err(Problems(check.problems));
        }
        let needs = check.needs(&draft, &index);
        check.goals(&draft, &index);
        check.datacenters(&draft);
        check.steps(&draft);
        if check.problems.is_empty() {
            check.cycles(&draft, &needs);
        }
        if check.problems.is_empty() {
            check.for_each(&draft, &index, &needs);
        }
        if !check.problems.is_empty() {
            return Err(Problems(check.problems));
        }
        let mut needed_by = vec![Vec::new(); draft.steps.len()];
        for (step, needs) in needs.iter().enumerate() {
            for &need in needs {
                needed_by[need as usize].push(step as u32);
            }
        }
        let goals: Vec<u32> = if draft.goals.is_empty() {
            (0..needs.len() as u32).filter(|&s| needed_by[s as usize].is_empty()).collect()
        } else {
            draft.goals.iter().map(|name| index[name]).collect()
        };
        let steps = std::mem::take(&mut draft.steps)
            .into_iter()
            .zip(needs)
            .zip(needed_by)
            .enumerate()
            .map(|(i, ((draft, needs), needed_by))| Step {
                draft,
                needs,
                needed_by,
                goal: goals.contains(&(i as u32)),
            })
            .collect();
        Ok(Self { draft, steps, index, goals })
    }

    /// What it was made of.
    pub fn draft(&self) -> PlanDraft {
        let steps = self.steps.iter().map(|step| step.draft.clone()).collect();
        PlanDraft { steps, ..self.draft.clone() }
    }

    pub fn name(&self) -> &str {
        &self.draft.name
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    pub fn step(&self, index: u32) -> &Step {
        &self.steps[index as usize]
    }

    pub fn find(&self, name: &str) -> Option<u32> {
        self.index.get(name).copied()
    }

    pub fn goals(&self) -> &[u32] {
        &self.goals
    }

    /// How many runs a job of this plan has.
    pub fn runs(&self) -> usize {
        self.draft.datacenters.len().max(1)
    }

    /// `eu-west/index`
    pub fn step_name(&self, run: u32, step: u32) -> String {
        let name = &self.step(step).name;
        self.datacenter(run).map_or_else(|| name.clone(), |dc| format!("{dc}/{name}"))
    }

    /// As people and scripts write it: `eu-west/index[2]`, `publish!` for a fallback, `publish~` for a
    /// compensation.
    pub fn item_name(&self, item: ItemId) -> String {
        let name = self.step_name(item.run, item.step);
        match item.role {
            Role::Item if self.step(item.step).for_each == ForEach::Once => name,
            Role::Item => format!("{name}[{}]", item.index),
            Role::Fallback => name + "!",
            Role::Compensation => name + "~",
        }
    }

    /// What the folder of an attempt is called. Of a job that is one work item it is the job's,
    /// `JOB_attempt_1`, as Fluster has it; of another it is the item's.
    pub fn folder_name(&self, job: &str, item: ItemId, attempt: u32) -> String {
        let step = self.step(item.step);
        let alone = self.steps().len() == 1 && self.runs() == 1 && step.for_each == ForEach::Once;
        if alone && item.role == Role::Item {
            return format!("{job}_attempt_{attempt}");
        }
        item.attempt_name(&step.name, attempt)
    }

    /// What an attempt of the item does.
    pub fn action_of(&self, item: ItemId) -> Option<&Action> {
        let step = self.step(item.step);
        match item.role {
            Role::Item => Some(&step.action),
            Role::Fallback => step.on_failure.as_ref()?.action.as_ref(),
            Role::Compensation => step.compensate.as_ref(),
        }
    }

    /// Its longest attempt.
    pub fn timeout_ms_of(&self, item: ItemId) -> Option<u64> {
        let by_itself = || match self.action_of(item) {
            Some(Action::Http(http)) => Some(http.mode.default_timeout_ms()),
            _ => None,
        };
        self.step(item.step).timeout_ms.or_else(by_itself)
    }

    pub fn datacenters(&self) -> &[String] {
        &self.draft.datacenters
    }

    pub fn datacenter(&self, run: u32) -> Option<&str> {
        self.draft.datacenters.get(run as usize).map(String::as_str)
    }

    pub fn best_effort(&self) -> Option<&BestEffort> {
        self.draft.best_effort.as_ref()
    }

    pub fn budget(&self) -> Option<&Budget> {
        self.draft.budget.as_ref()
    }

    pub fn timeout_ms(&self) -> Option<u64> {
        self.draft.timeout_ms
    }

    pub fn not_before(&self) -> Option<NotBefore> {
        self.draft.not_before
    }

    /// The largest fan-out of a step.
    pub fn max_items(&self) -> u32 {
        self.draft.max_items.unwrap_or(MAX_ITEMS).min(MAX_ITEMS)
    }

    pub fn priority(&self) -> i32 {
        self.draft.priority
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.draft.labels
    }

    pub fn surroundings(&self) -> &ProcessEnvironment {
        &self.draft.surroundings
    }

    pub fn spelling(&self) -> &Spelling {
        &self.draft.spelling
    }

    /// Which step needs which, for who asks about many.
    pub fn reach(&self) -> Reachability {
        Reachability::of(&self.steps.iter().map(|step| step.needs.clone()).collect::<Vec<_>>())
    }

    /// All steps that `step` needs, directly or through others.
    pub fn ancestors(&self, step: u32) -> Vec<u32> {
        reachable(step, |step| &self.steps[step as usize].needs)
    }

    /// All steps that need `step`, directly or through others.
    pub fn descendants(&self, step: u32) -> Vec<u32> {
        reachable(step, |step| &self.steps[step as usize].needed_by)
    }
}

fn reachable<'a>(from: u32, edges: impl Fn(u32) -> &'a Vec<u32>) -> Vec<u32> {
    let mut found = std::collections::BTreeSet::new();
    let mut open = vec![from];
    while let Some(step) = open.pop() {
        for &next in edges(step) {
            if found.insert(next) {
                open.push(next);
            }
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(name: &str, needs: &[&str]) -> StepDraft {
        let mut step = StepDraft::new(name, Action::Run("true".into()), Policy::default());
        step.needs = needs.iter().map(ToString::to_string).collect();
        step
    }

    fn messages(draft: PlanDraft) -> Vec<String> {
        let problems = Plan::new(draft).expect_err("refused").0;
        problems.into_iter().map(|problem| problem.to_string()).collect()
    }

    #[test]
    fn goals_default_to_what_nothing_needs() {
        let steps = vec![step("a", &[]), step("b", &["a"]), step("c", &["a"])];
        let plan = Plan::new(PlanDraft::new("j", steps)).expect("valid");
        assert_eq!(plan.goals(), [1, 2]);
        assert_eq!(plan.ancestors(1), [0]);
        assert_eq!(plan.descendants(0), [1, 2]);
    }

    #[test]
    fn a_circle_is_named_in_its_order() {
        let steps =
            vec![step("a", &["c"]), step("b", &["a"]), step("c", &["b"]), step("d", &["d"])];
        assert_eq!(
            messages(PlanDraft::new("j", steps)),
            [
                "steps.b.needs[0]: steps need each other in a circle: a → c → b → a \
                 (remove one of these `needs`)",
                "steps.d.needs[0]: steps need each other in a circle: d → d \
                 (remove one of these `needs`)",
            ]
        );
    }

    #[test]
    fn names_that_do_not_exist_are_all_told_with_a_guess() {
        let mut draft =
            PlanDraft::new("j", vec![step("fetch", &["index", "index2"]), step("indxe", &[])]);
        draft.goals = vec!["publish".into()];
        let messages = messages(draft);
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert!(messages[0].contains("did you mean `indxe`?"), "{messages:?}");
    }

    #[test]
    fn a_very_long_chain_does_not_overflow_the_stack() {
        let mut steps = vec![step("s0", &[])];
        for i in 1..MAX_STEPS {
            steps.push(step(&format!("s{i}"), &[&format!("s{}", i - 1)]));
        }
        steps.reverse();
        let plan = Plan::new(PlanDraft::new("j", steps)).expect("valid");
        assert_eq!(plan.ancestors(0).len(), MAX_STEPS - 1);
    }

    #[test]
    fn fan_out_over_an_output_must_wait_for_it() {
        let mut reader = step("read", &[]);
        reader.for_each = ForEach::Output { step: "list".into(), path: vec![] };
        let draft = PlanDraft::new("j", vec![step("list", &[]), reader]);
        assert!(messages(draft)[0].contains("add `list` to its `needs`"));
    }

    #[test]
    fn a_ratio_budget_grows_with_what_has_started() {
        let ratio = Some(Ratio { ratio: 0.2, floor: 10 });
        let budget = Budget { total: None, per_step: None, ratio, counts: BudgetCounts::Failures };
        assert_eq!(budget.total_at(0), Some(10));
        assert_eq!(budget.total_at(49), Some(10));
        assert_eq!(budget.total_at(55), Some(11));
        let total = Some(Allowance { requested: 30, effective: 30 });
        assert_eq!(Budget { total, ..budget }.total_at(1_000_000), Some(30));
    }

    #[test]
    fn a_plan_survives_being_stored() {
        let plan =
            Plan::new(PlanDraft::new("j", vec![step("a", &[]), step("b", &["a"])])).expect("valid");
        let json = serde_json::to_string(&plan).expect("serializes");
        assert_eq!(serde_json::from_str::<Plan>(&json).expect("reads"), plan);
    }
}
