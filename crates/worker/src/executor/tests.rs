use super::*;

#[derive(Clone, Debug, PartialEq)]
struct Task(u64);

impl Work for Task {
    type Attempt = u64;

    fn id(&self) -> AttemptId {
        key(self.0)
    }

    fn attempt(&self) -> u64 {
        self.0
    }

    fn is_task(&self) -> bool {
        false
    }

    /// From 1000 on: a cpu for each thousand.
    fn takes(&self) -> Resources {
        Resources { cpu_milli: self.0 / 1000 * 1000, memory_bytes: 0 }
    }
}

fn key(token: u64) -> AttemptId {
    AttemptId::new("job", token)
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn given(executor: &mut Executor<Task>, tokens: std::ops::RangeInclusive<u64>, now: Duration) {
    for token in tokens {
        assert!(matches!(executor.assign(Task(token), now), Assigned::Queued), "{token}");
    }
}

fn ok() -> Said {
    Said::Report(WorkerReport::Ended(Outcome::OK))
}

#[test]
fn slots_are_given_in_order_and_what_waits_a_second_goes_back() {
    let mut executor = Executor::new(2, Capacity::default());
    given(&mut executor, 1..=4, ms(0));
    assert!(matches!(executor.assign(Task(4), ms(0)), Assigned::Known));
    let begun = |executor: &mut Executor<Task>, now| executor.begin(now).map(|(_, task)| task);
    assert_eq!(begun(&mut executor, ms(0)), Some(Task(1)));
    assert_eq!(begun(&mut executor, ms(0)), Some(Task(2)));
    assert_eq!(executor.begin(ms(0)), None, "there are two slots");
    assert_eq!(executor.look_again(ms(400)), Some(ms(600)));
    let settled = executor.ended(&key(1), ok(), "", ms(500)).unwrap();
    assert_eq!((settled.attempt, settled.withdrawn), (1, false));
    assert_eq!(begun(&mut executor, ms(500)), Some(Task(3)), "before the report of 1 is kept");
    assert_eq!(executor.reported(&key(1)), None);
    assert_eq!(executor.overdue(ms(999)), []);
    assert_eq!(executor.overdue(ms(1000)), [Task(4)]);
    assert_eq!(executor.look_again(ms(1000)), None, "there is no lease");
}

#[test]
fn what_does_not_fit_waits_and_what_comes_after_it_may_fit() {
    let capacity = Capacity { cpu_milli: Some(2000), memory_bytes: None };
    let mut executor = Executor::new(4, capacity);
    for token in [1001, 2002, 3, 1004] {
        given(&mut executor, token..=token, ms(0));
    }
    let begun = |executor: &mut Executor<Task>, now| executor.begin(now).map(|(_, task)| task.0);
    assert_eq!(begun(&mut executor, ms(0)), Some(1001));
    assert_eq!(begun(&mut executor, ms(0)), Some(3), "2002 wants both cpus");
    assert_eq!(begun(&mut executor, ms(0)), Some(1004));
    assert_eq!(begun(&mut executor, ms(0)), None, "there is a slot, and no cpu");
    executor.ended(&key(1001), ok(), "", ms(500));
    assert_eq!(begun(&mut executor, ms(500)), None, "one of two");
    executor.ended(&key(1004), ok(), "", ms(600));
    assert_eq!(begun(&mut executor, ms(600)), Some(2002));
    given(&mut executor, 1005..=1005, ms(600));
    assert_eq!(executor.overdue(ms(1600)), [Task(1005)], "another worker may have room for it");
}

#[test]
fn the_queue_waits_for_the_slots_of_what_was_withdrawn() {
    let mut executor = Executor::new(1, Capacity::default());
    given(&mut executor, 1..=1, ms(0));
    executor.begin(ms(0));
    executor.started(&key(1));
    assert!(executor.withdraw(&key(1)));
    given(&mut executor, 2..=3, ms(0));
    assert_eq!(executor.overdue(ms(5000)), [Task(3)], "the slot of 1 is soon that of 2");
    let settled = executor.ended(&key(1), Said::Stopped, "", ms(5000)).unwrap();
    assert!(settled.withdrawn && executor.reported(&key(1)) == Some(1));
    assert_eq!(executor.begin(ms(5000)), Some((key(2), Task(2))));
    assert!(!executor.withdraw(&key(9)), "one that is not here");
}

#[test]
fn without_its_lease_it_begins_nothing_and_what_it_ran_is_lost() {
    let mut executor = Executor::new(1, Capacity::default());
    executor.lease(0).welcome(ms(0), ms(100));
    given(&mut executor, 1..=2, ms(10));
    executor.begin(ms(10));
    executor.started(&key(1));
    assert_eq!(executor.look_again(ms(10)), Some(ms(90)));
    assert!(executor.lease_ended(ms(99)).is_none());
    let end = LeaseEnd { running: vec![key(1)], cut: 1, waiting: vec![Task(2)] };
    assert_eq!(executor.lease_ended(ms(100)), Some(end));
    assert_eq!((executor.lease_ended(ms(200)), executor.look_again(ms(200))), (None, None));
    // Its own success came too late: it is another worker's by now.
    let settled = executor.ended(&key(1), ok(), "", ms(100)).unwrap();
    let lost = WorkerReport::Ended(Outcome::Lost { started: true, why: None });
    assert_eq!((settled.report, &*settled.why), (lost, LEASE_ENDED));
    assert!(matches!(executor.assign(Task(3), ms(100)), Assigned::GivenBack(..)));
    executor.told(&key(3));
    executor.lease(0).welcome(ms(200), ms(100));
    given(&mut executor, 3..=3, ms(200));
    assert_eq!(executor.begin(ms(300)), None, "it woke too late");
}

#[test]
fn what_the_server_has_no_more_goes_on_for_what_was_left_of_its_lease() {
    let mut executor = Executor::new(3, Capacity::default());
    executor.add_source();
    executor.lease(0).welcome(ms(0), ms(1000));
    given(&mut executor, 1..=4, ms(0));
    begin_all(&mut executor, ms(0));
    let not_held = |tokens: &[u64]| tokens.iter().map(|token| key(*token)).collect();
    let welcome = |executor: &mut Executor<Task>, tokens: &[u64], now| {
        executor.welcomed(0, &not_held(tokens));
        executor.lease(0).welcome(now, ms(1000));
    };
    welcome(&mut executor, &[1, 2, 3, 4], ms(500));
    // The next session's lease is not theirs either, and 3 is the server's again.
    welcome(&mut executor, &[1, 2, 4], ms(900));
    assert_eq!(executor.take_over(1, &[key(2)]), [], "another server has it");
    assert_eq!(executor.look_again(ms(900)), Some(ms(100)));
    assert_eq!(executor.lease_ended(ms(999)), None);
    let end = LeaseEnd { running: vec![key(1)], cut: 1, waiting: vec![] };
    assert_eq!(executor.lease_ended(ms(1000)), Some(end));
    assert_eq!(executor.lease_ended(ms(1000)), None, "said once");
    let settled = executor.ended(&key(1), ok(), "", ms(1001)).unwrap();
    assert_eq!(settled.why, LEASE_ENDED);
    assert_eq!(executor.begin(ms(1001)), None, "what waits begins under no lease");
    assert_eq!(executor.overdue(ms(1001)), [Task(4)]);
}

#[test]
fn who_is_told_to_go_keeps_nothing_but_successes() {
    let mut executor = Executor::new(3, Capacity::default());
    given(&mut executor, 1..=4, ms(0));
    while executor.begin(ms(0)).is_some() {}
    executor.started(&key(1));
    executor.started(&key(2));
    assert_eq!(executor.drain(PREEMPTED), [Task(4)]);
    assert_eq!(executor.preempt(), [(key(1), true), (key(2), true), (key(3), false)]);
    executor.undrain_source(0);
    assert_eq!(executor.draining(0), Some(PREEMPTED), "the server cannot take that back");
    let report = |executor: &mut Executor<Task>, token, said| {
        executor.ended(&key(token), said, "", ms(1)).unwrap().report
    };
    assert_eq!(report(&mut executor, 1, ok()), WorkerReport::Ended(Outcome::OK));
    let lost = |started| WorkerReport::Ended(Outcome::Lost { started, why: None });
    assert_eq!(report(&mut executor, 2, Said::Stopped), lost(true));
    assert_eq!(report(&mut executor, 3, Said::Stopped), lost(false));
}

fn begin_all(executor: &mut Executor<Task>, now: Duration) {
    while executor.begin(now).is_some() {}
}

#[test]
fn what_another_server_takes_over_goes_on_under_its_lease() {
    let mut executor = Executor::new(2, Capacity::default());
    executor.add_source();
    for source in [0, 1] {
        executor.lease(source).welcome(ms(0), ms(1000));
    }
    given(&mut executor, 1..=3, ms(0));
    begin_all(&mut executor, ms(0));
    executor.ended(&key(1), ok(), "", ms(0)).unwrap();
    let all = [key(1), key(2), key(3), key(4)];
    assert_eq!(executor.take_over(1, &all), [key(4)], "4 never arrived");
    assert!(executor.attempts(0).next().is_none());
    assert_eq!(executor.attempts(1).count(), 3);
    // Only the other one is heard of.
    let number = executor.lease(1).beat(ms(900));
    executor.lease(1).answered(number);
    let end = executor.lease_ended(ms(1000)).expect("of the first");
    assert_eq!((end.running.len(), end.waiting.len()), (0, 0), "nothing is its any more");
    let end = executor.lease_ended(ms(1900)).expect("of the second");
    assert!(end.running.contains(&key(2)), "{end:?}");
}

#[test]
fn the_slots_of_what_is_taken_over_are_given_back_once() {
    let mut executor = Executor::new(2, Capacity::default());
    executor.add_source();
    given(&mut executor, 1..=2, ms(0));
    begin_all(&mut executor, ms(0));
    executor.ended(&key(1), ok(), "", ms(0)).unwrap();
    assert_eq!(executor.take_over(1, &[key(1), key(2)]), []);
    executor.ended(&key(2), ok(), "", ms(0)).unwrap();
    for token in [1, 2] {
        assert_eq!(executor.reported(&key(token)), None);
    }
    given(&mut executor, 5..=7, ms(0));
    begin_all(&mut executor, ms(0));
    assert_eq!(executor.ready(ms(0)), None);
    assert!(executor.holds(&key(7)) && executor.running.len() == 2, "two slots, as before");
}

#[test]
fn what_is_said_in_an_epoch_that_is_over_is_known_by_it() {
    let mut executor = Executor::<Task>::new(1, Capacity::default());
    for (scope, epoch, is_late) in [
        ("a", 5, false),
        ("a", 5, false),
        ("a", 4, true),
        ("a", 7, false),
        ("a", 6, true),
        ("b", 1, false),
    ] {
        assert_eq!(executor.is_fenced(scope, epoch), is_late, "{scope} {epoch}");
    }
}

/// Between the queue and its report it was nowhere, and begun when it was assigned again.
#[test]
fn what_is_given_back_is_in_hand_until_that_is_told() {
    let mut executor = Executor::new(1, Capacity::default());
    given(&mut executor, 1..=2, ms(0));
    begin_all(&mut executor, ms(0));
    assert_eq!(executor.overdue(ms(1000)), [Task(2)]);
    assert!(matches!(executor.assign(Task(2), ms(1000)), Assigned::Known));
    assert!(executor.attempts(0).any(|(id, _)| id == key(2)), "the next hello says so");
    executor.told(&key(2));
    assert!(!executor.holds(&key(2)));
}
