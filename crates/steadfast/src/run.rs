//! What `steadfast run` does: one job on this machine, to its end, by a controller and an executor in this process.
//!
//! The job's file, its view and the signals are the caller's: see [`RunView`]. Here are the words of the engine, not
//! of [`Client`](crate::Client); the data folder may be shared with other runs, and each job has its own lock.

mod lock;
mod services;
mod transport;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use sha2::{Digest, Sha256};
use steadfast_api::Attempts;
use steadfast_core::decide::Input;
use steadfast_core::event::{AcceptedJob, JobId, JobState, RecordedEvent, Requester, SourceFile};
use steadfast_core::job::{Job, Phase};
use steadfast_core::plan::{Action, Plan};
use steadfast_core::time::Timestamp;
use steadfast_engine::{
    Adopted, Assignment, Clock as _, CommandError, Live, Lost, Observer, Ownership, Placement,
    Slots, Stopped, Work, Workers,
};
use steadfast_server::clock::SystemClock;
use steadfast_server::queries::Projector;
use steadfast_store::{Folder, Journal as _, Owner, Reader as _, SqliteStore};
use steadfast_worker::http::Outbound;

pub use lock::{JobLock, ask_to_cancel, forget_lock};
use services::Services;
use transport::LocalWorkers;
use watch::{EventSender, Progress, Seen, TICK, Watch};

/// Waits for killed processes, in ticks, before this process ends all the same.
const KILLED_TICKS: u32 = 100;
/// Committed groups that the view has not taken: twice the messages that fit into the engine's mailbox, because while
/// a command waits for its answer nothing is taken, and each message before it may be a group. A view that is
/// stopped for longer, as by Ctrl-S, stops the job.
const UNSEEN: usize = 8192;

/// Why a job does not run here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// What this version cannot do, said before anything runs.
    #[error("{0}")]
    Unsupported(String),
    #[error("job {id} has ended: {state}")]
    Over { id: JobId, state: JobState },
    #[error(
        "job {0} was submitted to a server: it goes on when one is started with this data folder"
    )]
    OfServer(JobId),
    #[error("{path}: {error}", path = path.display())]
    SourceUnreadable { path: PathBuf, error: std::io::Error },
    #[error("{path} has changed since job {id} was started", path = path.display())]
    SourceChanged { path: PathBuf, id: JobId },
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("{0}")]
    Failed(String),
}

impl From<String> for RunError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn failed(error: impl ToString) -> RunError {
    RunError::Failed(error.to_string())
}

/// Where and how.
#[derive(Clone, Debug)]
pub struct RunOptions {
    pub folder: Folder,
    /// How many attempts at once; at least 1.
    pub slots: u32,
    /// Attempts keep their folders.
    pub keep: bool,
    /// How web services are called.
    pub outbound: Outbound,
}

/// Who watches, and may ask for the end. Called on the caller's thread.
pub trait RunView {
    /// The job is durable, and runs.
    fn began(&mut self, job: &JobId, resumed: bool);

    /// One durable event, before it is folded into `job`.
    fn event(&mut self, job: Option<&Job>, record: &RecordedEvent);

    /// Ten times a second.
    fn draw(&mut self, job: &Job, now: Timestamp);

    /// A person should know this.
    fn warn(&mut self, what: &str);

    /// How often a person has asked for the end: once ends what runs, twice kills it.
    fn interrupts(&self) -> usize;

    /// The first interrupt was noticed.
    fn interrupting(&mut self);
}

/// How the run ended.
#[derive(Debug)]
pub enum RunEnd {
    /// With its job.
    Over,
    /// Before its job, which can be resumed.
    Interrupted,
    /// The job cannot go on in this process: another has it, it contradicts itself, or the disk failed.
    Failed(String),
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    pub end: RunEnd,
    /// None: it was never stored.
    pub job: Option<Job>,
    /// None: the job was there before this run, and its log knows more.
    pub attempts: Option<Attempts>,
    /// Until it is dropped, this process is shown to be at the job.
    pub lock: JobLock,
}

/// A job of the data folder that this process, which has its lock, goes on with.
#[derive(Debug)]
pub struct Resumed {
    lock: JobLock,
    job: Job,
    adopted: Adopted,
    owner: Owner,
}

/// Sorts by time.
pub fn new_id() -> JobId {
    ulid::Ulid::generate().to_string().to_lowercase().into()
}

/// What a job of `run` knows of its file. `text` of none: what came from standard input has no file that could
/// change.
pub fn source(path: String, text: Option<&[u8]>) -> SourceFile {
    SourceFile { path, digest: text.map(digest).unwrap_or_default() }
}

fn digest(text: &[u8]) -> String {
    let hash = Sha256::digest(text);
    steadfast_core::hex::hex(&hash)
}

/// Processes mostly wait for something; a few more than there are cores keep those busy.
pub fn default_slots() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores as u32 * 2).max(8)
}

/// What this version cannot do is said before anything runs.
pub fn check(plan: &Plan) -> Result<(), RunError> {
    for step in plan.steps() {
        let mut actions = step.actions();
        if let Some(Action::Call { name, .. }) = actions.find(|a| matches!(a, Action::Call { .. }))
        {
            return Err(RunError::Unsupported(format!(
                "step `{}` calls the function `{name}`, and `run` has no functions: submit the job to a \
                 server with a worker that has it (docs/rust.md, docs/python.md), or embed the engine in \
                 your program (docs/rust.md)",
                step.name
            )));
        }
        for name in plan.surroundings().secrets.iter().chain(&step.surroundings.secrets) {
            if std::env::var_os(name).is_none() {
                return Err(RunError::Unsupported(format!(
                    "step `{}` needs the secret {name}, which is not in the environment",
                    step.name
                )));
            }
        }
    }
    Ok(())
}

impl Resumed {
    /// Takes over a job whose process is gone, and ends what that left running. `changed`: although its file is
    /// another by now.
    pub fn open(
        folder: &Folder,
        id: &str,
        changed: bool,
        view: &mut dyn RunView,
    ) -> Result<Self, RunError> {
        let lock = JobLock::take(folder, id)?;
        let mut store = open(folder)?;
        let job = steadfast_engine::state(&mut store, id).map_err(failed)?;
        if job.is_over() {
            forget_lock(folder, id);
            return Err(RunError::Over { id: job.id.clone(), state: job.state() });
        }
        // It came without a job file of its own, through a server.
        let Some(source) = &job.source else {
            forget_lock(folder, id);
            return Err(RunError::OfServer(job.id));
        };
        if !source.digest.is_empty() && !changed {
            let path = PathBuf::from(&source.path);
            match std::fs::read(&path) {
                Err(error) => return Err(RunError::SourceUnreadable { path, error }),
                Ok(text) if digest(&text) != source.digest => {
                    return Err(RunError::SourceChanged { path, id: job.id });
                }
                Ok(_) => {}
            }
        }
        Self::adopt(folder, store, job, lock, view)
    }

    fn adopt(
        folder: &Folder,
        mut store: SqliteStore,
        job: Job,
        lock: JobLock,
        view: &mut dyn RunView,
    ) -> Result<Self, RunError> {
        // Whatever a dead run left behind must not write into the attempts that follow.
        let orphans = steadfast_worker::kill_marked("STEADFAST_JOB_ID", &job.id)
            .map_err(|error| format!("cannot end what the interrupted run left behind: {error}"))?;
        if orphans > 0 {
            let many = if orphans == 1 { "process" } else { "processes" };
            view.warn(&format!("ended {orphans} {many} of the interrupted run"));
        }
        let down_since = lock.alive_at().unwrap_or(job.last_at).max(job.last_at);
        let stored = store.get(&job.id).map_err(failed)?;
        let owner = stored.map_or_else(|| job.id.to_string(), |stored| stored.owner);
        let owner = store.take(&owner, now(), Some(down_since)).map_err(failed)?;
        let gaps = store.gaps(&owner.id, &job.id, job.last_at).map_err(failed)?;
        let lost = lost(&job, folder);
        Ok(Self { lock, adopted: Adopted { job: job.clone(), gaps, lost }, job, owner })
    }
}

/// The attempts that the interrupted run had under way. A process without a folder never began; of a call
/// it cannot be told, so that the service may have done it.
fn lost(job: &Job, folder: &Folder) -> Vec<Lost> {
    let running = job.all_live().filter(|(_, item)| item.phase == Phase::Running);
    running
        .map(|(item, state)| {
            let name = job.plan.folder_name(&job.id, item, state.history.attempts);
            let is_call = matches!(job.plan.action_of(item), Some(Action::Http(_)));
            let started = is_call || folder.work(&job.id).join(name).exists();
            Lost { item, token: state.token, started }
        })
        .collect()
}

fn now() -> Timestamp {
    SystemClock.now()
}

fn open(folder: &Folder) -> Result<SqliteStore, RunError> {
    SqliteStore::open(&folder.database()).map_err(failed)
}

/// Runs a new job to its end.
pub fn start(
    options: &RunOptions,
    accepted: AcceptedJob,
    view: &mut dyn RunView,
) -> Result<Finished, RunError> {
    let folder = &options.folder;
    folder.create().map_err(|error| {
        format!("cannot make the data folder {}: {error}", folder.root().display())
    })?;
    let mut store = open(folder)?;
    let (id, plan) = (accepted.id.clone(), accepted.plan.clone());
    let lock = JobLock::take(folder, &id)?;
    // A job of `run` is its own owner.
    let owner = store.take(&id, now(), None).map_err(failed)?;
    let begin = Begin { id, plan, before: None, lock, owner };
    begin.run(options, store, view, |live| live.inbox().submit(accepted, None))
}

/// Goes on with a job to its end.
pub fn resume(
    options: &RunOptions,
    resumed: Resumed,
    view: &mut dyn RunView,
) -> Result<Finished, RunError> {
    let Resumed { lock, job, adopted, owner } = resumed;
    let store = open(&options.folder)?;
    let begin =
        Begin { id: job.id.clone(), plan: job.plan.clone(), before: Some(job), lock, owner };
    begin.run(options, store, view, |live| live.inbox().adopt(adopted))
}

/// Cancels a job whose process is gone: nothing of it is started.
pub fn cancel(
    folder: &Folder,
    lock: JobLock,
    job: Job,
    requested: Requester,
    view: &mut dyn RunView,
) -> Result<(), RunError> {
    let id = job.id.clone();
    let Resumed { lock: _lock, adopted, owner, .. } =
        Resumed::adopt(folder, open(folder)?, job, lock, view)?;
    let live = Live::start(
        Box::new(open(folder)?),
        Box::new(SystemClock),
        Placement::here(Slots::unlimited(), "cancel"),
        Ownership::alone(owner),
        |_| Idle,
        Box::new(Idle),
    );
    live.inbox().drain();
    live.inbox().adopt(adopted)?;
    live.inbox().command(&id, Input::Cancel(requested))?;
    live.stop().map_err(failed)?;
    forget_lock(folder, &id);
    Ok(())
}

/// Nothing starts while a job is cancelled, and nobody watches.
struct Idle;

impl Workers for Idle {
    fn assign(&mut self, _: Box<Work>) {}
    fn withdraw(&mut self, _: Assignment) {}
    fn settled(&mut self, _: &JobId, _: u64) {}
}

impl Observer for Idle {
    fn committed(&mut self, _: &JobId, _: Vec<RecordedEvent>) {}
}

/// A job that is about to be run by this process.
struct Begin {
    id: JobId,
    plan: Arc<Plan>,
    /// Its state so far, if it is resumed.
    before: Option<Job>,
    lock: JobLock,
    owner: Owner,
}

impl Begin {
    fn run(
        self,
        options: &RunOptions,
        store: SqliteStore,
        view: &mut dyn RunView,
        begin: impl FnOnce(&Live) -> steadfast_engine::Answer,
    ) -> Result<Finished, RunError> {
        let Self { id, plan, before, lock, owner } = self;
        let (folder, slots) = (&options.folder, options.slots);
        let services =
            Services::open(&plan, &id, &options.outbound, folder, |what| view.warn(what))?;
        let (tell, told) = sync_channel(UNSEEN);
        let mut workers = None;
        let live = Live::start(
            Box::new(store),
            Box::new(SystemClock),
            Placement::here(Slots::shared(slots), "local"),
            Ownership::alone(owner),
            |inbox| {
                let started =
                    LocalWorkers::start(slots, folder.clone(), inbox, options.keep, services);
                let started = started.expect("a process can have one more thread");
                workers = Some(started.clone());
                started
            },
            Box::new(EventSender { watch: tell, projector: Projector::start(folder.storage()) }),
        );
        let workers = workers.ok_or_else(|| failed("the engine has no workers"))?;
        begin(&live)?;
        view.began(&id, before.is_some());
        let resumed = before.is_some();
        let mut watch = Watch {
            id: &id,
            live: &live,
            told: &told,
            workers: &workers,
            lock: &lock,
            seen: Seen { job: before, attempts: (!resumed).then(Attempts::default) },
        };
        let end = watch.until_end(view);
        let mut seen = watch.seen;
        // Nothing of ours outlives us, also when the engine itself is what failed.
        if !workers.is_idle() {
            workers.kill_all();
            for _ in 0..KILLED_TICKS {
                if workers.is_idle() {
                    break;
                }
                if let Ok(progress) = told.recv_timeout(TICK) {
                    seen.show(progress.into_events(), view)?;
                }
            }
        }
        workers.close();
        seen.show(told.try_iter().flat_map(Progress::into_events), view)?;
        // While the store is closed, what the job leaves behind is put away.
        let stopped = std::thread::scope(|scope| {
            let stopping = scope.spawn(|| live.stop());
            if let RunEnd::Over = end {
                if !options.keep {
                    let _ = std::fs::remove_dir_all(folder.work(&id));
                }
                // A process that ran away from its attempt ends with the job at the latest.
                let _ = steadfast_worker::kill_marked("STEADFAST_JOB_ID", &id);
            }
            stopping.join().unwrap_or(Err(Stopped::Failed))
        });
        // What was committed on the way out is part of what is shown.
        seen.show(told.try_iter().flat_map(Progress::into_events), view)?;
        let end = match (end, stopped) {
            (RunEnd::Failed(why), _) => RunEnd::Failed(why),
            (_, Err(error)) => RunEnd::Failed(error.to_string()),
            (end, Ok(())) => end,
        };
        if let RunEnd::Over = end {
            forget_lock(folder, &id);
        }
        Ok(Finished { end, job: seen.job, attempts: seen.attempts, lock })
    }
}
