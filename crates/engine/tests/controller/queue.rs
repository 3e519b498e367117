//! Jobs that wait for a worker, and are not in memory for that.

use steadfast_engine::FleetRules;

use super::hooked::arriving;
use super::*;

/// As many wait in memory as the controller lets, and some more.
const RESTING: usize = 1000;
const MANY: usize = 1500;

fn fleet(store: MemoryStore) -> World {
    let mut world = World::with(store, 0);
    world.now = 20_000;
    world.controller =
        Controller::new(Placement::fleet(FleetRules::default())).resting_at_most(RESTING);
    world.controller.raise_horizon(Timestamp(61_000));
    world
}

fn urgent(id: &str, priority: i32, label: Option<&str>) -> Request {
    let mut step = StepDraft::new("s", Action::Run("true".to_owned()), Policy::default());
    step.labels.extend(label.map(|value| ("of".to_owned(), value.to_owned())));
    let draft = PlanDraft { priority, ..PlanDraft::new("j", vec![step]) };
    let plan = Arc::new(Plan::new(draft).expect("valid"));
    Request::Submit { accepted: Box::new(AcceptedJob::new(id.into(), plan)), key: None }
}

fn name(n: usize) -> String {
    format!("job{n:05}")
}

/// What was decided is durable, and what may leave memory has left it.
fn settle(world: &mut World, group: Group) -> Outputs {
    let outputs = world.commit(group);
    for (job, seq) in &outputs.idle {
        world.controller.idle(job, *seq);
    }
    outputs
}

fn settled(world: &mut World) -> Outputs {
    let group = world.step(vec![]).expect("something was decided");
    settle(world, group)
}

/// A store in which more jobs wait than are kept in memory, oldest first; those that are not.
fn many() -> (World, Vec<String>) {
    let mut world = World { now: 1000, ..fleet(MemoryStore::new()) };
    for n in 0..MANY {
        world
            .step(vec![(n as u64, urgent(&name(n), 0, None))])
            .map(|group| settle(&mut world, group));
    }
    // That some have left memory is told.
    settled(&mut world);
    let entries: Vec<String> =
        (0..MANY).map(name).filter(|id| world.controller.job(id).is_none()).collect();
    (world, entries)
}

fn connect(world: &mut World, slots: u32) {
    let now = Timestamp(world.now);
    world.controller.connect(arriving("w", slots), now).expect("the name is free");
}

/// As the loader of a driver does.
fn load(world: &mut World) -> Vec<JobId> {
    let mut jobs = world.controller.take_turns();
    jobs.extend(world.controller.take_loads());
    for job in &jobs {
        let row = world.store.row(job).expect("memory").filter(|(row, _)| !row.over);
        let found = row.map(|_| state(&mut world.store, job)).transpose();
        let found =
            found.map(|job| job.map(|job| Box::new(Adopted { job, gaps: vec![], lost: vec![] })));
        let as_of = world.controller.departures();
        world.controller.loaded(job, found, as_of, Timestamp(world.now));
    }
    jobs
}

/// Everything that starts, in order, until nothing more does. Each ends at once.
fn play(world: &mut World) -> Vec<String> {
    let mut started = vec![];
    loop {
        let outputs = world.step(vec![]).map(|group| settle(world, group));
        let assigned = outputs.iter().flat_map(assigned).collect::<Vec<_>>();
        started.extend(assigned.iter().map(|about| about.job.to_string()));
        let reports = assigned.iter().map(|about| (1, succeeded(about))).collect::<Vec<_>>();
        let reported = !reports.is_empty();
        if reported {
            // What starts then is played in the next round.
            for (reply_id, request) in reports {
                world.controller.request(Some(reply_id), request, Timestamp(world.now));
            }
        }
        if load(world).is_empty() && !reported {
            return started;
        }
    }
}

#[test]
fn more_than_some_that_wait_for_a_worker_leave_memory_and_all_start_in_their_order() {
    let (mut world, entries) = many();
    assert!(entries.len() > 400, "{}", entries.len());
    let stored = world.store.queued(Whose::all(Owner::SHARD), None, usize::MAX).expect("memory");
    assert_eq!(stored.len(), MANY, "all of them, so that a restart knows them");
    connect(&mut world, 1);
    assert!(play(&mut world) == (0..MANY).map(name).collect::<Vec<_>>());
    assert!((0..MANY).all(|n| state(&mut world.store, &name(n)).expect("readable").is_over()));
    assert_eq!(world.store.queued(Whose::all(Owner::SHARD), None, 9).expect("memory"), []);
}

#[test]
fn a_restart_queues_what_waits_without_reading_it_and_keeps_the_order() {
    let (before, _) = many();
    let mut world = fleet(before.store);
    let stored = world.store.queued(Whose::all(Owner::SHARD), None, usize::MAX).expect("memory");
    let under_way =
        world.store.due(Whose::all(Owner::SHARD), None, Timestamp(0), 9).expect("memory");
    assert_eq!(under_way, [], "there is nothing that workers could hold");
    // It came after them, and is not overtaken by those that are not read yet: it is older than none.
    let group = world.step(vec![(1, urgent("new", 0, None)), (2, urgent("urgent", 1, None))]);
    settle(&mut world, group.expect("two jobs"));
    world.controller.enqueue(stored);
    assert!((0..MANY).all(|n| world.controller.job(&name(n)).is_none()));
    connect(&mut world, 1);
    let mut order = vec!["urgent".to_owned()];
    order.extend((0..MANY).map(name));
    order.push("new".to_owned());
    assert!(play(&mut world) == order, "in the order in which they were accepted");
}

#[test]
fn only_what_has_a_worker_is_loaded_and_nobody_overtakes_it_meanwhile() {
    let (mut world, _) = many();
    let mut restarted = fleet(std::mem::take(&mut world.store));
    let stored =
        restarted.store.queued(Whose::all(Owner::SHARD), None, usize::MAX).expect("memory");
    restarted.controller.enqueue(stored);
    let _ = restarted.step(vec![]);
    assert_eq!(restarted.controller.take_turns(), [], "nobody could take it");
    connect(&mut restarted, 1);
    let group = restarted.step(vec![(1, urgent("new", 0, None))]).expect("a job");
    let outputs = settle(&mut restarted, group);
    assert_eq!(assigned(&outputs), [], "older ones are being loaded");
    load(&mut restarted);
    let outputs = settled(&mut restarted);
    assert_eq!(assigned(&outputs)[0].job, JobId::from(name(0)));
    let why = restarted.controller.engine().why_not_running(&name(MANY - 1));
    assert!(restarted.controller.job(&name(MANY - 1)).is_none(), "it is only in the queue");
    let busy = "w, the one worker that could take it, is busy".to_owned();
    assert_eq!(why, [((0, 0), busy)]);
}

#[test]
fn a_command_for_a_job_that_is_only_in_the_queue_loads_it() {
    let (mut world, entries) = many();
    let id = entries[0].clone();
    assert!(world.step(vec![(7, cancel(&id))]).is_none());
    assert_eq!(load(&mut world), [JobId::from(&*id)]);
    let outputs = settled(&mut world);
    assert_eq!(outputs.replies, [(7, Ok(()))]);
    connect(&mut world, 1);
    assert!(!play(&mut world).contains(&id), "it is over");
}

#[test]
fn an_entry_of_a_job_that_is_gone_or_cannot_be_read_holds_up_nobody() {
    let (before, _) = many();
    let mut world = fleet(before.store);
    let stored = world.store.queued(Whose::all(Owner::SHARD), None, usize::MAX).expect("memory");
    world.controller.enqueue(stored);
    assert!(world.store.remove(&name(0)).expect("memory"));
    connect(&mut world, 1);
    let _ = world.step(vec![]).map(|group| settle(&mut world, group));
    for job in world.controller.take_turns() {
        let found = match &*job {
            "job00000" => Ok(None),
            "job00001" => Err(steadfast_engine::Unreadable::Missing(job.clone())),
            id => state(&mut world.store, id)
                .map(|job| Some(Box::new(Adopted { job, gaps: vec![], lost: vec![] }))),
        };
        let as_of = world.controller.departures();
        world.controller.loaded(&job, found, as_of, Timestamp(world.now));
    }
    let outputs = settled(&mut world);
    assert_eq!(assigned(&outputs)[0].job, JobId::from(name(2)));
    assert_eq!(outputs.parked.len(), 1, "{:?}", outputs.parked);
}

#[test]
fn identical_plans_are_held_once() {
    let mut world = World::new(8);
    world.done(vec![(1, submit("a")), (2, urgent("b", 0, None)), (3, urgent("c", 0, None))]);
    let plan = |id: &str| world.controller.job(id).expect("it runs").plan.clone();
    assert!(Arc::ptr_eq(&plan("b"), &plan("c")));
    assert!(!Arc::ptr_eq(&plan("a"), &plan("b")));
}
