//! A worker of one or several servers: told over a stream by each what to run, it runs it, and says how it ended until
//! it is heard. The client's side of `Workers.Session`; the comments of the `.proto` are the protocol.
//!
//! | | |
//! |---|---|
//! | [`serve`] | from the first connection to the end of the worker's life |
//! | `dial` | the way to a server |
//! | `connect` | reaching each server, for ever, and telling a refusal from a bad moment |
//! | `session` | one stream: what the server says, and that it is still there |
//! | `server`, `link` | one of the servers: what it has said and is still to hear; and what its session asks of the worker |
//! | `worker` | the worker's [executor](crate::Executor), for all sessions |
//! | `transport` | where that gets its attempts, and keeps how they ended; shared by all of these |
//! | `attempt` | a process, from its assignment to its end |
//! | `reports` | how attempts ended, until it is acknowledged |
//! | `logs` | what attempts print, apart from the session |
//! | `leave` | draining: on the servers' order, or because we are told to go |
//! | `worker_dir`, `identity`, `reports`, `files`, `secrets` | the worker's own folder |
//!
//! Decides nothing about retries, and knows no store and no engine. The session is asynchronous, and so are
//! functions; processes are watched by plain threads, which never wait for the network.

mod attempt;
mod connect;
mod dial;
mod files;
mod identity;
mod leave;
mod link;
mod local;
mod logs;
mod reports;
mod secrets;
mod server;
mod session;
mod transport;
mod worker;
mod worker_dir;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::http::{Outbound, OutboundError};
use crate::{UserError, Users};
use worker::Worker;
use worker_dir::WorkerDir;

pub use crate::{Call, Functions, Task, TaskControl};
pub use dial::{Authority, Connected, Connector, Dialer};
pub use local::{LocalToken, LocalTokens};

/// How often a folder that is taken is looked at again before it is believed, and how long apart: a process
/// that is about to become an attempt holds its parent's lock for a moment.
const LOCK_LOOKS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(50);
/// How long a server may take to answer a connection, and a hello.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// `http://host:port`, or `https://`, of each server; at least one. What they name besides is connected to as well.
    pub servers: Vec<String>,
    /// None: what an `up` of this user has left for it, if the server is one.
    pub token: Option<Token>,
    pub tls: Option<ClientTls>,
    /// The server is in this process, behind this door.
    pub door: Option<Connector>,
    /// Unique among the workers that are connected to the server.
    pub name: String,
    pub datacenter: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// How many attempts at once; at least 1.
    pub slots: u32,
    /// Cores. `None`: not counted.
    pub cpu: Option<f64>,
    pub memory_bytes: Option<u64>,
    /// It runs `run` and `argv` steps.
    pub processes: bool,
    /// What `call` steps can name here.
    pub functions: Option<Arc<dyn Functions>>,
    /// How web services are called for `http` steps. `None`: not at all.
    pub outbound: Option<Outbound>,
    /// Variables of the worker's environment that processes get too.
    pub pass_env: Vec<String>,
    /// The worker's own, for it alone.
    pub folder: PathBuf,
    /// Where secrets are, a file for each. `None`: `secrets` in the worker's folder.
    pub secrets: Option<PathBuf>,
    /// Which of them steps may have that name them, as names in which `*` stands for anything. None is given
    /// that no pattern fits.
    pub secrets_allowed: Vec<String>,
    /// Who attempts run as. None: as the worker itself.
    pub users: Option<Arc<Users>>,
    /// Processes run in control groups of their own, where this process can make some.
    pub grouped: bool,
    /// How long attempts have from SIGTERM to SIGKILL when the worker is told to go.
    pub drain_grace: Duration,
    /// The same when one attempt is stopped, or has timed out. A function that listens has it too.
    pub kill_grace: Duration,
    /// Attempts keep their folders.
    pub keep: bool,
}

/// What the server knows us by. Never printed.
#[derive(Clone)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Files in PEM.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// Who vouches for the server. `None`: whom the system trusts.
    pub ca: Option<PathBuf>,
    /// Who we are, if the server wants to know: a certificate and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
}

#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("a worker needs at least one slot")]
    NoSlots,
    #[error("a worker needs the address of a server")]
    NoServer,
    #[error("the worker's folder {} cannot be used: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "{} does not say who this worker is: {why}; remove it, and the worker is a new one: what the server \
         expects of the old one is lost when its lease ends", path.display()
    )]
    Identity { path: PathBuf, why: String },
    #[error("the folder {} is used by another worker; give each its own", .0.display())]
    Taken(PathBuf),
    #[error("what an earlier life of this worker left running cannot be ended: {0}")]
    Leftovers(io::Error),
    #[error("{address:?} is no server's address: {why}; it looks like http://127.0.0.1:7117")]
    Address { address: String, why: String },
    #[error("the file {} cannot be used for TLS: {why}", path.display())]
    Tls { path: PathBuf, why: String },
    #[error("the server {server} does not let this worker in: {message}")]
    Refused { server: String, message: String },
    #[error(transparent)]
    User(#[from] UserError),
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

/// What [`serve`] is told from outside. Clones speak to the same worker.
#[derive(Clone, Debug)]
pub struct Handle(watch::Sender<ShutdownRequest>);

/// The other end of a [`Handle`].
#[derive(Debug)]
pub struct ShutdownSignal(watch::Receiver<ShutdownRequest>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ShutdownRequest {
    Nothing,
    Drain,
    Kill,
}

impl Handle {
    pub fn new() -> (Self, ShutdownSignal) {
        let (sender, receiver) = watch::channel(ShutdownRequest::Nothing);
        (Self(sender), ShutdownSignal(receiver))
    }

    /// The preemption notice: what runs is told to end, has its grace, is reported, and `serve` returns.
    pub fn drain(&self) {
        self.tell(ShutdownRequest::Drain);
    }

    /// The same without the grace, and without waiting for the server.
    pub fn kill(&self) {
        self.tell(ShutdownRequest::Kill);
    }

    fn tell(&self, told: ShutdownRequest) {
        self.0.send_if_modified(|before| std::mem::replace(before, told.max(*before)) < told);
    }
}

pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left plain maps behind, which are still right.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what the servers assign until told to leave, by all of them or by `orders`.
///
/// Returns an error only where trying again cannot help. To be called inside a runtime of tokio. If the
/// future is dropped, everything it runs is killed.
pub async fn serve(config: RemoteConfig, orders: ShutdownSignal) -> Result<(), RemoteError> {
    if config.slots == 0 {
        return Err(RemoteError::NoSlots);
    }
    if config.servers.is_empty() {
        return Err(RemoteError::NoServer);
    }
    let dir = lock(&config).await?;
    let keep = config.keep;
    let cleared = blocking(move || dir.clear(keep).map(|killed| (dir, killed))).await;
    let (dir, killed) = cleared.map_err(RemoteError::Leftovers)?;
    if killed > 0 {
        tracing::info!(killed, "processes of an earlier life of this worker were ended");
    }
    let worker = Worker::new(config, dir)?;
    worker.tell_left_behind();
    let _all = KillAll(worker.clone());
    tokio::select! {
        refused = connect::all(&worker) => Err(refused),
        () = leave::leave(&worker, orders) => Ok(()),
    }
}

async fn lock(config: &RemoteConfig) -> Result<WorkerDir, RemoteError> {
    for _ in 0..LOCK_LOOKS {
        if let Some(dir) = WorkerDir::open(&config.folder, config.users.as_deref())? {
            return Ok(dir);
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    Err(RemoteError::Taken(config.folder.clone()))
}

/// What touches the disk, kept off the threads that answer the server.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that is being shut down takes such work back, and nobody is left to wait.
            Err(_) => std::future::pending().await,
        },
    }
}

/// No process outlives the one that answers for it.
struct KillAll(Worker);

impl Drop for KillAll {
    fn drop(&mut self) {
        self.0.kill_all();
        self.0.0.close();
    }
}
