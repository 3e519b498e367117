//! What events do to one work item and the counts it is part of.

use std::sync::Arc;

use serde_json::Value;

use super::{Fold, Refused};
use crate::account::{Charges, History};
use crate::defects::{Defect, drawn_anew, is_on};
use crate::event::{Event, ItemId, Role};
use crate::job::{AuxiliaryItem, Phase, Progress, StoppedItem, WorkItem};
use crate::outcome::Outcome;
use crate::time::Timestamp;
use crate::verdict::{Cause, retries_counted};

impl Fold<'_> {
    pub(super) fn attempt_started(
        &mut self,
        id: ItemId,
        attempt: u32,
        token: u64,
    ) -> Result<(), Refused> {
        if self.job.paused_at.is_some() {
            return Err("the job is paused");
        }
        if token <= self.job.last_token {
            return Err("its fence token is not above all before it");
        }
        let state = self.run(id.run)?;
        if !state.startable.contains(&id.step) {
            return Err("nothing of the step may start");
        }
        let at = self.at;
        let step = self.step(id.run, id.step)?;
        let fresh = id.role == Role::Item && id.index == step.next && id.index < step.items;
        if fresh && !step.live.contains_key(&id.index) {
            let mut item = WorkItem::ready(at);
            item.history.failures = step.carried.get(&id.index).copied().unwrap_or(0);
            if attempt != 1 {
                return Err("attempts are numbered from 1 without gaps");
            }
            step.next = step.succeeded.next_gap(id.index + 1);
            step.live.insert(id.index, item);
        }
        let item = self.live(id)?;
        if item.phase != Phase::Ready {
            return Err("the item is not ready");
        }
        if attempt != item.history.attempts + 1 {
            return Err("attempts are numbered from 1 without gaps");
        }
        let was = (item.since, id.index);
        item.history.attempts = attempt;
        item.phase = Phase::Running;
        item.since = at;
        item.token = token;
        let step = self.step(id.run, id.step)?;
        if id.role == Role::Item {
            step.ready.remove(&was);
            step.in_flight += 1;
            step.attempts += 1;
        }
        step.starved_since = None;
        self.run(id.run)?.in_flight += 1;
        self.job.last_token = token;
        if attempt == 1 && id.role == Role::Item {
            self.job.items_started += 1;
        }
        self.refresh(id.run, id.step);
        Ok(())
    }

    pub(super) fn attempt_progressed(
        &mut self,
        id: ItemId,
        attempt: u32,
        said: &Arc<Value>,
    ) -> Result<(), Refused> {
        let at = self.at;
        let item = self.live(id)?;
        if !item.is_under_way() || item.history.attempts != attempt {
            return Err("it is not the attempt that runs");
        }
        item.progress = Some(Box::new(Progress { attempt, at, said: said.clone() }));
        Ok(())
    }

    pub(super) fn callback_awaited(
        &mut self,
        id: ItemId,
        attempt: u32,
        token: u64,
    ) -> Result<(), Refused> {
        let item = self.live(id)?;
        if item.phase != Phase::Running || item.token != token || item.history.attempts != attempt {
            return Err("it is not the attempt that runs");
        }
        item.phase = Phase::AwaitingCallback;
        Ok(())
    }

    /// The attempt is over; what becomes of the item is the verdict's event, which follows.
    pub(super) fn attempt_ended(
        &mut self,
        id: ItemId,
        attempt: u32,
        token: u64,
        outcome: &Outcome,
    ) -> Result<(), Refused> {
        let at = self.at;
        let item = self.live(id)?;
        if !item.is_under_way() || item.token != token || item.history.attempts != attempt {
            return Err("it is not the attempt that runs");
        }
        item.phase = Phase::Ready;
        item.since = at;
        item.history.attempt_ended(outcome);
        if let Outcome::Failed(failure) = outcome {
            item.last_failure = Some(failure.gist());
        }
        let step = self.step(id.run, id.step)?;
        match id.role {
            Role::Item => step.in_flight -= 1,
            Role::Fallback | Role::Compensation => {}
        }
        if let Outcome::Succeeded { output: Some(output) } = outcome {
            // A fallback that gives an output stands in for the step that has none.
            match id.role {
                Role::Item => drop(step.outputs.insert(id.index, output.clone())),
                Role::Fallback => drop(step.outputs.insert(0, output.clone())),
                Role::Compensation => {}
            }
        }
        self.run(id.run)?.in_flight -= 1;
        Ok(())
    }

    pub(super) fn retry_due(&mut self, id: ItemId) -> Result<(), Refused> {
        let at = self.at;
        let item = self.live(id)?;
        match item.phase {
            Phase::BackingOff { due_at, .. } if due_at <= at => {}
            Phase::BackingOff { .. } => return Err("it is too early"),
            Phase::Ready | Phase::Running | Phase::AwaitingCallback => {
                return Err("the item does not back off");
            }
        }
        item.phase = Phase::Ready;
        item.since = at;
        if id.role == Role::Item {
            self.step(id.run, id.step)?.ready.insert((at, id.index));
        }
        self.refresh(id.run, id.step);
        Ok(())
    }

    /// Debits what the decision charged, and holds the books against what it recorded.
    pub(super) fn verdict(&mut self, event: &Event) -> Result<(), Refused> {
        let (id, charged, accounts) = match event {
            Event::ItemSucceeded { item, accounts, .. } => (*item, Charges::default(), accounts),
            Event::RetryScheduled { item, charged, accounts, .. }
            | Event::ItemFailed { item, charged, accounts, .. } => (*item, *charged, accounts),
            _ => return Err("it is not a verdict"),
        };
        let retries = match event {
            Event::RetryScheduled { cause, .. } => retries_counted(*cause, charged),
            _ => 0,
        };
        let at = self.at;
        let unstarted = matches!(event, Event::ItemFailed { attempt: 0, .. });
        if unstarted && id.role == Role::Item {
            let step = self.step(id.run, id.step)?;
            if id.index == step.next && id.index < step.items {
                let mut item = WorkItem::ready(at);
                item.history = step.history_before(id.index);
                step.live.insert(id.index, item);
                step.next = step.succeeded.next_gap(id.index + 1);
            }
        }
        let item = self.live(id)?;
        if item.is_under_way() {
            return Err("its attempt has not ended");
        }
        let mut history = item.history;
        history.charge(charged, at);
        let job_retries = self.job.retries.saturating_add(retries);
        let step_retries = self.job.step_retries[id.step as usize].saturating_add(retries);
        let recorded = (accounts.failures, accounts.preemptions, accounts.deferrals);
        if recorded != (history.failures, history.preemptions, history.deferrals)
            || accounts.delay_spent_ms != history.delay_spent_ms
            || accounts.job_retries != job_retries
            || accounts.step_retries != step_retries
        {
            return Err("its accounts are not what the log adds up to");
        }
        self.job.retries = job_retries;
        self.job.step_retries[id.step as usize] = step_retries;
        match event {
            Event::RetryScheduled { cause, delay_ms, due_at, .. } => {
                history.backs_off(*cause, *delay_ms);
                self.back_off(id, history, *cause, *delay_ms, *due_at)?;
            }
            Event::ItemSucceeded { .. } => self.conclude(id, Ok(()))?,
            Event::ItemFailed { reason, on, error, .. } => {
                let (reason, on, error) = (*reason, *on, error.clone());
                let stopped = StoppedItem { reason, on, error, history };
                self.conclude(id, Err(stopped))?;
            }
            _ => {}
        }
        self.refresh(id.run, id.step);
        Ok(())
    }

    fn back_off(
        &mut self,
        id: ItemId,
        history: History,
        cause: Cause,
        delay_ms: u64,
        due_at: Timestamp,
    ) -> Result<(), Refused> {
        let at = self.at;
        let redrawn = is_on(Defect::JitterNotReplayed);
        let due_at = if redrawn { due_at.plus(drawn_anew(delay_ms)) } else { due_at };
        let at_once = due_at <= at;
        let budget = self.job.plan.step(id.step).policy.delay_budget_ms;
        let budget = budget.filter(|_| cause == Cause::Failure);
        let spent_before = history.delay_spent_ms.saturating_sub(delay_ms);
        let spent_before = spent_before.saturating_add(history.downtime_ms);
        let budget_expires_at = budget.map(|budget| at.plus(budget.saturating_sub(spent_before)));
        let item = self.live(id)?;
        item.history = history;
        item.since = at;
        item.phase = if at_once {
            Phase::Ready
        } else {
            Phase::BackingOff { cause, due_at, budget_expires_at }
        };
        if at_once && id.role == Role::Item {
            self.step(id.run, id.step)?.ready.insert((at, id.index));
        }
        Ok(())
    }

    fn conclude(&mut self, id: ItemId, end: Result<(), StoppedItem>) -> Result<(), Refused> {
        let step = self.step(id.run, id.step)?;
        match (id.role, end) {
            (Role::Item, end) => {
                if let Some(item) = step.live.remove(&id.index) {
                    step.ready.remove(&(item.since, id.index));
                }
                match end {
                    Ok(()) => drop(step.succeeded.insert(id.index)),
                    Err(stopped) => drop(step.failed.insert(id.index, stopped)),
                }
            }
            (Role::Fallback, Ok(())) => step.fallback = Some(AuxiliaryItem::Succeeded),
            (Role::Fallback, Err(stopped)) => step.fallback = Some(AuxiliaryItem::Failed(stopped)),
            (Role::Compensation, end) => {
                step.compensation =
                    Some(end.map_or_else(AuxiliaryItem::Failed, |()| AuxiliaryItem::Succeeded));
                self.compensate_next(id.run);
            }
        }
        Ok(())
    }
}
