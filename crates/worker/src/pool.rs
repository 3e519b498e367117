//! Slots that run attempts side by side, and a queue before them.
//!
//! Whoever assigns may be ahead of the slots, so that none of them waits for what comes next. What has
//! waited too long without having begun is handed back: somebody else may have room for it.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast_core::outcome::Outcome;

use crate::start::not_completed;
use crate::{Attempt, Ended, Port, Stop, run_and_tell};

/// What waits longer than this for a slot is handed back.
pub const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// What the slots of a [`Pool`] run, and who is told of it. Called on their threads.
pub trait Tasks: Send + Sync + 'static {
    /// Names a task as long as it is in the pool.
    type Key: Clone + Debug + Eq + Hash + Send + 'static;
    type Task: Send + 'static;

    /// Called when a slot is free for it, which is when folders are made and ports taken.
    /// An error is how it ended.
    fn prepare(&self, key: &Self::Key, task: &Self::Task) -> Result<Prepared, Outcome>;

    /// There is a process.
    fn started(&self) {}

    /// Called once for each task that was assigned. It is in the pool until this returns.
    fn over(&self, key: &Self::Key, task: &Self::Task, how: Over);
}

/// An attempt that can be run now.
#[derive(Debug)]
pub struct Prepared {
    pub attempt: Attempt,
    /// Held until it has ended.
    pub ports: Vec<Port>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Over {
    Ended(Ended),
    /// It waited too long for a slot, or was stopped while it did.
    NeverBegan,
}

/// Dropped, it hands back what waits; what runs goes on to its end.
#[derive(Debug)]
pub struct Pool<T: Tasks>(Arc<Shared<T>>);

struct Shared<T: Tasks> {
    tasks: Arc<T>,
    state: Mutex<State<T>>,
    /// For slots: there is something to run.
    work: Condvar,
    /// For the one who hands back: something has begun to wait.
    waiting: Condvar,
}

struct State<T: Tasks> {
    queue: VecDeque<Waiting<T>>,
    running: HashMap<T::Key, Stop>,
    /// Taken out of the queue, and about to be told that they never began.
    handed_back: usize,
    idle_slots: usize,
    /// That nothing was run in yet, and have no thread.
    unused_slots: u32,
    /// The one who hands back knows that something waits.
    watched: bool,
    /// Nothing begins any more.
    stopped: bool,
    closed: bool,
}

struct Waiting<T: Tasks> {
    key: T::Key,
    task: T::Task,
    since: Instant,
}

impl<T: Tasks> Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl<T: Tasks> Pool<T> {
    pub fn new(slots: u32, tasks: Arc<T>) -> Self {
        let state = State {
            queue: VecDeque::new(),
            running: HashMap::new(),
            handed_back: 0,
            idle_slots: 0,
            unused_slots: slots,
            watched: false,
            stopped: false,
            closed: false,
        };
        let shared = Arc::new(Shared {
            tasks,
            state: Mutex::new(state),
            work: Condvar::new(),
            waiting: Condvar::new(),
        });
        let watching = shared.clone();
        spawn("queue", move || watching.hand_back_what_waits_too_long())
            .expect("a process can have one more thread");
        Self(shared)
    }

    /// Never waits. Its key must not be in the pool already.
    pub fn assign(&self, key: T::Key, task: T::Task) {
        let mut state = self.0.held();
        if state.stopped {
            state.handed_back += 1;
            drop(state);
            self.0.never_began(&key, &task);
            return;
        }
        state.queue.push_back(Waiting { key, task, since: crate::now() });
        let has_slot = state.queue.len() <= state.idle_slots || self.0.begin_slot(&mut state);
        let unwatched = !has_slot && !std::mem::replace(&mut state.watched, true);
        drop(state);
        if has_slot {
            self.0.work.notify_one();
        }
        if unwatched {
            self.0.waiting.notify_one();
        }
    }

    /// SIGTERM, the attempt's grace, SIGKILL. What waits does not begin.
    pub fn stop(&self, key: &T::Key) {
        self.end(key, Stop::stop);
    }

    /// SIGKILL at once. What waits does not begin.
    pub fn kill(&self, key: &T::Key) {
        self.end(key, Stop::kill);
    }

    fn end(&self, key: &T::Key, how: fn(&Stop)) {
        let mut state = self.0.held();
        if let Some(stop) = state.running.get(key) {
            how(stop);
        } else if let Some(at) = state.queue.iter().position(|waiting| waiting.key == *key) {
            state.handed_back += 1;
            let waiting = state.queue.remove(at);
            drop(state);
            if let Some(Waiting { key, task, .. }) = &waiting {
                self.0.never_began(key, task);
            }
        }
    }

    /// [`Pool::stop`] for everything, also for what is assigned from now on.
    pub fn stop_all(&self) {
        self.end_all(Stop::stop);
    }

    /// [`Pool::kill`] for everything, also for what is assigned from now on.
    pub fn kill_all(&self) {
        self.end_all(Stop::kill);
    }

    fn end_all(&self, how: fn(&Stop)) {
        let mut state = self.0.held();
        state.stopped = true;
        state.running.values().for_each(how);
        self.0.hand_back_all(state);
    }

    /// Nothing waits, runs, or is being told of.
    pub fn is_idle(&self) -> bool {
        let state = self.0.held();
        state.queue.is_empty() && state.running.is_empty() && state.handed_back == 0
    }

    /// What is in a slot.
    pub fn running(&self) -> Vec<T::Key> {
        self.0.held().running.keys().cloned().collect()
    }
}

impl<T: Tasks> Drop for Pool<T> {
    fn drop(&mut self) {
        let mut state = self.0.held();
        state.closed = true;
        self.0.hand_back_all(state);
        self.0.work.notify_all();
        self.0.waiting.notify_all();
    }
}

impl<T: Tasks> Shared<T> {
    fn held(&self) -> MutexGuard<'_, State<T>> {
        // A thread that panicked left plain maps behind, which are still right.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of those that were not used yet, if there is one and a thread for it.
    fn begin_slot(self: &Arc<Self>, state: &mut State<T>) -> bool {
        let shared = self.clone();
        let begun = state.unused_slots > 0 && spawn("slot", move || shared.slot()).is_ok();
        state.unused_slots -= u32::from(begun);
        begun
    }

    fn slot(&self) {
        // Used again until it has been raised: an attempt is not worth two descriptors of its own.
        let mut unraised = None;
        let mut state = self.held();
        loop {
            let Some(Waiting { key, task, .. }) = state.queue.pop_front() else {
                if state.closed {
                    return;
                }
                state.idle_slots += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle_slots -= 1;
                continue;
            };
            let stop = match unraised.take().map_or_else(Stop::new, Ok) {
                Ok(stop) => stop,
                Err(error) => {
                    // Counted as in the pool until it is told.
                    state.handed_back += 1;
                    drop(state);
                    let failed = not_completed("spawn_failed", error.to_string());
                    let ended = Ended::Outcome(Outcome::Failed(failed));
                    self.tasks.over(&key, &task, Over::Ended(ended));
                    state = self.held();
                    state.handed_back -= 1;
                    continue;
                }
            };
            state.running.insert(key.clone(), stop.clone());
            drop(state);
            let ended = self.run(&key, &task, &stop);
            self.tasks.over(&key, &task, Over::Ended(ended));
            state = self.held();
            state.running.remove(&key);
            // Only those who find it among the running raise it.
            unraised = (!stop.is_stopped()).then_some(stop);
        }
    }

    fn run(&self, key: &T::Key, task: &T::Task, stop: &Stop) -> Ended {
        match self.tasks.prepare(key, task) {
            Ok(Prepared { attempt, ports }) => {
                let ended = run_and_tell(&attempt, stop, || self.tasks.started());
                drop(ports);
                ended
            }
            Err(outcome) => Ended::Outcome(outcome),
        }
    }

    fn hand_back_what_waits_too_long(&self) {
        let mut state = self.held();
        while !state.closed {
            if !state.watched {
                state = self.waiting.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let first = state.queue.front().map(|waiting| waiting.since);
            let longer = first.map(|since| {
                LONGEST_WAIT.saturating_sub(crate::now().saturating_duration_since(since))
            });
            match longer {
                None => state.watched = false,
                Some(Duration::ZERO) => {
                    state.handed_back += 1;
                    let waiting = state.queue.pop_front();
                    drop(state);
                    if let Some(Waiting { key, task, .. }) = &waiting {
                        self.never_began(key, task);
                    }
                    state = self.held();
                }
                Some(longer) => {
                    let waited = self.waiting.wait_timeout(state, longer);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        }
    }

    fn hand_back_all(&self, mut state: MutexGuard<'_, State<T>>) {
        let queue = std::mem::take(&mut state.queue);
        state.handed_back += queue.len();
        drop(state);
        for Waiting { key, task, .. } in &queue {
            self.never_began(key, task);
        }
    }

    /// It was counted among those handed back when it left the queue.
    fn never_began(&self, key: &T::Key, task: &T::Task) {
        self.tasks.over(key, task, Over::NeverBegan);
        self.held().handed_back -= 1;
    }
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map(drop)
}
