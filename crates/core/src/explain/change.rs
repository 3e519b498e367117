//! One thing that could have been written differently, and how to write it so.

use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::words::written_ms;
use crate::account::Shared;
use crate::plan::PlanDraft;
use crate::policy::{Policy, PolicyDraft, Problems, RuleDraft, Then};

/// One thing to write differently. As JSON: `{"key", "from", "to"}`.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    Retryable,
    MaxAttempts {
        from: Option<u32>,
        to: u32,
    },
    /// `from` is none where it was not written.
    MaxPreemptions {
        from: Option<u32>,
        to: u32,
    },
    MaxDeferrals {
        from: Option<u32>,
        to: u32,
    },
    DelayBudget {
        from_ms: u64,
        to_ms: u64,
    },
    Window {
        from_ms: u64,
        to_ms: u64,
    },
    ExitStop {
        code: u8,
        from: Vec<i64>,
        to: Vec<i64>,
    },
    ExitRetry {
        code: u8,
        from: Vec<i64>,
        to: Vec<i64>,
    },
    /// The rule that says stop says retry.
    RuleThen {
        index: usize,
    },
    /// A rule for a status that is permanent otherwise, behind all others.
    NewRule {
        http_status: u16,
    },
    /// The job's: `total`, `floor` or both, whichever binds. `clamped`: the operator's ceiling does
    /// already, and has to allow it too.
    JobBudget {
        from: u32,
        to: u32,
        total: bool,
        floor: bool,
        clamped: bool,
    },
    StepBudget {
        from: u32,
        to: u32,
        clamped: bool,
    },
    /// The job's.
    Timeout {
        from_ms: u64,
        to_ms: u64,
    },
}

impl Change {
    /// Where it is written: in the step's `retry` block, or in the job.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Retryable => "retryable",
            Self::MaxAttempts { .. } => "max_attempts",
            Self::MaxPreemptions { .. } => "max_preemptions",
            Self::MaxDeferrals { .. } => "max_deferrals",
            Self::DelayBudget { .. } => "delay_budget",
            Self::Window { .. } => "window",
            Self::ExitStop { .. } => "exit_codes.stop",
            Self::ExitRetry { .. } => "exit_codes.retry",
            Self::RuleThen { .. } | Self::NewRule { .. } => "rules",
            Self::JobBudget { total: true, .. } => "retry_budget.total",
            Self::JobBudget { .. } => "retry_budget.floor",
            Self::StepBudget { .. } => "retry_budget.per_step",
            Self::Timeout { .. } => "timeout",
        }
    }

    /// What stands there, and what would have to. Durations as a file has them.
    pub fn values(&self) -> (Value, Value) {
        match self {
            Self::Retryable => (json!(false), json!(true)),
            Self::MaxAttempts { from, to }
            | Self::MaxPreemptions { from, to }
            | Self::MaxDeferrals { from, to } => (json!(from), json!(to)),
            Self::DelayBudget { from_ms, to_ms }
            | Self::Window { from_ms, to_ms }
            | Self::Timeout { from_ms, to_ms } => {
                (json!(written_ms(*from_ms)), json!(written_ms(*to_ms)))
            }
            Self::ExitStop { from, to, .. } | Self::ExitRetry { from, to, .. } => {
                (json!(from), json!(to))
            }
            Self::RuleThen { index } => (
                json!({ "index": index, "then": "stop" }),
                json!({ "index": index, "then": "retry" }),
            ),
            Self::NewRule { http_status } => {
                (Value::Null, json!({ "http_status": [http_status], "then": "retry" }))
            }
            Self::JobBudget { from, to, .. } | Self::StepBudget { from, to, .. } => {
                (json!(from), json!(to))
            }
        }
    }

    /// Makes the change in what a decision is asked with.
    pub fn apply(&self, draft: &mut PolicyDraft, shared: &mut Shared) {
        match self {
            Self::Retryable => draft.retryable = true,
            Self::MaxAttempts { to, .. } => draft.max_attempts = Some(*to),
            Self::MaxPreemptions { to, .. } => {
                draft.max_preemptions = Some(*to);
                draft.max_preemptions_written = true;
            }
            Self::MaxDeferrals { to, .. } => draft.max_deferrals = Some(*to),
            Self::DelayBudget { to_ms, .. } => draft.delay_budget_ms = Some(*to_ms),
            Self::Window { to_ms, .. } => draft.window_ms = Some(*to_ms),
            Self::ExitStop { to, .. } => draft.exit_stop.clone_from(to),
            Self::ExitRetry { to, .. } => draft.exit_retry.clone_from(to),
            Self::RuleThen { index } => {
                if let Some(rule) = draft.rules.get_mut(*index) {
                    rule.then = Then::Retry;
                }
            }
            Self::NewRule { http_status } => {
                let http_status = Some(vec![i64::from(*http_status)]);
                draft.rules.push(RuleDraft { http_status, ..RuleDraft::default() });
            }
            Self::JobBudget { to, .. } => shared.job_budget = Some(*to),
            Self::StepBudget { to, .. } => shared.step_budget = Some(*to),
            Self::Timeout { from_ms, to_ms } => {
                let longer = to_ms.saturating_sub(*from_ms);
                shared.timeout_at = shared.timeout_at.map(|at| at.plus(longer));
            }
        }
    }

    /// Makes the change in what somebody wrote. A step that is not there stays so.
    pub fn apply_to_plan(&self, plan: &mut PlanDraft, step: u32) -> Result<(), Problems> {
        let mut nothing_shared = Shared::alone(crate::backoff::Draw::from_bits(0));
        match self {
            Self::JobBudget { to, total, floor, .. } => {
                if let Some(budget) = &mut plan.budget {
                    if let Some(allowance) = budget.total.as_mut().filter(|_| *total) {
                        (allowance.requested, allowance.effective) = (*to, *to);
                    }
                    if let Some(ratio) = budget.ratio.as_mut().filter(|_| *floor) {
                        ratio.floor = *to;
                    }
                }
            }
            Self::StepBudget { to, .. } => {
                if let Some(share) = plan.budget.as_mut().and_then(|b| b.per_step.as_mut()) {
                    (share.requested, share.effective) = (*to, *to);
                }
            }
            Self::Timeout { to_ms, .. } => plan.timeout_ms = Some(*to_ms),
            _ => {
                if let Some(step) = plan.steps.get_mut(step as usize) {
                    let mut draft = step.policy.draft().clone();
                    self.apply(&mut draft, &mut nothing_shared);
                    step.policy = Policy::new(draft)?;
                }
            }
        }
        Ok(())
    }
}

/// What follows the word "with".
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key();
        match self {
            Self::Retryable => write!(f, "`retryable: true`"),
            Self::MaxAttempts { to, .. } | Self::MaxDeferrals { to, .. } => {
                write!(f, "`{key}: {to}`")
            }
            Self::MaxPreemptions { from: Some(_), to } => write!(f, "`{key}: {to}`"),
            Self::MaxPreemptions { from: None, to } => write!(f, "`{key}: {to}` written"),
            Self::DelayBudget { to_ms, .. } | Self::Window { to_ms, .. } => {
                write!(f, "`{key}: {}`", written_ms(*to_ms))
            }
            Self::Timeout { to_ms, .. } => {
                write!(f, "`timeout: {}` for the job", written_ms(*to_ms))
            }
            Self::ExitStop { code, .. } => write!(f, "{code} taken out of `{key}`"),
            Self::ExitRetry { code, .. } => write!(f, "{code} added to `{key}`"),
            Self::RuleThen { index } => write!(f, "`then: retry` in rule {}", index + 1),
            Self::NewRule { http_status } => {
                write!(f, "a rule `{{ http_status: [{http_status}], then: retry }}`")
            }
            Self::JobBudget { to, total, floor, clamped, .. } => {
                let keys = [("total", *total), ("floor", *floor)].into_iter();
                let keys = keys.filter(|(_, binds)| *binds).map(|(key, _)| format!("{key}: {to}"));
                let keys = keys.collect::<Vec<_>>().join(", ");
                write!(f, "`retry_budget: {{ {keys} }}`{}", ceiling(*clamped))
            }
            Self::StepBudget { to, clamped, .. } => {
                write!(f, "`retry_budget: {{ per_step: {to} }}`{}", ceiling(*clamped))
            }
        }
    }
}

const fn ceiling(clamped: bool) -> &'static str {
    if clamped { " (and a ceiling that allows it)" } else { "" }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (from, to) = self.values();
        let mut change = serializer.serialize_struct("Change", 3)?;
        change.serialize_field("key", self.key())?;
        change.serialize_field("from", &from)?;
        change.serialize_field("to", &to)?;
        change.end()
    }
}

impl Change {
    /// The same limit, further on: one change, from where it was.
    pub(super) fn extend_to(&mut self, further: Self) {
        match (self, further) {
            (Self::Timeout { to_ms: to, .. }, Self::Timeout { to_ms, .. })
            | (Self::DelayBudget { to_ms: to, .. }, Self::DelayBudget { to_ms, .. })
            | (Self::Window { to_ms: to, .. }, Self::Window { to_ms, .. }) => *to = to_ms,
            (Self::MaxPreemptions { to, .. }, Self::MaxPreemptions { to: further, .. }) => {
                *to = further;
            }
            (made, further) => *made = further,
        }
    }
}
