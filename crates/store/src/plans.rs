//! Plans of the same shape are stored once: by the digest of their JSON, without what their jobs differ in.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use sha2::{Digest as _, Sha256};
use steadfast_core::hex::hex;
use steadfast_core::plan::{Plan, PlanArguments, PlanDraft};

use crate::events::is_too_deep;

/// SHA-256 of a shape's JSON, in hexadecimal.
pub(crate) fn digest(json: &[u8]) -> String {
    hex(&Sha256::digest(json))
}

/// The shape of a plan, as it is stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) digest: String,
    pub(crate) json: String,
    pub(crate) is_too_deep: bool,
}

impl Shape {
    pub(crate) fn of(plan: &Plan) -> Self {
        let mut shape = plan.draft();
        shape.take_arguments();
        // Plans are made of strings, numbers and lists: there is nothing in them that is not JSON.
        let json = serde_json::to_string(&shape).expect("a plan is JSON");
        Self { digest: digest(json.as_bytes()), is_too_deep: is_too_deep(&json), json }
    }
}

/// A shape as it is stored: a plan whose arguments are nothing.
fn read_shape(json: &str) -> Result<Plan, String> {
    let draft: PlanDraft = serde_json::from_str(json).map_err(|error| error.to_string())?;
    Plan::new(draft).map_err(|problems| problems.to_string())
}

/// The plan of a job: a shape with the job's arguments.
pub(crate) fn with_arguments(shape: &Plan, arguments: PlanArguments) -> Result<Plan, String> {
    shape.with_arguments(arguments).ok_or_else(|| "it has other inputs than its job".to_owned())
}

/// Shapes of the last different plans: most jobs have one of these.
#[derive(Debug, Default)]
pub(crate) struct RecentShapes(VecDeque<(Arc<Plan>, Arc<Shape>)>);

const RECENT_SHAPES: usize = 16;

impl RecentShapes {
    pub(crate) fn of(&mut self, plan: &Arc<Plan>) -> Arc<Shape> {
        let is_known = |(known, _): &(Arc<Plan>, _)| known.has_shape_of(plan);
        if let Some(at) = self.0.iter().position(is_known) {
            self.0.swap(0, at);
            return self.0[0].1.clone();
        }
        let shape = Arc::new(Shape::of(plan));
        self.0.truncate(RECENT_SHAPES - 1);
        self.0.push_front((plan.clone(), shape.clone()));
        shape
    }
}

/// Plans that jobs in memory have: jobs with the same share one.
#[derive(Debug, Default)]
pub struct Plans {
    by_key: HashMap<String, Weak<Plan>>,
    /// The last ones that were read, by their digests.
    shapes: VecDeque<(String, Plan)>,
    /// Those that no job has any more are looked for at this size, which is then twice what is left.
    sweep_at: usize,
}

/// Smaller tables are not swept.
const SWEPT_FROM: usize = 64;

impl Plans {
    /// The one that the last job of this name had, if it is the same, or this one from now on.
    pub fn shared(&mut self, plan: Arc<Plan>) -> Arc<Plan> {
        match self.get(plan.name()) {
            Some(last) if Arc::ptr_eq(&last, &plan) || last == plan => last,
            _ => self.put(plan.name().to_owned(), plan),
        }
    }

    /// `read`: its JSON, if it was not read lately.
    pub(crate) fn shape<E>(
        &mut self,
        digest: &str,
        read: impl FnOnce() -> Result<Result<String, String>, E>,
    ) -> Result<Result<&Plan, String>, E> {
        if let Some(at) = self.shapes.iter().position(|(known, _)| known == digest) {
            self.shapes.swap(0, at);
        } else {
            match read()?.and_then(|json| read_shape(&json)) {
                Ok(shape) => self.shapes.push_front((digest.to_owned(), shape)),
                Err(why) => return Ok(Err(why)),
            }
            self.shapes.truncate(RECENT_SHAPES);
        }
        Ok(Ok(&self.shapes[0].1))
    }

    pub(crate) fn get(&self, key: &str) -> Option<Arc<Plan>> {
        self.by_key.get(key)?.upgrade()
    }

    pub(crate) fn put(&mut self, key: String, plan: Arc<Plan>) -> Arc<Plan> {
        if self.by_key.len() >= self.sweep_at.max(SWEPT_FROM) {
            self.by_key.retain(|_, plan| plan.strong_count() > 0);
            self.sweep_at = self.by_key.len() * 2;
        }
        self.by_key.insert(key, Arc::downgrade(&plan));
        plan
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use steadfast_core::plan::{Action, StepDraft};
    use steadfast_core::policy::Policy;

    use super::*;

    fn plan(name: &str) -> Arc<Plan> {
        let step = StepDraft::new("s", Action::Run("true".to_owned()), Policy::default());
        Arc::new(Plan::new(PlanDraft::new(name, vec![step])).expect("valid"))
    }

    #[test]
    fn the_same_plan_is_held_once_and_one_that_no_job_has_is_forgotten() {
        let mut plans = Plans::default();
        let first = plans.shared(plan("a"));
        assert!(Arc::ptr_eq(&first, &plans.shared(plan("a"))));
        assert!(!Arc::ptr_eq(&first, &plans.shared(plan("b"))));
        for n in 0..10_000 {
            plans.shared(plan(&format!("job-{n}")));
        }
        assert!(plans.by_key.len() <= 2 * SWEPT_FROM, "{}", plans.by_key.len());
        assert!(Arc::ptr_eq(&first, &plans.shared(plan("a"))));
    }

    fn calls(name: &str, input: Value) -> Arc<Plan> {
        let call = Action::Call { name: "resize".to_owned(), input };
        let step = StepDraft::new("one", call, Policy::default());
        Arc::new(Plan::new(PlanDraft::new(name, vec![step])).expect("valid"))
    }

    #[test]
    fn plans_that_differ_in_their_arguments_have_one_shape() {
        let plans = [calls("a", json!(null)), calls("b", json!({ "file": "cat.png" }))];
        let mut recent = RecentShapes::default();
        let [a, b] = plans.each_ref().map(|plan| recent.of(plan));
        assert!(Arc::ptr_eq(&a, &b));
        let read = |shape: &Shape| read_shape(&shape.json).expect("a plan");
        for plan in &plans {
            assert_eq!(Shape::of(plan), *a);
            let arguments = plan.arguments().clone();
            assert_eq!(with_arguments(&read(&a), arguments).as_ref(), Ok(&**plan));
        }
        let other = plan("c");
        let arguments = other.arguments().clone();
        assert!(with_arguments(&read(&a), arguments).is_err(), "it has no inputs");
        let small = recent.of(&other);
        assert_ne!(small.digest, a.digest);
        assert!(
            with_arguments(&read(&small), plans[0].arguments().clone()).is_err(),
            "nothing takes them"
        );
        for number in 0..100 {
            let mut it = other.draft();
            it.priority = number;
            recent.of(&Arc::new(Plan::new(it).expect("valid")));
        }
        assert_eq!(recent.0.len(), RECENT_SHAPES);
        assert_eq!(*recent.of(&plans[1]), *a, "forgotten, and made again");
    }
}
