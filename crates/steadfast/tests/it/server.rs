//! A real server on loopback, in a folder that it can be started in again.

use std::sync::Arc;
use std::time::Duration;

use steadfast::{Client, Job, Status, Worker};
use steadfast_core::time::Timestamp;
use steadfast_server::clock::SystemClock;
use steadfast_server::config::{Auth, Config};
use steadfast_server::serve::{ServerOptions, start};
use steadfast_server::tokens::{Scope, Tokens};
use steadfast_store::Folder;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything here takes, so that a failure is a failure and not a hang.
pub(crate) const LONG: Duration = Duration::from_mins(1);

pub(crate) struct Server {
    folder: tempfile::TempDir,
    pub(crate) address: String,
    auth: Auth,
    serving: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().expect("a folder"), Auth::None).await
    }

    /// One that wants tokens, and those that it takes.
    pub(crate) async fn with_tokens() -> (Self, Tokens) {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Folder::new(folder.path().to_owned());
        place.create().expect("its owner's alone");
        let tokens = Tokens::open(place.storage().settings()).expect("none yet");
        tokens.create(Scope::Admin, None, None, Timestamp(0)).expect("it starts with one");
        (Self::start_in(folder, Auth::Required).await, tokens)
    }

    async fn start_in(folder: tempfile::TempDir, auth: Auth) -> Self {
        let address = "http://127.0.0.1:0".to_owned();
        let mut server = Self { folder, address, auth, serving: None };
        server.begin().await;
        server
    }

    /// At the same address as before.
    pub(crate) async fn begin(&mut self) {
        let mut config = Config::default();
        config.server.listen = self.address.trim_start_matches("http://").to_owned();
        config.server.auth = Some(self.auth);
        config.server.shutdown_grace_ms = 100;
        config.log.level = tracing::Level::ERROR;
        let options = ServerOptions {
            config,
            storage: Folder::new(self.folder.path().to_owned()).storage(),
            clock: Arc::new(SystemClock),
            inside: None,
        };
        let running = start(options).await.expect("a server");
        self.address = running.url();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            running.until(async { drop(stopped.await) }).await.expect("it ends well");
        });
        self.serving = Some((stop, serving));
    }

    pub(crate) async fn stop(&mut self) {
        if let Some((stop, serving)) = self.serving.take() {
            let _ = stop.send(());
            timeout(LONG, serving).await.expect("it stops").expect("without a panic");
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.address).await.expect("a server")
    }

    /// A worker, until it is told to stop.
    pub(crate) fn work(&self, worker: Worker) -> Working {
        let (stop, stopped) = oneshot::channel::<()>();
        let address = self.address.clone();
        let task = tokio::spawn(async move {
            worker.run_until(address, stopped).await.expect("a worker that is let in");
        });
        Working { stop: Some(stop), task }
    }
}

pub(crate) struct Working {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Working {
    pub(crate) async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        timeout(LONG, &mut self.task).await.expect("it stops").expect("without a panic");
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How the job has ended.
pub(crate) async fn ended(client: &Client, job: &Job) -> Status {
    let id = client.submit(job).await.expect("a job that is taken");
    wait(client, &id).await
}

pub(crate) async fn wait(client: &Client, id: &str) -> Status {
    timeout(LONG, client.wait(id)).await.expect("it ends").expect("a server")
}
