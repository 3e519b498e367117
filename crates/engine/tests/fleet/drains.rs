//! Workers that drain, and drains that are taken back.

use super::*;

#[test]
fn a_worker_that_drains_takes_nothing_new_and_leaves_without_a_loss() {
    let mut world = World::new();
    world.connect(worker("w1", 1));
    let (_, effects) = world.submit(fan_out("a", 2));
    assert!(world.controller.engine_mut().drain_worker("w1"));
    let next = world.report(assigned(&effects)[0], Outcome::OK).expect("current");
    assert!(assigned(&next).is_empty());
    world.controller.engine_mut().away("w1", world.sessions);
    assert!(world.controller.engine().workers().is_empty());
    assert!(world.news().contains(&FleetNotification::Left { worker: "w1".into() }));
}

#[test]
fn a_drain_that_found_the_worker_away_holds_when_it_is_back_and_not_for_its_next_life() {
    for (incarnation, takes) in [("1", 0), ("2", 1)] {
        let mut world = World::new();
        world.connect(worker("w1", 1));
        world.controller.engine_mut().away("w1", world.sessions);
        assert!(world.controller.engine_mut().drain_worker("w1"));
        let back = WorkerSpec { incarnation: incarnation.into(), ..worker("w1", 1) };
        world.arrive(back, incarnation == "1", &[]).expect("its name");
        let (_, effects) = world.submit(fan_out("a", 1));
        assert_eq!(on(&effects, "w1"), takes, "life {incarnation}");
    }
}

#[test]
fn a_drain_that_is_taken_back_holds_until_the_worker_has_heard() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    world.submit(fan_out("a", 1));
    assert_eq!(world.controller.engine_mut().undrain_worker("w1"), Undraining::NotDraining);
    assert_eq!(world.controller.engine_mut().undrain_worker("w2"), Undraining::Unknown);
    assert!(world.controller.engine_mut().drain_worker("w1"));
    assert_eq!(world.controller.engine_mut().undrain_worker("w1"), Undraining::Ask);
    let (_, effects) = world.submit(fan_out("b", 1));
    assert_eq!(on(&effects, "w1"), 0, "it has not said so");
    world.controller.engine_mut().undrained("w1");
    assert_eq!(on(&world.wait(0), "w1"), 1, "now it has");
    assert!(world.news().contains(&FleetNotification::Undrained { worker: "w1".into() }));
}

#[test]
fn a_drain_is_taken_back_from_a_worker_that_is_away_when_it_returns() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    let (_, effects) = world.submit(fan_out("a", 1));
    let held: Vec<_> = assigned(&effects).iter().map(|one| one.id()).collect();
    assert!(world.controller.engine_mut().drain_worker("w1"));
    world.controller.engine_mut().away("w1", world.sessions);
    assert_eq!(world.controller.engine_mut().undrain_worker("w1"), Undraining::Away);
    world.arrive(worker("w1", 2), true, &held).expect("its name");
    assert_eq!(world.controller.engine_mut().missed("w1"), Missed::Undrain);
    world.controller.engine_mut().undrained("w1");
    assert_eq!(world.controller.engine_mut().missed("w1"), Missed::Nothing);
    let (_, effects) = world.submit(fan_out("b", 1));
    assert_eq!(on(&effects, "w1"), 1);
}
