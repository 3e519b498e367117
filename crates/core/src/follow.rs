//! What an event entails: a step that is done, a run that has lost a goal, a job that has enough.
//!
//! One consequence at a time, each on the state after the one before, so that none is ever stale.

use serde_json::Value;

use crate::decide::{end_runs, job_ended, succeeded_runs, unschedulable, with_what_there_is};
use crate::defects::{Defect, is_on};
use crate::event::{
    CompletionReason, Event, FailedOn, ItemId, JobState, Role, RunEnd, StepFailure, StepState,
};
use crate::job::{AuxiliaryItem, Job, Timer};
use crate::plan::{AfterFailure, ForEach, LateResults};

/// The next thing that `event` entails, given the state after it and after all it entailed so far.
pub fn follow(job: &Job, event: &Event) -> Option<Event> {
    match *event {
        Event::JobAccepted(_) => {
            let begins = !job.has_begun() && job.starts_at <= job.last_at;
            begins.then_some(Event::JobStarted)
        }
        Event::JobStarted => (0..job.runs.len() as u32).find_map(|run| after_step(job, run)),
        Event::ItemFailed { item, on, .. } => after_item(job, item)
            .or_else(|| (on == FailedOn::NoWorker).then(|| after_starving(job, item)).flatten()),
        Event::ItemSucceeded { item, .. } => after_item(job, item),
        Event::StepReady { run, step, .. } => after_items(job, run, step),
        Event::StepFailing { run, step, .. } => after_failing(job, run, step),
        Event::StepSucceeded { run, .. }
        | Event::StepFailed { run, .. }
        | Event::StepSkipped { run, .. }
        | Event::RunFailing { run, .. } => after_step(job, run),
        Event::RunEnded { run, .. } => after_run(job, run),
        Event::MinDatacentersReached => {
            let grace = job.plan.best_effort()?.grace_ms;
            (grace == 0 && !job.state().is_terminal()).then(|| {
                job_ended(job, JobState::Succeeded, CompletionReason::MinDatacentersReached)
            })
        }
        Event::JobEnded { reason, .. } => {
            let is_held_back = job.paused_at.is_some() && !is_on(Defect::PausedRunsLeft);
            let end = match reason {
                // Nobody resumes a job that has ended: what a pause holds back would wait for ever.
                reason if reason.leaves_runs() && !is_held_back => return None,
                CompletionReason::TimedOut => RunEnd::TimedOut,
                _ => RunEnd::Cancelled,
            };
            end_runs(job, end).into_iter().next()
        }
        Event::JobPaused { .. }
        | Event::JobResumed { .. }
        | Event::CancelRequested { .. }
        | Event::EngineRestarted { .. }
        | Event::AttemptStarted { .. }
        | Event::AttemptProgressed { .. }
        | Event::CallbackAwaited { .. }
        | Event::AttemptEnded { .. }
        | Event::LateCallback { .. }
        | Event::RetryScheduled { .. }
        | Event::RetryDue { .. }
        | Event::LateDatacenterResult { .. } => None,
    }
}

fn after_item(job: &Job, item: ItemId) -> Option<Event> {
    let state = job.step_run(item.run, item.step)?;
    match item.role {
        Role::Item if state.state.is_terminal() => after_step(job, item.run),
        Role::Item => after_items(job, item.run, item.step),
        Role::Fallback if state.state.is_terminal() => None,
        Role::Fallback => after_failing(job, item.run, item.step),
        Role::Compensation => after_step(job, item.run),
    }
}

/// The step as a whole, once some of its items have ended.
fn after_items(job: &Job, run: u32, step: u32) -> Option<Event> {
    let state = job.step_run(run, step)?;
    if state.failing() || state.state != StepState::Running {
        return None;
    }
    let tolerated = job.plan.step(step).max_failed.of(state.items);
    if state.failed.len() as u32 > tolerated {
        let last = *state.failed.last_key_value()?.0;
        return Some(Event::StepFailing { run, step, because: StepFailure::Item(last) });
    }
    (state.open_items() == 0).then_some(Event::StepSucceeded { run, step })
}

/// No worker came for one item in time: none came for those behind it either.
fn after_starving(job: &Job, item: ItemId) -> Option<Event> {
    let timer = Timer::Scheduling { run: item.run, step: item.step };
    if job.timer_due(&timer)? > job.last_at {
        return None;
    }
    let state = job.step_run(item.run, item.step)?;
    Some(unschedulable(job, state.next_startable(item.run, item.step)?))
}

fn after_failing(job: &Job, run: u32, step: u32) -> Option<Event> {
    let state = job.step_run(run, step)?;
    if state.state != StepState::Running || !state.failing() {
        return None;
    }
    let goes_on =
        job.plan.step(step).on_failure.as_ref().map(|f| f.then) == Some(AfterFailure::Continue);
    let continues = match &state.fallback {
        Some(AuxiliaryItem::Live(_)) => return None,
        Some(AuxiliaryItem::Failed(_) | AuxiliaryItem::Cancelled) => false,
        Some(AuxiliaryItem::Succeeded) | None => goes_on,
    };
    Some(Event::StepFailed { run, step, continues })
}

/// The run as a whole, once something in it has ended.
fn after_step(job: &Job, run: u32) -> Option<Event> {
    let state = job.runs.get(run as usize)?;
    if !state.is_live() {
        return None;
    }
    if state.failing.is_some() {
        let compensating = state
            .steps
            .iter()
            .any(|step| matches!(step.compensation, Some(AuxiliaryItem::Live(_))));
        return (!compensating).then_some(Event::RunEnded { run, end: RunEnd::Failed });
    }
    if let Some((&step, &because)) = state.doomed.first_key_value() {
        return Some(Event::StepSkipped { run, step, because });
    }
    if let Some(because) = state.lost_goal {
        return Some(Event::RunFailing { run, because });
    }
    if let Some(&step) = state.unblocked.first() {
        return Some(unblock(job, run, step));
    }
    let done = state.open_steps == 0 && state.in_flight == 0;
    done.then_some(Event::RunEnded { run, end: RunEnd::Succeeded })
}

fn unblock(job: &Job, run: u32, step: u32) -> Event {
    let ready = |items: usize, values| Event::StepReady { run, step, items: items as u32, values };
    match &job.plan.step(step).for_each {
        ForEach::Once => ready(1, None),
        ForEach::List(list) => ready(list.len(), None),
        ForEach::Range(count) => ready(*count as usize, None),
        ForEach::Output { step: source, path } => {
            let output = job.plan.find(source).and_then(|source| job.output(run, source));
            let found = path.iter().try_fold(output.as_ref(), |value, key| {
                value.map(|value| value.get(key)).map_or(Some(None), Some)
            });
            let most = job.plan.max_items();
            match found.flatten() {
                Some(Value::Array(list)) if list.len() <= most as usize => {
                    ready(list.len(), Some(list.clone().into()))
                }
                other => {
                    let place = [std::slice::from_ref(source), path.as_slice()].concat().join(".");
                    let what = match other {
                        Some(Value::Array(list)) => {
                            format!("has {} elements, more than {most}", list.len())
                        }
                        None => "is missing".to_owned(),
                        Some(_) => "is not a list".to_owned(),
                    };
                    let because = StepFailure::FanOut(format!("the output `{place}` {what}"));
                    Event::StepFailing { run, step, because }
                }
            }
        }
    }
}

/// The job as a whole, once a run of it has ended.
fn after_run(job: &Job, run: u32) -> Option<Event> {
    let ended = &job.runs[run as usize];
    if job.state().is_terminal() && !is_on(Defect::LateResultApplied) {
        let leaves = job.completion.is_some_and(|completion| completion.reason.leaves_runs());
        let news = leaves && !ended.late && !ended.counted && ended.state != JobState::Cancelled;
        let late_results = job.plan.best_effort().map(|best| best.late_results);
        let added =
            ended.state == JobState::Succeeded && late_results == Some(LateResults::UpdateResult);
        return news.then_some(Event::LateDatacenterResult { run, added });
    }
    let all_reported = job.runs.iter().all(|run| run.state.is_terminal());
    let Some(best_effort) = job.plan.best_effort() else {
        return match ended.state {
            JobState::Failed => Some(job_ended(job, JobState::Failed, CompletionReason::RunFailed)),
            _ if all_reported => {
                Some(job_ended(job, JobState::Succeeded, CompletionReason::AllReported))
            }
            _ => None,
        };
    };
    if all_reported {
        return Some(job_ended(job, with_what_there_is(job), CompletionReason::AllReported));
    }
    let reached = succeeded_runs(job) >= best_effort.min_datacenters;
    (reached && job.min_reached_at.is_none()).then_some(Event::MinDatacentersReached)
}
