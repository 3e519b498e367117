//! Jobs that go from one server to another, with what is under way of them.

use super::*;

/// A job with two attempts on `w1`, as another server has left it.
fn left_by_another() -> (Job, Vec<Assignment>) {
    let mut world = World::new();
    world.connect(worker("w1", 4));
    let (id, effects) = world.submit(fan_out("a", 2));
    (world.job(&id).clone(), assigned(&effects).into_iter().cloned().collect())
}

fn asked(world: &mut World) -> Vec<Arc<str>> {
    let group = world.controller.group_of(|_, assignment| assignment);
    group.map_or(vec![], |group| group.committed(vec![]).ask)
}

#[test]
fn what_is_let_go_of_goes_on_at_its_worker_and_its_slots_are_free() {
    let mut world = World::new();
    world.connect(worker("w1", 2));
    let (first, effects) = world.submit(fan_out("a", 2));
    assert_eq!(on(&effects, "w1"), 2);
    let (second, effects) = world.submit(fan_out("b", 2));
    assert_eq!(on(&effects, "w1"), 0, "there is no slot");
    world.controller.let_go(|job| *job == first);
    let effects = world.done();
    assert!(world.controller.job(&first).is_none());
    assert_eq!((on(&effects, "w1"), effects.len()), (2, 2), "nothing is withdrawn: {effects:?}");
    assert!(world.controller.job(&second).is_some());
}

#[test]
fn a_worker_that_is_here_is_asked_what_it_has_of_jobs_that_come() {
    let (job, assignments) = left_by_another();
    let held: Vec<AttemptId> = assignments.iter().map(key).collect();
    let mut world = World::new();
    world.connect(worker("w1", 4));
    world.connect(worker("w2", 4));
    let now = world.wall();
    world.controller.gaining();
    let effects = world.adopt(job.clone(), now, now);
    assert_eq!(effects, [], "it runs already");
    assert_eq!(asked(&mut world), [], "more may come");
    world.controller.gained();
    let both = ["w1".into(), "w2".into()];
    assert_eq!(asked(&mut world), both, "what was cancelled meanwhile is under way nowhere");
    assert_eq!(asked(&mut world), [], "once");
    world.elsewhere = held.iter().cloned().collect();
    let told = world.arrive(worker("w1", 4), true, &[]).expect("its name");
    assert_eq!(told, []);
    assert_eq!(world.adopted, held);
    for about in &assignments {
        world.report(about, Outcome::OK).expect("it counts here");
    }
    assert!(world.job(&job.id).is_over());
}

#[test]
fn one_that_begins_anew_has_nothing_and_hears_no_refusal_of_before() {
    let mut world = World::new();
    world.connect(worker("w1", 4));
    let (id, _) = world.submit(fan_out("a", 2));
    let job = world.job(&id).clone();
    world.controller.begin_anew(7);
    assert_eq!(world.done(), [], "nothing is withdrawn");
    assert!(world.controller.job(&id).is_none());
    let now = world.wall();
    world.adopt(job, now, now);
    let fenced = |epoch| Refused::Fenced { owner: "a".into(), epoch, current: 7 };
    world.controller.refused(&id, &fenced(6));
    assert!(world.controller.job(&id).is_some(), "that was of what it had before");
    world.controller.refused(&id, &fenced(7));
    assert!(world.controller.job(&id).is_none());
    assert_eq!(world.done(), [], "another has its attempts");
}

#[test]
fn what_a_worker_holds_of_a_job_that_has_gone_is_left_to_the_one_that_has_it() {
    let mut world = World::new();
    world.connect(worker("w1", 4));
    let (gone, effects) = world.submit(fan_out("a", 1));
    let of_gone = assigned(&effects)[0].clone();
    let (stays, effects) = world.submit(fan_out("b", 1));
    let of_stays = assigned(&effects)[0].clone();
    world.controller.let_go(|job| *job == gone);
    world.done();
    let over = AttemptId::new(stays.clone(), 99);
    let [mine, theirs] = [&stays, &gone].map(|job| AttemptId::new(job.clone(), 100));
    let arriving = Arriving {
        spec: worker("w1", 4),
        identity: identity("its own", true),
        session: 2,
        returning: true,
        holds: [key(&of_gone), key(&of_stays), over.clone()].into(),
        elsewhere: [mine.clone(), theirs].into(),
        in_vain: BTreeSet::new(),
        credits: None,
    };
    let arriving = arriving.at_one_that_knows(|job| *job == stays);
    let arrival = world.controller.connect(arriving, world.wall()).expect("its name");
    assert!(arrival.not_held.contains(&key(&of_gone)), "the lease that it has here is not its");
    assert!(arrival.not_held.contains(&over) && !arrival.not_held.contains(&key(&of_stays)));
    let effects = world.done();
    let withdrawn: Vec<AttemptId> = effects
        .iter()
        .map(|effect| match effect {
            Effect::Withdraw(withdrawn) => withdrawn.id(),
            Effect::Assign(_) => panic!("{effects:?}"),
        })
        .collect();
    assert_eq!(
        withdrawn,
        [over, mine],
        "that no job wants, and the job is here, whoever assigned them"
    );
}

/// A life of the worker that is gone may have run it; the one that was given it would say so.
#[test]
fn what_another_server_assigned_and_never_sent_is_assigned_again_to_the_same_life_of_the_worker() {
    let rules = FleetRules { tolerance_ms: Some(0), ..FleetRules::default() };
    let among_servers = || {
        let mut world = World::new();
        world.controller = Controller::new(Placement::fleet(rules));
        world.controller.engine_mut().hear(1000, 0);
        world
    };
    let mut other = among_servers();
    other.connect(worker("w1", 4));
    let (id, effects) = other.submit(fan_out("a", 2));
    let assignments: Vec<Assignment> = assigned(&effects).into_iter().cloned().collect();
    for (is_same, again) in [(true, 1), (false, 0)] {
        let mut world = among_servers();
        let mut w1 = worker("w1", 4);
        if !is_same {
            w1.incarnation = "the next".into();
        }
        world.connect(w1.clone());
        let now = world.wall();
        world.adopt(other.job(&id).clone(), now, now);
        world.elsewhere = [key(&assignments[0])].into();
        let told = world.arrive(w1, true, &[]).expect("its name");
        let same = assigned(&told).iter().filter(|it| it.token == assignments[1].token).count();
        assert_eq!(same, again, "{told:?}");
        let lost = Outcome::Lost { started: true, why: None };
        assert_eq!(world.outcomes(), vec![lost; 1 - again]);
    }
}

/// The store has another log of it than this one knows, and its attempts go on meanwhile.
#[test]
fn a_job_that_is_not_as_it_was_known_is_loaded_anew_and_its_workers_are_asked() {
    let mut world = World::new();
    world.controller.raise_horizon(Timestamp(u64::MAX));
    world.connect(worker("w1", 4));
    let (id, effects) = world.submit(fan_out("a", 2));
    let job = world.job(&id).clone();
    assert_eq!(on(&effects, "w1"), 2);
    world.controller.refused(&id, &Refused::Conflict { expected: 1, found: 2 });
    assert_eq!(world.controller.take_loads(), std::slice::from_ref(&id));
    assert_eq!(world.done(), [], "nothing is withdrawn");
    let now = world.wall();
    world.controller.gaining();
    world.adopt(job, now, now);
    world.controller.gained();
    assert_eq!(asked(&mut world), ["w1".into()]);
}
