//! A process that is killed in the middle of a call, a worker's or one with the engine inside: its attempt
//! is a loss, no failure, and the next one knows how far it was. The program is its own victim, in another
//! process, when it is told so.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use steadfast::{Client, Context, Embedded, Error, Job, Retry, Step, Worker};
use steadfast_server::clock::SystemClock;
use steadfast_server::config::{Auth, Config};
use steadfast_server::serve::{ServerOptions, start};
use steadfast_store::Folder;

const SERVER: &str = "STEADFAST_KILLED_TEST_SERVER";
/// The victim has an engine of its own, in this folder.
const FOLDER: &str = "STEADFAST_KILLED_TEST_FOLDER";
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
    fn start(variable: &str, value: &str) -> Self {
        let program = std::env::current_exe().expect("a path");
        let child = Command::new(program).env(variable, value).stdin(Stdio::null()).spawn();
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
    if let Ok(folder) = std::env::var(FOLDER) {
        let steadfast = Embedded::open(folder).worker(worker()).start().await.expect("an engine");
        steadfast.client().submit(&job()).await.expect("taken");
        return std::future::pending().await;
    }
    let tested = tokio::time::timeout(LONG, a_killed_worker_costs_a_preemption_and_no_progress());
    tested.await.expect("it ends");
    println!("a_killed_worker_costs_a_preemption_and_no_progress ... ok");
    let tested =
        tokio::time::timeout(LONG, an_engine_does_not_wait_for_the_worker_that_died_with_it());
    tested.await.expect("it ends");
    println!("an_engine_does_not_wait_for_the_worker_that_died_with_it ... ok");
}

fn job() -> Job {
    let once = Retry::new().max_attempts(1);
    Job::new("killed").step(Step::call("s", "resumes").retry(once))
}

/// Waits until the word of the first attempt is stored.
async fn halfway(folder: &Path) {
    let stored = || std::fs::read(folder.join("steadfast.db-wal"));
    while !stored().is_ok_and(|bytes| bytes.windows(7).any(|part| part == b"halfway")) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn an_engine_does_not_wait_for_the_worker_that_died_with_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let victim = Killed::start(FOLDER, folder.path().to_str().expect("text"));
    halfway(folder.path()).await;
    drop(victim);
    let steadfast = Embedded::open(folder.path()).worker(worker()).start().await;
    let steadfast = steadfast.expect("an engine");
    let client = steadfast.client();
    let jobs = client.list(&steadfast::Query::default()).await.expect("a list");
    let status = client.wait(&jobs[0].id).await.expect("ended");
    let attempts = &status.step("s").expect("a step").items[0].attempts;
    assert_eq!((status.failures, status.preemptions, attempts.len()), (0, 1, 2), "{status:?}");
    let lost = "the worker was lost: it was restarted";
    assert_eq!(attempts[0].error.as_deref(), Some(lost), "not the end of a lease: {status:?}");
    steadfast.stop().await.expect("stopped");
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
        storage: Folder::new(folder.path().to_owned()).storage(),
        clock: Arc::new(SystemClock),
        inside: None,
    };
    let running = start(options).await.expect("a server");
    let address = running.url();
    let serving = tokio::spawn(running.until(std::future::pending()));

    let victim = Killed::start(SERVER, &address);
    let client = Client::connect(&address).await.expect("a server");
    let id = client.submit(&job()).await.expect("taken");
    let mut statuses = Box::pin(client.watch(&id));
    loop {
        let status = statuses.next().await.expect("it goes on").expect("a server");
        let items = status.step("s").map_or(&[][..], |step| &step.items);
        if items.iter().any(|item| item.state == steadfast::ItemState::Running) {
            break;
        }
    }
    // Its word is on its way, or here: killed now, it may be lost with the process, so it is looked for.
    halfway(folder.path()).await;
    drop(victim);
    let _next = Killed::start(SERVER, &address);
    let status = client.wait(&id).await.expect("ended");
    let given = status.output::<(u32, String)>("s").expect("typed");
    assert_eq!(given, Some((2, "halfway".to_owned())), "{status:?}");
    assert_eq!((status.failures, status.preemptions), (0, 1));
    let first = &status.step("s").expect("a step").items[0].attempts[0];
    assert!(first.is_worker_failure, "{first:?}");
    serving.abort();
}
