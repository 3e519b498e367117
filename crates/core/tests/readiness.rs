//! Which items may start, and why others may not, of jobs that are driven there.

use std::sync::Arc;

use steadfast_core::decide::{Input, accept, advance};
use steadfast_core::event::{AcceptedJob, ItemId, KeptStep, Requester, Role};
use steadfast_core::job::{Job, Timer};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{
    Action, AfterFailure, BestEffort, ForEach, LateResults, NotBefore, OnFailure, Plan, PlanDraft,
    StepDraft,
};
use steadfast_core::policy::{Policy, PolicyDraft, RuleAction, RuleDraft};
use steadfast_core::ranges::Ranges;
use steadfast_core::readiness::{ItemReadiness, NotReady, readiness};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;

fn step(name: &str, needs: &[&str]) -> StepDraft {
    let mut step = StepDraft::new(name, Action::Run("true".into()), Policy::default());
    step.needs = needs.iter().map(ToString::to_string).collect();
    step
}

fn fan(name: &str, items: u32) -> StepDraft {
    let mut step = step(name, &[]);
    step.for_each = ForEach::Range(items);
    step
}

fn with(policy: PolicyDraft) -> StepDraft {
    StepDraft::new("s", Action::Run("true".into()), Policy::new(policy).expect("valid"))
}

struct Driven {
    job: Job,
    now: Timestamp,
}

impl Driven {
    fn new(draft: PlanDraft) -> Self {
        Self::accepted(AcceptedJob::new("one".into(), Arc::new(Plan::new(draft).expect("valid"))))
    }

    fn of(steps: Vec<StepDraft>) -> Self {
        Self::new(PlanDraft::new("j", steps))
    }

    fn accepted(accepted: AcceptedJob) -> Self {
        let now = Timestamp(1000);
        Self { job: accept(accepted, now).0, now }
    }

    fn input(&mut self, input: &Input) {
        advance(&mut self.job, input, self.now).expect("possible");
    }

    fn start(&mut self, item: ItemId) {
        self.input(&Input::Start { item, worker: "w".into(), incarnation: None, least_token: 0 });
    }

    fn run(&mut self, item: ItemId, outcome: Outcome) {
        self.start(item);
        let token = self.job.live(item).expect("under way").token;
        self.input(&Input::Report { item, token, outcome });
    }

    fn fire(&mut self, timer: Timer) {
        self.now = self.now.max(self.job.timer_due(&timer).expect("set"));
        self.input(&Input::Fired(timer));
    }

    fn rows(&self) -> Vec<ItemReadiness> {
        readiness(&self.job, ItemId::default(), self.now).collect()
    }

    fn row(&self, id: ItemId) -> ItemReadiness {
        self.rows().into_iter().find(|row| row.id == id).expect("there")
    }

    /// The index, the count and the reason of each row of the first step's items.
    fn groups(&self) -> Vec<(u32, u32, Option<&'static str>)> {
        let rows =
            self.rows().into_iter().filter(|row| (row.id.step, row.id.role) == (0, Role::Item));
        let group = |row: ItemReadiness| {
            (row.id.index, row.items.expect("known"), row.not_ready.map(NotReady::name))
        };
        rows.map(group).collect()
    }

    fn reasons(&self) -> Vec<Option<&'static str>> {
        self.rows().into_iter().map(|row| row.not_ready.map(NotReady::name)).collect()
    }
}

fn item(step: u32, index: u32) -> ItemId {
    ItemId { step, index, ..ItemId::default() }
}

fn failed() -> Outcome {
    FailureKind::Exited(1).into()
}

#[test]
fn eligibility_at_its_boundaries() {
    // The limit, `retryable`, failures carried along and failures here; then what the row says.
    let cases = [
        (Some(3), true, 0, 0, (0, 0, true, None)),
        (Some(3), false, 0, 0, (0, 0, true, None)),
        (Some(3), true, 0, 2, (2, 2, true, Some("backing_off"))),
        (Some(3), false, 0, 1, (1, 1, false, Some("not_retryable"))),
        (Some(2), true, 0, 2, (2, 2, false, Some("attempts_exhausted"))),
        (Some(1), false, 0, 1, (1, 1, false, Some("not_retryable"))),
        (Some(3), true, 5, 0, (0, 5, true, None)),
        (Some(3), true, 5, 1, (1, 6, false, Some("attempts_exhausted"))),
        (Some(3), false, 5, 0, (0, 5, true, None)),
        (Some(3), false, 5, 1, (1, 6, false, Some("not_retryable"))),
        (None, true, 0, 9, (9, 9, true, Some("backing_off"))),
        (None, false, 0, 1, (1, 1, false, Some("not_retryable"))),
    ];
    for (max_attempts, retryable, carried, failures, expect) in cases {
        let draft = with(PolicyDraft { max_attempts, retryable, ..PolicyDraft::default() });
        let plan = Plan::new(PlanDraft::new("j", vec![draft])).expect("valid");
        let mut accepted = AcceptedJob::new("one".into(), Arc::new(plan));
        if carried > 0 {
            accepted.kept.push(KeptStep {
                run: 0,
                step: 0,
                items: 1,
                values: None,
                succeeded: Ranges::default(),
                outputs: vec![],
                failures: vec![(0, carried)],
            });
        }
        let mut job = Driven::accepted(accepted);
        for before in 0..failures {
            if before > 0 {
                job.fire(Timer::Retry(item(0, 0)));
            }
            job.run(item(0, 0), failed());
        }
        let row = job.row(item(0, 0));
        let (attempts, counted, eligible, reason) = expect;
        let name = format!("{failures} and {carried} of {max_attempts:?}, {retryable}");
        assert_eq!((row.attempts, row.failures), (Some(attempts), Some(counted)), "{name}");
        assert_eq!(row.eligible, eligible, "{name}");
        assert_eq!(row.not_ready.map(NotReady::name), reason, "{name}");
        assert_eq!((row.max_attempts, row.retryable), (max_attempts, retryable), "{name}");
    }
}

#[test]
fn what_does_not_count_as_a_failure_leaves_an_item_eligible() {
    let mut job = Driven::of(vec![with(PolicyDraft {
        max_attempts: Some(1),
        retryable: false,
        max_preemptions: Some(9),
        max_preemptions_written: true,
        ..PolicyDraft::default()
    })]);
    job.run(item(0, 0), Outcome::LOST);
    let row = job.row(item(0, 0));
    assert_eq!((row.attempts, row.failures, row.eligible), (Some(1), Some(0), true));
    assert_eq!(row.not_ready, None);

    let rule = RuleDraft { exit: Some(vec![1]), then: RuleAction::Retry, ..RuleDraft::default() };
    let policy = PolicyDraft { retryable: false, rules: vec![rule], ..PolicyDraft::default() };
    let mut job = Driven::of(vec![with(policy)]);
    assert!(!job.row(item(0, 0)).retryable);
    job.run(item(0, 0), failed());
    let row = job.row(item(0, 0));
    assert!(row.retryable && row.eligible, "a rule has retried it: {row:?}");
    assert_eq!(row.not_ready, Some(NotReady::BackingOff));
}

#[test]
fn a_retry_is_ready_once_it_is_due() {
    let mut job = Driven::of(vec![step("s", &[])]);
    job.run(item(0, 0), failed());
    let due = job.job.timer_due(&Timer::Retry(item(0, 0))).expect("set");
    job.now = Timestamp(due.0 - 1);
    let row = job.row(item(0, 0));
    assert_eq!((row.next_retry_at, row.not_ready), (Some(due), Some(NotReady::BackingOff)));
    job.now = due;
    let row = job.row(item(0, 0));
    assert_eq!((row.next_retry_at, row.not_ready), (Some(due), None));
    job.fire(Timer::Retry(item(0, 0)));
    let row = job.row(item(0, 0));
    assert_eq!((row.next_retry_at, row.not_ready), (None, None));
}

#[test]
fn a_million_items_are_a_row_until_they_start() {
    let mut each = fan("each", 1_000_000);
    each.max_failed = steadfast_core::plan::MaxFailed::Count(1);
    let mut job = Driven::of(vec![each, step("after", &["each"])]);
    assert_eq!(job.groups(), [(0, 1_000_000, None)]);
    for index in 0..4 {
        job.run(item(0, index), Outcome::OK);
    }
    job.run(item(0, 4), failed());
    job.run(item(0, 5), FailureKind::Exited(1).into());
    job.start(item(0, 6));
    let groups = [
        (0, 4, Some("succeeded")),
        (4, 1, Some("backing_off")),
        (5, 1, Some("backing_off")),
        (6, 1, Some("running")),
        (7, 999_993, None),
    ];
    assert_eq!(job.groups(), groups);
    assert_eq!(job.row(item(1, 0)).not_ready, Some(NotReady::Waiting));
    let from_the_middle: Vec<_> = readiness(&job.job, item(0, 500_000), job.now).collect();
    assert_eq!((from_the_middle[0].id.index, from_the_middle[0].items), (500_000, Some(500_000)));
    assert_eq!(from_the_middle.len(), 2);
    job.input(&Input::Cancel(Requester::NOBODY));
    assert_eq!(job.groups(), [(0, 4, Some("succeeded")), (4, 999_996, Some("cancelled"))]);
}

#[test]
fn what_was_kept_or_failed_before_lies_between_what_has_not_started() {
    let plan = Plan::new(PlanDraft::new("j", vec![fan("s", 10)])).expect("valid");
    let mut accepted = AcceptedJob::new("one".into(), Arc::new(plan));
    accepted.kept.push(KeptStep {
        run: 0,
        step: 0,
        items: 10,
        values: None,
        succeeded: Ranges::from(vec![(2, 3), (9, 9)]),
        outputs: vec![],
        failures: vec![(5, 3)],
    });
    let job = Driven::accepted(accepted);
    let groups = [
        (0, 2, None),
        (2, 2, Some("succeeded")),
        (4, 1, None),
        (5, 1, None),
        (6, 3, None),
        (9, 1, Some("succeeded")),
    ];
    assert_eq!(job.groups(), groups);
    assert_eq!(job.row(item(0, 5)).failures, Some(3));
}

#[test]
fn what_holds_a_job_up_holds_up_its_items() {
    let mut limited = fan("s", 3);
    limited.parallelism = Some(1);
    let mut job = Driven::of(vec![limited, step("t", &["s"])]);
    job.start(item(0, 0));
    assert_eq!(job.reasons(), [Some("running"), Some("parallelism"), Some("waiting")]);
    job.input(&Input::Pause(Requester::NOBODY));
    assert_eq!(job.reasons(), [Some("running"), Some("paused"), Some("paused")]);
    let token = job.job.last_token;
    job.input(&Input::Awaits { item: item(0, 0), token });
    assert_eq!(job.reasons()[0], Some("awaiting_callback"));

    let mut draft = PlanDraft::new("j", vec![step("s", &[]), step("t", &["s"])]);
    draft.not_before = Some(NotBefore::InMs(500));
    draft.timeout_ms = Some(500);
    let mut job = Driven::new(draft);
    assert_eq!(job.reasons(), [Some("pending"), Some("pending")]);
    assert!(job.rows()[0].dependencies_satisfied && !job.rows()[1].dependencies_satisfied);
    job.now = job.now.plus(500);
    assert_eq!(job.reasons(), [None, Some("waiting")], "the engine is about to begin it");
    job.fire(Timer::Begin);
    assert_eq!(job.reasons(), [None, Some("waiting")]);
    job.now = job.now.plus(500);
    let over = Some(StopReason::JobTimedOut.name());
    assert_eq!(job.reasons(), [over, over], "the engine is about to end it");
    job.fire(Timer::JobTimeout);
    assert_eq!(job.reasons(), [Some("cancelled"), Some("cancelled")]);
}

#[test]
fn fallbacks_and_compensations_have_rows_once_they_are_there() {
    let mut undone = step("a", &[]);
    undone.compensate = Some(Action::Run("undo".into()));
    let mut falls_back = step("b", &["a"]);
    falls_back.policy =
        Policy::new(PolicyDraft { max_attempts: Some(1), ..PolicyDraft::default() })
            .expect("valid");
    falls_back.on_failure =
        Some(OnFailure { action: Some(Action::Run("c".into())), then: AfterFailure::Fail });
    let mut job = Driven::of(vec![undone, falls_back, step("d", &["b"])]);
    job.run(item(0, 0), Outcome::OK);
    assert_eq!(job.row(item(0, 0)).attempts, Some(1));
    job.run(item(1, 0), failed());
    let exhausted = Some("attempts_exhausted");
    assert_eq!(job.reasons(), [Some("succeeded"), exhausted, None, Some("waiting")]);
    let fallback = ItemId { role: Role::Fallback, ..item(1, 0) };
    assert!(job.row(fallback).dependencies_satisfied);
    job.run(fallback, failed());
    let skipped = Some("skipped");
    assert_eq!(job.reasons(), [Some("succeeded"), None, exhausted, exhausted, skipped]);
    let compensation = ItemId { role: Role::Compensation, ..item(0, 0) };
    let from_there: Vec<_> = readiness(&job.job, compensation, job.now).collect();
    assert_eq!((from_there.len(), from_there[0].id), (4, compensation));
    job.run(compensation, Outcome::OK);
    assert_eq!(job.reasons()[..2], [Some("succeeded"), Some("succeeded")]);
}

#[test]
fn how_many_items_there_are_may_not_be_known() {
    let mut listed = step("each", &["list"]);
    listed.for_each = ForEach::Output { step: "list".into(), path: vec![] };
    let of_output = |output: serde_json::Value| {
        let mut job = Driven::of(vec![step("list", &[]), listed.clone()]);
        assert_eq!(job.row(item(1, 0)).items, None);
        job.run(item(0, 0), Outcome::Succeeded { output: Some(output) });
        let row = job.row(item(1, 0));
        (row.items, row.not_ready.map(NotReady::name))
    };
    assert_eq!(of_output(serde_json::json!([1, 2])), (Some(2), None));
    assert_eq!(of_output(serde_json::json!([])), (Some(0), Some("succeeded")));
    assert_eq!(of_output(serde_json::json!(1)), (None, Some("failed")));
}

#[test]
fn a_datacenter_goes_on_after_the_job_has_ended() {
    let mut draft = PlanDraft::new("j", vec![step("s", &[])]);
    draft.datacenters = vec!["eu".into(), "us".into()];
    draft.best_effort = Some(BestEffort {
        min_datacenters: 1,
        min_requested: None,
        deadline_ms: 100,
        grace_ms: 0,
        late_results: LateResults::LogOnly,
    });
    let mut job = Driven::new(draft);
    job.run(item(0, 0), Outcome::OK);
    assert!(job.job.state().is_terminal() && !job.job.is_over());
    assert_eq!(job.reasons(), [Some("succeeded"), None]);
}
