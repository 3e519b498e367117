//! What attempts print arrives whole, in order, and before their reports.

use proto::from_worker::Kind;
use steadfast_api::proto;
use steadfast_worker::remote::RemoteConfig;

use super::server::Server;
use super::{Worker, config, entries, is_success, shell, until};

/// More than a few messages, less than the cap.
const LINES: usize = 60_000;

fn lines() -> Vec<u8> {
    (1..=LINES).flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn output_arrives_complete_and_in_order_before_the_report() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let talks = shell(1, &format!("seq {LINES}"));
    session.assign(&talks).await;
    assert!(session.whole_log(&talks).await == lines());
    // What came while the log was waited for is put aside: no report was among it.
    assert!(session.aside().is_empty());
    is_success(&session.report().await);
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
    let _worker = Worker::start(RemoteConfig { log_cap, ..config(&server, folder.path()) });
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
    for _ in &talks {
        is_success(&session.report().await);
    }
    let said = session.unasked();
    for talk in &talks {
        let mut log = Vec::<u8>::new();
        for kind in &said {
            if let Kind::Output(proto::Output { attempt, offset, bytes, .. }) = kind
                && *attempt == talk.attempt
            {
                log.truncate(*offset as usize);
                assert_eq!(log.len() as u64, *offset);
                log.extend(bytes);
            }
        }
        assert!(log == lines());
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
    // Its first words were heard above.
    let first = b"1\n".len();
    assert!(session.whole_log(&talks).await[first..] == lines()[first..]);
    until("nothing is left of it", || entries(&folder.path().join("logs")).is_empty()).await;
    drop(session);
    let session = server.session().await;
    assert!(session.hello.holds.is_empty(), "{:?}", session.hello.holds);
}
