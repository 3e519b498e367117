//! The engine's backstop behind a worker's own timeout: it blames nobody who could not have been heard.

use super::*;

const LENIENCE_MS: u64 = 30_000;
const TIMEOUT_MS: u64 = 5000;
/// Far beyond timeout and lenience.
const LONG_MS: u64 = 600_000;

fn timed() -> PlanDraft {
    let step = StepDraft { timeout_ms: Some(TIMEOUT_MS), ..step("s", 1) };
    PlanDraft::new("timed", vec![step])
}

fn one_running() -> (World, Assignment) {
    let mut world = World { wall_ahead: 10 * LONG_MS, ..World::new() };
    world.connect(worker("w1", 1));
    let (_, effects) = world.submit(timed());
    let about = assigned(&effects)[0].clone();
    (world, about)
}

/// With beats, as a worker sends them.
fn wait_beating(world: &mut World, ms: u64) -> Vec<Effect> {
    let mut effects = Vec::new();
    for _ in 0..ms / 1000 {
        world.controller.engine_mut().beat("w1", "1");
        effects.extend(world.wait(1000));
    }
    effects
}

fn assert_counts(mut world: World, about: &Assignment) {
    assert_eq!(world.outcomes(), []);
    world.report(about, Outcome::OK).expect("its report counts");
    assert_eq!(world.outcomes(), [Outcome::OK]);
}

#[test]
fn a_worker_that_is_there_and_says_nothing_has_the_timeout_and_half_a_minute() {
    let (mut world, about) = one_running();
    wait_beating(&mut world, TIMEOUT_MS + LENIENCE_MS - 1000);
    assert_eq!(world.outcomes(), []);
    let effects = wait_beating(&mut world, 2000);
    assert_eq!(world.outcomes(), [FailureKind::TimedOut.into()]);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Withdraw(it) if *it == about)));
}

#[test]
fn a_server_that_was_killed_waits_for_the_report_of_a_worker_that_comes_back() {
    let (world, about) = one_running();
    let job = world.job(&about.job).clone();
    let down_since = world.wall();
    let mut restarted = World { wall_ahead: world.wall_ahead + LONG_MS, ..World::new() };
    let now = restarted.wall();
    restarted.adopt(job, down_since, now);
    restarted.wait(0);
    assert_eq!(restarted.outcomes(), [], "the downtime is not held against it");
    let told = restarted.arrive(worker("w1", 1), true, &[key(&about)]).expect("welcome");
    assert!(told.is_empty(), "{told:?}");
    assert_counts(restarted, &about);
}

#[test]
fn after_a_restart_the_backstop_is_still_there() {
    let (world, about) = one_running();
    let job = world.job(&about.job).clone();
    let mut restarted = World { wall_ahead: world.wall_ahead + LONG_MS, ..World::new() };
    let now = restarted.wall();
    restarted.adopt(job, world.wall(), now);
    restarted.arrive(worker("w1", 1), true, &[key(&about)]).expect("welcome");
    wait_beating(&mut restarted, TIMEOUT_MS + LENIENCE_MS + 2000);
    assert_eq!(restarted.outcomes(), [FailureKind::TimedOut.into()]);
}

#[test]
fn a_server_that_was_stopped_hears_what_was_said_meanwhile() {
    let (mut world, about) = one_running();
    wait_beating(&mut world, 1000);
    // SIGSTOP: all clocks go on, and nothing is waited for.
    world.now += LONG_MS;
    world.controller.engine_mut().hear(world.now, 0);
    world.wait(0);
    assert_counts(world, &about);
}

#[test]
fn a_clock_that_is_set_forward_times_nothing_out() {
    let (mut world, about) = one_running();
    world.wall_ahead += LONG_MS;
    wait_beating(&mut world, 4000);
    assert_counts(world, &about);
}

#[test]
fn a_clock_that_is_set_back_does_not_keep_a_silent_attempt_for_ever() {
    let (mut world, _) = one_running();
    world.wall_ahead -= LONG_MS;
    wait_beating(&mut world, TIMEOUT_MS + LENIENCE_MS + 1000);
    assert_eq!(world.outcomes(), [FailureKind::TimedOut.into()]);
}

#[test]
fn a_worker_that_is_away_is_waited_for_and_has_time_to_say_what_it_has() {
    let (mut world, about) = one_running();
    wait_beating(&mut world, TIMEOUT_MS + LENIENCE_MS - 1000);
    world.controller.engine_mut().away("w1", world.sessions);
    for _ in 0..10 {
        world.wait(1000);
    }
    assert_eq!(world.outcomes(), [], "its lease has not ended");
    world.arrive(worker("w1", 1), true, &[key(&about)]).expect("welcome");
    wait_beating(&mut world, LENIENCE_MS - 1000);
    assert_counts(world, &about);
}

#[test]
fn a_worker_that_does_not_come_back_is_a_loss_and_no_failure() {
    let (mut world, _) = one_running();
    wait_beating(&mut world, TIMEOUT_MS + LENIENCE_MS - 1000);
    // Its connection is dead, and neither end knows.
    for _ in 0..20 {
        world.wait(1000);
    }
    assert_eq!(world.outcomes(), [Outcome::LOST]);
}

#[test]
fn workers_have_a_lease_from_when_the_last_stored_job_is_taken_up() {
    let (world, about) = one_running();
    let job = world.job(&about.job).clone();
    let mut restarted = World { wall_ahead: world.wall_ahead, ..World::new() };
    let other = Arc::new(Plan::new(fan_out("b", 1)).expect("valid"));
    let (other, _) =
        steadfast_core::decide::accept(AcceptedJob::new("other".into(), other), restarted.wall());
    let now = restarted.wall();
    restarted.adopt(job, world.wall(), now);
    // There are many of them, and nobody is let in before all are there.
    restarted.wait(14_000);
    let now = restarted.wall();
    restarted.adopt(other, world.wall(), now);
    restarted.controller.engine_mut().recovered();
    restarted.wait(14_999);
    assert_eq!(restarted.outcomes(), []);
    restarted.wait(1);
    assert_eq!(restarted.outcomes(), [Outcome::LOST]);
}

/// A service that has the attempt, and must be heard of every five seconds.
fn at_a_service() -> (World, Assignment) {
    let mut world = World { wall_ahead: 10 * LONG_MS, ..World::new() };
    world.connect(worker("w1", 1));
    let step = StepDraft { heartbeat_ms: Some(TIMEOUT_MS), ..step("s", 1) };
    let (_, effects) = world.submit(PlanDraft::new("heard", vec![step]));
    let about = assigned(&effects)[0].clone();
    say(&mut world, &about, Input::Awaits { item: about.item, token: about.token });
    (world, about)
}

fn say(world: &mut World, about: &Assignment, input: Input) {
    world.say(&about.job, input).expect("current");
}

fn progress(world: &mut World, about: &Assignment) {
    let progress = Arc::new(serde_json::json!("on"));
    let (item, token) = (about.item, about.token);
    say(world, about, Input::Progress { item, token, progress, by_callback: true });
}

#[test]
fn a_service_is_silent_only_while_it_could_be_heard() {
    let (mut world, about) = at_a_service();
    wait_beating(&mut world, 4000);
    progress(&mut world, &about);
    wait_beating(&mut world, 4000);
    world.wall_ahead += LONG_MS;
    world.wait(0);
    world.now += LONG_MS;
    world.controller.engine_mut().hear(world.now, 0);
    world.wait(0);
    assert_eq!(world.outcomes(), [], "neither a clock that was set nor our own absence is silence");
    let job = world.job(&about.job).clone();
    let mut restarted = World { wall_ahead: world.wall_ahead + LONG_MS, ..World::new() };
    let now = restarted.wall();
    restarted.adopt(job, world.wall(), now);
    restarted.wait(TIMEOUT_MS - 1);
    assert_eq!(restarted.outcomes(), [], "it could not be heard while we were down");
    restarted.wait(1);
    assert!(matches!(restarted.outcomes()[..], [Outcome::Failed(_)]));
}

/// Its row would say that the job must be in memory, and who reads it then finds nothing to do, lets go of it, and is not told of the retry.
#[test]
fn an_attempt_that_was_cut_off_leaves_nothing_that_its_job_waits_for() {
    let policy = |max_attempts, initial_delay_ms| {
        let max_attempts = Some(max_attempts);
        Policy::new(PolicyDraft { max_attempts, initial_delay_ms, ..PolicyDraft::default() })
            .expect("valid")
    };
    let done = StepDraft {
        policy: policy(3, LONG_MS),
        compensate: Some(Action::Run("true".to_owned())),
        ..step("done", 1)
    };
    let fails = StepDraft { policy: policy(1, 1), ..step("fails", 1) };
    let runs = StepDraft { timeout_ms: Some(LONG_MS), ..step("runs", 1) };
    let mut world = World { wall_ahead: 10 * LONG_MS, ..World::new() };
    world.connect(worker("w1", 3));
    let (_, effects) = world.submit(PlanDraft::new("cut off", vec![done, fails, runs]));
    let [done, fails, runs] = assigned(&effects)[..] else { panic!("{effects:?}") };
    world.report(done, Outcome::OK).expect("it counts");
    let effects = world.report(fails, FailureKind::Exited(1).into()).expect("it counts");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Withdraw(it) if it == runs)));
    let [undoes] = assigned(&effects)[..] else { panic!("{effects:?}") };
    let (item, token) = (undoes.item, undoes.token);
    let input = Input::Report { item, token, outcome: FailureKind::Exited(1).into() };
    let now = world.wall();
    let report = Request::Input { job: undoes.job.clone(), input };
    let group = world.controller.step([(None, report)], now).expect("it is written");
    assert_eq!(group.writes[0].row.wake_at, Some(now.plus(LONG_MS)));
}
