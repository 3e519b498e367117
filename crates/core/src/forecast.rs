//! What a policy will do before anything runs: `plan`'s view of one item that keeps failing.
//!
//! The walk asks [`verdict`] again and again, without execution time, so that the limit which is named
//! here is the one that will stop the item. Without jitter first, and with it once with the longest and
//! once with the shortest delays that it can give.

use serde::{Deserialize, Serialize};

use crate::account::{History, SharedAccounts};
use crate::backoff::{Draw, Jitter};
use crate::outcome::{FailureKind, Outcome};
use crate::plan::{BudgetCounts, Plan, Step};
use crate::policy::{Policy, RuleAction};
use crate::time::Timestamp;
use crate::verdict::{Decision, StopReason, verdict};

/// Delays that are shown.
const SHOWN: usize = 100;
/// Verdicts that are asked for before the rest is computed from the delay reached by then.
const WALKED: u32 = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Forecast {
    /// Before jitter, until a limit binds; at most a hundred.
    pub delays_ms: Vec<u64>,
    pub binding_limit: BindingLimit,
    /// Of all delays until the limit binds, also those not shown. None: they never end.
    pub delay_total_ms: Option<u64>,
    /// None without a step timeout, or without an end.
    pub worst_case_ms: Option<u64>,
    /// How often one item is retried at most after failures. None: forever.
    #[serde(skip)]
    pub retries: Option<u64>,
    /// What jitter can make of it. None without jitter.
    pub jitter: Option<Jittered>,
}

/// The same item with the longest and with the shortest delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Jittered {
    pub attempts_at_least: Option<u64>,
    /// None: no bound.
    pub attempts_at_most: Option<u64>,
    /// What binds with the longest delays, and with the shortest.
    pub binding_limits: (BindingLimit, BindingLimit),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BindingLimit {
    MaxAttempts,
    DelayBudget,
    Window,
    JobBudget,
    StepBudget,
    NotRetryable,
    None,
}

impl BindingLimit {
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxAttempts => "max_attempts",
            Self::DelayBudget => "delay_budget",
            Self::Window => "window",
            Self::JobBudget => "job_budget",
            Self::StepBudget => "step_budget",
            Self::NotRetryable => "not_retryable",
            Self::None => "none",
        }
    }
}

/// What the policy of a step does to one of its items that fails whenever it runs.
pub fn forecast(plan: &Plan, step: u32) -> Forecast {
    let step = plan.step(step);
    let budget = plan.budget();
    let items = items(step).unwrap_or(1).max(1) * plan.runs() as u64;
    let limits = Limits {
        job_budget: budget.and_then(|budget| budget.total_at(items)),
        step_budget: budget.and_then(crate::plan::Budget::per_step),
    };
    let walk = Walk::new(&without_jitter(&step.policy), limits, Draw::from_bits(0));
    let jitter = (step.policy.delays().jitter() != Jitter::None).then(|| {
        let at = |draw| Walk::new(&step.policy, limits, Draw::from_bits(draw));
        let (longest, shortest) = (at(u64::MAX), at(0));
        Jittered {
            attempts_at_least: longest.retries.map(|n| n + 1),
            attempts_at_most: shortest.retries.map(|n| n + 1),
            binding_limits: (longest.limit, shortest.limit),
        }
    });
    let worst_case_ms = walk.worst_case_ms(step).map(|ms| ms.min(plan.timeout_ms().unwrap_or(ms)));
    Forecast {
        worst_case_ms,
        delay_total_ms: walk.retries.map(|_| walk.total_ms),
        binding_limit: walk.limit,
        retries: walk.retries,
        delays_ms: walk.delays_ms,
        jitter,
    }
}

/// How many retries the whole job can add up to: those after failures, and where its budget counts all
/// those after losses too. None: no bound, or a fan-out that is not known before it runs.
pub fn retries_at_most(plan: &Plan) -> Option<u64> {
    let budget = plan.budget();
    let share = budget.and_then(crate::plan::Budget::per_step).map(u64::from);
    let counts_all = budget.is_some_and(|budget| budget.counts == BudgetCounts::All);
    let runs = plan.runs() as u64;
    let mut all_items = Some(0u64);
    let mut sum = Some(0u64);
    for step in plan.steps() {
        let items = items(step).map(|items| items.saturating_mul(runs));
        all_items = all_items.zip(items).map(|(sum, items)| sum + items);
        let walk = Walk::new(&without_jitter(&step.policy), Limits::default(), Draw::from_bits(0));
        let alone = walk.most_retries(&step.policy);
        // Fallbacks and compensations are work items too, one in each run: a step that failed has
        // the one, a step that succeeded the other.
        let asides = if has_aside(step) { runs } else { 0 };
        let retries = match (alone, items) {
            // Attempts that never began are tried again whatever the policy says, and spend its share.
            _ if counts_all => None,
            (Some(0), _) => Some(0),
            (Some(each), Some(items)) => Some(each.saturating_mul(items.saturating_add(asides))),
            _ => None,
        };
        let retries = match (retries, share) {
            (Some(retries), Some(share)) => Some(retries.min(share)),
            (retries, share) => retries.or(share),
        };
        sum = sum.zip(retries).map(|(sum, retries)| sum.saturating_add(retries));
    }
    let total = budget.and_then(|budget| match (budget.ratio, all_items) {
        (Some(_), None) => budget.total.map(|total| u64::from(total.effective)),
        (_, items) => budget.total_at(items.unwrap_or(0)).map(u64::from),
    });
    match (sum, total) {
        (Some(sum), Some(total)) => Some(sum.min(total)),
        (sum, total) => sum.or(total),
    }
}

/// How many retries after failures the attempts of one step allow, over all its items and runs, budgets
/// aside. None: no limit, or a fan-out that is not known before it runs.
pub fn step_retries_at_most(plan: &Plan, step: u32) -> Option<u64> {
    let (step, runs) = (plan.step(step), plan.runs() as u64);
    let policy = step.policy.draft();
    if !policy.retryable && policy.rules.iter().all(|rule| rule.then != RuleAction::Retry) {
        return Some(0);
    }
    let each = u64::from(policy.max_attempts?) - 1;
    let asides = u64::from(has_aside(step));
    Some(each.saturating_mul(items(step)?.saturating_add(asides).saturating_mul(runs)))
}

fn has_aside(step: &Step) -> bool {
    step.compensate.is_some() || step.on_failure.as_ref().is_some_and(|then| then.action.is_some())
}

/// Known before it runs, or not.
fn items(step: &Step) -> Option<u64> {
    step.for_each.items().map(u64::from)
}

#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    job_budget: Option<u32>,
    step_budget: Option<u32>,
}

struct Walk {
    delays_ms: Vec<u64>,
    limit: BindingLimit,
    retries: Option<u64>,
    total_ms: u64,
}

impl Walk {
    /// Every delay is drawn alike.
    fn new(policy: &Policy, limits: Limits, draw: Draw) -> Self {
        // Neither exit lists nor rules match it: the walk is about counts and time.
        let outcome = Outcome::from(FailureKind::NotCompleted);
        let mut shared = SharedAccounts {
            job_budget: limits.job_budget,
            step_budget: limits.step_budget,
            ..SharedAccounts::alone(draw)
        };
        let mut history = History::default();
        let mut now = Timestamp(0);
        let mut walk =
            Self { delays_ms: vec![], limit: BindingLimit::None, retries: Some(0), total_ms: 0 };
        for _ in 0..WALKED {
            let verdict = verdict(policy, &history, &shared, &outcome, now);
            match verdict.decision {
                Decision::Retry { delay_ms, due_at, .. } => {
                    if walk.delays_ms.len() < SHOWN {
                        walk.delays_ms.push(delay_ms);
                    }
                    walk.retries = walk.retries.map(|n| n + 1);
                    walk.total_ms = walk.total_ms.saturating_add(delay_ms);
                    history.first_failure_at = history.first_failure_at.or(Some(now));
                    history.failures = verdict.accounts.failures;
                    history.delay_spent_ms = verdict.accounts.delay_spent_ms;
                    history.last_delay_ms = Some(delay_ms);
                    shared.job_retries = verdict.accounts.job_retries;
                    shared.step_retries = verdict.accounts.step_retries;
                    now = due_at;
                }
                Decision::Stop { reason } => {
                    walk.limit = limit_of(reason);
                    return walk;
                }
                Decision::Complete => unreachable!("a failure does not complete"),
            }
            if walk.delays_ms.len() == SHOWN && endless(policy, limits) {
                walk.retries = None;
                return walk;
            }
        }
        walk.finish(policy, limits, &history, draw);
        walk
    }

    /// Too many retries to ask for one by one: the delay stays what it has become.
    fn finish(&mut self, policy: &Policy, limits: Limits, history: &History, draw: Draw) {
        let (next, last) = (history.failures.saturating_add(1), history.last_delay_ms);
        let delay = policy.delays().delay_ms(next, last, draw);
        let done = u64::from(history.failures);
        let in_time = |limit: Option<u64>| {
            limit.filter(|_| delay > 0).map(|limit| limit.saturating_sub(self.total_ms) / delay)
        };
        // In the order of the checks: of two that bind at once the earlier one is named.
        let left = [
            (BindingLimit::MaxAttempts, policy.max_attempts.map(|n| u64::from(n) - 1 - done)),
            (BindingLimit::JobBudget, limits.job_budget.map(|n| u64::from(n) - done)),
            (BindingLimit::StepBudget, limits.step_budget.map(|n| u64::from(n) - done)),
            (BindingLimit::DelayBudget, in_time(policy.delay_budget_ms)),
            (BindingLimit::Window, in_time(policy.window_ms)),
        ];
        let first = left.into_iter().filter_map(|(limit, left)| Some((left?, limit)));
        match first.min_by_key(|(left, _)| *left) {
            Some((left, limit)) => {
                self.limit = limit;
                self.retries = Some(done + left);
                self.total_ms = self.total_ms.saturating_add(left.saturating_mul(delay));
            }
            None => self.retries = None,
        }
    }

    /// How often an item is retried at most; jitter can make more retries fit a limit in time.
    fn most_retries(&self, policy: &Policy) -> Option<u64> {
        match policy.delays().jitter() {
            Jitter::None => self.retries,
            _ => jittered_worst(policy, self.limit, self.retries?).map(|(retries, _)| retries),
        }
    }

    /// Longest delays plus attempts × timeout. Jitter can shorten delays and so make room for more
    /// attempts, so the attempts are counted with the shortest delays and the time with the longest.
    fn worst_case_ms(&self, step: &Step) -> Option<u64> {
        let timeout = step.timeout_ms?;
        let retries = self.retries?;
        let policy = &step.policy;
        let (retries, delays) = if policy.delays().jitter() == Jitter::None {
            (retries, self.total_ms)
        } else {
            jittered_worst(policy, self.limit, retries)?
        };
        let attempts = retries + 1;
        let by_counts = attempts.saturating_mul(timeout).saturating_add(delays);
        // A window is wall clock: the last retry starts within it.
        let by_window = policy.window_ms.map(|window| window.saturating_add(2 * timeout));
        Some(by_window.map_or(by_counts, |by_window| by_counts.min(by_window)))
    }
}

/// Retries at most, and delays at most, when jitter varies them.
fn jittered_worst(policy: &Policy, limit: BindingLimit, retries: u64) -> Option<(u64, u64)> {
    let by_time = matches!(limit, BindingLimit::DelayBudget | BindingLimit::Window);
    let most = if by_time { u64::from(policy.max_attempts?) - 1 } else { retries };
    let room = policy.delay_budget_ms.into_iter().chain(policy.window_ms).min();
    let (mut shortest, mut longest, mut last, mut count) = (0u64, 0u64, None, 0u64);
    while count < most {
        let n = u32::try_from(count + 1).unwrap_or(u32::MAX);
        let (low, high) = policy.delays().bounds_ms(n, last);
        if count >= u64::from(WALKED) {
            let left = most - count;
            let fits = room.filter(|_| low > 0).map(|room| room.saturating_sub(shortest) / low);
            let left = fits.map_or(left, |fits| left.min(fits));
            count += left;
            longest = longest.saturating_add(left.saturating_mul(high));
            break;
        }
        if room.is_some_and(|room| shortest.saturating_add(low) > room) {
            break;
        }
        shortest = shortest.saturating_add(low);
        longest = longest.saturating_add(high);
        last = Some(high);
        count += 1;
    }
    Some((count, longest.min(room.unwrap_or(u64::MAX))))
}

fn endless(policy: &Policy, limits: Limits) -> bool {
    policy.max_attempts.is_none()
        && limits.job_budget.is_none()
        && limits.step_budget.is_none()
        && policy.delay_budget_ms.is_none()
        && policy.window_ms.is_none()
}

fn without_jitter(policy: &Policy) -> Policy {
    let mut steady = policy.clone();
    steady.delays.jitter = Jitter::None;
    steady
}

fn limit_of(reason: StopReason) -> BindingLimit {
    match reason {
        StopReason::NotRetryable => BindingLimit::NotRetryable,
        StopReason::JobBudgetExhausted => BindingLimit::JobBudget,
        StopReason::StepBudgetExhausted => BindingLimit::StepBudget,
        StopReason::DelayBudgetExhausted => BindingLimit::DelayBudget,
        StopReason::WindowExpired => BindingLimit::Window,
        _ => BindingLimit::MaxAttempts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Backoff;
    use crate::plan::{
        Action, AfterFailure, Allowance, Budget, BudgetCounts, OnFailure, PlanDraft, StepDraft,
    };
    use crate::policy::PolicyDraft;

    fn plan(policy: PolicyDraft, budget: Option<Budget>, timeout_ms: Option<u64>) -> Plan {
        let policy = Policy::new(policy).expect("valid");
        let mut step = StepDraft::new("s", Action::Run("true".into()), policy);
        step.timeout_ms = timeout_ms;
        Plan::new(PlanDraft { budget, ..PlanDraft::new("j", vec![step]) }).expect("valid")
    }

    fn check(policy: PolicyDraft, limit: BindingLimit, retries: Option<u64>) -> Forecast {
        let forecast = forecast(&plan(policy, None, None), 0);
        assert_eq!((forecast.binding_limit, forecast.retries), (limit, retries));
        forecast
    }

    fn fixed(max_attempts: Option<u32>) -> PolicyDraft {
        PolicyDraft { max_attempts, backoff: Backoff::Fixed, ..PolicyDraft::default() }
    }

    #[test]
    fn the_limit_that_is_named_is_the_one_that_stops() {
        check(fixed(Some(4)), BindingLimit::MaxAttempts, Some(3));
        check(fixed(None), BindingLimit::None, None);
        let not = PolicyDraft { retryable: false, ..fixed(Some(4)) };
        check(not, BindingLimit::NotRetryable, Some(0));
        let window = PolicyDraft { window_ms: Some(2500), ..fixed(Some(9)) };
        check(window, BindingLimit::Window, Some(2));
    }

    #[test]
    fn jitter_says_how_few_and_how_many_attempts_there_can_be() {
        let jittered = |max_attempts, jitter| {
            let delay_budget_ms = Some(12_000);
            let policy =
                PolicyDraft { max_attempts, jitter, delay_budget_ms, ..PolicyDraft::default() };
            let forecast = forecast(&plan(policy, None, None), 0);
            let jitter = forecast.jitter.expect("there is jitter");
            let (longest, shortest) = jitter.binding_limits;
            let attempts = (jitter.attempts_at_least, jitter.attempts_at_most);
            (forecast.binding_limit, forecast.retries, attempts, longest.name(), shortest.name())
        };
        // 1 + 2 + 4 fits, 1.8 + 3.6 + 7.2 does not.
        let (limit, retries) = (BindingLimit::MaxAttempts, Some(3));
        assert_eq!(
            jittered(Some(4), Jitter::Factor(0.8)),
            (limit, retries, (Some(3), Some(4)), "delay_budget", "max_attempts")
        );
        let (limit, retries) = (BindingLimit::DelayBudget, Some(3));
        assert_eq!(
            jittered(Some(9), Jitter::Factor(0.8)),
            (limit, retries, (Some(3), Some(6)), "delay_budget", "delay_budget")
        );
        assert_eq!(
            jittered(None, Jitter::Full),
            (limit, retries, (Some(4), None), "delay_budget", "none")
        );
        assert_eq!(forecast(&plan(fixed(Some(4)), None, None), 0).jitter, None);
    }

    #[test]
    fn limits_far_away_are_computed_not_walked() {
        let far = check(fixed(Some(4_000_000_000)), BindingLimit::MaxAttempts, Some(3_999_999_999));
        assert_eq!(far.delays_ms.len(), 100);
        assert_eq!(far.delay_total_ms, Some(3_999_999_999_000));
        let budget = PolicyDraft { delay_budget_ms: Some(5_000_500), ..fixed(None) };
        check(budget, BindingLimit::DelayBudget, Some(5000));
        let free = PolicyDraft { initial_delay_ms: 0, delay_budget_ms: Some(1), ..fixed(None) };
        check(free, BindingLimit::None, None);
    }

    #[test]
    fn the_worst_case_counts_the_longest_delays_and_every_timeout() {
        let worst = |policy| forecast(&plan(policy, None, Some(10_000)), 0).worst_case_ms;
        assert_eq!(worst(PolicyDraft::default()), Some(3000 + 3 * 10_000));
        let jitter = Jitter::Factor(0.5);
        let jittered = PolicyDraft { jitter, ..PolicyDraft::default() };
        assert_eq!(worst(jittered.clone()), Some(4500 + 3 * 10_000));
        // Shorter delays make room for all three attempts, the longest still fit the budget only.
        let budgeted = PolicyDraft { delay_budget_ms: Some(2000), ..jittered };
        assert_eq!(worst(budgeted), Some(2000 + 3 * 10_000));
        let window = PolicyDraft { window_ms: Some(4000), ..PolicyDraft::default() };
        assert_eq!(worst(window), Some(4000 + 2 * 10_000));
        assert_eq!(forecast(&plan(fixed(Some(3)), None, None), 0).worst_case_ms, None);
    }

    #[test]
    fn retries_of_a_job_add_up_and_its_budget_caps_them() {
        assert_eq!(retries_at_most(&plan(fixed(Some(4)), None, None)), Some(3));
        assert_eq!(retries_at_most(&plan(fixed(None), None, None)), None);
        // Without jitter the budget ends it after two; short delays make room for all four.
        let jittered = PolicyDraft {
            delay_budget_ms: Some(5000),
            max_attempts: Some(5),
            jitter: Jitter::Full,
            ..PolicyDraft::default()
        };
        assert_eq!(retries_at_most(&plan(jittered, None, None)), Some(4));
        let two = Some(Allowance { requested: 2, effective: 2 });
        let budget = Some(Budget {
            total: two,
            per_step: None,
            ratio: None,
            counts: BudgetCounts::Failures,
        });
        assert_eq!(retries_at_most(&plan(fixed(None), budget, None)), Some(2));
        // One attempt and no retry, as far as failures go; losses spend the share.
        let five = Some(Allowance { requested: 5, effective: 5 });
        let all =
            Some(Budget { total: five, per_step: two, ratio: None, counts: BudgetCounts::All });
        assert_eq!(retries_at_most(&plan(fixed(Some(1)), all, None)), Some(2));
    }

    #[test]
    fn fallbacks_and_compensations_are_retried_too() {
        let with = |change: fn(&mut StepDraft)| {
            let policy = Policy::new(fixed(Some(4))).expect("valid");
            let mut step = StepDraft::new("s", Action::Run("true".into()), policy);
            change(&mut step);
            let plan = Plan::new(PlanDraft::new("j", vec![step])).expect("valid");
            retries_at_most(&plan)
        };
        assert_eq!(with(|_| ()), Some(3));
        assert_eq!(with(|step| step.compensate = Some(Action::Run("undo".into()))), Some(6));
        assert_eq!(
            with(|step| {
                let action = Some(Action::Run("else".into()));
                step.on_failure = Some(OnFailure { action, then: AfterFailure::Fail });
            }),
            Some(6)
        );
        let goes_on = with(|step| {
            step.on_failure = Some(OnFailure { action: None, then: AfterFailure::Continue });
        });
        assert_eq!(goes_on, Some(3), "nothing runs");
    }
}
