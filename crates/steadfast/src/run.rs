//! What `steadfast run` does: one job on this machine, to its end, by a controller and an executor in this process.
//!
//! The job's file, its view and the signals are the caller's: see [`RunView`]. Here are the words of the engine, not
//! of [`Client`](crate::Client); the data folder, or the database, may be shared with other runs, and each job is one process's.

mod cancel;
mod keeper;
mod logs;
mod place;
mod port;
mod services;
mod transport;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use sha2::{Digest, Sha256};
use steadfast_api::Attempts;
use steadfast_core::event::{AcceptedJob, JobId, JobState, RecordedEvent, SourceFile};
use steadfast_core::job::{Job, Phase};
use steadfast_core::plan::{Action, Plan};
use steadfast_core::time::Timestamp;
use steadfast_engine::{Adopted, Clock as _, CommandError, Live, Lost, Ownership};
use steadfast_server::clock::SystemClock;
use steadfast_server::queries::Projector;
use steadfast_store::{Journal, Owner, RunClaimError, StoreError};
use steadfast_worker::http::Outbound;

pub use cancel::cancel;
pub use keeper::KeptClaim;
use logs::LogShipper;
pub use place::RunPlace;
use services::Services;
use transport::{LocalFolder, LocalWorkers};
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
    #[error("job {id} was submitted to a server: it goes on when one is started with this {place}")]
    OfServer { id: JobId, place: &'static str },
    #[error("{path}: {error}", path = path.display())]
    SourceUnreadable { path: PathBuf, error: std::io::Error },
    #[error("{path} has changed since job {id} was started", path = path.display())]
    SourceChanged { path: PathBuf, id: JobId },
    #[error(transparent)]
    Claim(#[from] RunClaimError),
    #[error(transparent)]
    Store(#[from] StoreError),
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
    pub place: RunPlace,
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
    /// Another process took this one for dead, and goes on with the job.
    TakenOver(String),
    /// The database was away for longer than is waited for. The job can be resumed.
    Unavailable(String),
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
    pub claim: KeptClaim,
}

/// A stored job that this process, which has claimed it, goes on with.
#[derive(Debug)]
pub struct Resumed {
    claim: KeptClaim,
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
        place: &RunPlace,
        id: &str,
        changed: bool,
        view: &mut dyn RunView,
    ) -> Result<Self, RunError> {
        let claim = place.claim(id)?;
        let job = steadfast_engine::state(&mut *place.reader()?, id).map_err(failed)?;
        if job.is_over() {
            place.forget(&claim, id);
            return Err(RunError::Over { id: job.id.clone(), state: job.state() });
        }
        // It came without a job file of its own, through a server.
        let Some(source) = &job.source else {
            place.forget(&claim, id);
            return Err(RunError::OfServer { id: job.id, place: place.what() });
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
        Self::adopt(place, job, claim, view)
    }

    fn adopt(
        place: &RunPlace,
        job: Job,
        claim: KeptClaim,
        view: &mut dyn RunView,
    ) -> Result<Self, RunError> {
        // Whatever a dead run left behind must not write into the attempts that follow.
        let orphans = steadfast_worker::kill_marked("STEADFAST_JOB_ID", &job.id)
            .map_err(|error| format!("cannot end what the interrupted run left behind: {error}"))?;
        if orphans > 0 {
            let many = if orphans == 1 { "process" } else { "processes" };
            view.warn(&format!("ended {orphans} {many} of the interrupted run"));
        }
        let down_since = claim.alive_at().unwrap_or(job.last_at).max(job.last_at);
        let mut journal = claim.journal()?;
        let stored = place.reader()?.get(&job.id)?;
        let owner = stored.map_or_else(|| job.id.to_string(), |stored| stored.owner);
        let owner = journal.take(&owner, now(), Some(down_since))?;
        let gaps = journal.gaps(&owner.id, &job.id, job.last_at)?;
        let lost = lost(&job, place)?;
        Ok(Self { claim, adopted: Adopted { job: job.clone(), gaps, lost }, job, owner })
    }
}

/// The attempts that the interrupted run had under way. A process without a folder never began; of a call, and of what
/// another machine had, it cannot be told.
fn lost(job: &Job, place: &RunPlace) -> Result<Vec<Lost>, RunError> {
    let here = place.incarnation()?;
    let running = job.all_live().filter(|(_, item)| item.phase == Phase::Running);
    let lost = running.map(|(item, state)| {
        let name = job.plan.folder_name(&job.id, item, state.history.attempts);
        let is_call = matches!(job.plan.action_of(item), Some(Action::Http(_)));
        let was_here = state.incarnation.as_deref() == here.as_deref();
        let started = is_call || !was_here || place.folder.work(&job.id).join(name).exists();
        Lost { item, token: state.token, started }
    });
    Ok(lost.collect())
}

fn now() -> Timestamp {
    SystemClock.now()
}

/// Runs a new job to its end.
pub fn start(
    options: &RunOptions,
    accepted: AcceptedJob,
    view: &mut dyn RunView,
) -> Result<Finished, RunError> {
    options.place.create()?;
    let (id, plan) = (accepted.id.clone(), accepted.plan.clone());
    let claim = options.place.claim(&id)?;
    let mut journal = claim.journal()?;
    // A job of `run` is its own owner.
    let owner = journal.take(&id, now(), None)?;
    let begin = Begin { id, plan, before: None, claim, owner };
    begin.run(options, journal, view, |live| live.inbox().submit(accepted, None))
}

/// Goes on with a job to its end.
pub fn resume(
    options: &RunOptions,
    resumed: Resumed,
    view: &mut dyn RunView,
) -> Result<Finished, RunError> {
    let Resumed { claim, job, adopted, owner } = resumed;
    let journal = claim.journal()?;
    let begin =
        Begin { id: job.id.clone(), plan: job.plan.clone(), before: Some(job), claim, owner };
    begin.run(options, journal, view, |live| live.inbox().adopt(adopted))
}

/// A job that is about to be run by this process.
struct Begin {
    id: JobId,
    plan: Arc<Plan>,
    /// Its state so far, if it is resumed.
    before: Option<Job>,
    claim: KeptClaim,
    owner: Owner,
}

impl Begin {
    fn run(
        self,
        options: &RunOptions,
        journal: Box<dyn Journal>,
        view: &mut dyn RunView,
        begin: impl FnOnce(&Live) -> steadfast_engine::Answer,
    ) -> Result<Finished, RunError> {
        let Self { id, plan, before, claim, owner } = self;
        let RunOptions { place, slots, .. } = options;
        let services =
            Services::open(&plan, &id, &options.outbound, place, |what| view.warn(what))?;
        let blobs = place.is_shared().then(|| place.storage.blobs());
        let logs = blobs.map(|blobs| LogShipper::start(blobs, place.folder.clone(), &id));
        let logs = logs.transpose().map_err(failed)?;
        let (patience, tolerance_ms) = place.patience();
        let (tell, told) = sync_channel(UNSEEN);
        let mut workers = None;
        let live = Live::start(
            journal,
            Box::new(SystemClock),
            place.placement(*slots)?,
            Ownership::alone(owner).with_patience(patience),
            |inbox| {
                let folder = LocalFolder::new(place.folder.clone(), options.keep, logs.clone());
                let started = LocalWorkers::start(*slots, folder, inbox, services);
                let started = started.expect("a process can have one more thread");
                workers = Some(started.clone());
                started
            },
            Box::new(EventSender {
                watch: tell,
                projector: Projector::start(place.storage.clone()),
            }),
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
            claim: &claim,
            tolerance_ms,
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
        if let (RunEnd::TakenOver(_), Some(logs)) = (&end, &logs) {
            logs.stop();
        }
        seen.show(told.try_iter().flat_map(Progress::into_events), view)?;
        // While the store is closed, what the job leaves behind is put away.
        live.inbox().stop();
        if let RunEnd::Over = end {
            // A process that ran away from its attempt ends with the job at the latest, and before its folder is another's.
            let is_alone = steadfast_worker::kill_marked("STEADFAST_JOB_ID", &id).is_ok();
            if !options.keep {
                workers.clear(&id, is_alone);
            }
        }
        let stopped = live.stop();
        // What was committed on the way out is part of what is shown.
        seen.show(told.try_iter().flat_map(Progress::into_events), view)?;
        let end = match (end, stopped) {
            (end @ (RunEnd::Failed(_) | RunEnd::TakenOver(_)), _) | (end, Ok(())) => end,
            (_, Err(error)) => match place::outage(&error) {
                Some(why) => RunEnd::Unavailable(why),
                None => RunEnd::Failed(error.to_string()),
            },
        };
        if let Some(left) = logs.map(|logs| logs.finish(&id)).filter(|left| *left > 0) {
            let folder = place.folder.logs(&id);
            let many = if left == 1 { "log is" } else { "logs are" };
            view.warn(&format!("{left} {many} not in the database, but in {}", folder.display()));
        }
        if let RunEnd::Over = end {
            place.forget(&claim, &id);
        }
        Ok(Finished { end, job: seen.job, attempts: seen.attempts, claim })
    }
}
