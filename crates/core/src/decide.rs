//! What happens to a job: inputs in, events out. Nothing is changed here, and nothing is guessed:
//! an input that does not fit the state is refused with the reason.
//!
//! [`decide`] answers an input; [`follow`] says what an event entails, one consequence at a time,
//! each on the state after the one before; [`advance`] runs both to the end and folds as it goes.
//! The engine, the rehearsal, recovery and every test drive jobs through [`advance`] and nothing else.

use std::sync::Arc;

use serde_json::Value;

use crate::account::Charges;
use crate::apply::{IllegalEvent, KilledAttempt, apply};
use crate::defects::{Defect, is_on};
use crate::event::{
    AcceptedJob, CompletionReason, Event, FailedOn, ItemId, JobState, RecordedEvent, Requester,
    Role, RunEnd,
};
use crate::follow::follow;
use crate::job::{Job, Phase, Timer, WorkItem};
use crate::outcome::{FailureKind, Outcome};
use crate::time::Timestamp;
use crate::verdict::{Cause, Decision, StopReason, Verdict, accounts_after, expired, verdict};

/// What a service says about how far an attempt is is recorded at most once in this time.
pub const PROGRESS_APART_MS: u64 = 1000;

/// A fact or a command that reaches a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A worker has room for this item.
    Start {
        item: ItemId,
        worker: Arc<str>,
        incarnation: Option<Arc<str>>,
        /// Its fence token is no lower: tokens that were given and are lost with a store that was put back are not given again.
        least_token: u64,
    },
    /// A worker says how an attempt ended.
    Report {
        item: ItemId,
        token: u64,
        outcome: Outcome,
    },
    /// A worker says that a service has taken an attempt, and will say how it ended.
    Awaits {
        item: ItemId,
        token: u64,
    },
    /// That service says how it ended. It may be faster than the worker's word that it has it.
    Callback {
        item: ItemId,
        token: u64,
        outcome: Outcome,
    },
    /// It says so of an attempt that is over.
    LateCallback {
        item: ItemId,
        attempt: u32,
        outcome: Outcome,
    },
    /// An attempt says how far it is.
    Progress {
        item: ItemId,
        token: u64,
        progress: Arc<Value>,
        /// Workers say it seldom by themselves, and the last word of an attempt whenever that is.
        by_callback: bool,
    },
    Fired(Timer),
    /// The engine is back; it last did anything at `down_since`.
    Restarted {
        down_since: Timestamp,
    },
    Pause(Requester),
    Resume(Requester),
    Cancel(Requester),
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
    #[error(
        "how far it is was said less than {0} ms ago; saying it so often is not worth its place in the log"
    )]
    TooOften(u64),
    #[error("the timer was set for something that is over")]
    TimerOver,
    #[error("it is too early: the timer is due at {}", .0.0)]
    TooEarly(Timestamp),
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
}

/// Takes an input to the end of its consequences. A refused input leaves the job unchanged; only
/// [`Refusal::Illegal`], which no input can cause unless this crate is wrong, leaves it unusable.
pub fn advance(job: &mut Job, input: &Input, now: Timestamp) -> Result<Transition, Refusal> {
    // A clock that went back must not make the log go back.
    let now = now.max(job.last_at);
    let decided = decide(job, input, now)?;
    let log = Vec::with_capacity(decided.len());
    let mut advanced = Transition { log, killed: vec![] };
    for event in decided {
        record(job, event, now, &mut advanced)?;
    }
    settle(job, now, &mut advanced)?;
    Ok(advanced)
}

/// What an input came to.
#[derive(Debug, Default)]
pub struct Transition {
    pub log: Vec<RecordedEvent>,
    /// Attempts that were cut off by it.
    pub killed: Vec<KilledAttempt>,
}

/// A new job, to the end of the consequences of its being accepted.
pub fn accept(accepted: AcceptedJob, now: Timestamp) -> (Job, Vec<RecordedEvent>) {
    let mut job = Job::accepted(&accepted, now);
    let event = Event::JobAccepted(Box::new(accepted));
    let log = vec![RecordedEvent { seq: 1, at: now, event }];
    let mut advanced = Transition { log, killed: vec![] };
    settle(&mut job, now, &mut advanced).expect("what follows an event fits the state after it");
    (job, advanced.log)
}

fn record(
    job: &mut Job,
    event: Event,
    at: Timestamp,
    advanced: &mut Transition,
) -> Result<(), IllegalEvent> {
    let record = RecordedEvent { seq: job.seq + 1, at, event };
    advanced.killed.extend(apply(job, &record)?);
    advanced.log.push(record);
    Ok(())
}

/// Depth first: the consequences of a consequence come before its siblings.
fn settle(job: &mut Job, now: Timestamp, advanced: &mut Transition) -> Result<(), IllegalEvent> {
    let mut open = Vec::new();
    for first in 0..advanced.log.len() {
        let mut cause = first;
        loop {
            if let Some(event) = follow(job, &advanced.log[cause].event) {
                record(job, event, now, advanced)?;
                open.push(cause);
                cause = advanced.log.len() - 1;
            } else if let Some(before) = open.pop() {
                cause = before;
            } else {
                break;
            }
        }
    }
    Ok(())
}

/// The events that an input brings about at once.
pub fn decide(job: &Job, input: &Input, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    match input {
        Input::Start { item, worker, incarnation, least_token } => {
            start(job, *item, worker, incarnation.as_ref(), *least_token)
        }
        Input::Report { item, token, outcome } => {
            let live = current(job, *item, *token)?;
            // Once a service has it, only the service knows how it ended.
            if live.phase != Phase::Running {
                return Err(Refusal::StaleFence);
            }
            Ok(end(job, *item, live, outcome.clone(), false, now))
        }
        Input::Callback { item, token, outcome } => {
            let live = current(job, *item, *token)?;
            Ok(end(job, *item, live, outcome.clone(), true, now))
        }
        Input::Awaits { item, token } => {
            let live = current(job, *item, *token)?;
            if live.phase != Phase::Running {
                return Err(Refusal::StaleFence);
            }
            let (attempt, worker) = (live.history.attempts, live.worker.clone());
            let worker = worker.unwrap_or_default();
            Ok(vec![Event::CallbackAwaited { item: *item, attempt, token: *token, worker }])
        }
        Input::LateCallback { item, attempt, outcome } => {
            let (item, attempt, outcome) = (*item, *attempt, outcome.clone());
            Ok(vec![Event::LateCallback { item, attempt, outcome }])
        }
        Input::Progress { item, token, progress, by_callback } => {
            let live = current(job, *item, *token)?;
            if *by_callback {
                not_too_often(job, *item, live, now)?;
            }
            let (item, attempt) = (*item, live.history.attempts);
            Ok(vec![Event::AttemptProgressed { item, attempt, progress: progress.clone() }])
        }
        Input::Fired(timer) => fired(job, timer, now),
        Input::Restarted { down_since } => {
            let down_since = (*down_since).min(now);
            let mut events = vec![Event::EngineRestarted { down_since }];
            if job.paused_at.is_none() {
                events.extend(overdue(job, FailedOn::Restart, down_since, now));
            }
            Ok(events)
        }
        Input::Pause(_) if job.state().is_terminal() => Err(Refusal::Ended),
        Input::Pause(_) if job.paused_at.is_some() => Err(Refusal::AlreadyPaused),
        Input::Pause(requested) => Ok(vec![Event::JobPaused { requested: requested.clone() }]),
        Input::Resume(requested) => {
            let paused_at = job.paused_at.ok_or(Refusal::NotPaused)?;
            let mut events = vec![Event::JobResumed { requested: requested.clone() }];
            events.extend(overdue(job, FailedOn::Resume, paused_at, now));
            Ok(events)
        }
        Input::Cancel(_) if job.is_over() => Err(Refusal::Ended),
        Input::Cancel(requested) => {
            let mut events = vec![Event::CancelRequested { requested: requested.clone() }];
            if job.state().is_terminal() {
                events.extend(end_runs(job, RunEnd::Cancelled));
            } else {
                let reason = CompletionReason::Cancelled;
                events.push(job_ended(job, JobState::Cancelled, reason));
            }
            Ok(events)
        }
    }
}

fn start(
    job: &Job,
    item: ItemId,
    worker: &Arc<str>,
    incarnation: Option<&Arc<str>>,
    least_token: u64,
) -> Result<Vec<Event>, Refusal> {
    let run = job.runs.get(item.run as usize).ok_or(Refusal::NotStartable)?;
    let paused = job.paused_at.is_some() && !is_on(Defect::PauseIgnored);
    if paused || !run.startable.contains(&item.step) {
        return Err(Refusal::NotStartable);
    }
    let attempt = match job.live(item) {
        Some(live) if live.phase == Phase::Ready => live.history.attempts + 1,
        None if run.steps[item.step as usize].next_startable(item.run, item.step) == Some(item) => {
            1
        }
        _ => return Err(Refusal::NotStartable),
    };
    let token = least_token.max(job.last_token + 1);
    let (worker, incarnation) = (worker.clone(), incarnation.cloned());
    Ok(vec![Event::AttemptStarted { item, attempt, token, worker, incarnation }])
}

/// The item whose attempt under way has this fence token.
fn current(job: &Job, item: ItemId, token: u64) -> Result<&WorkItem, Refusal> {
    let is_its = |live: &&WorkItem| live.token == token || is_on(Defect::NoFence);
    let live = job.live(item).filter(|live| live.is_under_way()).filter(is_its);
    live.ok_or(Refusal::StaleFence)
}

/// Each word takes its place in the log for good; a step that must be heard more often than that is
/// heard three times as often as it must.
fn not_too_often(job: &Job, item: ItemId, live: &WorkItem, now: Timestamp) -> Result<(), Refusal> {
    let heartbeat = job.plan.step(item.step).heartbeat_ms.unwrap_or(u64::MAX);
    let apart = PROGRESS_APART_MS.min(heartbeat / 3);
    let before = live.progress.as_ref().filter(|before| before.attempt == live.history.attempts);
    if before.is_some_and(|before| now.since(before.at) < apart) {
        return Err(Refusal::TooOften(apart));
    }
    Ok(())
}

fn end(
    job: &Job,
    item: ItemId,
    live: &WorkItem,
    outcome: Outcome,
    by_callback: bool,
    now: Timestamp,
) -> Vec<Event> {
    let (attempt, token) = (live.history.attempts, live.token);
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
            let error = outcome.error();
            let on = FailedOn::Outcome;
            Event::ItemFailed { item, attempt, on, reason, error, charged, accounts }
        }
    };
    let (worker, started_at) = (live.worker.clone().unwrap_or_default(), live.since);
    let ended =
        Event::AttemptEnded { item, attempt, token, worker, started_at, outcome, by_callback };
    vec![ended, verdict]
}

fn fired(job: &Job, timer: &Timer, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let due = job.timer_due(timer).ok_or(Refusal::TimerOver)?;
    if due > now && !is_on(Defect::RetryDueAtOnce) {
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
            let live = job.live(item).ok_or(Refusal::TimerOver)?;
            let outcome = match (live.phase, job.plan.timeout_ms_of(item)) {
                (Phase::AwaitingCallback, Some(timeout)) => Outcome::no_callback(timeout),
                _ => Outcome::from(FailureKind::TimedOut),
            };
            Ok(end(job, item, live, outcome, false, now))
        }
        Timer::Heartbeat(item, _) => {
            let live = job.live(item).ok_or(Refusal::TimerOver)?;
            let heartbeat = job.plan.step(item.step).heartbeat_ms.unwrap_or_default();
            Ok(end(job, item, live, Outcome::silent(heartbeat), false, now))
        }
        Timer::Scheduling { run, step } => {
            let next = job.step_run(run, step).and_then(|s| s.next_startable(run, step));
            Ok(vec![unschedulable(job, next.ok_or(Refusal::TimerOver)?)])
        }
    }
}

pub(crate) fn unschedulable(job: &Job, item: ItemId) -> Event {
    let live = job.live(item);
    let step = job.step_run(item.run, item.step).filter(|_| item.role == Role::Item);
    let before = || step.map(|step| step.history_before(item.index)).unwrap_or_default();
    let history = live.map_or_else(before, |live| live.history);
    let policy = &job.plan.step(item.step).policy;
    let shared = job.shared(item, history.attempts);
    Event::ItemFailed {
        item,
        attempt: history.attempts,
        on: FailedOn::NoWorker,
        reason: StopReason::Unschedulable,
        error: live.and_then(WorkItem::last_error),
        charged: Charges::default(),
        accounts: accounts_after(policy, &history, &shared, Charges::default(), 0),
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
        let charged = Charges::default();
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

pub(crate) fn end_runs(job: &Job, end: RunEnd) -> Vec<Event> {
    let live = job.runs.iter().enumerate().filter(|(_, run)| !run.state.is_terminal());
    live.map(|(run, _)| Event::RunEnded { run: run as u32, end }).collect()
}

pub(crate) fn succeeded_runs(job: &Job) -> u32 {
    job.runs.iter().filter(|run| run.state == JobState::Succeeded).count() as u32
}

pub(crate) fn job_ended(job: &Job, state: JobState, reason: CompletionReason) -> Event {
    let (succeeded, of) = (succeeded_runs(job), job.runs.len() as u32);
    Event::JobEnded { state, reason, succeeded, of }
}

/// The state of a best-effort job that waits no longer.
pub(crate) fn with_what_there_is(job: &Job) -> JobState {
    let min = job.plan.best_effort().map_or(job.runs.len() as u32, |best| best.min_datacenters);
    match succeeded_runs(job) {
        0 => JobState::Failed,
        some if some >= min => JobState::Succeeded,
        _ => JobState::Partial,
    }
}
