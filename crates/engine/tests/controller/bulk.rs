//! Many new jobs at once: how many of them a group takes.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use steadfast_core::decide::Input;
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;
use steadfast_engine::{Controller, FleetRules, Ownership, Placement, Request, Stepped};
use steadfast_store::{Journal, MemoryStore, Owner, Write};

use super::accepted;
use super::hooked::{Hooked, arriving};
use super::stall::{Assigned, Hand, Silent};

const JOBS: usize = 600;
const SLOTS: u32 = 4;

/// Nobody ends anything, so there is nothing to keep pace with; signs of life are no ends.
#[test]
fn jobs_in_bulk_fill_groups_until_attempts_end_and_then_keep_pace_with_them() {
    let (assign, assigned) = channel();
    let (tell, groups) = channel();
    let commit = move |store: &mut MemoryStore, owner: &Owner, writes: &[Write]| {
        let new = writes.iter().filter(|write| write.expected_seq == 0).count();
        let _ = tell.send(new);
        store.commit(owner, writes)
    };
    let mut store = Hooked { store: MemoryStore::new(), commit };
    let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
    let mut live = Stepped::start(
        Box::new(store),
        Arc::new(Hand(Arc::new(Mutex::new(1000)))),
        Controller::new(Placement::fleet(FleetRules::default())),
        Ownership::alone(owner),
        |_| Assigned(assign),
        Box::new(Silent),
    );
    let inbox = live.inbox().clone();
    inbox.connect(arriving("w", SLOTS), Box::new(|_| ())).expect("heard");
    let mut turn = || {
        live.decide();
        while live.write().expect("memory") {}
        groups.try_iter().sum::<usize>()
    };
    assert_eq!(turn(), 0, "the worker comes in");
    for n in 0..JOBS {
        let accepted = Box::new(accepted(&format!("job{n}")));
        let submitted =
            inbox.try_request(Request::Submit { accepted, key: None }, Box::new(|_| ()));
        assert!(submitted.is_ok(), "heard");
    }
    let mut taken = 0;
    for _ in 0..2 {
        inbox.beat(&"w".into(), &"1".into(), Box::new(|_| ())).expect("heard");
        let some = turn();
        assert!(some > 100, "{some}");
        taken += some;
    }
    let running: Vec<_> = assigned.try_iter().collect();
    assert_eq!(running.len(), SLOTS as usize);
    for work in running {
        let outcome = Outcome::Succeeded { output: None };
        let input = Input::Report { item: work.item, token: work.token, outcome };
        inbox.send(&work.job, input, Box::new(|_| ())).expect("heard");
    }
    taken += turn();
    let after_ends = turn();
    assert!((1..=16).contains(&after_ends), "many rest already: {after_ends}");
    taken += after_ends;
    while taken < JOBS {
        let some = turn();
        assert!(some > 0, "{taken}");
        taken += some;
    }
    assert_eq!(taken, JOBS);
}
