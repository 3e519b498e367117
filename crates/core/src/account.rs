//! What retries spend: the item's own history, the job's shared budgets, and what a decision took.

use serde::{Deserialize, Serialize, Serializer};

use crate::backoff::Draw;
use crate::outcome::Outcome;
use crate::plan::BudgetCounts;
use crate::time::Timestamp;
use crate::verdict::{Cause, FREE_UNSTARTED, StopReason};

/// What a work item has been through. Only applied verdicts move it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub attempts: u32,
    pub failures: u32,
    pub preemptions: u32,
    pub deferrals: u32,
    /// Losses since the last attempt that reported anything.
    pub losses_in_row: u32,
    /// Attempts lost before they began, since the last one that did begin.
    pub unstarted_in_row: u32,
    /// Planned, jittered backoff delays after failures.
    pub delay_spent_ms: u64,
    /// Time in which the engine was down while the delay budget's clock ran.
    pub downtime_ms: u64,
    pub last_delay_ms: Option<u64>,
    pub first_failure_at: Option<Timestamp>,
}

impl History {
    /// An attempt has ended so. What it costs is the verdict's to say.
    pub(crate) fn attempt_ended(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Lost { started: true, .. } => {
                self.losses_in_row = self.losses_in_row.saturating_add(1);
                self.unstarted_in_row = 0;
            }
            Outcome::Lost { started: false, .. } => {
                if self.unstarted_in_row >= FREE_UNSTARTED {
                    self.losses_in_row = self.losses_in_row.saturating_add(1);
                }
                self.unstarted_in_row = self.unstarted_in_row.saturating_add(1);
            }
            Outcome::Succeeded { .. } | Outcome::Failed(_) => {
                self.losses_in_row = 0;
                self.unstarted_in_row = 0;
            }
        }
    }

    /// Debits what a verdict took at that time.
    pub(crate) fn charge(&mut self, charged: Charges, at: Timestamp) {
        self.failures += charged.failures;
        self.preemptions += charged.preemptions;
        self.deferrals += charged.deferrals;
        self.delay_spent_ms = self.delay_spent_ms.saturating_add(charged.delay_ms);
        if charged.failures > 0 {
            self.first_failure_at = self.first_failure_at.or(Some(at));
        }
    }

    /// The next attempt comes after so long.
    pub(crate) fn backs_off(&mut self, cause: Cause, delay_ms: u64) {
        if cause == Cause::Failure {
            self.last_delay_ms = Some(delay_ms);
        }
    }
}

/// The accounts that an item shares with others, and what else the job knows, at one decision.
#[derive(Clone, Copy, Debug)]
pub struct SharedAccounts {
    pub job_retries: u32,
    pub job_budget: Option<u32>,
    pub step_retries: u32,
    pub step_budget: Option<u32>,
    /// The job has a budget, and these retries are charged to it. None: they are only counted.
    pub budgeted: Option<BudgetCounts>,
    pub timeout_at: Option<Timestamp>,
    /// The job was cancelled, or a sibling has failed the step.
    pub halted: Option<StopReason>,
    pub draw: Draw,
}

impl SharedAccounts {
    /// Nothing shared, nothing halted: an item on its own.
    #[must_use]
    pub const fn alone(draw: Draw) -> Self {
        Self {
            job_retries: 0,
            job_budget: None,
            step_retries: 0,
            step_budget: None,
            budgeted: None,
            timeout_at: None,
            halted: None,
            draw,
        }
    }
}

/// All accounts after a decision, with their limits; an unlimited one is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Accounts {
    pub failures: u32,
    pub max_attempts: Option<u32>,
    pub preemptions: u32,
    pub max_preemptions: Option<u32>,
    pub deferrals: u32,
    pub max_deferrals: Option<u32>,
    pub delay_spent_ms: u64,
    pub downtime_ms: u64,
    pub delay_budget_ms: Option<u64>,
    pub window_ms: Option<u64>,
    pub job_retries: u32,
    pub job_budget: Option<u32>,
    pub step_retries: u32,
    pub step_budget: Option<u32>,
}

/// For the event that there are most of: without what was not spent, and without limits that there are not.
pub(crate) fn brief<S: Serializer>(accounts: &Accounts, to: S) -> Result<S::Ok, S::Error> {
    let spent = |count: u32| Some(u64::from(count)).filter(|&count| count > 0);
    let spent_ms = |ms: u64| Some(ms).filter(|&ms| ms > 0);
    let limit = |limit: Option<u32>| limit.map(u64::from);
    let all = [
        ("failures", spent(accounts.failures)),
        ("max_attempts", limit(accounts.max_attempts)),
        ("preemptions", spent(accounts.preemptions)),
        ("max_preemptions", limit(accounts.max_preemptions)),
        ("deferrals", spent(accounts.deferrals)),
        ("max_deferrals", limit(accounts.max_deferrals)),
        ("delay_spent_ms", spent_ms(accounts.delay_spent_ms)),
        ("downtime_ms", spent_ms(accounts.downtime_ms)),
        ("delay_budget_ms", accounts.delay_budget_ms),
        ("window_ms", accounts.window_ms),
        ("job_retries", spent(accounts.job_retries)),
        ("job_budget", limit(accounts.job_budget)),
        ("step_retries", spent(accounts.step_retries)),
        ("step_budget", limit(accounts.step_budget)),
    ];
    to.collect_map(all.into_iter().filter_map(|(name, value)| Some((name, value?))))
}

/// What one decision took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Charges {
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub preemptions: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub deferrals: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub job_retries: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub step_retries: u32,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn losses_in_a_row_count_from_the_eleventh_on_of_those_that_had_not_started() {
        let lost = |started| Outcome::Lost { started, why: None };
        let mut history = History::default();
        let mut after = |outcome: &Outcome| {
            history.attempt_ended(outcome);
            (history.losses_in_row, history.unstarted_in_row)
        };
        for n in 1..=FREE_UNSTARTED {
            assert_eq!(after(&lost(false)), (0, n));
        }
        assert_eq!(after(&lost(false)), (1, FREE_UNSTARTED + 1));
        assert_eq!(after(&lost(true)), (2, 0));
        assert_eq!(after(&Outcome::OK), (0, 0));
    }

    #[test]
    fn the_window_begins_with_the_first_failure_and_with_nothing_else() {
        let mut history = History::default();
        history.charge(Charges { preemptions: 1, ..Charges::default() }, Timestamp(5));
        assert_eq!(history.first_failure_at, None);
        for at in [7, 9] {
            history.charge(Charges { failures: 1, ..Charges::default() }, Timestamp(at));
            assert_eq!(history.first_failure_at, Some(Timestamp(7)));
        }
    }

    /// The log has millions of them.
    #[test]
    fn what_was_not_spent_takes_no_room() {
        #[derive(Serialize)]
        struct Brief(#[serde(serialize_with = "brief")] Accounts);
        assert_eq!(to_value(Brief(Accounts::default())).expect("JSON"), json!({}));
        let some =
            Accounts { failures: 1, downtime_ms: 2, max_attempts: Some(0), ..Accounts::default() };
        let told = json!({ "failures": 1, "downtime_ms": 2, "max_attempts": 0 });
        assert_eq!(to_value(Brief(some)).expect("JSON"), told);
        assert_eq!(to_value(Charges::default()).expect("JSON"), json!({}));
        let some = Charges { delay_ms: 1, job_retries: 2, ..Charges::default() };
        assert_eq!(to_value(some).expect("JSON"), json!({ "delay_ms": 1, "job_retries": 2 }));
    }
}
