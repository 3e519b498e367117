//! Slots, their queue, and what becomes of what waits in it.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use steadfast_api::WorkerReport;
use steadfast_core::event::AttemptId;
use steadfast_worker::{
    Capacity, Driver, Folders, LONGEST_WAIT, Settled, TaskControl, TimedTask, Transport, Work,
    run_and_tell,
};

use super::*;

/// Attempts by numbers; what becomes of them is told in order.
struct Recorder {
    reports: SyncSender<(u64, WorkerReport)>,
    under_way: AtomicUsize,
    most: Arc<AtomicUsize>,
}

struct Numbered {
    number: u64,
    /// None: the thread that runs it panics.
    attempt: Option<Attempt>,
}

impl Work for Numbered {
    type Attempt = u64;

    fn id(&self) -> AttemptId {
        id(self.number)
    }

    fn attempt(&self) -> u64 {
        self.number
    }

    fn is_task(&self) -> bool {
        false
    }
}

impl Transport for Recorder {
    type Work = Numbered;

    const REPORTS_WAIT: bool = false;

    fn run(&self, work: &Numbered, stop: &Stop, started: &dyn Fn()) -> (Ended, String) {
        let Some(attempt) = &work.attempt else { panic!("of all things") };
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let ended = run_and_tell(attempt, stop, started);
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        (ended, String::new())
    }

    fn unwatchable(&self, _: &io::Error) -> Outcome {
        Outcome::NOT_BEGUN
    }

    fn task(&self, _: Numbered, _: &TaskControl) -> Result<TimedTask, Outcome> {
        Err(Outcome::NOT_BEGUN)
    }

    fn grace(&self) -> Duration {
        Duration::ZERO
    }

    fn report(&self, _: &AttemptId, settled: Settled<u64>, _: Option<&TaskControl>) {
        let _ = self.reports.send((settled.attempt, settled.report));
    }
}

fn id(number: u64) -> AttemptId {
    AttemptId::new("job", number)
}

fn driver(slots: u32) -> (Driver<Recorder>, Receiver<(u64, WorkerReport)>, Arc<AtomicUsize>) {
    // More than any test here assigns: nobody waits to tell.
    let (reports, over) = sync_channel(100);
    let most = Arc::new(AtomicUsize::new(0));
    let recorder = Recorder { reports, under_way: AtomicUsize::new(0), most: most.clone() };
    (Driver::start(slots, Capacity::default(), recorder, None).unwrap(), over, most)
}

fn give(driver: &Driver<Recorder>, number: u64, attempt: Attempt) {
    driver.assign(Numbered { number, attempt: Some(attempt) });
}

const SUCCEEDED: WorkerReport = WorkerReport::Ended(Outcome::OK);
const LOST: WorkerReport = WorkerReport::Ended(Outcome::LOST);
const NEVER_BEGAN: WorkerReport = WorkerReport::Ended(Outcome::NOT_BEGUN);

/// One that has begun, and goes on until something is written to the second pipe.
fn begin_long(driver: &Driver<Recorder>, folder: &Folder, number: u64) -> PathBuf {
    let (begun, go) = (folder.fifo(&format!("begun{number}")), folder.fifo(&format!("go{number}")));
    give(driver, number, folder.shell(&format!("echo > begun{number}; read line < go{number}")));
    fs::read(begun).unwrap();
    go
}

#[test]
fn what_waits_too_long_is_handed_back_and_never_begins() {
    let folder = Folder::new();
    let (driver, over, _) = driver(1);
    let go = begin_long(&driver, &folder, 1);
    give(&driver, 2, folder.shell("echo > ran"));
    let handed_back = WorkerReport::Ended(Outcome::handed_back());
    assert_eq!(over.recv_timeout(LONGEST_WAIT * 20), Ok((2, handed_back)));
    assert!(!driver.is_idle());
    fs::write(go, "\n").unwrap();
    assert_eq!(over.recv_timeout(LONG), Ok((1, SUCCEEDED)));
    // The same, assigned again, has a slot now.
    give(&driver, 2, folder.shell("echo > ran"));
    assert_eq!(over.recv_timeout(LONG), Ok((2, SUCCEEDED)));
    assert!(folder.path("ran").exists());
    driver.close();
}

#[test]
fn what_waits_when_all_is_stopped_never_began() {
    let folder = Folder::new();
    let (driver, over, _) = driver(1);
    begin_long(&driver, &folder, 1);
    give(&driver, 2, folder.shell("echo > ran"));
    give(&driver, 3, folder.shell("echo > ran"));
    driver.stop_all();
    give(&driver, 4, folder.shell("echo > ran"));
    let mut told: Vec<_> = (0..4).map(|_| over.recv_timeout(LONG).unwrap()).collect();
    told.sort_by_key(|(number, _)| *number);
    assert_eq!(told, [(1, LOST), (2, NEVER_BEGAN), (3, NEVER_BEGAN), (4, NEVER_BEGAN)]);
    assert!(!folder.path("ran").exists());
    while !driver.is_idle() {
        std::thread::yield_now();
    }
}

#[test]
fn one_that_is_withdrawn_leaves_the_others_and_its_slot() {
    let folder = Folder::new();
    let (driver, over, _) = driver(1);
    begin_long(&driver, &folder, 1);
    give(&driver, 2, folder.shell("echo > ran"));
    give(&driver, 3, folder.shell("exit 0"));
    driver.withdraw(&id(2));
    driver.withdraw(&id(1));
    assert_eq!(over.recv_timeout(LONG), Ok((1, LOST)));
    assert_eq!(over.recv_timeout(LONG), Ok((3, SUCCEEDED)));
    assert!(!folder.path("ran").exists() && over.try_recv().is_err(), "2 never began");
}

#[test]
fn however_many_wait_no_more_run_than_there_are_slots() {
    let folder = Folder::new();
    let (driver, over, most) = driver(3);
    for number in 0..60 {
        give(&driver, number, folder.argv(&["/bin/true"]));
    }
    let mut numbers: Vec<_> = over.iter().take(60).map(|(number, _)| number).collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..60), "each is told of once");
    assert!(most.load(Ordering::SeqCst) <= 3);
}

#[test]
fn a_thread_that_panics_frees_its_slot_and_its_attempt_is_reported() {
    let folder = Folder::new();
    let (driver, over, _) = driver(1);
    for number in 1..=3 {
        driver.assign(Numbered { number, attempt: None });
        let (told, report) = over.recv_timeout(LONG).unwrap();
        let WorkerReport::Ended(Outcome::Failed(failure)) = report else { panic!("{report:?}") };
        let error = failure.error.unwrap();
        assert_eq!((told, failure.kind), (number, FailureKind::NotCompleted));
        assert_eq!(error.kind.as_deref(), Some("worker_panic"));
        assert!(error.message.contains("of all things"), "{}", error.message);
    }
    give(&driver, 4, folder.argv(&["/bin/true"]));
    assert_eq!(over.recv_timeout(LONG), Ok((4, SUCCEEDED)));
}

#[test]
fn only_an_empty_folder_of_a_success_is_handed_on() {
    let place = Folder::new();
    let folders = Folders::new(false);
    for name in ["empty", "full", "failed"] {
        folders.make(name, &place.path(name)).unwrap();
    }
    fs::write(place.path("full").join("file"), "").unwrap();
    folders.leave(&"failed");
    for name in ["empty", "full", "failed"] {
        folders.settled(&name);
    }
    for name in ["a", "b", "c"] {
        folders.make(name, &place.path(name)).unwrap();
        assert!(fs::read_dir(place.path(name)).unwrap().next().is_none());
    }
    let left = ["empty", "full", "failed"].map(|name| place.path(name).exists());
    assert_eq!(left, [false, true, true]);
}

#[test]
fn an_empty_folder_that_is_as_a_new_one_is_handed_on_to_one_attempt_of_the_next_jobs() {
    let place = Folder::new();
    let shelf = place.path("shelf");
    fs::create_dir(&shelf).unwrap();
    let folders = || Folders::new(false).with_shelf(shelf.clone());
    let entries = |folder: &str| fs::read_dir(place.path(folder)).unwrap().count();
    let first = folders();
    for name in ["empty", "empty too", "closed", "full", "failed", "unsettled"] {
        first.make(name, &place.path("first").join(name)).unwrap();
    }
    fs::set_permissions(place.path("first/closed"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::write(place.path("first/full/file"), "").unwrap();
    first.leave(&"failed");
    for name in ["empty", "empty too", "closed", "full"] {
        first.settled(&name);
    }
    first.shelve("first");
    assert_eq!((entries("first"), entries("shelf")), (4, 2));
    // The second knows of both, and the third takes the one that it has left.
    let (second, third) = (folders(), folders());
    second.make("a", &place.path("second/a")).unwrap();
    third.make("a", &place.path("third/a")).unwrap();
    assert_eq!(entries("shelf"), 0);
    second.make("b", &place.path("second/b")).unwrap();
    let modes = ["second", "second/a", "second/b", "third/a"]
        .map(|folder| fs::metadata(place.path(folder)).unwrap().permissions().mode());
    assert_eq!(modes, [modes[0]; 4]);
    assert_eq!((entries("second"), entries("third")), (2, 1));
    // What nobody could take makes room.
    for (odd, mode) in [("used", 0o755), ("closed", 0o500)] {
        fs::create_dir(shelf.join(odd)).unwrap();
        fs::set_permissions(shelf.join(odd), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(shelf.join("used/file"), "").unwrap();
    folders().make("a", &place.path("fourth/a")).unwrap();
    assert_eq!((entries("fourth/a"), entries("shelf")), (0, 0));
}
