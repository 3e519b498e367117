//! Identical plans are kept once: by the digest of their JSON.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use sha2::{Digest as _, Sha256};
use steadfast_core::plan::Plan;

/// SHA-256 of a plan's JSON, in hexadecimal.
pub(crate) fn digest(json: &[u8]) -> String {
    Sha256::digest(json).iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The JSON that is stored of a plan, and its digest.
pub(crate) fn written(plan: &Plan) -> (String, String) {
    // Plans are made of strings, numbers and lists: there is nothing in them that is not JSON.
    let json = serde_json::to_string(plan).expect("a plan is JSON");
    let digest = digest(json.as_bytes());
    (digest, json)
}

/// Plans that jobs in memory have: jobs with the same share one.
#[derive(Debug, Default)]
pub struct Plans {
    by_digest: HashMap<String, Weak<Plan>>,
    /// Those that no job has any more are looked for at this size, which is then twice what is left.
    sweep_at: usize,
}

/// Smaller tables are not swept.
const SWEPT_FROM: usize = 64;

impl Plans {
    /// The one that others have, or this one from now on.
    pub fn shared(&mut self, plan: Arc<Plan>) -> Arc<Plan> {
        let (digest, _) = written(&plan);
        self.get(&digest).unwrap_or_else(|| self.put(digest, plan))
    }

    pub(crate) fn get(&self, digest: &str) -> Option<Arc<Plan>> {
        self.by_digest.get(digest)?.upgrade()
    }

    pub(crate) fn put(&mut self, digest: String, plan: Arc<Plan>) -> Arc<Plan> {
        if self.by_digest.len() >= self.sweep_at.max(SWEPT_FROM) {
            self.by_digest.retain(|_, plan| plan.strong_count() > 0);
            self.sweep_at = self.by_digest.len() * 2;
        }
        self.by_digest.insert(digest, Arc::downgrade(&plan));
        plan
    }
}

#[cfg(test)]
mod tests {
    use steadfast_core::plan::{Action, PlanDraft, StepDraft};
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
        assert!(plans.by_digest.len() <= 2 * SWEPT_FROM, "{}", plans.by_digest.len());
        assert!(Arc::ptr_eq(&first, &plans.shared(plan("a"))));
    }
}
