//! A store that stalls: work waits, signs of life and questions are answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, RecordedEvent, Requester};
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Arriving, Assignment, Clock, Engine, FleetRules, Identity, Live, Observer, Ownership,
    Placement, SendError, Work, WorkerSpec, Workers,
};
use steadfast_store::{
    Filter, Gap, MemoryStore, Owner, Page, Refused, Row, Store, StoreError, Stored, Write,
};

use super::accepted;

/// Nothing here takes as long unless it hangs.
const LONG: Duration = Duration::from_mins(1);

/// Tells when a commit begins, and lets it go on when it is told to.
struct Stalling {
    store: MemoryStore,
    began: Sender<()>,
    go: Receiver<()>,
}

impl Store for Stalling {
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let _ = self.began.send(());
        // An error: the test is over, and nothing stalls any more.
        let _ = self.go.recv();
        self.store.commit(owner, writes)
    }
    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError> {
        self.store.take(owner, at, down_since)
    }
    fn gaps(&mut self, owner: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        self.store.gaps(owner, after)
    }
    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        self.store.get(job)
    }
    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError> {
        self.store.row(job)
    }
    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError> {
        self.store.key(key)
    }
    fn list(
        &mut self,
        filter: &Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.store.list(filter, cursor, limit)
    }
    fn events(
        &mut self,
        job: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        self.store.events(job, after, limit)
    }
    fn due(
        &mut self,
        owner: &str,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.store.due(owner, after, until, limit)
    }
    fn count(&mut self, owner: &str) -> Result<(u64, u64), StoreError> {
        self.store.count(owner)
    }
    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.store.purge(finished_before)
    }
    fn remove(&mut self, job: &str) -> Result<bool, StoreError> {
        self.store.remove(job)
    }
    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        self.store.park(job, why)
    }
    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError> {
        self.store.damage(job)
    }
}

/// Moved by the test alone.
#[derive(Debug, Clone)]
struct Hand(Arc<Mutex<u64>>);

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp(1_000_000 + self.monotonic_ms())
    }
    fn monotonic_ms(&self) -> u64 {
        *self.0.lock().expect("whole")
    }
}

struct Assigned(Sender<Assignment>);

impl Workers for Assigned {
    fn assign(&mut self, work: Box<Work>) {
        let _ = self.0.send(work.assignment);
    }
    fn withdraw(&mut self, over: Assignment) {
        panic!("nothing is withdrawn: {over:?}");
    }
    fn settled(&mut self, _: &JobId, _: u64) {}
}

struct Silent;

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
    let mut store = Stalling { store: MemoryStore::new(), began, go };
    let owner = store.take(Owner::SHARD, Timestamp(0), None).expect("memory");
    let live = Live::start(
        Box::new(store),
        Box::new(clock.clone()),
        Placement::fleet(rules),
        Ownership { owner, loader: None },
        |_| Assigned(assign),
        Box::new(Silent),
    );
    let inbox = live.inbox().clone();
    let spec = WorkerSpec { processes: true, ..worker("w") };
    let arriving = Arriving {
        spec,
        session: 1,
        returning: false,
        holds: BTreeSet::new(),
        identity: Identity { fingerprint: "f".into(), proven: false, owns_name: false },
    };
    let (tell, told) = channel();
    let reply = Box::new(move |connected| drop(tell.send(connected)));
    inbox.connect(arriving, reply).expect("heard");
    told.recv_timeout(LONG).expect("answered").expect("the name is free");
    // A worker's arrival is news: its group has nothing to write, and is committed all the same.
    begins.recv_timeout(LONG).expect("news");
    goes.send(()).expect("it waits");

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

fn worker(name: &str) -> WorkerSpec {
    WorkerSpec {
        name: name.into(),
        incarnation: "1".into(),
        datacenter: None,
        labels: BTreeMap::new(),
        slots: 8,
        cpu: None,
        memory_bytes: None,
        functions: BTreeSet::new(),
        processes: true,
        http: false,
        queues: false,
    }
}
