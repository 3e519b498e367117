//! Workers that have other servers too: how many of their slots are counted, and when more are asked for.

use steadfast_core::event::Requester;
use steadfast_engine::CreditNotice::{Taken, Wanted};
use steadfast_engine::Credits;

use super::*;

fn limited(credits: u32) -> World {
    let mut world = World::new();
    world.credits = Some(credits);
    world.connect(worker("w1", 4));
    world
}

fn told(world: &mut World) -> Vec<CreditNotice> {
    std::mem::take(&mut world.told).into_iter().map(|(_, notice)| notice).collect()
}

fn credit(world: &mut World, slots: u32, number: u64) -> Vec<Effect> {
    let session = world.sessions;
    let credits = Credits { slots, cpu_milli: None, memory_bytes: None, number };
    world.controller.engine_mut().credits("w1", session, credits);
    world.done()
}

#[test]
fn credits_are_counted_as_slots_and_more_are_asked_for() {
    let mut world = limited(1);
    let (_, effects) = world.submit(fan_out("a", 5));
    assert_eq!(on(&effects, "w1"), 1);
    assert_eq!(told(&mut world), [Wanted]);
    let shown = world.controller.engine().workers().remove(0);
    assert_eq!((shown.running, shown.credits, shown.spec.slots), (1, 1, 4));
    assert_eq!(on(&credit(&mut world, 3, 7), "w1"), 2);
    assert_eq!(told(&mut world), [Taken(7)], "it was asked just now");
    assert_eq!(on(&credit(&mut world, 4, 8), "w1"), 1);
    world.wait(100);
    assert_eq!(told(&mut world), [Taken(8)], "it has no more to give");
}

#[test]
fn they_are_asked_for_every_100_ms_while_something_waits() {
    let mut world = limited(0);
    let (job, effects) = world.submit(fan_out("a", 1));
    assert_eq!(on(&effects, "w1"), 0);
    assert_eq!(told(&mut world), [Wanted]);
    world.wait(99);
    assert_eq!(told(&mut world), []);
    world.wait(1);
    assert_eq!(told(&mut world), [Wanted]);
    world.say(&job, Input::Cancel(Requester::NOBODY)).expect("it is open");
    world.wait(100);
    assert_eq!(told(&mut world), [], "nothing waits");
}

#[test]
fn what_is_in_hand_when_credits_are_taken_back_goes_on() {
    let mut world = limited(2);
    let (_, effects) = world.submit(fan_out("a", 3));
    assert_eq!(on(&effects, "w1"), 2);
    credit(&mut world, 1, 1);
    let next = world.report(assigned(&effects)[0], Outcome::OK).expect("current");
    assert_eq!(on(&next, "w1"), 0, "it has one in hand");
    let next = world.report(assigned(&effects)[1], Outcome::OK).expect("current");
    assert_eq!(on(&next, "w1"), 1);
}

#[test]
fn what_other_servers_leave_of_its_cpus_is_all_there_is() {
    let mut world = limited(4);
    let left = |world: &mut World, cpu_milli, number| {
        let session = world.sessions;
        let credits = Credits { slots: 4, cpu_milli: Some(cpu_milli), memory_bytes: None, number };
        world.controller.engine_mut().credits("w1", session, credits);
        world.done()
    };
    left(&mut world, 2000, 1);
    let mut heavy = step("s", 3);
    heavy.resources.cpu = Some(1.5);
    let (_, effects) = world.submit(PlanDraft::new("heavy", vec![heavy]));
    assert_eq!(on(&effects, "w1"), 1, "of its four cpus two are left");
    assert_eq!(on(&left(&mut world, 2999, 2), "w1"), 0);
    assert_eq!(on(&left(&mut world, 3000, 3), "w1"), 1, "what this server has there counts");
    assert_eq!(told(&mut world), [Taken(1), Taken(2), Taken(3)]);
}

#[test]
fn a_word_of_an_earlier_session_changes_nothing() {
    let mut world = limited(1);
    let earlier = world.sessions;
    world.arrive(worker("w1", 4), true, &[]).expect("its name");
    let late = Credits { slots: 4, cpu_milli: None, memory_bytes: None, number: 9 };
    world.controller.engine_mut().credits("w1", earlier, late);
    let (_, effects) = world.submit(fan_out("a", 2));
    assert_eq!((on(&effects, "w1"), told(&mut world)), (1, vec![Wanted]));
}

#[test]
fn what_a_worker_holds_for_another_server_is_adopted_if_it_is_this_ones_and_left_alone_if_not() {
    let mut world = World::new();
    world.connect(worker("w1", 4));
    let (_, effects) = world.submit(fan_out("a", 2));
    let [ours, missing] = assigned(&effects)[..] else { panic!("{effects:?}") };
    let foreign = AttemptId::new("elsewhere", 1);
    world.elsewhere = [key(ours), foreign].into();
    let told = world.arrive(worker("w1", 4), true, &[]).expect("its name");
    assert_eq!(world.adopted, [key(ours)]);
    assert!(!told.iter().any(|it| matches!(it, Effect::Withdraw(_))), "{told:?}");
    assert_eq!(assigned(&told), [missing], "what never arrived is assigned again");
}
