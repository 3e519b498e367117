//! Work ends with its lease, whatever the connection looks like.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::server::Server;
use super::{Worker, config, is_lost, is_success, shell, until};

const BEAT: Duration = Duration::from_millis(50);

fn is_there(pid: &str) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_killed_when_beats_are_not_answered_for_a_lease() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let one = steadfast_worker::remote::RemoteConfig { slots: 1, ..config(&server, folder.path()) };
    let _worker = Worker::start(one);
    let mut session = server.knock().await;
    session.welcome(Duration::from_millis(1_500), BEAT).await;
    // It would have the whole grace if it were merely stopped.
    let running = shell(1, "trap '' TERM; echo $$; while :; do sleep 0.01; done");
    session.assign(&running).await;
    session.assign(&shell(2, "exit 0")).await;
    let output = session.output().await;
    let pid = String::from_utf8_lossy(&output.bytes).trim().to_owned();
    assert!(is_there(&pid));
    server.shared.deaf.store(true, Ordering::SeqCst);
    until("it is killed at the end of the lease", || !is_there(&pid)).await;
    server.shared.deaf.store(false, Ordering::SeqCst);
    // The session that was silent is given up; what was lost is told in the next one.
    let mut session = server.session().await;
    assert!(session.hello.returning);
    let mut reports = [session.report().await, session.report().await];
    reports.sort_by_key(|report| report.attempt.as_ref().unwrap().token);
    is_lost(&reports[0], true, "the lease ended");
    // It had waited for longer than anything waits.
    is_lost(&reports[1], false, "it waited too long for a slot");
    for report in &reports {
        session.acknowledge(report).await;
    }
    session.assign(&shell(3, "exit 0")).await;
    is_success(&session.report().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_killed_at_the_end_of_the_lease_without_a_connection_too() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.knock().await;
    session.welcome(Duration::from_millis(1_500), BEAT).await;
    let running = shell(1, "echo $$; exec sleep 1000");
    session.assign(&running).await;
    let output = session.output().await;
    let pid = String::from_utf8_lossy(&output.bytes).trim().to_owned();
    *server.shared.refusal.lock().unwrap() = Some(tonic::Status::unavailable("closed"));
    drop(session);
    until("it is killed", || !is_there(&pid)).await;
    *server.shared.refusal.lock().unwrap() = None;
    let mut session = server.session().await;
    assert_eq!(session.hello.holds, [running.attempt.clone().unwrap()]);
    is_lost(&session.report().await, true, "the lease ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn answered_beats_keep_work_alive_for_longer_than_a_lease() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.knock().await;
    session.welcome(Duration::from_millis(1_500), BEAT).await;
    session.assign(&shell(1, "sleep 3")).await;
    is_success(&session.report().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_within_the_lease_keeps_what_runs() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.knock().await;
    session.welcome(Duration::from_secs(3), BEAT).await;
    let running = shell(1, "echo begun; sleep 4; echo still there");
    session.assign(&running).await;
    session.printed(&running, "begun").await;
    // Four sessions, of which each alone is too short for it.
    for _ in 0..3 {
        drop(session);
        session = server.knock().await;
        assert_eq!(session.hello.holds, [running.attempt.clone().unwrap()]);
        session.welcome(Duration::from_secs(3), BEAT).await;
    }
    is_success(&session.report().await);
}
