//! Jobs to put into a store.
#![allow(dead_code, unreachable_pub)] // each test takes what it needs

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::event::{AcceptedJob, Event, ItemId, JobState, RecordedEvent, Role};
use steadfast_core::plan::{Action, Plan, PlanDraft, StepDraft};
use steadfast_core::policy::Policy;
use steadfast_core::time::Timestamp;
use steadfast_store::{IdempotencyKey, Journal, Owner, Reader, Refused, Row, Write};

pub fn row(id: &str) -> Row {
    Row {
        id: id.into(),
        name: "nightly".to_owned(),
        state: JobState::Running,
        submitted_at: Timestamp(1000),
        finished_at: None,
        wake_at: None,
        queued: None,
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
        1 => Event::AttemptStarted {
            item,
            attempt: 7,
            token: seq,
            worker: "wörker-1".into(),
            incarnation: None,
        },
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
        readiness: None,
    }
}

pub fn key(key: &str, digest: &str) -> IdempotencyKey {
    IdempotencyKey { key: key.to_owned(), digest: digest.to_owned() }
}

/// All that a store promises.
pub trait Store: Journal + Reader {}

impl<T: Journal + Reader> Store for T {}

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

/// A job that is accepted with a plan of this name, of a shape of its own, and a second event.
pub fn new_job(id: &str, plan: &str) -> Write {
    let step = StepDraft::new("s", Action::Run(format!("true {plan}")), Policy::default());
    let plan = Plan::new(PlanDraft::new(plan, vec![step])).expect("valid");
    let accepted = AcceptedJob::new(id.into(), Arc::new(plan));
    let event = Event::JobAccepted(Box::new(accepted));
    let first = RecordedEvent { seq: 1, at: Timestamp(1000), event };
    Write { records: vec![first, record(2)], ..write(id, 0, 2) }
}

/// As the job's first event has it.
pub fn plan_of(store: &mut impl Store, id: &str) -> Arc<Plan> {
    let first = store.events(id, 0, 1).expect("readable").remove(0);
    let Event::JobAccepted(accepted) = first.event else { panic!("{first:?}") };
    accepted.plan
}
