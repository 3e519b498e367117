//! What is decided on a write that the store refuses: it fits by its number alone, and is not taken either.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use steadfast_engine::{Arriving, FleetRules, Live, Ownership};

use super::hooked::{Committed, Hooked, arriving};
use super::stall::{Assigned, Hand, LONG, Silent};
use super::*;

#[test]
fn what_was_decided_before_a_refusal_was_known_is_refused_too() {
    let (assign, assigned) = channel();
    let (began, begins) = channel();
    let (goes, go) = channel::<()>();
    let taken: Arc<Mutex<Vec<Write>>> = Arc::default();
    let seen = taken.clone();
    let mut refused = false;
    // Of the first write about a job that is there, another has changed the job: by one event, as if it were that of the write.
    let commit = move |store: &mut MemoryStore, owner: &Owner, writes: &[Write]| -> Committed {
        let [write] = writes else { return store.commit(owner, writes) };
        if write.expected_seq == 0 || std::mem::replace(&mut refused, true) {
            seen.lock().expect("whole").push(write.clone());
            return store.commit(owner, writes);
        }
        let _ = began.send(());
        let _ = go.recv();
        store.commit(owner, writes)?;
        let (expected, found) =
            (write.expected_seq, write.expected_seq + write.records.len() as u64);
        Ok(vec![Err(Refused::Conflict { expected, found })])
    };
    let mut store = Hooked { store: MemoryStore::new(), commit };
    let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
    let live = Live::start(
        Box::new(store),
        Box::new(Hand(Arc::new(Mutex::new(1000)))),
        Placement::here(Slots::per_datacenter(1), "here"),
        Ownership::alone(owner),
        |_| Withdrawing(Assigned(assign)),
        Box::new(Silent),
    );
    let inbox = live.inbox().clone();
    assert_eq!(inbox.submit(accepted("a"), None), Ok(()));
    assigned.recv_timeout(LONG).expect("it starts");
    let say = |input: Input| {
        let (tell, told) = channel();
        let reply = Box::new(move |answer| drop(tell.send(answer)));
        inbox.send(&"a".into(), input, reply).expect("heard");
        told
    };
    let paused = say(Input::Pause(Requester::NOBODY));
    begins.recv_timeout(LONG).expect("it is on its way");
    // The first of them has nothing to write.
    let repeated = say(Input::Pause(Requester::NOBODY));
    let resumed = say(Input::Resume(Requester::NOBODY));
    let (tell, told) = channel();
    inbox.look(move |_| tell.send(()).unwrap_or_default()).expect("heard");
    told.recv_timeout(LONG).expect("what was said before is decided with it");
    goes.send(()).expect("it waits");
    for answer in [paused, repeated, resumed] {
        let answer = answer.recv_timeout(LONG).expect("answered");
        assert!(matches!(answer, Err(CommandError::Taken { .. })), "{answer:?}");
    }
    live.stop().expect("in order");
    assert_eq!(taken.lock().expect("whole").len(), 1, "the submission alone");
}

/// It has nothing to write, so no refusal tells that the job is another one's by now.
#[test]
fn one_that_was_taken_over_assigns_nothing_again_to_a_worker_that_comes_back() {
    for is_taken_over in [false, true] {
        let (assign, assigned) = channel();
        let commit = move |store: &mut MemoryStore, owner: &Owner, writes: &[Write]| -> Committed {
            let answers = store.commit(owner, writes)?;
            if is_taken_over && writes.iter().any(|write| &*write.job == "b") {
                store.take(&owner.id, Timestamp(0), None)?;
            }
            Ok(answers)
        };
        let mut store = Hooked { store: MemoryStore::new(), commit };
        let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
        let live = Live::start(
            Box::new(store),
            Box::new(Hand(Arc::new(Mutex::new(1000)))),
            Placement::fleet(FleetRules::default()),
            Ownership::alone(owner),
            |_| Withdrawing(Assigned(assign)),
            Box::new(Silent),
        );
        let inbox = live.inbox().clone();
        let come = |arriving| {
            let (tell, told) = channel();
            let reply = Box::new(move |connected| drop(tell.send(connected)));
            inbox.connect(arriving, reply).expect("heard");
            told.recv_timeout(LONG).expect("answered").expect("its name");
        };
        come(arriving("w", 1));
        assert_eq!(inbox.submit(accepted("a"), None), Ok(()));
        let about = assigned.recv_timeout(LONG).expect("it starts");
        // For this there is no slot.
        assert_eq!(inbox.submit(accepted("b"), None), Ok(()));
        come(Arriving { session: 2, returning: true, ..arriving("w", 1) });
        live.stop().expect("in order");
        let again: Vec<_> = assigned.try_iter().map(|it| it.id()).collect();
        let never_came = if is_taken_over { vec![] } else { vec![about.id()] };
        assert_eq!(again, never_came);
    }
}

/// Those of a job that leaves memory.
struct Withdrawing(Assigned);

impl steadfast_engine::Workers for Withdrawing {
    fn assign(&mut self, work: Box<steadfast_engine::Work>) {
        self.0.assign(work);
    }
    fn withdraw(&mut self, _: Assignment) {}
    fn settled(&mut self, _: &JobId, _: u64) {}
}
