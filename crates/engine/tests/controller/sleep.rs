//! Only what is due lives in memory.

use steadfast_core::event::Event;
use steadfast_core::outcome::{Failure, FailureKind};
use steadfast_core::plan::NotBefore;
use steadfast_store::{Gap, Whose};

use super::*;

const HOUR: u64 = 3_600_000;

/// A job that begins in an hour.
fn tomorrow(id: &str) -> Request {
    let mut accepted = accepted(id);
    let policy = Policy::new(PolicyDraft::default()).expect("the defaults are valid");
    let step = StepDraft::new("s", Action::Run("true".to_owned()), policy);
    let not_before = Some(NotBefore::InMs(HOUR));
    let draft = PlanDraft { not_before, ..PlanDraft::new(id, vec![step]) };
    accepted.plan = Arc::new(Plan::new(draft).expect("valid"));
    Request::Submit { accepted: Box::new(accepted), key: None }
}

/// A world whose jobs are loaded when they are needed.
fn world() -> World {
    let mut world = World::new(8);
    world.controller.raise_horizon(Timestamp(61_000));
    world
}

fn asleep(world: &mut World, outputs: &Outputs) -> Vec<JobId> {
    for (job, seq) in &outputs.idle {
        world.controller.idle(job, *seq);
    }
    let group = world.step(vec![]);
    group.map(|group| world.commit(group).slept).unwrap_or_default()
}

fn load(world: &mut World, job: &JobId) {
    let found = state(&mut world.store, job).map(|job| {
        let gaps = world.store.gaps(Owner::SHARD, &job.id, job.last_at).expect("memory");
        Some(Box::new(Adopted { job, gaps, lost: vec![] }))
    });
    let as_of = world.controller.departures();
    world.controller.loaded(job, found, as_of, Timestamp(world.now));
}

#[test]
fn a_job_that_waits_leaves_memory_and_a_command_loads_it() {
    let mut world = world();
    let outputs = world.done(vec![(1, tomorrow("a")), (2, submit("b"))]);
    assert_eq!(asleep(&mut world, &outputs), [JobId::from("a")], "b runs");
    let wake_at = world.store.get("a").expect("memory").expect("there").row.wake_at;
    assert_eq!(wake_at, Some(Timestamp(1010 + HOUR)));
    assert!(world.step(vec![(3, cancel("a"))]).is_none(), "the answer waits for the job");
    assert_eq!(world.controller.take_loads(), [JobId::from("a")]);
    assert!(world.step(vec![(4, cancel("a"))]).is_none());
    assert_eq!(world.controller.take_loads(), [], "it is asked for once");
    load(&mut world, &"a".into());
    let outputs = world.done(vec![]);
    assert_eq!(outputs.replies[0], (3, Ok(())));
    assert_eq!(outputs.replies.len(), 2);
    assert!(state(&mut world.store, "a").expect("readable").is_over());
}

#[test]
fn of_a_job_that_is_not_there_nothing_is_said_before_it_was_looked_for() {
    let mut world = world();
    assert!(world.step(vec![(1, cancel("ghost"))]).is_none());
    let as_of = world.controller.departures();
    world.controller.loaded(&"ghost".into(), Ok(None), as_of, Timestamp(2000));
    let outputs = world.done(vec![]);
    assert_eq!(outputs.replies, [(1, Err(CommandError::Unknown("ghost".into())))]);
}

#[test]
fn what_was_said_between_commit_and_sleep_keeps_the_job_awake() {
    let mut world = world();
    let outputs = world.done(vec![(1, tomorrow("a"))]);
    let pause = Request::Input { job: "a".into(), input: Input::Pause(Requester::NOBODY) };
    let paused = world.step(vec![(2, pause)]).expect("decided in memory");
    assert_eq!(asleep(&mut world, &outputs), [], "its last event is not durable yet");
    let outputs = world.commit(paused);
    assert_eq!(asleep(&mut world, &outputs), [JobId::from("a")]);
}

#[test]
fn a_job_that_falls_due_is_loaded_and_begins() {
    let mut world = world();
    let outputs = world.done(vec![(1, tomorrow("a"))]);
    asleep(&mut world, &outputs);
    world.now = 1010 + HOUR;
    world.controller.raise_horizon(Timestamp(world.now + 60_000));
    let due = world.store.due(Whose::all(Owner::SHARD), None, Timestamp(world.now + 60_000), 9);
    let (_, job) = &due.expect("memory")[0];
    load(&mut world, job);
    let outputs = world.done(vec![]);
    assert_eq!(assigned(&outputs).len(), 1, "{outputs:?}");
}

/// What was recorded of downtime.
fn downtimes(world: &mut World, job: &str) -> Vec<(u64, u64)> {
    let log = world.store.events(job, 0, 999).expect("memory");
    let downtime = log.into_iter().filter_map(|record| match record.event {
        Event::EngineRestarted { down_since } => Some((down_since.0, record.at.0)),
        _ => None,
    });
    downtime.collect()
}

#[test]
fn each_gap_is_told_once_as_of_its_end_and_only_to_jobs_that_mind() {
    let mut world = world();
    let began = world.done(vec![(1, submit("a")), (2, tomorrow("b"))]);
    let about = &assigned(&began)[0];
    let input = Input::Report {
        item: about.item,
        token: about.token,
        outcome: Outcome::Failed(Failure::new(FailureKind::Exited(1))),
    };
    // It backs off; both sleep, if the horizon is behind.
    let failed = world.done(vec![(3, Request::Input { job: "a".into(), input })]);
    drop((began, failed));
    let gaps = [
        Gap { from: Timestamp(5000), until: Timestamp(9000) },
        Gap { from: Timestamp(20_000), until: Timestamp(21_000) },
    ];
    let mut again = World::with(world.store, 8);
    for gap in gaps {
        again.store.take(Owner::SHARD, gap.until, Some(gap.from)).expect("memory");
    }
    again.owner = again.store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
    again.controller.raise_horizon(Timestamp(100_000));
    again.now = 30_000;
    for job in ["a", "b"] {
        load(&mut again, &job.into());
    }
    again.done(vec![]);
    assert_eq!(downtimes(&mut again, "a")[0], (5000, 9000));
    assert_eq!(downtimes(&mut again, "b"), [], "it has not begun");
    let told = downtimes(&mut again, "a").len();
    let mut third = World::with(again.store, 8);
    third.controller.raise_horizon(Timestamp(100_000));
    third.now = 40_000;
    load(&mut third, &"a".into());
    let _ = third.step(vec![]).map(|group| third.commit(group));
    assert_eq!(downtimes(&mut third, "a").len(), told, "nothing is told twice");
}

#[test]
fn a_job_that_another_has_changed_is_evicted_and_loaded_as_it_is_stored() {
    let mut world = world();
    let outputs = world.done(vec![(1, tomorrow("a")), (2, submit("b"))]);
    changed_by_another(&mut world, "a");
    assert!(world.controller.job("a").is_some(), "it has not slept yet");
    drop(outputs);
    let outputs = world.done(vec![(3, cancel("a"))]);
    assert!(matches!(outputs.replies[..], [(3, Err(CommandError::Taken { .. }))]), "{outputs:?}");
    assert_eq!(world.controller.take_loads(), [JobId::from("a")]);
    load(&mut world, &"a".into());
    assert!(world.controller.job("a").expect("it is back").paused_at.is_some(), "as it is stored");
    let outputs = world.done(vec![(4, cancel("a"))]);
    assert_eq!(outputs.replies, [(4, Ok(()))]);
    assert!(state(&mut world.store, "a").expect("readable").is_over());
}

/// It was read from the store as it was before, began anew, and its attempts ran twice.
#[test]
fn what_is_said_of_a_job_whose_end_is_not_durable_waits_for_that() {
    let mut world = world();
    let began = world.done(vec![(1, submit("a"))]);
    let about = assigned(&began).remove(0);
    let ending = world.step(vec![(2, succeeded(&about))]).expect("it ends");
    assert!(world.step(vec![(3, succeeded(&about)), (4, cancel("a"))]).is_none());
    assert_eq!(world.controller.take_loads(), [], "the store still has it open");
    load(&mut world, &"a".into());
    assert!(world.controller.job("a").is_none(), "what was read before its end is not taken up");
    let outputs = world.commit(ending);
    assert_eq!(outputs.replies, [(2, Ok(()))]);
    assert_eq!(world.controller.take_loads(), [JobId::from("a")]);
    let as_of = world.controller.departures();
    world.controller.loaded(&"a".into(), Ok(None), as_of, Timestamp(world.now));
    let unknown = Err(CommandError::Unknown("a".into()));
    let outputs = world.done(vec![]);
    assert_eq!(outputs.replies, [(3, unknown.clone()), (4, unknown)]);
}

#[test]
fn a_row_names_a_moment_at_which_there_is_something_to_do() {
    let mut world = world();
    let mut accepted = accepted("a");
    let delays =
        PolicyDraft { initial_delay_ms: HOUR, max_delay_ms: Some(HOUR), ..PolicyDraft::default() };
    let policy = Policy::new(delays).expect("valid");
    let mut step = StepDraft::new("s", Action::Run("true".to_owned()), policy);
    step.scheduling_timeout_ms = Some(90_000);
    let draft = PlanDraft::new("a", vec![step]);
    accepted.plan = Arc::new(Plan::new(draft).expect("valid"));
    let submit = Request::Submit { accepted: Box::new(accepted), key: None };
    let started = world.done(vec![(1, submit)]);
    let token = started.effects.iter().find_map(|effect| match effect {
        Outgoing::Assign(work) => Some((work.assignment.item, work.assignment.token)),
        Outgoing::Withdraw(_) => None,
    });
    let (item, token) = token.expect("it starts at once");
    let outcome = Outcome::Failed(Failure::new(FailureKind::Exited(1)));
    let input = Input::Report { item, token, outcome };
    world.done(vec![(2, Request::Input { job: "a".into(), input })]);
    let due = world.controller.job("a").expect("in memory").timers()[0].0;
    let wake_at = world.store.get("a").expect("memory").expect("there").row.wake_at;
    assert_eq!(wake_at, Some(due), "what it waited for a worker with is over");
}

/// The loader had read it before its end was durable, and what it had read came after: it went on, and what was over was assigned again.
#[test]
fn what_was_read_of_a_job_before_it_left_memory_is_read_again() {
    let mut world = world();
    world.done(vec![(1, submit("a"))]);
    let as_of = world.controller.departures();
    let job = state(&mut world.store, "a").expect("readable");
    assert!(job.is_in_flight());
    let outputs = world.done(vec![(2, cancel("a"))]);
    for job in &outputs.ended {
        world.controller.ended(&job.id);
    }
    let found = Ok(Some(Box::new(Adopted { job, gaps: vec![], lost: vec![] })));
    world.controller.loaded(&"a".into(), found, as_of, Timestamp(world.now));
    assert!(world.controller.job("a").is_none(), "it is over");
    assert_eq!(world.controller.take_loads(), [JobId::from("a")]);
    let as_of = world.controller.departures();
    world.controller.loaded(&"a".into(), Ok(None), as_of, Timestamp(world.now));
    assert_eq!(world.controller.take_loads(), [], "that is how it is");
}
