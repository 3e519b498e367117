//! Workers' sessions: what the engine assigns goes out, what workers say goes in.
//!
//! Decides nothing: whether a worker is believed, and what becomes of its attempts, is the engine's. A
//! session that breaks leaves everything as it is; the worker comes back, or its lease ends.

mod assignment;
mod session;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_api::proto;
use steadfast_core::event::JobId;
use steadfast_engine::{Assignment, AttemptKey, Inbox, Unheard, Work, WorkerView, Workers};
use steadfast_store::Folder;
use tokio::sync::{Notify, mpsc, oneshot};

use proto::to_worker::Kind;

pub use session::{LARGEST_MESSAGE, WorkerSessions};

/// How workers are to behave, which they are told when they come.
#[derive(Clone, Copy, Debug)]
pub struct HubRules {
    pub lease_ms: u64,
    pub beat_ms: u64,
    /// Bytes kept of what one attempt printed.
    pub log_cap: u64,
}

/// Cheap to clone: all are the same hub.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: HubRules,
    folder: Folder,
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
    ended: Arc<Notify>,
}

impl Hub {
    pub fn new(rules: HubRules, folder: Folder) -> Self {
        let sessions = Mutex::default();
        Self(Arc::new(Shared { rules, folder, sessions, last_session: AtomicU64::new(0) }))
    }

    /// The worker of that name is told to take nothing new.
    pub fn tell_to_drain(&self, worker: &str) {
        self.tell(worker, Kind::Drain(proto::Drain {}));
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<Arc<str>, Session>> {
        // A session that panicked left a plain map behind, which is still right.
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_session(&self) -> u64 {
        self.0.last_session.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn tell(&self, worker: &str, kind: Kind) {
        if let Some(session) = self.sessions().get(worker) {
            // One that has gone hears of it when it comes back.
            let _ = session.out.send(proto::ToWorker { kind: Some(kind) });
        }
    }
}

impl Workers for Hub {
    fn assign(&mut self, work: Work) {
        let worker = work.assignment.worker.clone();
        let key = (work.assignment.job.clone(), work.assignment.token);
        let message = Kind::Assignment(assignment::assignment(work));
        if let Some(session) = self.sessions().get_mut(&worker) {
            session.held.insert(key);
            let _ = session.out.send(proto::ToWorker { kind: Some(message) });
        }
    }

    fn withdraw(&mut self, over: Assignment) {
        let Assignment { job, item, attempt, token, worker } = over;
        let named = proto::AttemptRef::new(&job, item, attempt, token);
        if let Some(session) = self.sessions().get_mut(&worker) {
            session.held.remove(&(job, token));
            let kind = Kind::Withdrawal(proto::Withdrawal { attempt: Some(named) });
            let _ = session.out.send(proto::ToWorker { kind: Some(kind) });
        }
    }

    fn settled(&mut self, _: &JobId, _: u64) {}
}

/// The workers there are, as the engine knows them.
pub async fn workers(inbox: &Inbox) -> Result<Vec<WorkerView>, Unheard> {
    ask(inbox, steadfast_engine::Engine::workers).await
}

/// Of every step of the job that has something to start, by run and step: why it has not.
pub async fn why_not_running(
    inbox: &Inbox,
    job: &str,
) -> Result<Vec<((u32, u32), String)>, Unheard> {
    let job = job.to_owned();
    ask(inbox, move |engine| engine.why_not_running(&job)).await
}

async fn ask<T: Send + 'static>(
    inbox: &Inbox,
    question: impl FnOnce(&steadfast_engine::Engine) -> T + Send + 'static,
) -> Result<T, Unheard> {
    let (tell, told) = oneshot::channel();
    inbox.look(move |engine| drop(tell.send(question(engine))))?;
    told.await.map_err(|_| Unheard::Stopped)
}
