//! What a worker has in hand: what waits for a slot, what runs, why it was cut short, and how long it may go on.
//!
//! A plain value, as the engine's controller is: what happens and the time go in, what is to be begun, reported or
//! handed back comes out. No clock, thread, task, file or socket; [`driver`](crate::driver) has those, and what
//! assigns and hears is a [`Transport`](crate::Transport).

mod draining;
mod scopes;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use steadfast_api::WorkerReport;
use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;

use crate::Ended;
use crate::credits::{Credits, Grant, Source};
use crate::lease::Lease;
use crate::resources::{Capacity, Resources};

/// What waits longer than this for a slot is handed back: another worker may have room for it.
pub const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// A controller gives a few more than there are slots; far more than that is a controller gone wrong, and memory
/// is not its to fill.
const QUEUED_MOST: usize = 10_000;
/// How often the clock is looked at while something runs under a lease: a machine that slept wakes with its timers
/// late.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) const LEASE_ENDED: &str = "the lease ended";
/// Why a worker drains that its own host has told to go.
pub(crate) const PREEMPTED: &str = "preempted";
/// Why a worker drains on the server's order, which can be taken back.
pub(crate) const SERVER_ASKED: &str = "the server asked for it";

/// What is assigned.
pub trait Work {
    /// What it is reported as.
    type Attempt: Clone + fmt::Debug + Send + Sync + 'static;

    fn id(&self) -> AttemptId;

    fn attempt(&self) -> Self::Attempt;

    /// It is a task of the runtime (a function, a call of a web service), and no process.
    fn is_task(&self) -> bool;

    /// What it takes beside a slot.
    fn takes(&self) -> Resources {
        Resources::default()
    }

    /// Who assigned it.
    fn source(&self) -> Source {
        0
    }
}

#[derive(Debug)]
pub struct Executor<W: Work> {
    /// Whose the slots are. An attempt's is given back when it has ended, which may be before its report is kept.
    credits: Credits,
    /// Those who assign.
    sources: Vec<Assigner>,
    /// First come, first served.
    queue: VecDeque<Waiting<W>>,
    /// From the moment an attempt has a slot until its report is kept or delivered.
    running: BTreeMap<AttemptId, Running<W::Attempt>>,
    /// Not begun here, until that is [told](Self::told).
    given_back: BTreeMap<AttemptId, (Source, W::Attempt)>,
    /// The highest epoch that was seen of each scope.
    epochs: BTreeMap<String, u64>,
    /// Why nothing new is taken, from whomever.
    draining: Option<String>,
}

/// Who assigns, and for how long what it has assigned may go on.
#[derive(Debug, Default)]
struct Assigner {
    lease: Lease,
    /// What follows from the end of the lease has been done.
    lease_noticed: bool,
    /// It wants nothing new taken from it.
    drains: bool,
}

/// What is over with a lease.
#[derive(Debug, PartialEq)]
pub struct LeaseEnd<W> {
    /// To be killed, also what uses up its grace.
    pub running: Vec<AttemptId>,
    /// How many of them had not been cut short before.
    pub cut: usize,
    /// To be given back.
    pub waiting: Vec<W>,
}

/// For a slot.
#[derive(Debug)]
struct Waiting<W> {
    key: AttemptId,
    /// Whose it is now.
    source: Source,
    since: Duration,
    /// See [`Running::released`].
    released: Option<Duration>,
    work: W,
}

impl<W> Waiting<W> {
    /// The number first: it tells most of them apart.
    fn is(&self, key: &AttemptId) -> bool {
        self.key.token == key.token && self.key.job == key.job
    }
}

#[derive(Debug)]
struct Running<A> {
    source: Source,
    attempt: A,
    takes: Resources,
    /// There is, or was, a process; a task has begun with its slot.
    started: bool,
    /// Its source has it no more, and no other has said that it has: it goes on until then.
    released: Option<Duration>,
    /// Its slot is another's; it is being reported.
    ended: bool,
    cut: Option<Cut>,
}

/// Why an attempt was ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Withdrawn,
    LeaseEnded,
    Preempted,
}

impl Cut {
    /// The first reason is the reason, unless the controller does not want to hear it any more.
    fn instead_of(self, before: &mut Option<Self>) {
        if self == Self::Withdrawn {
            *before = Some(self);
        }
        before.get_or_insert(self);
    }
}

/// What became of an assignment.
#[derive(Debug)]
pub enum Assigned<W> {
    /// It is in hand already: the controller says again what it cannot know to have arrived.
    Known,
    Queued,
    /// It is not begun here, because of this.
    GivenBack(W, String),
}

/// How an attempt ended, as it is to be reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled<A> {
    pub attempt: A,
    pub report: WorkerReport,
    /// For people.
    pub why: String,
    /// It had begun.
    pub started: bool,
    /// The controller does not want to hear of it.
    pub withdrawn: bool,
}

impl<A> Settled<A> {
    /// Of an attempt that was not begun here.
    pub fn not_begun(attempt: A, outcome: Outcome, why: String) -> Self {
        let report = WorkerReport::Ended(outcome);
        Self { attempt, report, why, started: false, withdrawn: false }
    }
}

/// What an attempt came to, after it was cut short so.
fn settle(cut: Option<Cut>, said: Said, started: bool, why: &str) -> (WorkerReport, String) {
    let lost =
        |why: &str| (WorkerReport::Ended(Outcome::Lost { started, why: None }), why.to_owned());
    match (cut, said) {
        (Some(Cut::LeaseEnded), _) => lost(LEASE_ENDED),
        // It was asked to end: only a success is its own doing.
        (Some(Cut::Preempted), Said::Report(WorkerReport::Ended(outcome)))
            if !started || matches!(outcome, Outcome::Succeeded { .. }) =>
        {
            (WorkerReport::Ended(outcome), why.to_owned())
        }
        (Some(Cut::Preempted), _) => lost(PREEMPTED),
        // A call that was cut short has nobody who waits for its callback.
        (Some(Cut::Withdrawn), Said::Report(WorkerReport::AwaitsCallback)) | (_, Said::Stopped) => {
            lost("stopped")
        }
        (_, Said::Report(report)) => (report, why.to_owned()),
    }
}

/// How it ended, as the process, the function or the service said.
#[derive(Debug)]
pub enum Said {
    Report(WorkerReport),
    /// It was told to stop, or dropped, before it ended by itself.
    Stopped,
}

impl From<Ended> for Said {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Outcome(outcome) => Self::Report(WorkerReport::Ended(outcome)),
            Ended::Stopped => Self::Stopped,
        }
    }
}

impl<W: Work> Executor<W> {
    /// With no lease: what it runs may go on until told otherwise.
    pub fn new(slots: u32, capacity: Capacity) -> Self {
        Self {
            credits: Credits::new(slots).within(capacity),
            sources: vec![Assigner::default()],
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            given_back: BTreeMap::new(),
            epochs: BTreeMap::new(),
            draining: None,
        }
    }

    /// Another one assigns too.
    pub fn add_source(&mut self) {
        self.credits.add();
        self.sources.push(Assigner::default());
    }

    pub fn credits(&mut self) -> &mut Credits {
        &mut self.credits
    }

    /// What this source is to know about its credits.
    pub fn next_grant(&mut self, source: Source, now: Duration) -> Option<Grant> {
        let queue = &self.queue;
        let waiting = |source| queue.iter().filter(|it| it.source == source).count() as u32;
        self.credits.next(source, waiting, now)
    }

    pub fn holds(&self, key: &AttemptId) -> bool {
        self.running.contains_key(key)
            || self.given_back.contains_key(key)
            || self.queue.iter().any(|waiting| waiting.is(key))
    }

    /// It waits or runs, and is this one's.
    pub fn is_from(&self, key: &AttemptId, source: Source) -> bool {
        let waiting = || self.queue.iter().find(|waiting| waiting.is(key));
        let waiting = || waiting().is_some_and(|waiting| waiting.source == source);
        self.running.get(key).map_or_else(waiting, |running| running.source == source)
    }

    /// All of this one that waits, runs, or is being given back.
    pub fn attempts(&self, source: Source) -> impl Iterator<Item = (AttemptId, W::Attempt)> {
        let queued = self.queue.iter().filter(move |it| it.source == source);
        let queued = queued.map(|it| (it.key.clone(), it.work.attempt()));
        let running = self.running.iter().filter(move |(_, it)| it.source == source);
        let running = running.map(|(key, it)| (key.clone(), it.attempt.clone()));
        let given_back = self.given_back.iter().filter(move |(_, (its, _))| *its == source);
        let given_back = given_back.map(|(key, (_, attempt))| (key.clone(), attempt.clone()));
        queued.chain(running).chain(given_back)
    }

    /// Nothing waits, runs, or is being told of.
    pub fn is_idle(&self) -> bool {
        !self.has_work() && self.given_back.is_empty()
    }

    fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.running.is_empty()
    }

    /// In hand until it is [told](Self::told), so that it is not begun when it is assigned again meanwhile.
    fn give_back(&mut self, source: Source, work: W) -> W {
        self.given_back.insert(work.id(), (source, work.attempt()));
        work
    }

    /// That it was given back is kept or delivered.
    pub fn told(&mut self, key: &AttemptId) {
        self.given_back.remove(key);
    }

    pub fn assign(&mut self, work: W, now: Duration) -> Assigned<W> {
        let key = work.id();
        if self.holds(&key) {
            return Assigned::Known;
        }
        let source = work.source();
        let why = if let Some(why) = self.draining(source) {
            why.to_owned()
        } else if self.lease_is_over(source, now) {
            LEASE_ENDED.to_owned()
        } else if self.queue.len() >= QUEUED_MOST {
            "the worker's queue is full".to_owned()
        } else {
            self.queue.push_back(Waiting { key, source, since: now, released: None, work });
            return Assigned::Queued;
        };
        Assigned::GivenBack(self.give_back(source, work), why)
    }

    /// What has waited longest of those that have a slot now. Who wakes late begins nothing that is another's by now.
    pub fn ready(&self, now: Duration) -> Option<&W> {
        self.queue.get(self.first_ready(now)?).map(|waiting| &waiting.work)
    }

    fn first_ready(&self, now: Duration) -> Option<usize> {
        let is_ready = |source| self.credits.may_begin(source) && !self.lease_is_over(source, now);
        // Those of one source are all ready, or none is, but for what they take.
        let mut seen = None;
        self.queue.iter().position(|waiting| {
            let source = waiting.source;
            let is_ready = match seen {
                Some((last, is_ready)) if last == source => is_ready,
                _ => is_ready(source),
            };
            seen = Some((source, is_ready));
            is_ready && waiting.released.is_none() && self.credits.has(waiting.work.takes())
        })
    }

    /// The slot is its own from now on.
    pub fn begin(&mut self, now: Duration) -> Option<(AttemptId, W)> {
        let Waiting { key, source, work, .. } = self.queue.remove(self.first_ready(now)?)?;
        let attempt = work.attempt();
        let (started, takes) = (work.is_task(), work.takes());
        let (released, ended, cut) = (None, false, None);
        let running = Running { source, attempt, takes, started, released, ended, cut };
        self.running.insert(key.clone(), running);
        self.credits.began(source, takes);
        Some((key, work))
    }

    /// There is a process.
    pub fn started(&mut self, key: &AttemptId) {
        if let Some(running) = self.running.get_mut(key) {
            running.started = true;
        }
    }

    /// The attempt has ended, or never began: its slot is free. It stays in hand until it is [reported](Self::reported).
    pub fn ended(
        &mut self,
        key: &AttemptId,
        said: Said,
        why: &str,
        now: Duration,
    ) -> Option<Settled<W::Attempt>> {
        // Woken after a long stop we may be the first to see that the lease is over.
        let Running { source, attempt, takes, started, released, ended, cut } =
            self.running.get_mut(key)?;
        if !std::mem::replace(ended, true) {
            self.credits.ended(*source, *takes);
        }
        if self.sources[*source].lease.is_over(now) || is_over(*released, now) {
            Cut::LeaseEnded.instead_of(cut);
        }
        let (report, why) = settle(*cut, said, *started, why);
        let withdrawn = *cut == Some(Cut::Withdrawn);
        Some(Settled { attempt: attempt.clone(), report, why, started: *started, withdrawn })
    }

    /// Its report is kept or delivered. Some: the controller has withdrawn it by now.
    pub fn reported(&mut self, key: &AttemptId) -> Option<W::Attempt> {
        let running = self.running.remove(key)?;
        (running.cut == Some(Cut::Withdrawn)).then_some(running.attempt)
    }

    /// The controller does not want to hear of it any more. True: it runs, and is to be stopped.
    pub fn withdraw(&mut self, key: &AttemptId) -> bool {
        self.queue.retain(|waiting| !waiting.is(key));
        let running = self.running.get_mut(key);
        running.map(|running| Cut::Withdrawn.instead_of(&mut running.cut)).is_some()
    }

    /// What has waited too long for a slot: it may find one elsewhere.
    pub fn overdue(&mut self, now: Duration) -> Vec<W> {
        let kept = self.ending();
        let mut overdue = Vec::new();
        while self.queue.get(kept).is_some_and(|waiting| longest(waiting, now).is_zero())
            && let Some(waiting) = self.queue.remove(kept)
        {
            overdue.push(self.give_back(waiting.source, waiting.work));
        }
        overdue
    }

    /// Slots of attempts that the controller has withdrawn, and believes to be free: as many of the queue wait for
    /// them, while the withdrawn use up their grace.
    fn ending(&self) -> usize {
        self.running.values().filter(|running| running.cut == Some(Cut::Withdrawn)).count()
    }

    /// In how long something is [overdue](Self::overdue), or a lease over. None: neither will be.
    pub fn look_again(&self, now: Duration) -> Option<Duration> {
        let waits = self.queue.get(self.ending()).map(|waiting| longest(waiting, now));
        let watched = self.sources.iter().filter(|it| self.has_work() && !it.lease_noticed);
        let leases = watched.filter_map(|it| it.lease.left(now)).map(|left| left.min(LOOK));
        let released = self.running.values().filter_map(|it| it.released);
        let released = released.map(|until| until.saturating_sub(now));
        waits.into_iter().chain(leases).chain(released).min()
    }

    /// Something waits that has no slot, or runs under a lease: the clock is to be looked at.
    pub fn needs_watch(&self, now: Duration) -> bool {
        let waits = !self.queue.is_empty() && self.ready(now).is_none();
        waits || (self.has_work() && self.sources.iter().any(|it| it.lease.length().is_some()))
    }

    /// A lease is over: everything that its source has assigned is to be killed, and what waits goes back. Said once
    /// of each. None: none is, or nothing is in hand.
    pub fn lease_ended(&mut self, now: Duration) -> Option<LeaseEnd<W>> {
        if let Some(over) = self.released_ended(now) {
            return Some(over);
        }
        for assigner in &mut self.sources {
            assigner.lease_noticed &= assigner.lease.is_over(now);
        }
        let is_news = |it: &Assigner| it.lease.is_over(now) && !it.lease_noticed;
        let source = self.sources.iter().position(is_news).filter(|_| self.has_work())?;
        self.sources[source].lease_noticed = true;
        let (mut running, mut cut) = (Vec::new(), 0);
        for (key, its) in self.running.iter_mut().filter(|(_, it)| it.source == source) {
            cut += usize::from(its.cut.is_none());
            its.cut.get_or_insert(Cut::LeaseEnded);
            running.push(key.clone());
        }
        Some(LeaseEnd { running, cut, waiting: self.take_queue(|it| it == source) })
    }

    /// The same of what no server has said to have, in the time that was left for it. What waits goes back as all that waits.
    fn released_ended(&mut self, now: Duration) -> Option<LeaseEnd<W>> {
        let (mut running, mut cut) = (Vec::new(), 0);
        for (key, its) in self.running.iter_mut().filter(|(_, it)| is_over(it.released, now)) {
            its.released = None;
            cut += usize::from(its.cut.is_none());
            its.cut.get_or_insert(Cut::LeaseEnded);
            running.push(key.clone());
        }
        (!running.is_empty()).then_some(LeaseEnd { running, cut, waiting: Vec::new() })
    }

    pub fn lease(&mut self, source: Source) -> &mut Lease {
        &mut self.sources[source].lease
    }

    pub fn lease_is_over(&self, source: Source, now: Duration) -> bool {
        self.sources[source].lease.is_over(now)
    }
}

fn is_over(released: Option<Duration>, now: Duration) -> bool {
    released.is_some_and(|until| until <= now) && !is_on(Defect::WorkerIgnoresItsLease)
}

fn longest<W>(waiting: &Waiting<W>, now: Duration) -> Duration {
    LONGEST_WAIT.saturating_sub(now.saturating_sub(waiting.since))
}

#[cfg(test)]
mod tests;
