//! How the state begins: a job that was accepted, its runs pending, its steps waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::{AcceptedJob, JobState, Requester, StepState};
use crate::job::{Job, Run, StepRun};
use crate::plan::{NotBefore, Plan};
use crate::ranges::Ranges;
use crate::time::Timestamp;

impl Job {
    /// The state after its first event.
    pub fn accepted(accepted: &AcceptedJob, at: Timestamp) -> Self {
        let plan = accepted.plan.clone();
        let starts_at = match plan.not_before() {
            None => at,
            Some(NotBefore::At(time)) => time.max(at),
            Some(NotBefore::InMs(ms)) => at.plus(ms),
        };
        let mut runs: Vec<Run> = (0..plan.runs()).map(|_| Run::pending(&plan)).collect();
        for kept in &accepted.kept {
            let step = &mut runs[kept.run as usize].steps[kept.step as usize];
            step.items = kept.items;
            step.values.clone_from(&kept.values);
            step.succeeded = kept.succeeded.clone();
            step.outputs = kept.outputs.iter().cloned().collect();
            step.carried = kept.failures.iter().copied().collect();
        }
        Self {
            id: accepted.id.clone(),
            retried_from: accepted.retried_from.clone(),
            source: accepted.source.clone().map(Arc::new),
            seq: 1,
            last_at: at,
            accepted_at: at,
            starts_at,
            paused_at: None,
            paused_by: Requester::NOBODY,
            cancel: None,
            retried_by: accepted.requested.clone(),
            finished_at: None,
            completion: None,
            min_reached_at: None,
            runs,
            retries: accepted.spent.iter().sum(),
            step_retries: {
                let mut spent = accepted.spent.clone();
                spent.resize(plan.steps().len(), 0);
                spent
            },
            items_started: 0,
            last_token: 0,
            state: JobState::Pending,
            plan,
        }
    }
}

impl Run {
    fn pending(plan: &Plan) -> Self {
        let steps: Vec<StepRun> =
            plan.steps().iter().map(|step| StepRun::waiting(step.needs.len() as u32)).collect();
        Self {
            state: JobState::Pending,
            open_steps: steps.len() as u32,
            unblocked: (0..steps.len() as u32).filter(|&s| steps[s as usize].unmet == 0).collect(),
            steps,
            finished_at: None,
            failing: None,
            counted: false,
            late: false,
            in_flight: 0,
            doomed: BTreeMap::new(),
            startable: BTreeSet::new(),
            succeeded_in_order: vec![],
            lost_goal: None,
        }
    }
}

impl StepRun {
    fn waiting(unmet: u32) -> Self {
        Self {
            state: StepState::Waiting,
            items: 0,
            values: None,
            succeeded: Ranges::default(),
            failed: BTreeMap::new(),
            skipped: 0,
            cancelled: 0,
            outputs: BTreeMap::new(),
            attempts: 0,
            fallback: None,
            compensation: None,
            because: None,
            failure: None,
            continues: false,
            live: BTreeMap::new(),
            unmet,
            next: 0,
            ready: BTreeSet::new(),
            in_flight: 0,
            starved_since: None,
            carried: BTreeMap::new(),
        }
    }
}
