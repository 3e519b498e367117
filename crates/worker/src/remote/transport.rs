//! The executor's transport to a server: attempts come as assignments of a session, and how they ended is kept until
//! the server has acknowledged it.
//!
//! Nothing slow happens while its state is locked: no disk, no network.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use proto::assignment::Action;
use steadfast_api::{WorkerReport, awaiting_report, proto, to_report};
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::Http;
use tokio::sync::watch;

use super::connect::Client;
use super::files::Files;
use super::identity::Identity;
use super::logs::{LogSource, Logs, Place};
use super::reports::{ReportStore, Reports};
use super::secrets::Secrets;
use super::worker_dir::WorkerDir;
use super::{RemoteConfig, RemoteError, attempt, held, worker_dir};
use crate::executor::{Settled, Work};
use crate::http::{Called, Caller, HttpOrder};
use crate::tasks::{Call, TimedTask};
use crate::{Ended, LOG_CAP, OUTPUT_CAP, Ports, Stop, Task, TaskControl, Transport};

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
    pub(super) limits: Limits,
    /// Calls web services, if this worker does.
    pub(super) caller: Option<Caller>,
    report_store: ReportStore,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

/// What the server allows an attempt, from its last welcome.
#[derive(Debug)]
pub(super) struct Limits {
    log_bytes: AtomicU64,
    output_bytes: AtomicU64,
}

impl Limits {
    /// They hold for attempts that begin from now on. A server that says none has those of old.
    pub(super) fn welcome(&self, welcome: &proto::Welcome) {
        let said =
            [(&self.log_bytes, welcome.log_bytes), (&self.output_bytes, welcome.output_bytes)];
        for (limit, said) in said.into_iter().filter(|(_, said)| *said > 0) {
            limit.store(said, Ordering::Relaxed);
        }
    }

    pub(super) fn log_bytes(&self) -> u64 {
        self.log_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn output_bytes(&self) -> u64 {
        self.output_bytes.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) reports: Reports,
    pub(super) logs: Logs,
    /// Of attempts that have begun, until they are reported.
    pub(super) folders: HashMap<AttemptId, PathBuf>,
    /// The server has taken a drain back in this session, and is still to be told that we know. It says so again
    /// in every session until it is.
    pub(super) undrain_unanswered: bool,
    welcomed: bool,
    /// Everything is over: a session may end, and none is opened any more.
    pub(super) leaving: bool,
    /// Of the session there is.
    pub(super) client: Option<Client>,
}

impl State {
    /// Whom to wake, once nothing is locked.
    #[must_use]
    pub(super) fn welcomed(&mut self, client: Client) -> Option<Waker> {
        self.welcomed = true;
        self.client = Some(client);
        self.undrain_unanswered = false;
        self.reports.welcomed()
    }
}

impl Work for proto::Assignment {
    type Attempt = proto::AttemptRef;

    fn id(&self) -> AttemptId {
        self.attempt.as_ref().map_or_else(|| AttemptId::new("", 0), proto::AttemptRef::id)
    }

    fn attempt(&self) -> proto::AttemptRef {
        self.attempt.clone().unwrap_or_default()
    }

    fn is_task(&self) -> bool {
        matches!(self.action, Some(Action::Call(_) | Action::HttpJson(_)))
    }
}

impl SessionTransport {
    pub(super) fn new(
        config: RemoteConfig,
        dir: WorkerDir,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Self, RemoteError> {
        let report_store = ReportStore::new(&dir);
        let unusable = |source| RemoteError::Folder { path: dir.reports(), source };
        let reports = Reports::new(report_store.read().map_err(unusable)?);
        let logs = Logs::new(report_store.read_logs().map_err(unusable)?);
        let identity = Identity::open(dir.identity())?;
        let random = getrandom::u64().map_err(|error| RemoteError::Random(error.to_string()))?;
        let caller = config.outbound.as_ref().map(Caller::new).transpose()?;
        let state = State {
            reports,
            logs,
            folders: HashMap::new(),
            undrain_unanswered: false,
            welcomed: false,
            leaving: false,
            client: None,
        };
        Ok(Self {
            caller,
            incarnation: format!("{random:016x}"),
            identity,
            files: Files::new(dir.files(), config.name.clone(), runtime.clone()),
            secrets: Secrets::new(
                config.secrets.clone().unwrap_or_else(|| dir.secrets()),
                config.secrets_allowed.clone(),
            ),
            ports: Ports::new(),
            limits: Limits {
                log_bytes: AtomicU64::new(LOG_CAP),
                output_bytes: AtomicU64::new(OUTPUT_CAP),
            },
            report_store,
            config,
            dir,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        held(&self.state)
    }

    /// Hears of every change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The report is the server's from now on; its log follows.
    pub(super) fn acknowledged(&self, id: &AttemptId) {
        let mut state = self.state();
        let Some(kept) = state.reports.acknowledged(id) else { return };
        let log_follows = kept.report.log_follows;
        if kept.on_disk || log_follows {
            drop(state);
            self.report_store.acknowledged(id, log_follows);
            state = self.state();
        }
        if log_follows {
            state.logs.finished(id, &kept.report.attempt.unwrap_or_default(), &self.dir);
        }
        drop(state);
        self.drop_excess_logs();
        self.changed();
    }

    /// The server has all of it, or wants no more.
    pub(super) fn log_sent(&self, id: &AttemptId) {
        self.state().logs.forget(id);
        self.report_store.remove_log(id);
        self.changed();
    }

    /// Logs that wait for the server may not fill the disk.
    fn drop_excess_logs(&self) {
        for id in self.state().logs.excess() {
            tracing::warn!(attempt = %id, "too many logs wait for the server: this one is given up");
            self.report_store.remove_log(&id);
        }
    }

    /// This life was in a session before.
    pub(super) fn is_welcomed(&self) -> bool {
        self.state().welcomed
    }

    pub(super) fn is_heard(&self) -> bool {
        let state = self.state();
        state.reports.is_empty() && state.logs.is_empty()
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
    type Work = proto::Assignment;

    const REPORTS_WAIT: bool = true;

    fn run(
        &self,
        assignment: &proto::Assignment,
        stop: &Stop,
        started: &dyn Fn(),
    ) -> (Ended, String) {
        attempt::run(self, assignment, stop, started)
    }

    /// It may find some elsewhere.
    fn unwatchable(&self, _: &io::Error) -> Outcome {
        Outcome::NOT_BEGUN
    }

    fn task(
        &self,
        mut assignment: proto::Assignment,
        control: &TaskControl,
    ) -> Result<TimedTask, Outcome> {
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

    fn control(&self) -> TaskControl {
        TaskControl::new(self.limits.log_bytes())
    }

    fn said(&self, id: &AttemptId, attempt: &proto::AttemptRef, control: &TaskControl) {
        let mut state = self.state();
        let has_log = control.has_log();
        if has_log {
            control.log_told();
            state.logs.running(id, || LogSource::new(attempt, Place::Memory(control.clone())));
        }
        let progress = control.take_progress().map(|progress| progress_of(attempt, progress));
        let waker = progress.and_then(|progress| state.reports.progress(id, progress));
        drop(state);
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
        settled: Settled<proto::AttemptRef>,
        control: Option<&TaskControl>,
    ) {
        let Settled { attempt, report, why, started, withdrawn } = settled;
        // Tasks have none.
        let folder = if control.is_none() { self.state().folders.remove(id) } else { None };
        if let Some(folder) = folder.as_ref().filter(|_| !started) {
            // Before the report: the same attempt may be assigned anew, with the same folder.
            self.remove_work(folder);
        }
        let mut report = match report {
            WorkerReport::Ended(outcome) => {
                let outcome = outcome.within(self.limits.output_bytes() as usize);
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
                self.report_store.write_unsynced(id, &report)
            } else {
                self.report_store.write(id, &report)
            };
            if let Err(error) = written {
                tracing::warn!(attempt = %id, %error, "a report is kept in memory only");
            }
        }
        let last = control.and_then(TaskControl::take_progress);
        let last = last
            .zip(report.attempt.as_ref())
            .map(|(progress, attempt)| progress_of(attempt, progress));
        let mut state = self.state();
        if let (Some(place), Some(attempt)) = (log, &report.attempt) {
            state.logs.ended(id, LogSource::new(attempt, place));
        } else {
            state.logs.forget(id);
        }
        let waker = state.reports.insert(id.clone(), last, report, is_process, withdrawn);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        if let Some(folder) = folder.filter(|_| started) {
            self.remove_work(&folder);
        }
    }

    /// Nobody asks how it ended, but what it printed until then is still to be sent.
    fn withdrawn(&self, id: &AttemptId) {
        self.acknowledged(id);
    }

    fn changed(&self) {
        self.changed.send_replace(());
    }
}

fn progress_of(attempt: &proto::AttemptRef, progress_json: String) -> proto::Progress {
    proto::Progress { attempt: Some(attempt.clone()), progress_json }
}
