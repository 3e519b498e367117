//! Workers come, beat, go and are lost: what that does to the jobs they have attempts of.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use steadfast_core::decide::Input;
use steadfast_core::event::{AttemptId, ItemId, JobId, Role};
use steadfast_core::job::{Phase, Timer};
use steadfast_core::outcome::Outcome;
use steadfast_core::time::Timestamp;

use crate::batch::{Assignment, Batch, Effect};
use crate::engine::{Engine, JobKey};
use crate::fleet::{
    Arrival, CreditNotice, Credits, Fleet, FleetNotification, Held, Identity, Missed, NameInUse,
    Needs, Undraining, WorkerInfo, WorkerSpec,
};
use crate::placement::Placement;

/// A worker that says that it is there.
#[derive(Clone, Debug)]
pub struct Arriving {
    pub spec: WorkerSpec,
    pub identity: Identity,
    /// A number that no other session has.
    pub session: u64,
    /// This life of it was here before: what it does not hold never reached it.
    pub returning: bool,
    /// What it runs, or has a report of that was not acknowledged.
    pub holds: BTreeSet<AttemptId>,
    /// The same of what other servers have assigned to it: what this one has of it is adopted, the rest is none of its.
    pub elsewhere: BTreeSet<AttemptId>,
    /// Those of it that are of jobs whose attempts this server knows: what it does not know of them is over.
    pub in_vain: BTreeSet<AttemptId>,
    /// How many of its slots are for this server. None: all.
    pub credits: Option<u32>,
}

impl Arriving {
    /// What it holds of jobs that have gone to another server, or are still being read, is none of this one's: it is not told to stop it.
    /// Of this one's jobs it is, whoever assigned it.
    #[must_use]
    pub fn at_one_that_knows(mut self, is_known: impl Fn(&JobId) -> bool) -> Self {
        let (ours, mut theirs) = self.holds.into_iter().partition(|held| is_known(&held.job));
        self.holds = ours;
        self.in_vain = self.elsewhere.iter().filter(|it| is_known(&it.job)).cloned().collect();
        self.elsewhere.append(&mut theirs);
        self
    }
}

/// Looking more often costs more than it tells; more seldom, a clock that was set goes unnoticed.
const CHECK_LEAST: Duration = Duration::from_millis(100);
const CHECK_MOST: Duration = Duration::from_mins(1);

/// A gap in the engine's own attention that is longer than this is not held against the workers.
const INATTENTION_MS: u64 = 1000;

/// The driver waits a tenth of a lease at most: so much of a gap can be taken for waiting.
const CHECKS_PER_LEASE: u64 = 10;

/// Before a worker is asked again whether it is back, with an attempt that is over its timeout.
const LOOK_AGAIN_MS: u64 = 1000;

impl Engine {
    fn fleet(&mut self) -> Option<&mut Fleet> {
        match &mut self.room {
            Placement::Fleet(fleet) => Some(fleet),
            Placement::Here { .. } => None,
        }
    }

    /// Its workers are other processes.
    pub(crate) fn is_fleet(&self) -> bool {
        matches!(self.room, Placement::Fleet(_))
    }

    /// Tells the engine what the monotonic clock says, and how long it has been waiting for something
    /// to happen: what it was otherwise absent, workers could not be heard.
    pub fn hear(&mut self, mono: u64, waited: u64) {
        let passed = mono.saturating_sub(self.mono);
        let gap = Some(passed.saturating_sub(waited)).filter(|gap| *gap > INATTENTION_MS);
        self.mono = self.mono.max(mono);
        self.timers.attended += passed - gap.unwrap_or_default();
        if let (Some(gap), Some(fleet)) = (gap, self.fleet()) {
            fleet.extend_leases(gap);
        }
    }

    /// When leases, quarantines or watchdogs end, or workers are asked for slots, on the monotonic clock.
    pub fn next_wake(&self) -> Option<u64> {
        let left = |due: u64| due.saturating_sub(self.timers.attended);
        let watchdog = self.timers.watchdogs.next().map(|due| self.mono.saturating_add(left(due)));
        let (fleet, ask) = match &self.room {
            Placement::Fleet(fleet) => {
                (fleet.next_wake(), fleet.next_ask().filter(|_| !self.draining))
            }
            Placement::Here { .. } => (None, None),
        };
        watchdog.into_iter().chain(fleet).chain(ask).min()
    }

    /// How often a server looks at its deadlines, at least.
    pub(crate) fn check_every(&self) -> Option<Duration> {
        match &self.room {
            Placement::Fleet(fleet) => {
                let rules = fleet.rules();
                let every = rules.check_every_ms.min(rules.lease_ms / CHECKS_PER_LEASE);
                let every = Duration::from_millis(every);
                Some(every.clamp(CHECK_LEAST, CHECK_MOST))
            }
            Placement::Here { .. } => None,
        }
    }

    /// A worker is there. What it was assigned and never got it gets again, what an earlier life of it
    /// took along is lost, and what it holds in vain it is told to stop. Returns what it holds of others that is this server's.
    pub(crate) fn connect(
        &mut self,
        arriving: Arriving,
        now: Timestamp,
    ) -> Result<(Batch, Vec<AttemptId>), NameInUse> {
        let mut batch = Batch::default();
        let (mono, worker) = (self.mono, arriving.spec.name.clone());
        let Some(fleet) = self.fleet() else { return Ok((batch, Vec::new())) };
        let Arrival { again, lost, unwanted, adopted } = fleet.connect(arriving, mono)?;
        let assignment = |AttemptId { job, token }, held: &Held| Assignment {
            job,
            item: held.item,
            attempt: held.attempt,
            token,
            worker: worker.clone(),
        };
        let again = again.into_iter().map(|(key, held)| Effect::Assign(assignment(key, &held)));
        batch.effects.extend(again);
        for AttemptId { job, token } in unwanted {
            let item = ItemId { run: 0, step: 0, role: Role::default(), index: 0 };
            let over = Assignment { job, item, attempt: 0, token, worker: worker.clone() };
            batch.effects.push(Effect::Withdraw(over));
        }
        self.lose(lost, "it was restarted", now, &mut batch);
        Ok((batch, adopted))
    }

    /// The worker was assigned it by this server, or by one whose job it was.
    pub(crate) fn has_at(&self, worker: &str, attempt: &AttemptId) -> bool {
        matches!(&self.room, Placement::Fleet(fleet) if fleet.has_at(worker, attempt))
    }

    /// All stored jobs that are due or under way have been taken up: the lease that their workers have to come
    /// back in counts from now.
    pub fn recovered(&mut self) {
        let mono = self.mono;
        if let Some(fleet) = self.fleet() {
            fleet.returned(mono);
        }
    }

    /// Workers that are here, and have not said what they have of jobs that came from another server.
    pub(crate) fn take_unasked(&mut self) -> Vec<Arc<str>> {
        self.fleet().map(Fleet::take_unasked).unwrap_or_default()
    }

    /// Every worker that is here is to say what it has.
    pub(crate) fn ask_all(&mut self) {
        if let Some(fleet) = self.fleet() {
            fleet.ask_all();
        }
    }

    /// False: this life of the worker is not known here, and must come in anew.
    pub fn beat(&mut self, worker: &str, incarnation: &str) -> bool {
        let mono = self.mono;
        self.fleet().is_some_and(|fleet| fleet.beat(worker, incarnation, mono))
    }

    /// A session of the worker has ended.
    pub fn away(&mut self, worker: &str, session: u64) {
        if let Some(fleet) = self.fleet() {
            fleet.away(worker, session);
        }
    }

    /// The worker takes nothing new. False: there is no such worker.
    pub fn drain_worker(&mut self, worker: &str) -> bool {
        self.fleet().is_some_and(|fleet| fleet.drain(worker))
    }

    /// An operator takes a drain of it back.
    pub fn undrain_worker(&mut self, worker: &str) -> Undraining {
        self.fleet().map_or(Undraining::Unknown, |fleet| fleet.want_undrain(worker))
    }

    /// The worker says that it takes new work again.
    pub fn undrained(&mut self, worker: &str) {
        if let Some(fleet) = self.fleet() {
            fleet.undrained(worker);
        }
    }

    /// The worker has so much for this server, in this session.
    pub fn credits(&mut self, worker: &str, session: u64, credits: Credits) {
        if let Some(fleet) = self.fleet() {
            fleet.credits(worker, session, credits);
        }
    }

    pub(crate) fn take_credit_notices(&mut self) -> Vec<(Arc<str>, CreditNotice)> {
        self.fleet().map(Fleet::take_credit_notices).unwrap_or_default()
    }

    /// What it was not told while it was away.
    pub fn missed(&mut self, worker: &str) -> Missed {
        self.fleet().map_or(Missed::Nothing, |fleet| fleet.missed(worker))
    }

    /// Ends leases, quarantines and watchdogs that are over. To be called when everything that was said has
    /// been heard: only then is silence silence.
    pub(crate) fn tick_workers(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        let mono = self.mono;
        if let Some(fleet) = self.fleet() {
            let lost = fleet.tick(mono);
            self.lose(lost, "it was silent for longer than its lease", now, &mut batch);
        }
        let attended = self.timers.attended;
        while let Some((key, timer, due)) = self.timers.watchdogs.pop(attended) {
            self.overdue(key, timer, due, now, &mut batch);
        }
        batch
    }

    /// A watchdog is due. One behind a worker waits until that worker has been there, since it was due and for
    /// long enough to say what it has: what had ended meanwhile it says when it is back, and when its lease
    /// ends instead, the attempt is a loss.
    fn overdue(&mut self, key: JobKey, timer: Timer, due: u64, now: Timestamp, batch: &mut Batch) {
        let Some(job) = self.jobs.get(&key) else { return };
        let Some(by_wall) = job.timer_due(&timer) else { return };
        let attended = self.timers.attended;
        if let (Timer::Attempt(item, _), Placement::Fleet(fleet)) = (timer, &self.room)
            && let Some(worker) = job.live(item).and_then(|live| live.worker.as_deref())
            && !fleet.could_report(worker, attended - due, self.timers.lenience_ms(), self.mono)
        {
            self.timers.watchdogs.recheck(key, timer, due, attended + LOOK_AGAIN_MS);
            return;
        }
        // By a wall clock that was set back it may seem early.
        let _ = self.transact(key, &Input::Fired(timer), now.max(by_wall), batch);
    }

    pub(crate) fn take_news(&mut self) -> Vec<FleetNotification> {
        self.fleet().map(Fleet::take_news).unwrap_or_default()
    }

    pub fn workers(&self) -> Vec<WorkerInfo> {
        match &self.room {
            Placement::Fleet(fleet) => fleet.views(self.mono),
            Placement::Here { .. } => Vec::new(),
        }
    }

    /// Of every step that has something to start, by run and step: why it has not started.
    pub fn why_not_running(&self, job: &str) -> Vec<((u32, u32), String)> {
        let (Placement::Fleet(fleet), Some(key)) = (&self.room, self.keys.get(job)) else {
            return Vec::new();
        };
        let Some(job) = self.jobs.get(key) else {
            let wants = self.queue.wants(*key);
            return wants.map(|(step, needs)| (step, fleet.why_not(needs))).collect();
        };
        let startable = job.startable();
        startable
            .map(|item| ((item.run, item.step), fleet.why_not(&Needs::of(&job.plan, item))))
            .collect()
    }

    /// How many jobs wait for a worker, by why none takes them: once for each kind of worker that they want.
    pub fn queue_by_reason(&self) -> Vec<(String, u64)> {
        let Placement::Fleet(fleet) = &self.room else { return Vec::new() };
        self.queue.waiting().map(|(needs, jobs)| (fleet.why_not(needs), jobs as u64)).collect()
    }

    fn lose(&mut self, lost: Vec<(AttemptId, Held)>, why: &str, now: Timestamp, batch: &mut Batch) {
        for (AttemptId { job, token }, held) in lost {
            let Held { item, attempt, .. } = held;
            let live = self.keys.get(&job).and_then(|key| self.jobs.get(key)?.live(item));
            if let Some(worker) = live.and_then(|live| live.worker.clone()) {
                // What was decided before may still be on its way, and would find the worker when it is back.
                let over = Assignment { job: job.clone(), item, attempt, token, worker };
                batch.effects.push(Effect::Withdraw(over));
            }
            let outcome = Outcome::Lost { started: true, why: Some(why.into()) };
            let input = Input::Report { item, token, outcome };
            let _ = self.handle(&job, &input, now, batch);
        }
    }

    /// The workers of a job that is taken up again may still be at it. How many attempts that is.
    pub(crate) fn expect_workers(&mut self, key: JobKey) -> i64 {
        let mono = self.mono;
        let Some(job) = self.jobs.get(&key) else { return 0 };
        let mut running = 0;
        for (item, live) in job.all_live().filter(|(_, live)| live.phase == Phase::Running) {
            let Some(worker) = &live.worker else { continue };
            let fleet = match &mut self.room {
                Placement::Fleet(fleet) => fleet,
                Placement::Here { slots, .. } => {
                    slots.hold(job.plan.datacenter(item.run));
                    continue;
                }
            };
            let (held, needs) =
                (AttemptId::new(job.id.clone(), live.token), Needs::of(&job.plan, item));
            let (attempt, incarnation) = (live.history.attempts, live.incarnation.clone());
            fleet.expect(worker, held, Held::new(item, attempt, incarnation, &needs, mono));
            running += 1;
        }
        running
    }
}
