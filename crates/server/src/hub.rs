//! Workers' sessions: what the engine assigns goes out, what workers say goes in.
//!
//! Decides nothing: whether a worker is believed, and what becomes of its attempts, is the engine's. A
//! session that breaks leaves everything as it is; the worker comes back, or its lease ends.

mod assignment;
mod session;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use steadfast_api::proto;
use steadfast_core::event::JobId;
use steadfast_engine::{Assignment, AttemptKey, Engine, Inbox, Undraining, Unheard, Work, Workers};
use steadfast_store::Folder;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::callbacks::Addresses;
use crate::health::Health;
use crate::http::{WorkerView, WorkersView};
use crate::trouble::Trouble;
use crate::watch::Watch;
use proto::to_worker::Kind;

pub use session::{LARGEST_MESSAGE, WorkerSessions};

/// How long whoever drains a worker waits for the worker to know.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// How workers are to behave, which they are told when they come.
#[derive(Clone, Copy, Debug)]
pub struct HubRules {
    pub lease_ms: u64,
    pub beat_ms: u64,
    /// Bytes kept of what one attempt printed.
    pub log_cap: u64,
    /// Of its output.
    pub output_cap: usize,
}

/// Cheap to clone: all are the same hub.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: HubRules,
    folder: Folder,
    watch: Watch,
    callbacks: Addresses,
    health: Health,
    sessions: Mutex<HashMap<Arc<str>, Session>>,
    last_session: AtomicU64,
}

/// A worker's way out. The queue has no bound of its own: the engine assigns no more than the worker has
/// slots for, and takes back no more than it assigned.
#[derive(Debug)]
struct Session {
    id: u64,
    out: mpsc::UnboundedSender<proto::ToWorker>,
    /// Attempts whose output is taken from this worker.
    held: HashSet<AttemptKey>,
    /// Those that were withdrawn from it last: what they print until they have ended is taken too.
    withdrawn: VecDeque<AttemptKey>,
    /// The worker has said that it takes nothing new.
    drains: watch::Sender<bool>,
    /// How often it has said that it takes new work again.
    undrained: watch::Sender<u64>,
    ended: Arc<Notify>,
}

/// Withdrawn attempts of a worker whose output is still taken. Most say soon that it was the last.
const WITHDRAWN: usize = 1024;

impl Session {
    /// The output of that attempt is this worker's to send.
    fn may_print(&self, key: &AttemptKey) -> bool {
        self.held.contains(key) || self.withdrawn.contains(key)
    }

    fn withdraw(&mut self, key: AttemptKey) {
        if self.held.remove(&key) {
            self.withdrawn.push_back(key);
            if self.withdrawn.len() > WITHDRAWN {
                self.withdrawn.pop_front();
            }
        }
    }
}

impl Hub {
    pub fn new(
        rules: HubRules,
        folder: Folder,
        watch: Watch,
        callbacks: Addresses,
        health: Health,
    ) -> Self {
        let (sessions, last_session) = (Mutex::default(), AtomicU64::new(0));
        Self(Arc::new(Shared { rules, folder, watch, callbacks, health, sessions, last_session }))
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
        self.sessions().values().for_each(|session| session.ended.notify_one());
    }

    fn tell(&self, worker: &str, kind: Kind) {
        if let Some(session) = self.sessions().get(worker) {
            // One that has gone hears of it when it comes back.
            let _ = session.out.send(proto::ToWorker { kind: Some(kind) });
        }
    }
}

impl Workers for Hub {
    fn assign(&mut self, work: Box<Work>) {
        let worker = work.assignment.worker.clone();
        let key = (work.assignment.job.clone(), work.assignment.token);
        let message =
            Kind::Assignment(assignment::assignment(*work, &self.0.folder, &self.0.callbacks));
        if let Some(session) = self.sessions().get_mut(&worker) {
            session.held.insert(key);
            let _ = session.out.send(proto::ToWorker { kind: Some(message) });
        }
    }

    fn withdraw(&mut self, over: Assignment) {
        let Assignment { job, item, attempt, token, worker } = over;
        let named = proto::AttemptRef::new(&job, item, attempt, token);
        if let Some(session) = self.sessions().get_mut(&worker) {
            session.withdraw((job, token));
            let kind = Kind::Withdrawal(proto::Withdrawal { attempt: Some(named) });
            let _ = session.out.send(proto::ToWorker { kind: Some(kind) });
        }
    }

    fn settled(&mut self, _: &JobId, _: u64) {}
}

/// The workers, as the engine knows them, for people.
#[derive(Clone, Debug)]
pub struct Fleet {
    pub hub: Hub,
    pub inbox: Inbox,
}

impl Fleet {
    /// Asks the engine; soon answered, as it waits for no disk.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Result<T, Trouble> {
        let (tell, told) = oneshot::channel();
        self.inbox.look(move |engine| drop(tell.send(question(engine)))).map_err(unheard)?;
        told.await.map_err(|_| unheard(Unheard::Stopped))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn unheard(why: Unheard) -> Trouble {
    Trouble::Overloaded(why.to_string())
}

#[tonic::async_trait]
impl WorkersView for Fleet {
    async fn list(&self) -> Result<Vec<WorkerView>, Trouble> {
        let views = self.ask(Engine::workers).await?;
        Ok(views.into_iter().map(shown).collect())
    }

    async fn drain(&self, name: &str) -> Result<(), Trouble> {
        let (tell, told) = oneshot::channel();
        let reply = Box::new(move |known| {
            let _ = tell.send(known);
        });
        self.inbox.drain_worker(name, reply).map_err(unheard)?;
        match told.await {
            Ok(true) => {
                let drains =
                    self.hub.sessions().get(name).map(|session| session.drains.subscribe());
                self.hub.tell(name, Kind::Drain(proto::Drain {}));
                // Once the worker knows, it goes on draining whatever becomes of this server.
                if let Some(mut drains) = drains {
                    let _ = timeout(KNOWN_WITHIN, drains.wait_for(|known| *known)).await;
                }
                Ok(())
            }
            Ok(false) => {
                let name: String = name.chars().take(64).collect();
                Err(Trouble::NotFound(format!("there is no worker {name:?}")))
            }
            Err(_) => Err(unheard(Unheard::Stopped)),
        }
    }

    async fn undrain(&self, name: &str) -> Result<(), Trouble> {
        let (tell, told) = oneshot::channel();
        let reply = Box::new(move |undraining| {
            let _ = tell.send(undraining);
        });
        // From before it is asked, so that its answer is not missed.
        let undrained = self.hub.sessions().get(name).map(|session| session.undrained.subscribe());
        self.inbox.undrain_worker(name, reply).map_err(unheard)?;
        match told.await {
            Ok(Undraining::NotDraining | Undraining::Away) => Ok(()),
            Ok(Undraining::Ask) => {
                self.hub.tell(name, Kind::Undrain(proto::Undrain {}));
                let Some(mut undrained) = undrained else { return Ok(()) };
                match timeout(KNOWN_WITHIN, undrained.changed()).await {
                    Ok(Ok(())) => Ok(()),
                    _ => Err(Trouble::NotPossible(format!(
                        "worker {name:?} has not said within {} s that it takes new work again: it may be \
                         leaving, or be of a version that cannot; `steadfast workers` shows what it does",
                        KNOWN_WITHIN.as_secs()
                    ))),
                }
            }
            Ok(Undraining::Unknown) => {
                let name: String = name.chars().take(64).collect();
                Err(Trouble::NotFound(format!(
                    "there is no worker {name:?}; one that was drained leaves when it has finished: start \
                     it again"
                )))
            }
            Err(_) => Err(unheard(Unheard::Stopped)),
        }
    }

    async fn why_not_running(&self, job: &str) -> Result<Vec<((u32, u32), String)>, Trouble> {
        let job = job.to_owned();
        self.ask(move |engine| engine.why_not_running(&job)).await
    }
}

fn shown(view: steadfast_engine::WorkerView) -> WorkerView {
    let spec = view.spec;
    WorkerView {
        name: spec.name.to_string(),
        datacenter: spec.datacenter,
        state: view.state.name(),
        why: view.why,
        slots: spec.slots,
        busy: view.running,
        cpu: spec.cpu,
        cpu_used: view.cpu_used,
        memory_bytes: spec.memory_bytes,
        memory_used: view.memory_used,
        labels: spec.labels,
        functions: spec.functions.into_iter().collect(),
    }
}
