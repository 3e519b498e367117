//! What a job is made of: its steps as a graph, its goals, budgets and datacenters.
//!
//! A [`PlanDraft`] names things; [`Plan::new`] resolves the names, refuses what cannot run (with
//! every reason at once) and keeps what `decide` looks up often. A plan never changes.

mod check;
mod draft;
mod reach;
mod shape;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::event::{ItemId, Role};
use crate::policy::Problems;
use crate::spelling::Spelling;
use check::PlanCheck;

pub use check::nearest;
pub use draft::{
    Action, AfterFailure, Allowance, BestEffort, Budget, BudgetCounts, Cwd, ForEach, Http,
    HttpExpect, HttpMode, LateResults, MaxFailed, NotBefore, OnFailure, PlanDraft,
    ProcessEnvironment, Ratio, Resources, StepDraft, milli_cpus,
};
pub use reach::Reachability;
pub use shape::PlanArguments;
use shape::{PlanShape, ShapeParts};

/// Enough for any job a person can read; every run holds a record for each.
pub const MAX_STEPS: usize = 10_000;
/// Fan-out of one step, unless the operator says otherwise.
pub const MAX_ITEMS: u32 = 1_000_000;
/// Of a job, a step or a worker: they are held beside each job in lists.
pub const MAX_LABELS: usize = 64;
pub const MAX_DATACENTERS: usize = 100;
pub const DAY_MS: u64 = 24 * 3600 * 1000;

/// A job that can run. Jobs that are submitted again and again share all of it but their arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PlanDraft", into = "PlanDraft")]
pub struct Plan {
    shape: PlanShape,
    arguments: PlanArguments,
}

/// A step with its place in the graph. Everything else is in its draft, but for what its functions are called with:
/// [`Plan::input_of`].
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    draft: StepDraft,
    pub needs: Vec<u32>,
    pub needed_by: Vec<u32>,
    pub goal: bool,
    /// Where its inputs begin among those of the plan.
    first_input: u32,
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
        let arguments = draft.take_arguments();
        let mut first_input = 0;
        let steps = std::mem::take(&mut draft.steps)
            .into_iter()
            .zip(needs)
            .zip(needed_by)
            .enumerate()
            .map(|(i, ((draft, needs), needed_by))| {
                let goal = goals.contains(&(i as u32));
                let step = Step { draft, needs, needed_by, goal, first_input };
                first_input += step.actions().filter(|action| action.has_input()).count() as u32;
                step
            })
            .collect();
        let shape = PlanShape(Arc::new(ShapeParts { draft, steps, index, goals }));
        Ok(Self { shape, arguments })
    }

    /// What it was made of.
    pub fn draft(&self) -> PlanDraft {
        let steps = self.steps().iter().map(|step| step.draft.clone()).collect();
        let mut draft = PlanDraft { steps, ..self.shape.draft.clone() };
        draft.set_arguments(self.arguments.clone());
        draft
    }

    pub fn name(&self) -> &str {
        &self.arguments.name
    }

    pub fn steps(&self) -> &[Step] {
        &self.shape.steps
    }

    pub fn step(&self, index: u32) -> &Step {
        &self.shape.steps[index as usize]
    }

    pub fn find(&self, name: &str) -> Option<u32> {
        self.shape.index.get(name).copied()
    }

    pub fn goals(&self) -> &[u32] {
        &self.shape.goals
    }

    /// How many runs a job of this plan has.
    pub fn runs(&self) -> usize {
        self.shape.draft.datacenters.len().max(1)
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

    /// What the item's function is called with, before it is filled in.
    pub fn input_of(&self, item: ItemId) -> Option<&Value> {
        let step = self.step(item.step);
        let fallback = step.on_failure.as_ref().and_then(|then| then.action.as_ref());
        let before: &[Option<&Action>] = match item.role {
            Role::Item => &[],
            Role::Fallback => &[Some(&step.action)],
            Role::Compensation => &[Some(&step.action), fallback],
        };
        let before = before.iter().flatten().filter(|action| action.has_input()).count();
        self.action_of(item).filter(|action| action.has_input())?;
        self.arguments.inputs.get(step.first_input as usize + before)
    }

    /// What an attempt of the item does. A function's input is [`Self::input_of`].
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
        &self.shape.draft.datacenters
    }

    pub fn datacenter(&self, run: u32) -> Option<&str> {
        self.shape.draft.datacenters.get(run as usize).map(String::as_str)
    }

    pub fn best_effort(&self) -> Option<&BestEffort> {
        self.shape.draft.best_effort.as_ref()
    }

    pub fn budget(&self) -> Option<&Budget> {
        self.shape.draft.budget.as_ref()
    }

    pub fn timeout_ms(&self) -> Option<u64> {
        self.shape.draft.timeout_ms
    }

    pub fn not_before(&self) -> Option<NotBefore> {
        self.arguments.not_before
    }

    /// The largest fan-out of a step.
    pub fn max_items(&self) -> u32 {
        self.shape.draft.max_items.unwrap_or(MAX_ITEMS).min(MAX_ITEMS)
    }

    pub fn priority(&self) -> i32 {
        self.shape.draft.priority
    }

    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.arguments.labels
    }

    pub fn surroundings(&self) -> &ProcessEnvironment {
        &self.shape.draft.surroundings
    }

    pub fn spelling(&self) -> &Spelling {
        &self.shape.draft.spelling
    }

    /// Which step needs which, for who asks about many.
    pub fn reach(&self) -> Reachability {
        Reachability::of(&self.steps().iter().map(|step| step.needs.clone()).collect::<Vec<_>>())
    }

    /// All steps that `step` needs, directly or through others.
    pub fn ancestors(&self, step: u32) -> Vec<u32> {
        reachable(step, |step| &self.step(step).needs)
    }

    /// All steps that need `step`, directly or through others.
    pub fn descendants(&self, step: u32) -> Vec<u32> {
        reachable(step, |step| &self.step(step).needed_by)
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
    use crate::policy::Policy;

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
