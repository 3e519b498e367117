//! Attempts as other users, which only root can have: left out for everybody else.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;

use proto::report::Outcome;
use steadfast_api::proto;
use steadfast_worker::remote::RemoteConfig;
use steadfast_worker::{UserError, Users};

use crate::server::{Server, Session};
use crate::{Worker, config, entries, is_success, shell, until};

/// Of each test its own: who has a number ends all that has it.
fn users(first: u32) -> Option<Arc<Users>> {
    match Users::parse(&format!("{first}-{}", first + 3), 4) {
        Ok(users) => Some(Arc::new(users)),
        Err(UserError::NotRoot) => {
            println!("left out: only root can switch to another user");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// How it ended, and what it printed, which is something.
async fn run(session: &mut Session, script: &str) -> (proto::Report, String) {
    let assignment = shell(1, script);
    session.assign(&assignment).await;
    let log = String::from_utf8(session.whole_log(&assignment).await).unwrap();
    let report = session.report().await;
    session.acknowledge(&report).await;
    (report, log)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_is_a_user_of_its_own_and_comes_to_nothing_of_the_worker() {
    let Some(users) = users(70_000) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start();
    fs::create_dir(folder.path().join("secrets")).unwrap();
    fs::write(folder.path().join("secrets/KEY"), "hidden").unwrap();
    let users = Some(users);
    let _worker = Worker::start(RemoteConfig { users, ..config(&server, folder.path()) });
    let mut session = server.session().await;
    let own = folder.path().display();
    let script = format!(
        r#"set -e
        echo "uid $(id -u) $(id -g) $(id -G), umask owner $(stat -c %u .)"
        echo "home $HOME"
        for path in {own} {own}/reports {own}/logs {own}/secrets {own}/begun {own}/files {own}/work; do
            ls $path 2> /dev/null && echo "sees $path"
        done
        cat {own}/secrets/KEY 2> /dev/null && echo "reads a secret"
        echo x 2> /dev/null > {own}/reports/forged && echo "writes a report"
        echo '{{"ok": true}}' > result.json
        mv result.json "$STEADFAST_OUTPUT""#
    );
    let (report, log) = run(&mut session, &script).await;
    let Some(Outcome::Succeeded(succeeded)) = &report.outcome else { panic!("{report:?} {log}") };
    assert_eq!(succeeded.output_json, r#"{"ok":true}"#);
    let uid: u32 = log.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((70_000..=70_003).contains(&uid), "{log}");
    let first = format!("uid {uid} {uid} {uid}, umask owner {uid}\n");
    assert!(log.starts_with(&first), "{log}");
    assert!(!log.contains("sees") && !log.contains("reads") && !log.contains("writes"), "{log}");
    for name in ["reports", "logs", "begun", "files", "secrets"] {
        let about = fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!((about.permissions().mode() & 0o777, about.uid()), (0o700, 0), "{name}");
    }
    until("its folders go", || entries(&folder.path().join("work")).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_from_an_attempts_output_does_not_read_what_only_the_worker_may() {
    let Some(users) = users(70_010) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start();
    let hidden = folder.path().join("hidden.json");
    fs::write(&hidden, r#"{"hidden": true}"#).unwrap();
    let users = Some(users);
    let _worker = Worker::start(RemoteConfig { users, ..config(&server, folder.path()) });
    let mut session = server.session().await;
    let script = format!("echo links; ln -s {} $STEADFAST_OUTPUT", hidden.display());
    let (report, log) = run(&mut session, &script).await;
    let Some(Outcome::Failed(failed)) = &report.outcome else { panic!("{report:?} {log}") };
    assert!(failed.error_message.contains("cannot be read"), "{failed:?}");
}

/// Whatever it did to be forgotten: its user is nobody else's.
#[tokio::test(flavor = "multi_thread")]
async fn every_process_of_the_attempts_user_ends_with_it() {
    let Some(users) = users(70_020) else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::start();
    let users = Some(users);
    let _worker = Worker::start(RemoteConfig { users, ..config(&server, folder.path()) });
    let mut session = server.session().await;
    let script =
        "(setsid env -i sh -c 'echo $$ > left; exec sleep 1000' < /dev/null > /dev/null 2>&1 &)
        until [ -s left ]; do sleep 0.01; done; cat left";
    let (report, log) = run(&mut session, script).await;
    is_success(&report);
    assert!(!fs::exists(format!("/proc/{}/root", log.trim())).unwrap(), "{log}");
}

#[test]
fn root_and_strangers_are_no_users_for_attempts() {
    let refused = |text: &str, slots| Users::parse(text, slots).expect_err(text).to_string();
    let not_root = refused("nobody-of-this-name", 1).contains("only root can");
    if not_root {
        return;
    }
    assert!(refused("nobody-of-this-name", 1).contains("there is no user"));
    for text in ["root", "0", "0-5"] {
        assert!(refused(text, 1).contains("must not run as root"), "{text}");
    }
    assert!(refused("70000-70001", 3).contains("2 users for 3 slots"));
    assert!(refused("70001-70000", 1).contains("0 users for 1 slots"));
}
