//! Workers' sessions: what the engine assigns goes out, what workers say goes in.
//!
//! Decides nothing: whether a worker is believed, and what becomes of its attempts, is the engine's. A
//! session that breaks leaves everything as it is; the worker comes back, or its lease ends.

mod assignment;
mod backlog;
mod files;
mod hello;
mod log;
mod proof;
mod queue;
mod report;
mod scope;
mod session;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_api::{WorkerInfo, proto};
use steadfast_core::event::{AttemptId, JobId};
use steadfast_engine::{
    Assignment, Clock, CreditNotice, Engine, Inbox, SendError, Undraining, Work, Workers,
};
use steadfast_store::Blobs;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;
use tonic::Status;

use crate::callbacks::CallbackUrls;
use crate::error::ApiError;
use crate::health::Health;
use crate::http::WorkerQueries;
use crate::observability::{Observability, SessionEnd};
use crate::tokens::Tokens;
use proof::Holder;
use proto::to_worker::Kind;
use queue::Outgoing;

pub use proof::Proofs;
pub use scope::Scope;
pub use session::{LARGEST_MESSAGE, WorkerSessions};

/// How long whoever drains a worker waits for the worker to know.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// How workers are to behave, which they are told when they come.
#[derive(Clone, Copy, Debug)]
pub struct SessionRules {
    pub lease_ms: u64,
    pub beat_ms: u64,
    /// Bytes kept of what one attempt printed.
    pub log_cap: u64,
    /// Of its output.
    pub output_cap: usize,
    /// How long the store may be away before workers are left to their leases. None: for ever, as nobody else has it.
    pub tolerance_ms: Option<u64>,
    /// All workers are this program's own, and nobody else can come in: each has the name that it says.
    pub inside: bool,
}

/// Pieces of logs that are written at once: of the 512 threads for what blocks, the rest are for requests.
const LOG_WRITERS: usize = 128;

/// Cheap to clone: all are the same registry.
#[derive(Clone, Debug)]
pub struct SessionRegistry(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: SessionRules,
    parts: SessionParts,
    sessions: Mutex<HashMap<Arc<str>, Session>>,
    last_session: AtomicU64,
    /// On the monotonic clock.
    renewed_at: AtomicU64,
    expected_logs: log::ExpectedLogs,
    /// Threads for logs: what keeps them may be far away, or not answer, and others need threads too.
    log_writers: Arc<Semaphore>,
    /// For what the engine's thread does not wait for.
    runtime: Handle,
}

/// What a registry works with.
#[derive(Debug)]
pub struct SessionParts {
    pub blobs: Arc<dyn Blobs>,
    pub watch: Observability,
    pub callbacks: CallbackUrls,
    pub health: Health,
    pub proofs: Proofs,
    pub tokens: Arc<Tokens>,
    pub clock: Arc<dyn Clock>,
    /// Who assigns here.
    pub scope: Scope,
    /// Addresses of other servers, for workers.
    pub peers: Vec<String>,
}

/// A worker's way out.
#[derive(Debug)]
struct Session {
    id: u64,
    /// Of the worker's secret.
    fingerprint: Arc<str>,
    /// The id of its token. None: a server without tokens.
    token: Option<Arc<str>>,
    out: Outgoing,
    /// Attempts whose progress is taken from this worker, and whose files it may fetch.
    held: HashSet<AttemptId>,
    /// The worker has said that it takes nothing new.
    drains: watch::Sender<bool>,
    /// How often it has said that it takes new work again.
    undrained: watch::Sender<u64>,
}

impl SessionRegistry {
    /// Within a runtime.
    pub fn new(rules: SessionRules, parts: SessionParts) -> Self {
        let (sessions, last_session) = (Mutex::default(), AtomicU64::new(0));
        let expected_logs = log::ExpectedLogs::default();
        let renewed_at = AtomicU64::new(parts.clock.monotonic_ms());
        let runtime = Handle::current();
        Self(Arc::new(Shared {
            rules,
            parts,
            sessions,
            last_session,
            renewed_at,
            expected_logs,
            log_writers: Arc::new(Semaphore::new(LOG_WRITERS)),
            runtime,
        }))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Arc<str>, Session>> {
        // A session that panicked left a plain map behind, which is still right.
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_session(&self) -> u64 {
        self.0.last_session.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends all sessions: they are requests that would go on for ever. What runs goes on, and the workers
    /// come to whoever is next.
    pub fn close(&self) {
        self.sessions().values().for_each(|session| session.out.hang_up());
    }

    /// The store has said that this server has what it has.
    pub fn renewed(&self) {
        self.0.renewed_at.store(self.0.parts.clock.monotonic_ms(), Ordering::Relaxed);
    }

    /// For so long after that, attempts go on: others wait so long before they take them for lost.
    fn vouches(&self) -> bool {
        let Shared { rules, parts, renewed_at, .. } = &*self.0;
        let since = parts.clock.monotonic_ms().saturating_sub(renewed_at.load(Ordering::Relaxed));
        rules.tolerance_ms.is_none_or(|tolerance| since <= tolerance)
    }

    /// The token of a session was good when it began.
    fn still_admitted(&self, token: Option<&str>) -> Result<(), Status> {
        let Some(token) = token else { return Ok(()) };
        let Shared { parts, .. } = &*self.0;
        let still = parts.tokens.still(token, parts.clock.now());
        still.map_err(|why| Status::unauthenticated(why.to_string()))
    }

    fn tell(&self, worker: &str, kind: Kind) {
        // One that has gone hears of it when it comes back.
        if let Some(session) = self.sessions().get(worker) {
            self.send(worker, session, kind);
        }
    }

    fn send(&self, worker: &str, session: &Session, kind: Kind) {
        if let Err(why) = session.out.send(kind) {
            self.dropped(worker, SessionEnd::Unread, why);
        }
    }

    fn dropped(&self, worker: &str, end: SessionEnd, why: &str) {
        self.0.parts.watch.session_ended(worker, end, why);
    }
}

impl Workers for SessionRegistry {
    fn assign(&mut self, work: Box<Work>) {
        let (key, worker) = (work.assignment.id(), &work.assignment.worker);
        // Whoever has the job now finds the attempt begun, and sends it.
        let Some(said_as) = self.0.parts.scope.of_job(&key.job) else { return };
        let session = match self.sessions().get_mut(worker) {
            None => return,
            Some(session) => {
                session.held.insert(key);
                session.id
            }
        };
        if work.files.is_empty() {
            return self.send_assignment(work, session, said_as);
        }
        // What a folder of files has in it is asked of what keeps them, which may take its time.
        let registry = self.clone();
        self.0.runtime.spawn_blocking(move || registry.send_assignment(work, session, said_as));
    }

    fn withdraw(&mut self, over: Assignment) {
        let Assignment { job, item, attempt, token, worker } = over;
        let named = proto::AttemptRef::new(&job, item, attempt, token);
        let mut sessions = self.sessions();
        if let Some(session) = sessions.get_mut(&worker) {
            session.held.remove(&AttemptId { job, token });
            if let Some(withdrawal) = self.0.parts.scope.withdrawal(named) {
                self.send(&worker, session, Kind::Withdrawal(withdrawal));
            }
        }
    }

    fn settled(&mut self, _: &JobId, _: u64) {}

    /// It comes in again at once.
    fn ask(&mut self, worker: &str) {
        if let Some(session) = self.sessions().get(worker) {
            session.out.hang_up();
        }
    }

    fn credits(&mut self, worker: &str, notice: CreditNotice) {
        let kind = match notice {
            CreditNotice::Taken(number) => Kind::CreditsTaken(proto::CreditsTaken { number }),
            CreditNotice::Wanted => Kind::Wanted(proto::Wanted {}),
        };
        self.tell(worker, kind);
    }
}

impl SessionRegistry {
    /// Unless it was withdrawn meanwhile, or the session is over: then the worker says what it has when it comes back. `said_as`: the scope
    /// and its epoch.
    fn send_assignment(&self, work: Box<Work>, id: u64, said_as: (String, u64)) {
        let Shared { parts, .. } = &*self.0;
        let (key, worker) = (work.assignment.id(), work.assignment.worker.clone());
        let mut message = assignment::assignment(*work, &*parts.blobs, &parts.callbacks);
        let mut sessions = self.sessions();
        let session = sessions.get_mut(&worker);
        let Some(session) = session.filter(|it| it.id == id && it.held.contains(&key)) else {
            return;
        };
        // Whoever revokes a token wants nothing more to go there, whenever its worker beats next.
        if let Err(why) = self.still_admitted(session.token.as_deref()) {
            self.dropped(&worker, SessionEnd::Token, why.message());
            session.out.end(why);
            return;
        }
        if let Some(attempt) = &mut message.attempt {
            let holder = Holder { name: &worker, fingerprint: &session.fingerprint };
            attempt.proof = parts.proofs.attempt(attempt, holder);
        }
        (message.scope, message.epoch) = said_as;
        self.send(&worker, session, Kind::Assignment(message));
    }
}

/// The workers, as the engine knows them, for people.
#[derive(Clone, Debug)]
pub struct FleetQueries {
    pub registry: SessionRegistry,
    pub inbox: Inbox,
}

impl FleetQueries {
    /// Asks the engine; soon answered, as it waits for no disk.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (tell, told) = oneshot::channel();
        self.inbox.look(move |engine| drop(tell.send(question(engine)))).map_err(unheard)?;
        told.await.map_err(|_| unheard(SendError::Stopped))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn unheard(why: SendError) -> ApiError {
    ApiError::Overloaded(why.to_string())
}

#[tonic::async_trait]
impl WorkerQueries for FleetQueries {
    async fn list(&self) -> Result<Vec<WorkerInfo>, ApiError> {
        let views = self.ask(Engine::workers).await?;
        Ok(views.into_iter().map(shown).collect())
    }

    async fn drain(&self, name: &str) -> Result<(), ApiError> {
        let (tell, told) = oneshot::channel();
        let reply = Box::new(move |known| {
            let _ = tell.send(known);
        });
        self.inbox.drain_worker(name, reply).map_err(unheard)?;
        match told.await {
            Ok(true) => {
                let drains =
                    self.registry.sessions().get(name).map(|session| session.drains.subscribe());
                self.registry.tell(name, Kind::Drain(proto::Drain {}));
                // Once the worker knows, it goes on draining whatever becomes of this server.
                if let Some(mut drains) = drains {
                    let _ = timeout(KNOWN_WITHIN, drains.wait_for(|known| *known)).await;
                }
                Ok(())
            }
            Ok(false) => {
                let name: String = name.chars().take(64).collect();
                Err(ApiError::NotFound(format!("there is no worker {name:?}")))
            }
            Err(_) => Err(unheard(SendError::Stopped)),
        }
    }

    async fn undrain(&self, name: &str) -> Result<(), ApiError> {
        let (tell, told) = oneshot::channel();
        let reply = Box::new(move |undraining| {
            let _ = tell.send(undraining);
        });
        // From before it is asked, so that its answer is not missed.
        let undrained =
            self.registry.sessions().get(name).map(|session| session.undrained.subscribe());
        self.inbox.undrain_worker(name, reply).map_err(unheard)?;
        match told.await {
            Ok(Undraining::NotDraining | Undraining::Away) => Ok(()),
            Ok(Undraining::Ask) => {
                self.registry.tell(name, Kind::Undrain(proto::Undrain {}));
                let Some(mut undrained) = undrained else { return Ok(()) };
                match timeout(KNOWN_WITHIN, undrained.changed()).await {
                    Ok(Ok(())) => Ok(()),
                    _ => Err(ApiError::NotPossible(format!(
                        "worker {name:?} has not said within {} s that it takes new work again: it may be \
                         leaving, or be of a version that cannot; `steadfast workers` shows what it does",
                        KNOWN_WITHIN.as_secs()
                    ))),
                }
            }
            Ok(Undraining::Unknown) => {
                let name: String = name.chars().take(64).collect();
                Err(ApiError::NotFound(format!(
                    "there is no worker {name:?}; one that was drained leaves when it has finished: start \
                     it again"
                )))
            }
            Err(_) => Err(unheard(SendError::Stopped)),
        }
    }

    async fn why_not_running(&self, job: &str) -> Result<Vec<((u32, u32), String)>, ApiError> {
        let job = job.to_owned();
        self.ask(move |engine| engine.why_not_running(&job)).await
    }

    async fn queue_by_reason(&self) -> Result<Vec<(String, u64)>, ApiError> {
        self.ask(steadfast_engine::Engine::queue_by_reason).await
    }
}

fn shown(view: steadfast_engine::WorkerInfo) -> WorkerInfo {
    let spec = view.spec;
    WorkerInfo {
        name: spec.name.to_string(),
        datacenter: spec.datacenter,
        state: view.state.name().to_owned(),
        why: view.why,
        slots: spec.slots,
        credits: view.credits,
        busy: view.running,
        cpu: spec.cpu,
        cpu_used: view.cpu_used,
        memory_bytes: spec.memory_bytes,
        memory_used: view.memory_used,
        lease_left_ms: view.lease_left_ms,
        labels: spec.labels,
        functions: spec.functions.into_iter().collect(),
    }
}
