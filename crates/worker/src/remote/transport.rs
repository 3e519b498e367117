//! The executor's transport to its servers: attempts come as assignments of a session, and how they ended is kept
//! until the server that assigned them has acknowledged it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use proto::assignment::Action;
use steadfast_api::{WorkerReport, awaiting_report, proto, to_report};
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::Http;
use tokio::sync::watch;

use super::dial::Dialer;
use super::files::Files;
use super::identity::Identity;
use super::logs::{LogSource, Logs, Place};
use super::reports::{LeftBehind, ReportStore};
use super::secrets::Secrets;
use super::server::{Server, ServerName};
use super::worker_dir::WorkerDir;
use super::{LocalToken, RemoteConfig, RemoteError, attempt, held, worker_dir};
use crate::executor::{Settled, Work};
use crate::http::{Called, Caller, HttpOrder};
use crate::tasks::{Call, TimedTask};
use crate::{Ended, Ports, Resources, Source, Stop, Task, TaskControl, Transport};

#[derive(Debug)]
pub(super) struct SessionTransport {
    pub(super) config: RemoteConfig,
    /// Of this life.
    pub(super) incarnation: String,
    pub(super) identity: Identity,
    pub(super) dir: WorkerDir,
    pub(super) files: Files,
    pub(super) secrets: Secrets,
    pub(super) ports: Ports,
    /// Calls web services, if this worker does.
    pub(super) caller: Option<Caller>,
    report_store: ReportStore,
    /// By their [source](Server::source).
    servers: RwLock<Vec<Arc<Server>>>,
    /// What earlier lives left for servers that are not known yet.
    left_behind: Mutex<LeftBehind>,
    /// Of attempts that have begun, until they are reported.
    folders: Mutex<HashMap<AttemptId, PathBuf>>,
    /// Everything is over: a session may end, and none is opened any more.
    leaving: AtomicBool,
    changed: watch::Sender<()>,
    /// Of attempts that another server has than the one that assigned them.
    homes: RwLock<HashMap<AttemptId, Arc<Server>>>,
}

/// An assignment, and the server that made it.
#[derive(Debug)]
pub(super) struct ServerWork {
    pub(super) server: Arc<Server>,
    pub(super) assignment: proto::Assignment,
}

/// An attempt, and the server that assigned it.
#[derive(Clone, Debug)]
pub(super) struct ServerAttempt {
    pub(super) server: Arc<Server>,
    pub(super) attempt: proto::AttemptRef,
}

impl Work for ServerWork {
    type Attempt = ServerAttempt;

    fn id(&self) -> AttemptId {
        let attempt = self.assignment.attempt.as_ref();
        attempt.map_or_else(|| AttemptId::new("", 0), proto::AttemptRef::id)
    }

    fn attempt(&self) -> ServerAttempt {
        let attempt = self.assignment.attempt.clone().unwrap_or_default();
        ServerAttempt { server: self.server.clone(), attempt }
    }

    fn is_task(&self) -> bool {
        matches!(self.assignment.action, Some(Action::Call(_) | Action::HttpJson(_)))
    }

    fn takes(&self) -> Resources {
        let proto::Assignment { cpu_milli, memory_bytes, .. } = self.assignment;
        Resources { cpu_milli, memory_bytes }
    }

    fn source(&self) -> Source {
        self.server.source
    }
}

impl SessionTransport {
    pub(super) fn new(
        config: RemoteConfig,
        dir: WorkerDir,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Self, RemoteError> {
        let report_store = ReportStore::new(&dir);
        let left_behind = report_store
            .read()
            .map_err(|source| RemoteError::Folder { path: dir.reports(), source })?;
        let identity = Identity::open(&dir)?;
        let random = getrandom::u64().map_err(|error| RemoteError::Random(error.to_string()))?;
        let caller = config.outbound.as_ref().map(Caller::new).transpose()?;
        let transport = Self {
            caller,
            incarnation: format!("{random:016x}"),
            identity,
            files: Files::new(dir.files(), config.name.clone(), runtime.clone()),
            secrets: Secrets::new(
                config.secrets.clone().unwrap_or_else(|| dir.secrets()),
                config.secrets_allowed.clone(),
            ),
            ports: Ports::new(),
            report_store,
            servers: RwLock::default(),
            left_behind: Mutex::new(left_behind),
            folders: Mutex::default(),
            leaving: AtomicBool::new(false),
            config,
            dir,
            changed: watch::Sender::new(()),
            homes: RwLock::default(),
        };
        for address in &transport.config.servers {
            transport.add(address, false, || ())?;
        }
        Ok(transport)
    }

    pub(super) fn servers(&self) -> RwLockReadGuard<'_, Vec<Arc<Server>>> {
        self.servers.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that no server of the list is to hear: one of them may name who is.
    pub(super) fn tell_left_behind(&self) {
        for (server, reports) in held(&self.left_behind).waiting() {
            tracing::warn!(
                server,
                reports,
                "reports are kept for a server that is not in the list"
            );
        }
    }

    pub(super) fn knows(&self, address: &str) -> bool {
        self.servers().iter().any(|server| server.name.address == plain(address))
    }

    /// One that another has named. `first`: what is to happen before it can assign anything.
    pub(super) fn add_learned(
        &self,
        address: &str,
        first: impl FnOnce(),
    ) -> Result<(), RemoteError> {
        self.add(address, true, first)
    }

    fn add(&self, address: &str, learned: bool, first: impl FnOnce()) -> Result<(), RemoteError> {
        let config = &self.config;
        let (token, tls) = (config.token.as_ref(), config.tls.as_ref());
        let name = ServerName { address: plain(address).to_owned(), learned };
        let door = config.door.clone().filter(|_| !learned);
        let dialer = Dialer::new(&name.address, token, tls, door, LocalToken::Worker)?;
        let mut servers = self.servers.write().unwrap_or_else(PoisonError::into_inner);
        if servers.iter().any(|server| server.name.address == name.address) {
            return Ok(());
        }
        let left = held(&self.left_behind).take(&name, self.is_alone());
        first();
        let server = Server::new(servers.len(), name, dialer, left);
        servers.push(Arc::new(server));
        Ok(())
    }

    /// It was started for one server.
    pub(super) fn is_alone(&self) -> bool {
        self.config.servers.len() == 1
    }

    /// Hears of every change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// What is done with the server that has the attempt: it stays that one's meanwhile. `assigned`: the one that had it first.
    pub(super) fn at_home<R>(
        &self,
        id: &AttemptId,
        assigned: &Arc<Server>,
        act: impl FnOnce(&Arc<Server>) -> R,
    ) -> R {
        let homes = self.homes.read().unwrap_or_else(PoisonError::into_inner);
        act(homes.get(id).unwrap_or(assigned))
    }

    /// What is said of these is this server's to hear from now on, and what was said and not heard.
    pub(super) fn take_home(&self, server: &Arc<Server>, ids: &[AttemptId]) {
        let mut homes = self.homes.write().unwrap_or_else(PoisonError::into_inner);
        homes.extend(ids.iter().map(|id| (id.clone(), server.clone())));
        let mut waker = None;
        for other in self.servers().iter().filter(|other| other.source != server.source) {
            for id in ids {
                // One after the other: two that give each other something do not wait for each other.
                let mut logs = Logs::default();
                let mut state = other.state();
                let taken = state.reports.take(id);
                state.logs.move_to(&mut logs, id);
                drop(state);
                let mut state = server.state();
                waker = state.reports.put(id, taken).or(waker);
                logs.move_to(&mut state.logs, id);
            }
        }
        drop(homes);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The report is the server's from now on; its log follows.
    pub(super) fn acknowledged(&self, server: &Server, id: &AttemptId) {
        if !self.homes.read().unwrap_or_else(PoisonError::into_inner).is_empty() {
            self.homes.write().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
        let mut state = server.state();
        let Some(kept) = state.reports.acknowledged(id) else { return };
        let log_follows = kept.report.log_follows;
        if kept.on_disk || log_follows {
            drop(state);
            self.report_store.acknowledged(id, log_follows);
            state = server.state();
        }
        if log_follows {
            state.logs.finished(id, &kept.report.attempt.unwrap_or_default(), &self.dir);
        }
        drop(state);
        self.drop_excess_logs(server);
        self.changed();
    }

    /// The server has all of it, or wants no more.
    pub(super) fn log_sent(&self, server: &Server, id: &AttemptId) {
        server.state().logs.forget(id);
        self.report_store.remove_log(id);
        self.changed();
    }

    /// Logs that wait for a server may not fill the disk.
    fn drop_excess_logs(&self, server: &Server) {
        for id in server.state().logs.excess() {
            tracing::warn!(attempt = %id, "too many logs wait for the server: this one is given up");
            self.report_store.remove_log(&id);
        }
    }

    pub(super) fn is_heard(&self) -> bool {
        self.servers().iter().all(|server| server.is_heard())
    }

    pub(super) fn leave(&self) {
        self.leaving.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::SeqCst)
    }

    /// There, until it is reported.
    pub(super) fn keep_folder(&self, id: AttemptId, folder: PathBuf) {
        held(&self.folders).insert(id, folder);
    }

    fn call(&self, call: Call) -> Result<Task, Outcome> {
        let name = call.name.clone();
        let task = self.config.functions.as_ref().and_then(|functions| functions.call(call));
        // The server knows what we have: it is wrong, or another one's.
        task.ok_or_else(|| {
            let why = format!("this worker has no function {name:?}");
            attempt::permanent("unknown_function", why)
        })
    }

    fn service(
        &self,
        json: &str,
        timeout: Option<Duration>,
        assignment: proto::Assignment,
    ) -> Result<Task, Outcome> {
        let http: Http = serde_json::from_str(json).map_err(|error| {
            attempt::permanent("assignment_refused", format!("the request is not one: {error}"))
        })?;
        let Some(caller) = self.caller.clone() else {
            let why = "this worker calls no web services".to_owned();
            return Err(attempt::permanent("unsupported", why));
        };
        let secrets = self.secrets.find(&assignment.secrets).map_err(attempt::secret_missing)?;
        Ok(Box::pin(async move {
            let secrets = secrets.into_iter().collect();
            let attempt = assignment.attempt.unwrap_or_default();
            let text = |text: &'_ String| Some(text.clone()).filter(|text| !text.is_empty());
            let (datacenter, callback_url) =
                (text(&assignment.datacenter), text(&assignment.callback_url));
            let order = HttpOrder {
                http: &http,
                job_id: &attempt.job_id,
                step: &attempt.step_name,
                item: attempt.item(),
                datacenter: datacenter.as_deref(),
                attempt: attempt.attempt,
                callback_url: callback_url.as_deref(),
                timeout,
                secrets: &secrets,
            };
            match caller.call(&order).await {
                Called::Ended(outcome) => WorkerReport::Ended(outcome),
                Called::AwaitsCallback => WorkerReport::AwaitsCallback,
            }
        }))
    }

    fn remove_work(&self, folder: &Path) {
        if !self.config.keep {
            worker_dir::remove_work(folder);
        }
    }
}

impl Transport for SessionTransport {
    type Work = ServerWork;

    const REPORTS_WAIT: bool = true;

    fn run(&self, work: &ServerWork, stop: &Stop, started: &dyn Fn()) -> (Ended, String) {
        attempt::run(self, work, stop, started)
    }

    /// It may find some elsewhere.
    fn unwatchable(&self, _: &io::Error) -> Outcome {
        Outcome::NOT_BEGUN
    }

    fn task(&self, work: ServerWork, control: &TaskControl) -> Result<TimedTask, Outcome> {
        let mut assignment = work.assignment;
        let limit = |ms: u64| Some(ms).filter(|ms| *ms > 0).map(Duration::from_millis);
        let (timeout, silence) = (limit(assignment.timeout_ms), limit(assignment.heartbeat_ms));
        match assignment.action.take() {
            Some(Action::Call(proto::Call { name, input_json })) => {
                let control = control.clone();
                let task = self.call(Call { name, input: input_json, assignment, control })?;
                Ok(TimedTask { task, timeout, silence })
            }
            Some(Action::HttpJson(json)) => {
                // A call has its own limit, which says what it waited for; and it is silent until it is over.
                let task = self.service(&json, timeout, assignment)?;
                Ok(TimedTask { task, timeout: None, silence: None })
            }
            _ => Err(attempt::permanent("unsupported", "this is no function".to_owned())),
        }
    }

    fn control(&self, work: &ServerWork) -> TaskControl {
        TaskControl::new(work.server.limits.log_bytes())
    }

    fn said(&self, id: &AttemptId, attempt: &ServerAttempt, control: &TaskControl) {
        let ServerAttempt { server, attempt } = attempt;
        let has_log = control.has_log();
        let waker = self.at_home(id, server, |server| {
            let mut state = server.state();
            if has_log {
                control.log_told();
                state.logs.running(id, || LogSource::new(attempt, Place::Memory(control.clone())));
            }
            let progress = control.take_progress().map(|progress| progress_of(attempt, progress));
            progress.and_then(|progress| state.reports.progress(id, progress))
        });
        if let Some(waker) = waker {
            waker.wake();
        }
        if has_log {
            self.changed();
        }
    }

    fn grace(&self) -> Duration {
        self.config.kill_grace
    }

    /// Of a process it is first a file. A function's report needs no disk: a worker that dies takes its functions
    /// along, and they are lost with it. Nor does what never began: the server sees from the next hello that it
    /// is not here.
    fn report(
        &self,
        id: &AttemptId,
        settled: Settled<ServerAttempt>,
        control: Option<&TaskControl>,
    ) {
        let Settled { attempt, report, why, started, withdrawn } = settled;
        let ServerAttempt { server, attempt } = attempt;
        // Tasks have none.
        let folder = if control.is_none() { held(&self.folders).remove(id) } else { None };
        if let Some(folder) = folder.as_ref().filter(|_| !started) {
            // Before the report: the same attempt may be assigned anew, with the same folder.
            self.remove_work(folder);
        }
        let mut report = match report {
            WorkerReport::Ended(outcome) => {
                let outcome = outcome.within(server.limits.output_bytes() as usize);
                to_report(attempt, &outcome, &why)
            }
            WorkerReport::AwaitsCallback => awaiting_report(attempt),
        };
        let log =
            control.filter(|control| control.log_length() > 0).map(|it| Place::Memory(it.clone()));
        // An id that is no file name never had a file.
        let is_process = started && control.is_none() && worker_dir::is_plain(&id.job);
        let log = if is_process { Place::of_process(&self.dir, id) } else { log };
        report.log_follows = log.is_some();
        if is_process {
            let written = if withdrawn {
                // The report is not wanted, but it says whose the log is.
                self.report_store.write_unsynced(id, &server, &report)
            } else {
                self.report_store.write(id, &server, &report)
            };
            if let Err(error) = written {
                tracing::warn!(attempt = %id, %error, "a report is kept in memory only");
            }
        }
        let last = control.and_then(TaskControl::take_progress);
        let last = last
            .zip(report.attempt.as_ref())
            .map(|(progress, attempt)| progress_of(attempt, progress));
        let waker = self.at_home(id, &server, |server| {
            let mut state = server.state();
            if let (Some(place), Some(attempt)) = (log, &report.attempt) {
                state.logs.ended(id, LogSource::new(attempt, place));
            } else {
                state.logs.forget(id);
            }
            state.reports.insert(id.clone(), last, report, is_process, withdrawn)
        });
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(folder) = folder.filter(|_| started) {
            self.remove_work(&folder);
        }
    }

    /// Nobody asks how it ended, but what it printed until then is still to be sent.
    fn withdrawn(&self, id: &AttemptId, attempt: &ServerAttempt) {
        let home = self.at_home(id, &attempt.server, Arc::clone);
        self.acknowledged(&home, id);
    }

    fn changed(&self) {
        self.changed.send_replace(());
    }
}

fn progress_of(attempt: &proto::AttemptRef, progress_json: String) -> proto::Progress {
    proto::Progress { attempt: Some(attempt.clone()), progress_json }
}

/// As it is compared with others.
fn plain(address: &str) -> &str {
    address.trim_end_matches('/')
}
