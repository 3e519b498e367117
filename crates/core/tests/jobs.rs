//! Whole jobs through decide, follow and apply, where a person steps in: cancel, pause, retry.

use std::sync::Arc;

use steadfast_core::apply::apply;
use steadfast_core::decide::{Input, Refusal, accept, advance};
use steadfast_core::event::{
    AcceptedJob, Event, ItemId, JobState, RecordedEvent, Requester, Role, StepState,
};
use steadfast_core::job::{Job, Timer};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{
    Action, Allowance, Budget, BudgetCounts, ForEach, NotBefore, Plan, PlanDraft, StepDraft,
};
use steadfast_core::policy::{Policy, PolicyDraft};
use steadfast_core::retry_job::{CannotRetry, retry_job};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;

fn step(name: &str, needs: &[&str]) -> StepDraft {
    let mut step = StepDraft::new(name, Action::Run("true".into()), Policy::default());
    step.needs = needs.iter().map(ToString::to_string).collect();
    step
}

struct Driven {
    job: Job,
    log: Vec<RecordedEvent>,
    now: Timestamp,
}

impl Driven {
    fn new(draft: PlanDraft) -> Self {
        Self::accepted(AcceptedJob::new("one".into(), Arc::new(Plan::new(draft).expect("valid"))))
    }

    fn accepted(accepted: AcceptedJob) -> Self {
        let now = Timestamp(1000);
        let (job, log) = accept(accepted, now);
        Self { job, log, now }
    }

    fn input(&mut self, input: &Input) -> Result<(), Refusal> {
        let advanced = advance(&mut self.job, input, self.now)?;
        self.log.extend(advanced.log);
        Ok(())
    }

    fn item(&self, step: &str, index: u32) -> ItemId {
        let step = self.job.plan.find(step).expect("a step");
        ItemId { run: 0, step, role: Role::Item, index }
    }

    fn start(&mut self, item: ItemId) {
        self.input(&Input::Start { item, worker: "w".into(), incarnation: None, least_token: 0 })
            .expect("startable");
    }

    fn report(&mut self, item: ItemId, outcome: Outcome) {
        let token = self.job.live(item).expect("under way").token;
        self.input(&Input::Report { item, token, outcome }).expect("current");
    }

    fn run(&mut self, step: &str, index: u32, outcome: Outcome) {
        let item = self.item(step, index);
        self.start(item);
        self.report(item, outcome);
    }

    fn fire(&mut self, timer: Timer) {
        self.now = self.now.max(self.job.timer_due(&timer).expect("set"));
        self.input(&Input::Fired(timer)).expect("due");
    }

    /// Fails an item until it is given up.
    fn exhaust(&mut self, step: &str, index: u32) {
        let item = self.item(step, index);
        loop {
            self.start(item);
            self.report(item, FailureKind::Exited(1).into());
            if self.job.live(item).is_none() {
                return;
            }
            self.fire(Timer::Retry(item));
        }
    }
}

#[test]
fn a_cancel_takes_what_waits_with_it() {
    let mut fan = step("s", &[]);
    fan.for_each = ForEach::Range(3);
    let mut job = Driven::new(PlanDraft::new("j", vec![fan, step("t", &["s"])]));
    job.run("s", 0, Outcome::OK);
    job.run("s", 1, FailureKind::Exited(1).into());
    let running = job.item("s", 2);
    job.start(running);
    let token = job.job.live(running).expect("runs").token;
    let retry = Timer::Retry(job.item("s", 1));
    assert!(job.job.timer_due(&retry).is_some(), "a retry is pending");

    job.input(&Input::Cancel(Requester::NOBODY)).expect("can be cancelled");
    assert_eq!(job.job.state(), JobState::Cancelled);
    assert!(job.job.is_over());
    assert_eq!(job.job.timer_due(&retry), None, "the pending retry is gone with the same decision");
    assert_eq!(job.job.runs[0].steps[0].cancelled, 2);
    assert_eq!(job.job.runs[0].steps[1].state, StepState::Cancelled);
    let late = Input::Report { item: running, token, outcome: Outcome::OK };
    assert_eq!(job.input(&late), Err(Refusal::StaleFence));
    assert_eq!(job.input(&Input::Cancel(Requester::NOBODY)), Err(Refusal::Ended));
    // Should an outcome be judged all the same, it stops for that reason.
    assert_eq!(job.job.shared(running, 1).halted, Some(StopReason::Cancelled));
}

#[test]
fn a_pause_holds_starts_and_the_budgets_clock_but_not_what_runs() {
    let mut one = step("s", &[]);
    let policy = PolicyDraft {
        delay_budget_ms: Some(5000),
        max_attempts: Some(9),
        ..PolicyDraft::default()
    };
    one.policy = Policy::new(policy).expect("valid");
    let mut job = Driven::new(PlanDraft::new("j", vec![one]));
    let item = job.item("s", 0);
    job.start(item);
    job.input(&Input::Pause(Requester::NOBODY)).expect("can be paused");
    assert_eq!(job.input(&Input::Pause(Requester::NOBODY)), Err(Refusal::AlreadyPaused));
    job.report(item, FailureKind::Exited(1).into());
    assert_eq!(job.job.state(), JobState::Paused);
    job.fire(Timer::Retry(item));
    assert_eq!(job.job.next_startable(0), None, "nothing starts");

    job.now = job.now.plus(3_600_000);
    let down_since = job.now;
    job.now = job.now.plus(3_600_000);
    job.input(&Input::Restarted { down_since }).expect("restarts");
    job.input(&Input::Resume(Requester::NOBODY)).expect("goes on");
    assert_eq!(job.input(&Input::Resume(Requester::NOBODY)), Err(Refusal::NotPaused));
    assert_eq!(job.job.live(item).expect("alive").history.downtime_ms, 0);
    job.start(item);
    job.report(item, Outcome::OK);
    assert_eq!(job.job.state(), JobState::Succeeded);
}

#[test]
fn a_window_that_closed_during_a_pause_is_closed() {
    let mut one = step("s", &[]);
    let policy = PolicyDraft { window_ms: Some(60_000), ..PolicyDraft::default() };
    one.policy = Policy::new(policy).expect("valid");
    let mut job = Driven::new(PlanDraft::new("j", vec![one]));
    job.run("s", 0, FailureKind::Exited(1).into());
    job.input(&Input::Pause(Requester::NOBODY)).expect("can be paused");
    job.now = job.now.plus(60_001);
    job.input(&Input::Resume(Requester::NOBODY)).expect("goes on");
    assert_eq!(job.job.runs[0].steps[0].failed[&0].reason, StopReason::WindowExpired);
    assert_eq!(job.job.state(), JobState::Failed);
}

#[test]
fn not_before_holds_the_start_and_with_it_the_timeout() {
    let mut draft = PlanDraft::new("j", vec![step("s", &[])]);
    draft.not_before = Some(NotBefore::InMs(3_600_000));
    draft.timeout_ms = Some(1000);
    let mut job = Driven::new(draft);
    assert_eq!(job.job.state(), JobState::Pending);
    assert_eq!(
        job.input(&Input::Fired(Timer::Begin)),
        Err(Refusal::TooEarly(Timestamp(3_601_000)))
    );
    job.fire(Timer::Begin);
    assert_eq!(job.job.timer_due(&Timer::JobTimeout), Some(Timestamp(3_602_000)));
    job.run("s", 0, Outcome::OK);
    assert_eq!(job.job.state(), JobState::Succeeded);
}

fn pipeline() -> Driven {
    let mut fan = step("index", &["fetch"]);
    fan.for_each = ForEach::Range(3);
    let steps = vec![step("fetch", &[]), fan, step("publish", &["index"])];
    let mut draft = PlanDraft::new("j", steps);
    let total = Some(Allowance { requested: 2, effective: 2 });
    draft.budget =
        Some(Budget { total, per_step: None, ratio: None, counts: BudgetCounts::Failures });
    let mut job = Driven::new(draft);
    job.run("fetch", 0, Outcome::Succeeded { output: Some(serde_json::json!({"n": 1})) });
    job.run("index", 0, Outcome::OK);
    job.exhaust("index", 1);
    assert_eq!(job.job.state(), JobState::Failed);
    assert_eq!(job.job.retries, 2);
    job
}

#[test]
fn a_retried_job_keeps_what_succeeded() {
    let old = pipeline();
    let accepted = retry_job(&old.job, "two".into(), None, None).expect("can be retried");
    assert_eq!(accepted.retried_from.as_deref(), Some("one"));
    let mut new = Driven::accepted(accepted);
    let started = |job: &Driven| {
        job.log.iter().filter(|r| matches!(r.event, Event::AttemptStarted { .. })).count()
    };
    assert_eq!(new.job.runs[0].steps[0].state, StepState::Succeeded);
    assert_eq!(new.job.output(0, 0), Some(serde_json::json!({"n": 1})), "outputs come along");
    assert_eq!(new.job.next_startable(0), Some(new.item("index", 1)), "index[0] is done");
    // Anew: the same limits, nothing spent.
    new.exhaust("index", 1);
    assert_eq!(started(&new), 3);
    assert_eq!(new.job.retries, 2);
}

#[test]
fn a_grant_gives_so_many_attempts_and_retries_more() {
    let old = pipeline();
    let mut new =
        Driven::accepted(retry_job(&old.job, "two".into(), None, Some(2)).expect("can be"));
    assert_eq!(new.job.retries, 2, "what was spent stays spent");
    new.exhaust("index", 1);
    let attempts = new.job.runs[0].steps[1].attempts;
    assert_eq!(attempts, 2, "two more, and no third");
    let stopped = &new.job.runs[0].steps[1].failed[&1];
    assert_eq!((stopped.reason, stopped.history.failures), (StopReason::AttemptsExhausted, 5));
}

#[test]
fn what_a_retried_job_brings_along_is_there_also_if_no_worker_takes_it() {
    let mut waits = step("s", &[]);
    waits.scheduling_timeout_ms = Some(60_000);
    let mut old = Driven::new(PlanDraft::new("j", vec![waits]));
    old.exhaust("s", 0);
    let mut new =
        Driven::accepted(retry_job(&old.job, "two".into(), None, Some(2)).expect("can be"));
    new.fire(Timer::Scheduling { run: 0, step: 0 });
    let failed = new.log.iter().find_map(|record| match &record.event {
        Event::ItemFailed { reason, accounts, .. } => Some((*reason, accounts.failures)),
        _ => None,
    });
    assert_eq!(failed, Some((StopReason::Unschedulable, 3)));
}

#[test]
fn of_items_that_never_started_only_the_next_can_have_failed() {
    let mut fan = step("s", &[]);
    fan.for_each = ForEach::Range(3);
    fan.scheduling_timeout_ms = Some(60_000);
    let mut job = Driven::new(PlanDraft::new("j", vec![fan]));
    let before = job.job.clone();
    job.fire(Timer::Scheduling { run: 0, step: 0 });
    let is_failure = |record: &&RecordedEvent| matches!(record.event, Event::ItemFailed { .. });
    let failed = job.log.iter().find(is_failure).expect("nobody took it").clone();
    let takes = |job: &Job, index: u32| {
        let mut record = RecordedEvent { seq: job.seq + 1, ..failed.clone() };
        let Event::ItemFailed { item, .. } = &mut record.event else { unreachable!() };
        item.index = index;
        apply(&mut job.clone(), &record).is_ok()
    };
    assert_eq!([0, 1, 2, 3].map(|index| takes(&before, index)), [true, false, false, false]);
    let accepted = AcceptedJob::new("one".into(), before.plan.clone());
    let mut all = Driven::accepted(accepted);
    (0..3).for_each(|index| all.start(all.item("s", index)));
    assert_eq!([0, 1, 2, 3].map(|index| takes(&all.job, index)), [false; 4]);
}

#[test]
fn a_retry_from_a_step_runs_it_and_what_needs_it_again() {
    let mut job = Driven::new(PlanDraft::new(
        "j",
        vec![step("a", &[]), step("b", &["a"]), step("c", &["b"])],
    ));
    for name in ["a", "b", "c"] {
        job.run(name, 0, Outcome::OK);
    }
    let refused = retry_job(&job.job, "two".into(), None, None).expect_err("it succeeded");
    assert!(matches!(refused, CannotRetry::Succeeded(_)), "{refused}");
    let mut new =
        Driven::accepted(retry_job(&job.job, "two".into(), Some("b"), None).expect("from b"));
    assert_eq!(new.job.runs[0].steps[0].state, StepState::Succeeded);
    new.run("b", 0, Outcome::OK);
    new.run("c", 0, Outcome::OK);
    assert_eq!(new.job.state(), JobState::Succeeded);
    let unknown = retry_job(&job.job, "two".into(), Some("d"), None).expect_err("no such step");
    assert_eq!(unknown.to_string(), "job one has no step `d`");
}

#[test]
fn what_was_undone_runs_again() {
    let mut first = step("a", &[]);
    first.compensate = Some(Action::Run("undo".into()));
    let mut second = step("b", &["a"]);
    second.policy = Policy::new(PolicyDraft { max_attempts: Some(1), ..PolicyDraft::default() })
        .expect("valid");
    let mut job = Driven::new(PlanDraft::new("j", vec![first, second]));
    job.run("a", 0, Outcome::OK);
    job.run("b", 0, FailureKind::Exited(1).into());
    assert_eq!(job.job.state(), JobState::Running, "it is not over before it is undone");
    let refused = retry_job(&job.job, "two".into(), None, None).expect_err("it still runs");
    assert!(matches!(refused, CannotRetry::NotEnded(_)), "{refused}");
    let undo = ItemId { role: Role::Compensation, ..job.item("a", 0) };
    job.start(undo);
    job.report(undo, Outcome::OK);
    assert_eq!(job.job.state(), JobState::Failed);
    let new = Driven::accepted(retry_job(&job.job, "two".into(), None, None).expect("can be"));
    assert_eq!(new.job.next_startable(0), Some(new.item("a", 0)));
}

#[test]
fn a_million_items_cost_no_record_until_they_are_touched() {
    let mut fan = step("s", &[]);
    fan.for_each = ForEach::Range(1_000_000);
    let mut job = Driven::new(PlanDraft::new("j", vec![fan]));
    for index in 0..10 {
        job.run("s", index, Outcome::OK);
    }
    job.start(job.item("s", 10));
    assert_eq!(job.job.runs[0].steps[0].live.len(), 1);
    let state = serde_json::to_string(&job.job).expect("serializes");
    assert!(state.len() < 10_000, "{} bytes", state.len());
}
