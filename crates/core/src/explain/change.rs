//! One thing that could have been written differently, and how to write it so.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::account::SharedAccounts;
use crate::duration::duration_text;
use crate::plan::PlanDraft;
use crate::policy::{Policy, PolicyDraft, Problems, RuleAction, RuleDraft};
use crate::spelling::Spelling;

/// One thing to write differently.
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
    /// Where it is written natively: in the step's `retry` block, or in the job.
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

    /// What stands there, and what would have to, in the author's units. Durations as a file has them.
    fn values(&self, words: &Spellings<'_>) -> (Value, Value) {
        let key = self.key();
        let count = |count: Option<u32>| count.map(|n| words.step.count(key, Some(n)));
        let time = |ms: u64| words.step.duration(key, ms);
        match self {
            Self::Retryable => (json!(false), json!(true)),
            Self::MaxAttempts { from, to }
            | Self::MaxPreemptions { from, to }
            | Self::MaxDeferrals { from, to } => (json!(count(*from)), json!(count(Some(*to)))),
            Self::DelayBudget { from_ms, to_ms } | Self::Window { from_ms, to_ms } => {
                (time(*from_ms), time(*to_ms))
            }
            Self::Timeout { from_ms, to_ms } => {
                (json!(duration_text(*from_ms)), json!(duration_text(*to_ms)))
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

    fn is_of_the_job(&self) -> bool {
        matches!(self, Self::JobBudget { .. } | Self::StepBudget { .. } | Self::Timeout { .. })
    }

    /// As its author would write it.
    pub(super) fn written(&self, words: &Spellings<'_>) -> WrittenChange {
        let spelling = if self.is_of_the_job() { words.job } else { words.step };
        let (from, to) = self.values(words);
        WrittenChange { key: spelling.key(self.key()).to_owned(), from, to }
    }

    /// What follows the word "with".
    pub(super) fn phrase(&self, words: &Spellings<'_>) -> String {
        let WrittenChange { key, to, .. } = self.written(words);
        // As YAML has it: text without quotes.
        let to = to.as_str().map_or_else(|| to.to_string(), str::to_owned);
        let phrase = match self {
            Self::Retryable
            | Self::MaxAttempts { .. }
            | Self::MaxDeferrals { .. }
            | Self::MaxPreemptions { from: Some(_), .. }
            | Self::DelayBudget { .. }
            | Self::Window { .. } => format!("`{key}: {to}`"),
            Self::MaxPreemptions { from: None, .. } => format!("`{key}: {to}` written"),
            Self::Timeout { .. } => format!("`{key}: {to}` for the job"),
            Self::ExitStop { code, .. } => format!("{code} taken out of `{key}`"),
            Self::ExitRetry { code, .. } => format!("{code} added to `{key}`"),
            Self::RuleThen { index } => format!("`then: retry` in rule {}", index + 1),
            Self::NewRule { http_status } => {
                format!("a rule `{{ http_status: [{http_status}], then: retry }}`")
            }
            Self::JobBudget { to, total, floor, clamped, .. } => {
                let keys = [("total", *total), ("floor", *floor)].into_iter();
                let keys = keys.filter(|(_, binds)| *binds).map(|(key, _)| format!("{key}: {to}"));
                let native = format!("retry_budget: {{ {} }}", keys.collect::<Vec<_>>().join(", "));
                let written = if key == self.key() { native } else { format!("{key}: {to}") };
                format!("`{written}`{}", ceiling(*clamped))
            }
            Self::StepBudget { to, clamped, .. } => {
                let native = format!("retry_budget: {{ per_step: {to} }}");
                let written = if key == self.key() { native } else { format!("{key}: {to}") };
                format!("`{written}`{}", ceiling(*clamped))
            }
        };
        match &words.step.block {
            Some(block) if !self.is_of_the_job() && !words.step.has(self.key()) => {
                format!("{phrase} (in a native `retry`; `{block}` has no such key)")
            }
            _ => phrase,
        }
    }

    /// Makes the change in what a decision is asked with.
    pub fn apply(&self, draft: &mut PolicyDraft, shared: &mut SharedAccounts) {
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
                    rule.then = RuleAction::Retry;
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

    /// Makes the change in what the author wrote. A step that is not there stays so.
    pub fn apply_to_plan(&self, plan: &mut PlanDraft, step: u32) -> Result<(), Problems> {
        let mut nothing_shared = SharedAccounts::alone(crate::backoff::Draw::from_bits(0));
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

const fn ceiling(clamped: bool) -> &'static str {
    if clamped { " (and a ceiling that allows it)" } else { "" }
}

/// What the author of a job calls things.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spellings<'a> {
    pub(super) step: &'a Spelling,
    pub(super) job: &'a Spelling,
}

/// A change as its author would write it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WrittenChange {
    pub key: String,
    pub from: Value,
    pub to: Value,
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
