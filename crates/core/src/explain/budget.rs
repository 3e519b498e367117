//! Who drew on the accounts that the items of a job share.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::ItemName;
use crate::apply::{IllegalEvent, fold, replay};
use crate::event::{Event, RecordedEvent};
use crate::job::Job;
use crate::plan::Budget;
use crate::time::Timestamp;
use crate::verdict::{Cause, retries_counted};

/// Draws that are shown, the last of them.
pub const MOST_DRAWS: usize = 1000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BudgetUse {
    pub total: AccountUse,
    /// In the order of the plan.
    pub per_step: Vec<StepUse>,
    /// The last, in their order.
    pub draws: Vec<Draw>,
    pub left_out: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountUse {
    pub used: u32,
    /// None: without limit; retries are counted all the same.
    pub limit: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepUse {
    pub step: String,
    #[serde(flatten)]
    pub account: AccountUse,
}

/// One retry that was counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Draw {
    pub seq: u64,
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    pub item: ItemName,
    pub attempt: u32,
    pub cause: Cause,
    pub job_retries_before: u32,
    pub job_retries_after: u32,
    pub step_retries_after: u32,
}

/// Sees a log, one event after the other.
#[derive(Debug, Default)]
pub struct BudgetAuditor {
    job: Option<Job>,
    draws: VecDeque<Draw>,
    left_out: u64,
}

impl BudgetAuditor {
    /// The next event of the log.
    pub fn see(&mut self, record: &RecordedEvent) -> Result<(), IllegalEvent> {
        if let (Some(job), Event::RetryScheduled { item, attempt, cause, charged, accounts, .. }) =
            (&self.job, &record.event)
        {
            let retries = retries_counted(*cause, *charged);
            if retries > 0 && job.step_run(item.run, item.step).is_some() {
                if self.draws.len() == MOST_DRAWS {
                    self.draws.pop_front();
                    self.left_out += 1;
                }
                self.draws.push_back(Draw {
                    seq: record.seq,
                    at: record.at,
                    item: ItemName::new(job, *item),
                    attempt: *attempt,
                    cause: *cause,
                    job_retries_before: accounts.job_retries.saturating_sub(retries),
                    job_retries_after: accounts.job_retries,
                    step_retries_after: accounts.step_retries,
                });
            }
        }
        fold(&mut self.job, record)
    }

    /// Of what was seen.
    pub fn budget_use(self) -> Result<BudgetUse, IllegalEvent> {
        let job = self.job.map_or_else(|| replay([]), Ok)?;
        let budget = job.plan.budget();
        let limit = budget.and_then(|budget| budget.total_at(job.items_started));
        let per_step = budget.and_then(Budget::per_step);
        let steps = job.plan.steps().iter().zip(&job.step_retries);
        let steps = steps.map(|(step, &used)| StepUse {
            step: step.name.clone(),
            account: AccountUse { used, limit: per_step },
        });
        Ok(BudgetUse {
            total: AccountUse { used: job.retries, limit },
            per_step: steps.collect(),
            draws: self.draws.into(),
            left_out: self.left_out,
        })
    }
}
