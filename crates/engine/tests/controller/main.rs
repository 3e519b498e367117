//! The controller as a value: what leaves when a commit succeeds, is refused, or cannot be made; and its
//! driver, when the store stalls.

mod bulk;
mod hooked;
mod queue;
mod refused;
mod sleep;
mod stall;
mod unknown;

use std::sync::Arc;

use serde_json::Value;
use steadfast_core::decide::{Input, advance};
use steadfast_core::event::{AcceptedJob, JobId, Requester};
use steadfast_core::job::Job;
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::{Action, Plan, PlanDraft, StepDraft};
use steadfast_core::policy::{Policy, PolicyDraft};
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Adopted, Assignment, CommandError, Controller, Group, Outgoing, Outputs, Placement, Request,
    Slots, state,
};
use steadfast_store::{Journal, MemoryStore, Owner, Reader, Refused, Whose, Write};

fn accepted(id: &str) -> AcceptedJob {
    let policy = Policy::new(PolicyDraft::default()).expect("the defaults are valid");
    let step = StepDraft::new("s", Action::Run("true".to_owned()), policy);
    let plan = Plan::new(PlanDraft::new(id, vec![step])).expect("valid");
    AcceptedJob::new(id.into(), Arc::new(plan))
}

fn submit(id: &str) -> Request {
    Request::Submit { accepted: Box::new(accepted(id)), key: None }
}

fn cancel(id: &str) -> Request {
    Request::Input { job: id.into(), input: Input::Cancel(Requester::NOBODY) }
}

/// A controller of one machine with this many slots, and its store.
struct World {
    controller: Controller,
    store: MemoryStore,
    owner: Owner,
    now: u64,
}

impl World {
    fn new(slots: u32) -> Self {
        Self::with(MemoryStore::new(), slots)
    }

    fn with(mut store: MemoryStore, slots: u32) -> Self {
        let room = Placement::here(Slots::per_datacenter(slots), "here");
        let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
        Self { controller: Controller::new(room), store, owner, now: 1000 }
    }

    fn step(&mut self, requests: Vec<(u64, Request)>) -> Option<Group> {
        self.now += 10;
        let requests = requests.into_iter().map(|(reply_id, request)| (Some(reply_id), request));
        self.controller.step(requests, Timestamp(self.now))
    }

    fn commit(&mut self, group: Group) -> Outputs {
        let answers = self.store.commit(&self.owner, &group.writes).expect("memory");
        let outputs = group.committed(answers);
        for (job, why) in &outputs.refused {
            self.controller.refused(job, why);
        }
        for job in &outputs.ended {
            self.controller.ended(&job.id);
        }
        outputs
    }

    fn done(&mut self, requests: Vec<(u64, Request)>) -> Outputs {
        let group = self.step(requests).expect("something was decided");
        self.commit(group)
    }
}

fn assigned(outputs: &Outputs) -> Vec<Assignment> {
    let assigned = outputs.effects.iter().filter_map(|effect| match effect {
        Outgoing::Assign(work) => Some(work.assignment.clone()),
        Outgoing::Withdraw(_) => None,
    });
    assigned.collect()
}

fn succeeded(about: &Assignment) -> Request {
    let Assignment { job, item, token, .. } = about.clone();
    Request::Input { job, input: Input::Report { item, token, outcome: Outcome::OK } }
}

#[test]
fn a_commit_lets_out_replies_and_assignments() {
    let mut world = World::new(8);
    let outputs = world.done(vec![(7, submit("a")), (8, cancel("nobody"))]);
    assert_eq!(outputs.replies[0], (7, Ok(())));
    assert_eq!(outputs.replies[1], (8, Err(CommandError::Unknown("nobody".into()))));
    let [about] = &assigned(&outputs)[..] else { panic!("{outputs:?}") };
    let ended = world.done(vec![(9, succeeded(about))]);
    assert_eq!(ended.settled().collect::<Vec<_>>(), [(&about.job, about.token)]);
    assert!(world.step(vec![]).is_none(), "it is over, and nothing is left to do");
}

/// Somebody writes to the job behind the controller's back.
fn changed_by_another(world: &mut World, id: &str) {
    let mut job = state(&mut world.store, id).expect("readable");
    let row = world.store.get(id).expect("memory").expect("there").row;
    let pause = Input::Pause(Requester::NOBODY);
    let records = advance(&mut job, &pause, Timestamp(world.now)).expect("possible").log;
    let expected_seq = records[0].seq - 1;
    let write = Write {
        job: id.into(),
        expected_seq,
        records,
        row,
        snapshot: None,
        key: None,
        readiness: None,
    };
    let written = world.store.commit(&world.owner, &[write]).expect("memory");
    assert_eq!(written, [Ok(())]);
}

#[test]
fn a_refused_write_takes_its_own_job_along_and_no_other() {
    let mut world = World::new(1);
    let began = world.done(vec![(1, submit("a")), (2, submit("b"))]);
    assert_eq!(assigned(&began)[0].job, JobId::from("a"), "one slot");
    changed_by_another(&mut world, "a");
    let outputs = world.done(vec![(3, cancel("a"))]);
    let [(job, refused)] = &outputs.refused[..] else { panic!("{outputs:?}") };
    assert!(matches!(refused, Refused::Conflict { .. }), "{refused:?}");
    let taken = CommandError::Taken { job: job.clone(), why: refused.clone() };
    assert_eq!(outputs.replies, [(3, Err(taken))]);
    assert!(outputs.events.iter().all(|(of, _)| of != job), "{:?}", outputs.events);
    let next = assigned(&outputs);
    assert_eq!(next.first().map(|it| &*it.job), Some("b"), "its slot is free: {outputs:?}");
    let after = world.done(vec![(4, cancel("a"))]);
    assert_eq!(after.replies, [(4, Err(CommandError::Unknown("a".into())))]);
    let ended = world.done(vec![(5, succeeded(&next[0]))]);
    assert_eq!(ended.replies, [(5, Ok(()))]);
}

#[test]
fn what_was_decided_on_top_of_a_refused_write_does_not_leave_either() {
    let mut world = World::new(8);
    let began = world.done(vec![(1, submit("a"))]);
    changed_by_another(&mut world, "a");
    let first = world.step(vec![(2, succeeded(&assigned(&began)[0]))]).expect("decided");
    let mut both =
        world.step(vec![(3, submit("b"))]).expect("decided, while the first is under way");
    let outputs = world.commit(first);
    assert!(outputs.events.is_empty() && outputs.effects.is_empty(), "{outputs:?}");
    both.join(world.step(vec![(4, cancel("a"))]).expect("an answer"));
    let outputs = world.commit(both);
    assert_eq!(outputs.replies[0], (3, Ok(())));
    assert!(matches!(outputs.replies[1], (4, Err(CommandError::Unknown(_)))), "{outputs:?}");
}

/// In the state of a stored job, something that its next event contradicts.
fn contradicting(store: &mut MemoryStore, id: &str) -> Job {
    let job = state(store, id).expect("readable");
    let mut text: Value = serde_json::to_value(&job).expect("JSON");
    // A step that runs is said to wait for nothing any more: it would begin a second time.
    text["runs"][0]["unblocked"] = serde_json::json!([0]);
    serde_json::from_value(text).expect("a job")
}

#[test]
fn a_job_that_contradicts_itself_is_parked_and_the_others_go_on() {
    let mut world = World::new(8);
    let began = assigned(&world.done(vec![(1, submit("bad")), (2, submit("good"))]));
    let job = contradicting(&mut world.store, "bad");
    let mut later = World::with(world.store, 8);
    for id in ["bad", "good"] {
        let job = if id == "bad" { job.clone() } else { state(&mut later.store, id).expect("it") };
        let adopted = Adopted { job, gaps: vec![], lost: vec![] };
        let group = later.step(vec![(3, Request::Adopt(Box::new(adopted)))]).expect("an answer");
        later.commit(group);
    }
    let seq = later.store.get("bad").expect("memory").expect("there").seq;
    let outputs = later.done(vec![(4, succeeded(&began[0])), (5, succeeded(&began[1]))]);
    let [parked] = &outputs.parked[..] else { panic!("{outputs:?}") };
    assert_eq!(&*parked.job, "bad");
    assert!(matches!(&outputs.replies[0], (4, Err(CommandError::Stuck { .. }))), "{outputs:?}");
    assert_eq!(outputs.replies[1], (5, Ok(())));
    assert_eq!(later.store.get("bad").expect("memory").expect("there").seq, seq, "untouched");
    assert!(later.store.park("bad", &parked.why).expect("memory"));
    assert_eq!(later.store.damage("bad").expect("memory").as_ref(), Some(&parked.why));
    assert!(state(&mut later.store, "good").expect("it").is_over());
}
