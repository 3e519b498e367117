//! A server from its data folder to its end: everything else here, put together.

mod membership;
mod readiness;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::get;
use steadfast_api::proto::jobs_server::JobsServer;
use steadfast_api::proto::workers_server::WorkersServer;
use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Clock, FleetRules, Live, Loader, Observer, Ownership, Patience, Placement, Stopped, Unreadable,
    WorkerState,
};
use steadfast_store::{Journal as _, Storage, StoreError};
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tonic_health::server::HealthReporter;

use crate::callbacks::{CallbackHandler, CallbackTokens, CallbackUrls, Secrets};
use crate::commands::{Attached, JobCommands};
use crate::config::{Auth, Config};
use crate::grpc::JobsService;
use crate::guard::Guard;
use crate::health::Health;
use crate::http::{App, Limits, PageLimit, WorkerQueries as _};
use crate::listen::{INSIDE, ListenOptions, Listener, connections_within, serve};
use crate::notifications::Notifications;
use crate::observability::{
    self, Log, Metrics, Observability, ProcessFacts, Spans, TimedJournal, TraceError, init_stderr,
    requests,
};
use crate::peers::{PeerService, Peers};
use crate::purge::expire;
use crate::queries::{JobReader, Projector};
use crate::sessions::{
    FleetQueries, LARGEST_MESSAGE, Proofs, Scope, SessionParts, SessionRegistry, SessionRules,
    WorkerSessions,
};
use crate::shared_answers::SharedAnswers;
use crate::tls::{TlsError, server_config};
use crate::tokens::{TokenError, Tokens};

use membership::Membership;
use readiness::{Readiness, ready};

/// Readers of the store: what more than so many ask at once waits.
const READERS: usize = 4;
/// How often ended jobs are looked at for those that have been kept long enough.
const UPKEEP_EVERY: Duration = Duration::from_hours(1);
/// A page of metrics does not wait longer for a store that is away.
const COUNTED_WITHIN: Duration = Duration::from_secs(1);
/// How long the last spans have to reach their collector.
const LAST_SPANS: Duration = Duration::from_secs(2);
#[derive(Debug)]
pub struct ServerOptions {
    pub config: Config,
    pub storage: Arc<dyn Storage>,
    pub clock: Arc<dyn Clock>,
    /// Instead of listening: this server is part of a program, which has its own way in and its own log.
    pub inside: Option<mpsc::Receiver<DuplexStream>>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot use {place}: {why}")]
    Storage { place: String, why: String },
    #[error("another server has {place}; stop it, or give another place with --data or --store")]
    Taken { place: String },
    #[error("cannot listen on {address}: {why}")]
    Listen { address: String, why: String },
    /// Not loopback without auth, or auth without a token.
    #[error("{0}")]
    Exposed(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tokens(#[from] TokenError),
    #[error("the description of the gRPC services is broken: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error(transparent)]
    Traces(#[from] TraceError),
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
    auth: Auth,
    entrance: Listener,
    app: Router,
    options: ListenOptions,
    notifications: Notifications,
    registry: SessionRegistry,
    /// Tells gRPC's health that the end is near.
    serving: HealthReporter,
    live: Live,
    spans: Option<Spans>,
    /// Writes the last lines when it goes.
    log: Option<Log>,
    /// Resolves when the engine can acknowledge nothing any more.
    gone: oneshot::Receiver<()>,
    membership: Membership,
    upkeep: Upkeep,
    readiness: Readiness,
}

impl Running {
    /// Where it listens; the port is the real one, also if any was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether requests need a token.
    pub fn auth(&self) -> Auth {
        self.auth
    }

    /// What to type to reach it.
    pub fn url(&self) -> String {
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// Serves until `shutdown`, or until the engine can go on no more.
    pub async fn until(self, shutdown: impl Future<Output = ()>) -> Result<(), Stopped> {
        let Self {
            entrance,
            app,
            options,
            notifications,
            registry,
            serving,
            live,
            spans,
            log,
            gone,
            membership,
            upkeep,
            readiness,
            ..
        } = self;
        let keeping = tokio::spawn(upkeep.keep());
        let health = readiness.health.clone();
        let looking = tokio::spawn(readiness.tell(serving.clone()));
        serve(entrance, app, options, async {
            let mut shutdown = pin!(shutdown);
            tokio::select! {
                () = &mut shutdown => {}
                _ = gone => {
                    // One that ended here would be started again by who watches over it, with an empty
                    // folder. It stays, says what is wrong, and acknowledges nothing.
                    if health.is_moved() {
                        shutdown.await;
                    }
                }
            }
            looking.abort();
            serving.set_not_serving::<JobsServer<JobsService>>().await;
            notifications.close();
            registry.close();
        })
        .await;
        let stopped = tokio::task::spawn_blocking(move || live.stop()).await;
        membership.give_up().await;
        keeping.abort();
        if let Some(spans) = spans {
            let _ = tokio::task::spawn_blocking(move || spans.stop(LAST_SPANS)).await;
        }
        drop(log);
        stopped.unwrap_or(Err(Stopped::Failed))
    }
}

/// Takes the folder, takes its jobs up again, and listens.
pub async fn start(options: ServerOptions) -> Result<Running, StartError> {
    let ServerOptions { config, storage, clock, inside } = options;
    let mut membership = Membership::take(&storage).await?;
    let (blobs, settings) = (storage.blobs(), storage.settings());
    let tokens = Arc::new(Tokens::open(settings.clone())?);
    let is_inside = inside.is_some();
    let (entrance, address) = match inside {
        Some(pipes) => (Listener::Inside(pipes), INSIDE),
        None => listen(&config.server.listen).await?,
    };
    let usable = tokens.usable(clock.now())?;
    let auth = config.check_exposure(address.ip(), usable).map_err(StartError::Exposed)?;
    let tls = server_config(&config.server)?;

    let per_job_max = if config.metrics.per_job { config.metrics.per_job_max as usize } else { 0 };
    let about =
        ProcessFacts { version: env!("CARGO_PKG_VERSION"), started_at: clock.now(), per_job_max };
    let metrics = Metrics::new(&about);
    // Others' words only when something is wrong.
    let filter = format!("warn,steadfast={}", config.log.level);
    let log =
        (!is_inside).then(|| init_stderr(config.log.format, &filter, &metrics).ok()).flatten();
    let endpoint = config.otel.endpoint.as_deref();
    let spans = Spans::start(endpoint, about.version, &metrics)?;
    let watch = Observability::new(metrics.clone(), spans.clone());

    let writing = storage.journal()?;
    let reserve = config.limits.disk_reserve_bytes as u64;
    let health = Health::new(storage.space(), reserve);
    health.lay_ballast();
    let is_shared = membership.shards().are_shared();
    let hub_rules = SessionRules {
        lease_ms: config.workers.lease_ms,
        beat_ms: config.workers.beat_ms,
        log_cap: config.limits.log_bytes as u64,
        output_cap: config.limits.output_bytes,
        tolerance_ms: is_shared.then_some(config.store.tolerance_ms),
        inside: is_inside,
    };
    let callback_tokens = CallbackTokens::open(&*settings)
        .map_err(|error| StartError::Storage { place: storage.place(), why: error.to_string() })?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let public_url = config.server.public_url.clone();
    let public_url = public_url.unwrap_or_else(|| format!("{scheme}://{address}"));
    let addresses = CallbackUrls::new(callback_tokens.clone(), &public_url);
    let mut writing = TimedJournal::new(writing, metrics.clone(), health.clone());
    let mut owner = writing.take(&membership.owner(), clock.now(), membership.alive_at())?;
    let proofs = Proofs::new(&callback_tokens);
    let registry = SessionRegistry::new(
        hub_rules,
        SessionParts {
            blobs: blobs.clone(),
            watch: watch.clone(),
            callbacks: addresses,
            health: health.clone(),
            scope: Scope::new(&proofs, &owner, membership.shards()),
            proofs,
            tokens: tokens.clone(),
            clock: clock.clone(),
            peers: config.server.peers.clone(),
        },
    );
    let notifications = Notifications::new();
    let (going, gone) = oneshot::channel();
    if membership.begin(&*clock).await? {
        owner = writing.take(&owner.id, Timestamp(0), None)?;
        registry.raise_epoch(owner.epoch);
    }
    let loader = Some(Loader::new(storage.journal()?, storage.reader()?, owner.clone()));
    let (shards, me) = (membership.shards(), owner.id.clone());
    let live = Live::start(
        Box::new(writing),
        Box::new(SharedClock(clock.clone())),
        Placement::fleet(fleet_rules(&config, is_shared)),
        Ownership { owner, shards: shards.clone(), loader, patience: Patience::Endless },
        |_| registry.clone(),
        watch.clone().and(Box::new(Notifier {
            notifications: notifications.clone(),
            projector: Projector::start(storage.clone()),
            _going: going,
        })),
    );
    let inbox = live.inbox().clone();
    membership.keep(inbox.clone(), storage.clone(), clock.clone(), registry.clone());
    // Workers come in when what they hold is known.
    live.recovered()?;

    let reader = JobReader::open(storage.clone(), READERS)?;
    let operator = Arc::new(config.operator.clone());
    let attached = Attached {
        files: config.limits.attached_files as usize,
        bytes: config.limits.attached_total_bytes,
    };
    let commands = JobCommands::new(
        inbox.clone(),
        reader.clone(),
        operator.clone(),
        blobs.clone(),
        health.clone(),
    )
    .attaching(attached)
    .beside(Peers::new(storage.exchange(), shards.clone()));
    // Inside a program there is no port at all.
    let nowhere =
        (is_inside || address.ip().is_unspecified()) && config.server.public_url.is_none();
    let commands = if nowhere { commands.without_callbacks() } else { commands };
    let sessions = WorkersServer::new(WorkerSessions::new(registry.clone(), inbox.clone()))
        .max_decoding_message_size(LARGEST_MESSAGE);
    let jobs = JobsService::new(
        reader.clone(),
        commands.clone(),
        notifications.clone(),
        operator.clone(),
        config.fluster,
    )
    .with_pages(config.limits.jobs_per_page as usize, config.limits.jobs_per_page_max as usize);
    let now = clock.clone();
    let secrets = Secrets::of(&config.callbacks.signing_secrets);
    let callbacks = CallbackHandler::new(
        callback_tokens,
        secrets,
        inbox.clone(),
        reader.clone(),
        config.limits.output_bytes,
        Arc::new(move || now.now()),
    )
    .beside(Peers::new(storage.exchange(), shards.clone()));
    if let Some(exchange) = storage.exchange() {
        let (commands, callbacks) = (commands.clone(), callbacks.clone());
        let (owner, notifications) = (me, notifications.clone());
        membership.serve_others(PeerService {
            owner,
            exchange,
            shards,
            commands,
            callbacks,
            notifications,
        });
    }
    let (grpc, serving) = crate::grpc::routes(jobs).await?;
    let grpc = grpc.add_service(sessions).into_axum_router();
    let keep_ms = config.retention.finished_jobs_ms;
    let upkeep = Upkeep { keep_ms, storage, clock: clock.clone() };
    let fleet = FleetQueries { registry: registry.clone(), inbox };
    let counted = reader.clone();
    let now = clock.clone();
    let rest = crate::http::router(App {
        reader,
        commands,
        callbacks,
        notifications: notifications.clone(),
        shared: SharedAnswers::default(),
        clock: Arc::new(move || now.now()),
        operator,
        workers: Arc::new(fleet.clone()),
        blobs,
        limits: Limits {
            jobs: PageLimit {
                usual: config.limits.jobs_per_page as usize,
                most: config.limits.jobs_per_page_max as usize,
            },
            items: PageLimit {
                usual: config.limits.items_per_page as usize,
                most: config.limits.items_per_page_max as usize,
            },
        },
        recent: watch.recent().clone(),
        started_at: about.started_at,
    });
    let (shown, told) = (fleet.clone(), metrics.clone());
    let readiness = Readiness { health, fleet };
    let asked = readiness.clone();
    let health = Router::new()
        .route("/healthz", get(|| std::future::ready("ok\n")))
        .route("/readyz", get(move || ready(asked.clone())))
        .route("/metrics", get(move || measured(shown.clone(), counted.clone(), told.clone())));
    let app = rest.merge(health).merge(grpc).layer(from_fn_with_state(metrics, requests));
    let now = clock.clone();
    let guard = Guard::new(&config.server, auth, address, tokens, move || now.now());
    let app = guard.protect(app);
    let mut options = ListenOptions::new(&config.server, tls);
    // A program that has the server inside has its own limits, and no strangers.
    if !is_inside {
        options.max_connections = connections_within(options.max_connections);
    }
    Ok(Running {
        address,
        auth,
        entrance,
        app,
        options,
        notifications,
        registry,
        serving,
        live,
        spans,
        log,
        gone,
        membership,
        upkeep,
        readiness,
    })
}

async fn listen(address: &str) -> Result<(Listener, SocketAddr), StartError> {
    let unheard = |error: std::io::Error| StartError::Listen {
        address: address.to_owned(),
        why: error.to_string(),
    };
    let listener = TcpListener::bind(address).await.map_err(unheard)?;
    let address = listener.local_addr().map_err(unheard)?;
    Ok((Listener::Network(listener), address))
}

fn fleet_rules(config: &Config, is_shared: bool) -> FleetRules {
    let workers = &config.workers;
    FleetRules {
        lease_ms: workers.lease_ms,
        tolerance_ms: is_shared.then_some(config.store.tolerance_ms),
        failures: workers.quarantine_after,
        not_begun: workers.quarantine_not_begun,
        quarantine_ms: workers.quarantine_time_ms,
        quarantine_most_ms: workers.quarantine_time_max_ms,
        check_every_ms: config.operator.best_effort_check_interval_ms,
    }
}

/// What Prometheus reads.
async fn measured(fleet: FleetQueries, reader: JobReader, metrics: Metrics) -> impl IntoResponse {
    // What the store does not tell in time is told as it was before.
    if let Ok(Ok(counts)) = tokio::time::timeout(COUNTED_WITHIN, reader.counts()).await {
        metrics.set_jobs(&counts);
    }
    let workers = fleet.list().await.unwrap_or_default();
    for state in WorkerState::ALL {
        let count = workers.iter().filter(|worker| worker.state == state.name()).count();
        metrics.set_workers(state.name(), count);
    }
    ([(CONTENT_TYPE, observability::CONTENT_TYPE)], metrics.render())
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
struct Notifier {
    notifications: Notifications,
    projector: Projector,
    _going: oneshot::Sender<()>,
}

impl Observer for Notifier {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>) {
        self.projector.committed(job, &records);
        self.notifications.told(job, &records);
    }
}

/// What a store needs now and then.
#[derive(Clone, Debug)]
struct Upkeep {
    /// Ended jobs go after so long. None: never.
    keep_ms: Option<u64>,
    storage: Arc<dyn Storage>,
    clock: Arc<dyn Clock>,
}

impl Upkeep {
    async fn keep(self) {
        loop {
            let Self { keep_ms, storage, clock } = self.clone();
            let purged = tokio::task::spawn_blocking(move || {
                if let Err(error) = storage.maintain() {
                    tracing::warn!(event = "StoreNotMaintained", %error);
                }
                let Some(keep_ms) = keep_ms else { return Ok(0) };
                let now = clock.now();
                let before = Timestamp(now.0.saturating_sub(keep_ms));
                let (mut journal, mut reader) = (storage.journal()?, storage.reader()?);
                expire(&mut *journal, &mut *reader, &*storage.blobs(), before, now)
            });
            match purged.await {
                Ok(Ok(0)) | Err(_) => {}
                Ok(Ok(jobs)) => tracing::info!(event = "JobsPurged", jobs),
                Ok(Err(error)) => tracing::warn!(event = "JobsNotPurged", %error),
            }
            tokio::time::sleep(UPKEEP_EVERY).await;
        }
    }
}
