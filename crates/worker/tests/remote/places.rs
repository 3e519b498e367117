//! The attempt's folder, environment, files and secrets; and names that are none.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

use steadfast_api::{WorkerReport, from_report, proto};
use steadfast_core::outcome::{FailureKind, Outcome, Permanence};
use steadfast_worker::remote::{RemoteConfig, RemoteError};

use super::server::Server;
use super::{Worker, config, entries, is_success, job, shell, until};

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_is_what_the_contract_says_and_no_more() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    // Cargo sets this for tests: something of ours that is passed on, among much that is not.
    let pass_env = vec!["CARGO_PKG_NAME".to_owned(), "NOT_SET_ANYWHERE".to_owned()];
    let _worker = Worker::start(RemoteConfig { pass_env, ..config(&server, folder.path()) });
    let mut session = server.session().await;
    let mut prints = shell(7, "env; echo PWD_IS=$(pwd)");
    prints.attempt.as_mut().unwrap().attempt = 3;
    prints.folder = "the-job_attempt_3".to_owned();
    prints.datacenter = "eu-west".to_owned();
    prints.item_json = r#"{"a":1}"#.to_owned();
    prints.ports = vec!["metrics".to_owned(), "side-door".to_owned()];
    prints.env = BTreeMap::from([
        ("MINE".to_owned(), "yes".to_owned()),
        ("STEADFAST_STEP".to_owned(), "forged".to_owned()),
    ]);
    session.assign(&prints).await;
    let log = String::from_utf8(session.whole_log(&prints).await).unwrap();
    let env: HashMap<_, _> = log.lines().filter_map(|line| line.split_once('=')).collect();
    let (job, mark) = (job(), format!("{}.7", job()));
    let workdir = folder.path().join("work").join(&job).join("the-job_attempt_3");
    let workdir = workdir.to_str().unwrap();
    for (name, value) in [
        ("STEADFAST_JOB_ID", job.as_str()),
        ("STEADFAST_STEP", "fetch"),
        ("STEADFAST_ITEM", r#"{"a":1}"#),
        ("STEADFAST_ITEM_INDEX", "7"),
        ("STEADFAST_ATTEMPT", "3"),
        ("STEADFAST_ATTEMPT_TOKEN", &mark),
        ("STEADFAST_DATACENTER", "eu-west"),
        ("STEADFAST_WORKDIR", workdir),
        ("PWD_IS", workdir),
        ("FLUSTER_ATTEMPT_ID", "2"),
        ("FLUSTER_JOB_ID", &job),
        ("MINE", "yes"),
        ("CARGO_PKG_NAME", "steadfast-worker"),
    ] {
        assert_eq!(env.get(name), Some(&value), "{name}");
    }
    let ports = ["STEADFAST_PORT_METRICS", "STEADFAST_PORT_SIDE_DOOR"].map(|name| env[name]);
    assert!(ports[0] != ports[1] && ports.iter().all(|port| port.parse::<u16>().unwrap() > 0));
    assert!(env.contains_key("PATH") && env.contains_key("STEADFAST_OUTPUT"));
    for absent in ["CARGO_MANIFEST_DIR", "NOT_SET_ANYWHERE"] {
        assert!(!env.contains_key(absent), "{absent}");
    }
    let report = session.report().await;
    session.acknowledge(&report).await;
    until("the folder goes", || entries(&folder.path().join("work")).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_fetched_once_and_copied_into_each_attempts_folder() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let long = "x".repeat(100_000);
    server.file("bin/go.sh", format!("#!/bin/sh\n: {long}\nwc -c < data\n").as_bytes(), true);
    server.file("data", &[7; 5_000], false);
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    for token in 1..=4 {
        let mut runs = shell(token, "./bin/go.sh && ! [ -x data ] && echo changed > data");
        runs.files = vec!["bin/go.sh".to_owned(), "data".to_owned()];
        session.assign(&runs).await;
        assert_eq!(session.whole_log(&runs).await.trim_ascii(), b"5000", "each has its own");
        let report = session.report().await;
        is_success(&report);
        session.acknowledge(&report).await;
    }
    assert_eq!(server.shared.fetched.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_that_are_copied_while_others_start_can_be_run() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    server.file("go.sh", b"#!/bin/sh\nexit 0\n", true);
    let _worker = Worker::start(RemoteConfig { slots: 8, ..config(&server, folder.path()) });
    let mut session = server.session().await;
    for token in 1..=80 {
        let mut runs = shell(token, "./go.sh");
        runs.action =
            Some(proto::assignment::Action::Argv(proto::Argv { argv: vec!["./go.sh".to_owned()] }));
        runs.files = vec!["go.sh".to_owned()];
        session.assign(&runs).await;
    }
    for _ in 1..=80 {
        let report = session.report().await;
        is_success(&report);
        session.acknowledge(&report).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_the_server_does_not_have_is_a_failure_of_the_job() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let mut runs = shell(1, "exit 0");
    runs.files = vec!["missing.sh".to_owned()];
    session.assign(&runs).await;
    let (_, outcome) = from_report(session.report().await).unwrap();
    let WorkerReport::Ended(Outcome::Failed(failure)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.error.as_ref().unwrap().kind.as_deref(), Some("files"));
    assert!(failure.describe().contains("missing.sh"), "{}", failure.describe());
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_come_from_the_worker_and_go_nowhere_but_the_process() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    std::fs::create_dir(folder.path().join("secrets")).unwrap();
    std::fs::write(folder.path().join("secrets/API_KEY"), "hunter2\n").unwrap();
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    let mut runs = shell(1, r#"[ "$API_KEY" = hunter2 ]"#);
    runs.secrets = vec!["API_KEY".to_owned()];
    session.assign(&runs).await;
    let report = session.report().await;
    is_success(&report);
    let kept = std::fs::read(folder.path().join("reports").join(format!("{}.1", job()))).unwrap();
    assert!(!String::from_utf8_lossy(&kept).contains("hunter2"));
    session.acknowledge(&report).await;

    let mut lacks = shell(2, "exit 0");
    lacks.secrets = vec!["API_KEY".to_owned(), "OTHER_KEY".to_owned()];
    session.assign(&lacks).await;
    let (_, outcome) = from_report(session.report().await).unwrap();
    let WorkerReport::Ended(Outcome::Failed(failure)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.kind, FailureKind::NotCompleted);
    let error = failure.error.unwrap();
    assert_eq!(error.kind.as_deref(), Some("secret_missing"));
    assert!(error.message.contains("OTHER_KEY") && !error.message.contains("hunter2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_paths_are_refused() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let inner = folder.path().join("a/b/worker");
    let _worker = Worker::start(config(&server, &inner));
    let mut session = server.session().await;
    let with = |change: &dyn Fn(&mut proto::Assignment)| {
        let mut assignment = shell(0, "touch ran");
        change(&mut assignment);
        assignment
    };
    let mut hostile = Vec::new();
    for name in ["..", "../up", "a/b", "/etc", "nul\0", "", ".", "new\nline", &"x".repeat(300)] {
        hostile.push(with(&|a| a.attempt.as_mut().unwrap().step_name = name.to_owned()));
        hostile.push(with(&|a| a.attempt.as_mut().unwrap().job_id = name.to_owned()));
        hostile.push(with(&|a| a.secrets = vec![name.to_owned()]));
        hostile.push(with(&|a| a.ports = vec![name.to_owned()]));
        if !name.is_empty() {
            hostile.push(with(&|a| a.folder = name.to_owned()));
        }
    }
    for path in ["..", "../up", "a/../../b", "/etc/passwd", "nul\0", "", ".", "a/.."] {
        hostile.push(with(&|a| a.files = vec!["fine".to_owned(), path.to_owned()]));
    }
    for name in ["A=B", "", "A\0"] {
        hostile.push(with(&|a| a.env = BTreeMap::from([(name.to_owned(), String::new())])));
    }
    let before = entries(folder.path());
    for (number, mut assignment) in hostile.into_iter().enumerate() {
        assignment.attempt.as_mut().unwrap().token = number as u64 + 1;
        session.assign(&assignment).await;
        let report = session.report().await;
        session.acknowledge(&report).await;
        let (attempt, outcome) = from_report(report).unwrap();
        assert_eq!(Some(attempt), assignment.attempt);
        let WorkerReport::Ended(Outcome::Failed(failure)) = outcome else {
            panic!("{assignment:?}: {outcome:?}")
        };
        assert_eq!(failure.permanence, Permanence::Said, "{assignment:?}");
        assert_eq!(failure.error.unwrap().kind.as_deref(), Some("assignment_refused"));
    }
    assert_eq!(server.shared.fetched.load(Ordering::SeqCst), 0);
    assert_eq!(entries(folder.path()), before);
    for name in ["work", "logs", "reports", "begun", "files"] {
        assert!(entries(&inner.join(name)).is_empty(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_workers_cannot_have_one_folder() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _first = Worker::start(config(&server, folder.path()));
    let _session = server.session().await;
    let ended = Worker::start(config(&server, folder.path())).ended().await;
    assert!(matches!(ended, Err(RemoteError::Taken(_))), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_an_earlier_life_are_ended_before_anything_begins() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    // What a worker leaves that was killed: a process, its mark, its folder, half of what it printed.
    for name in ["begun", "work/01OLD/fetch_0_attempt_1", "logs"] {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
    }
    let mark = format!("01OLD.{}", std::process::id());
    std::fs::write(folder.path().join("begun").join(&mark), "").unwrap();
    std::fs::write(folder.path().join("logs").join(format!("{mark}.log")), "half").unwrap();
    let mut old = std::process::Command::new("sleep")
        .arg("1000")
        .env("STEADFAST_ATTEMPT_TOKEN", &mark)
        .spawn()
        .unwrap();
    let _worker = Worker::start(config(&server, folder.path()));
    let session = server.session().await;
    assert!(old.try_wait().unwrap().is_some(), "it was ended before the hello");
    assert!(session.hello.holds.is_empty());
    for name in ["begun", "work", "logs"] {
        assert!(entries(&folder.path().join(name)).is_empty(), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_cannot_be_made_costs_the_job_nothing() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    let _worker = Worker::start(config(&server, folder.path()));
    let mut session = server.session().await;
    // Not by rights, which do not bind root.
    std::fs::remove_dir(folder.path().join("work")).unwrap();
    std::fs::write(folder.path().join("work"), "in the way").unwrap();
    session.assign(&shell(1, "exit 0")).await;
    let (_, outcome) = from_report(session.report().await).unwrap();
    let WorkerReport::Ended(Outcome::Lost { started: false, why: Some(why) }) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(why.contains("cannot make a folder"), "{why}");
}

/// What is in its folder is for the steps that the operator means, not for whoever guesses a name.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_the_operator_does_not_allow_is_given_to_no_step() {
    let (mut server, folder) = (Server::start(), tempfile::tempdir().unwrap());
    std::fs::create_dir(folder.path().join("secrets")).unwrap();
    for name in ["API_KEY", "DATABASE"] {
        std::fs::write(folder.path().join("secrets").join(name), "s3cret-value\n").unwrap();
    }
    let secrets_allowed = vec!["API_*".to_owned()];
    let config = RemoteConfig { secrets_allowed, ..config(&server, folder.path()) };
    let _worker = Worker::start(config);
    let mut session = server.session().await;
    let mut allowed = shell(1, "echo \"${#API_KEY} of $API_KEY, ${DATABASE-none}\"");
    allowed.secrets = vec!["API_KEY".to_owned()];
    session.assign(&allowed).await;
    // And what a process prints of it is left out.
    assert_eq!(session.whole_log(&allowed).await, "12 of …, none\n".as_bytes());
    is_success(&session.report().await);
    let mut refused = shell(2, "true");
    refused.secrets = vec!["DATABASE".to_owned()];
    session.assign(&refused).await;
    let (_, said) = from_report(session.report().await).unwrap();
    let WorkerReport::Ended(Outcome::Failed(failure)) = said else { panic!("{said:?}") };
    let error = failure.error.unwrap();
    assert_eq!(error.kind.as_deref(), Some("secret_missing"));
    assert!(error.message.contains("`--secret DATABASE`"), "{}", error.message);
}
