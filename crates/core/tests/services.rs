//! Attempts that a service has: how they wait, how they end, and who may speak for them.

use std::sync::Arc;

use serde_json::json;
use steadfast_core::apply::replay;
use steadfast_core::decide::{Input, Refusal, accept, advance};
use steadfast_core::event::{AcceptedJob, Event, ItemId, JobState, RecordedEvent, Requester, Role};
use steadfast_core::job::{Job, Phase, Timer};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{
    Action, ForEach, Http, HttpExpect, HttpMode, Plan, PlanDraft, StepDraft,
};
use steadfast_core::policy::Policy;
use steadfast_core::time::Timestamp;

const ITEM: ItemId = ItemId { run: 0, step: 0, role: Role::Item, index: 0 };

fn call() -> StepDraft {
    let http = Http {
        method: "POST".into(),
        url: "http://handler/".into(),
        headers: [].into(),
        query: [].into(),
        body: None,
        mode: HttpMode::Async,
        expect: HttpExpect::Any,
        redirects: 0,
    };
    StepDraft::new("call", Action::Http(http), Policy::default())
}

struct Driven {
    job: Job,
    log: Vec<RecordedEvent>,
    now: Timestamp,
}

impl Driven {
    fn new(step: StepDraft) -> Self {
        let plan = Plan::new(PlanDraft::new("j", vec![step])).expect("valid");
        let now = Timestamp(1000);
        let (job, log) = accept(AcceptedJob::new("one".into(), Arc::new(plan)), now);
        Self { job, log, now }
    }

    fn input(&mut self, input: &Input) -> Result<(), Refusal> {
        let advanced = advance(&mut self.job, input, self.now)?;
        self.log.extend(advanced.log);
        assert_eq!(replay(&self.log).as_ref(), Ok(&self.job), "replay is the live state");
        Ok(())
    }

    /// The service has it.
    fn hand_over(&mut self) -> u64 {
        self.input(&Input::Start {
            item: ITEM,
            worker: "w".into(),
            incarnation: None,
            least_token: 0,
        })
        .expect("startable");
        let token = self.job.live(ITEM).expect("under way").token;
        self.input(&Input::Awaits { item: ITEM, token }).expect("current");
        token
    }

    fn callback(&mut self, token: u64, outcome: Outcome) -> Result<(), Refusal> {
        self.input(&Input::Callback { item: ITEM, token, outcome })
    }

    fn progress(&mut self, token: u64, ms: u64) -> Result<(), Refusal> {
        self.now = self.now.plus(ms);
        let progress = Arc::new(json!({ "done": ms }));
        self.input(&Input::Progress { item: ITEM, token, progress, by_callback: true })
    }

    fn fire(&mut self, timer: Timer) -> Result<(), Refusal> {
        self.input(&Input::Fired(timer))
    }
}

#[test]
fn a_callback_ends_the_attempt_once_and_says_that_it_was_one() {
    let mut job = Driven::new(call());
    let token = job.hand_over();
    assert_eq!(job.job.live(ITEM).expect("waits").phase, Phase::AwaitingCallback);
    job.callback(token, Outcome::OK).expect("it waits for it");
    assert_eq!(job.job.state(), JobState::Succeeded);
    let by_callback = |record: &&RecordedEvent| {
        matches!(record.event, Event::AttemptEnded { by_callback: true, .. })
    };
    assert_eq!(job.log.iter().filter(by_callback).count(), 1);
    assert_eq!(job.callback(token, Outcome::OK), Err(Refusal::StaleFence));
}

#[test]
fn a_callback_before_the_worker_said_that_the_service_has_it_is_not_lost() {
    let mut job = Driven::new(call());
    job.input(&Input::Start { item: ITEM, worker: "w".into(), incarnation: None, least_token: 0 })
        .expect("startable");
    let token = job.job.live(ITEM).expect("under way").token;
    job.callback(token, Outcome::OK).expect("early");
    assert_eq!(job.job.state(), JobState::Succeeded);
    assert_eq!(job.input(&Input::Awaits { item: ITEM, token }), Err(Refusal::StaleFence));
}

#[test]
fn the_token_of_an_earlier_attempt_says_nothing_of_the_next() {
    let mut job = Driven::new(call());
    let first = job.hand_over();
    job.callback(first, FailureKind::HandlerFailed.into()).expect("current");
    job.now = job.job.timer_due(&Timer::Retry(ITEM)).expect("a retry");
    job.fire(Timer::Retry(ITEM)).expect("due");
    let second = job.hand_over();
    assert_eq!(job.callback(first, Outcome::OK), Err(Refusal::StaleFence));
    assert_eq!(job.job.live(ITEM).expect("waits").history.failures, 1);
    job.callback(second, Outcome::OK).expect("current");
    assert_eq!(job.job.state(), JobState::Succeeded);
}

#[test]
fn nobody_but_the_service_knows_how_an_attempt_ended_that_it_has() {
    let mut job = Driven::new(call());
    let token = job.hand_over();
    let lost = Input::Report { item: ITEM, token, outcome: Outcome::LOST };
    assert_eq!(job.input(&lost), Err(Refusal::StaleFence), "the worker's death is not its death");
    assert_eq!(job.input(&Input::Awaits { item: ITEM, token }), Err(Refusal::StaleFence));
}

#[test]
fn a_service_that_never_calls_back_is_timed_out_counted_from_the_attempts_start() {
    let mut step = call();
    step.timeout_ms = Some(60_000);
    let mut job = Driven::new(step);
    let token = job.hand_over();
    job.now = Timestamp(1000 + 59_999);
    let due = Timestamp(1000 + 60_000);
    assert_eq!(job.fire(Timer::Attempt(ITEM, 1)), Err(Refusal::TooEarly(due)));
    job.now = due;
    job.fire(Timer::Attempt(ITEM, 1)).expect("due");
    assert!(matches!(job.job.live(ITEM).expect("retried").phase, Phase::BackingOff { .. }));
    let silent = Outcome::no_callback(60_000);
    let says = |record: &RecordedEvent| matches!(&record.event, Event::AttemptEnded { outcome, .. } if *outcome == silent);
    assert!(job.log.iter().any(says), "it says whose silence it was");
    assert_eq!(job.callback(token, Outcome::OK), Err(Refusal::StaleFence), "its token is over");
}

#[test]
fn an_asynchronous_fallback_has_a_timeout_though_its_step_has_none() {
    let mut step = call();
    let Action::Http(http) = step.action.clone() else { unreachable!() };
    step.action = Action::Run("false".into());
    step.on_failure = Some(steadfast_core::plan::OnFailure {
        action: Some(Action::Http(http)),
        then: steadfast_core::plan::AfterFailure::Fail,
    });
    let plan = Plan::new(PlanDraft::new("j", vec![step])).expect("valid");
    assert_eq!(plan.timeout_ms_of(ITEM), None);
    let fallback = ItemId { role: Role::Fallback, ..ITEM };
    assert_eq!(plan.timeout_ms_of(fallback), Some(3_600_000));
}

#[test]
fn progress_extends_a_heartbeat_and_nothing_else() {
    let mut step = call();
    (step.timeout_ms, step.heartbeat_ms) = (Some(20_000), Some(6000));
    let mut job = Driven::new(step);
    let token = job.hand_over();
    let heartbeat = Timer::Heartbeat(ITEM, 1);
    assert_eq!(job.job.timer_due(&heartbeat), Some(Timestamp(7000)));
    job.progress(token, 5000).expect("current");
    assert_eq!(job.job.timer_due(&heartbeat), Some(Timestamp(12_000)));
    let timeout = Timer::Attempt(ITEM, 1);
    assert_eq!(job.job.timer_due(&timeout), Some(Timestamp(21_000)), "the timeout stays");
    job.now = Timestamp(12_000);
    job.fire(heartbeat).expect("silent for too long");
    let live = job.job.live(ITEM).expect("retried");
    assert!(live.last_error().expect("an error").contains("silent for longer"), "{live:?}");
    assert_eq!(live.history.failures, 1);
}

#[test]
fn without_a_heartbeat_silence_is_no_failure() {
    let mut job = Driven::new(call());
    job.hand_over();
    assert_eq!(job.job.timer_due(&Timer::Heartbeat(ITEM, 1)), None);
}

#[test]
fn progress_is_recorded_once_a_second_and_told_to_the_next_attempt() {
    let mut job = Driven::new(call());
    let token = job.hand_over();
    job.progress(token, 0).expect("the first");
    assert_eq!(job.progress(token, 999), Err(Refusal::TooOften(1000)));
    job.progress(token, 1).expect("a second later");
    job.callback(token, FailureKind::HandlerFailed.into()).expect("current");
    let said = job.job.live(ITEM).expect("backs off").progress.clone().expect("kept");
    assert_eq!((said.attempt, &*said.said), (1, &json!({ "done": 1 })));
    assert_eq!(job.progress(token, 5000), Err(Refusal::StaleFence));
    job.fire(Timer::Retry(ITEM)).expect("due");
    let second = job.hand_over();
    job.progress(second, 0).expect("each attempt may say something at once");
}

#[test]
fn the_last_word_of_a_function_counts_however_soon_it_comes() {
    let mut job = Driven::new(call());
    job.input(&Input::Start { item: ITEM, worker: "w".into(), incarnation: None, least_token: 0 })
        .expect("startable");
    let token = job.job.live(ITEM).expect("under way").token;
    for done in [1, 2] {
        let progress = Arc::new(json!(done));
        job.input(&Input::Progress { item: ITEM, token, progress, by_callback: false })
            .expect("a worker's word");
    }
    let outcome = FailureKind::HandlerFailed.into();
    job.input(&Input::Report { item: ITEM, token, outcome }).expect("current");
    let kept = job.job.live(ITEM).expect("backs off").progress.clone().expect("kept");
    assert_eq!(*kept.said, json!(2));
}

#[test]
fn what_waits_for_a_callback_keeps_its_place_in_the_steps_parallelism() {
    let mut step = call();
    (step.for_each, step.parallelism) = (ForEach::Range(2), Some(1));
    let mut job = Driven::new(step);
    let token = job.hand_over();
    assert_eq!(job.job.next_startable(0), None);
    job.callback(token, Outcome::OK).expect("current");
    assert_eq!(job.job.next_startable(0), Some(ItemId { index: 1, ..ITEM }));
}

#[test]
fn a_restart_leaves_what_a_service_has_with_it() {
    let mut job = Driven::new(call());
    let token = job.hand_over();
    let down_since = job.now;
    job.now = job.now.plus(60_000);
    job.input(&Input::Restarted { down_since }).expect("always");
    assert!(job.job.timers().iter().any(|(_, timer)| *timer == Timer::Attempt(ITEM, 1)));
    job.callback(token, Outcome::OK).expect("it waits as before");
    assert_eq!(job.job.state(), JobState::Succeeded);
}

#[test]
fn a_cancel_does_not_wait_for_a_service_and_a_late_word_changes_nothing() {
    let mut job = Driven::new(call());
    let token = job.hand_over();
    job.input(&Input::Cancel(Requester::NOBODY)).expect("can be cancelled");
    assert!(job.job.is_over());
    assert_eq!(job.callback(token, Outcome::OK), Err(Refusal::StaleFence));
    let late = Input::LateCallback { item: ITEM, attempt: 1, outcome: Outcome::OK };
    job.input(&late).expect("recorded");
    assert_eq!(job.job.state(), JobState::Cancelled);
    assert!(matches!(job.log.last().expect("a log").event, Event::LateCallback { .. }));
}
