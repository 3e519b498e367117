//! What a worker has in hand: what waits for a slot, what runs, why it was cut short, and how long it may go on.
//!
//! A plain value, as the engine's controller is: what happens and the time go in, what is to be begun, reported or
//! handed back comes out. No clock, thread, task, file or socket; [`driver`](crate::driver) has those, and what
//! assigns and hears is a [`Transport`](crate::Transport).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use steadfast_api::WorkerReport;
use steadfast_core::event::AttemptId;
use steadfast_core::outcome::Outcome;

use crate::Ended;
use crate::lease::Lease;

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
}

#[derive(Debug)]
pub struct Executor<W: Work> {
    slots: u32,
    /// First come, first served.
    queue: VecDeque<Waiting<W>>,
    /// From the moment an attempt has a slot until its report is kept or delivered.
    running: BTreeMap<AttemptId, Running<W::Attempt>>,
    /// Slots in use: given back when the attempt has ended, which may be before its report is kept.
    busy: u32,
    lease: Lease,
    /// What follows from the end of the lease has been done.
    lease_noticed: bool,
    /// Why nothing new is taken.
    draining: Option<String>,
}

/// For a slot.
#[derive(Debug)]
struct Waiting<W> {
    key: AttemptId,
    since: Duration,
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
    attempt: A,
    /// There is, or was, a process; a task has begun with its slot.
    started: bool,
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
pub(crate) enum Assigned<W> {
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
    pub(crate) fn not_begun(attempt: A, outcome: Outcome, why: String) -> Self {
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
pub(crate) enum Said {
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
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            slots,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            busy: 0,
            lease: Lease::default(),
            lease_noticed: false,
            draining: None,
        }
    }

    pub(crate) fn holds(&self, key: &AttemptId) -> bool {
        self.running.contains_key(key) || self.queue.iter().any(|waiting| waiting.is(key))
    }

    /// All that waits or runs.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = (AttemptId, W::Attempt)> {
        let queued = self.queue.iter().map(|it| (it.key.clone(), it.work.attempt()));
        queued.chain(self.running.iter().map(|(key, it)| (key.clone(), it.attempt.clone())))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.running.is_empty()
    }

    pub(crate) fn assign(&mut self, work: W, now: Duration) -> Assigned<W> {
        let key = work.id();
        if self.holds(&key) {
            return Assigned::Known;
        }
        if let Some(why) = &self.draining {
            Assigned::GivenBack(work, why.clone())
        } else if self.lease.is_over(now) {
            Assigned::GivenBack(work, LEASE_ENDED.to_owned())
        } else if self.queue.len() >= QUEUED_MOST {
            Assigned::GivenBack(work, "the worker's queue is full".to_owned())
        } else {
            self.queue.push_back(Waiting { key, since: now, work });
            Assigned::Queued
        }
    }

    /// What has waited longest has a slot now. Who wakes late begins nothing that is another's by now.
    pub(crate) fn ready(&self, now: Duration) -> Option<&W> {
        let may = self.busy < self.slots && !self.lease.is_over(now);
        self.queue.front().filter(|_| may).map(|waiting| &waiting.work)
    }

    /// The slot is its own from now on.
    pub(crate) fn begin(&mut self, now: Duration) -> Option<(AttemptId, W)> {
        self.ready(now)?;
        let Waiting { key, work, .. } = self.queue.pop_front()?;
        let running = Running { attempt: work.attempt(), started: work.is_task(), cut: None };
        self.running.insert(key.clone(), running);
        self.busy += 1;
        Some((key, work))
    }

    /// There is a process.
    pub(crate) fn started(&mut self, key: &AttemptId) {
        if let Some(running) = self.running.get_mut(key) {
            running.started = true;
        }
    }

    /// The attempt has ended, or never began: its slot is free. It stays in hand until it is [reported](Self::reported).
    pub(crate) fn ended(
        &mut self,
        key: &AttemptId,
        said: Said,
        why: &str,
        now: Duration,
    ) -> Option<Settled<W::Attempt>> {
        // Woken after a long stop we may be the first to see that the lease is over.
        let lease_over = self.lease.is_over(now);
        let Running { attempt, started, cut } = self.running.get_mut(key)?;
        self.busy -= 1;
        if lease_over {
            Cut::LeaseEnded.instead_of(cut);
        }
        let (report, why) = settle(*cut, said, *started, why);
        let withdrawn = *cut == Some(Cut::Withdrawn);
        Some(Settled { attempt: attempt.clone(), report, why, started: *started, withdrawn })
    }

    /// Its report is kept or delivered. True: the controller has withdrawn it by now.
    pub(crate) fn reported(&mut self, key: &AttemptId) -> bool {
        self.running.remove(key).is_some_and(|running| running.cut == Some(Cut::Withdrawn))
    }

    /// The controller does not want to hear of it any more. True: it runs, and is to be stopped.
    pub(crate) fn withdraw(&mut self, key: &AttemptId) -> bool {
        self.queue.retain(|waiting| !waiting.is(key));
        let running = self.running.get_mut(key);
        running.map(|running| Cut::Withdrawn.instead_of(&mut running.cut)).is_some()
    }

    /// What has waited too long for a slot: it may find one elsewhere.
    pub(crate) fn overdue(&mut self, now: Duration) -> Vec<W> {
        let kept = self.ending();
        let mut overdue = Vec::new();
        while self.queue.get(kept).is_some_and(|waiting| longest(waiting, now).is_zero())
            && let Some(waiting) = self.queue.remove(kept)
        {
            overdue.push(waiting.work);
        }
        overdue
    }

    /// Slots of attempts that the controller has withdrawn, and believes to be free: as many of the queue wait for
    /// them, while the withdrawn use up their grace.
    fn ending(&self) -> usize {
        self.running.values().filter(|running| running.cut == Some(Cut::Withdrawn)).count()
    }

    /// In how long something is [overdue](Self::overdue), or the lease over. None: neither will be.
    pub(crate) fn look_again(&self, now: Duration) -> Option<Duration> {
        let waits = self.queue.get(self.ending()).map(|waiting| longest(waiting, now));
        let is_watched = !self.is_idle() && !self.lease_noticed;
        let lease = self.lease.left(now).filter(|_| is_watched);
        waits.into_iter().chain(lease.map(|left| left.min(LOOK))).min()
    }

    /// Something waits that has no slot, or runs under a lease: the clock is to be looked at.
    pub(crate) fn needs_watch(&self, now: Duration) -> bool {
        let waits = !self.queue.is_empty() && self.ready(now).is_none();
        waits || (!self.is_idle() && self.lease.length().is_some())
    }

    /// The lease is over: everything that runs is to be killed, also what uses up its grace, and what waits goes
    /// back. Said once. None: it is not, or nothing is in hand.
    pub(crate) fn lease_ended(&mut self, now: Duration) -> Option<(usize, Vec<W>)> {
        let is_over = self.lease.is_over(now);
        if !is_over || self.is_idle() || self.lease_noticed {
            self.lease_noticed &= is_over;
            return None;
        }
        self.lease_noticed = true;
        let mut cut = 0;
        for running in self.running.values_mut().filter(|running| running.cut.is_none()) {
            Cut::LeaseEnded.instead_of(&mut running.cut);
            cut += 1;
        }
        Some((cut, self.take_queue()))
    }

    fn take_queue(&mut self) -> Vec<W> {
        std::mem::take(&mut self.queue).into_iter().map(|waiting| waiting.work).collect()
    }

    /// Takes nothing new from now on; returns what waits, to be given back.
    pub(crate) fn drain(&mut self, why: &str) -> Vec<W> {
        // Who is told to go by its own host goes, whatever the server takes back.
        if why == PREEMPTED {
            self.draining = Some(why.to_owned());
        }
        self.draining.get_or_insert_with(|| why.to_owned());
        self.take_queue()
    }

    /// Takes new work again, if it was the server that wanted none taken.
    pub(crate) fn undrain(&mut self) {
        if self.draining.as_deref() == Some(SERVER_ASKED) {
            self.draining = None;
        }
    }

    pub(crate) fn draining(&self) -> Option<&str> {
        self.draining.as_deref()
    }

    /// The worker's host wants it gone: only successes are the attempts' own doing from now on. All of them, and
    /// whether there is a process or task.
    pub(crate) fn preempt(&mut self) -> Vec<(AttemptId, bool)> {
        let all = self.running.iter_mut().map(|(key, running)| {
            Cut::Preempted.instead_of(&mut running.cut);
            (key.clone(), running.started)
        });
        all.collect()
    }

    pub(crate) fn lease(&mut self) -> &mut Lease {
        &mut self.lease
    }

    pub(crate) fn lease_is_over(&self, now: Duration) -> bool {
        self.lease.is_over(now)
    }
}

fn longest<W>(waiting: &Waiting<W>, now: Duration) -> Duration {
    LONGEST_WAIT.saturating_sub(now.saturating_sub(waiting.since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Task(u64);

    impl Work for Task {
        type Attempt = u64;

        fn id(&self) -> AttemptId {
            key(self.0)
        }

        fn attempt(&self) -> u64 {
            self.0
        }

        fn is_task(&self) -> bool {
            false
        }
    }

    fn key(token: u64) -> AttemptId {
        AttemptId::new("job", token)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn given(executor: &mut Executor<Task>, tokens: std::ops::RangeInclusive<u64>, now: Duration) {
        for token in tokens {
            assert!(matches!(executor.assign(Task(token), now), Assigned::Queued), "{token}");
        }
    }

    fn ok() -> Said {
        Said::Report(WorkerReport::Ended(Outcome::OK))
    }

    #[test]
    fn slots_are_given_in_order_and_what_waits_a_second_goes_back() {
        let mut executor = Executor::new(2);
        given(&mut executor, 1..=4, ms(0));
        assert!(matches!(executor.assign(Task(4), ms(0)), Assigned::Known));
        let begun = |executor: &mut Executor<Task>, now| executor.begin(now).map(|(_, task)| task);
        assert_eq!(begun(&mut executor, ms(0)), Some(Task(1)));
        assert_eq!(begun(&mut executor, ms(0)), Some(Task(2)));
        assert_eq!(executor.begin(ms(0)), None, "there are two slots");
        assert_eq!(executor.look_again(ms(400)), Some(ms(600)));
        let settled = executor.ended(&key(1), ok(), "", ms(500)).unwrap();
        assert_eq!((settled.attempt, settled.withdrawn), (1, false));
        assert_eq!(begun(&mut executor, ms(500)), Some(Task(3)), "before the report of 1 is kept");
        assert!(!executor.reported(&key(1)));
        assert_eq!(executor.overdue(ms(999)), []);
        assert_eq!(executor.overdue(ms(1000)), [Task(4)]);
        assert_eq!(executor.look_again(ms(1000)), None, "there is no lease");
    }

    #[test]
    fn the_queue_waits_for_the_slots_of_what_was_withdrawn() {
        let mut executor = Executor::new(1);
        given(&mut executor, 1..=1, ms(0));
        executor.begin(ms(0));
        executor.started(&key(1));
        assert!(executor.withdraw(&key(1)));
        given(&mut executor, 2..=3, ms(0));
        assert_eq!(executor.overdue(ms(5000)), [Task(3)], "the slot of 1 is soon that of 2");
        let settled = executor.ended(&key(1), Said::Stopped, "", ms(5000)).unwrap();
        assert!(settled.withdrawn && executor.reported(&key(1)));
        assert_eq!(executor.begin(ms(5000)), Some((key(2), Task(2))));
        assert!(!executor.withdraw(&key(9)), "one that is not here");
    }

    #[test]
    fn without_its_lease_it_begins_nothing_and_what_it_ran_is_lost() {
        let mut executor = Executor::new(1);
        executor.lease().welcome(ms(0), ms(100));
        given(&mut executor, 1..=2, ms(10));
        executor.begin(ms(10));
        executor.started(&key(1));
        assert_eq!(executor.look_again(ms(10)), Some(ms(90)));
        assert!(executor.lease_ended(ms(99)).is_none());
        assert_eq!(executor.lease_ended(ms(100)), Some((1, vec![Task(2)])));
        assert_eq!((executor.lease_ended(ms(200)), executor.look_again(ms(200))), (None, None));
        // Its own success came too late: it is another worker's by now.
        let settled = executor.ended(&key(1), ok(), "", ms(100)).unwrap();
        let lost = WorkerReport::Ended(Outcome::Lost { started: true, why: None });
        assert_eq!((settled.report, &*settled.why), (lost, LEASE_ENDED));
        assert!(matches!(executor.assign(Task(3), ms(100)), Assigned::GivenBack(..)));
        executor.lease().welcome(ms(200), ms(100));
        given(&mut executor, 3..=3, ms(200));
        assert_eq!(executor.begin(ms(300)), None, "it woke too late");
    }

    #[test]
    fn who_is_told_to_go_keeps_nothing_but_successes() {
        let mut executor = Executor::new(3);
        given(&mut executor, 1..=4, ms(0));
        while executor.begin(ms(0)).is_some() {}
        executor.started(&key(1));
        executor.started(&key(2));
        assert_eq!(executor.drain(PREEMPTED), [Task(4)]);
        assert_eq!(executor.preempt(), [(key(1), true), (key(2), true), (key(3), false)]);
        executor.undrain();
        assert_eq!(executor.draining(), Some(PREEMPTED), "the server cannot take that back");
        let report = |executor: &mut Executor<Task>, token, said| {
            executor.ended(&key(token), said, "", ms(1)).unwrap().report
        };
        assert_eq!(report(&mut executor, 1, ok()), WorkerReport::Ended(Outcome::OK));
        let lost = |started| WorkerReport::Ended(Outcome::Lost { started, why: None });
        assert_eq!(report(&mut executor, 2, Said::Stopped), lost(true));
        assert_eq!(report(&mut executor, 3, Said::Stopped), lost(false));
    }
}
