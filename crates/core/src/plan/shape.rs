//! What jobs that are submitted again and again have in common, and what they differ in.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Action, NotBefore, Plan, PlanDraft, Step};

/// What jobs of one shape differ in: what they are called, when they begin, and what their functions are called with.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanArguments {
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<NotBefore>,
    /// Of each action that has one, in the order of the steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<Value>,
}

impl PlanDraft {
    /// What is left is the same of all jobs of its shape.
    pub fn take_arguments(&mut self) -> PlanArguments {
        PlanArguments {
            name: std::mem::take(&mut self.name),
            labels: std::mem::take(&mut self.labels),
            not_before: self.not_before.take(),
            inputs: self.inputs().map(std::mem::take).collect(),
        }
    }

    /// False: they are not of this shape.
    pub fn set_arguments(&mut self, arguments: PlanArguments) -> bool {
        let PlanArguments { name, labels, not_before, inputs } = arguments;
        (self.name, self.labels, self.not_before) = (name, labels, not_before);
        let mut given = inputs.into_iter();
        let mut fits = true;
        for input in self.inputs() {
            match given.next() {
                Some(value) => *input = value,
                None => fits = false,
            }
        }
        fits && given.next().is_none()
    }

    fn inputs(&mut self) -> impl Iterator<Item = &mut Value> {
        let actions = self.steps.iter_mut().flat_map(|step| {
            let fallback = step.on_failure.as_mut().and_then(|aside| aside.action.as_mut());
            [Some(&mut step.action), fallback, step.compensate.as_mut()].into_iter().flatten()
        });
        actions.filter_map(|action| match action {
            Action::Call { input, .. } => Some(input),
            Action::Run(_) | Action::Argv(_) | Action::Http(_) => None,
        })
    }
}

/// All of a plan but its arguments, in whose places is nothing. Compared by what it is, unless it is the same.
#[derive(Clone, Debug)]
pub(super) struct PlanShape(pub(super) Arc<ShapeParts>);

#[derive(Debug, PartialEq)]
pub(super) struct ShapeParts {
    pub(super) draft: PlanDraft,
    pub(super) steps: Vec<Step>,
    pub(super) index: BTreeMap<String, u32>,
    pub(super) goals: Vec<u32>,
}

impl PartialEq for PlanShape {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Deref for PlanShape {
    type Target = ShapeParts;

    fn deref(&self) -> &ShapeParts {
        &self.0
    }
}

impl Plan {
    /// What [`PlanDraft::take_arguments`] takes.
    pub fn arguments(&self) -> &PlanArguments {
        &self.arguments
    }

    /// The plan of another job of its shape. None: these are not of its shape.
    pub fn with_arguments(&self, arguments: PlanArguments) -> Option<Self> {
        let fits = arguments.inputs.len() == self.arguments.inputs.len();
        fits.then(|| Self { shape: self.shape.clone(), arguments })
    }

    /// They differ in nothing but their arguments.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        self.shape == other.shape
    }
}

impl Action {
    /// It calls a function.
    pub(super) fn has_input(&self) -> bool {
        matches!(self, Self::Call { .. })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::event::{ItemId, Role};
    use crate::plan::{AfterFailure, OnFailure, StepDraft};
    use crate::policy::{Policy, PolicyDraft};
    use crate::time::Timestamp;

    fn call(name: &str, input: Value) -> Action {
        Action::Call { name: name.to_owned(), input }
    }

    fn draft(name: &str, input: &Value) -> PlanDraft {
        let mut one = StepDraft::new("one", call("resize", input.clone()), Policy::default());
        one.compensate = Some(call("undo", json!([input, 1])));
        let then = AfterFailure::Continue;
        one.on_failure = Some(OnFailure { action: Some(call("instead", input.clone())), then });
        let two = StepDraft::new("two", Action::Run("true".to_owned()), Policy::default());
        PlanDraft::new(name, vec![one, two])
    }

    #[test]
    fn jobs_of_one_shape_differ_in_their_arguments() {
        let mut other = draft("b", &json!({ "file": "cat.png" }));
        other.labels.insert("team".to_owned(), "red".to_owned());
        other.not_before = Some(NotBefore::At(Timestamp(7)));
        let [a, b] = [draft("a", &json!(1)), other].map(|it| Plan::new(it).expect("valid"));
        assert!(a.has_shape_of(&b) && b.has_shape_of(&a));
        let (mut a_shape, mut b_shape) = (a.draft(), b.draft());
        assert_eq!(a_shape.take_arguments(), *a.arguments());
        assert_eq!(b_shape.take_arguments(), *b.arguments());
        assert_eq!(a_shape, b_shape);
        assert!(a_shape.set_arguments(b.arguments().clone()));
        assert_eq!(a_shape, b.draft());
        assert_eq!(a.with_arguments(b.arguments().clone()).as_ref(), Some(&b));
        assert_ne!(a, b);
        assert_eq!(a.with_arguments(PlanArguments::default()), None);
    }

    #[test]
    fn each_function_of_a_step_has_its_own_input() {
        let mut it = draft("a", &json!("file"));
        it.steps.reverse();
        it.steps[0].compensate = Some(call("clean", json!({ "all": true })));
        let plan = Plan::new(it).expect("valid");
        let input = |step, role| plan.input_of(ItemId { run: 0, step, role, index: 0 });
        assert_eq!(input(0, Role::Item), None, "it is a process");
        assert_eq!(input(0, Role::Compensation), Some(&json!({ "all": true })));
        assert_eq!(input(1, Role::Item), Some(&json!("file")));
        assert_eq!(input(1, Role::Fallback), Some(&json!("file")));
        assert_eq!(input(1, Role::Compensation), Some(&json!(["file", 1])));
    }

    #[test]
    fn arguments_of_another_shape_do_not_fit() {
        let mut small =
            PlanDraft::new("c", vec![StepDraft::new("s", call("f", json!(1)), Policy::default())]);
        assert!(!small.set_arguments(draft("a", &json!(1)).take_arguments()), "too many");
        assert!(!draft("a", &json!(1)).set_arguments(small.take_arguments()), "too few");
    }

    #[test]
    fn whatever_else_differs_is_another_shape() {
        let plan = |change: fn(&mut PlanDraft)| {
            let mut it = draft("a", &json!(1));
            change(&mut it);
            Plan::new(it).expect("valid")
        };
        let same = plan(|_| {});
        let others: [fn(&mut PlanDraft); 9] = [
            |it| it.priority = 1,
            |it| it.timeout_ms = Some(5),
            |it| it.goals = vec!["one".to_owned()],
            |it| it.steps[0].action = call("other", json!(1)),
            |it| it.steps[0].compensate = None,
            |it| it.steps[0].on_failure = None,
            |it| it.steps[1].needs = vec!["one".to_owned()],
            |it| {
                it.steps[1].policy =
                    Policy::new(PolicyDraft { max_attempts: Some(9), ..PolicyDraft::default() })
                        .expect("valid");
            },
            |it| drop(it.steps.pop()),
        ];
        for (number, change) in others.into_iter().enumerate() {
            assert!(!same.has_shape_of(&plan(change)), "{number}");
        }
    }
}
