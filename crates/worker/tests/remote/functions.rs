//! Functions: tasks of the worker's own process, with no disk behind them.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use proto::assignment::Action;
use proto::failed::Kind;
use proto::from_worker;
use proto::report::Outcome as Wire;
use steadfast_api::{WorkerReport, proto};
use steadfast_core::outcome::Outcome;
use steadfast_worker::remote::{Call, Functions, RemoteConfig, Task};

use super::server::{LONG, Server};
use super::{Worker, assignment, config, entries, is_lost, is_success, until};

/// What the functions of one test share with it.
#[derive(Debug, Default)]
struct Known {
    begun: AtomicU32,
    dropped: AtomicU32,
    /// Sees that it is cancelled.
    cancelled: AtomicU32,
}

#[derive(Clone, Debug, Default)]
struct Named(Arc<Known>);

/// Counts when a function is dropped or has ended.
struct OnDrop(Arc<Known>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Functions for Named {
    fn names(&self) -> Vec<String> {
        vec!["echo".to_owned(), "hang".to_owned()]
    }

    fn call(&self, call: Call) -> Option<Task> {
        let known = self.0.clone();
        let task: Task = match call.name.as_str() {
            "echo" => Box::pin(async move {
                let output = serde_json::from_str(&call.input).ok();
                WorkerReport::Ended(Outcome::Succeeded { output })
            }),
            "hang" => Box::pin(async move {
                let _counted = OnDrop(known.clone());
                known.begun.fetch_add(1, Ordering::SeqCst);
                pending().await
            }),
            // Listens, and ends as its input says.
            "ends_when_asked" => Box::pin(async move {
                known.begun.fetch_add(1, Ordering::SeqCst);
                call.control.cancelled().await;
                known.cancelled.fetch_add(1, Ordering::SeqCst);
                if call.input == "null" {
                    return WorkerReport::Ended(Outcome::OK);
                }
                panic!("{}", call.input)
            }),
            "listens_and_goes_on" => Box::pin(async move {
                let _counted = OnDrop(known.clone());
                known.begun.fetch_add(1, Ordering::SeqCst);
                call.control.cancelled().await;
                known.cancelled.fetch_add(1, Ordering::SeqCst);
                pending().await
            }),
            "beats" => Box::pin(async move {
                // Longer than the silence that is allowed, but not silent.
                for beat in 0..10 {
                    call.control.say(Some(format!("{{\"beat\":{beat}}}")));
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                let output = serde_json::from_str(&call.assignment.progress_json).ok();
                WorkerReport::Ended(Outcome::Succeeded { output })
            }),
            "panics" => Box::pin(async move { panic!("no {}", call.input) }),
            _ => return None,
        };
        Some(task)
    }
}

fn call(token: u64, name: &str, input: &str) -> proto::Assignment {
    let call = proto::Call { name: name.to_owned(), input_json: input.to_owned() };
    assignment(token, Action::Call(call))
}

fn with(functions: &Named, config: RemoteConfig) -> RemoteConfig {
    RemoteConfig { functions: Some(Arc::new(functions.clone())), ..config }
}

#[track_caller]
fn failed(report: &proto::Report) -> &proto::Failed {
    match &report.outcome {
        Some(Wire::Failed(failed)) => failed,
        other => panic!("{other:?}"),
    }
}

async fn begun(functions: &Named, so_many: u32) {
    until("it has begun", || functions.0.begun.load(Ordering::SeqCst) == so_many).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_are_named_run_and_reported_without_a_trace_on_disk() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let functions = Named::default();
    let config = RemoteConfig { processes: false, ..config(&server, folder.path()) };
    let _worker = Worker::start(with(&functions, config));
    let mut session = server.session().await;
    assert_eq!(session.hello.functions, ["echo", "hang"]);
    assert!(!session.hello.processes);
    for token in 1..=100 {
        session.assign(&call(token, "echo", &format!("[{token}]"))).await;
    }
    for _ in 1..=100 {
        let report = session.report().await;
        let token = report.attempt.as_ref().unwrap().token;
        let output_json = format!("[{token}]");
        assert_eq!(report.outcome, Some(Wire::Succeeded(proto::Succeeded { output_json })));
        session.acknowledge(&report).await;
    }
    for place in ["begun", "work", "logs", "reports"] {
        assert!(entries(&folder.path().join(place)).is_empty(), "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_of_a_function_is_said_again_until_it_is_acknowledged() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let functions = Named::default();
    let _worker = Worker::start(with(&functions, config(&server, folder.path())));
    let mut session = server.session().await;
    session.assign(&call(1, "echo", "1")).await;
    let first = session.report().await;
    drop(session);
    let mut session = server.session().await;
    assert_eq!(session.hello.holds, [first.attempt.clone().unwrap()]);
    assert_eq!(session.report().await, first);
    // Assigned again while it is kept, it is not run again.
    session.assign(&call(1, "echo", "2")).await;
    session.acknowledge(&first).await;
    session.assign(&call(2, "echo", "3")).await;
    assert_eq!(session.report().await.attempt.unwrap().token, 2);
    drop(session);
    let mut session = server.session().await;
    assert_eq!(session.hello.holds.len(), 1);
    assert_eq!(session.report().await.attempt.unwrap().token, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_is_a_slot_whoever_takes_it() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let functions = Named::default();
    let one = RemoteConfig { slots: 1, ..config(&server, folder.path()) };
    let _worker = Worker::start(with(&functions, one));
    let mut session = server.session().await;
    let hangs = call(1, "hang", "null");
    session.assign(&hangs).await;
    session.assign(&call(2, "hang", "null")).await;
    session.assign(&super::shell(3, "exit 0")).await;
    begun(&functions, 1).await;
    session.withdraw(&hangs).await;
    begun(&functions, 2).await;
    session.withdraw(&call(2, "hang", "null")).await;
    is_success(&session.report().await);
    assert_eq!(functions.0.dropped.load(Ordering::SeqCst), 2);
    assert!(session.unasked().iter().all(|kind| !matches!(kind, from_worker::Kind::Report(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withdrawn_function_is_dropped_at_once_unless_it_listens() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let functions = Named::default();
    let grace = Duration::from_millis(200);
    let config = RemoteConfig { kill_grace: grace, ..config(&server, folder.path()) };
    let _worker = Worker::start(with(&functions, config));
    let session = server.session().await;
    let listens = call(1, "listens_and_goes_on", "null");
    session.assign(&listens).await;
    begun(&functions, 1).await;
    let withdrawn = tokio::time::Instant::now();
    session.withdraw(&listens).await;
    until("it is told", || functions.0.cancelled.load(Ordering::SeqCst) == 1).await;
    until("it is dropped", || functions.0.dropped.load(Ordering::SeqCst) == 1).await;
    assert!(withdrawn.elapsed() >= grace);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_long_and_too_silent_are_failures_and_a_panic_is_one() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let functions = Named::default();
    let _worker = Worker::start(with(&functions, config(&server, folder.path())));
    let mut session = server.session().await;

    session.assign(&proto::Assignment { timeout_ms: 20, ..call(1, "hang", "null") }).await;
    let report = session.report().await;
    assert_eq!(failed(&report).kind(), Kind::TimedOut);

    session.assign(&proto::Assignment { heartbeat_ms: 20, ..call(2, "hang", "null") }).await;
    let report = session.report().await;
    assert_eq!(
        (failed(&report).kind(), failed(&report).error_kind.as_str()),
        (Kind::TimedOut, "heartbeat")
    );
    assert_eq!(functions.0.dropped.load(Ordering::SeqCst), 2);

    // One that listens ends in its grace, and has timed out all the same.
    let listens = call(3, "ends_when_asked", "null");
    session.assign(&proto::Assignment { timeout_ms: 50, ..listens }).await;
    let report = session.report().await;
    assert_eq!(failed(&report).kind(), Kind::TimedOut);

    session.assign(&call(4, "panics", "\"way\"")).await;
    let report = session.report().await;
    let failed = failed(&report);
    assert_eq!((failed.kind(), failed.error_kind.as_str()), (Kind::HandlerFailed, "panic"));
    assert_eq!(failed.error_message, "the function panicked: no \"way\"");
    assert!(!failed.permanent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_this_worker_does_not_have_is_a_lasting_failure() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(with(&Named::default(), config(&server, folder.path())));
    let mut session = server.session().await;
    session.assign(&call(1, "unheard_of", "null")).await;
    let report = session.report().await;
    assert_eq!(failed(&report).error_kind, "unknown_function");
    assert!(failed(&report).permanent);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_said_at_most_once_a_second_and_the_last_of_it_before_the_report() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let functions = Named::default();
    let _worker = Worker::start(with(&functions, config(&server, folder.path())));
    let mut session = server.session().await;
    // Silent for less than it may be, many times.
    let beats = proto::Assignment {
        heartbeat_ms: 300,
        progress_json: "{\"before\":7}".to_owned(),
        ..call(1, "beats", "null")
    };
    session.assign(&beats).await;
    let report = session.report().await;
    let output_json = "{\"before\":7}".to_owned();
    assert_eq!(report.outcome, Some(Wire::Succeeded(proto::Succeeded { output_json })));
    let said: Vec<_> = session
        .aside()
        .iter()
        .filter_map(|kind| match kind {
            from_worker::Kind::Progress(progress) => Some(progress.progress_json.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(said, ["{\"beat\":0}", "{\"beat\":9}"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_has_to_go_asks_its_functions_first() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let functions = Named::default();
    let grace = Duration::from_millis(200);
    let config = RemoteConfig { drain_grace: grace, ..config(&server, folder.path()) };
    let mut worker = Worker::start(with(&functions, config));
    let mut session = server.session().await;
    session.assign(&call(1, "ends_when_asked", "null")).await;
    session.assign(&call(2, "ends_when_asked", "1")).await;
    session.assign(&call(3, "hang", "null")).await;
    begun(&functions, 3).await;
    worker.handle.drain();
    let mut reports = Vec::new();
    for _ in 0..3 {
        let report = session.report().await;
        session.acknowledge(&report).await;
        reports.push(report);
    }
    reports.sort_by_key(|report| report.attempt.as_ref().unwrap().token);
    is_success(&reports[0]);
    is_lost(&reports[1], true, "preempted");
    is_lost(&reports[2], true, "preempted");
    worker.ended().await.unwrap();
    assert_eq!(functions.0.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn functions_end_with_the_lease() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let functions = Named::default();
    let _worker = Worker::start(with(&functions, config(&server, folder.path())));
    let session = server.knock().await;
    session.welcome(Duration::from_secs(1), Duration::from_millis(50)).await;
    session.assign(&call(1, "listens_and_goes_on", "null")).await;
    begun(&functions, 1).await;
    server.shared.deaf.store(true, Ordering::SeqCst);
    until("it is dropped", || functions.0.dropped.load(Ordering::SeqCst) == 1).await;
    server.shared.deaf.store(false, Ordering::SeqCst);
    let mut session = server.knock().await;
    session.welcome(LONG, Duration::from_millis(50)).await;
    is_lost(&session.report().await, true, "the lease ended");
}
