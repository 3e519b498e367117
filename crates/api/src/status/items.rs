//! The items of one step, page by page: a status shows the first hundred of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use steadfast_core::account::History;
use steadfast_core::event::{ItemId, Role, StepState};
use steadfast_core::job::{Job, StepRun, WorkItem};
use steadfast_core::plan::ForEach;

use super::of_job::{Shown, counts, item_state};
use super::{AttemptStatus, Attempts, ItemState, ItemStatus, SHOWN};

/// Items that one page looks at for those in a state. Those that failed or are under way are found without looking.
const LOOKED_AT: u32 = 200_000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemsPage {
    pub step: String,
    pub datacenter: Option<String>,
    /// None: a step that this one needs will say.
    pub total: Option<u32>,
    /// All its items, by their state.
    pub counts: BTreeMap<ItemState, u32>,
    /// By index.
    pub items: Vec<ItemRow>,
    /// The index from which to go on, if there may be more.
    pub next: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ItemRow {
    #[serde(flatten)]
    pub item: ItemStatus,
    pub deferrals: u32,
    /// The attempts of this item are not kept with the status; the list of attempts has them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub attempts_left_out: bool,
}

/// A step or a datacenter that the job does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchPlace(pub String);

impl ItemsPage {
    /// Of an item that succeeded beyond those whose attempts are kept, what its accounts came to is not known: they are zero.
    pub fn new(
        job: &Job,
        attempts: &Attempts,
        (step, datacenter): (&str, Option<&str>),
        state: Option<ItemState>,
        from: u32,
        limit: usize,
    ) -> Result<Self, NoSuchPlace> {
        let step_name = step;
        let step = job.plan.find(step);
        let step = step.ok_or_else(|| NoSuchPlace(format!("there is no step {step_name:?}")))?;
        let run = match datacenter {
            None => 0,
            Some(name) => {
                let found = job.plan.datacenters().iter().position(|known| known == name);
                let none = || NoSuchPlace(format!("there is no datacenter {name:?}"));
                found.ok_or_else(none)? as u32
            }
        };
        let of_step = &job.runs[run as usize].steps[step as usize];
        let total = match (&job.plan.step(step).for_each, of_step.state) {
            (ForEach::Output { .. }, StepState::Waiting) => None,
            (for_each, StepState::Waiting) => for_each.items().or(Some(of_step.items)),
            _ => Some(of_step.items),
        };
        let id = |index| ItemId { run, step, role: Role::Item, index };
        let (found, next) = find(job, of_step, id, state, from, limit);
        let mut shown = Shown::default();
        let items = found.into_iter().map(|index| {
            ItemRow::new(ItemStatus::new(job, attempts, &mut shown, id(index)), of_step)
        });
        Ok(Self {
            step: step_name.to_owned(),
            datacenter: job.plan.datacenter(run).map(str::to_owned),
            total,
            counts: counts(of_step),
            items: items.collect(),
            next,
        })
    }
}

/// The first of them from an index on, and where to go on.
fn find(
    job: &Job,
    step: &StepRun,
    id: impl Fn(u32) -> ItemId,
    state: Option<ItemState>,
    from: u32,
    limit: usize,
) -> (Vec<u32>, Option<u32>) {
    let fits = |index: u32| state.is_none_or(|state| item_state(job, id(index)) == state);
    let page = |mut found: Vec<u32>| {
        let next = found.get(limit).copied();
        found.truncate(limit);
        (found, next)
    };
    match state {
        Some(ItemState::Failed) => {
            page(step.failed.range(from..).map(|(i, _)| *i).take(limit + 1).collect())
        }
        Some(ItemState::Running | ItemState::AwaitingCallback | ItemState::BackingOff) => {
            let live = step.live.range(from..).map(|(index, _)| *index);
            page(live.filter(|index| fits(*index)).take(limit + 1).collect())
        }
        _ => {
            let end = step.items.min(from.saturating_add(LOOKED_AT));
            let (found, next) =
                page((from..end).filter(|index| fits(*index)).take(limit + 1).collect());
            (found, next.or((end < step.items && from < end).then_some(end)))
        }
    }
}

impl ItemRow {
    fn new(mut item: ItemStatus, step: &StepRun) -> Self {
        let live: Option<&WorkItem> = step.live.get(&item.index);
        let stopped = step.failed.get(&item.index);
        let history = live.map(|live| live.history).or(stopped.map(|stopped| stopped.history));
        let deferrals = history.map_or(0, |history| history.deferrals);
        if (item.index as usize) < SHOWN {
            return Self { item, deferrals, attempts_left_out: false };
        }
        if let Some(History { failures, preemptions, delay_spent_ms, .. }) = history {
            (item.failures, item.preemptions) = (failures, preemptions);
            item.delay_spent_ms = delay_spent_ms;
        }
        item.last_error = live
            .and_then(WorkItem::last_error)
            .or_else(|| stopped.and_then(|stopped| stopped.error.clone()));
        item.reason = stopped.map(|stopped| stopped.reason);
        // Of one that runs, the attempt that does.
        if let Some(live) = live.filter(|live| live.is_under_way()) {
            let worker = live.worker.clone().unwrap_or_default();
            item.attempts = vec![AttemptStatus::started(live.history.attempts, worker, live.since)];
        }
        Self { item, deferrals, attempts_left_out: true }
    }
}
