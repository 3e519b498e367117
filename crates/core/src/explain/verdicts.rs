//! Each verdict of a log in words: which check decided, with the numbers it had before it.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ItemName;
use super::counterfactual::{Case, Counterfactual, DecisionBasis};
use super::words::ordinal;
use crate::account::{Accounts, Charges};
use crate::event::FailedOn;
use crate::outcome::{Failure, FailureKind, Outcome, Permanence, RequestedDelay};
use crate::plan::BudgetCounts;
use crate::policy::RuleDraft;
use crate::time::{Timestamp, exact_ms, human_ms};
use crate::verdict::{Cause, Decision, FREE_UNSTARTED, IMMEDIATE_LOSSES, StopReason};

/// One decision, why it was made, and what would have made it another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerdictExplanation {
    pub seq: u64,
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    pub item: ItemName,
    /// 0: none has started.
    pub attempt: u32,
    pub on: FailedOn,
    /// As a rehearsal script writes it; none if no attempt gave one.
    pub outcome: Option<String>,
    pub error: Option<String>,
    #[serde(flatten)]
    pub decision: DecisionSummary,
    pub rule: Rule,
    /// Those that moved, or that decided.
    pub moved: Vec<Account>,
    pub charged: Charges,
    pub before: Accounts,
    pub after: Accounts,
    /// Of a stop.
    pub would_change: Option<Counterfactual>,
    /// Why nothing would have.
    pub nothing_would: Option<Cow<'static, str>>,
    /// The same question gets another answer now: what is explained is not what was recorded.
    pub disagrees: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum DecisionSummary {
    Complete,
    Retry {
        cause: Cause,
        delay_ms: u64,
        #[serde(rename = "due_at_ms")]
        due_at: Timestamp,
    },
    Stop {
        reason: StopReason,
    },
}

impl From<Decision> for DecisionSummary {
    fn from(decision: Decision) -> Self {
        match decision {
            Decision::Complete => Self::Complete,
            Decision::Retry { cause, delay_ms, due_at } => Self::Retry { cause, delay_ms, due_at },
            Decision::Stop { reason } => Self::Stop { reason },
        }
    }
}

impl fmt::Display for DecisionSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => f.write_str("succeeded"),
            Self::Retry { delay_ms: 0, .. } => f.write_str("retry at once"),
            Self::Retry { delay_ms, .. } => write!(f, "retry in {}", human_ms(*delay_ms)),
            Self::Stop { reason } => write!(f, "stop, {reason}"),
        }
    }
}

/// What decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// Its number among the rules of a retry; none where no attempt was judged.
    pub check: Option<u8>,
    pub text: String,
}

/// One account before and after a decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: Cow<'static, str>,
    pub before: u64,
    pub after: u64,
    /// None: unlimited.
    pub limit: Option<u64>,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let say = |n: u64| if self.is_time() { human_ms(n) } else { n.to_string() };
        write!(f, "{} {}", self.name.trim_end_matches("_ms"), say(self.before))?;
        if self.after != self.before {
            write!(f, " → {}", say(self.after))?;
        }
        self.limit.map_or(Ok(()), |limit| write!(f, " of {}", say(limit)))
    }
}

impl Account {
    /// In milliseconds, not a count.
    pub fn is_time(&self) -> bool {
        self.name.ends_with("_ms")
    }
}

impl VerdictExplanation {
    /// All of it in one sentence.
    pub fn sentence(&self) -> String {
        let Self { item, attempt, decision, .. } = self;
        let mut text = match (&self.error, &self.outcome) {
            _ if *attempt == 0 => format!("{item}: {decision}"),
            (Some(what), _) | (None, Some(what)) => {
                format!("{item} attempt {attempt}, {what}: {decision}")
            }
            (None, None) => format!("{item} attempt {attempt}: {decision}"),
        };
        if *decision != DecisionSummary::Complete {
            text.push_str(&format!(" ({})", self.rule.text));
        }
        let would = self.would_change.as_ref().map(|c| c.text.as_str());
        let would = would.or(self.nothing_would.as_deref());
        for note in would.into_iter().chain(self.disagrees.as_deref()) {
            text.push_str(&format!("; {note}"));
        }
        text
    }
}

/// The accounts that a decision moved, and the one that it hung on.
pub(super) fn moved(
    before: &Accounts,
    after: &Accounts,
    decision: DecisionSummary,
) -> Vec<Account> {
    let decided_by = match decision {
        DecisionSummary::Stop { reason: StopReason::AttemptsExhausted } => "failures",
        DecisionSummary::Stop { reason: StopReason::PreemptionsExhausted } => "preemptions",
        DecisionSummary::Stop { reason: StopReason::DeferralsExhausted } => "deferrals",
        DecisionSummary::Stop { reason: StopReason::DelayBudgetExhausted } => "delay_spent_ms",
        DecisionSummary::Stop { reason: StopReason::JobBudgetExhausted } => "job_retries",
        DecisionSummary::Stop { reason: StopReason::StepBudgetExhausted } => "step_retries",
        _ => "",
    };
    let number = |name: &'static str, pick: fn(&Accounts) -> u32, limit: Option<u32>| Account {
        name: name.into(),
        before: u64::from(pick(before)),
        after: u64::from(pick(after)),
        limit: limit.map(u64::from),
    };
    let time = |name: &'static str, before, after, limit| Account {
        name: name.into(),
        before,
        after,
        limit,
    };
    let all = [
        number("failures", |a| a.failures, after.max_attempts),
        number("preemptions", |a| a.preemptions, after.max_preemptions),
        number("deferrals", |a| a.deferrals, after.max_deferrals),
        time("delay_spent_ms", before.delay_spent_ms, after.delay_spent_ms, after.delay_budget_ms),
        time("downtime_ms", before.downtime_ms, after.downtime_ms, after.delay_budget_ms),
        number("job_retries", |a| a.job_retries, after.job_budget),
        number("step_retries", |a| a.step_retries, after.step_budget),
    ];
    // Retries are counted also where no budget is asked for them: that is no account then.
    let unasked =
        |a: &Account| a.limit.is_none() && matches!(&*a.name, "job_retries" | "step_retries");
    let matters = |a: &Account| a.name == decided_by || (a.before != a.after && !unasked(a));
    all.into_iter().filter(matters).collect()
}

/// Which check decided, in a sentence with the policy's numbers.
pub(super) fn rule(case: &Case<'_>, on: FailedOn, decision: DecisionSummary) -> Rule {
    let at = |check, text: String| Rule { check: Some(check), text };
    match (decision, case.ground) {
        (DecisionSummary::Complete, _) => Rule { check: None, text: "it succeeded".to_owned() },
        (DecisionSummary::Stop { reason }, DecisionBasis::Overdue { .. }) => {
            overdue(case, on, reason)
        }
        (DecisionSummary::Retry { delay_ms, .. }, DecisionBasis::Overdue { .. }) => {
            at(9, format!("goes on, in {}", human_ms(delay_ms)))
        }
        (
            DecisionSummary::Retry { cause: Cause::Preemption, delay_ms, .. },
            DecisionBasis::Outcome(outcome),
        ) => at(2, lost(case, outcome, delay_ms)),
        (DecisionSummary::Retry { cause, delay_ms, .. }, DecisionBasis::Outcome(outcome)) => {
            let check = if cause == Cause::Deferral { 3 } else { 9 };
            at(check, again(case, outcome, cause, delay_ms))
        }
        (DecisionSummary::Stop { reason }, DecisionBasis::Outcome(outcome)) => {
            let (check, text) = stopped(case, outcome, reason);
            Rule { check, text }
        }
    }
}

fn lost(case: &Case<'_>, outcome: &Outcome, delay_ms: u64) -> String {
    let history = &case.history;
    let free = matches!(outcome, Outcome::Lost { started: false, .. })
        && history.unstarted_in_row < FREE_UNSTARTED;
    if free {
        let nth = history.unstarted_in_row.saturating_add(1);
        let cost = if case.shared.budgeted == Some(BudgetCounts::All) && !outcome.is_handed_back() {
            "cost no preemption, but a retry of the budget, which counts all"
        } else {
            "are free"
        };
        return format!(
            "the attempt had not started, {nth} in a row of {FREE_UNSTARTED} that {cost}: \
             retried at once"
        );
    }
    let in_row = history.losses_in_row.saturating_add(1);
    let nth = ordinal(in_row);
    if in_row == 1 {
        return "the worker was lost: retried at once".to_owned();
    }
    if in_row <= IMMEDIATE_LOSSES {
        return format!("the worker was lost for the {nth} time in a row: retried at once");
    }
    format!("the worker was lost for the {nth} time in a row: backs off {}", human_ms(delay_ms))
}

fn again(case: &Case<'_>, outcome: &Outcome, cause: Cause, delay_ms: u64) -> String {
    let Outcome::Failed(failure) = outcome else { return String::new() };
    let delay = human_ms(delay_ms);
    let rule = matched(case, failure);
    if cause == Cause::Deferral {
        return match rule {
            Some((place, _)) => format!("{place}: defer {delay}"),
            None => format!("the handler asked to be deferred by {delay}"),
        };
    }
    let n = case.history.failures.saturating_add(1);
    let so_far = format!("failure {n}, and {}", limit(case, "max_attempts"));
    match (rule, failure.asked) {
        (Some((place, rule)), _) if rule.delay_ms.is_some() => format!("{place}: retry in {delay}"),
        (rule, Some(RequestedDelay::RetryAfterMs(ms))) => {
            let place = rule.map_or(String::new(), |(place, _)| format!("{place}; "));
            let capped = if ms > delay_ms {
                format!(", capped by {}", key(case, "max_retry_after"))
            } else {
                String::new()
            };
            format!("{place}{so_far}: waits {delay}, as it was asked to (Retry-After){capped}")
        }
        (Some((place, _)), _) => format!("{place}: retry; {so_far}: backs off {delay}"),
        (None, _) => format!("{so_far}: backs off {delay}"),
    }
}

/// `rule 1 of 2 matched (exit 75)`
fn matched<'a>(case: &'a Case<'_>, failure: &Failure) -> Option<(String, &'a RuleDraft)> {
    let rules = &case.policy().draft().rules;
    let index = case.rule?;
    let rule = rules.get(index)?;
    let mut because = vec![];
    match failure.kind {
        FailureKind::Exited(code) if rule.exit.is_some() => because.push(format!("exit {code}")),
        FailureKind::Signalled(signal) if rule.signal.is_some() => {
            because.push(format!("signal {signal}"));
        }
        FailureKind::TimedOut if rule.timeout => because.push("timeout".to_owned()),
        _ => {}
    }
    if let (Some(_), Some(status)) = (&rule.http_status, failure.http_status) {
        because.push(format!("HTTP status {status}"));
    }
    because.extend(rule.error.iter().map(|pattern| format!("error `{pattern}`")));
    let place = format!("rule {} of {} matched ({})", index + 1, rules.len(), because.join(", "));
    Some((place, rule))
}

/// What the author of the step calls a key of its policy.
fn key<'a>(case: &Case<'a>, native: &'a str) -> &'a str {
    case.plan.step(case.step).spelling.key(native)
}

/// `max_attempts is 4`, or as its author wrote it `max_retries is 3`.
fn limit(case: &Case<'_>, native: &str) -> String {
    let policy = case.policy();
    let most = match native {
        "max_attempts" => policy.max_attempts,
        "max_preemptions" => policy.max_preemptions,
        _ => policy.max_deferrals,
    };
    let most = case.words().step.count(native, most);
    let most = most.as_str().map_or_else(|| most.to_string(), str::to_owned);
    format!("{} is {most}", key(case, native))
}

/// `delay budget of 5s`, or as its author calls it `retry_budget of 5s`.
fn delay_budget(case: &Case<'_>) -> String {
    let budget = exact_ms(case.policy().delay_budget_ms.unwrap_or(0));
    match key(case, "delay_budget") {
        "delay_budget" => format!("delay budget of {budget}"),
        theirs => format!("{theirs} of {budget}"),
    }
}

fn number(limit: Option<u32>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string())
}

/// Who says that trying again cannot help: a status, the handler, or the policy alone.
fn permanent(failure: Option<&Failure>) -> String {
    let by_handler = "the handler said that the error is permanent".to_owned();
    let Some(failure) = failure else { return by_handler };
    if let (Permanence::ByStatus, Some(status)) = (failure.permanence, failure.http_status) {
        return format!("HTTP status {status} is permanent, and no rule says otherwise");
    }
    if failure.kind != FailureKind::NotCompleted || failure.http_status.is_some() {
        return by_handler;
    }
    let kind = failure.error.as_ref().and_then(|error| error.kind.as_deref());
    let text = match kind {
        Some("template" | "impossible") => {
            "a template of the step cannot be filled in, so the attempt could not begin"
        }
        Some("refused_address") => "the operator of the worker does not allow the address",
        Some("bad_url") => "the address cannot be called, so no request was sent",
        Some("bad_header") => "a header cannot be sent, so no request was",
        Some("bad_request") => "the request cannot be sent",
        Some("bad_redirect") => "the service redirects to where it cannot be followed",
        Some("unknown_function") => "the worker does not have the function",
        Some("unsupported") => "the worker cannot do what the step asks for",
        Some("assignment_refused") => "the worker refused what it was given to do",
        _ => return by_handler,
    };
    format!("{text}; another attempt could only fail in the same way")
}

fn stopped(case: &Case<'_>, outcome: &Outcome, reason: StopReason) -> (Option<u8>, String) {
    let Case { history, shared, now, plan, .. } = case;
    let policy = case.policy();
    let failure = match outcome {
        Outcome::Failed(failure) => Some(failure),
        _ => None,
    };
    let place = || failure.and_then(|failure| matched(case, failure)).map(|(place, _)| place);
    let ms = |ms: Option<u64>| exact_ms(ms.unwrap_or(0));
    let next = || exact_ms(case.next_delay_ms().unwrap_or(0));
    let (check, text) = match reason {
        StopReason::Cancelled => (1, "the job was cancelled".to_owned()),
        StopReason::StepFailed => (1, "another item had already failed the step".to_owned()),
        StopReason::JobTimedOut if shared.timeout_at.is_some_and(|at| *now >= at) => {
            (1, format!("the job's timeout of {} had come", ms(plan.timeout_ms())))
        }
        StopReason::JobTimedOut => {
            let timeout = ms(plan.timeout_ms());
            (
                8,
                format!(
                    "the next attempt, in {}, would not start before the job's timeout of {timeout}",
                    next()
                ),
            )
        }
        StopReason::NotRetryable if failure.is_some() => (4, "retryable is false".to_owned()),
        StopReason::NotRetryable => {
            let losses = key(case, "max_preemptions");
            (2, format!("the worker was lost, retryable is false and {losses} is not written"))
        }
        StopReason::PreemptionsExhausted => {
            let (most, nth) =
                (limit(case, "max_preemptions"), history.preemptions.saturating_add(1));
            (2, format!("{most} and this was loss {nth}"))
        }
        StopReason::PermanentError => (3, permanent(failure)),
        StopReason::RuleStop => (3, format!("{}: stop", place().unwrap_or_default())),
        StopReason::DeferralsExhausted => {
            let (most, nth) = (limit(case, "max_deferrals"), history.deferrals.saturating_add(1));
            let place = place().map_or(String::new(), |place| format!("{place}; "));
            (3, format!("{place}{most} and this was deferral {nth}"))
        }
        StopReason::ExitCodeExcluded => {
            (5, format!("{} in {}", exit(failure), key(case, "exit_codes.stop")))
        }
        StopReason::ExitCodeNotListed => {
            (5, format!("{} not in {}", exit(failure), key(case, "exit_codes.retry")))
        }
        StopReason::AttemptsExhausted => {
            let (most, nth) = (limit(case, "max_attempts"), history.failures.saturating_add(1));
            (6, format!("{most} and this was failure {nth}"))
        }
        StopReason::JobBudgetExhausted => {
            let budget = number(shared.job_budget);
            (7, format!("the job's retry budget of {budget} is spent{}", spent_on(failure)))
        }
        StopReason::StepBudgetExhausted => {
            let (share, on) = (number(shared.step_budget), spent_on(failure));
            let native = "retry_budget.per_step";
            let what = match plan.spelling().key(native) {
                key if key == native => "the step's share of the retry budget".to_owned(),
                theirs => format!("the step's {theirs}"),
            };
            (7, format!("{what}, {share}, is spent{on}"))
        }
        StopReason::DelayBudgetExhausted => {
            let spent = history.delay_spent_ms.saturating_add(history.downtime_ms);
            // To the millisecond: rounded, a sum could read as what it is over.
            let sum = exact_ms(spent.saturating_add(case.next_delay_ms().unwrap_or(0)));
            let down = match history.downtime_ms {
                0 => String::new(),
                down => format!(" ({} of downtime included)", exact_ms(down)),
            };
            let (next, budget) = (next(), delay_budget(case));
            (
                8,
                format!(
                    "the next delay, {next}, would bring the delays to {sum}{down}, over the {budget}"
                ),
            )
        }
        StopReason::WindowExpired => {
            let due = now.plus(case.next_delay_ms().unwrap_or(0));
            let after = exact_ms(due.since(history.first_failure_at.unwrap_or(*now)));
            let window = ms(policy.window_ms);
            (
                8,
                format!(
                    "the next attempt would start {after} after the first failure, over the window of {window}"
                ),
            )
        }
        StopReason::Unschedulable => return (None, no_worker(case)),
    };
    (Some(check), text)
}

/// Why a loss, which is free elsewhere, hangs on a budget.
const fn spent_on(failure: Option<&Failure>) -> &'static str {
    if failure.is_some() { "" } else { "; it counts all retries, also after losses" }
}

/// `exit code 2 is`
fn exit(failure: Option<&Failure>) -> String {
    match failure.map(|failure| (failure.kind, failure.shell_code())) {
        Some((FailureKind::Signalled(signal), Some(code))) => {
            format!("death by signal {signal} counts as exit code {code}, which is")
        }
        Some((_, Some(code))) => format!("exit code {code} is"),
        _ => "it is".to_owned(),
    }
}

fn no_worker(case: &Case<'_>) -> String {
    let most = case.plan.step(case.step).scheduling_timeout_ms.unwrap_or(0);
    format!("no worker took it within scheduling_timeout, {}", human_ms(most))
}

/// A stop without an attempt: nothing was judged, something had run out.
fn overdue(case: &Case<'_>, on: FailedOn, reason: StopReason) -> Rule {
    let Case { history, now, ground, .. } = case;
    let policy = case.policy();
    let back = if on == FailedOn::Resume { "it was resumed" } else { "the engine was back" };
    let text = match (reason, ground) {
        (StopReason::DelayBudgetExhausted, DecisionBasis::Overdue { budget_expires_at, .. }) => {
            let late = human_ms(now.since(budget_expires_at.unwrap_or(*now)));
            format!("the {} expired {late} before {back}", delay_budget(case))
        }
        (StopReason::WindowExpired, _) => {
            let window = policy.window_ms.unwrap_or(0);
            let ended = history.first_failure_at.unwrap_or(*now).plus(window);
            let (late, window) = (human_ms(now.since(ended)), human_ms(window));
            format!("the window of {window} since the first failure expired {late} before {back}")
        }
        (StopReason::Unschedulable, _) => return Rule { check: None, text: no_worker(case) },
        (reason, _) => reason.message().to_owned(),
    };
    Rule { check: Some(8), text }
}
