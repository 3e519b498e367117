//! What anybody can see of a job: its result, when it is pending, its parts by their printed names, and who asked.

use std::sync::Arc;

use serde_json::{Value, json};
use steadfast_core::decide::{Input, accept, advance};
use steadfast_core::event::{
    AcceptedJob, Event, ItemId, JobState, LONGEST_REASON, RecordedEvent, Requester, Role,
};
use steadfast_core::job::Job;
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{
    Action, BestEffort, ForEach, LateResults, OnFailure, Plan, PlanDraft, StepDraft,
};
use steadfast_core::policy::{Policy, PolicyDraft};
use steadfast_core::select::ItemSelector;
use steadfast_core::time::Timestamp;

fn step(name: &str, needs: &[&str]) -> StepDraft {
    let once = PolicyDraft { max_attempts: Some(1), ..PolicyDraft::default() };
    let policy = Policy::new(once).expect("valid");
    let mut step = StepDraft::new(name, Action::Run("true".into()), policy);
    step.needs = needs.iter().map(ToString::to_string).collect();
    step
}

fn begun(draft: PlanDraft) -> (Job, Vec<RecordedEvent>) {
    accept(AcceptedJob::new("one".into(), Arc::new(Plan::new(draft).expect("valid"))), Timestamp(0))
}

fn give(job: &mut Job, item: ItemId, input: &Input) {
    advance(job, input, Timestamp(0)).unwrap_or_else(|why| panic!("{item:?}: {why}"));
}

fn start(job: &mut Job, item: ItemId) {
    give(job, item, &Input::Start { item, worker: "w".into(), incarnation: None, least_token: 0 });
}

fn report(job: &mut Job, item: ItemId, outcome: Outcome) {
    let token = job.live(item).expect("under way").token;
    give(job, item, &Input::Report { item, token, outcome });
}

fn item(run: u32, step: u32, index: u32) -> ItemId {
    ItemId { run, step, role: Role::Item, index }
}

fn gives(output: Value) -> Outcome {
    Outcome::Succeeded { output: Some(output) }
}

fn result(job: &Job) -> Value {
    serde_json::to_value(job.result()).expect("JSON")
}

#[test]
fn without_datacenters_a_result_is_each_steps_output() {
    let mut fan = step("fan", &["one"]);
    fan.for_each = ForEach::List([json!("a"), json!("b"), json!("c")].into());
    let (mut job, _) =
        begun(PlanDraft::new("j", vec![step("one", &[]), fan, step("mute", &["fan"])]));
    let (one, mute) = (item(0, 0, 0), item(0, 2, 0));
    start(&mut job, one);
    report(&mut job, one, gives(json!({"rows": 3})));
    for index in 0..3 {
        start(&mut job, item(0, 1, index));
        // The middle one says nothing.
        let outcome = if index == 1 { Outcome::OK } else { gives(json!(index)) };
        report(&mut job, item(0, 1, index), outcome);
    }
    start(&mut job, mute);
    assert_eq!(result(&job), Value::Null, "it has not ended");
    report(&mut job, mute, Outcome::OK);
    assert_eq!(
        result(&job),
        json!({"datacenters": [], "outputs": {"one": {"rows": 3}, "fan": [0, null, 2]}})
    );
}

#[test]
fn a_run_that_failed_gives_no_result() {
    let (mut job, _) = begun(PlanDraft::new("j", vec![step("one", &[]), step("two", &["one"])]));
    start(&mut job, item(0, 0, 0));
    report(&mut job, item(0, 0, 0), gives(json!(1)));
    start(&mut job, item(0, 1, 0));
    report(&mut job, item(0, 1, 0), FailureKind::Exited(1).into());
    assert_eq!(job.state(), JobState::Failed);
    assert_eq!(result(&job), json!({"datacenters": [], "outputs": {}}));
}

#[test]
fn a_large_fan_out_is_shown_in_part_and_says_so() {
    let mut fan = step("fan", &[]);
    fan.for_each = ForEach::Range(103);
    let (mut job, _) = begun(PlanDraft::new("j", vec![fan]));
    for index in 0..103 {
        start(&mut job, item(0, 0, index));
        report(&mut job, item(0, 0, index), gives(json!(index)));
    }
    let result = result(&job);
    assert_eq!(result["outputs"]["fan"].as_array().map(Vec::len), Some(100));
    assert_eq!(result["left_out"], json!({"fan": 3}));
}

#[test]
fn a_late_result_is_added_or_not_and_the_state_stays() {
    let both = json!({"datacenters": ["a", "b"], "outputs": {"s": {"a": 1, "b": 2}}});
    let early = json!({"datacenters": ["a"], "outputs": {"s": {"a": 1}}});
    for (late_results, after) in
        [(LateResults::LogOnly, &early), (LateResults::UpdateResult, &both)]
    {
        let mut draft = PlanDraft::new("j", vec![step("s", &[])]);
        draft.datacenters = ["a", "b", "c"].map(str::to_owned).to_vec();
        draft.best_effort = Some(BestEffort {
            min_datacenters: 1,
            min_requested: None,
            deadline_ms: 5000,
            grace_ms: 0,
            late_results,
        });
        let (mut job, _) = begun(draft);
        for run in 0..3 {
            start(&mut job, item(run, 0, 0));
        }
        report(&mut job, item(0, 0, 0), gives(json!(1)));
        assert_eq!((job.state(), &result(&job)), (JobState::Succeeded, &early));
        report(&mut job, item(1, 0, 0), gives(json!(2)));
        report(&mut job, item(2, 0, 0), FailureKind::Exited(1).into());
        assert_eq!((job.state(), &result(&job)), (JobState::Succeeded, after));
        let late: Vec<bool> = job.runs.iter().map(|run| run.late).collect();
        assert_eq!(late, [false, true, true]);
    }
}

#[test]
fn a_job_and_each_run_are_pending_until_their_first_attempt() {
    let mut draft = PlanDraft::new("j", vec![step("s", &[])]);
    draft.datacenters = ["a", "b"].map(str::to_owned).to_vec();
    let (mut job, _) = begun(draft);
    assert!(job.has_begun(), "nothing keeps it from starting but a worker");
    let states = |job: &Job| [job.state(), job.run_state(0), job.run_state(1)];
    assert_eq!(states(&job), [JobState::Pending; 3]);
    start(&mut job, item(0, 0, 0));
    assert_eq!(states(&job), [JobState::Running, JobState::Running, JobState::Pending]);
    report(&mut job, item(0, 0, 0), Outcome::OK);
    assert_eq!(states(&job), [JobState::Running, JobState::Succeeded, JobState::Pending]);
}

#[test]
fn who_cancelled_and_why_is_in_the_log_and_in_the_state() {
    let (mut job, _) = begun(PlanDraft::new("j", vec![step("s", &[])]));
    let asked = Requester::new(Some("ci"), Some("  wrong input\n")).expect("short");
    let log = advance(&mut job, &Input::Cancel(asked.clone()), Timestamp(7)).expect("can be").log;
    assert_eq!(log[0].event, Event::CancelRequested { requested: asked });
    let event = serde_json::to_value(&log[0]).expect("JSON");
    assert_eq!(event["requested"], json!({"by": "ci", "reason": "wrong input"}));
    let kept = serde_json::to_value(&job.cancel).expect("JSON");
    assert_eq!(kept, json!({"at": 7, "by": "ci", "reason": "wrong input"}));
    let back: Job = serde_json::from_value(serde_json::to_value(&job).expect("JSON")).expect("it");
    assert_eq!(back, job);
}

#[test]
fn a_reason_is_a_sentence_or_two() {
    let of = |length: usize| Requester::new(None, Some(&"ä".repeat(length)));
    assert!(of(1).is_ok() && of(LONGEST_REASON).is_ok());
    let said = of(LONGEST_REASON + 1).expect_err("too long").to_string();
    assert_eq!(said, "a reason has 1 to 500 characters, not 501");
    assert!(Requester::new(None, Some(" \n")).is_err(), "nothing is no reason");
}

#[test]
fn whatever_is_printed_can_be_asked_for() {
    let mut fan = step("fan", &[]);
    fan.for_each = ForEach::List([json!("a"), json!("b")].into());
    fan.on_failure = Some(OnFailure {
        action: Some(Action::Run("true".into())),
        then: steadfast_core::plan::AfterFailure::Fail,
    });
    fan.compensate = Some(Action::Run("true".into()));
    let mut draft = PlanDraft::new("j", vec![step("one", &[]), fan]);
    draft.datacenters = ["east", "west"].map(str::to_owned).to_vec();
    let plan = Plan::new(draft).expect("valid");
    for (run, step, role, index) in [
        (0, 0, Role::Item, 0),
        (1, 1, Role::Item, 1),
        (1, 1, Role::Fallback, 0),
        (0, 1, Role::Compensation, 0),
    ] {
        let id = ItemId { run, step, role, index };
        let name = plan.item_name(id);
        let select = plan.select(&name).expect(&name);
        assert!(select.has(id), "{name}: {select:?}");
        let elsewhere = ItemId { run: 1 - run, ..id };
        assert!(!select.has(elsewhere), "{name}: {select:?}");
    }
    assert_eq!(plan.select("fan"), Ok(ItemSelector::step(1)), "all of it, everywhere");
    let wrong = |name: &str| plan.select(name).expect_err(name).to_string();
    assert_eq!(wrong("fan[2]"), "`fan` has 2 items, 0 to 1; there is no [2]");
    assert_eq!(wrong("fan[x]"), "`fan[x]`: an item is a number, from 0");
    assert_eq!(wrong("fam"), "the job has no step `fam`; did you mean `fan`?");
    assert_eq!(wrong("eats/fan"), "the job has no datacenter `eats`; did you mean `east`?");
    assert_eq!(wrong("one!"), "`one` has no `on_failure` to run");
}
