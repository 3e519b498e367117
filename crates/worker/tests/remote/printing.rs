//! What attempts print arrives whole and in order, and holds nothing up.

use std::sync::atomic::Ordering;

use steadfast_api::proto;
use tonic::Status;

use super::server::Server;
use super::{Worker, config, entries, is_success, shell, until};

/// More than a few messages, less than the cap.
const LINES: usize = 60_000;

fn lines() -> Vec<u8> {
    (1..=LINES).flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_does_not_wait_for_its_log_which_arrives_complete_and_in_order() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    // The server takes no piece of a log: beats, reports and assignments go on.
    let shared = server.shared.clone();
    let gate = shared.log_gate.lock().await;
    let talks = shell(1, &format!("seq {LINES}"));
    session.assign(&talks).await;
    let report = session.report().await;
    is_success(&report);
    assert!(report.log_follows);
    session.acknowledge(&report).await;
    let silent = shell(2, "true");
    session.assign(&silent).await;
    let report = session.report().await;
    is_success(&report);
    assert!(!report.log_follows, "it printed nothing");
    assert!(shared.logs.lock().unwrap().chunks.is_empty());
    drop(gate);
    assert!(session.end_of_log(&talks).await == lines());
    until("it is the server's now", || entries(&folder.path().join("logs")).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_goes_on_where_the_server_has_it_after_a_reconnection_and_in_the_next_life() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let talks = shell(1, &format!("seq {LINES}"));
    session.assign(&talks).await;
    let report = session.report().await;
    let refuse = |status| *server.shared.log_refusal.lock().unwrap() = status;
    refuse(Some(Status::unavailable("no disk")));
    session.acknowledge(&report).await;
    let name = report.attempt.as_ref().unwrap().id().to_string();
    let logs = folder.path().join("logs");
    let both = [format!("{name}.log"), format!("{name}.report")];
    until("the log is kept, and whose it is", || entries(&logs) == both).await;
    assert!(entries(&folder.path().join("reports")).is_empty());
    // What the server has of it by now, after its own restart.
    let have = lines().len() / 2;
    server.shared.logs.lock().unwrap().has(&name, &lines()[..have]);
    worker.vanish().await;
    drop(session);
    refuse(None);
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    assert!(session.hello.holds.is_empty(), "its report is over");
    assert!(session.end_of_log(&talks).await == lines());
    let sent: usize =
        server.shared.logs.lock().unwrap().chunks.iter().map(|it| it.bytes.len()).sum();
    assert!(sent < lines().len() - have + 4096, "{sent} bytes: what was there is not sent again");
    until("nothing is left of it", || entries(&logs).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_the_server_does_not_want_is_given_up() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    *server.shared.log_refusal.lock().unwrap() = Some(Status::permission_denied("not yours"));
    session.assign(&shell(1, "echo said")).await;
    let report = session.report().await;
    session.acknowledge(&report).await;
    until("it is not kept", || entries(&folder.path().join("logs")).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_allows_in_its_welcome_holds_for_the_attempts_that_follow() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    server.shared.log_bytes.store(20_000, Ordering::SeqCst);
    server.shared.output_bytes.store(100, Ordering::SeqCst);
    let _worker = Worker::start(config(&server, folder.path()));
    let output = r#"printf '"%0200d"' 7 > "$STEADFAST_OUTPUT""#;
    let mut session = server.session().await;
    let talks = shell(1, &format!("seq {LINES}"));
    session.assign(&talks).await;
    assert!(session.whole_log(&talks).await.len() <= 20_000 + 64);
    is_success(&session.report().await);
    session.assign(&shell(2, output)).await;
    let report = session.report().await;
    let Some(proto::report::Outcome::Failed(failed)) = &report.outcome else {
        panic!("{report:?}")
    };
    assert_eq!(failed.error_kind, "output_too_large");
    // The server comes back with other settings.
    server.shared.log_bytes.store(40_000, Ordering::SeqCst);
    server.shared.output_bytes.store(1000, Ordering::SeqCst);
    drop(session);
    let mut session = server.session().await;
    let talks = shell(3, &format!("seq {LINES}"));
    session.assign(&talks).await;
    let length = session.whole_log(&talks).await.len();
    assert!((30_000..=40_000 + 64).contains(&length), "{length}");
    session.assign(&shell(4, output)).await;
    loop {
        let report = session.report().await;
        if report.attempt.as_ref().unwrap().token == 4 {
            assert!(
                matches!(report.outcome, Some(proto::report::Outcome::Succeeded(_))),
                "{report:?}"
            );
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_seen_while_the_attempt_runs_and_after_a_reconnection() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let go = marks.path().join("go");
    let script = format!(
        "seq 1 1000; while ! [ -e {} ]; do sleep 0.01; done; seq 1001 {LINES}",
        go.display()
    );
    let talks = shell(1, &script);
    session.assign(&talks).await;
    session.printed(&talks, "\n1000\n").await;
    drop(session);
    let mut session = server.session().await;
    session.printed(&talks, "\n1000\n").await;
    std::fs::write(&go, "").unwrap();
    drop(session);
    let mut session = server.session().await;
    assert!(session.whole_log(&talks).await == lines());
    is_success(&session.report().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_log_beyond_its_cap_nothing_is_sent_that_changes_later() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let log_cap = 20_000;
    server.shared.log_bytes.store(log_cap, Ordering::SeqCst);
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let go = marks.path().join("go");
    let script =
        format!("seq {LINES}; while ! [ -e {} ]; do sleep 0.01; done; echo the end", go.display());
    let talks = shell(1, &script);
    session.assign(&talks).await;
    let first = session.output().await;
    assert_eq!((first.offset, first.last), (0, false));
    std::fs::write(&go, "").unwrap();
    drop(session);
    let mut session = server.session().await;
    let log = session.whole_log(&talks).await;
    assert!(lines().starts_with(&log[..log_cap as usize / 2]));
    assert!(first.bytes.len() as u64 <= log_cap / 2 && log.starts_with(&first.bytes));
    assert!(log.ends_with(format!("{LINES}\nthe end\n").as_bytes()));
    let text = String::from_utf8_lossy(&log);
    assert!(text.contains(" bytes left out …"), "{}", text.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_talk_at_once_do_not_mix() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let talks: Vec<_> = (1..=4).map(|token| shell(token, &format!("seq {LINES}"))).collect();
    for talk in &talks {
        session.assign(talk).await;
    }
    for talk in &talks {
        assert!(session.whole_log(talk).await == lines());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_arrive_as_they_are() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let talks = shell(1, r"printf '\000\377\033[31m\r\n'; printf oops >&2");
    session.assign(&talks).await;
    assert_eq!(session.whole_log(&talks).await, b"\0\xff\x1b[31m\r\noops");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_withdrawn_attempt_prints_until_its_end_arrives_too() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let talks = shell(
        1,
        &format!("trap 'seq 2 {LINES}; exit 3' TERM; echo 1; while :; do sleep 0.01 & wait; done"),
    );
    session.assign(&talks).await;
    session.printed(&talks, "1\n").await;
    session.withdraw(&talks).await;
    assert!(session.end_of_log(&talks).await == lines());
    until("nothing is left of it", || entries(&folder.path().join("logs")).is_empty()).await;
    drop(session);
    let session = server.session().await;
    assert!(session.hello.holds.is_empty(), "{:?}", session.hello.holds);
}
