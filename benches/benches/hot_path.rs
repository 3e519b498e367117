//! The way of a one-call job through the server, without its network and threads: read, decided, stored, reported, stored. For
//! `benches/instructions`, which counts what it executes.
//!
//!     hot_path JOBS

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;

use serde_json::json;
use steadfast_benches::Folder;
use steadfast_core::decide::Input;
use steadfast_core::event::AcceptedJob;
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;
use steadfast_engine::{Controller, Group, Outgoing, Placement, Request, Slots};
use steadfast_jobfile::{Operator, RecurringFile, load};
use steadfast_store::{IdempotencyKey, Journal as _, Owner, SqliteStore};

/// Jobs in one transaction.
const GROUP: u64 = 16;

fn main() {
    let jobs = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    // `cargo test --benches` only wants to know that it starts.
    let Some(jobs) = jobs else { return };
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path()).expect("a folder");
    let mut store = SqliteStore::open(&folder.path().join("steadfast.db")).expect("a store");
    let owner = store.take(Owner::SHARD, Timestamp(1), None).expect("an owner");
    let mut controller = Controller::new(Placement::here(Slots::unlimited(), "w1"));
    let operator = Operator::default();
    let mut commit = |group: Group| {
        let answers = store.commit(&owner, &group.writes).expect("stored");
        assert!(answers.iter().all(Result::is_ok));
        group.committed(answers)
    };
    let (mut ended, mut known) = (0, None::<RecurringFile>);
    for first in (0..jobs).step_by(GROUP as usize) {
        let at = Timestamp(1_800_000_000_000 + first);
        let submits = (first..jobs.min(first + GROUP)).map(|number| {
            let text = json!({
                "name": "separate",
                "steps": { "s": { "call": "nothing", "input": number, "retry": { "max_attempts": 3 } } },
            });
            let text = text.to_string();
            let plan = known.as_ref().and_then(|file| file.plan(&text)).unwrap_or_else(|| {
                let plan = load("job.json", text.as_bytes(), &operator).expect("valid").plan;
                known = RecurringFile::of(&text, &plan, &operator);
                plan
            });
            let accepted = Box::new(AcceptedJob::new(format!("{number:026}").into(), Arc::new(plan)));
            let key = Some(IdempotencyKey { key: format!("key-{number:020}"), digest: "0".repeat(64) });
            (Some(number), Request::Submit { accepted, key })
        });
        let submits: Vec<_> = submits.collect();
        let begun = commit(controller.step(submits, at).expect("jobs"));
        let reports = begun.effects.into_iter().map(|effect| {
            let Outgoing::Assign(work) = effect else { panic!("{effect:?}") };
            let (item, token) = (work.assignment.item, work.assignment.token);
            let outcome = Outcome::Succeeded { output: Some(json!(first)) };
            let input = Input::Report { item, token, outcome };
            (None, Request::Input { job: work.assignment.job, input })
        });
        let reports: Vec<_> = reports.collect();
        ended += commit(controller.step(reports, at).expect("ends")).ended.len() as u64;
    }
    assert_eq!(ended, jobs);
}
