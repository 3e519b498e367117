//! What it costs to keep events, and to open a file that has kept many.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use divan::Bencher;
use divan::counter::ItemsCount;
use steadfast_core::event::{Event, ItemId, JobState, RecordedEvent, Role};
use steadfast_core::time::Timestamp;
use steadfast_store::{Filter, Journal, Owner, Reader, Refused, Row, SqliteStore, Write};

fn main() {
    divan::main();
}

/// What a step of a job writes: attempts that start, and now and then a timer.
fn write(job: &str, expected_seq: u64, events: u64) -> Write {
    let record = |seq: u64| {
        let item = ItemId { run: 0, step: 1, role: Role::Item, index: seq as u32 };
        let event = Event::AttemptStarted {
            item,
            attempt: 3,
            token: seq,
            worker: "worker-17".into(),
            incarnation: None,
        };
        RecordedEvent { seq, at: Timestamp(seq), event }
    };
    Write {
        job: job.into(),
        expected_seq,
        records: (1..=events).map(|n| record(expected_seq + n)).collect(),
        row: Row {
            id: job.into(),
            name: "nightly".to_owned(),
            state: JobState::Running,
            submitted_at: Timestamp(1),
            finished_at: None,
            wake_at: Some(Timestamp(0)),
            queued: None,
            over: false,
            labels: BTreeMap::new(),
            retried_from: None,
            local: false,
        },
        snapshot: None,
        key: None,
        readiness: None,
    }
}

fn id(job: u64) -> String {
    format!("01jd0v9k3w8x5m2p7q4r6s{job:04}")
}

#[allow(clippy::needless_pass_by_value, reason = "so it is called")]
fn take(store: &mut SqliteStore, group: Vec<Write>) {
    // The first epoch of an owner; the first of all makes it.
    let owner = Owner { id: Owner::SHARD.into(), epoch: 1 };
    let mut answers = store.commit(&owner, &group).expect("the store works");
    if matches!(answers[0], Err(Refused::Fenced { current: 0, .. })) {
        store.take(&owner.id, Timestamp(0), None).expect("the store works");
        answers = store.commit(&owner, &group).expect("the store works");
    }
    assert!(answers.iter().all(Result::is_ok));
}

/// 256 events, synced, as so many jobs have something to say at once.
#[divan::bench(args = [1, 16, 64, 256], sample_count = 200)]
fn group_of_256_events(bencher: Bencher, jobs: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = SqliteStore::open(&folder.path().join("jobs.db")).expect("it opens");
    let each = 256 / jobs;
    take(&mut store, (0..jobs).map(|job| write(&id(job), 0, 1)).collect());
    let (store, seq) = (RefCell::new(store), RefCell::new(1));
    bencher
        .counter(ItemsCount::new(256u64))
        .with_inputs(|| {
            let from = seq.replace_with(|seq| *seq + each);
            (0..jobs).map(|job| write(&id(job), from, each)).collect()
        })
        .bench_local_values(|group: Vec<_>| take(&mut store.borrow_mut(), group));
}

/// A million events of ten thousand jobs that all go on.
fn million(path: &Path) {
    let mut store = SqliteStore::open(path).expect("it opens");
    for hundred in 0..100 {
        let jobs = hundred * 100..(hundred + 1) * 100;
        take(&mut store, jobs.map(|job| write(&id(job), 0, 100)).collect());
    }
}

#[divan::bench(sample_count = 50)]
fn open_a_file_with_a_million_events(bencher: Bencher) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    million(&path);
    bencher.bench_local(|| SqliteStore::open(&path).expect("it opens"));
}

#[divan::bench(sample_count = 50)]
fn first_page_of_ten_thousand_live_jobs(bencher: Bencher) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    million(&path);
    let mut store = SqliteStore::open(&path).expect("it opens");
    let live = Filter { over: Some(false), ..Filter::default() };
    bencher.bench_local(move || store.list(&live, None, 50).expect("a page"));
}
