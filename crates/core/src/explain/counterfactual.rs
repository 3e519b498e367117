//! What would have changed a stop: the smallest change to what was written that makes the same
//! decision a retry.
//!
//! Nothing is reasoned about here. A change is made, [`verdict`] is asked again, and where another
//! limit binds right behind the first it is changed too, until the answer is a retry.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::change::{Change, Spellings, WrittenChange};
use super::words::and;
use crate::account::{History, SharedAccounts};
use crate::outcome::{Failure, Outcome, Permanence};
use crate::plan::{Allowance, Budget, Plan};
use crate::policy::{Policy, PolicyDraft, Problems};
use crate::time::{Timestamp, human_ms};
use crate::verdict::{Cause, Decision, StopReason, expired, verdict};

/// More than this is no answer any more.
const MOST_CHANGES: usize = 6;
/// Every change lifts one limit; a limit that is met twice is lifted further.
const MOST_QUESTIONS: usize = 2 * MOST_CHANGES;

/// What would have made a stop a retry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counterfactual {
    /// In the order of the checks; all of them are needed.
    #[serde(skip)]
    pub changes: Vec<Change>,
    /// The same, in the author's words.
    #[serde(rename = "changes")]
    pub written: Vec<WrittenChange>,
    /// What the item would have waited.
    pub delay_ms: u64,
    /// `with max_attempts: 4 it would have been retried in 4s`
    pub text: String,
}

impl fmt::Display for Counterfactual {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Counterfactual {
    /// The plan with all changes made: what to submit instead.
    pub fn applied(&self, plan: &Plan, step: u32) -> Result<Plan, Problems> {
        let mut draft = plan.draft();
        for change in &self.changes {
            change.apply_to_plan(&mut draft, step)?;
        }
        Plan::new(draft)
    }
}

/// What a decision was made on.
#[derive(Clone, Copy, Debug)]
pub(super) enum DecisionBasis<O> {
    Outcome(O),
    /// A restart or the end of a pause found the item backing off.
    Overdue {
        budget_expires_at: Option<Timestamp>,
        due_at: Timestamp,
    },
}

impl DecisionBasis<Outcome> {
    pub(super) fn as_ref(&self) -> DecisionBasis<&Outcome> {
        match self {
            Self::Outcome(outcome) => DecisionBasis::Outcome(outcome),
            &Self::Overdue { budget_expires_at, due_at } => {
                DecisionBasis::Overdue { budget_expires_at, due_at }
            }
        }
    }
}

/// One decision, to be asked again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'a> {
    pub(super) plan: &'a Plan,
    pub(super) step: u32,
    pub(super) history: History,
    pub(super) shared: SharedAccounts,
    pub(super) ground: DecisionBasis<&'a Outcome>,
    pub(super) now: Timestamp,
    /// What a ratio budget is a ratio of.
    pub(super) items_started: u64,
    /// The rule that matched, by its place. Those before it do not, so that it can stand alone.
    pub(super) rule: Option<usize>,
}

/// Why no change is offered; that the job was cancelled, say, is told by the rule already.
const NOTHING: &str = "nothing in the policy would have changed it";
pub(super) const NO_WORKER: &str = "a worker that fits would have changed it, no retry policy";
const TOO_MUCH: &str = "too many limits bind at once to name a change";

impl Case<'_> {
    pub(super) fn policy(&self) -> &Policy {
        &self.plan.step(self.step).policy
    }

    pub(super) fn words(&self) -> Spellings<'_> {
        Spellings { step: &self.plan.step(self.step).spelling, job: self.plan.spelling() }
    }

    pub(super) fn counterfactual(&self) -> Result<Counterfactual, &'static str> {
        let mut changes: Vec<Change> = vec![];
        for _ in 0..MOST_QUESTIONS {
            let asked = self.asked(&changes);
            match asked.decision().ok_or(TOO_MUCH)? {
                Decision::Retry { delay_ms, cause, .. } if !changes.is_empty() => {
                    let words = self.words();
                    let text = sentence(&changes, &words, cause, delay_ms);
                    let written = changes.iter().map(|change| change.written(&words)).collect();
                    return Ok(Counterfactual { changes, written, delay_ms, text });
                }
                Decision::Retry { .. } | Decision::Complete => return Err("it was no stop"),
                Decision::Stop { reason } => {
                    let change = asked.next_change(reason)?;
                    // The same limit again, a little further: one change, from where it was.
                    match changes.iter_mut().find(|made| made.key() == change.key()) {
                        Some(made) => made.extend_to(change),
                        None => changes.push(change),
                    }
                }
            }
            if changes.len() > MOST_CHANGES {
                break;
            }
        }
        Err(TOO_MUCH)
    }

    fn asked(&self, changes: &[Change]) -> AlteredCase<'_> {
        let draft = self.policy().draft().clone();
        let mut asked = AlteredCase { case: self, draft, shared: self.shared, rule: self.rule };
        for change in changes {
            change.apply(&mut asked.draft, &mut asked.shared);
            if matches!(change, Change::NewRule { .. }) {
                asked.rule = asked.draft.rules.len().checked_sub(1);
            }
        }
        asked
    }

    /// The delay that the policy gives if no limit on time binds.
    pub(super) fn next_delay_ms(&self) -> Option<u64> {
        self.asked(&[]).unbound_delay_ms()
    }
}

/// The question, as far as it has been changed.
struct AlteredCase<'a> {
    case: &'a Case<'a>,
    draft: PolicyDraft,
    shared: SharedAccounts,
    rule: Option<usize>,
}

impl AlteredCase<'_> {
    /// None: what was changed is no valid policy any more.
    fn decision(&self) -> Option<Decision> {
        self.decision_with(self.draft.clone(), &self.shared)
    }

    fn decision_with(&self, mut draft: PolicyDraft, shared: &SharedAccounts) -> Option<Decision> {
        draft.rules = self.rule.and_then(|at| draft.rules.get(at).cloned()).into_iter().collect();
        let Case { history, ground, now, .. } = *self.case;
        let grown = {
            let was = self.case.policy().delay_budget_ms.unwrap_or(0);
            draft.delay_budget_ms.unwrap_or(0).saturating_sub(was)
        };
        let policy = Policy::new(draft).ok()?;
        Some(match ground {
            DecisionBasis::Outcome(outcome) => {
                verdict(&policy, &history, shared, outcome, now).decision
            }
            DecisionBasis::Overdue { budget_expires_at, due_at } => {
                let expires = budget_expires_at.map(|at| at.plus(grown));
                let stop = expired(&policy, &history, expires, now);
                let (cause, delay_ms) = (Cause::Failure, due_at.since(now));
                let goes_on = Decision::Retry { cause, delay_ms, due_at };
                stop.map_or(goes_on, |reason| Decision::Stop { reason })
            }
        })
    }

    fn unbound_delay_ms(&self) -> Option<u64> {
        let draft = PolicyDraft { delay_budget_ms: None, window_ms: None, ..self.draft.clone() };
        let shared = SharedAccounts { timeout_at: None, ..self.shared };
        match self.decision_with(draft, &shared)? {
            Decision::Retry { delay_ms, .. } => Some(delay_ms),
            _ => None,
        }
    }

    /// What lifts the limit that gave `reason`, just so far that it does not give it again.
    fn next_change(&self, reason: StopReason) -> Result<Change, &'static str> {
        let Case { plan, history, ground, now, items_started, .. } = self.case;
        let (draft, shared) = (&self.draft, &self.shared);
        let failure = match ground {
            DecisionBasis::Outcome(Outcome::Failed(failure)) => Some(failure),
            _ => None,
        };
        let code = failure.and_then(Failure::shell_code);
        Ok(match reason {
            StopReason::Cancelled | StopReason::StepFailed => return Err(NOTHING),
            StopReason::Unschedulable => return Err(NO_WORKER),
            StopReason::PermanentError => {
                let by_status = failure.filter(|f| f.permanence == Permanence::ByStatus);
                let status = by_status.and_then(|failure| failure.http_status);
                Change::NewRule { http_status: status.ok_or(NOTHING)? }
            }
            StopReason::NotRetryable if failure.is_some() => Change::Retryable,
            StopReason::NotRetryable => {
                let to = draft.max_preemptions.ok_or(TOO_MUCH)?.max(history.preemptions + 1);
                Change::MaxPreemptions { from: None, to }
            }
            StopReason::PreemptionsExhausted => Change::MaxPreemptions {
                from: draft.max_preemptions,
                to: history.preemptions.saturating_add(1),
            },
            StopReason::DeferralsExhausted => Change::MaxDeferrals {
                from: draft.max_deferrals,
                to: history.deferrals.saturating_add(1),
            },
            StopReason::RuleStop => Change::RuleThen { index: self.rule.ok_or(TOO_MUCH)? },
            StopReason::ExitCodeExcluded => {
                let code = code.ok_or(TOO_MUCH)?;
                let from = draft.exit_stop.clone();
                let to = from.iter().copied().filter(|&other| other != i64::from(code)).collect();
                Change::ExitStop { code, from, to }
            }
            StopReason::ExitCodeNotListed => {
                let code = code.ok_or(TOO_MUCH)?;
                let from = draft.exit_retry.clone();
                let to = from.iter().copied().chain([i64::from(code)]).collect();
                Change::ExitRetry { code, from, to }
            }
            StopReason::AttemptsExhausted => Change::MaxAttempts {
                from: draft.max_attempts,
                to: history.failures.saturating_add(2),
            },
            StopReason::JobBudgetExhausted => {
                let from = shared.job_budget.ok_or(TOO_MUCH)?;
                let to = shared.job_retries.saturating_add(1);
                let budget = plan.budget().ok_or(TOO_MUCH)?;
                let total = budget.total.is_some_and(|total| total.effective < to);
                let by_ratio = Budget { total: None, ..*budget }.total_at(*items_started);
                let floor = by_ratio.is_some_and(|most| most < to);
                let clamped = total && budget.total.is_some_and(clamped);
                Change::JobBudget { from, to, total, floor, clamped }
            }
            StopReason::StepBudgetExhausted => Change::StepBudget {
                from: shared.step_budget.ok_or(TOO_MUCH)?,
                to: shared.step_retries.saturating_add(1),
                clamped: plan.budget().and_then(|b| b.per_step).is_some_and(clamped),
            },
            StopReason::DelayBudgetExhausted => {
                let from_ms = draft.delay_budget_ms.ok_or(TOO_MUCH)?;
                let to_ms = match *ground {
                    DecisionBasis::Outcome(_) => {
                        let spent = history.delay_spent_ms.saturating_add(history.downtime_ms);
                        spent.saturating_add(self.unbound_delay_ms().ok_or(TOO_MUCH)?)
                    }
                    DecisionBasis::Overdue { budget_expires_at, .. } => {
                        from_ms.saturating_add(now.since(budget_expires_at.ok_or(TOO_MUCH)?))
                    }
                };
                Change::DelayBudget { from_ms, to_ms }
            }
            StopReason::WindowExpired => {
                let from_ms = draft.window_ms.ok_or(TOO_MUCH)?;
                let due = match ground {
                    DecisionBasis::Outcome(_) => now.plus(self.unbound_delay_ms().ok_or(TOO_MUCH)?),
                    DecisionBasis::Overdue { .. } => *now,
                };
                Change::Window {
                    from_ms,
                    to_ms: due.since(history.first_failure_at.unwrap_or(*now)),
                }
            }
            StopReason::JobTimedOut => {
                let from_ms = plan.timeout_ms().ok_or(TOO_MUCH)?;
                let at = self.case.shared.timeout_at.ok_or(TOO_MUCH)?;
                // Past it already, whatever comes: first to be judged at all, then to be in time.
                let due = now.plus(self.unbound_delay_ms().unwrap_or(0));
                Change::Timeout { from_ms, to_ms: from_ms.saturating_add(due.plus(1).since(at)) }
            }
        })
    }
}

/// More was asked for than the operator's ceiling left.
fn clamped(allowance: Allowance) -> bool {
    allowance.requested > allowance.effective
}

fn sentence(changes: &[Change], words: &Spellings<'_>, cause: Cause, delay_ms: u64) -> String {
    let with = and(changes.iter().map(|change| change.phrase(words)));
    let again = match (cause, delay_ms) {
        (Cause::Deferral, ms) => format!("deferred by {}", human_ms(ms)),
        (_, 0) => "retried at once".to_owned(),
        (_, ms) => format!("retried in {}", human_ms(ms)),
    };
    format!("with {with} it would have been {again}")
}

/// Which rule of a policy matches: each compiled alone, once for a step.
#[derive(Debug, Default)]
pub(super) struct Rules(std::collections::BTreeMap<u32, Vec<Policy>>);

impl Rules {
    pub(super) fn matching(
        &mut self,
        policy: &Policy,
        step: u32,
        failure: &Failure,
    ) -> Option<usize> {
        policy.rule_for(failure)?;
        let alone = self.0.entry(step).or_insert_with(|| {
            let rules = policy.draft().rules.iter().cloned();
            let alone =
                rules.map(|rule| PolicyDraft { rules: vec![rule], ..PolicyDraft::default() });
            alone.filter_map(|draft| Policy::new(draft).ok()).collect()
        });
        alone.iter().position(|policy| policy.rule_for(failure).is_some())
    }
}
