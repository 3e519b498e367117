//! What may start, and whose word counts: refused by `decide` where it is asked, and by `apply` where a log says it.

use std::sync::Arc;

use steadfast_core::apply::{IllegalEvent, apply};
use steadfast_core::decide::{Input, Refusal, accept, advance};
use steadfast_core::event::{AcceptedJob, Event, ItemId, JobState, RecordedEvent, Requester, Role};
use steadfast_core::job::{Job, Timer};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{Action, BestEffort, ForEach, LateResults, Plan, PlanDraft, StepDraft};
use steadfast_core::policy::Policy;
use steadfast_core::time::Timestamp;

const START: Timestamp = Timestamp(1000);

fn item(run: u32, step: u32, index: u32) -> ItemId {
    ItemId { run, step, role: Role::Item, index }
}

/// Three items, then a step that needs them.
fn draft() -> PlanDraft {
    let run = || Action::Run("true".into());
    let mut items = StepDraft::new("items", run(), Policy::default());
    items.for_each = ForEach::Range(3);
    let mut last = StepDraft::new("last", run(), Policy::default());
    last.needs = vec!["items".to_owned()];
    PlanDraft::new("j", vec![items, last])
}

fn accepted(draft: PlanDraft) -> Job {
    let plan = Arc::new(Plan::new(draft).expect("valid"));
    accept(AcceptedJob::new("j".into(), plan), START).0
}

fn input(job: &mut Job, input: &Input, at: Timestamp) -> Result<Vec<RecordedEvent>, Refusal> {
    advance(job, input, at).map(|advanced| advanced.log)
}

fn start(job: &mut Job, item: ItemId) -> Result<u64, Refusal> {
    let at = job.last_at;
    input(job, &Input::Start { item, worker: "w".into(), incarnation: None, least_token: 0 }, at)?;
    Ok(job.live(item).expect("under way").token)
}

fn report(job: &mut Job, item: ItemId, outcome: Outcome) {
    let token = start(job, item).expect("startable");
    let at = job.last_at;
    input(job, &Input::Report { item, token, outcome }, at).expect("current");
}

fn started(job: &mut Job, item: ItemId, attempt: u32, token: u64) -> Result<(), IllegalEvent> {
    let event =
        Event::AttemptStarted { item, attempt, token, worker: "w".into(), incarnation: None };
    apply(job, &RecordedEvent { seq: job.seq + 1, at: job.last_at, event }).map(drop)
}

#[test]
fn nothing_starts_that_is_not_its_turn() {
    let mut job = accepted(draft());
    assert_eq!(start(&mut job, item(0, 0, 1)), Err(Refusal::NotStartable), "not the next item");
    assert_eq!(start(&mut job, item(0, 1, 0)), Err(Refusal::NotStartable), "a step that waits");
    assert_eq!(start(&mut job, item(1, 0, 0)), Err(Refusal::NotStartable), "no such run");
    assert_eq!(start(&mut job, item(0, 0, 0)), Ok(1));
    assert_eq!(start(&mut job, item(0, 0, 0)), Err(Refusal::NotStartable), "it runs");
    input(&mut job, &Input::Pause(Requester::NOBODY), START).expect("it runs");
    assert_eq!(start(&mut job, item(0, 0, 1)), Err(Refusal::NotStartable), "the job is paused");
    input(&mut job, &Input::Resume(Requester::NOBODY), START).expect("it is paused");
    assert_eq!(start(&mut job, item(0, 0, 1)), Ok(2), "tokens rise");
}

/// A log is not believed either.
#[test]
fn a_start_that_is_nobodys_turn_is_no_event() {
    let whole = accepted(draft());
    let refused = |job: &Job, item, attempt, token| {
        let mut job = job.clone();
        started(&mut job, item, attempt, token).expect_err("it cannot have happened").why
    };
    assert_eq!(refused(&whole, item(0, 0, 1), 1, 1), "the item is not under way");
    assert_eq!(refused(&whole, item(0, 0, 3), 1, 1), "the item is not under way");
    assert_eq!(refused(&whole, item(0, 0, 0), 2, 1), "attempts are numbered from 1 without gaps");
    assert_eq!(refused(&whole, item(0, 0, 0), 1, 0), "its fence token is not above all before it");
    assert_eq!(refused(&whole, item(0, 1, 0), 1, 1), "nothing of the step may start");

    // All have begun, and one of them may again: there is no fourth.
    let mut job = whole;
    let tokens: Vec<u64> =
        (0..3).map(|index| start(&mut job, item(0, 0, index)).expect("startable")).collect();
    for (index, token) in (0..).zip(tokens) {
        let lost = Input::Report { item: item(0, 0, index), token, outcome: Outcome::LOST };
        input(&mut job, &lost, START).expect("current");
    }
    assert_eq!(refused(&job, item(0, 0, 3), 1, 9), "the item is not under way");
    assert_eq!(started(&mut job, item(0, 0, 0), 2, 9), Ok(()));
}

/// Each of its numbers alone is enough to be refused.
#[test]
fn a_word_about_another_attempt_is_no_event() {
    let mut job = accepted(draft());
    let id = item(0, 0, 0);
    let token = start(&mut job, id).expect("startable");
    let words = |attempt, token| {
        [
            Event::AttemptProgressed { item: id, attempt, progress: Arc::new(1.into()) },
            Event::CallbackAwaited { item: id, attempt, token, worker: "w".into() },
            Event::AttemptEnded {
                item: id,
                attempt,
                token,
                worker: "w".into(),
                started_at: START,
                outcome: Outcome::LOST,
                by_callback: false,
            },
        ]
    };
    let is_refused = |job: &Job, event: &Event| {
        let mut job = job.clone();
        let (seq, at, event) = (job.seq + 1, job.last_at, event.clone());
        apply(&mut job, &RecordedEvent { seq, at, event }).is_err()
    };
    assert!(
        words(1, token).iter().all(|event| !is_refused(&job, event)),
        "it is the one that runs"
    );
    assert!(words(2, token).iter().all(|event| is_refused(&job, event)), "another attempt");
    // How far it is carries no token.
    assert!(words(1, token + 1)[1..].iter().all(|event| is_refused(&job, event)), "another token");
    let lost = Input::Report { item: id, token, outcome: Outcome::LOST };
    input(&mut job, &lost, START).expect("current");
    assert!(words(1, token).iter().all(|event| is_refused(&job, event)), "it is over");
}

#[test]
fn an_item_counts_as_started_once_however_often_it_is_tried() {
    let mut job = accepted(draft());
    report(&mut job, item(0, 0, 0), Outcome::LOST);
    let again = start(&mut job, item(0, 0, 0)).expect("ready");
    assert_eq!((again, job.items_started), (2, 1));
    start(&mut job, item(0, 0, 1)).expect("the next");
    assert_eq!(job.items_started, 2);
}

/// Decorrelated jitter goes by the last delay of a failure.
#[test]
fn a_loss_leaves_the_last_delay_alone() {
    let mut job = accepted(draft());
    let history = |job: &Job| job.live(item(0, 0, 0)).expect("it goes on").history;
    report(&mut job, item(0, 0, 0), FailureKind::Exited(1).into());
    assert_eq!(history(&job).last_delay_ms, Some(1000));
    let retry = Timer::Retry(item(0, 0, 0));
    for _ in 0..4 {
        let at = job.last_at.plus(60_000);
        // The first losses in a row are retried at once.
        if job.timer_due(&retry).is_some() {
            input(&mut job, &Input::Fired(retry), at).expect("due");
        }
        report(&mut job, item(0, 0, 0), Outcome::LOST);
        assert_eq!(history(&job).last_delay_ms, Some(1000));
    }
    assert_eq!((history(&job).preemptions, job.timer_due(&retry).is_some()), (4, true));
}

/// One step, in three datacenters; enough when two have succeeded, and a minute is waited for the third.
fn best_effort() -> Job {
    let mut draft = draft();
    draft.steps.truncate(1);
    draft.steps[0].for_each = ForEach::Once;
    draft.datacenters = ["eu", "us", "as"].map(str::to_owned).into();
    draft.best_effort = Some(BestEffort {
        min_datacenters: 2,
        min_requested: None,
        deadline_ms: 10_000,
        grace_ms: 60_000,
        late_results: LateResults::LogOnly,
    });
    accepted(draft)
}

/// The state and the count with which it ends at its deadline, after so many have succeeded.
fn at_the_deadline(succeeded: u32) -> (JobState, u32) {
    let mut job = best_effort();
    for run in 0..succeeded {
        report(&mut job, item(run, 0, 0), Outcome::OK);
    }
    let due = job.timer_due(&Timer::Deadline).expect("set");
    let log = input(&mut job, &Input::Fired(Timer::Deadline), due).expect("due");
    let ended = log.iter().find_map(|record| match record.event {
        Event::JobEnded { state, succeeded, .. } => Some((state, succeeded)),
        _ => None,
    });
    ended.expect("it ends")
}

#[test]
fn a_deadline_takes_what_there_is() {
    assert_eq!(at_the_deadline(0), (JobState::Failed, 0));
    assert_eq!(at_the_deadline(1), (JobState::Partial, 1));
    assert_eq!(at_the_deadline(2), (JobState::Succeeded, 2), "before the grace is over");
}
