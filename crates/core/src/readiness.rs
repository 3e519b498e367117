//! Which items of a job may start now, and what keeps the others: what Tasker's `step_readiness` answers.
//!
//! Nothing is decided here. Whether an item is tried again its last verdict has said; this reads it off the state, and
//! takes what is due by `now` for what it is about to become.

mod open;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::event::{ItemId, JobState, Role, StepState};
use crate::explain::{WaitsFor, unmet, waits_for};
use crate::job::{AuxiliaryItem, Job, Phase, StepRun, StoppedItem, Timer, WorkItem};
use crate::time::Timestamp;
use crate::verdict::{StopReason, eligible};

pub use open::{OpenItems, OpenRange, OpenStep, UnderWay, open_items};

/// Of an item, or of several in a row of which nothing is kept apart: they have not started, have succeeded, or were
/// given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemReadiness {
    /// The first of them.
    pub id: ItemId,
    /// How many. None: what the step needs will say.
    pub items: Option<u32>,
    pub dependencies_satisfied: bool,
    /// All that have started. None: not kept, of items that have ended without failing.
    pub attempts: Option<u32>,
    /// Those that `max_attempts` counts. None: likewise.
    pub failures: Option<u32>,
    /// None: without limit.
    pub max_attempts: Option<u32>,
    /// By its step, or by the verdict that has given it another attempt.
    pub retryable: bool,
    pub eligible: bool,
    pub next_retry_at: Option<Timestamp>,
    /// None: it may start now.
    pub not_ready: Option<NotReady>,
}

/// Why an item may not start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    Succeeded,
    /// The step has failed before it had items.
    Failed,
    Stopped(StopReason),
    Skipped,
    Cancelled,
    Running,
    AwaitingCallback,
    /// The job is.
    Paused,
    /// `not_before` has not come.
    Pending,
    /// For steps that it needs.
    Waiting,
    BackingOff,
    /// As many items of the step run as may.
    Parallelism,
}

impl NotReady {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => StepState::Succeeded.name(),
            Self::Failed => StepState::Failed.name(),
            Self::Stopped(reason) => reason.name(),
            Self::Skipped => StepState::Skipped.name(),
            Self::Cancelled => StepState::Cancelled.name(),
            Self::Running => StepState::Running.name(),
            Self::AwaitingCallback => "awaiting_callback",
            Self::Paused => JobState::Paused.name(),
            Self::Pending => JobState::Pending.name(),
            Self::Waiting => StepState::Waiting.name(),
            Self::BackingOff => "backing_off",
            Self::Parallelism => "parallelism",
        }
    }
}

/// From that item on, in the order of runs, steps and items; a step's fallback and compensation follow its items.
pub fn readiness(
    job: &Job,
    from: ItemId,
    now: Timestamp,
) -> impl Iterator<Item = ItemReadiness> + '_ {
    let runs = (from.run..job.runs.len() as u32).flat_map(move |run| {
        let first = if run == from.run { from.step } else { 0 };
        (first..job.plan.steps().len() as u32).map(move |step| (run, step))
    });
    runs.flat_map(move |(run, step)| {
        let begin = ItemId { run, step, ..ItemId::default() };
        of_step(job, begin.max(from), now)
    })
}

fn of_step(job: &Job, from: ItemId, now: Timestamp) -> impl Iterator<Item = ItemReadiness> + '_ {
    let ItemId { run, step, .. } = from;
    let state = &job.runs[run as usize].steps[step as usize];
    let id = move |role, index| ItemId { run, step, role, index };
    let whole = (state.items == 0 && from == id(Role::Item, 0)).then(|| {
        let known = job.plan.step(step).for_each.items();
        let items = if state.state == StepState::Succeeded { Some(0) } else { known };
        of_item(job, from, items, now)
    });
    let first = if from.role == Role::Item { from.index } else { state.items };
    let items = alike(state, first).map(move |alike| {
        of_item(job, id(Role::Item, alike.start), Some(alike.end - alike.start), now)
    });
    let asides =
        [(Role::Fallback, &state.fallback), (Role::Compensation, &state.compensation)].into_iter();
    let asides = asides.filter(move |(role, aside)| *role >= from.role && aside.is_some());
    let asides = asides.map(move |(role, _)| of_item(job, id(role, 0), Some(1), now));
    whole.into_iter().chain(items).chain(asides)
}

/// The items from `first` on, those in a row of which nothing is kept apart as one.
fn alike(state: &StepRun, first: u32) -> impl Iterator<Item = Range<u32>> + '_ {
    let mut next = first;
    std::iter::from_fn(move || {
        let begin = next;
        next = end_of_alike(state, begin).min(state.items);
        (begin < state.items).then_some(begin..next)
    })
}

fn end_of_alike(state: &StepRun, index: u32) -> u32 {
    let StepRun { live, failed, carried, succeeded, .. } = state;
    if succeeded.contains(index) {
        return succeeded.next_gap(index);
    }
    let next = index.saturating_add(1);
    if live.contains_key(&index) || failed.contains_key(&index) || carried.contains_key(&index) {
        return next;
    }
    let others = [next_key(live, next), next_key(failed, next), next_key(carried, next)];
    let ends = others.into_iter().chain([succeeded.next_in(next)]).flatten();
    ends.min().unwrap_or(state.items)
}

fn next_key<V>(map: &BTreeMap<u32, V>, from: u32) -> Option<u32> {
    map.range(from..).next().map(|(&key, _)| key)
}

fn of_item(job: &Job, id: ItemId, items: Option<u32>, now: Timestamp) -> ItemReadiness {
    let state = &job.runs[id.run as usize].steps[id.step as usize];
    let policy = &job.plan.step(id.step).policy;
    let live = job.live(id);
    let end = if live.is_none() { ended(state, id) } else { None };
    let (attempts, failures) = tried(state, id, live, end.is_some());
    // A rule may retry what its step would not.
    let was_retried = live.is_some_and(|live| live.history.attempts > 0 && !live.is_under_way());
    let retryable = policy.retryable || was_retried;
    // The first attempt in this job counts as the first, also where failures are carried along.
    let counted = failures.filter(|_| attempts != Some(0)).unwrap_or(0);
    let most = policy.max_attempts.map_or(u64::MAX, u64::from);
    ItemReadiness {
        id,
        items,
        dependencies_satisfied: has_needs(job, id),
        attempts,
        failures,
        max_attempts: policy.max_attempts,
        retryable,
        eligible: eligible(counted.into(), most, retryable),
        next_retry_at: job.timer_due(&Timer::Retry(id)),
        not_ready: end.or_else(|| held_up(job, id, live.map(|live| live.phase), now)),
    }
}

/// A fallback or a compensation is there once what it follows has happened.
fn has_needs(job: &Job, id: ItemId) -> bool {
    id.role != Role::Item || unmet(job, id.run, id.step).is_empty()
}

/// Attempts and failures, as far as they are kept.
fn tried(
    state: &StepRun,
    id: ItemId,
    live: Option<&WorkItem>,
    has_ended: bool,
) -> (Option<u32>, Option<u32>) {
    let history = live.map(|live| live.history).or_else(|| Some(stopped(state, id)?.history));
    match history {
        Some(history) => (Some(history.attempts), Some(history.failures)),
        None if !has_ended => (Some(0), Some(state.carried.get(&id.index).copied().unwrap_or(0))),
        None if id.role == Role::Item && state.items <= 1 => {
            (u32::try_from(state.attempts).ok(), None)
        }
        None => (None, None),
    }
}

fn stopped(state: &StepRun, id: ItemId) -> Option<&StoppedItem> {
    match aside(state, id.role) {
        Some(AuxiliaryItem::Failed(stopped)) => Some(stopped),
        Some(_) => None,
        None => state.failed.get(&id.index),
    }
}

fn aside(state: &StepRun, role: Role) -> Option<&AuxiliaryItem> {
    match role {
        Role::Item => None,
        Role::Fallback => state.fallback.as_ref(),
        Role::Compensation => state.compensation.as_ref(),
    }
}

/// What keeps an item that has not ended.
fn held_up(job: &Job, id: ItemId, phase: Option<Phase>, now: Timestamp) -> Option<NotReady> {
    let is_due = |at: Timestamp| at <= now;
    let is_delayed = job.timer_due(&Timer::Begin).is_some_and(|at| !is_due(at));
    let is_timed_out = job.timer_due(&Timer::JobTimeout).is_some_and(is_due);
    let parallelism =
        matches!(waits_for(job, id.run, id.step, id.role), WaitsFor::Parallelism { .. });
    match phase {
        Some(Phase::Running) => Some(NotReady::Running),
        Some(Phase::AwaitingCallback) => Some(NotReady::AwaitingCallback),
        _ if is_timed_out => Some(NotReady::Stopped(StopReason::JobTimedOut)),
        _ if job.paused_at.is_some() => Some(NotReady::Paused),
        _ if is_delayed => Some(NotReady::Pending),
        _ if !has_needs(job, id) => Some(NotReady::Waiting),
        Some(Phase::BackingOff { due_at, .. }) if !is_due(due_at) => Some(NotReady::BackingOff),
        _ if parallelism => Some(NotReady::Parallelism),
        Some(Phase::Ready | Phase::BackingOff { .. }) | None => None,
    }
}

/// How an item that is not under way has ended, if it has.
fn ended(state: &StepRun, id: ItemId) -> Option<NotReady> {
    if let Some(stopped) = stopped(state, id) {
        return Some(NotReady::Stopped(stopped.reason));
    }
    match aside(state, id.role) {
        Some(AuxiliaryItem::Succeeded) => return Some(NotReady::Succeeded),
        Some(_) => return Some(NotReady::Cancelled),
        None => {}
    }
    match state.state {
        _ if state.succeeded.contains(id.index) => Some(NotReady::Succeeded),
        StepState::Waiting => None,
        StepState::Running if !state.failing() => None,
        StepState::Succeeded => Some(NotReady::Succeeded),
        StepState::Cancelled => Some(NotReady::Cancelled),
        _ if state.cancelled > 0 => Some(NotReady::Cancelled),
        StepState::Running | StepState::Failed if state.items == 0 => Some(NotReady::Failed),
        StepState::Running | StepState::Failed | StepState::Skipped => Some(NotReady::Skipped),
    }
}
