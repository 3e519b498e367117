//! What of a job has not ended, as far as time does not matter: a store keeps it beside the job, and its SQL says at any
//! moment what [`readiness`](super::readiness) says of these items.
//!
//! A fan-out costs as much as it has under way, not as many items as it has.

use serde::ser::SerializeTuple as _;
use serde::{Serialize, Serializer};

use super::{alike, ended, has_needs, tried};
use crate::event::{ItemId, Role, StepState};
use crate::explain::{WaitsFor, waits_for};
use crate::job::{AuxiliaryItem, Job, Phase, StepRun, Timer};
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenItems<'a> {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_out_at: Option<Timestamp>,
    pub steps: Vec<OpenStep<'a>>,
}

/// A step's items, its fallback or its compensation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpenStep<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datacenter: Option<&'a str>,
    pub step: &'a str,
    #[serde(skip_serializing_if = "is_item")]
    pub role: Role,
    /// For steps that it needs.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub waiting: bool,
    /// As many items of it run as may.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// None: without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// By its policy.
    pub retryable: bool,
    pub items: Vec<OpenRange>,
}

/// Items in a row that have been through the same. Written as a list, without what is none or 0 at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenRange {
    pub first: u32,
    /// None: what the step needs will say.
    pub items: Option<u32>,
    pub attempts: u32,
    pub failures: u32,
    pub under_way: Option<UnderWay>,
    pub next_retry_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnderWay {
    Running,
    AwaitingCallback,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the shape serde wants
fn is_item(role: &Role) -> bool {
    *role == Role::Item
}

impl Serialize for OpenRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { first, items, attempts, failures, under_way, next_retry_at } = self;
        let length = match self {
            Self { next_retry_at: Some(_), .. } => 6,
            Self { under_way: Some(_), .. } => 5,
            Self { failures: 1.., .. } => 4,
            Self { attempts: 1.., .. } => 3,
            _ => 2,
        };
        let mut list = serializer.serialize_tuple(length)?;
        list.serialize_element(first)?;
        list.serialize_element(items)?;
        if length > 2 {
            list.serialize_element(attempts)?;
        }
        if length > 3 {
            list.serialize_element(failures)?;
        }
        if length > 4 {
            list.serialize_element(under_way)?;
        }
        if length > 5 {
            list.serialize_element(next_retry_at)?;
        }
        list.end()
    }
}

/// In the order of [`readiness`](super::readiness).
pub fn open_items(job: &Job) -> OpenItems<'_> {
    let mut steps = vec![];
    for (run, state) in (0..).zip(&job.runs) {
        for (step, state) in (0..).zip(&state.steps) {
            add_step(job, run, step, state, &mut steps);
        }
    }
    OpenItems {
        paused: job.paused_at.is_some(),
        begins_at: job.timer_due(&Timer::Begin),
        times_out_at: job.timer_due(&Timer::JobTimeout),
        steps,
    }
}

fn add_step<'a>(job: &'a Job, run: u32, step: u32, state: &StepRun, steps: &mut Vec<OpenStep<'a>>) {
    let place = ItemId { run, step, ..ItemId::default() };
    let items = open_ranges(job, place, state);
    let asides = [(Role::Fallback, &state.fallback), (Role::Compensation, &state.compensation)];
    let asides = asides.into_iter().filter_map(|(role, aside)| {
        let is_live = matches!(aside, Some(AuxiliaryItem::Live(_)));
        is_live.then(|| (role, vec![range(job, ItemId { role, ..place }, Some(1), state)]))
    });
    let items = (!items.is_empty()).then_some((Role::Item, items));
    steps.extend(items.into_iter().chain(asides).map(|(role, items)| {
        let plan = job.plan.step(step);
        let waits_for = waits_for(job, run, step, role);
        OpenStep {
            datacenter: job.plan.datacenter(run),
            step: &plan.name,
            role,
            waiting: !has_needs(job, ItemId { role, ..place }),
            full: matches!(waits_for, WaitsFor::Parallelism { .. }),
            max_attempts: plan.policy.max_attempts,
            retryable: plan.policy.retryable,
            items,
        }
    }));
}

fn open_ranges(job: &Job, place: ItemId, state: &StepRun) -> Vec<OpenRange> {
    if state.items == 0 {
        let items = job.plan.step(place.step).for_each.items();
        let is_open = ended(state, place).is_none();
        return if is_open { vec![range(job, place, items, state)] } else { vec![] };
    }
    let mut ranges: Vec<OpenRange> = vec![];
    let mut add = |index: u32, items: u32| {
        let next = range(job, ItemId { index, ..place }, Some(items), state);
        match ranges.last_mut() {
            Some(last) if last.continues_in(&next) => last.items = Some(last.count() + items),
            _ => ranges.push(next),
        }
    };
    // Below the first that nothing was done about, those that have not ended are under way. Of a step that has failed, nothing else.
    let has_more = matches!(state.state, StepState::Waiting | StepState::Running);
    let next = if has_more { state.next } else { state.items };
    for &index in state.live.range(..next).map(|(index, _)| index) {
        add(index, 1);
    }
    for alike in alike(state, next) {
        let id = ItemId { index: alike.start, ..place };
        if job.live(id).is_some() || ended(state, id).is_none() {
            add(alike.start, alike.end - alike.start);
        }
    }
    ranges
}

fn range(job: &Job, id: ItemId, items: Option<u32>, state: &StepRun) -> OpenRange {
    let live = job.live(id);
    let (attempts, failures) = tried(state, id, live, false);
    let under_way = match live.map(|live| live.phase) {
        Some(Phase::Running) => Some(UnderWay::Running),
        Some(Phase::AwaitingCallback) => Some(UnderWay::AwaitingCallback),
        Some(Phase::Ready | Phase::BackingOff { .. }) | None => None,
    };
    OpenRange {
        first: id.index,
        items,
        attempts: attempts.unwrap_or(0),
        failures: failures.unwrap_or(0),
        under_way,
        next_retry_at: job.timer_due(&Timer::Retry(id)),
    }
}

impl OpenRange {
    fn count(&self) -> u32 {
        self.items.unwrap_or(0)
    }

    fn continues_in(&self, next: &Self) -> bool {
        let Self { attempts, failures, under_way, next_retry_at, .. } = *self;
        let first = self.first + self.count();
        *next == Self { first, items: next.items, attempts, failures, under_way, next_retry_at }
    }
}
