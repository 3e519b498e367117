//! A commit whose answer is lost: nothing of it is lost or doubled, and whoever waits hears what became of it.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use steadfast_core::event::Event;
use steadfast_engine::{Live, Ownership};
use steadfast_store::StoreError;

use super::hooked::{Committed, Hooked};
use super::stall::{Assigned, Hand, LONG, Silent};
use super::*;

type Group = (Owner, Vec<Write>);

/// The store takes the group, or does not, and answers that this is not known; what comes after is answered.
fn submitted(is_kept: bool) {
    let (assign, assigned) = channel();
    let seen: Arc<Mutex<Vec<Group>>> = Arc::default();
    let groups = seen.clone();
    let mut lost = false;
    let commit = move |store: &mut MemoryStore, owner: &Owner, writes: &[Write]| -> Committed {
        if !writes.is_empty() {
            groups.lock().expect("whole").push((owner.clone(), writes.to_vec()));
            if !std::mem::replace(&mut lost, true) {
                if is_kept {
                    store.commit(owner, writes)?;
                }
                let why = "the connection went".to_owned();
                return Err(StoreError::Unknown { store: "memory".to_owned(), why });
            }
        }
        store.commit(owner, writes)
    };
    let mut store = Hooked { store: MemoryStore::new(), commit };
    let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
    let live = Live::start(
        Box::new(store),
        Box::new(Hand(Arc::new(Mutex::new(1000)))),
        Placement::here(Slots::per_datacenter(1), "here"),
        Ownership::alone(owner.clone()),
        |_| Assigned(assign),
        Box::new(Silent),
    );
    assert_eq!(live.inbox().submit(accepted("a"), None), Ok(()));
    let about = assigned.recv_timeout(LONG).expect("it starts");
    let input = Input::Report { item: about.item, token: about.token, outcome: Outcome::OK };
    assert_eq!(live.inbox().command(&about.job, input), Ok(()));
    live.stop().expect("in order");
    assert!(assigned.try_recv().is_err(), "it started once");
    let seen = seen.lock().expect("whole");
    let raised: Vec<u64> = seen.iter().map(|(owner, _)| owner.epoch - seen[0].0.epoch).collect();
    assert_eq!(raised[..2], [0, 1], "what was lost is fenced before it is looked for");
    assert!(raised[2..].iter().all(|raised| *raised == 1), "{raised:?}");
    let accepts = seen[2..].iter().flat_map(|(_, writes)| writes).flat_map(|it| &it.records);
    assert_eq!(accepts.filter(|it| matches!(it.event, Event::JobAccepted(_))).count(), 0);
}

#[test]
fn a_commit_that_was_made_and_not_answered_is_found() {
    submitted(true);
}

#[test]
fn a_commit_that_was_not_made_and_not_answered_is_made() {
    submitted(false);
}
