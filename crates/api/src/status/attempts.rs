//! What a job's log tells of its attempts, folded beside the job: a status shows it, the job's state does not hold it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use steadfast_core::account::{Accounts, Charges};
use steadfast_core::event::{Event, FailedOn, ItemId, RecordedEvent};
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;

use super::{AttemptStatus, SHOWN, Totals, is_process};

/// What the log tells of the items that are shown. It can be stored, without the plan, and given to a status with
/// the events since.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Attempts {
    #[serde(skip)]
    plan: Option<Arc<Plan>>,
    #[serde(serialize_with = "in_pairs", deserialize_with = "from_pairs")]
    pub(super) items: BTreeMap<ItemId, ItemHistory>,
    pub(super) totals: Totals,
    /// The attempt that ended last was lost; its verdict is the next event. Whether it had started.
    lost: Option<bool>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ItemHistory {
    pub(super) attempts: VecDeque<AttemptStatus>,
    pub(super) accounts: Option<Accounts>,
    pub(super) last_error: Option<String>,
    pub(super) reason: Option<StopReason>,
}

/// An item is no text, as keys of JSON are.
fn in_pairs<S: Serializer>(
    items: &BTreeMap<ItemId, ItemHistory>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(items)
}

fn from_pairs<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<ItemId, ItemHistory>, D::Error> {
    Ok(Vec::deserialize(deserializer)?.into_iter().collect())
}

impl Attempts {
    /// As they were stored; `plan`: of their job.
    #[must_use]
    pub fn with_plan(self, plan: Arc<Plan>) -> Self {
        Self { plan: Some(plan), ..self }
    }

    /// How many attempts are held.
    pub fn count(&self) -> usize {
        self.items.values().map(|history| history.attempts.len()).sum()
    }

    /// Takes the next event of the log.
    pub fn add(&mut self, record: &RecordedEvent) {
        match &record.event {
            Event::JobAccepted(accepted) => {
                self.plan = Some(accepted.plan.clone());
                for (_, failures) in accepted.kept.iter().flat_map(|kept| &kept.failures) {
                    self.charge(Charges { failures: *failures, ..Charges::default() });
                }
            }
            Event::AttemptStarted { item, attempt, worker, .. } => {
                self.totals.started_at.get_or_insert(record.at);
                let Some(history) = self.shown(*item) else { return };
                if history.attempts.len() == SHOWN {
                    history.attempts.pop_front();
                }
                history.attempts.push_back(AttemptStatus::started(
                    *attempt,
                    worker.clone(),
                    record.at,
                ));
            }
            Event::AttemptEnded { item, outcome, .. } => {
                self.lost = match outcome {
                    Outcome::Lost { started, .. } => Some(*started),
                    _ => None,
                };
                let process = self.plan.as_ref().is_some_and(|plan| is_process(plan, *item));
                let Some(history) = self.shown(*item) else { return };
                let Some(view) = history.attempts.back_mut() else { return };
                view.ended(outcome, process, record.at);
                if matches!(outcome, Outcome::Failed(_)) {
                    history.last_error.clone_from(&view.error);
                }
            }
            Event::ItemSucceeded { item, accounts, .. } => {
                if let Some(history) = self.shown(*item) {
                    history.accounts = Some(*accounts);
                }
            }
            Event::RetryScheduled { item, accounts, charged, .. } => {
                self.charge(*charged);
                if let Some(history) = self.shown(*item) {
                    history.accounts = Some(*accounts);
                }
            }
            Event::ItemFailed { item, on, accounts, charged, reason, .. } => {
                self.charge(*charged);
                // The loss that was one too many is charged to nothing.
                let halted =
                    [StopReason::Cancelled, StopReason::StepFailed, StopReason::JobTimedOut];
                let lost = self.lost.take().filter(|_| *on == FailedOn::Outcome);
                if lost.is_some_and(|started| started || !halted.contains(reason)) {
                    self.totals.losses = self.totals.losses.saturating_add(1);
                }
                if let Some(history) = self.shown(*item) {
                    history.accounts = Some(*accounts);
                    history.reason = Some(*reason);
                }
            }
            Event::RunFailing { run, .. } | Event::RunEnded { run, .. } => {
                self.killed(*run, record.at);
            }
            _ => {}
        }
    }

    fn charge(&mut self, charged: Charges) {
        self.totals.failures = self.totals.failures.saturating_add(charged.failures);
        self.totals.losses = self.totals.losses.saturating_add(charged.preemptions);
    }

    fn shown(&mut self, item: ItemId) -> Option<&mut ItemHistory> {
        ((item.index as usize) < SHOWN).then(|| self.items.entry(item).or_default())
    }

    /// Attempts that were cut off.
    fn killed(&mut self, run: u32, at: Timestamp) {
        let of_run = self.items.iter_mut().filter(|(item, _)| item.run == run);
        for view in of_run.flat_map(|(_, history)| &mut history.attempts) {
            if view.finished_at_ms.is_none() {
                view.killed(at);
            }
        }
    }
}
