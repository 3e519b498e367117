//! Retrying a whole job by hand: a new job that keeps what succeeded.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::event::{AcceptedJob, JobId, JobState, KeptStep, Requester, StepState};
use crate::job::{AuxiliaryItem, Job, StepRun};
use crate::plan::Plan;
use crate::policy::{Policy, Problems};

#[derive(Clone, Debug, thiserror::Error)]
pub enum CannotRetry {
    #[error("job {0} has not ended; wait for it, or cancel it first")]
    NotEnded(JobId),
    #[error("job {job} still runs in {datacenter}; wait for it, or cancel it first")]
    StillRuns { job: JobId, datacenter: String },
    #[error("job {0} has succeeded; name a step with --from to run it again from there")]
    Succeeded(JobId),
    #[error("job {job} has no step `{step}`")]
    NoSuchStep { job: JobId, step: String },
    #[error("the grant of {grant} cannot be given: {problems}")]
    Grant { grant: u32, problems: Problems },
}

/// The submission that goes on where `old` ended. `from`: that step and all that need it run again
/// even if they succeeded.
///
/// Without a grant every item that did not succeed starts anew under the same limits. With one, what
/// failed goes on where it stood, and gets `grant` more attempts and the job `grant` more retries.
pub fn retry_job(
    old: &Job,
    id: JobId,
    from: Option<&str>,
    grant: Option<u32>,
) -> Result<AcceptedJob, CannotRetry> {
    let job = || old.id.clone();
    if !old.state().is_terminal() {
        return Err(CannotRetry::NotEnded(job()));
    }
    let live = old.runs.iter().position(|run| !run.state.is_terminal());
    if let Some(datacenter) = live.and_then(|run| old.plan.datacenter(run as u32)) {
        return Err(CannotRetry::StillRuns { job: job(), datacenter: datacenter.to_owned() });
    }
    let all_succeeded = old.runs.iter().all(|run| run.state == JobState::Succeeded);
    if all_succeeded && from.is_none() {
        return Err(CannotRetry::Succeeded(job()));
    }
    let mut redo = BTreeSet::new();
    if let Some(name) = from {
        let no_such = || CannotRetry::NoSuchStep { job: job(), step: name.to_owned() };
        let step = old.plan.find(name).ok_or_else(no_such)?;
        redo.insert(step);
        redo.extend(old.plan.descendants(step));
    }
    let plan = match grant {
        None => old.plan.clone(),
        Some(grant) => {
            let granted = granted(&old.plan, grant);
            Arc::new(granted.map_err(|problems| CannotRetry::Grant { grant, problems })?)
        }
    };
    let mut kept = Vec::new();
    for (run, state) in old.runs.iter().enumerate() {
        for (step, state) in state.steps.iter().enumerate() {
            let (run, step) = (run as u32, step as u32);
            if redo.contains(&step) || undone(state) {
                continue;
            }
            kept.extend(keep(run, step, state, grant.is_some()));
        }
    }
    let spent = if grant.is_some() { old.step_retries.clone() } else { vec![] };
    let source = old.source.as_deref().cloned();
    let requested = Requester::NOBODY;
    Ok(AcceptedJob { id, plan, retried_from: Some(job()), requested, kept, spent, source })
}

/// What was compensated is no longer done.
fn undone(step: &StepRun) -> bool {
    step.state == StepState::Succeeded
        && matches!(step.compensation, Some(AuxiliaryItem::Succeeded | AuxiliaryItem::Failed(_)))
}

fn keep(run: u32, step: u32, state: &StepRun, with_failures: bool) -> Option<KeptStep> {
    let failures: Vec<(u32, u32)> = if with_failures {
        let failed = state.failed.iter().map(|(&index, stopped)| (index, stopped.history.failures));
        // Those that it had brought along itself, and that never came to their turn.
        let untouched = |index: &u32| !state.failed.contains_key(index) && *index >= state.next;
        let carried = state.carried.iter().filter(|(index, _)| untouched(index));
        failed.chain(carried.map(|(&index, &failures)| (index, failures))).collect()
    } else {
        vec![]
    };
    let outputs = state.outputs.iter().filter(|(index, _)| state.succeeded.contains(**index));
    let kept = KeptStep {
        run,
        step,
        items: state.items,
        values: state.values.clone(),
        succeeded: state.succeeded.clone(),
        outputs: outputs.map(|(&index, output)| (index, output.clone())).collect(),
        failures,
    };
    (!kept.succeeded.is_empty() || !kept.failures.is_empty()).then_some(kept)
}

fn granted(plan: &Plan, grant: u32) -> Result<Plan, Problems> {
    let mut draft = plan.draft();
    for step in &mut draft.steps {
        let mut policy = step.policy.draft().clone();
        policy.max_attempts = policy.max_attempts.map(|most| most.saturating_add(grant));
        step.policy = Policy::new(policy)?;
    }
    if let Some(budget) = &mut draft.budget {
        for share in [&mut budget.total, &mut budget.per_step].into_iter().flatten() {
            share.effective = share.effective.saturating_add(grant);
        }
        if let Some(ratio) = &mut budget.ratio {
            ratio.floor = ratio.floor.saturating_add(grant);
        }
    }
    Plan::new(draft)
}
