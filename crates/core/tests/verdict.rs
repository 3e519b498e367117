//! The order of the checks, each limit at its edge, and what each decision charges.

use steadfast_core::account::{Charges, History, SharedAccounts};
use steadfast_core::backoff::{Backoff, Draw, Jitter};
use steadfast_core::event::FailedOn;
use steadfast_core::outcome::{
    ErrorText, Failure, FailureKind, Outcome, Permanence, RequestedDelay,
};
use steadfast_core::plan::BudgetCounts;
use steadfast_core::policy::{Policy, PolicyDraft, RuleAction, RuleDraft};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::{Cause, Decision, StopReason, eligible, expired, verdict};

const NOW: Timestamp = Timestamp(1_000_000);

fn draft() -> PolicyDraft {
    PolicyDraft::default()
}

fn alone() -> SharedAccounts {
    SharedAccounts::alone(Draw::from_bits(0))
}

fn exit(code: u8) -> Outcome {
    FailureKind::Exited(code).into()
}

fn failure() -> Failure {
    Failure::new(FailureKind::NotCompleted)
}

/// A case: what is unlike the defaults, and what is decided.
struct Case {
    policy: PolicyDraft,
    history: History,
    shared: SharedAccounts,
    outcome: Outcome,
}

fn case(outcome: Outcome) -> Case {
    Case { policy: draft(), history: History::default(), shared: alone(), outcome }
}

impl Case {
    fn decide(&self) -> steadfast_core::verdict::Verdict {
        let policy = Policy::new(self.policy.clone()).expect("valid");
        verdict(&policy, &self.history, &self.shared, &self.outcome, NOW)
    }

    #[track_caller]
    fn stops(&self, reason: StopReason) {
        assert_eq!(self.decide().decision, Decision::Stop { reason });
    }

    #[track_caller]
    fn retries(&self, cause: Cause, delay_ms: u64) -> Charges {
        let verdict = self.decide();
        let due_at = NOW.plus(delay_ms);
        assert_eq!(verdict.decision, Decision::Retry { cause, delay_ms, due_at });
        verdict.charged
    }
}

#[test]
fn a_success_completes_and_charges_nothing() {
    let verdict = case(Outcome::OK).decide();
    assert_eq!((verdict.decision, verdict.charged), (Decision::Complete, Charges::default()));
}

#[test]
fn a_failure_charges_failures_and_delay_and_a_budget_only_if_there_is_one() {
    let mut c = case(exit(1));
    let charged = c.retries(Cause::Failure, 1000);
    assert_eq!(charged, Charges { failures: 1, delay_ms: 1000, ..Charges::default() });
    c.shared.budgeted = Some(BudgetCounts::Failures);
    let charged = c.retries(Cause::Failure, 1000);
    assert_eq!((charged.job_retries, charged.step_retries), (1, 1));
    let accounts = c.decide().accounts;
    assert_eq!((accounts.job_retries, accounts.failures, accounts.delay_spent_ms), (1, 1, 1000));
}

#[test]
fn what_halts_the_job_comes_before_everything_else() {
    for reason in [StopReason::Cancelled, StopReason::StepFailed] {
        for outcome in [exit(1), Outcome::LOST, Outcome::NOT_BEGUN] {
            let mut c = case(outcome);
            c.shared.halted = Some(reason);
            c.stops(reason);
        }
    }
    let mut c = case(Outcome::LOST);
    c.shared.timeout_at = Some(NOW);
    c.stops(StopReason::JobTimedOut);
}

#[test]
fn losses_are_counted_apart_and_end_at_their_own_limit() {
    let mut c = case(Outcome::LOST);
    c.history.failures = 2;
    let charged = c.retries(Cause::Preemption, 0);
    assert_eq!(charged, Charges { preemptions: 1, ..Charges::default() });
    c.history.preemptions = 100;
    c.stops(StopReason::PreemptionsExhausted);
    assert_eq!(c.decide().accounts.preemptions, 100, "the counter stays at the limit");
    c.policy.max_preemptions = Some(0);
    c.history.preemptions = 0;
    c.stops(StopReason::PreemptionsExhausted);
    c.policy.max_preemptions = None;
    c.history.preemptions = u32::MAX;
    c.retries(Cause::Preemption, 0);
}

#[test]
fn from_the_third_loss_in_a_row_it_backs_off_uncharged() {
    for (before, delay) in [(0, 0), (1, 0), (2, 1000), (3, 2000), (4, 4000), (60, 60_000)] {
        let mut c = case(Outcome::LOST);
        c.history.losses_in_row = before;
        let charged = c.retries(Cause::Preemption, delay);
        assert_eq!(charged.delay_ms, 0);
    }
}

#[test]
fn a_loss_before_the_start_is_free_ten_times_in_a_row() {
    let mut c = case(Outcome::NOT_BEGUN);
    c.policy.retryable = false;
    c.history.unstarted_in_row = 9;
    assert_eq!(c.retries(Cause::Preemption, 0), Charges::default());
    c.history.unstarted_in_row = 10;
    c.stops(StopReason::NotRetryable);
    c.policy.retryable = true;
    assert_eq!(c.retries(Cause::Preemption, 0).preemptions, 1);
}

#[test]
fn what_is_not_retryable_survives_a_loss_only_if_somebody_wrote_so() {
    let mut c = case(Outcome::LOST);
    c.policy.retryable = false;
    c.stops(StopReason::NotRetryable);
    c.policy.max_preemptions_written = true;
    c.retries(Cause::Preemption, 0);
    c.outcome = exit(1);
    c.stops(StopReason::NotRetryable);
}

#[test]
fn permanent_comes_before_rules_and_rules_before_a_status() {
    let retry_404 = RuleDraft { http_status: Some(vec![404]), ..RuleDraft::default() };
    let mut c = case(Outcome::from_http_status(404));
    c.stops(StopReason::PermanentError);
    c.policy.rules = vec![retry_404];
    c.retries(Cause::Failure, 1000);
    c.outcome = Outcome::Failed(Failure {
        permanence: Permanence::Said,
        http_status: Some(404),
        ..failure()
    });
    c.stops(StopReason::PermanentError);
}

#[test]
fn what_can_never_begin_stops_and_is_charged_to_nothing() {
    let said = |failure: Failure| {
        case(Outcome::Failed(Failure { permanence: Permanence::Said, ..failure })).decide()
    };
    let stop = Decision::Stop { reason: StopReason::PermanentError };
    let never_began = said(failure());
    assert_eq!((never_began.decision, never_began.charged), (stop, Charges::default()));
    let failed = Charges { failures: 1, ..Charges::default() };
    let answered = Failure { http_status: Some(404), ..failure() };
    for began in [answered, Failure::new(FailureKind::Exited(1))] {
        let verdict = said(began);
        assert_eq!((verdict.decision, verdict.charged), (stop, failed));
    }
}

#[test]
fn the_first_matching_rule_wins() {
    let rule =
        |then, delay_ms| RuleDraft { exit: Some(vec![75]), then, delay_ms, ..RuleDraft::default() };
    let mut c = case(exit(75));
    c.policy.rules = vec![rule(RuleAction::Defer, Some(30_000)), rule(RuleAction::Stop, None)];
    let charged = c.retries(Cause::Deferral, 30_000);
    assert_eq!(charged, Charges { deferrals: 1, ..Charges::default() });
    c.history.deferrals = 100;
    c.stops(StopReason::DeferralsExhausted);
    c.policy.rules.remove(0);
    c.stops(StopReason::RuleStop);
    c.outcome = exit(1);
    c.retries(Cause::Failure, 1000);
}

#[test]
fn a_rule_that_retries_skips_the_checks_on_kind_and_code() {
    let rule = RuleDraft { exit: Some(vec![2]), delay_ms: Some(7), ..RuleDraft::default() };
    let mut c = case(exit(2));
    c.policy.retryable = false;
    c.policy.exit_stop = vec![2];
    c.stops(StopReason::NotRetryable);
    c.policy.rules = vec![rule];
    c.retries(Cause::Failure, 7);
    c.history.failures = 2;
    c.stops(StopReason::AttemptsExhausted);
}

#[test]
fn rules_tell_a_signal_from_an_exit_and_exit_codes_do_not() {
    let stop = |rule| RuleDraft { then: RuleAction::Stop, ..rule };
    let mut c = case(FailureKind::Signalled(9).into());
    c.policy.rules = vec![stop(RuleDraft { exit: Some(vec![137]), ..RuleDraft::default() })];
    c.retries(Cause::Failure, 1000);
    c.policy.rules = vec![stop(RuleDraft { signal: Some(vec![9]), ..RuleDraft::default() })];
    c.stops(StopReason::RuleStop);
    c.policy.rules.clear();
    c.policy.exit_stop = vec![137];
    c.stops(StopReason::ExitCodeExcluded);
}

#[test]
fn an_error_rule_matches_the_type_or_the_text() {
    let mut c = case(exit(1));
    let rule =
        RuleDraft { error: Some("Quota.*".into()), then: RuleAction::Stop, ..RuleDraft::default() };
    c.policy.rules = vec![rule];
    let with = |kind: Option<&str>, message: &str| {
        let error = ErrorText { kind: kind.map(str::to_owned), message: message.to_owned() };
        Outcome::Failed(Failure { error: Some(error), ..failure() })
    };
    c.retries(Cause::Failure, 1000);
    c.outcome = with(None, "QuotaExceeded for project");
    c.stops(StopReason::RuleStop);
    c.outcome = with(Some("Quota.*"), "no");
    c.stops(StopReason::RuleStop);
    c.outcome = with(Some("Quota"), "none left");
    c.retries(Cause::Failure, 1000);
    let timeout = RuleDraft { timeout: true, then: RuleAction::Stop, ..RuleDraft::default() };
    c.policy.rules = vec![timeout];
    c.outcome = FailureKind::TimedOut.into();
    c.stops(StopReason::RuleStop);
}

#[test]
fn exit_code_lists_pass_what_has_no_exit_code() {
    let mut c = case(exit(3));
    c.policy.exit_retry = vec![137, 139];
    c.stops(StopReason::ExitCodeNotListed);
    for kind in [
        FailureKind::Signalled(11),
        FailureKind::Exited(137),
        FailureKind::TimedOut,
        FailureKind::NotCompleted,
    ] {
        c.outcome = kind.into();
        c.retries(Cause::Failure, 1000);
    }
    c.policy.exit_stop = vec![137];
    c.outcome = exit(137);
    c.stops(StopReason::ExitCodeExcluded);
}

#[test]
fn counts_are_checked_before_time() {
    let mut c = case(exit(1));
    c.policy.delay_budget_ms = Some(0);
    c.policy.window_ms = Some(0);
    c.shared = SharedAccounts {
        job_budget: Some(5),
        job_retries: 5,
        step_budget: Some(2),
        step_retries: 2,
        timeout_at: Some(NOW.plus(1)),
        ..alone()
    };
    c.history.failures = 2;
    c.stops(StopReason::AttemptsExhausted);
    c.history.failures = 1;
    c.stops(StopReason::JobBudgetExhausted);
    c.shared.job_retries = 4;
    c.stops(StopReason::StepBudgetExhausted);
    c.shared.step_retries = 1;
    c.stops(StopReason::DelayBudgetExhausted);
    c.policy.delay_budget_ms = None;
    c.stops(StopReason::WindowExpired);
    c.policy.window_ms = None;
    c.stops(StopReason::JobTimedOut);
    c.shared.timeout_at = None;
    c.retries(Cause::Failure, 2000);
}

#[test]
fn a_budget_that_counts_all_is_spent_by_losses_and_failed_dispatches() {
    let budget = SharedAccounts {
        job_budget: Some(2),
        step_budget: Some(2),
        budgeted: Some(BudgetCounts::All),
        ..alone()
    };
    let one = Charges { job_retries: 1, step_retries: 1, ..Charges::default() };
    for (outcome, preemptions) in [(Outcome::LOST, 1), (Outcome::NOT_BEGUN, 0)] {
        let mut c = case(outcome);
        c.shared = budget;
        assert_eq!(c.retries(Cause::Preemption, 0), Charges { preemptions, ..one });
        assert_eq!((c.decide().accounts.job_retries, c.decide().accounts.step_retries), (1, 1));
        c.shared.job_retries = 2;
        c.shared.step_retries = 2;
        c.stops(StopReason::JobBudgetExhausted);
        assert_eq!(c.decide().charged, Charges::default());
        c.shared.job_budget = None;
        c.stops(StopReason::StepBudgetExhausted);
        // The same budget, where it counts failures only.
        c.shared.budgeted = Some(BudgetCounts::Failures);
        assert_eq!(c.retries(Cause::Preemption, 0), Charges { preemptions, ..Charges::default() });
    }
    // Check 2 comes before it.
    let mut c = case(Outcome::LOST);
    c.shared = SharedAccounts { job_retries: 2, ..budget };
    c.policy.max_preemptions = Some(0);
    c.stops(StopReason::PreemptionsExhausted);
    c.policy.retryable = false;
    c.stops(StopReason::NotRetryable);
    // Deferrals and waiting for a slot never spend it.
    let mut c = case(Outcome::handed_back());
    c.shared = SharedAccounts { job_retries: 2, step_retries: 2, ..budget };
    assert_eq!(c.retries(Cause::Preemption, 0), Charges::default());
    c.outcome = Outcome::Failed(Failure { asked: Some(RequestedDelay::DeferMs(5)), ..failure() });
    assert_eq!(c.retries(Cause::Deferral, 5), Charges { deferrals: 1, ..Charges::default() });
}

#[test]
fn time_limits_hold_to_the_millisecond() {
    let mut c = case(exit(1));
    c.policy.delay_budget_ms = Some(5000);
    c.history.delay_spent_ms = 3000;
    c.history.downtime_ms = 1000;
    c.retries(Cause::Failure, 1000);
    c.history.downtime_ms = 1001;
    c.stops(StopReason::DelayBudgetExhausted);

    let mut c = case(exit(1));
    c.policy.window_ms = Some(1000);
    c.retries(Cause::Failure, 1000);
    c.history.first_failure_at = Some(Timestamp(NOW.0 - 1));
    c.stops(StopReason::WindowExpired);

    let mut c = case(exit(1));
    c.shared.timeout_at = Some(NOW.plus(1001));
    c.retries(Cause::Failure, 1000);
    c.shared.timeout_at = Some(NOW.plus(1000));
    c.stops(StopReason::JobTimedOut);
}

#[test]
fn a_delay_that_is_asked_for_replaces_the_computed_one_up_to_its_cap() {
    let asked = |ms| {
        Outcome::Failed(Failure { asked: Some(RequestedDelay::RetryAfterMs(ms)), ..failure() })
    };
    let mut c = case(asked(90_000));
    c.policy.jitter = Jitter::Full;
    assert_eq!(c.retries(Cause::Failure, 90_000).delay_ms, 90_000);
    c.outcome = asked(u64::MAX);
    c.retries(Cause::Failure, 3_600_000);
    c.policy.delay_budget_ms = Some(60_000);
    c.stops(StopReason::DelayBudgetExhausted);
    c.outcome =
        Outcome::Failed(Failure { asked: Some(RequestedDelay::DeferMs(5000)), ..failure() });
    assert_eq!(c.retries(Cause::Deferral, 5000).delay_ms, 0);
}

#[test]
fn a_status_says_what_it_says_everywhere() {
    for (status, retried) in [
        (408, true),
        (429, true),
        (500, true),
        (599, true),
        (301, false),
        (400, false),
        (404, false),
    ] {
        let c = case(Outcome::from_http_status(status));
        if retried {
            c.retries(Cause::Failure, 1000);
        } else {
            c.stops(StopReason::PermanentError);
        }
    }
    assert_eq!(Outcome::from_http_status(204), Outcome::OK);
}

#[test]
fn a_restart_ends_what_has_run_out_meanwhile() {
    let policy = Policy::new(PolicyDraft { window_ms: Some(100), ..draft() }).expect("valid");
    let history = History { first_failure_at: Some(Timestamp(1000)), ..History::default() };
    let at = |ms| expired(&policy, &history, Some(Timestamp(1050)), Timestamp(ms));
    assert_eq!(at(1050), None);
    assert_eq!(at(1051), Some(StopReason::DelayBudgetExhausted));
    let at = |ms| expired(&policy, &history, None, Timestamp(ms));
    assert_eq!(at(1100), None);
    assert_eq!(at(1101), Some(StopReason::WindowExpired));
}

#[test]
fn the_first_execution_is_always_eligible() {
    for (attempts, max_attempts, retryable, expect) in [
        (0, 0, true, true),
        (1, 0, true, false),
        (0, 1, true, true),
        (1, 1, true, false),
        (0, 3, false, true),
        (1, 3, true, true),
        (2, 3, true, true),
        (3, 3, true, false),
        (1, 3, false, false),
        (u64::MAX, u64::MAX, true, false),
    ] {
        assert_eq!(
            eligible(attempts, max_attempts, retryable),
            expect,
            "{attempts} of {max_attempts}"
        );
    }
}

#[test]
fn a_far_attempt_of_an_unlimited_policy_waits_its_cap() {
    let mut c = case(exit(1));
    c.policy.max_attempts = None;
    c.policy.backoff = Backoff::Exponential { multiplier: 1e308 };
    c.history.failures = 1_000_000;
    c.retries(Cause::Failure, 60_000);
    c.history.failures = u32::MAX;
    c.retries(Cause::Failure, 60_000);
}

#[test]
fn every_reason_has_a_name_and_a_sentence() {
    for reason in StopReason::ALL {
        let json = serde_json::to_string(&reason).expect("serializes");
        assert_eq!(json, format!("\"{}\"", reason.name()));
        assert!(!reason.message().is_empty());
    }
    assert!(StopReason::DelayBudgetExhausted.message().contains("Retry budget exhausted"));
}

/// What ran out while nothing could be done about it is not told as a delay that was one too many.
#[test]
fn a_stop_says_what_it_was_decided_on() {
    let stop = |reason: StopReason, on| reason.message_on(on);
    let (budget, window) = (StopReason::DelayBudgetExhausted, StopReason::WindowExpired);
    assert!(stop(budget, FailedOn::Restart).ends_with("expired while the engine was down"));
    assert!(stop(window, FailedOn::Restart).ends_with("expired while the engine was down"));
    assert!(stop(window, FailedOn::Resume).ends_with("expired while the job was paused"));
    for reason in StopReason::ALL {
        assert_eq!(stop(reason, FailedOn::Outcome), reason.message());
        assert!(!reason.message().is_empty());
    }
    assert_eq!(stop(budget, FailedOn::Resume), budget.message());
}
