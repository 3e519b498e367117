//! Assignments in, reports out, whatever the connection does.

use std::sync::atomic::Ordering;

use steadfast_api::{WorkerReport, from_report, proto};
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_worker::remote::{RemoteConfig, RemoteError, Token};
use tonic::Status;

use super::server::{PROOF, Server};
use super::{Worker, assignment, config, entries, is_success, job, shell, until};
use proto::assignment::Action;

#[tokio::test(flavor = "multi_thread")]
async fn the_hello_says_what_the_worker_is() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut config = config(&server, folder.path());
    config.token = Some(Token("s3cret".to_owned()));
    assert!(!format!("{config:?}").contains("s3cret"));
    let _worker = Worker::start(config);
    let session = server.session().await;
    assert_eq!(session.authorization.as_deref(), Some("Bearer s3cret"));
    let hello = &session.hello;
    assert_eq!((hello.name.as_str(), hello.datacenter.as_str()), ("w1", "eu-west"));
    assert_eq!((hello.slots, hello.cpu, hello.memory_bytes), (4, 2.5, 0));
    assert_eq!(hello.labels["disk"], "fast");
    assert!(hello.processes && !hello.returning && hello.holds.is_empty());
    assert!(!hello.incarnation.is_empty());
    assert_eq!((hello.secret.len(), hello.proof.len()), (32, 0));
    let secret = format!("{:?}", hello.secret);
    assert!(!format!("{hello:?}").contains(&secret), "who prints it prints no secret");
}

type Check<'a> = Box<dyn Fn(&Outcome) -> bool + 'a>;

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_reported_as_they_were() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let call = Action::Call(proto::Call::default());
    let permanent = |kind: &str, outcome: &Outcome| match outcome {
        Outcome::Failed(failure) => {
            failure.permanence == steadfast_core::outcome::Permanence::Said
                && failure.error.as_ref().unwrap().kind.as_deref() == Some(kind)
        }
        _ => false,
    };
    let cases: Vec<(proto::Assignment, Check<'_>)> = vec![
        (shell(1, "exit 7"), Box::new(|o| *o == FailureKind::Exited(7).into())),
        (shell(2, "kill -9 $$"), Box::new(|o| *o == FailureKind::Signalled(9).into())),
        (
            shell(3, r#"echo '{"a":1}' > "$STEADFAST_OUTPUT""#),
            Box::new(|o| *o == Outcome::Succeeded { output: Some(serde_json::json!({ "a": 1 })) }),
        ),
        (
            shell(
                8,
                r#"echo '{"type":"ValueError","message":"bad"}' > "$STEADFAST_ERROR"; exit 1"#,
            ),
            Box::new(|o| {
                let failure = Failure {
                    error: Some(ErrorText {
                        kind: Some("ValueError".into()),
                        message: "bad".into(),
                    }),
                    ..Failure::new(FailureKind::Exited(1))
                };
                *o == Outcome::Failed(failure)
            }),
        ),
        (
            shell(
                9,
                r#"echo '{"type":"WrongVersion","message":"old","permanent":true,"started":false}' > "$STEADFAST_ERROR"; exit 1"#,
            ),
            Box::new(|o| {
                let kind = Some("WrongVersion".into());
                let failure = Failure {
                    permanence: steadfast_core::outcome::Permanence::Said,
                    error: Some(ErrorText { kind, message: "old".into() }),
                    ..Failure::new(FailureKind::NotCompleted)
                };
                *o == Outcome::Failed(failure)
            }),
        ),
        (
            proto::Assignment { timeout_ms: 50, ..shell(4, "exec sleep 1000") },
            Box::new(|o| *o == FailureKind::TimedOut.into()),
        ),
        (
            assignment(5, Action::Argv(proto::Argv { argv: vec!["no-such-program".to_owned()] })),
            Box::new(|o| matches!(o, Outcome::Failed(f) if f.kind == FailureKind::NotCompleted)),
        ),
        (
            assignment(6, Action::Impossible("no output of fetch".to_owned())),
            Box::new(|o| permanent("impossible", o)),
        ),
        (assignment(7, call), Box::new(|o| permanent("unknown_function", o))),
    ];
    for (assignment, is_right) in &cases {
        session.assign(assignment).await;
        let report = session.report().await;
        session.acknowledge(&report).await;
        let (attempt, said) = from_report(report).unwrap();
        let WorkerReport::Ended(outcome) = said else { panic!("{said:?}") };
        assert_eq!(Some(attempt), assignment.attempt);
        assert!(is_right(&outcome), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_is_sent_again_in_every_session_until_it_is_acknowledged() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let once = shell(1, "echo ran >> ../ran");
    session.assign(&once).await;
    let first = session.report().await;
    is_success(&first);
    drop(session);
    let mut session = server.session().await;
    assert!(session.hello.returning);
    assert_eq!(session.hello.holds, [once.attempt.clone().unwrap()]);
    assert_eq!(session.report().await, first);
    // Assigned again, it is held already.
    session.assign(&once).await;
    drop(session);
    let mut session = server.session().await;
    assert_eq!(session.report().await, first);
    session.acknowledge(&first).await;
    until("an acknowledged report is forgotten", || {
        entries(&folder.path().join("reports")).is_empty()
    })
    .await;
    drop(session);
    let mut session = server.session().await;
    assert!(session.hello.holds.is_empty());
    session.assign(&shell(2, "cat ../ran 2>/dev/null; exit 0")).await;
    assert_eq!(session.report().await.attempt.unwrap().token, 2, "the first one is over");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_survives_the_worker() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let proto::Hello { incarnation, secret, .. } = session.hello.clone();
    session.assign(&shell(1, "echo before the end; exit 3")).await;
    let report = session.report().await;
    worker.vanish().await;
    assert_eq!(entries(&folder.path().join("reports")), [format!("{}.1", job())]);

    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    assert_ne!(session.hello.incarnation, incarnation);
    let hello = &session.hello;
    assert_eq!((&hello.secret, &hello.proof[..]), (&secret, PROOF), "it is the same worker");
    assert!(!session.hello.returning);
    assert_eq!(session.hello.holds, [report.attempt.clone().unwrap()]);
    assert_eq!(session.whole_log(&shell(1, "")).await, b"before the end\n");
    assert_eq!(session.report().await, report);
    session.acknowledge(&report).await;
    until("what it printed goes with its report", || {
        ["reports", "logs"].iter().all(|name| entries(&folder.path().join(name)).is_empty())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_is_half_written_is_not_believed() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let reports = folder.path().join("reports");
    std::fs::create_dir_all(&reports).unwrap();
    std::fs::write(reports.join("01JOB.1.tmp"), "half").unwrap();
    std::fs::write(reports.join("01JOB.2"), [0xff; 20]).unwrap();
    let _worker = Worker::start(config(&server, folder.path()));
    let session = server.session().await;
    assert!(session.hello.holds.is_empty());
    assert_eq!(entries(&reports), ["01JOB.2"], "kept for people");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_is_assigned_twice_runs_once() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let ran = marks.path().join("ran");
    let go = marks.path().join("go");
    let script = format!(
        "echo ran >> {0}; echo begun; while ! [ -e {1} ]; do sleep 0.01; done",
        ran.display(),
        go.display()
    );
    let once = shell(1, &script);
    session.assign(&once).await;
    session.assign(&once).await;
    session.printed(&once, "begun").await;
    session.assign(&once).await;
    std::fs::write(&go, "").unwrap();
    let report = session.report().await;
    session.assign(&once).await;
    session.acknowledge(&report).await;
    session.assign(&shell(2, "exit 0")).await;
    assert_eq!(session.report().await.attempt.unwrap().token, 2);
    assert_eq!(std::fs::read_to_string(ran).unwrap(), "ran\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_run_at_once_than_there_are_slots_and_first_come_is_first_served() {
    for slots in [1, 3] {
        let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
        let marks = tempfile::tempdir().unwrap();
        let _worker = Worker::start(RemoteConfig { slots, ..config(&server, folder.path()) });
        let mut session = server.session().await;
        let at = marks.path().display();
        std::fs::create_dir(marks.path().join("inside")).unwrap();
        for token in 1..=12 {
            let script = format!(
                "cd {at}; touch inside/{token}; echo {token} >> order; ls inside | wc -l >> together; \
                 sleep 0.02; rm inside/{token}",
            );
            session.assign(&shell(token, &script)).await;
        }
        for _ in 1..=12 {
            let report = session.report().await;
            is_success(&report);
            session.acknowledge(&report).await;
        }
        let numbers = |file: &str| -> Vec<u32> {
            let text = std::fs::read_to_string(marks.path().join(file)).unwrap();
            text.lines().map(|line| line.trim().parse().unwrap()).collect()
        };
        let most = numbers("together").into_iter().max().unwrap();
        assert!((1..=slots).contains(&most), "{most} at once");
        if slots == 1 {
            assert_eq!(numbers("order"), (1..=12).collect::<Vec<_>>());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stream_ends_nothing_that_runs() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let marks = tempfile::tempdir().unwrap();
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let go = marks.path().join("go");
    let script = format!("echo begun; while ! [ -e {} ]; do sleep 0.01; done", go.display());
    let running = shell(1, &script);
    session.assign(&running).await;
    session.printed(&running, "begun").await;
    drop(session);
    let mut session = server.session().await;
    assert!(session.hello.returning);
    assert_eq!(session.hello.holds, [running.attempt.clone().unwrap()]);
    std::fs::write(&go, "").unwrap();
    is_success(&session.report().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_withdrawn_is_stopped_and_never_reported() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let mut config = config(&server, folder.path());
    config.slots = 1;
    let _worker = Worker::start(config);
    let mut session = server.session().await;
    let running = shell(1, "trap 'exit 0' TERM; echo begun; while :; do sleep 0.01; done");
    let waiting = shell(2, "exit 1");
    session.assign(&running).await;
    session.assign(&waiting).await;
    session.printed(&running, "begun").await;
    session.withdraw(&waiting).await;
    session.withdraw(&running).await;
    session.assign(&shell(3, "exit 0")).await;
    let report = session.report().await;
    assert_eq!(report.attempt.as_ref().unwrap().token, 3);
    session.acknowledge(&report).await;
    until("nothing is left of it", || {
        ["reports", "logs", "begun", "work"]
            .iter()
            .all(|name| entries(&folder.path().join(name)).is_empty())
    })
    .await;
    drop(session);
    assert!(server.session().await.hello.holds.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_at_the_start_ends_the_worker() {
    for status in [Status::unauthenticated("no such token"), Status::permission_denied("read only")]
    {
        let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
        *server.shared.refusal.lock().unwrap() = Some(status.clone());
        let mut worker = Worker::start(config(&server, folder.path()));
        match worker.ended().await {
            Err(RemoteError::Refused { message, .. }) => assert_eq!(message, status.message()),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_in_use_and_a_token_that_went_bad_are_waited_out() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let shared = server.shared.clone();
    let refuse = |status| *shared.refusal.lock().unwrap() = status;
    let refused = |times| {
        let shared = shared.clone();
        async move { until("tried on", || shared.refused.load(Ordering::SeqCst) >= times).await }
    };
    refuse(Some(Status::already_exists("w1 is here")));
    let worker = Worker::start(config(&server, folder.path()));
    refused(2).await;
    refuse(None);
    let session = server.session().await;
    refuse(Some(Status::unauthenticated("no such token")));
    drop(session);
    refused(4).await;
    assert!(!worker.task.is_finished());
    refuse(None);
    assert!(server.session().await.hello.returning);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_late_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut late = config(&Server::start(), folder.path());
    late.servers = vec![format!("http://{port}")];
    let _worker = Worker::start(late);
    let mut server = Server::start_at(port);
    let mut session = server.session().await;
    session.assign(&shell(1, "exit 0")).await;
    is_success(&session.report().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_none_is_said_at_once() {
    for address in ["", "127.0.0.1:7117", "ftp://127.0.0.1", "http://"] {
        let (server, folder) = (Server::start(), tempfile::tempdir().unwrap());
        let mut wrong = config(&server, folder.path());
        wrong.servers = vec![address.to_owned()];
        let ended = Worker::start(wrong).ended().await;
        assert!(matches!(ended, Err(RemoteError::Address { .. })), "{address}: {ended:?}");
    }
}
