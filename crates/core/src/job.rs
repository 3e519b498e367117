//! The state of a job: a fold of its events, holding what decisions need and no more.
//!
//! A fan-out of a million items costs a record only for those that are under way; the untouched are
//! a number, the finished a few ranges. Only [`crate::apply`] changes any of this.

mod item;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::account::{History, SharedAccounts};
use crate::backoff::JitterSeed;
use crate::defects::{Defect, is_on};
use crate::event::{
    CompletionReason, ItemId, JobId, JobState, Requester, Role, SourceFile, StepFailure, StepState,
};
use crate::plan::{ForEach, Plan};
use crate::ranges::Ranges;
use crate::time::Timestamp;
use crate::verdict::StopReason;

pub use item::{AuxiliaryItem, Phase, Progress, StoppedItem, WorkItem};

/// `P`: the plan itself; a stored state is without it, as the plan never changes and is stored once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job<P = Arc<Plan>> {
    pub id: JobId,
    pub plan: P,
    pub retried_from: Option<JobId>,
    pub source: Option<Arc<SourceFile>>,
    /// Of the last event.
    pub seq: u64,
    pub last_at: Timestamp,
    pub accepted_at: Timestamp,
    pub starts_at: Timestamp,
    pub paused_at: Option<Timestamp>,
    /// Who paused it, as long as it is paused.
    #[serde(default, skip_serializing_if = "Requester::is_unknown")]
    pub paused_by: Requester,
    /// The request that cancelled it, or what was left of it after its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// Who asked for it to be retried, if it is a retry.
    #[serde(default, skip_serializing_if = "Requester::is_unknown")]
    pub retried_by: Requester,
    pub finished_at: Option<Timestamp>,
    pub completion: Option<Completion>,
    /// Enough datacenters have succeeded since then.
    pub min_reached_at: Option<Timestamp>,
    pub runs: Vec<Run>,
    /// Retries after failures, over all datacenters; by step in the same order as the plan's.
    pub retries: u32,
    pub step_retries: Vec<u32>,
    /// Items of which an attempt has started: what a ratio budget is a ratio of.
    pub items_started: u64,
    /// The fence: of all attempts of the job, the latest has the highest.
    pub last_token: u64,
    pub(crate) state: JobState,
}

impl<P> Job<P> {
    /// The same with this plan.
    pub fn with_plan<Q>(self, plan: Q) -> Job<Q> {
        Job {
            id: self.id,
            plan,
            retried_from: self.retried_from,
            source: self.source,
            seq: self.seq,
            last_at: self.last_at,
            accepted_at: self.accepted_at,
            starts_at: self.starts_at,
            paused_at: self.paused_at,
            paused_by: self.paused_by,
            cancel: self.cancel,
            retried_by: self.retried_by,
            finished_at: self.finished_at,
            completion: self.completion,
            min_reached_at: self.min_reached_at,
            runs: self.runs,
            retries: self.retries,
            step_retries: self.step_retries,
            items_started: self.items_started,
            last_token: self.last_token,
            state: self.state,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completion {
    pub reason: CompletionReason,
    /// Datacenters that had succeeded, of how many.
    pub succeeded: u32,
    pub of: u32,
}

/// When the job was to end, who asked for that, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    pub at: Timestamp,
    #[serde(flatten)]
    pub requested: Requester,
}

impl Completion {
    /// To four decimals, as it is shown.
    pub fn ratio(&self) -> f64 {
        (f64::from(self.succeeded) / f64::from(self.of.max(1)) * 10_000.0).round() / 10_000.0
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub(crate) state: JobState,
    pub steps: Vec<StepRun>,
    pub finished_at: Option<Timestamp>,
    /// The goal that is lost.
    pub failing: Option<u32>,
    /// Its result counts, reported before the job ended or added later.
    pub counted: bool,
    pub late: bool,
    /// Steps that are not terminal.
    pub(crate) open_steps: u32,
    /// Attempts under way.
    pub(crate) in_flight: u32,
    /// Waiting steps with nothing left to wait for.
    pub(crate) unblocked: BTreeSet<u32>,
    /// Waiting steps that need one that failed, with the first cause.
    pub(crate) doomed: BTreeMap<u32, u32>,
    /// Steps with an item that could start now.
    pub(crate) startable: BTreeSet<u32>,
    /// Succeeded steps, latest last: what there is to compensate.
    pub(crate) succeeded_in_order: Vec<u32>,
    /// A goal that failed or was skipped.
    pub(crate) lost_goal: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    pub state: StepState,
    /// Known once it is ready.
    pub items: u32,
    pub values: Option<Arc<[Value]>>,
    pub succeeded: Ranges,
    pub failed: BTreeMap<u32, StoppedItem>,
    pub skipped: u32,
    pub cancelled: u32,
    /// Of those that gave one.
    pub outputs: BTreeMap<u32, Value>,
    /// Attempts started, of its items.
    pub attempts: u64,
    pub fallback: Option<AuxiliaryItem>,
    pub compensation: Option<AuxiliaryItem>,
    /// Skipped because of that step.
    pub because: Option<u32>,
    /// What has failed it for good; nothing of it starts any more.
    pub failure: Option<StepFailure>,
    /// It failed, and what needs it goes on.
    pub continues: bool,
    /// Items under way: running, backing off, or ready again.
    pub live: BTreeMap<u32, WorkItem>,
    /// Needs that are not yet met.
    pub(crate) unmet: u32,
    /// Items from here on are untouched.
    pub(crate) next: u32,
    /// Of the live, those that could start, longest ready first.
    pub(crate) ready: BTreeSet<(Timestamp, u32)>,
    pub(crate) in_flight: u32,
    /// Since when something could start and nothing did.
    pub(crate) starved_since: Option<Timestamp>,
    /// Failures that items bring along from the job that this one retries.
    pub(crate) carried: BTreeMap<u32, u32>,
}

/// Something that will happen unless something else happens first. Timers are data: which are set
/// follows from the state, so a restart has them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timer {
    /// `not_before` has come.
    Begin,
    JobTimeout,
    Deadline,
    Grace,
    Retry(ItemId),
    /// The attempt has taken too long.
    Attempt(ItemId, u32),
    /// The service that has the attempt has been silent for too long.
    Heartbeat(ItemId, u32),
    /// Nothing of the step found a worker.
    Scheduling {
        run: u32,
        step: u32,
    },
}

impl Job {
    /// It runs from its first attempt on; until then it is pending, whatever it waits for.
    pub fn state(&self) -> JobState {
        match self.state {
            JobState::Pending | JobState::Running if self.paused_at.is_some() => JobState::Paused,
            JobState::Running if self.last_token == 0 => JobState::Pending,
            state => state,
        }
    }

    /// Likewise, of its own attempts.
    pub fn run_state(&self, run: u32) -> JobState {
        let state = &self.runs[run as usize];
        match state.state {
            JobState::Pending | JobState::Running if self.paused_at.is_some() => JobState::Paused,
            JobState::Running if !state.has_attempts() => JobState::Pending,
            state => state,
        }
    }

    /// `not_before` has come, or there was none: what is ready may start.
    pub fn has_begun(&self) -> bool {
        self.state != JobState::Pending
    }

    /// From the moment it may begin, so that `not_before` does not eat it up.
    pub fn timeout_at(&self) -> Option<Timestamp> {
        self.plan.timeout_ms().map(|ms| self.starts_at.plus(ms))
    }

    pub fn deadline_at(&self) -> Option<Timestamp> {
        self.plan.best_effort().map(|best| self.starts_at.plus(best.deadline_ms))
    }

    /// Nothing of it runs or will run.
    pub fn is_over(&self) -> bool {
        self.state.is_terminal() && self.runs.iter().all(|run| run.state.is_terminal())
    }

    pub fn step_run(&self, run: u32, step: u32) -> Option<&StepRun> {
        self.runs.get(run as usize)?.steps.get(step as usize)
    }

    /// A work item that is under way.
    pub fn live(&self, id: ItemId) -> Option<&WorkItem> {
        let step = self.step_run(id.run, id.step)?;
        let aside = match id.role {
            Role::Item => return step.live.get(&id.index),
            Role::Fallback => step.fallback.as_ref(),
            Role::Compensation => step.compensation.as_ref(),
        };
        match aside {
            Some(AuxiliaryItem::Live(item)) if id.index == 0 => Some(item),
            _ => None,
        }
    }

    /// A time in which the engine was down changes something of it: what is charged, or since when something
    /// waits for a worker.
    pub fn minds_downtime(&self) -> bool {
        let steps = self.runs.iter().flat_map(|run| &run.steps);
        self.all_live().next().is_some() || steps.into_iter().any(|s| s.starved_since.is_some())
    }

    /// Whether an attempt is under way, at a worker or at a service.
    pub fn is_in_flight(&self) -> bool {
        self.runs.iter().any(|run| run.in_flight > 0)
    }

    /// Everything under way, in order.
    pub fn all_live(&self) -> impl Iterator<Item = (ItemId, &WorkItem)> {
        self.runs.iter().enumerate().flat_map(|(run, state)| {
            state.steps.iter().enumerate().flat_map(move |(step, state)| {
                let (run, step) = (run as u32, step as u32);
                let id = move |role, index| ItemId { run, step, role, index };
                let items =
                    state.live.iter().map(move |(&index, item)| (id(Role::Item, index), item));
                let fallback = live_aside(state.fallback.as_ref(), id(Role::Fallback, 0));
                let compensation =
                    live_aside(state.compensation.as_ref(), id(Role::Compensation, 0));
                items.chain(fallback).chain(compensation)
            })
        })
    }

    /// What should start next in a run, as far as the job is concerned; workers are another matter.
    pub fn next_startable(&self, run: u32) -> Option<ItemId> {
        if self.paused_at.is_some() {
            return None;
        }
        let state = self.runs.get(run as usize)?;
        let step = *state.startable.first()?;
        state.steps[step as usize].next_startable(run, step)
    }

    /// Of every step that has something to start, what should start next.
    pub fn startable(&self) -> impl Iterator<Item = ItemId> {
        let starts = self.paused_at.is_none() || is_on(Defect::PauseIgnored);
        let runs = self.runs.iter().enumerate().filter(move |_| starts);
        runs.flat_map(|(run, state)| {
            let run = run as u32;
            let steps = state.startable.iter();
            steps.filter_map(move |&step| state.steps[step as usize].next_startable(run, step))
        })
    }

    /// The accounts that `item` shares, as a verdict on it will see them.
    pub fn shared(&self, id: ItemId, attempt: u32) -> SharedAccounts {
        let budget = self.plan.budget();
        let step = self.plan.step(id.step);
        let failing =
            id.role == Role::Item && self.runs[id.run as usize].steps[id.step as usize].failing();
        let halted = if self.state == JobState::Cancelled {
            Some(StopReason::Cancelled)
        } else {
            failing.then_some(StopReason::StepFailed)
        };
        let seed = JitterSeed::new(&self.id, self.plan.datacenter(id.run), &step.name);
        // Asides draw from the far end, so that they do not wait in step with the items.
        let draw_index = match id.role {
            Role::Item => id.index,
            Role::Fallback => u32::MAX,
            Role::Compensation => u32::MAX - 1,
        };
        SharedAccounts {
            job_retries: self.retries,
            job_budget: budget.and_then(|budget| budget.total_at(self.items_started)),
            step_retries: self.step_retries[id.step as usize],
            step_budget: budget.and_then(crate::plan::Budget::per_step),
            budgeted: budget.map(|budget| budget.counts),
            timeout_at: self.timeout_at(),
            halted,
            draw: seed.draw(draw_index, attempt),
        }
    }

    /// When a timer is due. None: what it was set for is over. It can be later than it was set.
    pub fn timer_due(&self, timer: &Timer) -> Option<Timestamp> {
        let live_run = self.runs.iter().any(|run| !run.state.is_terminal());
        match *timer {
            Timer::Begin => (self.state == JobState::Pending).then_some(self.starts_at),
            Timer::JobTimeout => self.timeout_at().filter(|_| live_run),
            Timer::Deadline => self.deadline_at().filter(|_| !self.state.is_terminal()),
            Timer::Grace => {
                let grace = self.plan.best_effort()?.grace_ms;
                self.min_reached_at
                    .filter(|_| !self.state.is_terminal())
                    .map(|reached| reached.plus(grace))
            }
            Timer::Retry(id) => match self.live(id)?.phase {
                Phase::BackingOff { due_at, .. } => Some(due_at),
                _ => None,
            },
            Timer::Attempt(id, attempt) => {
                let timeout = self.plan.timeout_ms_of(id)?;
                let item = self.live(id)?;
                let running = item.is_under_way() && item.history.attempts == attempt;
                running.then(|| item.since.plus(timeout))
            }
            Timer::Heartbeat(id, attempt) => {
                let heartbeat = self.plan.step(id.step).heartbeat_ms?;
                let item = self.live(id)?;
                let waits = item.phase == Phase::AwaitingCallback;
                (waits && item.history.attempts == attempt).then(|| item.heard_at().plus(heartbeat))
            }
            Timer::Scheduling { run, step } => {
                if self.paused_at.is_some() {
                    return None;
                }
                let starved = self.step_run(run, step)?.starved_since?;
                Some(starved.plus(self.plan.step(step).scheduling_timeout_ms?))
            }
        }
    }

    /// All timers that are set: what a restart begins with.
    pub fn timers(&self) -> Vec<(Timestamp, Timer)> {
        let job = [Timer::Begin, Timer::JobTimeout, Timer::Deadline, Timer::Grace];
        let items = self.all_live().flat_map(|(id, item)| {
            let attempt = item.history.attempts;
            [Timer::Retry(id), Timer::Attempt(id, attempt), Timer::Heartbeat(id, attempt)]
        });
        let steps = self.runs.iter().enumerate().flat_map(|(run, state)| {
            let run = run as u32;
            state.startable.iter().map(move |&step| Timer::Scheduling { run, step })
        });
        let all = job.into_iter().chain(items).chain(steps);
        let mut due: Vec<_> =
            all.filter_map(|timer| Some((self.timer_due(&timer)?, timer))).collect();
        due.sort_unstable();
        due
    }

    /// The value of an item, as `{{ item }}` has it.
    pub fn item_value(&self, id: ItemId) -> Option<Value> {
        let values = match &self.plan.step(id.step).for_each {
            ForEach::Once => return None,
            ForEach::Range(_) => return Some(Value::from(id.index)),
            ForEach::List(values) => values,
            ForEach::Output { .. } => self.step_run(id.run, id.step)?.values.as_ref()?,
        };
        values.get(id.index as usize).cloned()
    }

    /// The value of an item whose number does not tell it: not that of a range.
    pub fn telling_value(&self, id: ItemId) -> Option<Value> {
        let counted = matches!(self.plan.step(id.step).for_each, ForEach::Range(_));
        self.item_value(id).filter(|_| id.role == Role::Item && !counted)
    }

    /// What a step gave: its output, or of a fan-out the list of them, in order.
    pub fn output(&self, run: u32, step: u32) -> Option<Value> {
        let state = self.step_run(run, step)?;
        if self.plan.step(step).for_each == ForEach::Once {
            return state.outputs.get(&0).cloned();
        }
        let output = |index| state.outputs.get(&index).cloned().unwrap_or(Value::Null);
        Some((0..state.items).map(output).collect())
    }
}

fn live_aside(aside: Option<&AuxiliaryItem>, id: ItemId) -> Option<(ItemId, &WorkItem)> {
    match aside {
        Some(AuxiliaryItem::Live(item)) => Some((id, item)),
        _ => None,
    }
}

impl Run {
    pub(crate) fn is_live(&self) -> bool {
        self.state == JobState::Running
    }

    fn has_attempts(&self) -> bool {
        let aside_tried = |aside: &Option<AuxiliaryItem>| match aside {
            Some(AuxiliaryItem::Live(item)) => item.history.attempts > 0,
            Some(AuxiliaryItem::Succeeded | AuxiliaryItem::Failed(_)) => true,
            Some(AuxiliaryItem::Cancelled) | None => false,
        };
        self.steps.iter().any(|step| {
            step.attempts > 0 || aside_tried(&step.fallback) || aside_tried(&step.compensation)
        })
    }
}

impl StepRun {
    /// Since when something of it could start and nothing did.
    pub fn waits_since(&self) -> Option<Timestamp> {
        self.starved_since
    }

    /// Which of its items should start next, if it could start now.
    pub(crate) fn next_startable(&self, run: u32, step: u32) -> Option<ItemId> {
        let id = |role, index| Some(ItemId { run, step, role, index });
        let is_ready = |aside: &Option<AuxiliaryItem>| matches!(aside, Some(AuxiliaryItem::Live(item)) if item.phase == Phase::Ready);
        if is_ready(&self.compensation) {
            return id(Role::Compensation, 0);
        }
        if is_ready(&self.fallback) {
            return id(Role::Fallback, 0);
        }
        if self.state != StepState::Running || self.failing() {
            return None;
        }
        if let Some(&(_, index)) = self.ready.first() {
            return id(Role::Item, index);
        }
        (self.next < self.items).then_some(ItemId { run, step, role: Role::Item, index: self.next })
    }

    pub fn failing(&self) -> bool {
        self.failure.is_some()
    }

    /// What an item that was not touched yet has been through: in the job that this one retries.
    pub(crate) fn history_before(&self, index: u32) -> History {
        let carried = self.carried.get(&index).filter(|_| !is_on(Defect::CarriedFailuresLost));
        let failures = carried.copied().unwrap_or(0);
        History { failures, ..History::default() }
    }

    /// Items that have neither succeeded nor failed nor been given up.
    pub fn open_items(&self) -> u32 {
        self.items
            .saturating_sub(self.succeeded.len())
            .saturating_sub(self.failed.len() as u32)
            .saturating_sub(self.skipped)
            .saturating_sub(self.cancelled)
    }
}
