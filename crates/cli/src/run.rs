//! `steadfast run` and `resume`: a job on this machine, to its end, whatever happens to it.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use sha2::{Digest, Sha256};
use steadfast_api::{Attempts, JobStatus, ShownState};
use steadfast_core::apply::fold;
use steadfast_core::decide::Input;
use steadfast_core::event::{AcceptedJob, JobId, JobState, RecordedEvent, Requester, SourceFile};
use steadfast_core::job::{Job, Phase};
use steadfast_core::plan::{Action, Plan};
use steadfast_engine::{Adopted, Live, Lost, Observer, Ownership, Placement, Stopped};
use steadfast_store::{Owner, Refused, Store};

use crate::args::{Here, Output, ResumeArgs, RunArgs};
use crate::calls::HttpExecutor;
use crate::clock::{self, SystemClock};
use crate::data::{self, Data, Lock};
use crate::input::Wrong;
use crate::local::LocalWorkers;
use crate::style::{BOLD, error_prefix, paint};
use crate::view::View;
use crate::{Done, Exit, folder, input, signals};

/// How often the view is drawn anew, and how soon an interrupt is noticed.
const TICK: Duration = Duration::from_millis(100);
/// How soon it is noticed that the last process of a job that has ended is gone.
const LAST_TICK: Duration = Duration::from_millis(20);

pub(crate) fn run(args: &RunArgs) -> Done {
    let Some((job, source)) = input::job(&args.file, args.common.output)? else {
        return Ok(Exit::Wrong);
    };
    if args.common.output == Output::Human {
        input::warn(&job.warnings, &source);
    }
    if let Err(message) = can_run(&job.plan) {
        return input::refuse("unsupported", &message, args.common.output).map(|()| Exit::Wrong);
    }
    let path = std::path::absolute(&args.file).unwrap_or_else(|_| args.file.clone());
    // What came from standard input has no file that could change.
    let from_stdin = args.file == Path::new("-");
    let digest = if from_stdin { String::new() } else { digest(&source.text) };
    let source = SourceFile { path: path.display().to_string(), digest };
    let id = new_id();
    let plan = Arc::new(job.plan);
    let mut accepted = AcceptedJob::new(id.clone(), plan.clone());
    accepted.source = Some(source);
    let begin = |live: &Live| live.inbox().submit(accepted, None);
    let session = Session { id, plan, here: &args.here, output: args.common.output };
    conclude(session.open(args.common.data.as_deref(), None, begin), args.common.output)
}

/// Sorts by time.
pub(crate) fn new_id() -> JobId {
    ulid::Ulid::generate().to_string().to_lowercase().into()
}

pub(crate) fn resume(args: &ResumeArgs, job: &str) -> Done {
    conclude(try_resume(args, job), args.common.output)
}

pub(crate) fn conclude(done: Result<Exit, Wrong>, output: Output) -> Done {
    match done {
        Ok(exit) => Ok(exit),
        Err(Wrong { code, message }) => input::refuse(code, &message, output).map(|()| Exit::Wrong),
    }
}

fn try_resume(args: &ResumeArgs, job: &str) -> Result<Exit, Wrong> {
    if args.why.reason.is_some() {
        return Err(
            "--reason is for a job that was paused on a server; this one goes on here".into()
        );
    }
    let data = Data::at(args.common.data.as_deref())?;
    let none = || Wrong::no_job(format!("there is no job {job}"));
    let mut store = data.look()?.ok_or_else(none)?;
    let row = data::find(&mut store, job)?;
    let lock = data.lock(&row.id)?;
    let job = data::state(&mut store, &row.id)?;
    if job.is_over() {
        data.forget_lock(&row.id);
        return Err(format!("job {} has ended: {}", row.id, job.state()).into());
    }
    if data::is_of_a_server(&job) {
        data.forget_lock(&row.id);
        return Err(format!(
            "job {} was submitted to a server: it goes on when one is started with this data folder",
            row.id
        )
        .into());
    }
    if let Some(source) = &job.source
        && !source.digest.is_empty()
        && !args.changed
    {
        let text = std::fs::read(&source.path)
            .map_err(|error| format!("{}: {error}; --changed goes on without it", source.path))?;
        if digest(&text) != source.digest {
            return Err(format!(
                "{} has changed since job {} was started; run it anew, or give --changed to go on \
                 with the job as it was",
                source.path, row.id
            )
            .into());
        }
    }
    let (adopted, owner) = adopted(&data, &mut store, &row.id, &lock)?;
    drop(store);
    let (id, plan) = (job.id.clone(), job.plan.clone());
    let seen = job;
    let begin = move |live: &Live| live.inbox().adopt(adopted);
    let session = Session { id, plan, here: &args.here, output: args.common.output };
    session.open(args.common.data.as_deref(), Some((lock, seen, owner)), begin)
}

/// A job of the data folder that this process, which has its lock, goes on with.
pub(crate) fn adopted(
    data: &Data,
    store: &mut dyn Store,
    id: &str,
    lock: &Lock,
) -> Result<(Adopted, Owner), String> {
    // Whatever a dead run left behind must not write into the attempts that follow.
    let orphans = steadfast_worker::kill_marked("STEADFAST_JOB_ID", id)
        .map_err(|error| format!("cannot end what the interrupted run left behind: {error}"))?;
    if orphans > 0 {
        let many = if orphans == 1 { "process" } else { "processes" };
        anstream::eprintln!("ended {orphans} {many} of the interrupted run");
    }
    let job = data::state(store, id)?;
    let down_since = lock.alive_at().unwrap_or(job.last_at).max(job.last_at);
    let stored = store.get(id).map_err(|error| error.to_string())?;
    let owner = stored.map_or_else(|| id.to_owned(), |stored| stored.owner);
    let taken = store.take(&owner, clock::now(), Some(down_since));
    let owner = taken.map_err(|error| error.to_string())?;
    let gaps = store.gaps(&owner.id, job.last_at).map_err(|error| error.to_string())?;
    let lost = lost(&job, data);
    Ok((Adopted { job, gaps, lost }, owner))
}

/// The attempts that the interrupted run had under way. A process without a folder never began; of a call
/// nobody can tell, so that the service may have done it.
fn lost(job: &Job, data: &Data) -> Vec<Lost> {
    let running = job.all_live().filter(|(_, item)| item.phase == Phase::Running);
    running
        .map(|(item, state)| {
            let name = job.plan.folder_name(&job.id, item, state.history.attempts);
            let is_call = matches!(job.plan.action_of(item), Some(Action::Http(_)));
            let started = is_call || data.folder.work(&job.id).join(name).exists();
            Lost { item, token: state.token, started }
        })
        .collect()
}

fn digest(text: &[u8]) -> String {
    let hash = Sha256::digest(text);
    hash.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// What this version cannot do is said before anything runs.
fn can_run(plan: &Plan) -> Result<(), String> {
    for step in plan.steps() {
        let mut actions = step.actions();
        if let Some(Action::Call { name, .. }) = actions.find(|a| matches!(a, Action::Call { .. }))
        {
            return Err(format!(
                "step `{}` calls the function `{name}`, and `run` has no functions: submit the job to a \
                 server with a worker that has it (docs/rust.md, docs/python.md), or embed the engine in \
                 your program (docs/rust.md)",
                step.name
            ));
        }
        for name in plan.surroundings().secrets.iter().chain(&step.surroundings.secrets) {
            if std::env::var_os(name).is_none() {
                return Err(format!(
                    "step `{}` needs the secret {name}, which is not in the environment",
                    step.name
                ));
            }
        }
    }
    Ok(())
}

/// Tells the one who watches of every durable event.
struct EventSender(Sender<Progress>);

enum Progress {
    Events(Vec<RecordedEvent>),
    /// The job cannot go on here.
    Gone(String),
}

impl Observer for EventSender {
    fn committed(&mut self, _: &JobId, records: Vec<RecordedEvent>) {
        let _ = self.0.send(Progress::Events(records));
    }

    fn refused(&mut self, job: &JobId, why: &Refused) {
        let why = format!("job {job} belongs to another process now: {why}");
        let _ = self.0.send(Progress::Gone(why));
    }

    fn parked(&mut self, job: &JobId, why: &str) {
        let _ = self.0.send(Progress::Gone(format!("job {job} is stuck: {why}")));
    }
}

/// One job run by this process.
pub(crate) struct Session<'a> {
    pub(crate) id: JobId,
    pub(crate) plan: Arc<Plan>,
    pub(crate) here: &'a Here,
    pub(crate) output: Output,
}

impl Session<'_> {
    /// `before`: the lock on a job that is resumed, its state so far, and who we are to write it.
    pub(crate) fn open(
        self,
        data: Option<&Path>,
        before: Option<(Lock, Job, Owner)>,
        begin: impl FnOnce(&Live) -> steadfast_engine::Answer,
    ) -> Result<Exit, Wrong> {
        let data = Data::at(data)?;
        data.create()?;
        let mut store = data.open()?;
        let (lock, job, owner) = match before {
            Some((lock, job, owner)) => (lock, Some(job), owner),
            None => {
                let lock = data.lock(&self.id)?;
                // A job of `run` is its own owner.
                let taken = store.take(&self.id, clock::now(), None);
                (lock, None, taken.map_err(|error| error.to_string())?)
            }
        };
        let count = self.here.slots.unwrap_or_else(default_slots);
        let outbound = self.here.outbound.here();
        let booth = HttpExecutor::open(&self.plan, &self.id, count, &outbound, &data)?;
        let (tell, told) = channel();
        let (folder, keep) = (data.clone(), self.here.keep);
        let mut hands = None;
        let live = Live::start(
            Box::new(store),
            Box::new(SystemClock),
            Placement::here(steadfast_engine::Slots::shared(count), "local"),
            Ownership { owner, loader: None },
            |inbox| {
                let workers = LocalWorkers::start(count, folder, inbox, keep, booth);
                hands = Some(workers.clone());
                workers
            },
            Box::new(EventSender(tell)),
        );
        let hands = hands.ok_or("the engine has no workers")?;
        begin(&live)?;
        let mut view = View::new(self.output);
        if self.output == Output::Human {
            anstream::println!("{}", self.id);
            view.begin(job.is_some());
        }
        let interrupts = Interrupts::listen()?;
        let mut seen = Seen { attempts: job.is_none().then(Attempts::default), job };
        let end = self.watch(&live, &told, &hands, &interrupts, &lock, &mut seen, &mut view);
        // Nothing of ours outlives us, also when the engine itself is what failed.
        if !hands.is_idle() {
            hands.kill_all();
            for _ in 0..100 {
                if hands.is_idle() {
                    break;
                }
                let _ = told.recv_timeout(TICK);
            }
        }
        hands.close();
        // While the store is closed, what the job leaves behind is put away.
        let (end, gone) = match end {
            End::Gone(why) => (End::Interrupted, Some(why)),
            end => (end, None),
        };
        let stopped = std::thread::scope(|scope| {
            let stopping = scope.spawn(|| live.stop());
            if let End::Over = end {
                if !self.here.keep {
                    let _ = std::fs::remove_dir_all(data.folder.work(&self.id));
                }
                // A process that ran away from its attempt ends with the job at the latest.
                let _ = steadfast_worker::kill_marked("STEADFAST_JOB_ID", &self.id);
            }
            stopping.join().unwrap_or(Err(Stopped::Failed))
        });
        // What was committed on the way out is part of what is shown.
        for record in told.try_iter().flat_map(Progress::into_events) {
            view.event(seen.job.as_ref(), &record);
            seen.take(&record)?;
        }
        view.end();
        let stopped = stopped.map_err(|error| error.to_string());
        if let Err(error) = gone.map_or(stopped, Err) {
            let hint = paint(BOLD, data.hint("resume", &self.id));
            let _ = writeln!(anstream::stderr(), "{}{error}\ngo on with {hint}", error_prefix());
            return Ok(Exit::Failed);
        }
        let Seen { job, attempts } = seen;
        let job = job.ok_or_else(|| "the job was not stored".to_owned())?;
        match end {
            End::Interrupted | End::Gone(_) => {
                if self.output == Output::Json {
                    self.print_status(&data, &job, attempts, true)?;
                }
                // Nobody is at the job any more, and it is shown so.
                drop(lock);
                view.interrupted(&job, &data);
                Ok(Exit::Interrupted)
            }
            End::Over => {
                data.forget_lock(&self.id);
                self.tell_end(&data, &job, attempts)?;
                Ok(exit_of(job.state()))
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of one loop
    fn watch(
        &self,
        live: &Live,
        told: &Receiver<Progress>,
        hands: &LocalWorkers,
        interrupts: &Interrupts,
        lock: &Lock,
        seen: &mut Seen,
        view: &mut View,
    ) -> End {
        let mut asked = 0;
        let mut ticks = 0u32;
        let mut over = false;
        loop {
            match told.recv_timeout(if over { LAST_TICK } else { TICK }) {
                Ok(first) => {
                    // A burst is shown once.
                    for progress in std::iter::once(first).chain(told.try_iter()) {
                        let records = match progress {
                            Progress::Events(records) => records,
                            Progress::Gone(why) => return End::Gone(why),
                        };
                        for record in records {
                            view.event(seen.job.as_ref(), &record);
                            if seen.take(&record).is_err() {
                                return End::Interrupted;
                            }
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return End::Interrupted,
            }
            ticks += 1;
            if ticks.is_multiple_of(10) {
                lock.touch();
                if let Some(requested) = lock.cancel_asked() {
                    let _ = live.inbox().command(&self.id, Input::Cancel(requested));
                }
            }
            if let Some(job) = &seen.job {
                view.draw(job, clock::now());
                over = job.is_over();
                // What the end of the job cut off has its grace.
                if over && hands.is_idle() {
                    return End::Over;
                }
                if !over && job.state().is_terminal() {
                    // Enough datacenters are done, and nobody stays to wait for the others.
                    let _ = live.inbox().command(&self.id, Input::Cancel(no_late_results()));
                }
            }
            let now = interrupts.count();
            if now > asked {
                if asked == 0 {
                    view.note("interrupting: ending what runs; once more kills it");
                    live.inbox().drain();
                }
                if now > 1 {
                    hands.kill_all();
                } else {
                    hands.stop_all();
                }
                asked = now;
            }
            if asked > 0 && hands.is_idle() {
                return End::Interrupted;
            }
        }
    }

    /// `leaving`: of a job that has not ended, whose process we are still.
    fn print_status(
        &self,
        data: &Data,
        job: &Job,
        attempts: Option<Attempts>,
        leaving: bool,
    ) -> Result<(), String> {
        let status = match attempts {
            Some(attempts) => JobStatus::new(job, &attempts),
            None => folder::status_of(data, &mut data.open()?, &self.id)?,
        };
        let status = if leaving { status.without_a_process() } else { status };
        input::print_json(&status).map_err(|error| error.to_string())
    }

    fn tell_end(&self, data: &Data, job: &Job, attempts: Option<Attempts>) -> Result<(), String> {
        match self.output {
            Output::Json => self.print_status(data, job, attempts, false),
            Output::Human => {
                anstream::print!("{}", crate::view::overview(job, data).ended(clock::now().0));
                Ok(())
            }
        }
    }
}

/// `run` ends with its job, and cancels what is left of it.
fn no_late_results() -> Requester {
    let reason = "`run` does not wait for late results";
    Requester { by: Some("run".into()), reason: Some(reason.into()) }
}

enum End {
    Over,
    Interrupted,
    /// The store took its writes no more, or it contradicts itself.
    Gone(String),
}

impl Progress {
    fn into_events(self) -> Vec<RecordedEvent> {
        match self {
            Self::Events(records) => records,
            Self::Gone(_) => vec![],
        }
    }
}

/// What the one who watches knows.
struct Seen {
    job: Option<Job>,
    /// None: the job was there before us, and the log knows more.
    attempts: Option<Attempts>,
}

impl Seen {
    /// A resumed job's state was read before its events are told: it may know one already.
    fn take(&mut self, record: &RecordedEvent) -> Result<(), String> {
        if self.job.as_ref().is_some_and(|job| record.seq <= job.seq) {
            return Ok(());
        }
        if let Some(attempts) = &mut self.attempts {
            attempts.add(record);
        }
        fold(&mut self.job, record).map_err(|error| error.to_string())
    }
}

pub(crate) fn exit_of(state: impl Into<ShownState>) -> Exit {
    match state.into() {
        ShownState::Of(JobState::Succeeded) => Exit::Ok,
        ShownState::Of(JobState::Partial) => Exit::Partial,
        ShownState::Of(JobState::Cancelled) => Exit::Cancelled,
        ShownState::Interrupted => Exit::Interrupted,
        ShownState::Of(_) | ShownState::Stuck => Exit::Failed,
    }
}

/// Processes mostly wait for something; a few more than there are cores keep those busy.
pub(crate) fn default_slots() -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores as u32 * 2).max(8)
}

/// How often somebody has pressed Ctrl-C, or asked us to end.
struct Interrupts(Arc<std::sync::atomic::AtomicUsize>);

impl Interrupts {
    fn listen() -> Result<Self, String> {
        let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let mut signals = signal_hook::iterator::Signals::new(signals::that_end_us())
            .map_err(|error: io::Error| format!("cannot listen for signals: {error}"))?;
        let counted = count.clone();
        std::thread::spawn(move || {
            for _ in signals.forever() {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        Ok(Self(count))
    }

    fn count(&self) -> usize {
        self.0.load(std::sync::atomic::Ordering::SeqCst)
    }
}
