//! What each item and step waits for, since when and until when.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::binding::{NextLimit, next_limit};
use super::words::{and, count, since, until};
use super::{ItemName, MOST_SHOWN};
use crate::account::Charges;
use crate::event::{ItemId, JobState, Role, StepState};
use crate::job::{Job, Phase, StepRun, Timer, WorkItem};
use crate::select::ItemSelector;
use crate::time::Timestamp;
use crate::verdict::Cause;

/// Something that is under way or cannot be yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// `eu-west/index[2]`, or of a whole step `eu-west/index`
    pub name: String,
    /// None: it is about a step.
    pub item: Option<ItemName>,
    #[serde(flatten)]
    pub why: WaitingReason,
    #[serde(rename = "since_ms")]
    pub since: Option<Timestamp>,
    /// When this ends at the latest; none: that is not known.
    #[serde(rename = "until_ms")]
    pub until: Option<Timestamp>,
    /// Why no worker takes it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
    /// Of an item: which limit stops it if it keeps failing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<NextLimit>,
    /// What follows the name.
    pub sentence: String,
    /// The run and the step.
    #[serde(skip)]
    pub place: (u32, u32),
}

impl Waiting {
    /// Says why no worker takes it, if that is what it waits for.
    pub(super) fn tell(&mut self, because: &str) {
        if let WaitingReason::Ready { waits_for } | WaitingReason::NotStarted { waits_for, .. } =
            self.why
            && waits_for == WaitsFor::Worker
        {
            self.sentence.push_str(&format!(": {because}"));
            self.because = Some(because.to_owned());
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.sentence)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum WaitingReason {
    BackingOff {
        cause: Cause,
        attempt: u32,
        charged: Charges,
        last_error: Option<String>,
        /// When its delay budget has run out, should it still be backing off then.
        #[serde(rename = "budget_expires_at_ms")]
        budget_expires_at: Option<Timestamp>,
        #[serde(rename = "window_ends_at_ms")]
        window_ends_at: Option<Timestamp>,
    },
    Ready {
        waits_for: WaitsFor,
    },
    /// Items of a step that have never started.
    NotStarted {
        items: u32,
        waits_for: WaitsFor,
    },
    Running {
        attempt: u32,
        worker: Option<Arc<str>>,
    },
    AwaitingCallback {
        attempt: u32,
    },
    /// A step, for others; for none if the job has not begun.
    Waiting {
        needs: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitsFor {
    Worker,
    Parallelism {
        most: u32,
        running: u32,
    },
    /// An operator's `resume`.
    Resume,
}

pub(super) fn all_steps(job: &Job) -> impl Iterator<Item = (u32, u32, &StepRun)> {
    job.runs.iter().enumerate().flat_map(|(run, state)| {
        let steps = state.steps.iter().enumerate();
        steps.map(move |(step, state)| (run as u32, step as u32, state))
    })
}

/// Its needs that are not met yet.
pub(crate) fn unmet(job: &Job, run: u32, step: u32) -> Vec<u32> {
    let met = |need: u32| {
        job.step_run(run, need).is_some_and(|need| {
            need.state == StepState::Succeeded
                || (need.state == StepState::Failed && need.continues)
        })
    };
    job.plan.step(step).needs.iter().copied().filter(|&need| !met(need)).collect()
}

/// Items that have never started.
pub(super) fn untouched(state: &StepRun) -> u32 {
    match state.state {
        StepState::Running if !state.failing() => {
            state.open_items().saturating_sub(state.live.len() as u32)
        }
        _ => 0,
    }
}

pub(crate) fn waits_for(job: &Job, run: u32, step: u32, role: Role) -> WaitsFor {
    let running = job.step_run(run, step).map_or(0, |state| state.in_flight);
    match job.plan.step(step).parallelism {
        _ if job.paused_at.is_some() => WaitsFor::Resume,
        Some(most) if role == Role::Item && running >= most => {
            WaitsFor::Parallelism { most, running }
        }
        _ => WaitsFor::Worker,
    }
}

pub(super) fn until_start(job: &Job, now: Timestamp) -> String {
    format!("{} (not_before)", until(job.starts_at, now))
}

pub(super) fn step_waits(job: &Job, run: u32, step: u32, now: Timestamp) -> String {
    if job.runs[run as usize].state == JobState::Pending {
        return format!("waits for the job, which starts {}", until_start(job, now));
    }
    let needs = unmet(job, run, step);
    format!(
        "waits for {}",
        and(needs.iter().map(|&need| format!("`{}`", job.plan.step(need).name)))
    )
}

pub(super) fn waiting(
    job: &Job,
    charged: &BTreeMap<ItemId, Charges>,
    only: ItemSelector,
    now: Timestamp,
) -> (Vec<Waiting>, u64) {
    let mut total = 0u64;
    let mut all = vec![];
    let mut keep = |waiting: &dyn Fn() -> Waiting| {
        total += 1;
        if all.len() < MOST_SHOWN {
            all.push(waiting());
        }
    };
    let is_running = |item: &WorkItem| item.is_under_way();
    let live = || job.all_live().filter(|(id, _)| only.has(*id));
    for (id, item) in live().filter(|(_, item)| !is_running(item)) {
        keep(&|| waiting_item(job, id, item, charged, now));
    }
    for (run, step, state) in all_steps(job).filter(|(run, step, _)| only.has_step(*run, *step)) {
        if state.state == StepState::Waiting {
            keep(&|| waiting_step(job, run, step, now));
        }
        if untouched(state) > 0 {
            keep(&|| not_started(job, run, step, state, now));
        }
    }
    for (id, item) in live().filter(|(_, item)| is_running(item)) {
        keep(&|| waiting_item(job, id, item, charged, now));
    }
    let left_out = total - all.len() as u64;
    (all, left_out)
}

fn waiting_step(job: &Job, run: u32, step: u32, now: Timestamp) -> Waiting {
    let pending = job.runs[run as usize].state == JobState::Pending;
    let needs = unmet(job, run, step).into_iter().map(|need| job.plan.step(need).name.clone());
    Waiting {
        name: job.plan.step_name(run, step),
        item: None,
        why: WaitingReason::Waiting { needs: if pending { vec![] } else { needs.collect() } },
        since: None,
        until: pending.then_some(job.starts_at),
        because: None,
        binding: None,
        place: (run, step),
        sentence: step_waits(job, run, step, now),
    }
}

fn not_started(job: &Job, run: u32, step: u32, state: &StepRun, now: Timestamp) -> Waiting {
    let waits_for = waits_for(job, run, step, Role::Item);
    let items = untouched(state);
    let until = job.timer_due(&Timer::Scheduling { run, step });
    let items_wait = count(items.into(), "item has not started", "items have not started");
    let queued = queued(waits_for, items > 1, until, now);
    Waiting {
        name: job.plan.step_name(run, step),
        item: None,
        why: WaitingReason::NotStarted { items, waits_for },
        since: state.starved_since,
        until,
        because: None,
        binding: None,
        place: (run, step),
        sentence: format!("{items_wait}, {queued}"),
    }
}

fn queued(waits_for: WaitsFor, many: bool, due: Option<Timestamp>, now: Timestamp) -> String {
    let waits = if many { "wait" } else { "waits" };
    match waits_for {
        WaitsFor::Worker => {
            let given_up = due.map(|at| format!(" (given up {})", until(at, now)));
            format!("{waits} for a worker{}", given_up.unwrap_or_default())
        }
        WaitsFor::Parallelism { most, running } => {
            let run = if running == 1 { "runs" } else { "run" };
            format!("{waits} for `parallelism: {most}`: {running} {run}")
        }
        WaitsFor::Resume => format!("{waits} for the job to be resumed"),
    }
}

fn waiting_item(
    job: &Job,
    id: ItemId,
    item: &WorkItem,
    charged: &BTreeMap<ItemId, Charges>,
    now: Timestamp,
) -> Waiting {
    let step = job.plan.step(id.step);
    let attempt = item.history.attempts;
    let timers = [Timer::Attempt(id, attempt), Timer::Heartbeat(id, attempt)];
    let (why, end, sentence) = match item.phase {
        Phase::AwaitingCallback => {
            let due = timers.map(|timer| job.timer_due(&timer));
            let most = due[0].map(|at| format!(", its timeout is {}", until(at, now)));
            let heard = due[1].map(|at| format!(", it must be heard of {}", until(at, now)));
            let text = format!(
                "waits {} for its callback, attempt {attempt}{}{}",
                since(item.since, now),
                most.unwrap_or_default(),
                heard.unwrap_or_default(),
            );
            (WaitingReason::AwaitingCallback { attempt }, due.into_iter().flatten().min(), text)
        }
        Phase::Running => {
            let end = job.timer_due(&timers[0]);
            let on = item.worker.as_ref().map(|worker| format!(" on {worker}")).unwrap_or_default();
            let most = end.map(|at| format!(", its timeout is {}", until(at, now)));
            let text = format!(
                "runs{on} {}, attempt {attempt}{}",
                since(item.since, now),
                most.unwrap_or_default()
            );
            (WaitingReason::Running { attempt, worker: item.worker.clone() }, end, text)
        }
        Phase::Ready => {
            let waits_for = waits_for(job, id.run, id.step, id.role);
            let due = job.timer_due(&Timer::Scheduling { run: id.run, step: id.step });
            let text =
                format!("{}, {}", queued(waits_for, false, due, now), since(item.since, now));
            (WaitingReason::Ready { waits_for }, due, text)
        }
        Phase::BackingOff { cause, due_at, budget_expires_at } => {
            let charged = charged.get(&id).copied().unwrap_or_default();
            let window_ends_at = item
                .history
                .first_failure_at
                .zip(step.policy.window_ms)
                .map(|(at, ms)| at.plus(ms));
            let last_error = item.last_error();
            let mut text = match cause {
                Cause::Failure => {
                    let error = last_error.as_deref().unwrap_or("unknown");
                    format!("backs off after failure {} ({error})", item.history.failures)
                }
                Cause::Preemption => {
                    format!(
                        "backs off after {} losses of its worker in a row",
                        item.history.losses_in_row
                    )
                }
                Cause::Deferral => format!(
                    "is deferred, {}",
                    count(item.history.deferrals.into(), "time", "times")
                ),
            };
            text.push_str(&format!(": retried {}", until(due_at, now)));
            if job.paused_at.is_some() {
                text.push_str(" or when the job is resumed");
            }
            if cause == Cause::Failure {
                let ends = [
                    ("delay budget runs out", budget_expires_at),
                    ("window closes", window_ends_at),
                ];
                for (what, at) in ends.into_iter().filter_map(|(what, at)| Some((what, at?))) {
                    text.push_str(&format!("; its {what} {}", until(at, now)));
                }
            }
            let why = WaitingReason::BackingOff {
                cause,
                attempt,
                charged,
                last_error,
                budget_expires_at,
                window_ends_at,
            };
            (why, Some(due_at), text)
        }
    };
    Waiting {
        name: job.plan.item_name(id),
        item: Some(ItemName::new(job, id)),
        why,
        since: Some(item.since),
        until: end,
        because: None,
        binding: Some(next_limit(job, id, item, now)),
        place: (id.run, id.step),
        sentence,
    }
}
