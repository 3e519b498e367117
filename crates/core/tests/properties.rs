//! Whatever a job is made of and whatever happens to it, in whatever order: what must always hold.

#[path = "properties/readiness.rs"]
mod readiness;
#[path = "properties/strategies.rs"]
mod strategies;
#[path = "properties/world.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use steadfast_core::apply::{apply, replay};
use steadfast_core::backoff::{Backoff, Draw, Jitter};
use steadfast_core::decide::Input;
use steadfast_core::event::{Event, ItemId, JobState, RecordedEvent, Requester, Role, StepState};
use steadfast_core::job::{Job, Phase, Timer};
use steadfast_core::outcome::FailureKind;
use steadfast_core::plan::{BudgetCounts, Plan, PlanDraft, StepDraft};
use steadfast_core::policy::Policy;
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::Cause;

use strategies::{action, plans, policies};
use world::{Happening, World};

/// The books, at one moment.
fn check_state(job: &Job) {
    let plan = &job.plan;
    assert_eq!(job.step_retries.iter().sum::<u32>(), job.retries);
    if let Some(budget) = plan.budget() {
        let total = budget.total_at(job.items_started).unwrap_or(u32::MAX);
        assert!(job.retries <= total, "{} retries of {total}", job.retries);
        let share = budget.per_step().unwrap_or(u32::MAX);
        assert!(job.step_retries.iter().all(|&spent| spent <= share));
    }
    for (id, item) in job.all_live() {
        let step = plan.step(id.step);
        let policy = step.policy.draft();
        let history = &item.history;
        assert!(policy.max_attempts.is_none_or(|most| history.failures <= most));
        assert!(policy.max_preemptions.is_none_or(|most| history.preemptions <= most));
        assert!(policy.max_deferrals.is_none_or(|most| history.deferrals <= most));
        let budget = policy.delay_budget_ms.unwrap_or(u64::MAX);
        assert!(history.delay_spent_ms <= budget, "the delay budget is overspent");
        assert!(!job.run_state(id.run).is_terminal(), "something lives in a run that is over");
    }
    for state in &job.runs {
        for (index, step) in state.steps.iter().enumerate() {
            let running = step.live.values().filter(|item| item.is_under_way()).count();
            let most = plan.step(index as u32).parallelism.unwrap_or(u32::MAX);
            assert!(running <= most as usize, "more than `parallelism` run");
            if step.state == StepState::Running {
                let done =
                    step.succeeded.len() as usize + step.failed.len() + step.skipped as usize;
                let untouched = step.open_items() as usize - step.live.len();
                assert_eq!(done + step.live.len() + untouched, step.items as usize);
            }
        }
    }
    // Exactly one reason to progress each: what backs off has a timer, what is ready a place in the
    // queue or a limit before it, what runs a lease (the driver's).
    let retries: BTreeSet<_> = job.timers().into_iter().map(|(_, timer)| timer).collect();
    for (id, item) in job.all_live() {
        let backs_off = matches!(item.phase, Phase::BackingOff { .. });
        assert_eq!(retries.contains(&Timer::Retry(id)), backs_off);
    }
}

/// The log, as a whole.
fn check_log(log: &[RecordedEvent], plan: &Plan) {
    let mut ended = 0;
    let mut last_token = 0;
    let mut due: BTreeMap<ItemId, Timestamp> = BTreeMap::new();
    let mut over: BTreeSet<ItemId> = BTreeSet::new();
    let mut runs_over: BTreeSet<u32> = BTreeSet::new();
    let mut met: BTreeSet<(u32, u32)> = BTreeSet::new();
    let mut cancelled = false;
    let (mut handed_back, mut retries) = (false, 0);
    for (i, record) in log.iter().enumerate() {
        assert_eq!(record.seq, i as u64 + 1, "a gap in the log");
        assert!(i == 0 || record.at >= log[i - 1].at, "time went back");
        match &record.event {
            Event::AttemptStarted { item, token, .. } => {
                assert!(*token > last_token, "fence tokens must increase");
                last_token = *token;
                assert!(due.get(item).is_none_or(|due| record.at >= *due), "before its time");
                assert!(!over.contains(item), "an attempt after the item ended");
                assert!(!runs_over.contains(&item.run), "an attempt after the run ended");
                assert!(!cancelled, "an attempt after a cancel");
                if item.role == Role::Item {
                    for need in &plan.step(item.step).needs {
                        assert!(met.contains(&(item.run, *need)), "before what it needs");
                    }
                }
            }
            Event::RetryScheduled { item, cause, due_at, charged, delay_ms, .. } => {
                due.insert(*item, *due_at);
                assert_eq!(*due_at, record.at.plus(*delay_ms));
                match cause {
                    Cause::Failure => assert_eq!(
                        (charged.failures, charged.preemptions, charged.deferrals),
                        (1, 0, 0)
                    ),
                    Cause::Preemption => assert_eq!(
                        (charged.failures, charged.deferrals, charged.delay_ms),
                        (0, 0, 0)
                    ),
                    Cause::Deferral => assert_eq!(
                        (charged.failures, charged.preemptions, charged.delay_ms),
                        (0, 0, 0)
                    ),
                }
                let all = plan.budget().is_some_and(|budget| budget.counts == BudgetCounts::All);
                let spends = match cause {
                    Cause::Failure => plan.budget().is_some(),
                    Cause::Preemption => all && !handed_back,
                    Cause::Deferral => false,
                };
                let spends = u32::from(spends);
                assert_eq!((charged.job_retries, charged.step_retries), (spends, spends));
                retries += spends;
            }
            Event::AttemptEnded { outcome, .. } => handed_back = outcome.is_handed_back(),
            Event::ItemSucceeded { item, .. } | Event::ItemFailed { item, .. } => {
                assert!(over.insert(*item), "an item ended twice");
            }
            Event::StepSucceeded { run, step }
            | Event::StepFailed { run, step, continues: true } => drop(met.insert((*run, *step))),
            Event::RunEnded { run, .. } => assert!(runs_over.insert(*run), "a run ended twice"),
            Event::JobEnded { state, succeeded, .. } => {
                ended += 1;
                cancelled = *state == JobState::Cancelled;
                if let (JobState::Succeeded, Some(best)) = (state, plan.best_effort()) {
                    assert!(*succeeded >= best.min_datacenters);
                }
            }
            _ => {}
        }
    }
    assert_eq!(ended, 1, "a job ends exactly once");
    let most = plan.budget().and_then(|budget| budget.total).map_or(u32::MAX, |t| t.effective);
    assert!(retries <= most, "{retries} retries of {most}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_hold_whatever_happens(
        plan in plans(),
        happenings in proptest::collection::vec(any::<Happening>(), 0..120),
    ) {
        let mut world = World::new(plan);
        check_state(&world.job);
        for happening in happenings {
            world.happen(happening);
            check_state(&world.job);
            readiness::check(&world.job, world.now.plus(u64::from(happening.2) / 16));
        }
        world.drain();
        check_state(&world.job);
        check_log(&world.log, &world.job.plan);

        // The log is the truth: folded again, also from its JSON, every prefix gives the live state.
        let mut folded = replay(&world.log[..1]).expect("a log begins");
        for record in &world.log[1..] {
            let json = serde_json::to_string(record).expect("serializes");
            let read: RecordedEvent = serde_json::from_str(&json).expect("reads");
            prop_assert_eq!(&read, record);
            apply(&mut folded, &read).expect("what happened can have happened");
            if let Some(live) = world.states.get(&folded.seq) {
                prop_assert_eq!(&folded, live);
            }
        }
        let snapshot = serde_json::to_string(&folded).expect("serializes");
        let restored: Job = serde_json::from_str(&snapshot).expect("reads");
        prop_assert_eq!(restored, folded);
    }

    #[test]
    fn delays_stay_within_their_bounds(policy in policies(), n in 1u32..2_000_000, last in prop::option::of(0u64..100_000), bits: u64) {
        let delays = policy.delays();
        let delay = delays.delay_ms(n, last, Draw::from_bits(bits));
        let (low, high) = delays.bounds_ms(n, last);
        prop_assert!(delay <= delays.max_ms());
        prop_assert!((low..=high).contains(&delay), "{} not in {}..={}", delay, low, high);
        if !matches!(delays.backoff(), Backoff::List(_)) {
            prop_assert!(delays.base_ms(n) <= delays.base_ms(n + 1), "base delays never shrink");
        }
        if delays.jitter() == Jitter::None {
            prop_assert_eq!(delay, delays.base_ms(n));
        }
    }
}

#[test]
fn an_event_that_cannot_have_happened_is_refused() {
    let step = StepDraft::new("s", action(), Policy::default());
    let plan = Plan::new(PlanDraft::new("job", vec![step])).expect("valid");
    let mut world = World::new(plan);
    world.start_some(1);
    let (item, token) = world.running()[0];
    world.input(&Input::Report { item, token, outcome: FailureKind::Exited(1).into() });
    let last = world.log.last().expect("a verdict").clone();
    let refused = |change: &dyn Fn(&mut RecordedEvent)| {
        let mut record = last.clone();
        record.seq += 1;
        change(&mut record);
        let mut job = world.job.clone();
        apply(&mut job, &record).expect_err("refused").why
    };
    assert_eq!(refused(&|_| ()), "its accounts are not what the log adds up to");
    assert_eq!(refused(&|r| r.seq += 1), "its number does not follow the last one");
    assert_eq!(refused(&|r| r.at = Timestamp(0)), "it is older than the event before it");
    assert_eq!(refused(&|r| r.event = Event::RetryDue { item }), "it is too early");
    assert_eq!(refused(&|r| r.event = Event::JobStarted), "the job has started before");
    assert_eq!(
        refused(&|r| r.event = Event::JobResumed { requested: Requester::NOBODY }),
        "the job is not paused"
    );
    let start = |attempt, token| Event::AttemptStarted {
        item,
        attempt,
        token,
        worker: "w".into(),
        incarnation: None,
    };
    assert_eq!(refused(&|r| r.event = start(2, 9)), "nothing of the step may start");
    assert_eq!(refused(&|r| r.event = start(2, 1)), "its fence token is not above all before it");
    let succeeded = Event::StepSucceeded { run: 0, step: 0 };
    assert_eq!(refused(&|r| r.event = succeeded.clone()), "some of its items have not succeeded");
    let elsewhere = Event::StepSucceeded { run: 7, step: 0 };
    assert_eq!(refused(&|r| r.event = elsewhere.clone()), "there is no such run");
    assert!(replay([&last]).is_err() && replay([]).is_err());
}
