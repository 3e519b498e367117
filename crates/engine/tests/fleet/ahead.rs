//! Short attempts are handed out to workers that queue before their slots are free. Nobody is to notice.

use std::collections::VecDeque;

use steadfast_core::account::Charges;
use steadfast_core::event::{AttemptId, JobState, Requester};

use super::*;

const SLOTS: usize = 8;
/// Of attempts of a millisecond, which would finish more in 20 ms.
const AHEAD: usize = 8 * SLOTS;

fn queues(name: &str) -> WorkerSpec {
    WorkerSpec { queues: true, ..worker(name, SLOTS as u32) }
}

/// What one worker holds, in the order it was given it.
struct Hand {
    name: &'static str,
    held: VecDeque<Assignment>,
    most: usize,
    /// Of which job something was assigned although it held as many as it has slots.
    waited: BTreeSet<JobId>,
}

impl Hand {
    fn new(name: &'static str) -> Self {
        Self { name, held: VecDeque::new(), most: 0, waited: BTreeSet::new() }
    }

    fn given(&mut self, effects: &[Effect]) {
        for one in assigned(effects).into_iter().filter(|one| &*one.worker == self.name) {
            if self.held.len() >= SLOTS {
                self.waited.insert(one.job.clone());
            }
            self.held.push_back(one.clone());
        }
        self.most = self.most.max(self.held.len());
    }

    /// The oldest is reported.
    fn report(&mut self, world: &mut World, outcome: Outcome) -> Vec<Effect> {
        let one = self.held.pop_front().expect("it holds something");
        let effects = world.report(&one, outcome).expect("current");
        self.given(&effects);
        effects
    }

    /// Its slots are done `rounds` times, each time after `ms`.
    fn rounds(&mut self, world: &mut World, rounds: usize, ms: u64, outcome: &Outcome) {
        for _ in 0..rounds {
            let effects = world.wait(ms);
            self.given(&effects);
            world.controller.engine_mut().beat(self.name, "1");
            for _ in 0..SLOTS.min(self.held.len()) {
                self.report(world, outcome.clone());
            }
        }
    }

    fn of(&self, job: &JobId) -> usize {
        self.held.iter().filter(|one| one.job == *job).count()
    }
}

/// A worker that is far ahead, with a job that has so many items in all.
fn ahead(items: u32) -> (World, Hand, JobId) {
    let mut world = World::new();
    world.connect(queues("w1"));
    let mut hand = Hand::new("w1");
    let (job, effects) = world.submit(fan_out("short", items));
    hand.given(&effects);
    assert_eq!(hand.held.len(), SLOTS, "how long they take is not known yet");
    hand.rounds(&mut world, 20, 1, &Outcome::OK);
    (world, hand, job)
}

fn end(world: &mut World, hands: &mut [&mut Hand]) {
    while let Some(at) = hands.iter().position(|hand| !hand.held.is_empty()) {
        let effects = hands[at].report(world, Outcome::OK);
        let others = hands.iter_mut().enumerate().filter(|(other, _)| *other != at);
        others.for_each(|(_, hand)| hand.given(&effects));
    }
}

fn unforgiving() -> StepDraft {
    let draft = PolicyDraft { retryable: false, ..PolicyDraft::default() };
    StepDraft { policy: Policy::new(draft).expect("valid"), ..step("s", 10) }
}

#[test]
fn a_worker_that_queues_is_handed_short_attempts_ahead_up_to_a_bound() {
    let (mut world, mut hand, _) = ahead(5000);
    hand.rounds(&mut world, 100, 1, &Outcome::OK);
    assert_eq!(hand.most, SLOTS + AHEAD);
    assert_eq!(
        world.controller.engine().workers()[0].running,
        SLOTS as u32,
        "the others only wait"
    );
    end(&mut world, &mut [&mut hand]);
    assert_eq!(hand.most, SLOTS + AHEAD, "instant ones are bounded too");
}

#[test]
fn a_worker_that_does_not_say_that_it_queues_never_gets_more_than_its_slots() {
    let mut world = World::new();
    world.connect(worker("w1", SLOTS as u32));
    let mut hand = Hand::new("w1");
    let (_, effects) = world.submit(fan_out("short", 2000));
    hand.given(&effects);
    hand.rounds(&mut world, 100, 1, &Outcome::OK);
    assert_eq!(hand.most, SLOTS);
}

#[test]
fn a_free_slot_elsewhere_comes_before_a_queue() {
    let (mut world, mut hand, _) = ahead(200);
    assert!(
        hand.held.len() > SLOTS && hand.held.len() < SLOTS + AHEAD,
        "there is room in its queue"
    );
    world.connect(worker("w2", 3));
    let (_, effects) = world.submit(fan_out("b", 5));
    hand.given(&effects);
    assert_eq!((on(&effects, "w2"), on(&effects, "w1")), (3, 2));
    // Rather the worker it failed on than a queue elsewhere.
    let failed = assigned(&effects).into_iter().find(|one| &*one.worker == "w2").expect("three");
    world.report(failed, FailureKind::Exited(1).into()).expect("current");
    let mut retried = Vec::new();
    while retried.is_empty() {
        let due = world.controller.next_due().expect("a retry").0;
        world.now = world.now.max(due);
        world.controller.tick(Timestamp(world.now));
        retried = world.done();
    }
    assert_eq!((on(&retried, "w2"), on(&retried, "w1")), (1, 0));
}

#[test]
fn what_would_not_survive_the_loss_of_its_worker_gets_a_slot_or_nothing() {
    let (mut world, mut hand, short) = ahead(5000);
    let (job, effects) = world.submit(PlanDraft::new("b", vec![unforgiving()]));
    assert!(assigned(&effects).is_empty());
    let mut heavy = step("s", 10);
    heavy.resources.cpu = Some(1.0);
    let (heavy, effects) = world.submit(PlanDraft::new("c", vec![heavy]));
    assert!(assigned(&effects).is_empty(), "while it waits it would keep cpus from others");
    hand.rounds(&mut world, 80, 1, &Outcome::OK);
    assert!(hand.of(&short) > 0, "it is not that nothing else was left");
    assert!(world.job(&job).is_over(), "the short ones let it in");
    assert!(world.job(&heavy).is_over());
    assert_eq!(hand.waited, BTreeSet::from([short]));
    assert!(hand.held.len() > SLOTS, "they are handed out ahead again");
}

#[test]
fn what_is_handed_back_is_free_and_starts_elsewhere_at_once_and_in_a_slot() {
    let (mut world, mut first, job) = ahead(200);
    let waiting = first.held.len() - SLOTS;
    assert!(waiting > 20);
    world.connect(worker("w2", 4));
    let mut second = Hand::new("w2");
    // Those behind the ones that run have waited too long.
    for one in first.held.split_off(SLOTS) {
        let effects = world.report(&one, Outcome::handed_back()).expect("current");
        assert_eq!(on(&effects, "w1"), 0, "its slots are not free");
        second.given(&effects);
    }
    assert_eq!(second.held.len(), 4);
    let state =
        |world: &World| world.controller.engine().workers().into_iter().map(|view| view.state);
    assert!(
        state(&world).all(|state| state == WorkerState::Connected),
        "it is no sign of anything"
    );
    first.most = 0;
    end(&mut world, &mut [&mut first, &mut second]);
    assert_eq!((first.most, second.most), (SLOTS, 4), "each in a slot this time");
    let ended = world.job(&job);
    assert_eq!(ended.state(), JobState::Succeeded);
    let charged = world.log.iter().filter(|(_, record)| match &record.event {
        Event::RetryScheduled { charged, delay_ms, .. } => {
            *delay_ms > 0 || *charged != Charges::default()
        }
        _ => false,
    });
    assert_eq!(charged.count(), 0);
    let lost = world.outcomes().into_iter().filter(|outcome| *outcome == Outcome::NOT_BEGUN);
    assert_eq!(lost.count(), waiting);
}

#[test]
fn long_attempts_and_rests_end_it() {
    let (mut world, mut hand, _) = ahead(5000);
    while hand.held.len() > SLOTS {
        hand.rounds(&mut world, 1, 1000, &Outcome::OK);
    }
    let (mut world, mut hand, _) = ahead(300);
    end(&mut world, &mut [&mut hand]);
    world.wait(1000);
    let (_, effects) = world.submit(fan_out("of another kind", 100));
    assert_eq!(assigned(&effects).len(), SLOTS);
}

#[test]
fn a_worker_that_breaks_everything_is_given_nothing_to_break_ahead() {
    let mut world = World::new();
    world.connect(queues("w1"));
    let mut hand = Hand::new("w1");
    let (_, effects) = world.submit(fan_out("a", 5000));
    hand.given(&effects);
    hand.rounds(&mut world, 100, 1, &FailureKind::Exited(1).into());
    assert_eq!(hand.most, SLOTS);
    hand.rounds(&mut world, 20, 1, &Outcome::OK);
    assert!(hand.most > SLOTS, "until something succeeds");
}

#[test]
fn what_waits_at_a_worker_survives_a_broken_connection_and_a_restart() {
    let (mut world, hand, job) = ahead(5000);
    let holds: Vec<AttemptId> = hand.held.iter().map(key).collect();
    assert!(holds.len() > SLOTS);
    world.controller.engine_mut().away("w1", world.sessions);
    let told = world.arrive(queues("w1"), true, &holds).expect("its own name");
    assert!(told.is_empty(), "it holds all of it, and more than its slots: {told:?}");

    let stored = world.job(&job).clone();
    let mut restarted = World { log: vec![], ..World::new() };
    let now = Timestamp(world.now);
    let effects = restarted.adopt(stored, Timestamp(world.now), now);
    assert!(assigned(&effects).is_empty());
    let told = restarted.arrive(queues("w1"), true, &holds).expect("welcome");
    assert!(told.is_empty(), "{told:?}");
    for (left, one) in hand.held.iter().enumerate().rev() {
        restarted.wait(10);
        restarted.controller.engine_mut().beat("w1", "1");
        let effects = restarted.report(one, Outcome::OK).expect("it is believed");
        if left >= SLOTS {
            assert!(assigned(&effects).is_empty(), "{left} are still there");
        }
    }
}

#[test]
fn a_cancel_takes_back_what_waits_too() {
    let (mut world, hand, job) = ahead(5000);
    let cancelled = world.say(&job, Input::Cancel(Requester::NOBODY));
    let effects = cancelled.expect("it may be cancelled");
    let taken: BTreeSet<AttemptId> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Withdraw(over) => Some(key(over)),
            Effect::Assign(_) => None,
        })
        .collect();
    assert_eq!(taken, hand.held.iter().map(key).collect());
    assert_eq!(world.controller.engine().workers()[0].running, 0);
}
