//! A store that stalls: work waits, signs of life and questions are answered.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, RecordedEvent, Requester};
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Assignment, Clock, Engine, FleetRules, Live, Observer, Ownership, Placement, SendError, Work,
    Workers,
};
use steadfast_store::{Journal, MemoryStore, Owner, Write};

use super::accepted;
use super::hooked::{Hooked, arriving};

/// Nothing here takes as long unless it hangs.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// Moved by the test alone.
#[derive(Debug, Clone)]
pub(crate) struct Hand(pub(crate) Arc<Mutex<u64>>);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000 + self.monotonic_ms())
    }
    fn monotonic_ms(&self) -> u64 {
        *self.0.lock().expect("whole")
    }
}

pub(crate) struct Assigned(pub(crate) Sender<Assignment>);

impl Workers for Assigned {
    fn assign(&mut self, work: Box<Work>) {
        let _ = self.0.send(work.assignment);
    }
    fn withdraw(&mut self, over: Assignment) {
        panic!("nothing is withdrawn: {over:?}");
    }
    fn settled(&mut self, _: &JobId, _: u64) {}
}

pub(crate) struct Silent;

impl Observer for Silent {
    fn committed(&mut self, _: &JobId, _: Vec<RecordedEvent>) {}
}

#[test]
fn a_stall_of_the_store_keeps_no_worker_waiting_and_loses_nothing() {
    let (began, begins) = channel();
    let (goes, go) = channel();
    let (assign, assigned) = channel();
    let clock = Hand(Arc::new(Mutex::new(1000)));
    let rules = FleetRules { lease_ms: 5000, ..FleetRules::default() };
    // Tells when a commit begins, and lets it go on when it is told to.
    let commit = move |store: &mut MemoryStore, owner: &Owner, writes: &[Write]| {
        let _ = began.send(());
        // An error: the test is over, and nothing stalls any more.
        let _ = go.recv();
        store.commit(owner, writes)
    };
    let mut store = Hooked { store: MemoryStore::new(), commit };
    let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
    let live = Live::start(
        Box::new(store),
        Box::new(clock.clone()),
        Placement::fleet(rules),
        Ownership::alone(owner),
        |_| Assigned(assign),
        Box::new(Silent),
    );
    let inbox = live.inbox().clone();
    let (tell, told) = channel();
    let reply = Box::new(move |connected| drop(tell.send(connected)));
    inbox.connect(arriving("w", 8), reply).expect("heard");
    // A worker's arrival is news: its group has nothing to write, and is committed all the same.
    begins.recv_timeout(LONG).expect("news");
    assert!(
        told.try_recv().is_err(),
        "what an earlier life of it had may be lost by then, and is not durably"
    );
    goes.send(()).expect("it waits");
    told.recv_timeout(LONG).expect("answered").expect("the name is free");

    let submitting: Vec<_> = (0..3)
        .map(|n| {
            let inbox = inbox.clone();
            std::thread::spawn(move || inbox.submit(accepted(&format!("job{n}")), None))
        })
        .collect();
    begins.recv_timeout(LONG).expect("a commit begins, and stalls");
    let (worker, incarnation): (Arc<str>, Arc<str>) = ("w".into(), "1".into());
    // Twelve leases pass.
    for _ in 0..60 {
        *clock.0.lock().expect("whole") += 1000;
        let (tell, told) = channel();
        let reply = Box::new(move |known| {
            let _ = tell.send(known);
        });
        inbox.beat(&worker, &incarnation, reply).expect("heard");
        assert!(told.recv_timeout(LONG).expect("answered"), "it is known, and believed");
        let (tell, told) = channel();
        inbox.look(move |engine| drop(tell.send(Engine::workers(engine)))).expect("heard");
        assert_eq!(told.recv_timeout(LONG).expect("answered").len(), 1);
    }
    assert!(submitting.iter().all(|one| !one.is_finished()), "nothing is acknowledged meanwhile");
    // Work meets the bound of its lane, and whoever sends more is told.
    let cancel = |n: usize| {
        let job = JobId::from(format!("nobody{n}"));
        inbox.send(&job, Input::Cancel(Requester::NOBODY), Box::new(|_| ()))
    };
    let full = (0..1_000_000).find_map(|n| cancel(n).err());
    assert_eq!(full, Some(SendError::Full));

    drop(goes);
    for one in submitting {
        one.join().expect("ends").expect("it is durable");
    }
    let mut jobs: Vec<JobId> =
        (0..3).map(|_| assigned.recv_timeout(LONG).expect("they start").job).collect();
    jobs.sort();
    assert_eq!(jobs, ["job0".into(), "job1".into(), "job2".into()]);
    live.stop().expect("in order");
}
