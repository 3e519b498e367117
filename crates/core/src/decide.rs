//! What happens to a job: inputs in, events out. Nothing is changed here, and nothing is guessed:
//! an input that does not fit the state is refused with the reason.
//!
//! [`decide`] answers an input; [`follow`] says what an event entails, one consequence at a time,
//! each on the state after the one before; [`advance`] runs both to the end and folds as it goes.
//! The engine, the rehearsal, recovery and every test drive jobs through [`advance`] and nothing else.

use std::sync::Arc;

use serde_json::Value;

use crate::account::Charged;
use crate::apply::{Illegal, Killed, apply};
use crate::event::{
    Accepted, CompletionReason, Event, FailedOn, ItemId, JobState, Recorded, Role, RunEnd,
    StepFailure, StepState,
};
use crate::job::{Aside, Job, Phase, Timer, WorkItem};
use crate::outcome::{FailureKind, Outcome};
use crate::plan::{AfterFailure, ForEach, LateResults, MAX_ITEMS};
use crate::time::Timestamp;
use crate::verdict::{Cause, Decision, StopReason, Verdict, accounts_after, expired, verdict};

/// A fact or a wish that reaches a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A worker has room for this item.
    Start {
        item: ItemId,
        worker: Arc<str>,
    },
    /// A worker says how an attempt ended.
    Report {
        item: ItemId,
        token: u64,
        outcome: Outcome,
    },
    Fired(Timer),
    /// The engine is back; it last did anything at `down_since`.
    Restarted {
        down_since: Timestamp,
    },
    Pause,
    Resume,
    Cancel,
}

/// Why an input has no effect. The job is as it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the job has ended")]
    Ended,
    #[error("the job is paused already")]
    AlreadyPaused,
    #[error("the job is not paused")]
    NotPaused,
    #[error("the item cannot start now")]
    NotStartable,
    #[error("the report is not about the attempt that runs (its fence token is stale)")]
    StaleFence,
    #[error("the timer was set for something that is over")]
    TimerOver,
    #[error("it is too early: the timer is due at {}", .0.0)]
    TooEarly(Timestamp),
    #[error(transparent)]
    Illegal(#[from] Illegal),
}

/// Takes an input to the end of its consequences. A refused input leaves the job unchanged; only
/// [`Refusal::Illegal`], which no input can cause unless this crate is wrong, leaves it unusable.
pub fn advance(job: &mut Job, input: &Input, now: Timestamp) -> Result<Advanced, Refusal> {
    // A clock that went back must not make the log go back.
    let now = now.max(job.last_at);
    let decided = decide(job, input, now)?;
    let mut advanced = Advanced::default();
    for event in decided {
        record(job, event, now, &mut advanced)?;
    }
    settle(job, now, &mut advanced)?;
    Ok(advanced)
}

/// What an input came to.
#[derive(Debug, Default)]
pub struct Advanced {
    pub log: Vec<Recorded>,
    /// Attempts that were cut off by it.
    pub killed: Vec<Killed>,
}

/// A new job, to the end of the consequences of its being accepted.
pub fn accept(accepted: Accepted, now: Timestamp) -> (Job, Vec<Recorded>) {
    let mut job = Job::accepted(&accepted, now);
    let event = Event::JobAccepted(Box::new(accepted));
    let log = vec![Recorded { seq: 1, at: now, event }];
    let mut advanced = Advanced { log, killed: vec![] };
    settle(&mut job, now, &mut advanced).expect("what follows an event fits the state after it");
    (job, advanced.log)
}

fn record(
    job: &mut Job,
    event: Event,
    at: Timestamp,
    advanced: &mut Advanced,
) -> Result<(), Illegal> {
    let record = Recorded { seq: job.seq + 1, at, event };
    advanced.killed.extend(apply(job, &record)?);
    advanced.log.push(record);
    Ok(())
}

/// Depth first: the consequences of a consequence come before its siblings.
fn settle(job: &mut Job, now: Timestamp, advanced: &mut Advanced) -> Result<(), Illegal> {
    let mut open = Vec::new();
    for first in 0..advanced.log.len() {
        open.push(first);
        while let Some(&cause) = open.last() {
            match follow(job, &advanced.log[cause].event) {
                Some(event) => {
                    record(job, event, now, advanced)?;
                    open.push(advanced.log.len() - 1);
                }
                None => drop(open.pop()),
            }
        }
    }
    Ok(())
}

/// The events that an input brings about at once.
pub fn decide(job: &Job, input: &Input, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    match input {
        Input::Start { item, worker } => start(job, *item, worker),
        Input::Report { item, token, outcome } => report(job, *item, *token, outcome.clone(), now),
        Input::Fired(timer) => fired(job, timer, now),
        Input::Restarted { down_since } => {
            let down_since = (*down_since).min(now);
            let mut events = vec![Event::EngineRestarted { down_since }];
            if job.paused_at.is_none() {
                events.extend(overdue(job, FailedOn::Restart, down_since, now));
            }
            Ok(events)
        }
        Input::Pause if job.state().is_terminal() => Err(Refusal::Ended),
        Input::Pause if job.paused_at.is_some() => Err(Refusal::AlreadyPaused),
        Input::Pause => Ok(vec![Event::JobPaused]),
        Input::Resume => {
            let paused_at = job.paused_at.ok_or(Refusal::NotPaused)?;
            let mut events = vec![Event::JobResumed];
            events.extend(overdue(job, FailedOn::Resume, paused_at, now));
            Ok(events)
        }
        Input::Cancel if job.is_over() => Err(Refusal::Ended),
        Input::Cancel if job.state().is_terminal() => Ok(end_runs(job, RunEnd::Cancelled)),
        Input::Cancel => Ok(vec![job_ended(job, JobState::Cancelled, CompletionReason::Cancelled)]),
    }
}

fn start(job: &Job, item: ItemId, worker: &Arc<str>) -> Result<Vec<Event>, Refusal> {
    let run = job.runs.get(item.run as usize).ok_or(Refusal::NotStartable)?;
    if job.paused_at.is_some() || !run.startable.contains(&item.step) {
        return Err(Refusal::NotStartable);
    }
    let attempt = match job.live(item) {
        Some(live) if live.phase == Phase::Ready => live.history.attempts + 1,
        None if run.steps[item.step as usize].next_startable(item.run, item.step) == Some(item) => {
            1
        }
        _ => return Err(Refusal::NotStartable),
    };
    let token = job.last_token + 1;
    Ok(vec![Event::AttemptStarted { item, attempt, token, worker: worker.clone() }])
}

fn report(
    job: &Job,
    item: ItemId,
    token: u64,
    outcome: Outcome,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    let live = job.live(item).filter(|live| live.phase == Phase::Running && live.token == token);
    let live = live.ok_or(Refusal::StaleFence)?;
    let attempt = live.history.attempts;
    let policy = &job.plan.step(item.step).policy;
    let shared = job.shared(item, attempt);
    let Verdict { decision, charged, accounts } =
        verdict(policy, &live.history, &shared, &outcome, now);
    let verdict = match decision {
        Decision::Complete => Event::ItemSucceeded { item, attempt, accounts },
        Decision::Retry { cause, delay_ms, due_at } => {
            Event::RetryScheduled { item, attempt, cause, delay_ms, due_at, charged, accounts }
        }
        Decision::Stop { reason } => {
            let error = match &outcome {
                Outcome::Failed(failure) => Some(failure.describe()),
                Outcome::Lost { .. } => Some("the worker was lost".to_owned()),
                Outcome::Succeeded { .. } => None,
            };
            let on = FailedOn::Outcome;
            Event::ItemFailed { item, attempt, on, reason, error, charged, accounts }
        }
    };
    let (worker, started_at) = (live.worker.clone().unwrap_or_default(), live.since);
    Ok(vec![Event::AttemptEnded { item, attempt, token, worker, started_at, outcome }, verdict])
}

fn fired(job: &Job, timer: &Timer, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let due = job.timer_due(timer).ok_or(Refusal::TimerOver)?;
    if due > now {
        return Err(Refusal::TooEarly(due));
    }
    match *timer {
        Timer::Begin => Ok(vec![Event::JobStarted]),
        Timer::JobTimeout if job.state().is_terminal() => Ok(end_runs(job, RunEnd::TimedOut)),
        Timer::JobTimeout => {
            let state =
                job.plan.best_effort().map_or(JobState::Failed, |_| with_what_there_is(job));
            Ok(vec![job_ended(job, state, CompletionReason::TimedOut)])
        }
        Timer::Deadline => {
            let state = with_what_there_is(job);
            Ok(vec![job_ended(job, state, CompletionReason::DeadlineExpired)])
        }
        Timer::Grace => {
            Ok(vec![job_ended(job, JobState::Succeeded, CompletionReason::MinDatacentersReached)])
        }
        Timer::Retry(item) => Ok(vec![Event::RetryDue { item }]),
        Timer::Attempt(item, _) => {
            let token = job.live(item).ok_or(Refusal::TimerOver)?.token;
            report(job, item, token, Outcome::from(FailureKind::TimedOut), now)
        }
        Timer::Scheduling { run, step } => {
            let next = job.step_run(run, step).and_then(|s| s.next_startable(run, step));
            Ok(vec![unschedulable(job, next.ok_or(Refusal::TimerOver)?)])
        }
    }
}

fn unschedulable(job: &Job, item: ItemId) -> Event {
    let live = job.live(item);
    let history = live.map(|live| live.history).unwrap_or_default();
    let policy = &job.plan.step(item.step).policy;
    let shared = job.shared(item, history.attempts);
    Event::ItemFailed {
        item,
        attempt: history.attempts,
        on: FailedOn::NoWorker,
        reason: StopReason::Unschedulable,
        error: live.and_then(WorkItem::last_error),
        charged: Charged::default(),
        accounts: accounts_after(policy, &history, &shared, Charged::default(), 0),
    }
}

/// Items that back off after a failure and whose delay budget or window ran out since `idle_since`,
/// while nothing could be done about them.
fn overdue(job: &Job, on: FailedOn, idle_since: Timestamp, now: Timestamp) -> Vec<Event> {
    let expired = job.all_live().filter_map(|(item, live)| {
        let Phase::BackingOff { cause: Cause::Failure, budget_expires_at, .. } = live.phase else {
            return None;
        };
        let policy = &job.plan.step(item.step).policy;
        let mut history = live.history;
        // A pause stops the budget's clock, a downtime does not.
        let budget_expires_at = budget_expires_at.filter(|_| on == FailedOn::Restart);
        let reason = expired(policy, &history, budget_expires_at, now)?;
        if on == FailedOn::Restart {
            history.downtime_ms += live.charged_downtime_ms(idle_since, now);
        }
        let shared = job.shared(item, history.attempts);
        let charged = Charged::default();
        Some(Event::ItemFailed {
            item,
            attempt: history.attempts,
            on,
            reason,
            error: live.last_error(),
            charged,
            accounts: accounts_after(policy, &history, &shared, charged, 0),
        })
    });
    expired.collect()
}

fn end_runs(job: &Job, end: RunEnd) -> Vec<Event> {
    let live = job.runs.iter().enumerate().filter(|(_, run)| !run.state.is_terminal());
    live.map(|(run, _)| Event::RunEnded { run: run as u32, end }).collect()
}

fn succeeded_runs(job: &Job) -> u32 {
    job.runs.iter().filter(|run| run.state == JobState::Succeeded).count() as u32
}

fn job_ended(job: &Job, state: JobState, reason: CompletionReason) -> Event {
    let (succeeded, of) = (succeeded_runs(job), job.runs.len() as u32);
    Event::JobEnded { state, reason, succeeded, of }
}

/// The state of a best-effort job that waits no longer.
fn with_what_there_is(job: &Job) -> JobState {
    let min = job.plan.best_effort().map_or(job.runs.len() as u32, |best| best.min_datacenters);
    match succeeded_runs(job) {
        0 => JobState::Failed,
        some if some >= min => JobState::Succeeded,
        _ => JobState::Partial,
    }
}

/// The next thing that `event` entails, given the state after it and after all it entailed so far.
pub fn follow(job: &Job, event: &Event) -> Option<Event> {
    match *event {
        Event::JobAccepted(_) => {
            let begins = job.state() == JobState::Pending && job.starts_at <= job.last_at;
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
            let end = match reason {
                reason if reason.leaves_runs() => return None,
                CompletionReason::TimedOut => RunEnd::TimedOut,
                _ => RunEnd::Cancelled,
            };
            end_runs(job, end).into_iter().next()
        }
        Event::JobPaused
        | Event::JobResumed
        | Event::EngineRestarted { .. }
        | Event::AttemptStarted { .. }
        | Event::AttemptEnded { .. }
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
    if state.failing || state.state != StepState::Running {
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
    if state.state != StepState::Running || !state.failing {
        return None;
    }
    let goes_on =
        job.plan.step(step).on_failure.as_ref().map(|f| f.then) == Some(AfterFailure::Continue);
    let continues = match &state.fallback {
        Some(Aside::Live(_)) => return None,
        Some(Aside::Failed(_) | Aside::Cancelled) => false,
        Some(Aside::Succeeded) | None => goes_on,
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
        let compensating =
            state.steps.iter().any(|step| matches!(step.compensation, Some(Aside::Live(_))));
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
            match found.flatten() {
                Some(Value::Array(list)) if list.len() <= MAX_ITEMS as usize => {
                    ready(list.len(), Some(list.clone().into()))
                }
                other => {
                    let place = [&[source.clone()], path.as_slice()].concat().join(".");
                    let what = match other {
                        Some(Value::Array(list)) => {
                            format!("has {} elements, more than {MAX_ITEMS}", list.len())
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
    if job.state().is_terminal() {
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
