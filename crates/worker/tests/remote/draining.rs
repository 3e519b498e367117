//! Leaving: on the server's order, and when told to go.

use std::time::Duration;

use steadfast_api::proto::from_worker::Kind;
use steadfast_worker::remote::RemoteConfig;

use super::server::Server;
use super::{Worker, config, entries, is_lost, is_success, job, shell, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_by_the_server_lets_what_runs_finish_and_hands_the_rest_back() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let one = RemoteConfig { slots: 1, ..config(&server, folder.path()) };
    let mut worker = Worker::start(one);
    let mut session = server.session().await;
    let go = marks.path().join("go");
    let wait = format!("echo begun; while ! [ -e {} ]; do sleep 0.01; done", go.display());
    let running = shell(1, &wait);
    session.assign(&running).await;
    session.printed(&running, "begun").await;
    session.assign(&shell(2, "exit 0")).await;
    session.drain().await;
    let why = session.draining().await;
    // One that was on its way when we said so goes back too.
    session.assign(&shell(3, "exit 0")).await;
    for token in [2, 3] {
        let report = session.report().await;
        assert_eq!(report.attempt.as_ref().unwrap().token, token);
        is_lost(&report, false, &why);
        session.acknowledge(&report).await;
    }
    assert!(!worker.task.is_finished());
    std::fs::write(&go, "").unwrap();
    let report = session.report().await;
    is_success(&report);
    session.acknowledge(&report).await;
    worker.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_the_server_takes_back_is_over_and_can_come_again() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let mut worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let go = marks.path().join("go");
    let wait = format!("echo begun; while ! [ -e {} ]; do sleep 0.01; done", go.display());
    let running = shell(1, &wait);
    session.assign(&running).await;
    session.printed(&running, "begun").await;
    session.drain().await;
    session.draining().await;
    session.undrain().await;
    session.undrained().await;
    session.assign(&shell(2, "exit 0")).await;
    let report = session.report().await;
    is_success(&report);
    session.acknowledge(&report).await;
    session.drain().await;
    session.draining().await;
    std::fs::write(&go, "").unwrap();
    let report = session.report().await;
    is_success(&report);
    session.acknowledge(&report).await;
    worker.ended().await.unwrap();
}

/// The worker hears of it before its new session has begun to send anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_undrain_is_answered_however_soon_after_the_welcome_it_comes() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let running = shell(1, "echo begun; while :; do sleep 0.01; done");
    session.assign(&running).await;
    session.printed(&running, "begun").await;
    for round in 0..20 {
        session.drain().await;
        session.draining().await;
        drop(session);
        session = server.knock().await;
        // Both are there when the worker reads for the first time.
        session.welcome_and_undrain().await;
        session.undrained().await;
        session.assign(&shell(2 + round, "exit 0")).await;
        let report = session.report().await;
        is_success(&report);
        session.acknowledge(&report).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_by_the_server_that_is_taken_back_keeps_no_worker_that_its_host_told_to_go() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let asked = folder.path().join("asked");
    let wait = "echo begun; while :; do sleep 0.01; done";
    let stubborn = shell(1, &format!("trap ': > {}' TERM; {wait}", asked.display()));
    session.assign(&stubborn).await;
    session.printed(&stubborn, "begun").await;
    session.drain().await;
    session.draining().await;
    worker.handle.drain();
    until("it is asked to end", || asked.exists()).await;
    session.undrain().await;
    session.undrained().await;
    assert_eq!(session.draining().await, "preempted", "it goes, and says so again");
    session.assign(&shell(2, "exit 0")).await;
    let report = session.report().await;
    is_lost(&report, false, "preempted");
    session.acknowledge(&report).await;
    worker.handle.kill();
    let report = session.report().await;
    session.acknowledge(&report).await;
    worker.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_its_host_told_to_go_goes_whatever_the_server_takes_back() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let stubborn = shell(1, "trap '' TERM; echo begun; while :; do sleep 0.01; done");
    session.assign(&stubborn).await;
    session.printed(&stubborn, "begun").await;
    worker.handle.drain();
    assert_eq!(session.draining().await, "preempted");
    session.undrain().await;
    session.undrained().await;
    assert_eq!(session.draining().await, "preempted", "and it says so again");
    worker.handle.kill();
    let report = session.report().await;
    session.acknowledge(&report).await;
    worker.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_told_to_go_reports_what_it_ran_as_preempted() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let three = RemoteConfig { slots: 3, ..config(&server, folder.path()) };
    let mut worker = Worker::start(three);
    let mut session = server.session().await;
    let wait = "echo begun; while :; do sleep 0.01; done";
    let dies = shell(1, wait);
    let fails = shell(2, &format!("trap 'exit 9' TERM; {wait}"));
    let finishes = shell(3, &format!("trap 'exit 0' TERM; {wait}"));
    let running = [&dies, &fails, &finishes];
    for assignment in running {
        session.assign(assignment).await;
    }
    for assignment in running {
        session.printed(assignment, "begun").await;
    }
    session.assign(&shell(4, "exit 0")).await;
    worker.handle.drain();
    assert_eq!(session.draining().await, "preempted");
    for _ in 1..=4 {
        let report = session.report().await;
        match report.attempt.as_ref().unwrap().token {
            3 => is_success(&report),
            token => is_lost(&report, token != 4, "preempted"),
        }
        session.acknowledge(&report).await;
    }
    worker.ended().await.unwrap();
    assert!(entries(&folder.path().join("reports")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ignores_its_order_to_end_is_killed_after_the_grace() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let drain_grace = Duration::from_millis(100);
    let mut worker = Worker::start(RemoteConfig { drain_grace, ..config(&server, folder.path()) });
    let mut session = server.session().await;
    let stubborn = shell(1, "trap '' TERM; echo begun; while :; do sleep 0.01; done");
    session.assign(&stubborn).await;
    session.printed(&stubborn, "begun").await;
    worker.handle.drain();
    let report = session.report().await;
    is_lost(&report, true, "preempted");
    session.acknowledge(&report).await;
    worker.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_order_to_go_waits_for_nobody_and_loses_no_report() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let stubborn = shell(1, "trap '' TERM; echo begun; while :; do sleep 0.01; done");
    session.assign(&stubborn).await;
    session.printed(&stubborn, "begun").await;
    worker.handle.drain();
    session.draining().await;
    worker.handle.kill();
    worker.ended().await.unwrap();
    assert_eq!(entries(&folder.path().join("reports")), [format!("{}.1", job())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_says_that_it_leaves_and_closes_its_session() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    session.assign(&shell(1, "exit 0")).await;
    let report = session.report().await;
    session.acknowledge(&report).await;
    worker.handle.drain();
    let said = session.ended().await;
    assert!(matches!(&said[..], [Kind::Draining(_)]), "{said:?}");
    drop(session);
    worker.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_without_a_server_can_leave() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut worker = Worker::start(config(&server, folder.path()));
    let session = server.session().await;
    *server.shared.refusal.lock().unwrap() = Some(tonic::Status::unavailable("closed"));
    drop(session);
    worker.handle.drain();
    worker.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_dropped_leaves_no_process_behind() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let running = shell(1, "echo $$; exec sleep 1000");
    session.assign(&running).await;
    let output = session.output().await;
    let pid: i32 = String::from_utf8_lossy(&output.bytes).trim().parse().unwrap();
    worker.vanish().await;
    until("it is killed", || !std::path::Path::new(&format!("/proc/{pid}")).exists()).await;
}
