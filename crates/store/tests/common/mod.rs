//! Jobs to put into a store.
#![allow(dead_code, unreachable_pub)] // each test takes what it needs

use std::collections::BTreeMap;

use steadfast_core::event::{Event, ItemId, JobState, Recorded, Role};
use steadfast_core::time::Timestamp;
use steadfast_store::{IdempotencyKey, Refused, Row, Store, Write};

pub fn row(id: &str) -> Row {
    Row {
        id: id.into(),
        name: "nightly".to_owned(),
        state: JobState::Running,
        submitted_at: Timestamp(1000),
        finished_at: None,
        due_at: None,
        over: false,
        labels: BTreeMap::new(),
        retried_from: None,
        local: false,
    }
}

/// With something of everything in it: text, numbers, an option.
pub fn record(seq: u64) -> Recorded {
    let item = ItemId { run: 0, step: 1, role: Role::Item, index: seq as u32 };
    let event = match seq % 3 {
        0 => Event::RetryDue { item },
        1 => Event::AttemptStarted { item, attempt: 7, token: seq, worker: "wörker-1".into() },
        _ => Event::StepReady { run: 0, step: 2, items: 3, values: Some([0.1.into()].into()) },
    };
    Recorded { seq, at: Timestamp(1000 + seq), event }
}

/// The next `count` events of a job in epoch 1.
pub fn write(id: &str, expected_seq: u64, count: u64) -> Write {
    Write {
        job: id.into(),
        epoch: 1,
        expected_seq,
        records: (1..=count).map(|n| record(expected_seq + n)).collect(),
        row: row(id),
        snapshot: None,
        key: None,
    }
}

pub fn key(key: &str, digest: &str) -> IdempotencyKey {
    IdempotencyKey { key: key.to_owned(), digest: digest.to_owned() }
}

#[allow(clippy::needless_pass_by_value, reason = "so it is called")]
pub fn commit(store: &mut impl Store, writes: Vec<Write>) -> Vec<Result<(), Refused>> {
    store.commit(&writes).expect("the store works")
}

/// One write that must be taken.
pub fn put(store: &mut impl Store, write: Write) {
    assert_eq!(commit(store, vec![write]), [Ok(())]);
}

pub fn log(store: &mut impl Store, id: &str) -> Vec<Recorded> {
    store.events(id, 0, usize::MAX).expect("the log is readable")
}

pub fn records(write: &Write) -> Vec<Recorded> {
    write.records.clone()
}
