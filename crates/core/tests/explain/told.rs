//! The sentences: for verdicts, jobs, steps, and what waits.

use crate::{Driven, Happens, budget, defaults, exits, lost, one, play, step};

use steadfast_core::decide::Input;
use steadfast_core::event::{Event, FailedOn, ItemId, Requester, Role};
use steadfast_core::explain::{Explanation, WaitingReason, WaitsFor, explain};
use steadfast_core::job::Timer;
use steadfast_core::outcome::{Failure, FailureKind, Outcome, Permanence, RequestedDelay};
use steadfast_core::plan::{
    Action, AfterFailure, BestEffort, ForEach, LateResults, MaxFailed, NotBefore, OnFailure, Plan,
    PlanDraft,
};
use steadfast_core::policy::{PolicyDraft, RuleAction, RuleDraft};
use steadfast_core::select::ItemSelector;
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::Cause;

#[test]
fn where_nothing_would_have_helped_that_is_said() {
    let said = Failure { permanence: Permanence::Said, ..Failure::new(FailureKind::HandlerFailed) };
    let job = play(
        Plan::new(one(defaults())).expect("valid"),
        &[Happens::Ends(Outcome::Failed(said), 0)],
    );
    let stop = job.last_verdict();
    assert_eq!((stop.would_change.as_ref(), stop.rule.check), (None, Some(3)));
    assert_eq!(
        stop.sentence(),
        "s attempt 1, the handler reported failure: stop, permanent_error (the handler said that \
         the error is permanent); nothing in the policy would have changed it"
    );

    let mut fan = step("s", &[], PolicyDraft { max_attempts: Some(1), ..defaults() });
    fan.for_each = ForEach::Range(2);
    let mut draft = PlanDraft::new("j", vec![fan, step("t", &[], defaults())]);
    draft.goals = vec!["t".into()];
    let mut job = Driven::new(draft);
    let both = [job.item("s", 0), job.item("s", 1)];
    for item in both {
        job.start(item);
    }
    for item in both {
        job.report(item, FailureKind::Exited(1).into());
    }
    assert_eq!(
        job.last_verdict().sentence(),
        "s[1] attempt 1, exit code 1: stop, step_failed (another item had already failed the \
         step); nothing in the policy would have changed it"
    );

    let mut waits = step("s", &[], defaults());
    waits.scheduling_timeout_ms = Some(60_000);
    let mut job = Driven::new(PlanDraft::new("j", vec![waits]));
    let timer = Timer::Scheduling { run: 0, step: 0 };
    job.now = job.job.timer_due(&timer).expect("set");
    job.input(&Input::Fired(timer));
    let stop = job.last_verdict();
    assert_eq!((stop.on, stop.attempt, stop.rule.check), (FailedOn::NoWorker, 0, None));
    assert_eq!(
        stop.sentence(),
        "s: stop, unschedulable (no worker took it within scheduling_timeout, 1m); a worker \
         that fits would have changed it, no retry policy"
    );
}

#[test]
fn retries_name_what_allowed_them() {
    let rule = |then| RuleDraft {
        exit: Some(vec![75]),
        then,
        delay_ms: Some(30_000),
        ..RuleDraft::default()
    };
    let rules = vec![
        rule(RuleAction::Defer),
        RuleDraft { exit: Some(vec![76]), ..rule(RuleAction::Retry) },
    ];
    let plan =
        Plan::new(one(PolicyDraft { max_attempts: None, rules, ..defaults() })).expect("valid");
    let asked = Failure {
        asked: Some(RequestedDelay::RetryAfterMs(7_200_000)),
        ..Failure::new(FailureKind::NotCompleted)
    };
    let never = Happens::Ends(Outcome::NOT_BEGUN, 0);
    let script = [
        exits(75),
        exits(76),
        exits(1),
        lost(),
        lost(),
        lost(),
        never,
        Happens::Ends(Outcome::Failed(asked), 0),
        Happens::Ends(Outcome::OK, 0),
    ];
    let explanation = play(plan, &script).explain();
    let rules: Vec<_> =
        explanation.verdicts.iter().map(|v| (v.rule.check, v.rule.text.as_str())).collect();
    assert_eq!(
        rules,
        [
            (Some(3), "rule 1 of 2 matched (exit 75): defer 30s"),
            (Some(9), "rule 2 of 2 matched (exit 76): retry in 30s"),
            (Some(9), "failure 2, and max_attempts is unlimited: backs off 2s"),
            (Some(2), "the worker was lost: retried at once"),
            (Some(2), "the worker was lost for the 2nd time in a row: retried at once"),
            (Some(2), "the worker was lost for the 3rd time in a row: backs off 1s"),
            (
                Some(2),
                "the attempt had not started, 1 in a row of 10 that are free: retried at once"
            ),
            (
                Some(9),
                "failure 3, and max_attempts is unlimited: waits 1h, as it was asked to \
                 (Retry-After), capped by max_retry_after"
            ),
            (None, "it succeeded"),
        ]
    );
    assert!(
        explanation.verdicts.iter().all(|v| v.would_change.is_none() && v.nothing_would.is_none())
    );
    assert_eq!(explanation.job.sentence, "succeeded: `s` succeeded");
    assert!(explanation.steps.is_empty() && explanation.waiting.is_empty());
}

#[test]
fn accounts_are_told_before_and_after() {
    let policy = PolicyDraft { delay_budget_ms: Some(9000), ..defaults() };
    let plan = PlanDraft { budget: Some(budget(Some(5), None, None)), ..one(policy) };
    let job = play(Plan::new(plan).expect("valid"), &[exits(1), exits(1), Happens::Down(60_000)]);
    let explanation = job.explain();
    let moved = |i: usize| {
        explanation.verdicts[i].moved.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        moved(1),
        ["failures 1 → 2 of 3", "delay_spent 1s → 3s of 9s", "job_retries 1 → 2 of 5"]
    );
    // Down for a minute, of which 2s were its delay.
    assert_eq!(moved(2), ["delay_spent 3s of 9s", "downtime 0s → 58s of 9s"]);
    assert_eq!(
        (explanation.verdicts[1].before.failures, explanation.verdicts[1].after.failures),
        (1, 2)
    );
    let json = serde_json::to_value(&explanation).expect("serializes");
    let stop = &json["verdicts"][2];
    assert_eq!(
        (&stop["verdict"], &stop["reason"], &stop["on"]),
        (&"stop".into(), &"delay_budget_exhausted".into(), &"restart".into())
    );
    let change = &stop["would_change"]["changes"][0];
    assert_eq!(change, &serde_json::json!({ "key": "delay_budget", "from": "9s", "to": "1m1s" }));
    assert_eq!(stop["item"]["name"], "s");
}

#[test]
fn a_job_says_in_one_sentence_why_it_failed() {
    let mut draft = PlanDraft::new(
        "j",
        vec![
            step("fetch", &[], PolicyDraft { max_attempts: Some(1), ..defaults() }),
            step("index", &["fetch"], defaults()),
            step("publish", &["index"], defaults()),
        ],
    );
    draft.datacenters = vec!["us-east".into(), "eu-west".into()];
    let mut job = Driven::new(draft);
    let fetch = ItemId { run: 1, ..job.item("fetch", 0) };
    job.run(fetch, FailureKind::Exited(1).into());
    let explanation = job.explain();
    assert_eq!(
        explanation.job.sentence,
        "failed: the goal `publish` could not be reached in eu-west, because `fetch` failed: it \
         stopped: attempts_exhausted (exit code 1)"
    );
    let steps: Vec<_> = explanation.steps.iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            "us-east/fetch: cancelled because the job failed in eu-west",
            "us-east/index: cancelled because the job failed in eu-west",
            "us-east/publish: cancelled because the job failed in eu-west",
            "eu-west/fetch: failed because it stopped: attempts_exhausted (exit code 1)",
            "eu-west/index: skipped because `fetch` failed",
            "eu-west/publish: skipped because `fetch` failed",
        ]
    );
    assert_eq!(
        explanation.verdicts[0].sentence(),
        "eu-west/fetch attempt 1, exit code 1: stop, attempts_exhausted (max_attempts is 1 and \
         this was failure 1); with `max_attempts: 2` it would have been retried in 1s"
    );
}

#[test]
fn a_fan_out_names_the_item_that_was_one_too_many() {
    let mut fan = step("s", &[], PolicyDraft { max_attempts: Some(1), ..defaults() });
    fan.for_each = ForEach::Range(4);
    fan.max_failed = MaxFailed::Count(1);
    fan.on_failure =
        Some(OnFailure { action: Some(Action::Run("undo".into())), then: AfterFailure::Fail });
    let mut job = Driven::new(PlanDraft::new("j", vec![fan]));
    for index in [0, 1] {
        job.run(job.item("s", index), FailureKind::Exited(1).into());
    }
    let because = "2 of 4 items failed, more than max_failed (1); item 1 stopped: attempts_exhausted (exit code 1)";
    let explanation = job.explain();
    assert_eq!(explanation.job.sentence, "running: 1 item waits for a worker");
    assert_eq!(
        explanation.steps[0].sentence,
        format!("failing because {because}; its fallback is under way")
    );
    assert_eq!(explanation.waiting[0].name, "s!");
    let fallback = ItemId { role: Role::Fallback, ..job.item("s", 0) };
    job.run(fallback, FailureKind::Exited(9).into());
    let explanation = job.explain();
    assert_eq!(
        explanation.job.sentence,
        format!(
            "failed: the goal `s` failed, because {because}; its fallback stopped: attempts_exhausted (exit code 9)"
        )
    );
    assert_eq!(explanation.verdicts[2].item.name, "s!");
    let only =
        explain(&job.log, job.now, Some(&ItemSelector { item: Some(1), ..ItemSelector::step(0) }))
            .expect("holds");
    assert_eq!(only.verdicts.iter().map(|v| v.item.name.as_str()).collect::<Vec<_>>(), ["s[1]"]);
}

#[test]
fn a_rescued_job_does_not_contradict_itself() {
    let failing = |then| {
        let mut s = step("s", &[], PolicyDraft { max_attempts: Some(1), ..defaults() });
        s.on_failure = Some(OnFailure { action: Some(Action::Run("else".into())), then });
        let mut job = Driven::new(PlanDraft::new("j", vec![s]));
        job.run(job.item("s", 0), FailureKind::Exited(1).into());
        let fallback = ItemId { role: Role::Fallback, ..job.item("s", 0) };
        job.run(fallback, Outcome::OK);
        job.explain()
    };
    let stopped = "it stopped: attempts_exhausted (exit code 1)";
    let rescued = failing(AfterFailure::Continue);
    assert_eq!(rescued.job.sentence, "succeeded: `s` failed and was rescued by its fallback");
    assert!(rescued.steps[0].rescued);
    assert_eq!(
        rescued.steps[0].sentence,
        format!("failed because {stopped}; its fallback rescued it, what needs it goes on")
    );
    let lost = failing(AfterFailure::Fail);
    assert!(!lost.steps[0].rescued);
    let why = format!("{stopped}; its fallback succeeded, which `then: fail` does not count");
    assert_eq!(lost.job.sentence, format!("failed: the goal `s` failed, because {why}"));
    let mut may = step("s", &[], PolicyDraft { max_attempts: Some(1), ..defaults() });
    may.on_failure = Some(OnFailure { action: None, then: AfterFailure::Continue });
    let mut job = Driven::new(PlanDraft::new("j", vec![may, step("t", &[], defaults())]));
    job.run(job.item("s", 0), FailureKind::Exited(1).into());
    job.run(job.item("t", 0), Outcome::OK);
    assert_eq!(
        job.explain().job.sentence,
        "succeeded: `t` succeeded; `s` failed and is let pass (`then: continue`)"
    );
}

fn waits(explanation: &Explanation) -> Vec<String> {
    explanation.waiting.iter().map(ToString::to_string).collect()
}

#[test]
fn what_waits_says_for_what_and_until_when() {
    let policy =
        PolicyDraft { delay_budget_ms: Some(10_000), window_ms: Some(20_000), ..defaults() };
    let mut fan = step("s", &["first"], policy);
    fan.for_each = ForEach::Range(5);
    fan.parallelism = Some(2);
    fan.timeout_ms = Some(30_000);
    let steps = vec![step("first", &[], defaults()), fan, step("t", &["first", "s"], defaults())];
    let mut job = Driven::new(PlanDraft::new("j", steps));
    assert_eq!(
        waits(&job.explain()),
        [
            "first: 1 item has not started, waits for a worker (given up in 1d)",
            "s: waits for `first`",
            "t: waits for `first` and `s`",
        ]
    );
    assert_eq!(
        job.explain().job.sentence,
        "pending: 1 item waits for a worker, 2 steps wait for `first`"
    );
    job.run(job.item("first", 0), Outcome::OK);
    job.run(job.item("s", 0), FailureKind::Exited(1).into());
    job.start(job.item("s", 1));
    job.start(job.item("s", 2));
    job.now = job.now.plus(300);
    let explanation = job.explain();
    assert_eq!(
        waits(&explanation),
        [
            "s[0]: backs off after failure 1 (exit code 1): retried in 700ms; its delay budget runs \
             out in 9.7s; its window closes in 19.7s",
            "s: 2 items have not started, wait for `parallelism: 2`: 2 run",
            "t: waits for `s`",
            "s[1]: runs on w1 for 300ms, attempt 1, its timeout is in 29.7s",
            "s[2]: runs on w1 for 300ms, attempt 1, its timeout is in 29.7s",
        ]
    );
    assert_eq!(
        explanation.job.sentence,
        "running: 2 items run, 1 backs off (the next is due in 700ms), 2 wait for their turn, \
         1 step waits for `s`"
    );
    assert_eq!(
        explanation.steps[0].sentence,
        "0 of 5 items done, 2 run, 1 backs off, 2 have not started"
    );
    let WaitingReason::BackingOff { cause, charged, .. } = &explanation.waiting[0].why else {
        panic!("it backs off")
    };
    assert_eq!((*cause, charged.failures, charged.delay_ms), (Cause::Failure, 1, 1000));

    job.now = job.now.plus(700);
    job.input(&Input::Fired(Timer::Retry(job.item("s", 0))));
    let ready = &job.explain().waiting[0];
    assert_eq!(
        ready.why,
        WaitingReason::Ready { waits_for: WaitsFor::Parallelism { most: 2, running: 2 } }
    );
    assert_eq!(ready.sentence, "waits for `parallelism: 2`: 2 run, for 0s");

    job.input(&Input::Pause(Requester::NOBODY));
    job.now = job.now.plus(60_000);
    let explanation = job.explain();
    assert_eq!(
        explanation.job.sentence,
        "paused: for 1m, nothing starts until it is resumed; 2 attempts run still"
    );
    assert_eq!(explanation.waiting[0].sentence, "waits for the job to be resumed, for 1m");
    assert_eq!(serde_json::to_value(&explanation.waiting[0]).expect("json")["state"], "ready");
}

#[test]
fn losses_and_a_job_that_has_not_begun() {
    let job = play(Plan::new(one(defaults())).expect("valid"), &[lost(), lost(), lost()]);
    assert_eq!(
        waits(&job.explain()),
        ["s: backs off after 3 losses of its worker in a row: retried in 1s"]
    );
    let job =
        Driven::new(PlanDraft { not_before: Some(NotBefore::InMs(3_600_000)), ..one(defaults()) });
    let explanation = job.explain();
    assert_eq!(explanation.job.sentence, "pending: it starts in 1h (not_before)");
    assert_eq!(explanation.job.until, Some(Timestamp(3_601_000)));
    assert_eq!(waits(&explanation), ["s: waits for the job, which starts in 1h (not_before)"]);
}

#[test]
fn cancelled_timed_out_and_partial() {
    let mut job = Driven::new(one(defaults()));
    job.start(job.item("s", 0));
    job.input(&Input::Cancel(Requester::NOBODY));
    let explanation = job.explain();
    assert_eq!(explanation.job.sentence, "cancelled: somebody cancelled it");
    assert_eq!(explanation.steps[0].sentence, "cancelled with the job");

    for (by, reason, told) in [
        (Some("ci"), None, "cancelled: ci cancelled it"),
        (Some("ci"), Some("wrong input"), "cancelled: ci cancelled it: wrong input"),
        (None, Some("wrong input"), "cancelled: somebody cancelled it: wrong input"),
    ] {
        let mut job = Driven::new(one(defaults()));
        job.input(&Input::Cancel(Requester::new(by, reason).expect("short")));
        assert_eq!(job.explain().job.sentence, told);
    }
    let mut job = Driven::new(one(defaults()));
    job.input(&Input::Pause(Requester::local(Some("disk swap")).expect("short")));
    assert_eq!(
        job.explain().job.sentence,
        "paused: for 0s, nothing starts until it is resumed; local user paused it: disk swap"
    );

    let mut job = Driven::new(PlanDraft { timeout_ms: Some(5000), ..one(defaults()) });
    job.start(job.item("s", 0));
    job.now = job.now.plus(5000);
    job.input(&Input::Fired(Timer::JobTimeout));
    assert_eq!(job.explain().job.sentence, "failed: the job's timeout of 5s passed");

    let mut draft = one(defaults());
    draft.datacenters = vec!["a".into(), "b".into(), "c".into()];
    let late_results = steadfast_core::plan::LateResults::LogOnly;
    draft.best_effort = Some(BestEffort {
        min_datacenters: 2,
        min_requested: None,
        deadline_ms: 5000,
        grace_ms: 0,
        late_results,
    });
    let mut job = Driven::new(draft);
    job.run(job.item("s", 0), Outcome::OK);
    job.now = job.now.plus(5000);
    job.input(&Input::Fired(Timer::Deadline));
    assert_eq!(
        job.explain().job.sentence,
        "partial: 1 of 3 datacenters succeeded, fewer than min_datacenters (2) when the deadline \
         of 5s passed"
    );
}

#[test]
fn what_comes_late_is_told_with_what_became_of_it() {
    for (late_results, added) in
        [(LateResults::LogOnly, "only logged"), (LateResults::UpdateResult, "added to the result")]
    {
        let mut draft = one(PolicyDraft { max_attempts: Some(1), ..defaults() });
        draft.datacenters = vec!["a".into(), "b".into(), "c".into()];
        let (min_datacenters, deadline_ms, grace_ms) = (1, 5000, 0);
        draft.best_effort = Some(BestEffort {
            min_datacenters,
            min_requested: None,
            deadline_ms,
            grace_ms,
            late_results,
        });
        let mut job = Driven::new(draft);
        let [first, second, third] = [0, 1, 2].map(|run| ItemId { run, ..job.item("s", 0) });
        for item in [first, second, third] {
            job.start(item);
        }
        job.report(first, Outcome::OK);
        job.report(second, Outcome::OK);
        job.report(third, FailureKind::Exited(1).into());
        assert_eq!(
            job.explain().job.sentence,
            format!(
                "succeeded: 1 of 3 datacenters succeeded, enough for min_datacenters; later b \
                 succeeded, {added}; later c failed, only logged"
            )
        );
    }
}

#[test]
fn a_job_that_no_attempt_was_made_of_is_pending_and_says_what_it_waits_for() {
    let job = Driven::new(one(defaults()));
    let explanation = job.explain();
    assert_eq!(explanation.job.sentence, "pending: 1 item waits for a worker");
}

#[test]
fn of_too_many_verdicts_the_telling_ones_are_kept() {
    let mut fan = step("s", &[], PolicyDraft { max_attempts: Some(1), ..defaults() });
    fan.for_each = ForEach::Range(1500);
    fan.max_failed = MaxFailed::Count(1500);
    let many = step("t", &[], PolicyDraft { max_attempts: None, ..defaults() });
    let mut job = Driven::new(PlanDraft::new("j", vec![fan, many]));
    job.run(job.item("s", 0), FailureKind::Exited(1).into());
    for index in 1..1500 {
        job.run(job.item("s", index), Outcome::OK);
    }
    for _ in 0..150 {
        job.run(job.item("t", 0), FailureKind::Exited(1).into());
    }
    let explanation = job.explain();
    assert_eq!(explanation.verdicts.len(), 1000);
    assert_eq!(explanation.left_out.verdicts, 650);
    assert_eq!(explanation.verdicts[0].item.name, "s[0]", "the only stop");
    let of_t = explanation.verdicts.iter().filter(|v| v.item.name == "t");
    assert_eq!(of_t.map(|v| v.attempt).collect::<Vec<_>>(), (51..=150).collect::<Vec<_>>());
}

#[test]
fn a_verdict_that_would_be_another_now_says_so() {
    let mut job = play(Plan::new(one(defaults())).expect("valid"), &[exits(1)]);
    let Some(Event::RetryScheduled { delay_ms, due_at, .. }) =
        job.log.last_mut().map(|record| &mut record.event)
    else {
        panic!("a retry")
    };
    (*delay_ms, *due_at) = (5000, due_at.plus(4000));
    let explanation = explain(&job.log, job.now, None).expect("it can have happened");
    assert_eq!(
        explanation.verdicts[0].disagrees.as_deref(),
        Some("the log says retry in 5s, the same question now gives retry in 1s")
    );
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    assert!(explain(&[], Timestamp(0), None).is_err());
    let job = play(Plan::new(one(defaults())).expect("valid"), &[exits(1)]);
    assert!(explain(&job.log[1..], job.now, None).is_err());
}
