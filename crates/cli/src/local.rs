//! Workers of this process: what the engine assigns becomes an attempt of the pool, and what the pool
//! says becomes a report.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::decide::Input;
use steadfast_core::event::JobId;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome, Permanence};
use steadfast_core::plan::{Action, Cwd};
use steadfast_engine::{Assignment, Inbox, Work, Workers, crash_point};
use steadfast_worker::{
    Command, Ended, Folders, KILL_GRACE, LOG_CAP, Order, Over, Pool, Ports, Prepared, Surroundings,
    Tasks, prepare,
};

use crate::calls::{Calls, HttpExecutor};
use crate::data::Data;

/// A job and the token of its attempt.
type Key = (JobId, u64);

/// What all slots share.
#[derive(Debug)]
pub(crate) struct LocalExecutor {
    data: Data,
    inbox: Inbox,
    ports: Ports,
    folders: Arc<Folders<Key>>,
}

#[derive(Clone, Debug)]
pub(crate) struct LocalWorkers {
    pool: Arc<Pool<LocalExecutor>>,
    folders: Arc<Folders<Key>>,
    /// None: the job calls no service.
    calls: Option<Calls>,
}

impl LocalWorkers {
    /// `keep`: every attempt keeps its folder.
    pub(crate) fn start(
        count: u32,
        data: Data,
        inbox: Inbox,
        keep: bool,
        booth: Option<HttpExecutor>,
    ) -> Self {
        steadfast_worker::adopt_orphans();
        let folders = Arc::new(Folders::new(keep));
        let calls = booth.map(|booth| booth.staff(inbox.clone()));
        let shop = LocalExecutor { data, inbox, ports: Ports::default(), folders: folders.clone() };
        Self { pool: Arc::new(Pool::new(count, Arc::new(shop))), folders, calls }
    }

    /// Nothing waits, runs, or is being told of.
    pub(crate) fn is_idle(&self) -> bool {
        self.pool.is_idle() && self.calls.as_ref().is_none_or(Calls::is_idle)
    }

    /// Nobody is heard any more who calls back.
    pub(crate) fn close(&self) {
        self.calls.iter().for_each(Calls::close);
    }

    /// Ends everything, also what is assigned from now on.
    pub(crate) fn stop_all(&self) {
        self.pool.stop_all();
        self.calls.iter().for_each(Calls::stop_all);
    }

    /// The same, without any grace.
    pub(crate) fn kill_all(&self) {
        self.pool.kill_all();
        self.calls.iter().for_each(Calls::stop_all);
    }
}

impl Workers for LocalWorkers {
    fn assign(&mut self, mut work: Box<Work>) {
        if let (Some(calls), Ok(Action::Http(http))) = (&self.calls, &mut work.action) {
            let http = std::mem::take(http);
            return calls.assign(work, http);
        }
        self.pool.assign((work.assignment.job.clone(), work.assignment.token), *work);
    }

    fn withdraw(&mut self, over: Assignment) {
        self.calls.iter().for_each(|calls| calls.withdraw(over.token));
        self.pool.stop(&(over.job, over.token));
    }

    fn settled(&mut self, job: &JobId, token: u64) {
        self.folders.settled(&(job.clone(), token));
    }
}

fn not_run(kind: &str, message: String, permanence: Permanence) -> Outcome {
    let error = Some(ErrorText { kind: Some(kind.to_owned()), message });
    Outcome::Failed(Failure { error, permanence, ..Failure::new(FailureKind::NotCompleted) })
}

impl Tasks for LocalExecutor {
    type Key = Key;
    type Task = Work;

    /// The attempt as a process, with its own folder made.
    fn prepare(&self, key: &Key, work: &Work) -> Result<Prepared, Outcome> {
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
        let folder = self.data.folder.work(job).join(&work.folder);
        let disk = |error: std::io::Error| {
            not_run("workdir", format!("{}: {error}", folder.display()), Permanence::Open)
        };
        self.folders.make(key.clone(), &folder).map_err(disk)?;
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
        // It has them with the rest of our environment; named, they are kept out of what is said of it.
        let secrets = work.secrets.iter();
        let secrets = secrets.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
        let place = Surroundings {
            env: work.env.clone().into_iter().collect(),
            inherit_env: true,
            secrets: secrets.collect(),
            user: None,
            // Making one costs as much as a tiny process.
            grouped: false,
            cwd,
            log: self.data.folder.log(job, &work.step, *item, *attempt),
            log_cap: LOG_CAP,
            log_times: true,
            output: folder.join("output.json"),
            kill_grace: KILL_GRACE,
            folder: folder.clone(),
        };
        let (attempt, ports) = prepare(order, place, &self.ports).map_err(disk)?;
        Ok(Prepared { attempt, ports })
    }

    fn started(&self) {
        crash_point("while-running");
    }

    fn over(&self, key: &Key, work: &Work, how: Over) {
        let outcome = match how {
            Over::Ended(Ended::Outcome(outcome)) => outcome,
            // Interrupted, the work is lost. Withdrawn, the engine knows and refuses to hear of it.
            Over::Ended(Ended::Stopped) => Outcome::LOST,
            Over::NeverBegan => Outcome::NOT_BEGUN,
        };
        // Only the folder of a success is handed on.
        if !matches!(outcome, Outcome::Succeeded { .. }) {
            self.folders.leave(key);
        }
        let Assignment { job, item, token, .. } = &work.assignment;
        self.inbox.report(job, Input::Report { item: *item, token: *token, outcome });
    }
}

fn copy_into(from: &Path, to: &Path) -> std::io::Result<()> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).map(drop)
}
