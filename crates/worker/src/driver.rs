//! The threads and tasks around an [`Executor`]. There are no rules here.
//!
//! A thread for each slot that was ever needed runs one process after the other, so that none is started for an
//! attempt; tasks are the runtime's; one thread looks at the clock while something waits or a lease runs.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use steadfast_api::WorkerReport;
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;
use tokio::runtime::Handle;

use crate::credits::Source;
use crate::executor::{Assigned, Executor, LeaseEnd, SERVER_ASKED, Said, Settled, Work};
use crate::lease::clock;
use crate::prepare::MARK;
use crate::resources::Capacity;
use crate::start::not_completed;
use crate::task_control::{End, TaskControl};
use crate::tasks::{Watch, panic_text};
use crate::transport::{AttemptOf, Transport};
use crate::{Ended, Stop, kill_marked};

/// Runs what it is assigned in slots. Cheap to clone: all are the same.
#[derive(Debug)]
pub struct Driver<T: Transport>(Arc<Shared<T>>);

impl<T: Transport> Clone for Driver<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Shared<T: Transport> {
    transport: T,
    /// None: there are no tasks.
    runtime: Option<Handle>,
    /// Threads there may be.
    threads_most: u32,
    state: Mutex<State<T>>,
    /// For threads of slots: there is a process to run.
    work: Condvar,
    /// For the one who looks at the clock.
    waiting: Condvar,
}

struct State<T: Transport> {
    executor: Executor<T::Work>,
    /// How to end what runs.
    endings: HashMap<AttemptId, Ending>,
    threads: u32,
    /// Threads that wait and were not woken.
    idle: u32,
    /// Threads that were woken and have not seen it yet.
    wakes: u32,
    /// The one who looks at the clock knows that there is a reason to.
    watched: bool,
    closed: bool,
}

#[derive(Debug)]
enum Ending {
    Process(Stop),
    Task(TaskControl),
}

impl Ending {
    /// SIGTERM, the attempt's grace, SIGKILL.
    fn stop(&self) {
        match self {
            Self::Process(stop) => stop.stop(),
            Self::Task(control) => control.tell(End::Soon),
        }
    }

    fn kill(&self) {
        match self {
            Self::Process(stop) => stop.kill(),
            Self::Task(control) => control.tell(End::Killed),
        }
    }
}

impl<T: Transport> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<T: Transport> Driver<T> {
    /// `runtime`: where tasks run. None: there are none.
    pub fn start(
        slots: u32,
        capacity: Capacity,
        transport: T,
        runtime: Option<Handle>,
    ) -> io::Result<Self> {
        let state = State {
            executor: Executor::new(slots, capacity),
            endings: HashMap::new(),
            threads: 0,
            idle: 0,
            wakes: 0,
            watched: false,
            closed: false,
        };
        let shared = Arc::new(Shared {
            transport,
            runtime,
            // One reports while the next one runs.
            threads_most: if T::REPORTS_WAIT { slots.saturating_mul(2) } else { slots },
            state: Mutex::new(state),
            work: Condvar::new(),
            waiting: Condvar::new(),
        });
        let watching = shared.clone();
        spawn("queue", move || watching.watch_the_clock())?;
        Ok(Self(shared))
    }

    pub fn transport(&self) -> &T {
        &self.0.transport
    }

    /// A question to the executor, or something it is to know.
    pub(crate) fn with<R>(&self, ask: impl FnOnce(&mut Executor<T::Work>) -> R) -> R {
        ask(&mut self.0.held().executor)
    }

    /// Never waits, but for the report of what is handed back at once.
    pub fn assign(&self, work: T::Work) {
        let mut state = self.0.held();
        match state.executor.assign(work, clock()) {
            Assigned::Known => {}
            Assigned::Queued => self.0.fill(state),
            Assigned::GivenBack(work, why) => {
                self.0.give_back(state, &[work], || Outcome::NOT_BEGUN, &why);
            }
        }
    }

    /// The controller wants to hear nothing of it any more. What waits does not begin.
    pub fn withdraw(&self, key: &AttemptId) {
        let mut state = self.0.held();
        if state.executor.withdraw(key)
            && let Some(ending) = state.endings.get(key)
        {
            ending.stop();
        }
        drop(state);
        self.0.transport.changed();
    }

    /// Takes nothing new; what waits goes back.
    pub(crate) fn drain(&self, why: &str) {
        self.drain_by(|executor| executor.drain(why), why);
    }

    /// The same of one source, on its order.
    pub(crate) fn drain_source(&self, source: Source) {
        self.drain_by(|executor| executor.drain_source(source), SERVER_ASKED);
    }

    fn drain_by(&self, how: impl FnOnce(&mut Executor<T::Work>) -> Vec<T::Work>, why: &str) {
        let mut state = self.0.held();
        let waited = how(&mut state.executor);
        self.0.give_back(state, &waited, || Outcome::NOT_BEGUN, why);
        self.0.transport.changed();
    }

    /// Ends everything that runs, as `how` says, and takes nothing new.
    fn end_all(&self, how: fn(&Ending)) {
        self.0.held().endings.values().for_each(how);
        self.drain("interrupted");
    }

    /// SIGTERM, the attempt's grace, SIGKILL, for all that runs; tasks are dropped. Nothing begins any more.
    pub fn stop_all(&self) {
        self.end_all(|ending| match ending {
            Ending::Process(stop) => stop.stop(),
            Ending::Task(control) => control.tell(End::Killed),
        });
    }

    /// SIGKILL at once for all that runs. Nothing begins any more.
    pub fn kill_all(&self) {
        self.end_all(Ending::kill);
    }

    /// The worker's host wants it gone: what runs is lost, unless it succeeds. Returns the marks of processes to be
    /// asked to end; tasks are asked, and what has no process yet does not begin.
    pub(crate) fn preempt(&self) -> Vec<String> {
        let mut state = self.0.held();
        let mut marks = Vec::new();
        for (key, started) in state.executor.preempt() {
            match state.endings.get(&key) {
                Some(Ending::Task(control)) => control.tell(End::Asked),
                Some(Ending::Process(_)) if started => marks.push(key.to_string()),
                Some(Ending::Process(stop)) => stop.stop(),
                None => {}
            }
        }
        marks
    }

    /// Nothing waits, runs, or is being told of.
    pub fn is_idle(&self) -> bool {
        self.0.held().executor.is_idle()
    }

    /// What waits may have a slot now that another source has given up.
    pub(crate) fn fill(&self) {
        self.0.fill(self.0.held());
    }

    /// A lease has changed.
    pub(crate) fn look_at_the_clock(&self) {
        self.0.held().watched = true;
        self.0.waiting.notify_one();
    }

    /// No thread is kept for what may come. What runs goes on to its end.
    pub fn close(&self) {
        self.0.held().closed = true;
        self.0.work.notify_all();
        self.0.waiting.notify_all();
    }
}

impl<T: Transport> Shared<T> {
    fn held(&self) -> MutexGuard<'_, State<T>> {
        // A thread that panicked left plain maps behind, which are still right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins what has a slot: a task here, a process on a thread that has nothing to do, which goes on from there.
    fn fill<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State<T>>) {
        loop {
            let now = clock();
            if !state.watched && state.executor.needs_watch(now) {
                state.watched = true;
                self.waiting.notify_one();
            }
            match state.executor.ready(now).map(Work::is_task) {
                Some(true) => state = self.begin_task(state),
                Some(false) => return self.wake_slot(state),
                None => return,
            }
        }
    }

    fn begin_task<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State<T>>,
    ) -> MutexGuard<'a, State<T>> {
        let Some((key, work)) = state.executor.begin(clock()) else { return state };
        self.tell_news(&mut state);
        let control = self.transport.control(&work);
        state.endings.insert(key.clone(), Ending::Task(control.clone()));
        drop(state);
        let (attempt, task) = (work.attempt(), self.transport.task(work, &control));
        let shared = self.clone();
        let running = async move {
            let watch = Watch {
                transport: &shared.transport,
                key: &key,
                attempt: &attempt,
                control: &control,
            };
            let said = match task {
                Ok(task) => watch.over(task).await,
                Err(outcome) => Some(WorkerReport::Ended(outcome)),
            };
            let said = said.map_or(Said::Stopped, Said::Report);
            shared.ended(&key, said, "", Some(&control));
        };
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(running)),
            // There are no tasks, and the transport has said so: how it ended needs no waiting.
            None => drop(running.now_or_never()),
        }
        self.held()
    }

    /// What began or ended leaves other servers another part of the worker.
    fn tell_news(&self, state: &mut State<T>) {
        if state.executor.credits().is_news() {
            self.transport.changed();
        }
    }

    /// A thread takes what is ready. If there can be none now, it waits for one, and is handed back in time.
    fn wake_slot(self: &Arc<Self>, mut state: MutexGuard<'_, State<T>>) {
        if state.idle > 0 {
            state.idle -= 1;
            state.wakes += 1;
            drop(state);
            self.work.notify_one();
        } else if state.threads < self.threads_most && !state.closed {
            let shared = self.clone();
            let begun = spawn("slot", move || shared.slot()).is_ok();
            state.threads += u32::from(begun);
        }
    }

    /// One process after the other.
    fn slot(self: &Arc<Self>) {
        // Used again until it has been raised: an attempt is not worth two descriptors of its own.
        let mut unraised = None;
        let mut state = self.held();
        loop {
            match state.executor.ready(clock()).map(Work::is_task) {
                Some(true) => {
                    state = self.begin_task(state);
                    continue;
                }
                Some(false) => {}
                None if state.closed => {
                    state.threads -= 1;
                    return;
                }
                None => {
                    state.idle += 1;
                    while state.wakes == 0 && !state.closed {
                        state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                    }
                    state.wakes = state.wakes.saturating_sub(1);
                    continue;
                }
            }
            let Some((key, work)) = state.executor.begin(clock()) else { continue };
            self.tell_news(&mut state);
            let stop = unraised.take().map_or_else(Stop::new, Ok);
            if let Ok(stop) = &stop {
                state.endings.insert(key.clone(), Ending::Process(stop.clone()));
            }
            // Others that wait may have slots too.
            self.fill(state);
            let (ended, why) = match &stop {
                Ok(stop) => self.run(&key, &work, stop),
                Err(error) => {
                    let outcome = self.transport.unwatchable(error);
                    (Ended::Outcome(outcome), format!("no descriptors left: {error}"))
                }
            };
            self.ended(&key, ended.into(), &why, None);
            // Only those who find it among the running raise it.
            unraised = stop.ok().filter(|stop| !stop.is_stopped());
            state = self.held();
        }
    }

    fn run(&self, key: &AttemptId, work: &T::Work, stop: &Stop) -> (Ended, String) {
        let started = || self.held().executor.started(key);
        let ran = catch_unwind(AssertUnwindSafe(|| self.transport.run(work, stop, &started)));
        ran.unwrap_or_else(|panic| {
            // Nothing of it may go on unwatched.
            let _ = kill_marked(MARK, &key.to_string());
            let why = format!(
                "the worker's own thread panicked while it ran the attempt: {}; that is a fault of the \
                 worker, not of the job",
                panic_text(&*panic)
            );
            tracing::error!(attempt = %key, "{why}");
            (Ended::Outcome(Outcome::Failed(not_completed("worker_panic", why))), String::new())
        })
    }

    /// Its slot is free, and it is reported.
    fn ended(
        self: &Arc<Self>,
        key: &AttemptId,
        said: Said,
        why: &str,
        control: Option<&TaskControl>,
    ) {
        let mut state = self.held();
        state.endings.remove(key);
        let Some(settled) = state.executor.ended(key, said, why, clock()) else { return };
        // The thread of a process takes the next one itself, unless it has to wait first.
        if T::REPORTS_WAIT || control.is_some() {
            self.fill(state);
        } else {
            drop(state);
        }
        self.report(key, settled, control);
        let mut state = self.held();
        let withdrawn = state.executor.reported(key);
        let matters = state.executor.is_idle()
            || state.executor.is_draining()
            || state.executor.credits().is_wanted(clock())
            || state.executor.credits().is_news();
        drop(state);
        if let Some(attempt) = withdrawn {
            self.transport.withdrawn(key, &attempt);
        }
        if matters {
            self.transport.changed();
        }
    }

    fn report(
        &self,
        key: &AttemptId,
        settled: Settled<AttemptOf<T>>,
        control: Option<&TaskControl>,
    ) {
        let reporting = AssertUnwindSafe(|| self.transport.report(key, settled, control));
        if let Err(panic) = catch_unwind(reporting) {
            // The slot is free. The controller hears from the next hello, or the end of the program, that it is lost.
            tracing::error!(attempt = %key, "an attempt could not be reported: {}", panic_text(&*panic));
        }
    }

    fn give_back(
        &self,
        state: MutexGuard<'_, State<T>>,
        works: &[T::Work],
        outcome: fn() -> Outcome,
        why: &str,
    ) {
        drop(state);
        for work in works {
            let settled = Settled::not_begun(work.attempt(), outcome(), why.to_owned());
            self.report(&work.id(), settled, None);
        }
        let mut state = self.held();
        for work in works {
            state.executor.told(&work.id());
        }
    }

    fn watch_the_clock(&self) {
        let mut state = self.held();
        while !state.closed {
            let now = clock();
            if let Some(LeaseEnd { running, cut, waiting: waited }) =
                state.executor.lease_ended(now)
            {
                running.iter().filter_map(|key| state.endings.get(key)).for_each(Ending::kill);
                let waiting = waited.len();
                tracing::warn!(
                    killed = cut,
                    waiting,
                    "no server has answered for these for as long as the lease"
                );
                let why = crate::executor::LEASE_ENDED;
                self.give_back(state, &waited, || Outcome::NOT_BEGUN, why);
            } else {
                let overdue = state.executor.overdue(now);
                if overdue.is_empty() {
                    let longest = state.executor.look_again(now);
                    state.watched = longest.is_some();
                    state = match longest {
                        Some(longest) => {
                            let waited = self.waiting.wait_timeout(state, longest);
                            waited.unwrap_or_else(PoisonError::into_inner).0
                        }
                        None => self.waiting.wait(state).unwrap_or_else(PoisonError::into_inner),
                    };
                    continue;
                }
                self.give_back(state, &overdue, Outcome::handed_back, "");
            }
            self.transport.changed();
            state = self.held();
        }
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}
