//! Jobs to put into a store.
#![allow(dead_code, unreachable_pub)] // each test takes what it needs

use std::collections::BTreeMap;

use steadfast_core::event::{Event, ItemId, JobState, RecordedEvent, Role};
use steadfast_core::time::Timestamp;
use steadfast_store::{IdempotencyKey, Owner, Refused, Row, Store, Write};

pub fn row(id: &str) -> Row {
    Row {
        id: id.into(),
        name: "nightly".to_owned(),
        state: JobState::Running,
        submitted_at: Timestamp(1000),
        finished_at: None,
        wake_at: None,
        over: false,
        labels: BTreeMap::new(),
        retried_from: None,
        local: false,
    }
}

/// With something of everything in it: text, numbers, an option.
pub fn record(seq: u64) -> RecordedEvent {
    let item = ItemId { run: 0, step: 1, role: Role::Item, index: seq as u32 };
    let event = match seq % 3 {
        0 => Event::RetryDue { item },
        1 => Event::AttemptStarted { item, attempt: 7, token: seq, worker: "wörker-1".into() },
        _ => Event::StepReady { run: 0, step: 2, items: 3, values: Some([0.1.into()].into()) },
    };
    RecordedEvent { seq, at: Timestamp(1000 + seq), event }
}

/// The next `count` events of a job.
pub fn write(id: &str, expected_seq: u64, count: u64) -> Write {
    Write {
        job: id.into(),
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
    let owner = owner(store, Owner::SHARD);
    store.commit(&owner, &writes).expect("the store works")
}

/// Where the answer does not depend on it.
pub fn nobody() -> Owner {
    Owner { id: Owner::SHARD.into(), epoch: 1 }
}

/// Whoever it is now; made if there is none.
pub fn owner(store: &mut impl Store, id: &str) -> Owner {
    let guess = Owner { id: id.into(), epoch: 0 };
    match &store.commit(&guess, &[write("probe", 1, 1)]).expect("the store works")[0] {
        Err(Refused::Fenced { current: 0, .. }) => {
            store.take(id, Timestamp(0), None).expect("the store works")
        }
        Err(Refused::Fenced { current, .. }) => Owner { epoch: *current, ..guess },
        other => panic!("epoch 0 is nobody's: {other:?}"),
    }
}

/// One write that must be taken.
pub fn put(store: &mut impl Store, write: Write) {
    assert_eq!(commit(store, vec![write]), [Ok(())]);
}

pub fn log(store: &mut impl Store, id: &str) -> Vec<RecordedEvent> {
    store.events(id, 0, usize::MAX).expect("the log is readable")
}

pub fn records(write: &Write) -> Vec<RecordedEvent> {
    write.records.clone()
}
