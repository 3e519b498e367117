//! Plans of the same shape are stored once: by the digest of their JSON, without what their jobs differ in.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use steadfast_core::plan::{Plan, PlanArguments, PlanDraft};

/// SHA-256 of a shape's JSON, in hexadecimal.
pub(crate) fn digest(json: &[u8]) -> String {
    Sha256::digest(json).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// What a job's first event has instead of its plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlanRef {
    /// The digest of the plan without its arguments.
    pub(crate) shape: String,
    #[serde(flatten)]
    arguments: PlanArguments,
}

impl PlanRef {
    /// And the JSON of the shape.
    pub(crate) fn new(plan: &Plan) -> (Self, String) {
        let mut shape = plan.draft();
        let arguments = shape.take_arguments();
        // Plans are made of strings, numbers and lists: there is nothing in them that is not JSON.
        let json = serde_json::to_string(&shape).expect("a plan is JSON");
        (Self { shape: digest(json.as_bytes()), arguments }, json)
    }

    pub(crate) fn plan(&self, shape: &str) -> Result<Plan, String> {
        let mut draft: PlanDraft =
            serde_json::from_str(shape).map_err(|error| error.to_string())?;
        if !draft.set_arguments(self.arguments.clone()) {
            return Err("it has other inputs than its job".to_owned());
        }
        Plan::new(draft).map_err(|problems| problems.to_string())
    }

    /// Jobs with the same have the same plan.
    pub(crate) fn key(&self) -> String {
        serde_json::to_string(self).expect("a reference is JSON")
    }
}

/// Plans that jobs in memory have: jobs with the same share one.
#[derive(Debug, Default)]
pub struct Plans {
    by_key: HashMap<String, Weak<Plan>>,
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

    fn calls(name: &str, input: Value) -> Plan {
        let call = |input| Action::Call { name: "resize".to_owned(), input };
        let mut one = StepDraft::new("one", call(input), Policy::default());
        one.compensate = Some(call(json!({ "undo": name })));
        let two = StepDraft::new("two", Action::Run("true".to_owned()), Policy::default());
        Plan::new(PlanDraft::new(name, vec![one, two])).expect("valid")
    }

    #[test]
    fn plans_that_differ_in_their_names_and_inputs_have_one_shape() {
        let plans = [calls("a", json!(null)), calls("b", json!({ "file": "cat.png" }))];
        let [(a, shape), (b, same)] = plans.each_ref().map(PlanRef::new);
        assert_eq!((&a.shape, &shape), (&b.shape, &same));
        assert_ne!(a.key(), b.key());
        for (plan, stored) in plans.iter().zip([&a, &b]) {
            let text = serde_json::to_string(stored).expect("JSON");
            let read: PlanRef = serde_json::from_str(&text).expect("as it was written");
            assert_eq!(read.plan(&shape).as_ref(), Ok(plan));
        }
        let (other, _) = PlanRef::new(&plan("c"));
        assert!(other.plan(&shape).is_err(), "it has no inputs");
        let (_, small) = PlanRef::new(&plan("c"));
        assert!(a.plan(&small).is_err(), "there is nothing to give inputs to");
    }
}
