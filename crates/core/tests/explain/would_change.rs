//! Each reason to stop that something would have changed.

use crate::{Happens, budget, defaults, exits, lost, one, play};

use steadfast_core::explain::DecisionSummary;
use steadfast_core::job::Phase;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome, Permanence};
use steadfast_core::plan::{Allowance, Budget, BudgetCounts, Plan, PlanDraft, Ratio};
use steadfast_core::policy::{PolicyDraft, RuleAction, RuleDraft};
use steadfast_core::verdict::StopReason;

/// The script stops the item for `reason`; with the change that is offered it is retried.
fn changes(draft: PlanDraft, script: &[Happens], reason: StopReason, rule: &str, would: &str) {
    let plan = Plan::new(draft).expect("valid");
    let job = play(plan.clone(), script);
    let stop = job.last_verdict();
    assert_eq!(stop.decision, DecisionSummary::Stop { reason });
    assert_eq!(stop.rule.text, rule);
    let counterfactual = stop.would_change.expect("something would have changed it");
    assert_eq!(counterfactual.text, would);
    let changed = counterfactual.applied(&plan, 0).expect("valid");
    let again = play(changed, script);
    let item = again.item("s", 0);
    let live = again.job.live(item).unwrap_or_else(|| panic!("{would}: it stopped all the same"));
    assert_ne!(live.phase, Phase::Running);
    let waits = match live.phase {
        Phase::BackingOff { due_at, .. } => due_at.since(again.now),
        _ => 0,
    };
    assert_eq!(waits, counterfactual.delay_ms, "{would}");
}

#[test]
fn counts_that_are_spent() {
    changes(
        one(defaults()),
        &[exits(1), exits(1), exits(1)],
        StopReason::AttemptsExhausted,
        "max_attempts is 3 and this was failure 3",
        "with `max_attempts: 4` it would have been retried in 4s",
    );
    changes(
        one(PolicyDraft { max_preemptions: Some(1), ..defaults() }),
        &[lost(), lost()],
        StopReason::PreemptionsExhausted,
        "max_preemptions is 1 and this was loss 2",
        "with `max_preemptions: 2` it would have been retried at once",
    );
    let rule = RuleDraft {
        exit: Some(vec![75]),
        then: RuleAction::Defer,
        delay_ms: Some(30_000),
        ..RuleDraft::default()
    };
    changes(
        one(PolicyDraft { max_deferrals: Some(1), rules: vec![rule], ..defaults() }),
        &[exits(75), exits(75)],
        StopReason::DeferralsExhausted,
        "rule 1 of 1 matched (exit 75); max_deferrals is 1 and this was deferral 2",
        "with `max_deferrals: 2` it would have been deferred by 30s",
    );
}

#[test]
fn what_is_not_to_be_retried() {
    changes(
        one(PolicyDraft { retryable: false, ..defaults() }),
        &[exits(1)],
        StopReason::NotRetryable,
        "retryable is false",
        "with `retryable: true` it would have been retried in 1s",
    );
    changes(
        one(PolicyDraft { retryable: false, ..defaults() }),
        &[lost()],
        StopReason::NotRetryable,
        "the worker was lost, retryable is false and max_preemptions is not written",
        "with `max_preemptions: 100` written it would have been retried at once",
    );
    changes(
        one(PolicyDraft { exit_stop: vec![2, 3], ..defaults() }),
        &[exits(2)],
        StopReason::ExitCodeExcluded,
        "exit code 2 is in exit_codes.stop",
        "with 2 taken out of `exit_codes.stop` it would have been retried in 1s",
    );
    changes(
        one(PolicyDraft { exit_retry: vec![7], ..defaults() }),
        &[Happens::Ends(FailureKind::Signalled(9).into(), 0)],
        StopReason::ExitCodeNotListed,
        "death by signal 9 counts as exit code 137, which is not in exit_codes.retry",
        "with 137 added to `exit_codes.retry` it would have been retried in 1s",
    );
    let other = RuleDraft { exit: Some(vec![9]), ..RuleDraft::default() };
    let rule =
        RuleDraft { error: Some("quota".into()), then: RuleAction::Stop, ..RuleDraft::default() };
    let error = ErrorText { kind: None, message: "over quota".into() };
    let failure = Failure { error: Some(error), ..Failure::new(FailureKind::HandlerFailed) };
    changes(
        one(PolicyDraft { rules: vec![other, rule], ..defaults() }),
        &[Happens::Ends(Outcome::Failed(failure), 0)],
        StopReason::RuleStop,
        "rule 2 of 2 matched (error `quota`): stop",
        "with `then: retry` in rule 2 it would have been retried in 1s",
    );
    changes(
        one(defaults()),
        &[Happens::Ends(Outcome::from_http_status(404), 0)],
        StopReason::PermanentError,
        "HTTP status 404 is permanent, and no rule says otherwise",
        "with a rule `{ http_status: [404], then: retry }` it would have been retried in 1s",
    );
}

#[test]
fn budgets_of_the_job() {
    let spent = [exits(1), exits(1)];
    let with = |budget| PlanDraft { budget: Some(budget), ..one(defaults()) };
    let job = StopReason::JobBudgetExhausted;
    let text = "the job's retry budget of 1 is spent";
    let would = "with `retry_budget: { total: 2 }` it would have been retried in 2s";
    changes(with(budget(Some(1), None, None)), &spent, job, text, would);
    let ratio = Some(Ratio { ratio: 0.0, floor: 1 });
    let would = "with `retry_budget: { floor: 2 }` it would have been retried in 2s";
    changes(with(budget(Some(9), None, ratio)), &spent, job, text, would);
    let would = "with `retry_budget: { total: 2, floor: 2 }` it would have been retried in 2s";
    changes(with(budget(Some(1), None, ratio)), &spent, job, text, would);
    let mut clamped = budget(Some(1), None, None);
    clamped.total = Some(Allowance { requested: 9, effective: 1 });
    let would = "with `retry_budget: { total: 2 }` (and a ceiling that allows it) it would have \
                 been retried in 2s";
    changes(with(clamped), &spent, job, text, would);
    changes(
        with(budget(None, Some(1), None)),
        &spent,
        StopReason::StepBudgetExhausted,
        "the step's share of the retry budget, 1, is spent",
        "with `retry_budget: { per_step: 2 }` it would have been retried in 2s",
    );
    let all = Budget { counts: BudgetCounts::All, ..budget(Some(1), None, None) };
    changes(
        with(all),
        &[Happens::Ends(Outcome::LOST, 0), Happens::Ends(Outcome::NOT_BEGUN, 0)],
        job,
        "the job's retry budget of 1 is spent; it counts all retries, also after losses",
        "with `retry_budget: { total: 2 }` it would have been retried at once",
    );
}

#[test]
fn times_that_have_run_out() {
    let many = PolicyDraft { max_attempts: Some(9), ..defaults() };
    changes(
        one(PolicyDraft { delay_budget_ms: Some(5000), ..many.clone() }),
        &[exits(1), exits(1), exits(1)],
        StopReason::DelayBudgetExhausted,
        "the next delay, 4s, would bring the delays to 7s, over the delay budget of 5s",
        "with `delay_budget: 7s` it would have been retried in 4s",
    );
    changes(
        one(PolicyDraft { window_ms: Some(2000), ..many.clone() }),
        &[exits(1), Happens::Ends(FailureKind::Exited(1).into(), 500)],
        StopReason::WindowExpired,
        "the next attempt would start 3.5s after the first failure, over the window of 2s",
        "with `window: 3s500ms` it would have been retried in 2s",
    );
    changes(
        PlanDraft { timeout_ms: Some(3000), ..one(many.clone()) },
        &[exits(1), exits(1)],
        StopReason::JobTimedOut,
        "the next attempt, in 2s, would not start before the job's timeout of 3s",
        "with `timeout: 3s1ms` for the job it would have been retried in 2s",
    );
    changes(
        PlanDraft { timeout_ms: Some(3000), ..one(many.clone()) },
        &[Happens::Ends(FailureKind::Exited(1).into(), 3000)],
        StopReason::JobTimedOut,
        "the job's timeout of 3s had come",
        "with `timeout: 4s1ms` for the job it would have been retried in 1s",
    );
    // Without an attempt: what ran out while nothing could be done about it.
    changes(
        one(PolicyDraft { delay_budget_ms: Some(5000), ..many.clone() }),
        &[exits(1), Happens::Down(7000)],
        StopReason::DelayBudgetExhausted,
        "the delay budget of 5s expired 2s before the engine was back",
        "with `delay_budget: 7s` it would have been retried at once",
    );
    changes(
        one(PolicyDraft { window_ms: Some(5000), ..many }),
        &[exits(1), Happens::Paused(9000)],
        StopReason::WindowExpired,
        "the window of 5s since the first failure expired 4s before it was resumed",
        "with `window: 9s` it would have been retried at once",
    );
}

#[test]
fn limits_right_behind_each_other_are_all_named() {
    let policy = PolicyDraft {
        retryable: false,
        max_attempts: Some(1),
        exit_stop: vec![1],
        window_ms: Some(500),
        delay_budget_ms: Some(999),
        ..defaults()
    };
    changes(
        one(policy),
        &[exits(1)],
        StopReason::NotRetryable,
        "retryable is false",
        "with `retryable: true`, 1 taken out of `exit_codes.stop`, `max_attempts: 2`, \
         `delay_budget: 1s` and `window: 1s` it would have been retried in 1s",
    );
    // Judged first as if the timeout had not come, and then in time for the delay.
    changes(
        PlanDraft {
            timeout_ms: Some(3000),
            ..one(PolicyDraft { max_attempts: Some(1), ..defaults() })
        },
        &[Happens::Ends(FailureKind::Exited(1).into(), 4000)],
        StopReason::JobTimedOut,
        "the job's timeout of 3s had come",
        "with `timeout: 5s1ms` for the job and `max_attempts: 2` it would have been retried in 1s",
    );
}

#[test]
fn a_service_is_not_blamed_for_what_it_was_never_asked() {
    let judged = |kind: FailureKind, error: &str| {
        let error = ErrorText { kind: Some(error.into()), message: "no".into() };
        let permanence = Permanence::Said;
        let failure = Failure { error: Some(error), permanence, ..Failure::new(kind) };
        let plan = Plan::new(one(defaults())).expect("valid");
        let job = play(plan, &[Happens::Ends(Outcome::Failed(failure), 0)]);
        let stop = job.last_verdict();
        assert_eq!(stop.decision, DecisionSummary::Stop { reason: StopReason::PermanentError });
        stop.rule.text
    };
    let ours = [
        ("template", "a template of the step cannot be filled in"),
        ("impossible", "a template of the step cannot be filled in"),
        ("refused_address", "the operator of the worker does not allow the address"),
        ("bad_url", "the address cannot be called"),
        ("bad_header", "a header cannot be sent"),
        ("bad_request", "the request cannot be sent"),
        ("bad_redirect", "the service redirects to where it cannot be followed"),
        ("unknown_function", "the worker does not have the function"),
    ];
    for (kind, text) in ours {
        let told = judged(FailureKind::NotCompleted, kind);
        assert!(told.starts_with(text) && !told.contains("handler"), "{kind}: {told}");
    }
    // Its own word for an error may be any.
    let theirs = judged(FailureKind::HandlerFailed, "template");
    assert_eq!(theirs, "the handler said that the error is permanent");
}
