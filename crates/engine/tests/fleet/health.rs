//! Who is put aside, and who is not: virtual workers with chances of their own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::*;

/// What a virtual worker does to an attempt.
#[derive(Clone, Copy)]
struct Hand {
    name: &'static str,
    slots: u32,
    /// Of a thousand attempts.
    fails: u64,
    /// Milliseconds that a success takes at least, and a failure.
    success_ms: u64,
    failure_ms: u64,
    comes_at: u64,
}

const fn hand(name: &'static str, slots: u32, fails: u64) -> Hand {
    Hand { name, slots, fails, success_ms: 10, failure_ms: 10, comes_at: 0 }
}

/// What happens on all of them alike.
#[derive(Clone, Default)]
struct Weather {
    /// Everything fails.
    outage: Range<u64>,
    /// These items always fail.
    poison: Range<u32>,
}

/// What a game came to.
#[derive(Debug, Default)]
struct Played {
    aside: Vec<(String, String)>,
    /// Attempts that the first one that was put aside had ended by then, since anything had succeeded.
    after: Option<u32>,
    attempts: u32,
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % most
    }
}

fn tough(items: u32) -> StepDraft {
    let draft = PolicyDraft {
        max_attempts: None,
        initial_delay_ms: 200,
        max_delay_ms: Some(200),
        ..PolicyDraft::default()
    };
    StepDraft { policy: Policy::new(draft).expect("valid"), ..step("s", items) }
}

fn items(items: u32) -> Vec<PlanDraft> {
    vec![PlanDraft::new("j", vec![tough(items)])]
}

/// Plays the jobs on the workers until all are over, or so many attempts are, or one is put aside.
fn play(
    seed: u64,
    hands: &[Hand],
    jobs: Vec<PlanDraft>,
    weather: &Weather,
    at_most: u32,
) -> Played {
    let mut world = World::new();
    let mut random = Random(seed);
    let mut played = Played::default();
    let mut by: BTreeMap<String, u32> = BTreeMap::new();
    let mut running: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    let mut under_way: BTreeMap<u32, (Assignment, Outcome)> = BTreeMap::new();
    let mut coming: Vec<&Hand> = hands.iter().collect();
    let mut effects = Vec::new();
    let mut ids = Vec::new();
    for job in jobs {
        ids.push(world.submit(job).0);
    }
    let (mut started, begin, mut any_succeeded) = (0, world.now, false);
    while played.attempts < at_most && played.aside.is_empty() {
        let (here, later): (Vec<&Hand>, Vec<&Hand>) =
            coming.into_iter().partition(|hand| begin + hand.comes_at <= world.now);
        coming = later;
        for hand in here {
            effects.extend(world.connect(worker(hand.name, hand.slots)));
        }
        for about in assigned(&effects) {
            let hand = hands.iter().find(|hand| *hand.name == *about.worker).expect("one of them");
            let fails = random.below(1000) < hand.fails
                || weather.outage.contains(&(world.now - begin))
                || weather.poison.contains(&about.item.index);
            let takes = if fails { hand.failure_ms } else { hand.success_ms };
            let outcome = if fails { FailureKind::Exited(1).into() } else { Outcome::OK };
            started += 1;
            running.push(Reverse((world.now + takes + random.below(takes), started)));
            under_way.insert(started, (about.clone(), outcome));
        }
        effects.clear();
        let live = |id: &JobId| !world.job(id).is_over();
        if !ids.iter().any(live) {
            break;
        }
        let report = running.peek().map(|Reverse((at, _))| *at);
        let retry = world.controller.next_due().map(|due| due.0 + 1);
        let comes = coming.iter().map(|hand| begin + hand.comes_at).min();
        let next = report.into_iter().chain(retry).chain(comes).min();
        let next = next.or(world.controller.engine().next_wake()).expect("something goes on");
        for hand in hands {
            world.controller.engine_mut().beat(hand.name, "1");
        }
        effects.extend(world.wait(next.saturating_sub(world.now)));
        while let Some(Reverse((at, which))) = running.peek().copied()
            && at <= world.now
        {
            running.pop();
            let (about, outcome) = under_way.remove(&which).expect("it runs");
            any_succeeded |= outcome == Outcome::OK;
            *by.entry(about.worker.to_string()).or_default() += u32::from(any_succeeded);
            played.attempts += 1;
            effects.extend(world.report(&about, outcome).expect("current"));
        }
        for news in world.news() {
            if let FleetNotification::Quarantined { worker, why, .. } = news {
                let after = by.get(&*worker).copied().unwrap_or_default();
                played.after.get_or_insert(after);
                played.aside.push((worker.to_string(), why));
            }
        }
    }
    played
}

const SEEDS: u64 = 4;

#[test]
fn a_step_that_is_flaky_everywhere_puts_nobody_aside() {
    for fails in [20, 100, 300, 500, 700, 900, 980] {
        let hands = [hand("a", 4, fails), hand("b", 4, fails), hand("c", 4, fails)];
        for seed in 0..SEEDS {
            let played = play(seed, &hands, items(1000), &Weather::default(), 2000);
            assert!(played.aside.is_empty(), "{fails} of 1000, seed {seed}: {:?}", played.aside);
        }
    }
}

/// Its failures are known at once, and its successes much later than those of the others.
#[test]
fn a_newcomer_whose_failures_are_quick_is_not_put_aside() {
    let slow = |name, comes_at| Hand {
        success_ms: 10_000,
        failure_ms: 5,
        comes_at,
        ..hand(name, 16, 500)
    };
    for seed in 0..SEEDS {
        let hands = [slow("a", 0), slow("b", 3000), slow("c", 100_000)];
        let played = play(seed, &hands, items(2000), &Weather::default(), 3000);
        assert!(played.aside.is_empty(), "seed {seed}: {:?}", played.aside);
    }
}

#[test]
fn many_small_jobs_that_are_flaky_put_nobody_aside() {
    let hands = [hand("a", 2, 500), hand("b", 2, 500), hand("c", 2, 500)];
    for seed in 0..SEEDS {
        let jobs = (0..500).map(|_| PlanDraft::new("j", vec![tough(1)])).collect();
        let played = play(seed, &hands, jobs, &Weather::default(), 2000);
        assert!(played.aside.is_empty(), "seed {seed}: {:?}", played.aside);
    }
}

#[test]
fn an_outage_that_all_see_puts_nobody_aside() {
    let weather = Weather { outage: 1000..3000, ..Weather::default() };
    for seed in 0..SEEDS {
        let hands = [hand("a", 4, 20), hand("b", 4, 20), hand("c", 1, 20)];
        let played = play(seed, &hands, items(2000), &weather, 5000);
        assert!(played.aside.is_empty(), "seed {seed}: {:?}", played.aside);
    }
}

/// The one that is free gets them again and again, while the others are at long ones.
#[test]
fn items_that_fail_everywhere_are_not_held_against_who_gets_them() {
    let weather = Weather { poison: 0..3, ..Weather::default() };
    let slow = |name| Hand { success_ms: 5000, ..hand(name, 2, 20) };
    for seed in 0..SEEDS {
        let played =
            play(seed, &[slow("a"), slow("b"), hand("c", 2, 20)], items(300), &weather, 3000);
        assert!(played.aside.is_empty(), "seed {seed}: {:?}", played.aside);
    }
}

#[test]
fn where_all_are_broken_nobody_is_put_aside() {
    for fails in [950, 1000] {
        let hands = [hand("a", 4, fails), hand("b", 4, fails), hand("c", 4, fails)];
        for seed in 0..SEEDS {
            let played = play(seed, &hands, items(500), &Weather::default(), 2000);
            assert!(played.aside.is_empty(), "seed {seed}: {:?}", played.aside);
        }
    }
}

/// Whatever else is true of it and of the others, and with few attempts spent on it.
#[test]
fn a_worker_that_fails_everything_is_found() {
    let others = |fails, ms| {
        let of = |name| Hand { success_ms: ms, failure_ms: ms, ..hand(name, 4, fails) };
        [of("a"), of("b")]
    };
    let fast = Hand { failure_ms: 1, ..hand("bad", 4, 1000) };
    let large = Hand { failure_ms: 1, ..hand("bad", 64, 1000) };
    for (bad, others, at_most) in [
        (hand("bad", 4, 1000), others(0, 10), 40),
        (hand("bad", 4, 1000), others(50, 10), 40),
        (hand("bad", 1, 1000), others(500, 10), 80),
        (fast, others(50, 10), 150),
        (fast, others(50, 1000), 300),
        (large, others(50, 50), 500),
        (Hand { comes_at: 2000, ..fast }, others(50, 100), 250),
    ] {
        for seed in 0..SEEDS {
            let hands = [bad, others[0], others[1]];
            let played = play(seed, &hands, items(2000), &Weather::default(), 10_000);
            let after = played.after.unwrap_or(u32::MAX);
            assert!(after <= at_most, "seed {seed}: after {after} of {at_most}");
            let blamed = played.aside.iter().filter(|(name, _)| name != "bad");
            assert_eq!(blamed.count(), 0, "seed {seed}: {:?}", played.aside);
        }
    }
}

#[test]
fn a_worker_that_fails_everything_is_found_with_jobs_of_one_item_too() {
    for seed in 0..SEEDS {
        let jobs = (0..300).map(|_| PlanDraft::new("j", vec![tough(1)])).collect();
        let hands = [hand("bad", 2, 1000), hand("a", 2, 50), hand("b", 2, 50)];
        let played = play(seed, &hands, jobs, &Weather::default(), 5000);
        let after = played.after.unwrap_or(u32::MAX);
        assert!(after <= 60, "seed {seed}: after {after}");
        assert!(played.aside.iter().all(|(name, _)| name == "bad"), "{:?}", played.aside);
    }
}

fn view(world: &World, name: &str) -> (WorkerState, Option<String>) {
    let view =
        world.controller.engine().workers().into_iter().find(|view| *view.spec.name == *name);
    let view = view.expect("it is there");
    (view.state, view.why)
}

/// Two workers of one slot, on which a large step runs; `bad` fails everything until it is put aside.
fn one_put_aside() -> (World, Vec<Effect>) {
    let mut world = World::new();
    let mut effects = world.connect(worker("bad", 1));
    effects.extend(world.connect(worker("good", 1)));
    effects.extend(world.submit(items(1000).remove(0)).1);
    for _ in 0..40 {
        effects = step_on(&mut world, &effects);
    }
    assert_eq!(view(&world, "bad").0, WorkerState::Quarantined, "{:?}", view(&world, "bad"));
    (world, effects)
}

/// All that was assigned ends: on `bad` it fails.
fn step_on(world: &mut World, effects: &[Effect]) -> Vec<Effect> {
    let mut more = Vec::new();
    for about in assigned(effects) {
        let fails = *about.worker == *"bad";
        let outcome = if fails { FailureKind::Exited(1).into() } else { Outcome::OK };
        more.extend(world.report(about, outcome).expect("current"));
    }
    more
}

/// Time passes; those of `names` beat.
fn pass(world: &mut World, ms: u64, names: &[&str]) -> Vec<Effect> {
    let mut effects = Vec::new();
    for _ in 0..ms / 1000 {
        for name in names {
            world.controller.engine_mut().beat(name, "1");
        }
        effects.extend(world.wait(1000));
    }
    effects
}

#[test]
fn a_worker_that_is_put_aside_says_the_numbers() {
    let (world, _) = one_put_aside();
    let why = view(&world, "bad").1.expect("a reason");
    let numbers: Vec<&str> = why.split(|c: char| !c.is_ascii_digit()).collect();
    assert!(why.starts_with("failed ") && why.contains(" of `s`, others 0 of "), "{why}");
    assert!(numbers.iter().filter(|number| !number.is_empty()).count() == 4, "{why}");
}

#[test]
fn probation_forgives_one_failure_and_not_many() {
    let (mut world, effects) = one_put_aside();
    let mut running: Vec<Effect> = effects;
    for _ in 0..30 {
        running = step_on(&mut world, &running);
        running.extend(pass(&mut world, 1000, &["bad", "good"]));
    }
    assert!(world.news().contains(&FleetNotification::OnProbation { worker: "bad".into() }));
    let on_probation = view(&world, "bad");
    assert_eq!(on_probation.0, WorkerState::Connected);
    assert!(on_probation.1.expect("a remark").starts_with("on probation, one attempt at a time"));
    let next = step_on(&mut world, &running);
    assert_eq!(view(&world, "bad").0, WorkerState::Connected, "one failure is forgiven");
    running = next;
    let mut failures = 1;
    while view(&world, "bad").0 == WorkerState::Connected {
        running = step_on(&mut world, &running);
        failures += 1;
        assert!(failures < 20, "it is as broken as before");
    }
    let long = |news: &FleetNotification| {
        matches!(news, FleetNotification::Quarantined { for_ms: 60_000, .. })
    };
    assert!(world.news().iter().any(long), "twice as long");
}

#[test]
fn a_worker_that_is_well_again_after_its_probation_gets_all_its_slots() {
    let (mut world, effects) = one_put_aside();
    let mut running: Vec<Effect> = effects;
    for _ in 0..30 {
        running = step_on(&mut world, &running);
        running.extend(pass(&mut world, 1000, &["bad", "good"]));
    }
    let its: Vec<Assignment> =
        assigned(&running).into_iter().filter(|it| *it.worker == *"bad").cloned().collect();
    assert_eq!(its.len(), 1);
    world.report(&its[0], Outcome::OK).expect("current");
    assert_eq!(view(&world, "bad"), (WorkerState::Connected, None));
}

/// It is the only one with the label: without it what waits for that could run nowhere.
#[test]
fn the_last_of_its_class_is_not_put_aside_and_says_so() {
    let mut world = World::new();
    let labels = BTreeMap::from([("gpu".to_owned(), "yes".to_owned())]);
    let mut effects = world.connect(WorkerSpec { labels: labels.clone(), ..worker("bad", 1) });
    effects.extend(world.connect(worker("good", 1)));
    let mut train = tough(1);
    train.labels = labels;
    effects.extend(world.submit(items(1000).remove(0)).1);
    effects.extend(world.submit(PlanDraft::new("gpu", vec![train])).1);
    for _ in 0..40 {
        effects = step_on(&mut world, &effects);
    }
    let (state, why) = view(&world, "bad");
    assert_eq!(state, WorkerState::Connected);
    let why = why.expect("a remark");
    assert!(why.starts_with("failed ") && why.contains("not put aside"), "{why}");
}

#[test]
fn one_that_was_put_aside_is_tried_again_when_nobody_else_is_left() {
    let (mut world, effects) = one_put_aside();
    assert!(!assigned(&effects).is_empty());
    world.controller.engine_mut().away("good", world.sessions);
    let told = world.wait(0);
    assert_eq!(on(&told, "bad"), 1, "rather than nobody");
    assert_eq!(view(&world, "bad").0, WorkerState::Connected);
}

#[test]
fn one_that_was_put_aside_is_tried_for_what_only_it_can_run() {
    let mut world = World::new();
    let labels = BTreeMap::from([("gpu".to_owned(), "yes".to_owned())]);
    let mut effects = world.connect(WorkerSpec { labels: labels.clone(), ..worker("bad", 1) });
    effects.extend(world.connect(worker("good", 1)));
    effects.extend(world.submit(items(1000).remove(0)).1);
    for _ in 0..40 {
        effects = step_on(&mut world, &effects);
    }
    assert_eq!(view(&world, "bad").0, WorkerState::Quarantined);
    let mut train = tough(1);
    train.labels = labels;
    let (_, effects) = world.submit(PlanDraft::new("gpu", vec![train]));
    assert_eq!(on(&effects, "bad"), 1);
}
