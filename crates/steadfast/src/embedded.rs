//! An engine inside the program: the server's own, reached through a pipe instead of a port.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use steadfast_server::clock::SystemClock;
use steadfast_server::config::{Auth, Config};
use steadfast_server::serve::{ServerOptions, start};
use steadfast_store::Folder;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::{Client, ClientError, Server, Worker, WorkerError};

/// Connections that wait to be taken: the client's and the workers', which wait if there are more.
const WAITING: usize = 16;
/// Never dialled, but a request names its server.
const ADDRESS: &str = "http://127.0.0.1";

/// Why there is no engine, or why it has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// Another one has the folder, or it cannot be used.
    #[error("{0}")]
    Start(String),
    #[error("the engine can go on no more: {0}")]
    Stopped(String),
    #[error(transparent)]
    Worker(#[from] WorkerError),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A Steadfast of the program's own: jobs are kept in a data folder, and go on when the program is started
/// again.
///
/// ```
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let data = folder.path().join("data");
/// use steadfast::{Context, Embedded, Error, Job, Step, Worker};
///
/// let worker = Worker::builder().function("greet", |ctx: Context, name: String| async move {
///     if ctx.attempt() == 1 {
///         return Err(Error::new("not in the mood"));
///     }
///     Ok(format!("Hello, {name}!"))
/// });
/// let steadfast = Embedded::open(data).worker(worker.build()).start().await?;
///
/// let retry = steadfast::Retry::new().initial_delay(std::time::Duration::from_millis(10));
/// let job = Job::new("hello").step(Step::call("greet", "greet").input(&"Ada")?.retry(retry));
/// let id = steadfast.client().submit(&job).await?;
/// let status = steadfast.client().wait(&id).await?;
/// assert_eq!(status.output::<String>("greet")?.as_deref(), Some("Hello, Ada!"));
/// assert_eq!(status.failures, 1);
/// steadfast.stop().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Embedded {
    client: Client,
    server: Server,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), EmbeddedError>>,
    workers: Vec<Working>,
}

/// A worker, and how to end it.
type Working = (oneshot::Sender<()>, JoinHandle<Result<(), WorkerError>>);

/// What is to be started.
#[derive(Debug)]
#[must_use = "nothing runs until it is started"]
pub struct EmbeddedBuilder {
    folder: PathBuf,
    workers: Vec<Worker>,
}

impl Embedded {
    /// In this folder, which is made if it is not there. One process at a time has it.
    pub fn open(folder: impl Into<PathBuf>) -> EmbeddedBuilder {
        EmbeddedBuilder { folder: folder.into(), workers: Vec::new() }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// For further workers and clients of this program.
    pub fn server(&self) -> Server {
        self.server.clone()
    }

    /// Functions that run are asked to end, and have their workers' grace; what has not ended goes on when
    /// the folder is opened again.
    pub async fn stop(self) -> Result<(), EmbeddedError> {
        let Self { stop, serving, workers, client, server } = self;
        let (stops, working): (Vec<_>, Vec<_>) = workers.into_iter().unzip();
        for stop in stops {
            let _ = stop.send(());
        }
        let mut worked = Ok(());
        for task in working {
            worked = worked.and(joined(task).await);
        }
        drop((client, server));
        let _ = stop.send(());
        serving.await.unwrap_or_else(|error| Err(EmbeddedError::Stopped(error.to_string())))?;
        Ok(worked?)
    }
}

impl EmbeddedBuilder {
    /// Runs for as long as the engine. Without a name it is called `embedded-1`, the next `embedded-2`.
    pub fn worker(mut self, worker: Worker) -> Self {
        self.workers.push(worker);
        self
    }

    /// Takes up the jobs that are in the folder. To be called inside a runtime of tokio.
    pub async fn start(self) -> Result<Embedded, EmbeddedError> {
        let mut config = Config::default();
        // Nobody else can come in.
        config.server.auth = Some(Auth::None);
        let (door, pipes) = mpsc::channel(WAITING);
        let root = std::path::absolute(&self.folder);
        let root = root.map_err(|error: io::Error| EmbeddedError::Start(error.to_string()))?;
        let options = ServerOptions {
            config,
            storage: Folder::new(root).storage(),
            clock: Arc::new(SystemClock),
            inside: Some(pipes),
        };
        let running = start(options).await.map_err(|e| EmbeddedError::Start(e.to_string()))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stopping = async {
                let _ = stopped.await;
            };
            let ended = running.until(stopping).await;
            ended.map_err(|error| EmbeddedError::Stopped(error.to_string()))
        });
        let server = Server { door: Some(door), ..Server::new(ADDRESS) };
        let client = Client::connect(&server).await?;
        let workers = (1..).zip(self.workers).map(|(nth, worker)| {
            let (stop, stopped) = oneshot::channel::<()>();
            // The same after a crash: a worker that comes back under its name in another life tells the
            // engine that what it ran before is lost, so that nothing waits for a lease to end.
            let worker = worker.or_named(|| format!("embedded-{nth}"));
            let working = worker.run_until(server.clone(), stopped);
            (stop, tokio::spawn(working))
        });
        let workers = workers.collect();
        Ok(Embedded { client, server, stop, serving, workers })
    }
}

async fn joined(task: JoinHandle<Result<(), WorkerError>>) -> Result<(), WorkerError> {
    match task.await {
        Ok(ended) => ended,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is going.
            Err(_) => Ok(()),
        },
    }
}
