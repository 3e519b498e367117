//! What the worker has in hand: what waits for a slot, what runs, and what is not acknowledged yet.
//!
//! Shared by the session, by the threads of attempts and by whoever says goodbye. Nothing slow happens
//! while it is locked: no disk, no network.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use steadfast_core::event::AttemptId;

use steadfast_api::{proto, to_report};
use steadfast_core::outcome::Outcome;
use tokio::sync::{Notify, watch};

use super::connect::Client;
use super::files::Files;
use super::identity::Identity;
use super::reports::{Kept, ReportStore, Reports};
use super::secrets::Secrets;
use super::task_reports::TaskReports;
use super::worker_dir::WorkerDir;
use super::{RemoteConfig, RemoteError, attempt, held, tasks, worker_dir};
use crate::http::Caller;
use crate::lease::{Lease, clock};
use crate::task_control::End;
use crate::{Ended, LONGEST_WAIT, Ports, Stop};

/// A server gives a few more than there are slots; far more than that is a server gone wrong, and memory is
/// not its to fill.
const QUEUED_MOST: usize = 10_000;
/// How often the clock is looked at while something runs: a machine that slept wakes with its timers late.
const LOOK: Duration = Duration::from_secs(1);

pub(super) const LEASE_ENDED: &str = "the lease ended";
pub(super) const PREEMPTED: &str = "preempted";
/// Why a worker drains on the server's order, which can be taken back.
pub(super) const SERVER_ASKED: &str = "the server asked for it";

#[derive(Debug)]
pub(super) struct Executor {
    pub(super) config: RemoteConfig,
    /// Of this life.
    pub(super) incarnation: String,
    pub(super) identity: Identity,
    pub(super) dir: WorkerDir,
    pub(super) report_store: ReportStore,
    pub(super) files: Files,
    pub(super) secrets: Secrets,
    pub(super) ports: Ports,
    /// Calls web services, if this worker does.
    pub(super) caller: Option<Caller>,
    /// Where tasks run.
    pub(super) runtime: tokio::runtime::Handle,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
pub(super) struct State {
    /// First come, first served.
    queue: VecDeque<Waiting>,
    /// Processes, from the moment an attempt has a slot until its report is durable.
    pub(super) running: BTreeMap<AttemptId, Running>,
    pub(super) tasks: HashMap<AttemptId, tasks::Running>,
    /// Slots in use: given back when the process has ended, which is before the report is durable.
    pub(super) busy: u32,
    pub(super) reports: Reports,
    /// Withdrawn attempts whose processes have ended: nobody asks how, but what they printed until then is
    /// still to be sent.
    pub(super) last_words: BTreeMap<AttemptId, proto::AttemptRef>,
    pub(super) task_reports: TaskReports,
    lease: Lease,
    /// Why nothing new is taken.
    pub(super) draining: Option<String>,
    /// The server has taken a drain back in this session, and is still to be told that we know. It says so again
    /// in every session until it is.
    pub(super) undrain_unanswered: bool,
    welcomed: bool,
    /// Everything is over: a session may end, and none is opened any more.
    pub(super) leaving: bool,
    /// Of the session there is.
    pub(super) client: Option<Client>,
}

/// For a slot.
#[derive(Debug)]
struct Waiting {
    since: Duration,
    assignment: proto::Assignment,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) attempt: proto::AttemptRef,
    /// Its own, while it runs.
    folder: PathBuf,
    stop: Stop,
    cancelled: Arc<Notify>,
    /// There is, or was, a process.
    started: bool,
    cut: Option<Cut>,
}

/// Why an attempt was ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Withdrawn,
    LeaseEnded,
    Preempted,
}

impl Cut {
    /// The first reason is the reason, unless nobody wants to hear it any more.
    pub(super) fn instead_of(self, before: &mut Option<Self>) {
        if self == Self::Withdrawn {
            *before = Some(self);
        }
        before.get_or_insert(self);
    }
}

/// What is said of an attempt that ended so, after it was cut short so.
pub(super) fn settle(cut: Option<Cut>, ended: Ended, started: bool, why: &str) -> (Outcome, &str) {
    let lost = Outcome::Lost { started, why: None };
    match (cut, ended) {
        (Some(Cut::LeaseEnded), _) => (lost, LEASE_ENDED),
        // It was asked to end: only a success is its own doing.
        (Some(Cut::Preempted), Ended::Outcome(outcome))
            if !started || matches!(outcome, Outcome::Succeeded { .. }) =>
        {
            (outcome, why)
        }
        (Some(Cut::Preempted), _) => (lost, PREEMPTED),
        (_, Ended::Outcome(outcome)) => (outcome, why),
        (_, Ended::Stopped) => (lost, "stopped"),
    }
}

impl State {
    fn holds(&self, key: &AttemptId) -> bool {
        self.running.contains_key(key)
            || self.tasks.contains_key(key)
            || self.reports.get(key).is_some()
            || self.task_reports.keeps(key)
            || self.queue.iter().any(|queued| is_of(queued, key))
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty() && self.tasks.is_empty()
    }

    pub(super) fn lease_is_over(&self) -> bool {
        self.lease.is_over(clock())
    }

    /// Slots of attempts that the server has withdrawn, and believes to be free.
    fn ending(&self) -> usize {
        let processes = self.running.values().map(|running| running.cut);
        let cuts = processes.chain(self.tasks.values().map(tasks::Running::why_cut));
        cuts.filter(|cut| *cut == Some(Cut::Withdrawn)).count()
    }

    /// Reports it without having run it. Not written to disk: should we forget it, the server sees from our
    /// next hello that we do not have it.
    fn give_back(&mut self, assignment: proto::Assignment, outcome: &Outcome, why: &str) {
        let Some(attempt) = assignment.attempt else { return };
        let key = attempt.id();
        let report = to_report(attempt, outcome, why);
        self.reports.insert(key, Kept { report });
    }

    fn give_queue_back(&mut self, why: &str) {
        for waiting in std::mem::take(&mut self.queue) {
            self.give_back(waiting.assignment, &Outcome::NOT_BEGUN, why);
        }
    }
}

fn is_of(queued: &Waiting, key: &AttemptId) -> bool {
    // The number first: it tells most of them apart.
    queued.assignment.attempt.as_ref().is_some_and(|it| it.id() == *key)
}

impl Running {
    fn cut(&mut self, cut: Cut) {
        cut.instead_of(&mut self.cut);
        self.cancelled.notify_one();
    }
}

impl Executor {
    pub(super) fn new(config: RemoteConfig, dir: WorkerDir) -> Result<Arc<Self>, RemoteError> {
        let report_store = ReportStore::new(dir.reports());
        let reports = report_store
            .read()
            .map_err(|source| RemoteError::Folder { path: dir.reports(), source })?;
        let identity = Identity::open(dir.identity())?;
        let random = getrandom::u64().map_err(|error| RemoteError::Random(error.to_string()))?;
        let state = State {
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            tasks: HashMap::new(),
            busy: 0,
            reports,
            last_words: BTreeMap::new(),
            task_reports: TaskReports::default(),
            lease: Lease::default(),
            draining: None,
            undrain_unanswered: false,
            welcomed: false,
            leaving: false,
            client: None,
        };
        let runtime = tokio::runtime::Handle::current();
        let caller = config.outbound.as_ref().map(Caller::new).transpose()?;
        Ok(Arc::new(Self {
            caller,
            incarnation: format!("{random:016x}"),
            identity,
            report_store,
            files: Files::new(dir.files(), config.name.clone(), runtime.clone()),
            secrets: Secrets::new(
                config.secrets.clone().unwrap_or_else(|| dir.secrets()),
                config.secrets_allowed.clone(),
            ),
            ports: Ports::new(),
            runtime,
            config,
            dir,
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
        }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        held(&self.state)
    }

    /// Hears of every change.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(super) fn tell(&self) {
        self.changed.send_replace(());
    }

    /// What the server must know that we have.
    pub(super) fn holds(&self) -> Vec<proto::AttemptRef> {
        let state = self.state();
        let queued = state.queue.iter().filter_map(|queued| queued.assignment.attempt.clone());
        let running = state.running.values().map(|running| running.attempt.clone());
        let tasks = state.tasks.values().map(|task| task.attempt.clone());
        let reported = state.reports.iter().filter_map(|(_, kept)| kept.report.attempt.clone());
        let withdrawn = state.last_words.values().cloned();
        let all = queued.chain(running).chain(tasks).chain(reported).chain(withdrawn);
        all.chain(state.task_reports.attempts()).collect()
    }

    pub(super) fn assign(self: &Arc<Self>, assignment: proto::Assignment) {
        let Some(key) = assignment.attempt.as_ref().map(proto::AttemptRef::id) else {
            tracing::warn!("the server assigned something without saying what it is");
            return;
        };
        let mut state = self.state();
        if state.holds(&key) {
            return;
        }
        let was_idle = state.is_idle();
        let lost = Outcome::NOT_BEGUN;
        let mut matters = true;
        if let Err(why) = attempt::check(&assignment) {
            tracing::warn!(attempt = ?key.to_string(), %why, "refused");
            state.give_back(assignment, &attempt::permanent("assignment_refused", why), "");
        } else if let Some(why) = state.draining.clone() {
            state.give_back(assignment, &lost, &why);
        } else if state.lease.is_over(clock()) {
            state.give_back(assignment, &lost, LEASE_ENDED);
        } else if state.queue.len() >= QUEUED_MOST {
            state.give_back(assignment, &lost, "the worker's queue is full");
        } else {
            // Whoever waits for something to be done sees it in the executor already.
            matters = was_idle || !tasks::is_one(&assignment);
            state.queue.push_back(Waiting { since: clock(), assignment });
        }
        drop(state);
        self.fill();
        if matters {
            self.tell();
        }
    }

    /// Gives free slots to those who have waited longest.
    pub(super) fn fill(self: &Arc<Self>) {
        loop {
            let mut state = self.state();
            // Whoever wakes late must not begin what is somebody else's by now; it goes back.
            if state.busy >= self.config.slots || state.lease_is_over() {
                return;
            }
            let Some(Waiting { assignment, .. }) = state.queue.pop_front() else { return };
            let Some(attempt) = assignment.attempt.clone() else { continue };
            if tasks::is_one(&assignment) {
                let (key, running) = (attempt.id(), tasks::Running::new(attempt));
                state.busy += 1;
                state.tasks.insert(key.clone(), running.clone());
                drop(state);
                self.start_task(key, running, assignment);
                continue;
            }
            let stop = match Stop::new() {
                Ok(stop) => stop,
                Err(error) => {
                    let lost = Outcome::NOT_BEGUN;
                    state.give_back(assignment, &lost, &format!("no descriptors left: {error}"));
                    continue;
                }
            };
            let key = attempt.id();
            let cancelled = Arc::new(Notify::new());
            state.busy += 1;
            let running = Running {
                attempt,
                folder: self.dir.work(&assignment),
                stop: stop.clone(),
                cancelled: cancelled.clone(),
                started: false,
                cut: None,
            };
            state.running.insert(key.clone(), running);
            drop(state);
            let executor = self.clone();
            let spawned = std::thread::Builder::new()
                .name("attempt".to_owned())
                .spawn(move || attempt::run(&executor, &assignment, &stop, &cancelled));
            if let Err(error) = spawned {
                let mut state = self.state();
                state.busy -= 1;
                if let Some(running) = state.running.remove(&key) {
                    let why = format!("no thread could be started: {error}");
                    let report = to_report(running.attempt, &Outcome::NOT_BEGUN, &why);
                    state.reports.insert(key, Kept { report });
                }
            }
        }
    }

    /// There is a process.
    pub(super) fn started(&self, key: &AttemptId) {
        if let Some(running) = self.state().running.get_mut(key) {
            running.started = true;
        }
    }

    /// The process has ended, or there never was one: reports it, unless nobody wants to hear.
    pub(super) fn ended(self: &Arc<Self>, key: &AttemptId, ended: Ended, why: &str) {
        let mut state = self.state();
        state.busy -= 1;
        // Woken after a long stop we may be the first to see that the lease is over.
        let lease_over = state.lease_is_over();
        let Some(running) = state.running.get_mut(key) else { return };
        if lease_over {
            running.cut(Cut::LeaseEnded);
        }
        let (started, cut) = (running.started, running.cut);
        let (attempt, folder) = (running.attempt.clone(), running.folder.clone());
        drop(state);
        self.fill();
        let (outcome, why) = settle(cut, ended, started, why);
        let report = to_report(attempt.clone(), &outcome, why);
        let kept = Kept { report };
        if !started {
            // Before the report: the same attempt may be assigned anew, with the same folder.
            self.remove_work(&folder);
        }
        let written = cut != Some(Cut::Withdrawn);
        if written && let Err(error) = self.report_store.write(key, &kept) {
            tracing::warn!(attempt = %key, %error, "a report is kept in memory only");
        }
        let mut state = self.state();
        // It may have been withdrawn while the report was written.
        let withdrawn = state.running.remove(key).is_some_and(|r| r.cut == Some(Cut::Withdrawn));
        if !withdrawn {
            state.reports.insert(key.clone(), kept);
        } else if started {
            state.last_words.insert(key.clone(), attempt);
        }
        drop(state);
        if withdrawn && started {
            self.report_store.remove(key);
        } else if withdrawn {
            self.remove_report(key);
        }
        self.tell();
        if started {
            self.remove_work(&folder);
        }
    }

    fn remove_work(&self, folder: &Path) {
        if !self.config.keep {
            worker_dir::remove_work(folder);
        }
    }

    fn remove_report(&self, key: &AttemptId) {
        // A key that is no file name never had a file.
        if worker_dir::is_plain(&key.job) {
            self.report_store.remove(key);
            worker_dir::remove(&self.dir.log(key));
        }
    }

    /// What these printed is sent to its end, and they are over.
    pub(super) fn last_words_sent(&self, keys: &[AttemptId]) {
        let mut state = self.state();
        let over: Vec<&AttemptId> =
            keys.iter().filter(|key| state.last_words.remove(*key).is_some()).collect();
        drop(state);
        if over.is_empty() {
            return;
        }
        for key in over {
            worker_dir::remove(&self.dir.log(key));
        }
        self.tell();
    }

    pub(super) fn withdraw(&self, key: &AttemptId) {
        let mut state = self.state();
        state.queue.retain(|queued| !is_of(queued, key));
        if let Some(task) = state.tasks.get_mut(key) {
            task.cut(Cut::Withdrawn, End::Soon);
        }
        if let Some(running) = state.running.get_mut(key) {
            running.cut(Cut::Withdrawn);
            running.stop.stop();
        }
        drop(state);
        self.acknowledged(key);
    }

    /// The report is the server's from now on.
    pub(super) fn acknowledged(&self, key: &AttemptId) {
        let mut state = self.state();
        if state.task_reports.acknowledged(key) {
            let matters = state.draining.is_some();
            drop(state);
            if matters {
                self.tell();
            }
            return;
        }
        let is_kept = state.reports.remove(key);
        drop(state);
        if is_kept {
            self.remove_report(key);
        }
        self.tell();
    }

    pub(super) fn welcomed(&self, client: Client, hello_sent: Duration, lease: Duration) {
        let mut state = self.state();
        state.welcomed = true;
        state.client = Some(client);
        state.undrain_unanswered = false;
        state.lease.welcome(hello_sent, lease);
        let waker = state.task_reports.welcomed();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.tell();
    }

    pub(super) fn disconnected(&self) {
        self.state().client = None;
        self.tell();
    }

    /// The session, if there is one, may end.
    pub(super) fn say_goodbye(&self) {
        self.state().leaving = true;
        self.tell();
    }

    /// The number of the beat that is about to be sent.
    pub(super) fn beat(&self) -> u64 {
        self.state().lease.beat(clock())
    }

    pub(super) fn answered(&self, number: u64) {
        self.state().lease.answered(number);
    }

    pub(super) fn lease_is_over(&self) -> bool {
        self.state().lease.is_over(clock())
    }

    pub(super) fn lease_length(&self) -> Option<Duration> {
        self.state().lease.length()
    }

    /// Kills everything when the lease ends, connected or not.
    pub(super) async fn guard_the_lease(&self) -> Infallible {
        let mut changes = self.changes();
        loop {
            let waits = self.hand_back_what_waits();
            let left = {
                let state = self.state();
                if state.is_idle() { None } else { state.lease.left(clock()) }
            };
            let longest = match left {
                Some(Duration::ZERO) => {
                    self.lease_ended();
                    None
                }
                left => left.map(|left| waits.map_or(left, |waits| left.min(waits))),
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = tokio::time::sleep(longest.unwrap_or(LOOK).min(LOOK)), if longest.is_some() => {}
            }
        }
    }

    /// What has waited too long for a slot may find one elsewhere. Returns how long the next one waits.
    fn hand_back_what_waits(&self) -> Option<Duration> {
        let mut state = self.state();
        let now = clock();
        let left =
            |waiting: &Waiting| LONGEST_WAIT.saturating_sub(now.saturating_sub(waiting.since));
        // Theirs are the slots of those that were told to stop, and are using up their grace.
        let kept = state.ending();
        let mut handed_back = false;
        while state.queue.get(kept).is_some_and(|waiting| left(waiting).is_zero())
            && let Some(waiting) = state.queue.remove(kept)
        {
            state.give_back(waiting.assignment, &Outcome::handed_back(), "");
            handed_back = true;
        }
        let next = state.queue.get(kept).map(left);
        drop(state);
        if handed_back {
            self.tell();
        }
        next
    }

    fn lease_ended(&self) {
        let mut state = self.state();
        let mut killed = 0;
        for running in state.running.values_mut().filter(|running| running.cut.is_none()) {
            running.cut(Cut::LeaseEnded);
            killed += 1;
        }
        for task in state.tasks.values_mut() {
            killed += usize::from(task.why_cut().is_none());
            task.cut(Cut::LeaseEnded, End::Killed);
        }
        // Also those that were told to stop and are using up their grace: it is the server's no more.
        state.running.values().for_each(|running| running.stop.kill());
        let waiting = state.queue.len();
        state.give_queue_back(LEASE_ENDED);
        drop(state);
        if killed + waiting > 0 {
            tracing::warn!(killed, waiting, "the server did not answer for as long as the lease");
            self.tell();
        }
    }

    /// Takes nothing new from now on; what waits goes back.
    pub(super) fn drain(&self, why: &str) {
        let mut state = self.state();
        // Who is told to go by its own host goes, whatever the server takes back.
        if why == PREEMPTED {
            state.draining = Some(why.to_owned());
        }
        state.draining.get_or_insert_with(|| why.to_owned());
        state.give_queue_back(why);
        drop(state);
        self.tell();
    }

    /// Takes new work again, if it was the server that wanted none taken: who is told to go by its own host goes.
    /// The server is answered either way.
    pub(super) fn undrain(&self) {
        let mut state = self.state();
        if state.draining.as_deref() == Some(SERVER_ASKED) {
            state.draining = None;
        }
        state.undrain_unanswered = true;
        drop(state);
        self.tell();
    }

    /// Marks everything that runs as preempted, and returns which processes to ask to end.
    pub(super) fn preempt(&self) -> Vec<String> {
        let mut state = self.state();
        state.tasks.values_mut().for_each(|task| task.cut(Cut::Preempted, End::Asked));
        let mut marks = Vec::new();
        for (key, running) in &mut state.running {
            running.cut(Cut::Preempted);
            if running.started {
                marks.push(key.to_string());
            } else {
                running.stop.stop();
            }
        }
        marks
    }

    /// At once, and nothing new.
    pub(super) fn kill_all(&self) {
        self.drain(PREEMPTED);
        let mut state = self.state();
        state.tasks.values_mut().for_each(|task| task.cut(Cut::Preempted, End::Killed));
        for running in state.running.values_mut() {
            running.cut(Cut::Preempted);
            running.stop.kill();
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.state().draining.is_some()
    }

    /// This life was in a session before.
    pub(super) fn is_welcomed(&self) -> bool {
        self.state().welcomed
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state().is_idle()
    }

    pub(super) fn is_heard(&self) -> bool {
        let state = self.state();
        state.reports.is_empty() && state.last_words.is_empty() && state.task_reports.is_empty()
    }
}
