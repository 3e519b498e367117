//! What jobs that are submitted again and again have in common, and what they differ in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Action, NotBefore, OnFailure, Plan, PlanDraft, StepDraft};

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

    /// Without the steps, which a [`Plan`] has elsewhere.
    fn is_like(&self, other: &Self) -> bool {
        let Self {
            name: _,
            steps: _,
            goals,
            datacenters,
            best_effort,
            budget,
            timeout_ms,
            not_before: _,
            max_items,
            priority,
            labels: _,
            surroundings,
            spelling,
        } = self;
        *goals == other.goals
            && *datacenters == other.datacenters
            && *best_effort == other.best_effort
            && *budget == other.budget
            && *timeout_ms == other.timeout_ms
            && *max_items == other.max_items
            && *priority == other.priority
            && *surroundings == other.surroundings
            && *spelling == other.spelling
    }
}

impl Plan {
    /// What [`PlanDraft::take_arguments`] takes.
    pub fn arguments(&self) -> PlanArguments {
        let PlanDraft { name, labels, not_before, .. } = &self.draft;
        let actions = self.steps.iter().flat_map(super::Step::actions);
        let inputs = actions.filter_map(|action| match action {
            Action::Call { input, .. } => Some(input.clone()),
            Action::Run(_) | Action::Argv(_) | Action::Http(_) => None,
        });
        PlanArguments {
            name: name.clone(),
            labels: labels.clone(),
            not_before: *not_before,
            inputs: inputs.collect(),
        }
    }

    /// They differ in nothing but their arguments.
    pub fn has_shape_of(&self, other: &Self) -> bool {
        let steps = self.steps.iter().zip(&other.steps);
        self.steps.len() == other.steps.len()
            && self.draft.is_like(&other.draft)
            && steps.into_iter().all(|(step, other)| step.draft.is_like(&other.draft))
    }
}

impl StepDraft {
    fn is_like(&self, other: &Self) -> bool {
        let Self {
            name,
            action,
            needs,
            for_each,
            parallelism,
            max_failed,
            policy,
            timeout_ms,
            heartbeat_ms,
            scheduling_timeout_ms,
            on_failure,
            compensate,
            resources,
            labels,
            ports,
            surroundings,
            spelling,
            policy_sources,
        } = self;
        *name == other.name
            && action.is_like(&other.action)
            && *needs == other.needs
            && *for_each == other.for_each
            && *parallelism == other.parallelism
            && *max_failed == other.max_failed
            && *policy == other.policy
            && *timeout_ms == other.timeout_ms
            && *heartbeat_ms == other.heartbeat_ms
            && *scheduling_timeout_ms == other.scheduling_timeout_ms
            && both(on_failure.as_ref(), other.on_failure.as_ref(), OnFailure::is_like)
            && both(compensate.as_ref(), other.compensate.as_ref(), Action::is_like)
            && *resources == other.resources
            && *labels == other.labels
            && *ports == other.ports
            && *surroundings == other.surroundings
            && *spelling == other.spelling
            && *policy_sources == other.policy_sources
    }
}

impl OnFailure {
    fn is_like(&self, other: &Self) -> bool {
        let Self { action, then } = self;
        *then == other.then && both(action.as_ref(), other.action.as_ref(), Action::is_like)
    }
}

impl Action {
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Call { name, input: _ }, Self::Call { name: other, input: _ }) => name == other,
            _ => self == other,
        }
    }
}

fn both<T>(one: Option<&T>, other: Option<&T>, are_alike: fn(&T, &T) -> bool) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => are_alike(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plan::AfterFailure;
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
        assert_eq!(a_shape.take_arguments(), a.arguments());
        assert_eq!(b_shape.take_arguments(), b.arguments());
        assert_eq!(a_shape, b_shape);
        assert!(a_shape.set_arguments(b.arguments()));
        assert_eq!(a_shape, b.draft());
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
