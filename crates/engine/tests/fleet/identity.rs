//! Whose name it is: only the worker that has it is told what it was assigned, and believed about it.

use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;
use steadfast_engine::{Identity, Undraining, WorkerSpec, WorkerState};

use super::{Effect, World, assigned, fan_out, identity, key, on, worker};

const REFUSED: &str = "a worker named w1 is connected already";

/// Another worker that says the same name, and even the same life.
fn stranger() -> Identity {
    identity("another", false)
}

#[test]
fn nobody_takes_a_name_over_while_its_worker_is_there_or_away_within_its_lease() {
    for away in [false, true] {
        let mut world = World::new();
        world.connect(worker("w1", 2));
        let (_, effects) = world.submit(fan_out("a", 2));
        let all: Vec<AttemptId> = assigned(&effects).iter().map(|one| key(one)).collect();
        if away {
            world.controller.engine_mut().away("w1", world.sessions);
        }
        // Also with a proof of an earlier time, when nobody else had the name.
        for proven in [false, true] {
            let who = Identity { proven, ..stranger() };
            let refused = world.arrive_as(who, worker("w1", 2), true, &all);
            let refused = refused.expect_err("it is another's name");
            assert!(refused.contains(REFUSED), "{refused}");
            assert!(!refused.contains("incarnation") && !refused.contains("its own"), "{refused}");
        }
        let told = world.arrive(worker("w1", 2), true, &[]).expect("the one that has it");
        assert_eq!(assigned(&told).len(), 2, "what did not reach it is sent again");
        assert!(world.outcomes().is_empty());
    }
}

#[test]
fn after_a_restart_a_name_is_for_who_can_prove_that_it_had_it() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    let (id, effects) = world.submit(fan_out("a", 2));
    let all: Vec<AttemptId> = assigned(&effects).iter().map(|one| key(one)).collect();
    let job = world.job(&id).clone();
    let mut restarted = World { log: vec![], ..World::new() };
    let now = Timestamp(2000);
    restarted.adopt(job, Timestamp(1000), now);
    for holds in [&[][..], &all] {
        let refused = restarted.arrive_as(stranger(), worker("w1", 2), true, holds);
        assert!(refused.expect_err("it is another's name").contains(REFUSED));
    }
    let told = restarted.arrive(worker("w1", 2), true, &all[..1]).expect("with its proof");
    assert_eq!(assigned(&told).len(), 1, "what it does not hold is sent again");
    assert!(restarted.outcomes().is_empty());
}

#[test]
fn who_takes_a_name_after_its_lease_gets_nothing_of_what_was_assigned_before() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    let (_, effects) = world.submit(fan_out("a", 2));
    let all: Vec<AttemptId> = assigned(&effects).iter().map(|one| key(one)).collect();
    // The lease is over, and nobody has looked yet.
    world.now += 15_000;
    world.controller.engine_mut().hear(world.now, 15_000);
    let told = world.arrive_as(stranger(), worker("w1", 2), true, &all).expect("it is free");
    assert_eq!(world.outcomes(), [Outcome::LOST, Outcome::LOST]);
    let withdrawn = told.iter().filter(|effect| matches!(effect, Effect::Withdraw(_))).count();
    assert_eq!(withdrawn, 2, "and what it says that it holds it is to stop");
    let old = |one: &&steadfast_engine::Assignment| all.contains(&key(one));
    assert!(!assigned(&told).iter().any(old), "an attempt of the worker before: {told:?}");
}

#[test]
fn what_lets_in_only_one_name_lets_in_its_next_life_at_once() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    world.submit(fan_out("a", 2));
    let owner = Identity { owns_name: true, ..stranger() };
    let reborn = WorkerSpec { incarnation: "2".into(), ..worker("w1", 2) };
    let refused = world.arrive_as(owner.clone(), reborn.clone(), false, &[]);
    assert!(refused.expect_err("the other is connected").contains(REFUSED));
    world.controller.engine_mut().away("w1", world.sessions - 1);
    let told = world.arrive_as(owner, reborn, false, &[]).expect("it is its name");
    assert_eq!(world.outcomes(), [Outcome::LOST, Outcome::LOST]);
    assert_eq!(on(&told, "w1"), 2, "what was lost starts again");
}

#[test]
fn a_late_answer_to_an_undrain_does_not_end_a_drain_that_came_after_it() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    assert!(world.controller.engine_mut().drain_worker("w1"));
    assert_eq!(world.controller.engine_mut().undrain_worker("w1"), Undraining::Ask);
    assert!(world.controller.engine_mut().drain_worker("w1"));
    world.controller.engine_mut().undrained("w1");
    assert_eq!(world.controller.engine().workers()[0].state, WorkerState::Draining);
}
