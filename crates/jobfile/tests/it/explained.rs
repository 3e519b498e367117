//! A job is explained in the words and units its author wrote it in, and decided all the same.

use std::sync::Arc;

use steadfast_core::decide::{Input, accept, advance};
use steadfast_core::event::{AcceptedJob, ItemId, Requester, Role};
use steadfast_core::explain::{VerdictExplanation, explain};
use steadfast_core::job::Timer;
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;
use steadfast_jobfile::fluster::{self, FlusterRetry};

use crate::{step, valid};

/// The last verdict on the first step's only item, when these are its outcomes.
fn last(plan: Plan, outcomes: &[Outcome]) -> VerdictExplanation {
    let mut now = Timestamp(1000);
    let (kept, spent) = (vec![], vec![]);
    let plan = Arc::new(plan);
    let id = "01J00000000000000000000000".into();
    let requested = Requester::default();
    let accepted =
        AcceptedJob { id, plan, retried_from: None, kept, spent, source: None, requested };
    let (mut job, mut log) = accept(accepted, now);
    let item = ItemId { run: 0, step: 0, role: Role::Item, index: 0 };
    for outcome in outcomes {
        if let Some(due) = job.timer_due(&Timer::Retry(item)) {
            now = now.max(due);
            log.extend(advance(&mut job, &Input::Fired(Timer::Retry(item)), now).expect("due").log);
        }
        let start = Input::Start { item, worker: "w".into(), incarnation: None, least_token: 0 };
        log.extend(advance(&mut job, &start, now).expect("it starts").log);
        let token = job.last_token;
        let report = Input::Report { item, token, outcome: outcome.clone() };
        log.extend(advance(&mut job, &report, now).expect("it runs").log);
    }
    explain(&log, now, None).expect("the log holds").verdicts.pop().expect("a verdict")
}

fn exit(code: u8) -> Outcome {
    FailureKind::Exited(code).into()
}

#[track_caller]
fn check(plan: Plan, outcomes: &[Outcome], rule: &str, would: &str, change: &str) {
    let verdict = last(plan, outcomes);
    assert_eq!(verdict.rule.text, rule);
    assert_eq!(verdict.disagrees, None);
    let counterfactual = verdict.would_change.expect("something would have changed it");
    assert_eq!(counterfactual.text, format!("with {would}"));
    let json = serde_json::to_value(&counterfactual).expect("JSON");
    assert_eq!(json["changes"][0].to_string(), change);
}

#[test]
fn prodigy_is_told_of_attempts_and_a_retry_budget() {
    let file = |config: &str| valid(&step(&format!("retry_config: {{ {config} }}"))).plan;
    check(
        file("attempts: 2"),
        &[exit(1), exit(1)],
        "attempts is 2 and this was failure 2",
        "`attempts: 3` it would have been retried in 2s",
        r#"{"key":"attempts","from":2,"to":3}"#,
    );
    check(
        file("attempts: 9, retry_budget: 2500ms"),
        &[exit(1), exit(1)],
        "the next delay, 2s, would bring the delays to 3s, over the retry_budget of 2.5s",
        "`retry_budget: 3s` it would have been retried in 2s",
        r#"{"key":"retry_budget","from":"2s500ms","to":"3s"}"#,
    );
    let losses = vec![Outcome::LOST; 101];
    check(
        file("attempts: 9"),
        &losses,
        "max_preemptions is 100 and this was loss 101",
        "`max_preemptions: 101` (in a native `retry`; `retry_config` has no such key) it would have been retried in 1m",
        r#"{"key":"max_preemptions","from":100,"to":101}"#,
    );
}

#[test]
fn argyll_is_told_of_retries() {
    check(
        valid(&step("work_config: { max_retries: 1, backoff: 500, backoff_type: fixed }")).plan,
        &[exit(1), exit(1)],
        "max_retries is 1 and this was failure 2",
        "`max_retries: 2` it would have been retried in 500ms",
        r#"{"key":"max_retries","from":1,"to":2}"#,
    );
    let unlimited = valid(&step("work_config: { max_retries: -1 }")).plan;
    let retry = last(unlimited, &[exit(1)]);
    assert_eq!(retry.rule.text, "failure 1, and max_retries is -1: backs off 1s");
}

#[test]
fn fluster_is_told_of_its_own_fields() {
    let plan = |retry: FlusterRetry| {
        let mut draft = valid(&step("")).plan.draft();
        draft.steps[0].policy = fluster::policy(&retry).expect("valid");
        draft.steps[0].spelling = fluster::spelling();
        Plan::new(draft).expect("valid")
    };
    check(
        plan(FlusterRetry { max_retries_failure: Some(1), ..FlusterRetry::default() }),
        &[exit(1), exit(1)],
        "max_retries_failure is 1 and this was failure 2",
        "`max_retries_failure: 2` it would have been retried in 2s",
        r#"{"key":"max_retries_failure","from":1,"to":2}"#,
    );
    check(
        plan(FlusterRetry { max_retries_preemption: Some(0), ..FlusterRetry::default() }),
        &[Outcome::LOST],
        "max_retries_preemption is 0 and this was loss 1",
        "`max_retries_preemption: 1` it would have been retried at once",
        r#"{"key":"max_retries_preemption","from":0,"to":1}"#,
    );
    let no_retry_on_exit_codes = vec![7];
    let max_retries_failure = Some(3);
    check(
        plan(FlusterRetry {
            max_retries_failure,
            no_retry_on_exit_codes,
            ..FlusterRetry::default()
        }),
        &[exit(7)],
        "exit code 7 is in no_retry_on_exit_codes",
        "7 taken out of `no_retry_on_exit_codes` it would have been retried in 1s",
        r#"{"key":"no_retry_on_exit_codes","from":[7],"to":[]}"#,
    );
}

#[test]
fn ad44_is_told_of_its_budgets() {
    let file = |top: &str| {
        valid(&format!(
            "name: j\n{top}\nretry: {{ max_attempts: 9 }}\nsteps: {{ s: {{ run: x }} }}\n"
        ))
        .plan
    };
    check(
        file("retry_budget: 1"),
        &[Outcome::LOST, exit(1)],
        "the job's retry budget of 1 is spent",
        "`retry_budget: 2` it would have been retried in 1s",
        r#"{"key":"retry_budget","from":1,"to":2}"#,
    );
    check(
        file("retry_budget_per_workflow: 1"),
        &[exit(1), Outcome::LOST],
        "the step's retry_budget_per_workflow, 1, is spent; it counts all retries, also after losses",
        "`retry_budget_per_workflow: 2` it would have been retried at once",
        r#"{"key":"retry_budget_per_workflow","from":1,"to":2}"#,
    );
    // The same in native words.
    check(
        file("retry_budget: { total: 1, counts: all }"),
        &[Outcome::LOST, exit(1)],
        "the job's retry budget of 1 is spent",
        "`retry_budget: { total: 2 }` it would have been retried in 1s",
        r#"{"key":"retry_budget.total","from":1,"to":2}"#,
    );
}

#[test]
fn what_a_key_is_called_changes_no_decision() {
    let native = valid(&step("retry: { max_attempts: 3, backoff: fixed, initial_delay: 500ms }"));
    let argyll = step("work_config: { max_retries: 2, backoff: 500, backoff_type: fixed }");
    let argyll = valid(&argyll);
    for failures in 1..4 {
        let outcomes = vec![exit(1); failures];
        let ours = last(native.plan.clone(), &outcomes);
        let theirs = last(argyll.plan.clone(), &outcomes);
        assert_eq!((ours.decision, ours.after), (theirs.decision, theirs.after));
    }
}
