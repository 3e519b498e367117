//! What waits at the worker for a slot: at most for a second, and only while it is wanted.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use proto::assignment::Action;
use steadfast_api::{WorkerReport, proto};
use steadfast_core::outcome::Outcome;
use steadfast_worker::remote::{Call, Functions, RemoteConfig, Task};

use super::server::{Server, Session};
use super::{Worker, assignment, config, is_lost, is_success, shell};

const WAITED: &str = "it waited too long for a slot";

/// Runs until the gate is open.
fn until_open(token: u64, gate: &Path) -> proto::Assignment {
    let gate = gate.display();
    shell(token, &format!("echo begun; while ! [ -e {gate} ]; do sleep 0.01; done"))
}

fn token(report: &proto::Report) -> u64 {
    report.attempt.as_ref().unwrap().token
}

/// A worker with one slot, which is taken.
async fn busy(server: &mut Server, folder: &Path, first: &proto::Assignment) -> (Worker, Session) {
    let worker = Worker::start(RemoteConfig { slots: 1, ..config(server, folder) });
    let mut session = server.session().await;
    assert!(session.hello.queues);
    session.assign(first).await;
    session.printed(first, "begun").await;
    (worker, session)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_too_long_for_a_slot_is_handed_back_as_not_begun() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let (gate, mark) = (marks.path().join("go"), marks.path().join("began"));
    let (_worker, mut session) = busy(&mut server, folder.path(), &until_open(1, &gate)).await;
    for waits in 2..=5 {
        session.assign(&shell(waits, &format!("touch {}", mark.display()))).await;
    }
    let mut back = Vec::new();
    for _ in 2..=5 {
        let report = session.report().await;
        is_lost(&report, false, WAITED);
        back.push(token(&report));
        session.acknowledge(&report).await;
    }
    back.sort_unstable();
    assert_eq!(back, [2, 3, 4, 5]);
    std::fs::write(&gate, "").unwrap();
    let report = session.report().await;
    is_success(&report);
    session.acknowledge(&report).await;
    assert!(!mark.exists(), "nothing that was handed back runs");
    session.assign(&shell(6, "exit 0")).await;
    let report = session.report().await;
    assert_eq!(token(&report), 6, "its slot is free");
    is_success(&report);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_and_is_withdrawn_never_begins_and_is_not_reported() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let (gate, mark) = (marks.path().join("go"), marks.path().join("began"));
    let (_worker, mut session) = busy(&mut server, folder.path(), &until_open(1, &gate)).await;
    let waits = shell(2, &format!("touch {}", mark.display()));
    session.assign(&waits).await;
    session.withdraw(&waits).await;
    // What is said is taken in order: with this answered, the withdrawal has arrived.
    session.undrain().await;
    session.undrained().await;
    std::fs::write(&gate, "").unwrap();
    let report = session.report().await;
    assert_eq!(token(&report), 1);
    session.acknowledge(&report).await;
    session.assign(&shell(3, "exit 0")).await;
    let report = session.report().await;
    assert_eq!(token(&report), 3);
    is_success(&report);
    let more = session.unasked();
    assert!(!more.iter().any(|kind| matches!(kind, proto::from_worker::Kind::Report(_))));
    assert!(!mark.exists());
}

/// The server counts its slot as free from the withdrawal on: what it gives for it is no queue.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_the_slot_of_one_that_is_being_stopped_is_not_handed_back() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let gate = marks.path().join("go");
    let wait = format!("while ! [ -e {} ]; do sleep 0.01; done", gate.display());
    let stubborn = shell(1, &format!("trap '' TERM; echo begun; {wait}"));
    let (_worker, mut session) = busy(&mut server, folder.path(), &stubborn).await;
    session.withdraw(&stubborn).await;
    session.assign(&shell(2, "exit 0")).await;
    session.assign(&shell(3, "exit 0")).await;
    // It came later than the other, so that one has waited as long.
    let report = session.report().await;
    assert_eq!(token(&report), 3);
    is_lost(&report, false, WAITED);
    session.acknowledge(&report).await;
    std::fs::write(&gate, "").unwrap();
    let report = session.report().await;
    assert_eq!(token(&report), 2);
    is_success(&report);
}

/// How many run at once.
#[derive(Clone, Debug, Default)]
struct Counted {
    now: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

impl Functions for Counted {
    fn names(&self) -> Vec<String> {
        vec!["count".to_owned()]
    }

    fn call(&self, _: Call) -> Option<Task> {
        let Self { now, most } = self.clone();
        Some(Box::pin(async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            WorkerReport::Ended(Outcome::OK)
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn however_much_waits_no_more_run_at_once_than_there_are_slots() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let counted = Counted::default();
    let functions: Option<Arc<dyn Functions>> = Some(Arc::new(counted.clone()));
    let three = RemoteConfig { slots: 3, functions, ..config(&server, folder.path()) };
    let _worker = Worker::start(three);
    let mut session = server.session().await;
    for token in 1..=500 {
        let call = proto::Call { name: "count".to_owned(), input_json: "null".to_owned() };
        session.assign(&assignment(token, Action::Call(call))).await;
    }
    let mut heard = std::collections::BTreeSet::new();
    while heard.len() < 500 {
        let report = session.report().await;
        assert!(heard.insert(token(&report)), "said twice: {report:?}");
        session.acknowledge(&report).await;
    }
    let most = counted.most.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} at once");
}
