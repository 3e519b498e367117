//! A worker against a server that is told what to do. Nothing here sleeps to wait for something: what an
//! attempt has done is told by what it prints, and every wait is bounded.

mod draining;
mod functions;
mod leases;
mod places;
mod printing;
mod queueing;
mod reporting;
mod scopes;
mod server;
mod users;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use proto::assignment::Action;
use proto::report::Outcome;
use server::{LONG, Server};
use steadfast_api::proto;
use steadfast_worker::remote::{Handle, RemoteConfig, RemoteError, serve};
use tokio::task::JoinHandle;
use tokio::time::timeout;

fn config(server: &Server, folder: &Path) -> RemoteConfig {
    RemoteConfig {
        servers: vec![server.url()],
        token: None,
        tls: None,
        door: None,
        name: "w1".to_owned(),
        datacenter: Some("eu-west".to_owned()),
        labels: BTreeMap::from([("disk".to_owned(), "fast".to_owned())]),
        slots: 4,
        cpu: Some(2.5),
        memory_bytes: None,
        processes: true,
        functions: None,
        outbound: None,
        pass_env: Vec::new(),
        folder: folder.to_owned(),
        secrets: None,
        secrets_allowed: vec!["*".to_owned()],
        users: None,
        grouped: false,
        drain_grace: LONG,
        kill_grace: LONG,
        keep: false,
    }
}

/// A worker in this process. It ends with the test.
struct Worker {
    handle: Handle,
    task: JoinHandle<Result<(), RemoteError>>,
}

impl Worker {
    fn start(config: RemoteConfig) -> Self {
        let (handle, orders) = Handle::new();
        Self { handle, task: tokio::spawn(serve(config, orders)) }
    }

    async fn ended(&mut self) -> Result<(), RemoteError> {
        timeout(LONG, &mut self.task).await.expect("it ends").unwrap()
    }

    /// As if it had been killed, but for its processes.
    async fn vanish(mut self) {
        self.task.abort();
        let _ = timeout(LONG, &mut self.task).await.expect("it ends");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Of this test alone: processes are found and ended by their job and token, wherever they run.
fn job() -> String {
    let thread = std::thread::current();
    let test: String = thread.name().unwrap_or_default().replace("::", "-");
    // The runtime's own threads have another name.
    assert!(test.contains('-') && !test.starts_with("tokio"), "called outside of a test: {test}");
    format!("{}-{}", std::process::id(), test.chars().take(90).collect::<String>())
}

fn assignment(token: u64, action: Action) -> proto::Assignment {
    proto::Assignment {
        attempt: Some(proto::AttemptRef {
            job_id: job(),
            token,
            index: token as u32,
            attempt: 1,
            step_name: "fetch".to_owned(),
            // As a server signs it: what is said of the attempt has it too.
            proof: token.to_le_bytes().to_vec(),
            ..Default::default()
        }),
        action: Some(action),
        ..Default::default()
    }
}

fn shell(token: u64, script: &str) -> proto::Assignment {
    assignment(token, Action::Run(script.to_owned()))
}

/// The report of an attempt that succeeded.
#[track_caller]
fn is_success(report: &proto::Report) {
    let success = Outcome::Succeeded(proto::Succeeded::default());
    assert_eq!(report.outcome.as_ref(), Some(&success), "{report:?}");
}

/// The report of one that we gave up.
#[track_caller]
fn is_lost(report: &proto::Report, started: bool, why: &str) {
    let lost = Outcome::Lost(proto::Lost { started, why: why.to_owned() });
    assert_eq!(report.outcome.as_ref(), Some(&lost), "{report:?}");
}

/// Waits for what nobody tells us of: a look every few milliseconds, bounded.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let looked = timeout(LONG, async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(looked.await.is_ok(), "{what}");
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
