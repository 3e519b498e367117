//! A worker's process that is killed in the middle of a call: its attempt is a loss, no failure, and the next
//! one knows how far it was. The program is its own worker, in another process, when it is told so.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use steadfast::{Client, Context, Error, Job, Retry, Step, Worker};
use steadfast_server::clock::SystemClock;
use steadfast_server::config::{Auth, Config};
use steadfast_server::serve::{ServerOptions, start};
use steadfast_store::Folder;

const SERVER: &str = "STEADFAST_KILLED_TEST_SERVER";
const LONG: Duration = Duration::from_mins(1);

/// Waits for ever the first time, having said where it is.
fn worker() -> Worker {
    let resumes = |ctx: Context, (): ()| async move {
        let Some(before) = ctx.previous_progress::<String>()? else {
            ctx.heartbeat("halfway")?;
            return std::future::pending().await;
        };
        Ok::<_, Error>((ctx.attempt(), before))
    };
    Worker::builder().function("resumes", resumes).build()
}

struct Killed(Child);

impl Killed {
    fn start(server: &str) -> Self {
        let program = std::env::current_exe().expect("a path");
        let child = Command::new(program).env(SERVER, server).stdin(Stdio::null()).spawn();
        Self(child.expect("a process"))
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::main]
async fn main() {
    if let Ok(server) = std::env::var(SERVER) {
        worker().run(server).await.expect("let in");
        return;
    }
    let tested = tokio::time::timeout(LONG, a_killed_worker_costs_a_preemption_and_no_progress());
    tested.await.expect("it ends");
    println!("a_killed_worker_costs_a_preemption_and_no_progress ... ok");
}

async fn a_killed_worker_costs_a_preemption_and_no_progress() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = Config::default();
    "127.0.0.1:0".clone_into(&mut config.server.listen);
    config.server.auth = Some(Auth::None);
    config.server.shutdown_grace_ms = 100;
    // So that a loss is soon noticed.
    (config.workers.lease_ms, config.workers.beat_ms) = (2000, 200);
    config.log.level = tracing::Level::ERROR;
    let options = ServerOptions {
        config,
        folder: Folder::new(folder.path().to_owned()),
        clock: Arc::new(SystemClock),
        inside: None,
    };
    let running = start(options).await.expect("a server");
    let address = running.url();
    let serving = tokio::spawn(running.until(std::future::pending()));

    let victim = Killed::start(&address);
    let client = Client::connect(&address).await.expect("a server");
    let once = Retry::new().max_attempts(1);
    let job = Job::new("killed").step(Step::call("s", "resumes").retry(once));
    let id = client.submit(&job).await.expect("taken");
    let mut statuses = Box::pin(client.watch(&id));
    loop {
        let status = statuses.next().await.expect("it goes on").expect("a server");
        let items = status.step("s").map_or(&[][..], |step| &step.items);
        if items.iter().any(|item| item.state == "running") {
            break;
        }
    }
    // Its word is on its way, or here: killed now, it may be lost with the process, so it is looked for.
    let stored = || std::fs::read(folder.path().join("steadfast.db-wal"));
    while !stored().is_ok_and(|bytes| bytes.windows(7).any(|part| part == b"halfway")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(victim);
    let _next = Killed::start(&address);
    let status = client.wait(&id).await.expect("ended");
    let given = status.output::<(u32, String)>("s").expect("typed");
    assert_eq!(given, Some((2, "halfway".to_owned())), "{status:?}");
    assert_eq!((status.failures, status.preemptions), (0, 1));
    let first = &status.step("s").expect("a step").items[0].attempts[0];
    assert!(first.is_worker_failure, "{first:?}");
    serving.abort();
}
