//! A server from its data folder to its end: everything else here, put together.

use std::fs::{self, File, TryLockError};
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use steadfast_api::proto::workers_server::{self, WorkersServer};
use steadfast_core::event::{JobId, Recorded};
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Clock, FleetRules, Inbox, Live, Observer, Room, Stopped, Unreadable, adopt_all,
};
use steadfast_store::{Folder, SqliteStore, StoreError};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use crate::archive::Archive;
use crate::config::Config;
use crate::guard::Guard;
use crate::http::{App, Limits, WorkersView as _};
use crate::hub::{Fleet, Hub, HubRules, LARGEST_MESSAGE, WorkerSessions};
use crate::listen::{ListenOptions, serve};
use crate::news::News;
use crate::orders::Orders;
use crate::tls::{TlsError, server_config};
use crate::tokens::{TokenError, Tokens};

/// Readers of the store: what more than so many ask at once waits.
const READERS: usize = 4;
/// How often the lock says that its holder is alive: so much of a downtime can go unnoticed.
const ALIVE_EVERY: Duration = Duration::from_secs(2);
/// An engine that does not answer for so long is not ready.
const READY_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct ServerOptions {
    pub config: Config,
    pub folder: Folder,
    pub clock: Arc<dyn Clock>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot use the data folder {}: {why}", folder.display())]
    Folder { folder: PathBuf, why: String },
    #[error(
        "another server has the data folder {}; stop it, or give another with --data",
        folder.display()
    )]
    Taken { folder: PathBuf },
    #[error("cannot listen on {address}: {why}")]
    Listen { address: String, why: String },
    /// Not loopback without auth, or auth without a token.
    #[error("{0}")]
    Exposed(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tokens(#[from] TokenError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Job(#[from] Unreadable),
    #[error("the engine stopped while it took up the stored jobs")]
    Stopped,
}

/// A server that listens.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    listener: TcpListener,
    app: Router,
    options: ListenOptions,
    news: News,
    live: Live,
    /// Resolves when the engine can acknowledge nothing any more.
    gone: oneshot::Receiver<()>,
    lock: FolderLock,
    adopted: usize,
}

impl Running {
    /// Where it listens; the port is the real one, also if any was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Jobs that were under way when the server before this one ended.
    pub fn adopted(&self) -> usize {
        self.adopted
    }

    /// Serves until `shutdown`, or until the engine can go on no more.
    pub async fn until(self, shutdown: impl Future<Output = ()>) -> Result<(), Stopped> {
        let Self { listener, app, options, news, live, gone, lock, .. } = self;
        let ended = Arc::new(Notify::new());
        let alive = tokio::spawn(lock.keep_alive(ended.clone()));
        serve(listener, app, options, async {
            tokio::select! {
                () = shutdown => {}
                _ = gone => {}
            }
            news.close();
        })
        .await;
        let stopped = tokio::task::spawn_blocking(move || live.stop()).await;
        ended.notify_one();
        let _ = alive.await;
        stopped.unwrap_or(Err(Stopped::Failed))
    }
}

/// Takes the folder, takes its jobs up again, and listens.
pub async fn start(options: ServerOptions) -> Result<Running, StartError> {
    let ServerOptions { config, folder, clock } = options;
    let lock = FolderLock::take(&folder, clock.clone())?;
    let tokens = Arc::new(Tokens::open(folder.root())?);
    let listener = TcpListener::bind(&config.server.listen).await;
    let unheard = |error: std::io::Error| StartError::Listen {
        address: config.server.listen.clone(),
        why: error.to_string(),
    };
    let listener = listener.map_err(unheard)?;
    let address = listener.local_addr().map_err(unheard)?;
    let usable = tokens.usable(clock.now())?;
    let auth = config.check_exposure(address.ip(), usable).map_err(StartError::Exposed)?;
    let tls = server_config(&config.server)?;

    let mut store = SqliteStore::open(&folder.database())?;
    let hub_rules = HubRules {
        lease_ms: config.workers.lease_ms,
        beat_ms: config.workers.beat_ms,
        log_cap: config.limits.log_bytes as u64,
    };
    let hub = Hub::new(hub_rules, folder.clone());
    let news = News::new();
    let (going, gone) = oneshot::channel();
    let live = Live::start(
        Box::new(SqliteStore::open(&folder.database())?),
        Box::new(SharedClock(clock.clone())),
        Room::fleet(fleet_rules(&config)),
        |_| hub.clone(),
        Box::new(Told { news: news.clone(), _going: going }),
    );
    let inbox = live.inbox().clone();
    let adopted = take_up(&mut store, &inbox, lock.alive_at)?;
    drop(store);

    let archive = Archive::open(&folder, READERS)?;
    let operator = Arc::new(config.operator.clone());
    let orders = Orders::new(inbox.clone(), archive.clone(), operator.clone(), folder.clone());
    let sessions = WorkersServer::new(WorkerSessions::new(hub.clone(), inbox.clone()))
        .max_decoding_message_size(LARGEST_MESSAGE);
    let grpc = Router::new()
        .route_service(&format!("/{}/{{*method}}", workers_server::SERVICE_NAME), sessions);
    let fleet = Fleet { hub, inbox };
    let now = clock.clone();
    let rest = crate::http::router(App {
        archive,
        orders,
        news: news.clone(),
        clock: Arc::new(move || now.now()),
        operator,
        workers: Arc::new(fleet.clone()),
        folder,
        limits: Limits {
            page: config.limits.jobs_per_page as usize,
            most_per_page: config.limits.jobs_per_page_max as usize,
        },
    });
    let health = Router::new()
        .route("/healthz", get(|| std::future::ready("ok\n")))
        .route("/readyz", get(move || ready(fleet.clone())));
    let app = rest.merge(health).merge(grpc);
    let now = clock.clone();
    let guard = Guard::new(&config.server, auth, address, tokens, move || now.now());
    let app = guard.protect(app);
    let options = ListenOptions::new(&config.server, tls);
    Ok(Running { address, listener, app, options, news, live, gone, lock, adopted })
}

fn fleet_rules(config: &Config) -> FleetRules {
    let workers = &config.workers;
    FleetRules {
        lease_ms: workers.lease_ms,
        failures: workers.quarantine_after,
        quarantine_ms: workers.quarantine_time_ms,
        ..FleetRules::default()
    }
}

/// Jobs with a job file of their own were begun by `run`, and are for `resume`.
fn take_up(
    store: &mut SqliteStore,
    inbox: &Inbox,
    alive_at: Option<Timestamp>,
) -> Result<usize, StartError> {
    let owner = format!("server {}", std::process::id());
    let (tell, told) = std::sync::mpsc::channel();
    let adopted = adopt_all(
        store,
        &owner,
        alive_at,
        |job| job.source.is_none(),
        |adopted| {
            let tell = tell.clone();
            let reply = Box::new(move |answer| drop(tell.send(answer)));
            inbox.adopt_and(adopted, reply).map_err(|_| StartError::Stopped)
        },
    )?;
    drop(tell);
    // The channel ends when the last of them is answered, or will not be.
    let durable = told.iter().filter(Result::is_ok).count();
    if durable == adopted { Ok(adopted) } else { Err(StartError::Stopped) }
}

async fn ready(fleet: Fleet) -> (StatusCode, &'static str) {
    match tokio::time::timeout(READY_WITHIN, fleet.list()).await {
        Ok(Ok(_)) => (StatusCode::OK, "ready\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n"),
    }
}

#[derive(Debug)]
struct SharedClock(Arc<dyn Clock>);

impl Clock for SharedClock {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic_ms(&self) -> u64 {
        self.0.monotonic_ms()
    }
}

/// Tells those who follow a job, and by going that the engine has gone.
struct Told {
    news: News,
    _going: oneshot::Sender<()>,
}

impl Observer for Told {
    fn committed(&mut self, job: &JobId, records: Vec<Recorded>) {
        if let Some(last) = records.last() {
            self.news.told(job, last.seq, false);
        }
    }
}

/// Held while this server has the folder. Given back by the system however it ends; its time says when
/// it was last alive.
#[derive(Debug)]
struct FolderLock {
    file: File,
    alive_at: Option<Timestamp>,
    clock: Arc<dyn Clock>,
}

impl FolderLock {
    fn take(folder: &Folder, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        let root = folder.root().to_owned();
        let unusable =
            |why: std::io::Error| StartError::Folder { folder: root.clone(), why: why.to_string() };
        fs::create_dir_all(folder.locks()).map_err(unusable)?;
        let path = folder.locks().join("server.lock");
        let existed = path.exists();
        let open = File::options().create(true).truncate(false).write(true).open(&path);
        let file = open.map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StartError::Taken { folder: root }),
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let modified = file.metadata().and_then(|data| data.modified()).map_err(unusable)?;
        let since = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let alive_at = existed.then_some(Timestamp(since.as_millis() as u64));
        Ok(Self { file, alive_at, clock })
    }

    async fn keep_alive(self, ended: Arc<Notify>) {
        loop {
            let now = std::time::UNIX_EPOCH + Duration::from_millis(self.clock.now().0);
            let _ = self.file.set_times(fs::FileTimes::new().set_modified(now));
            tokio::select! {
                () = ended.notified() => return,
                () = tokio::time::sleep(ALIVE_EVERY) => {}
            }
        }
    }
}
