//! The one decision on an outcome: complete, retry at T, or stop because R.
//!
//! Live, replayed, resumed, planned or rehearsed: [`verdict`] decides, and nothing else does.
//! It is pure and does not allocate.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::account::{Accounts, Charges, History, SharedAccounts};
use crate::defects::{Defect, is_on};
use crate::event::FailedOn;
use crate::outcome::{Failure, FailureKind, Outcome, Permanence, RequestedDelay};
use crate::plan::BudgetCounts;
use crate::policy::{Policy, RuleAction};
use crate::time::Timestamp;

/// An attempt that never began costs nothing, this many times in a row.
pub const FREE_UNSTARTED: u32 = 10;
/// Losses in a row that are retried at once; the next one backs off.
pub const IMMEDIATE_LOSSES: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub decision: Decision,
    pub charged: Charges,
    pub accounts: Accounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Complete,
    Retry { cause: Cause, delay_ms: u64, due_at: Timestamp },
    Stop { reason: StopReason },
}

/// Which account a retry is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Failure,
    Preemption,
    Deferral,
}

/// Why an item is not tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    Cancelled,
    StepFailed,
    JobTimedOut,
    NotRetryable,
    PreemptionsExhausted,
    PermanentError,
    RuleStop,
    DeferralsExhausted,
    ExitCodeExcluded,
    ExitCodeNotListed,
    AttemptsExhausted,
    JobBudgetExhausted,
    StepBudgetExhausted,
    DelayBudgetExhausted,
    WindowExpired,
    Unschedulable,
}

impl StopReason {
    pub const ALL: [Self; 16] = [
        Self::Cancelled,
        Self::StepFailed,
        Self::JobTimedOut,
        Self::NotRetryable,
        Self::PreemptionsExhausted,
        Self::PermanentError,
        Self::RuleStop,
        Self::DeferralsExhausted,
        Self::ExitCodeExcluded,
        Self::ExitCodeNotListed,
        Self::AttemptsExhausted,
        Self::JobBudgetExhausted,
        Self::StepBudgetExhausted,
        Self::DelayBudgetExhausted,
        Self::WindowExpired,
        Self::Unschedulable,
    ];

    /// Its stable name, as JSON and the docs have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::StepFailed => "step_failed",
            Self::JobTimedOut => "job_timed_out",
            Self::NotRetryable => "not_retryable",
            Self::PreemptionsExhausted => "preemptions_exhausted",
            Self::PermanentError => "permanent_error",
            Self::RuleStop => "rule_stop",
            Self::DeferralsExhausted => "deferrals_exhausted",
            Self::ExitCodeExcluded => "exit_code_excluded",
            Self::ExitCodeNotListed => "exit_code_not_listed",
            Self::AttemptsExhausted => "attempts_exhausted",
            Self::JobBudgetExhausted => "job_budget_exhausted",
            Self::StepBudgetExhausted => "step_budget_exhausted",
            Self::DelayBudgetExhausted => "delay_budget_exhausted",
            Self::WindowExpired => "window_expired",
            Self::Unschedulable => "unschedulable",
        }
    }

    /// One sentence for a person.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Cancelled => "The job was cancelled",
            Self::StepFailed => "Another item has already failed this step",
            Self::JobTimedOut => "The retry would start after the job's timeout",
            Self::NotRetryable => "The step is not retryable",
            Self::PreemptionsExhausted => "The worker was lost more often than max_preemptions",
            Self::PermanentError => "The error is permanent",
            Self::RuleStop => "A rule of the policy says stop",
            Self::DeferralsExhausted => "Deferred more often than max_deferrals",
            Self::ExitCodeExcluded => "The exit code is in exit_codes.stop",
            Self::ExitCodeNotListed => "The exit code is not in exit_codes.retry",
            Self::AttemptsExhausted => "All attempts are used",
            Self::JobBudgetExhausted => "The job's retry budget is spent",
            Self::StepBudgetExhausted => "The step's share of the job's retry budget is spent",
            Self::DelayBudgetExhausted => "Retry budget exhausted: the next delay does not fit",
            Self::WindowExpired => "The retry window since the first failure is over",
            Self::Unschedulable => "No worker took the item within scheduling_timeout",
        }
    }

    /// The sentence, where it matters what the stop was decided on: what ran out while nobody could do
    /// anything about it has expired, without a next delay that was one too many.
    pub const fn message_on(self, on: FailedOn) -> &'static str {
        match (self, on) {
            (Self::DelayBudgetExhausted, FailedOn::Restart) => {
                "Retry budget exhausted: it expired while the engine was down"
            }
            (Self::WindowExpired, FailedOn::Restart) => {
                "The retry window since the first failure expired while the engine was down"
            }
            (Self::WindowExpired, FailedOn::Resume) => {
                "The retry window since the first failure expired while the job was paused"
            }
            _ => self.message(),
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whether an execution may begin, by count alone. The first one always may.
pub const fn eligible(attempts: u64, max_attempts: u64, retryable: bool) -> bool {
    attempts == 0 || (retryable && attempts < max_attempts)
}

/// Decides on an outcome. `history` is the item's before this outcome.
pub fn verdict(
    policy: &Policy,
    history: &History,
    shared: &SharedAccounts,
    outcome: &Outcome,
    now: Timestamp,
) -> Verdict {
    let book = VerdictContext { policy, history, shared, now };
    match outcome {
        Outcome::Succeeded { .. } => book.close(Decision::Complete, Charges::default(), 0),
        Outcome::Lost { started, .. } => book.on_loss(*started, outcome.is_handed_back()),
        Outcome::Failed(failure) => book.on_failure(failure),
    }
}

/// What a restart, or the end of a pause, says of an item that backs off after a failure: the delay
/// budget's clock and the window may have run out meanwhile. `None`: its timer goes on.
pub fn expired(
    policy: &Policy,
    history: &History,
    budget_expires_at: Option<Timestamp>,
    now: Timestamp,
) -> Option<StopReason> {
    if budget_expires_at.is_some_and(|expires| now > expires) {
        return Some(StopReason::DelayBudgetExhausted);
    }
    let window_ends = history.first_failure_at.zip(policy.window_ms).map(|(at, ms)| at.plus(ms));
    window_ends.filter(|&end| now > end).map(|_| StopReason::WindowExpired)
}

/// One decision in the making.
struct VerdictContext<'a> {
    policy: &'a Policy,
    history: &'a History,
    shared: &'a SharedAccounts,
    now: Timestamp,
}

impl VerdictContext<'_> {
    /// Check 1.
    fn halted(&self) -> Option<StopReason> {
        let timed_out = self.shared.timeout_at.is_some_and(|at| self.now >= at);
        self.shared.halted.or(timed_out.then_some(StopReason::JobTimedOut))
    }

    /// Check 2, and check 7 behind it where the budget counts all. `handed_back`: the attempt only
    /// waited for a slot, and waiting spends no budget.
    fn on_loss(&self, started: bool, handed_back: bool) -> Verdict {
        if let Some(reason) = self.halted() {
            return self.stop(reason, Charges::default());
        }
        let counts = started || self.history.unstarted_in_row >= FREE_UNSTARTED;
        if counts && !self.policy.survives_loss {
            return self.stop(StopReason::NotRetryable, Charges::default());
        }
        if counts && reached(self.history.preemptions, self.policy.max_preemptions) {
            return self.stop(StopReason::PreemptionsExhausted, Charges::default());
        }
        let budgeted = u32::from(self.shared.budgeted == Some(BudgetCounts::All) && !handed_back);
        if budgeted > 0
            && let Some(reason) = self.budget_spent()
        {
            return self.stop(reason, Charges::default());
        }
        let mut charged =
            Charges { job_retries: budgeted, step_retries: budgeted, ..Charges::default() };
        if !counts {
            return self.retry(Cause::Preemption, 0, charged);
        }
        let in_row = self.history.losses_in_row.saturating_add(1);
        let delay_ms = match in_row.saturating_sub(IMMEDIATE_LOSSES) {
            0 => 0,
            n => self.backoff_ms(n),
        };
        if is_on(Defect::PreemptionChargedAsFailure) {
            charged.failures = 1;
            return self.retry(Cause::Preemption, delay_ms, charged);
        }
        self.retry(Cause::Preemption, delay_ms, Charges { preemptions: 1, ..charged })
    }

    /// Check 7.
    fn budget_spent(&self) -> Option<StopReason> {
        if reached(self.shared.job_retries, self.shared.job_budget) {
            return Some(StopReason::JobBudgetExhausted);
        }
        let step = reached(self.shared.step_retries, self.shared.step_budget);
        step.then_some(StopReason::StepBudgetExhausted)
    }

    /// Checks 1 and 3 to 9.
    fn on_failure(&self, failure: &Failure) -> Verdict {
        let failed = Charges { failures: 1, ..Charges::default() };
        let policy = self.policy;
        if let Some(reason) = self.halted() {
            return self.stop(reason, failed);
        }
        if failure.permanence == Permanence::Said {
            // What never began has not failed: a retry of the job has all its attempts.
            let began = failure.kind != FailureKind::NotCompleted || failure.http_status.is_some();
            let charged = if began { failed } else { Charges::default() };
            return self.stop(StopReason::PermanentError, charged);
        }
        let rule = policy.rule_for(failure);
        let asked = failure.asked;
        match (rule.map(|rule| (rule.then, rule.delay_ms)), asked) {
            (Some((RuleAction::Stop, _)), _) => return self.stop(StopReason::RuleStop, failed),
            (Some((RuleAction::Defer, delay)), _) => {
                return self.defer(delay.unwrap_or(policy.delays.initial_ms));
            }
            (None, Some(RequestedDelay::DeferMs(delay))) => return self.defer(delay),
            (Some((RuleAction::Retry, _)) | None, _) => {}
        }
        if rule.is_none() {
            if failure.permanence == Permanence::ByStatus {
                return self.stop(StopReason::PermanentError, failed);
            }
            if !policy.retryable {
                return self.stop(StopReason::NotRetryable, failed);
            }
            if let Some(code) = failure.shell_code() {
                if policy.stops_exit(code) {
                    return self.stop(StopReason::ExitCodeExcluded, failed);
                }
                if !policy.lists_exit(code) {
                    return self.stop(StopReason::ExitCodeNotListed, failed);
                }
            }
        }
        let failures = self.history.failures.saturating_add(1);
        if reached(failures, policy.max_attempts) {
            return self.stop(StopReason::AttemptsExhausted, failed);
        }
        if let Some(reason) = self.budget_spent() {
            return self.stop(reason, failed);
        }
        let given = rule.and_then(|rule| rule.delay_ms).or(match asked {
            Some(RequestedDelay::RetryAfterMs(ms)) => Some(ms),
            _ => None,
        });
        let delay_ms =
            given.map_or_else(|| self.backoff_ms(failures), |ms| ms.min(policy.max_retry_after_ms));
        let due_at = self.now.plus(delay_ms);
        let spent = self.history.delay_spent_ms.saturating_add(self.history.downtime_ms);
        if policy.delay_budget_ms.is_some_and(|budget| spent.saturating_add(delay_ms) > budget) {
            return self.stop(StopReason::DelayBudgetExhausted, failed);
        }
        let first_failure = self.history.first_failure_at.unwrap_or(self.now);
        if policy.window_ms.is_some_and(|window| due_at > first_failure.plus(window)) {
            return self.stop(StopReason::WindowExpired, failed);
        }
        if self.shared.timeout_at.is_some_and(|timeout| due_at >= timeout) {
            return self.stop(StopReason::JobTimedOut, failed);
        }
        let budgeted = u32::from(self.shared.budgeted.is_some());
        let charged = Charges { delay_ms, job_retries: budgeted, step_retries: budgeted, ..failed };
        self.retry(Cause::Failure, delay_ms, charged)
    }

    fn defer(&self, delay_ms: u64) -> Verdict {
        if reached(self.history.deferrals, self.policy.max_deferrals) {
            return self.stop(StopReason::DeferralsExhausted, Charges::default());
        }
        let charged = Charges { deferrals: 1, ..Charges::default() };
        self.retry(Cause::Deferral, delay_ms.min(self.policy.max_retry_after_ms), charged)
    }

    fn backoff_ms(&self, n: u32) -> u64 {
        self.policy.delays.delay_ms(n, self.history.last_delay_ms, self.shared.draw)
    }

    fn stop(&self, reason: StopReason, charged: Charges) -> Verdict {
        self.close(Decision::Stop { reason }, charged, 0)
    }

    fn retry(&self, cause: Cause, delay_ms: u64, charged: Charges) -> Verdict {
        let due_at = self.now.plus(delay_ms);
        let retries = retries_counted(cause, charged);
        self.close(Decision::Retry { cause, delay_ms, due_at }, charged, retries)
    }

    /// Check 9: what every account holds after the decision.
    fn close(&self, decision: Decision, charged: Charges, retries: u32) -> Verdict {
        let accounts = accounts_after(self.policy, self.history, self.shared, charged, retries);
        Verdict { decision, charged, accounts }
    }
}

/// What a retry adds to the job's count: those after failures are counted without a budget too.
pub(crate) fn retries_counted(cause: Cause, charged: Charges) -> u32 {
    let counted = charged.job_retries.max(u32::from(cause == Cause::Failure));
    if is_on(Defect::BudgetChargedTwice) { counted * 2 } else { counted }
}

/// The accounts as they stand once `charged` is taken and `retries` are counted.
pub(crate) fn accounts_after(
    policy: &Policy,
    history: &History,
    shared: &SharedAccounts,
    charged: Charges,
    retries: u32,
) -> Accounts {
    Accounts {
        failures: history.failures.saturating_add(charged.failures),
        max_attempts: policy.max_attempts,
        preemptions: history.preemptions.saturating_add(charged.preemptions),
        max_preemptions: policy.max_preemptions,
        deferrals: history.deferrals.saturating_add(charged.deferrals),
        max_deferrals: policy.max_deferrals,
        delay_spent_ms: history.delay_spent_ms.saturating_add(charged.delay_ms),
        downtime_ms: history.downtime_ms,
        delay_budget_ms: policy.delay_budget_ms,
        window_ms: policy.window_ms,
        job_retries: shared.job_retries.saturating_add(retries),
        job_budget: shared.job_budget,
        step_retries: shared.step_retries.saturating_add(retries),
        step_budget: shared.step_budget,
    }
}

fn reached(count: u32, limit: Option<u32>) -> bool {
    limit.is_some_and(|limit| count >= limit)
}
