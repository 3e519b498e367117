//! The executor's transport within this process: the controller assigns, and hears through its inbox.
//!
//! Nothing is kept for a report: the controller's commit is its acknowledgement, and a crash of this process loses
//! both. So an attempt writes no file of its own and costs no task.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use steadfast_api::WorkerReport;
use steadfast_core::decide::Input;
use steadfast_core::event::{AttemptId, JobId};
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome, Permanence};
use steadfast_core::plan::{Action, Cwd, Http, HttpMode};
use steadfast_engine::{Assignment, Inbox, Work, Workers, crash_point};
use steadfast_store::{Folder, LogName};
use steadfast_worker::http::{Called, HttpOrder};
use steadfast_worker::{
    Capacity, Command, Driver, Ended, Folders, KILL_GRACE, LOG_CAP, OUTPUT_CAP, Order, Ports,
    Settled, Stop, Surroundings, TaskControl, TimedTask, Transport, prepare, run_and_tell,
};

use super::logs::LogShipper;
use super::services::{Calls, OpenServices, Services};

/// Where attempts work on this machine.
#[derive(Debug)]
pub(super) struct LocalFolder {
    folder: Folder,
    /// Every attempt keeps its own.
    keep: bool,
    /// None: the folder is where logs stay.
    logs: Option<LogShipper>,
}

impl LocalFolder {
    pub(super) fn new(folder: Folder, keep: bool, logs: Option<LogShipper>) -> Self {
        Self { folder, keep, logs }
    }
}

/// What all slots share.
#[derive(Debug)]
pub(super) struct InProcess {
    folder: Folder,
    logs: Option<LogShipper>,
    inbox: Inbox,
    ports: Ports,
    folders: Arc<Folders<AttemptId>>,
    /// None: the job calls no service.
    calls: Option<Arc<Calls>>,
}

#[derive(Debug)]
pub(super) struct LocalWork(Box<Work>);

impl steadfast_worker::Work for LocalWork {
    type Attempt = Assignment;

    fn id(&self) -> AttemptId {
        self.0.assignment.id()
    }

    fn attempt(&self) -> Assignment {
        self.0.assignment.clone()
    }

    fn is_task(&self) -> bool {
        matches!(self.0.action, Ok(Action::Http(_)))
    }
}

/// The executor of this machine, for the controller in this process. Cheap to clone: all are the same.
#[derive(Clone, Debug)]
pub(super) struct LocalWorkers {
    driver: Driver<InProcess>,
    folders: Arc<Folders<AttemptId>>,
    services: Option<OpenServices>,
}

impl LocalWorkers {
    pub(super) fn start(
        slots: u32,
        LocalFolder { folder, keep, logs }: LocalFolder,
        inbox: Inbox,
        services: Option<Services>,
    ) -> io::Result<Self> {
        steadfast_worker::adopt_orphans();
        let folders = Arc::new(Folders::new(keep).with_shelf(folder.spare()));
        let (calls, services) = services.map(|services| services.begin(inbox.clone())).unzip();
        let runtime = services.as_ref().and_then(OpenServices::runtime);
        let (ports, calls) = (Ports::default(), calls.map(Arc::new));
        let transport = InProcess { folder, logs, inbox, ports, folders: folders.clone(), calls };
        Ok(Self {
            driver: Driver::start(slots, Capacity::default(), transport, runtime)?,
            folders,
            services,
        })
    }

    /// Nothing waits, runs, or is being told of.
    pub(super) fn is_idle(&self) -> bool {
        self.driver.is_idle()
    }

    /// The job is over: nothing more of its attempts' folders is wanted. `is_alone`: nothing of it is left that could write to one.
    pub(super) fn clear(&self, job: &JobId, is_alone: bool) {
        let folder = &self.driver.transport().folder;
        if is_alone && folder.create_inside(&folder.spare()).is_ok() {
            self.folders.shelve(job);
        }
        let _ = fs::remove_dir_all(folder.work(job));
    }

    /// No callback is heard any more.
    pub(super) fn close(&self) {
        self.driver.close();
        self.services.iter().for_each(OpenServices::close);
    }

    /// Ends everything, also what is assigned from now on.
    pub(super) fn stop_all(&self) {
        self.driver.stop_all();
    }

    /// The same, without any grace.
    pub(super) fn kill_all(&self) {
        self.driver.kill_all();
    }
}

impl Workers for LocalWorkers {
    fn assign(&mut self, work: Box<Work>) {
        self.driver.assign(LocalWork(work));
    }

    fn withdraw(&mut self, over: Assignment) {
        self.driver.withdraw(&over.id());
    }

    fn settled(&mut self, job: &JobId, token: u64) {
        self.folders.settled(&AttemptId::new(job.clone(), token));
    }
}

fn not_run(kind: &str, message: String, permanence: Permanence) -> Outcome {
    let error = Some(ErrorText { kind: Some(kind.to_owned()), message });
    Outcome::Failed(Failure { error, permanence, ..Failure::new(FailureKind::NotCompleted) })
}

/// Of our environment; named, they are kept out of what is said of the attempt.
fn secrets<T: FromIterator<(String, String)>>(work: &Work) -> T {
    let names = work.secrets.iter();
    names.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?))).collect()
}

impl Transport for InProcess {
    type Work = LocalWork;

    const REPORTS_WAIT: bool = false;

    fn run(&self, LocalWork(work): &LocalWork, stop: &Stop, started: &dyn Fn()) -> (Ended, String) {
        let ended = match self.prepare(work) {
            Ok((attempt, _ports)) => run_and_tell(&attempt, stop, || {
                started();
                crash_point("while-running");
            }),
            Err(outcome) => Ended::Outcome(outcome),
        };
        (ended, String::new())
    }

    fn unwatchable(&self, error: &io::Error) -> Outcome {
        not_run("spawn_failed", error.to_string(), Permanence::Open)
    }

    fn task(&self, work: LocalWork, _: &TaskControl) -> Result<TimedTask, Outcome> {
        let LocalWork(mut work) = work;
        let action = std::mem::replace(&mut work.action, Err(String::new()));
        let (Ok(Action::Http(http)), Some(calls)) = (action, self.calls.clone()) else {
            let why = "it is not a call of a service".to_owned();
            return Err(not_run("unsupported", why, Permanence::Said));
        };
        let task = Box::pin(async move { calls.call(&work, &http).await });
        // The call itself knows how long it may take, and says what it waited for.
        Ok(TimedTask { task, timeout: None, silence: None })
    }

    fn grace(&self) -> Duration {
        KILL_GRACE
    }

    fn report(&self, id: &AttemptId, settled: Settled<Assignment>, _: Option<&TaskControl>) {
        let Settled { attempt, report, .. } = settled;
        let (item, token) = (attempt.item, attempt.token);
        if let Some(logs) = &self.logs {
            logs.ended(id);
        }
        let input = match report {
            WorkerReport::Ended(outcome) => {
                // Only the folder of a success is handed on.
                if !matches!(outcome, Outcome::Succeeded { .. }) {
                    self.folders.leave(id);
                }
                Input::Report { item, token, outcome: outcome.within(OUTPUT_CAP as usize) }
            }
            WorkerReport::AwaitsCallback => Input::Awaits { item, token },
        };
        // Of one that was withdrawn the controller knows, and refuses to hear.
        self.inbox.report(&attempt.job, input);
    }
}

impl InProcess {
    /// The attempt as a process, with its own folder made.
    fn prepare(
        &self,
        work: &Work,
    ) -> Result<(steadfast_worker::Attempt, Vec<steadfast_worker::Port>), Outcome> {
        let Assignment { job, item, attempt, token, .. } = &work.assignment;
        let permanent = |kind: &str, message: String| not_run(kind, message, Permanence::Said);
        let command = match &work.action {
            Ok(Action::Run(command)) => Command::Shell(command.clone()),
            Ok(Action::Argv(argv)) => Command::Argv(argv.clone()),
            Ok(Action::Http(_) | Action::Call { .. }) => {
                return Err(permanent("unsupported", "it is not a process".into()));
            }
            Err(why) => return Err(permanent("template", why.clone())),
        };
        let folder = self.folder.work(job).join(&work.folder);
        let disk = |error: io::Error| {
            not_run("workdir", format!("{}: {error}", folder.display()), Permanence::Open)
        };
        self.folders.make(work.assignment.id(), &folder).map_err(disk)?;
        let source = work.source.as_ref().map(|source| Path::new(&source.path));
        let source = source.and_then(Path::parent).unwrap_or(Path::new("."));
        let cwd = match work.cwd {
            Some(Cwd::Attempt) => {
                for file in &work.files {
                    copy_into(&source.join(file), &folder.join(file)).map_err(|error| {
                        not_run("files", format!("{file}: {error}"), Permanence::Open)
                    })?;
                }
                folder.clone()
            }
            Some(Cwd::Source) | None => source.to_owned(),
        };
        let order = Order {
            job,
            step: &work.step,
            item: *item,
            attempt: *attempt,
            token: *token,
            value: work.item.as_ref(),
            datacenter: work.datacenter.as_deref(),
            command,
            ports: &work.ports,
            timeout: work.timeout_ms.map(Duration::from_millis),
        };
        let log = self.folder.log(job, &work.step, *item, *attempt);
        if let Some(logs) = &self.logs {
            let name = LogName::new(job, &work.step, *item, *attempt);
            logs.began(work.assignment.id(), name, log.clone());
        }
        let place = Surroundings {
            env: work.env.clone().into_iter().collect(),
            inherit_env: true,
            secrets: secrets(work),
            user: None,
            // Making one costs as much as a tiny process.
            grouped: false,
            cwd,
            log,
            log_cap: LOG_CAP,
            // The database notes when something comes in.
            log_times: self.logs.is_none(),
            output: folder.join("output.json"),
            output_cap: OUTPUT_CAP,
            kill_grace: KILL_GRACE,
            folder: folder.clone(),
        };
        prepare(order, place, &self.ports).map_err(disk)
    }
}

impl Calls {
    async fn call(&self, work: &Work, http: &Http) -> WorkerReport {
        let Assignment { job, item, attempt, .. } = &work.assignment;
        let is_async = http.mode == HttpMode::Async;
        let callback_url =
            self.addresses.as_ref().filter(|_| is_async).map(|to| to.of(&work.assignment));
        let secrets: BTreeMap<String, String> = secrets(work);
        let order = HttpOrder {
            http,
            job_id: job,
            step: &work.step,
            item: *item,
            datacenter: work.datacenter.as_deref(),
            attempt: *attempt,
            callback_url: callback_url.as_deref(),
            timeout: work.timeout_ms.map(Duration::from_millis),
            secrets: &secrets,
        };
        match self.caller.call(&order).await {
            Called::Ended(outcome) => WorkerReport::Ended(outcome),
            Called::AwaitsCallback => WorkerReport::AwaitsCallback,
        }
    }
}

fn copy_into(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).map(drop)
}
