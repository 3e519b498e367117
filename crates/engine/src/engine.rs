//! Jobs under way, and the loop that takes them on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_core::outcome::Outcome;

use steadfast_core::apply::KilledAttempt;
use steadfast_core::decide::{Input, Refusal, Transition, accept, advance};
use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::{AcceptedJob, AttemptId, Event, ItemId, JobId, RecordedEvent};
use steadfast_core::job::{Job, Phase, Timer};
use steadfast_core::time::Timestamp;
use steadfast_store::Gap;

use crate::batch::{Assignment, Batch, Effect};
use crate::controller::Parked;
use crate::fleet::{Ended, HealthSignal, Held, Needs, step_of};
use crate::hash::HashMap;
use crate::placement::Placement;
use crate::queue::{Queue, Queued};
use crate::timers::Timers;

/// Jobs by the order they came in: cheaper to compare than their ids, a million times over.
pub(crate) type JobKey = u64;

#[derive(Debug)]
pub struct Engine {
    /// Boxed: each is some hundred bytes, and a tree moves what it has.
    pub(crate) jobs: BTreeMap<JobKey, Box<Job>>,
    /// Of the jobs, and of those that are only in the queue.
    pub(crate) keys: HashMap<JobId, JobKey>,
    pub(crate) timers: Timers,
    pub(crate) room: Placement,
    /// Jobs that may have something to start, here.
    pub(crate) runnable: BTreeSet<JobKey>,
    /// Jobs that have something to start, on workers.
    pub(crate) queue: Queue,
    /// Jobs of the queue that are not in memory, and whose turn has come.
    pub(crate) turns: Vec<JobId>,
    /// Nothing new starts.
    pub(crate) draining: bool,
    parked: Vec<Parked>,
    last_key: JobKey,
    /// See [`Input::Start`].
    pub(crate) least_token: u64,
    /// The monotonic clock, as far as workers are concerned.
    pub(crate) mono: u64,
}

/// No such job is under way.
#[derive(Debug)]
pub(crate) struct Unknown;

impl Engine {
    pub(crate) fn new(room: Placement) -> Self {
        Self {
            jobs: BTreeMap::new(),
            keys: HashMap::default(),
            timers: Timers::default(),
            room,
            runnable: BTreeSet::new(),
            queue: Queue::default(),
            turns: Vec::new(),
            draining: false,
            parked: Vec::new(),
            last_key: 0,
            least_token: 0,
            mono: 0,
        }
    }

    pub fn job(&self, id: &str) -> Option<&Job> {
        self.jobs.get(self.keys.get(id)?).map(Box::as_ref)
    }

    /// Takes a job in. Its id is new; that is for the one who made it to see to.
    pub(crate) fn submit(&mut self, accepted: AcceptedJob, now: Timestamp) -> Batch {
        let (job, log) = accept(accepted, now);
        let key = self.insert(job);
        let mut batch = Batch::default();
        self.book(key, log, Ending::Elsewhere, &mut batch, 0);
        batch
    }

    fn insert(&mut self, job: Job) -> JobKey {
        let key = self.key_of(&job.id);
        // It was there already, as an entry.
        self.queue.forget(key);
        self.jobs.insert(key, Box::new(job));
        key
    }

    fn key_of(&mut self, id: &JobId) -> JobKey {
        *self.keys.entry(id.clone()).or_insert_with(|| {
            self.last_key += 1;
            self.last_key
        })
    }

    /// A stored job that waits for a worker is queued, without being read. One that is known here is left as it is.
    pub(crate) fn enqueue(&mut self, id: JobId, since: Timestamp, queued: &Queued) {
        if !self.keys.contains_key(&id) {
            let key = self.key_of(&id);
            self.queue.enter(key, id, since, queued);
        }
    }

    /// The job leaves memory. If it waits for a worker, it stays in the queue.
    pub(crate) fn put_away(&mut self, id: &JobId) {
        let queued = self.queued(id);
        let Some(job) = self.forget(id) else { return };
        if let Some(queued) = queued {
            self.enqueue(job.id, job.accepted_at, &queued);
        }
    }

    /// What is stored of a job that waits for a worker with nothing under way.
    pub(crate) fn queued(&self, id: &str) -> Option<Queued> {
        match self.room {
            Placement::Fleet(_) => self.job(id).and_then(Queued::of),
            Placement::Here { .. } => None,
        }
    }

    /// Jobs of the queue whose turn has come: to be loaded.
    pub(crate) fn take_turns(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.turns)
    }

    /// Goes on with a job that was stored. It is told when the engine was down since its last event, as of the
    /// end of each time.
    pub(crate) fn adopt(&mut self, job: Job, gaps: &[Gap], now: Timestamp) -> Batch {
        let last_at = job.last_at;
        let key = self.insert(job);
        let running = self.expect_workers(key);
        if let (Placement::Fleet(_), Some(job)) = (&self.room, self.jobs.get(&key)) {
            self.queue.update(key, job, running);
        }
        let mut batch = Batch::default();
        for gap in gaps.iter().filter(|gap| gap.until > last_at) {
            let clip = if is_on(Defect::DowntimeAppliedTwice) { gap.from } else { last_at };
            let (down_since, until) = (gap.from.max(clip), gap.until.min(now));
            // Nothing of it could be charged, or was kept waiting.
            if self.jobs.get(&key).is_some_and(|job| !job.minds_downtime()) {
                break;
            }
            let _ = self.transact(key, &Input::Restarted { down_since }, until, &mut batch);
        }
        if let Some(job) = self.jobs.get(&key)
            && !is_on(Defect::TimerLostOnRecovery)
        {
            self.timers.set_all(key, job);
        }
        batch
    }

    /// Takes a word to a job that is over.
    pub(crate) fn note(
        &mut self,
        job: Job,
        input: &Input,
        now: Timestamp,
    ) -> Result<Batch, Refusal> {
        let key = self.insert(job);
        let mut batch = Batch::default();
        self.transact(key, input, now, &mut batch)?;
        Ok(batch)
    }

    /// Lets go of a job that cannot go on here, over or not: its attempts are withdrawn.
    pub(crate) fn evict(&mut self, id: &JobId, batch: &mut Batch) {
        let Some(job) = self.forget(id) else { return };
        for (item, live) in job.all_live().filter(|(_, live)| live.phase == Phase::Running) {
            match &mut self.room {
                Placement::Here { slots, .. } => slots.give_back(job.plan.datacenter(item.run)),
                Placement::Fleet(fleet) => {
                    let worker = live.worker.as_deref().unwrap_or_default();
                    fleet.give_back(worker, &AttemptId::new(id.clone(), live.token));
                }
            }
            let worker = live.worker.clone().unwrap_or_default();
            let (attempt, token) = (live.history.attempts, live.token);
            let over = Assignment { job: id.clone(), item, attempt, token, worker };
            batch.effects.push(Effect::Withdraw(over));
        }
    }

    /// The job goes on elsewhere, with what is under way of it.
    pub(crate) fn let_go(&mut self, id: &JobId) {
        let Some(job) = self.forget(id) else { return };
        let Placement::Fleet(fleet) = &mut self.room else { return };
        for (_, live) in job.all_live().filter(|(_, live)| live.phase == Phase::Running) {
            let worker = live.worker.as_deref().unwrap_or_default();
            fleet.give_back(worker, &AttemptId::new(id.clone(), live.token));
            // The lease that it has here is not the attempt's any more.
            fleet.ask(worker);
        }
    }

    /// Jobs that cannot go on, found since this was last asked.
    pub(crate) fn take_parked(&mut self) -> Vec<Parked> {
        std::mem::take(&mut self.parked)
    }

    /// Lets go of a job, and of its entry in the queue.
    pub(crate) fn forget(&mut self, id: &str) -> Option<Box<Job>> {
        let key = self.keys.remove(id)?;
        self.timers.forget(key);
        self.runnable.remove(&key);
        self.queue.forget(key);
        self.jobs.remove(&key)
    }

    /// Until when the job need not be in memory, unless a command comes or its turn does; that may be
    /// the end of time. None: something of it is under way.
    pub(crate) fn idle_until(&self, id: &str) -> Option<Timestamp> {
        let key = *self.keys.get(id)?;
        let job = self.jobs.get(&key)?;
        let busy = job.is_in_flight()
            || (self.is_runnable(id) && self.queued(id).is_none())
            || self.timers.watchdogs.has(key);
        (!busy).then(|| self.timers.next_due_of(key).unwrap_or(Timestamp(u64::MAX)))
    }

    /// What [`Self::idle_until`] says is when there is really something to do.
    pub(crate) fn settle_timers(&mut self, id: &str) {
        if let Some(key) = self.keys.get(id)
            && let Some(job) = self.jobs.get(key)
            && !is_on(Defect::StaleReminderStored)
        {
            self.timers.settle(*key, job);
        }
    }

    /// It waits for nothing but a worker.
    pub(crate) fn is_runnable(&self, id: &str) -> bool {
        self.job(id).is_some_and(|job| job.startable().next().is_some())
    }

    /// Steps in on a step's timeout only `ms` after it, for workers that see to it themselves.
    #[must_use]
    pub(crate) fn with_timeout_lenience_ms(mut self, ms: u64) -> Self {
        self.timers = Timers::new(ms);
        self
    }

    /// Attempts under way.
    pub(crate) fn in_flight(&self) -> usize {
        match &self.room {
            Placement::Here { slots, .. } => slots.in_use(),
            Placement::Fleet(fleet) => fleet.in_flight(),
        }
    }

    /// Some of them wait at the workers, so that no slot waits for the next.
    pub(crate) fn is_ahead(&self) -> bool {
        matches!(&self.room, Placement::Here { slots, .. } if slots.is_ahead())
    }

    /// From now on nothing new starts.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Takes a fact or a command to a job. Refused, it changes nothing, but deadlines that the job has
    /// passed meanwhile are in the batch all the same.
    pub(crate) fn handle(
        &mut self,
        id: &JobId,
        input: &Input,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Result<Result<(), Refusal>, Unknown> {
        let key = *self.keys.get(id).ok_or(Unknown)?;
        // A job's own deadlines stand before whatever comes after them, also when the engine was down.
        for wall in [Timer::JobTimeout, Timer::Deadline, Timer::Grace] {
            let due = self.jobs[&key].timer_due(&wall);
            if due.is_some_and(|due| due < now) {
                let _ = self.transact(key, &Input::Fired(wall), now, batch);
            }
        }
        Ok(self.transact(key, input, now, batch))
    }

    /// When [`Engine::tick`] has something to do.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.timers.next_due()
    }

    /// Fires the soonest timer that is due.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        let Some((key, timer)) = self.timers.pop(now) else { return batch };
        // Core has the last word on whether and when it is due.
        let fired = self.transact(key, &Input::Fired(timer), now, &mut batch);
        if let Err(Refusal::TooEarly(due)) = fired {
            self.timers.set(key, &self.jobs[&key], timer, due);
        }
        batch
    }

    pub(crate) fn transact(
        &mut self,
        key: JobKey,
        input: &Input,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get_mut(&key) else { return Err(Refusal::Ended) };
        let at_a_worker = match input {
            Input::Report { item, .. }
            | Input::Callback { item, .. }
            | Input::Fired(Timer::Attempt(item, _) | Timer::Heartbeat(item, _)) => {
                job.live(*item).is_some_and(|item| item.phase == Phase::Running)
            }
            _ => false,
        };
        let Transition { log, killed } = match advance(job, input, now) {
            // Core emitted what it refuses: going on would store a log that cannot be read back.
            Err(Refusal::Illegal(illegal)) => {
                let id = job.id.clone();
                self.parked.push(Parked { job: id.clone(), why: illegal.to_string() });
                self.evict(&id, batch);
                return Err(Refusal::Illegal(illegal));
            }
            advanced => advanced?,
        };
        let mut started = 0;
        for KilledAttempt { item, attempt, token, worker } in killed {
            match &mut self.room {
                Placement::Here { slots, .. } => slots.give_back(job.plan.datacenter(item.run)),
                Placement::Fleet(fleet) => {
                    fleet.give_back(&worker, &AttemptId::new(job.id.clone(), token));
                }
            }
            started -= 1;
            self.timers.attempt_over(key, item, attempt);
            let over = Assignment { job: job.id.clone(), item, attempt, token, worker };
            if !is_on(Defect::WithdrawalLost) {
                batch.effects.push(Effect::Withdraw(over));
            }
        }
        let ending = match input {
            Input::Report { .. } => Ending::Reported,
            _ if at_a_worker => Ending::Withdrawn,
            _ => Ending::Elsewhere,
        };
        self.book(key, log, ending, batch, started);
        Ok(())
    }

    /// Keeps timers and room in line with what has happened, and notes the effects.
    fn book(
        &mut self,
        key: JobKey,
        log: Vec<RecordedEvent>,
        ending: Ending,
        batch: &mut Batch,
        mut started: i64,
    ) {
        let Some(job) = self.jobs.get(&key) else { return };
        let assignment =
            |item: &ItemId, attempt: &u32, token: &u64, worker: &Arc<str>| Assignment {
                job: job.id.clone(),
                item: *item,
                attempt: *attempt,
                token: *token,
                worker: worker.clone(),
            };
        for record in &log {
            self.timers.after(key, job, &record.event);
            match &record.event {
                Event::AttemptStarted { item, attempt, token, worker, incarnation } => {
                    started += 1;
                    match &mut self.room {
                        Placement::Here { slots, .. } => slots.started(record.at),
                        Placement::Fleet(fleet) => {
                            let needs = Needs::of(&job.plan, *item);
                            let held = AttemptId::new(job.id.clone(), *token);
                            let taken =
                                Held::new(*item, *attempt, incarnation.clone(), &needs, self.mono);
                            fleet.take(worker, held, taken);
                        }
                    }
                    let assignment = assignment(item, attempt, token, worker);
                    batch.effects.push(Effect::Assign(assignment));
                }
                // Its slot is free: the service has it now.
                Event::CallbackAwaited { item, token, worker, .. } => {
                    started -= 1;
                    match &mut self.room {
                        Placement::Here { slots, .. } => {
                            slots.give_back(job.plan.datacenter(item.run));
                        }
                        Placement::Fleet(fleet) => {
                            fleet.give_back(worker, &AttemptId::new(job.id.clone(), *token));
                        }
                    }
                }
                Event::AttemptEnded { item, attempt, token, worker, outcome, .. }
                    if ending != Ending::Elsewhere =>
                {
                    started -= 1;
                    let reported = ending == Ending::Reported;
                    match &mut self.room {
                        Placement::Here { slots, .. } => {
                            slots.give_back(job.plan.datacenter(item.run));
                            if reported {
                                slots.reported(outcome, record.at);
                            }
                        }
                        Placement::Fleet(fleet) => {
                            let given =
                                fleet.give_back(worker, &AttemptId::new(job.id.clone(), *token));
                            if reported {
                                fleet.reported(worker, outcome, self.mono);
                            }
                            if let Some(sign) = sign(outcome) {
                                let ended = Ended {
                                    step: step_of(key, *item),
                                    step_name: &job.plan.step(item.step).name,
                                    item: item.index,
                                    sign,
                                    took_ms: self.mono - given.unwrap_or(self.mono),
                                };
                                if let Some(why) = fleet.note(worker, &ended, self.mono) {
                                    fleet.put_aside(worker, why, self.queue.wanted(), self.mono);
                                }
                            }
                        }
                    }
                    if !reported {
                        let over = assignment(item, attempt, token, worker);
                        batch.effects.push(Effect::Withdraw(over));
                    }
                }
                _ => {}
            }
        }
        batch.push(&job.id, log);
        match self.room {
            Placement::Here { .. } => drop(self.runnable.insert(key)),
            Placement::Fleet(_) => self.queue.update(key, job, started),
        }
    }
}

/// What the end of an attempt means for the worker that was assigned it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// It said so itself, and need not be told.
    Reported,
    /// It is still at it, and is to stop.
    Withdrawn,
    /// It had handed the attempt over to a service long ago.
    Elsewhere,
}

/// What the end of an attempt says of the worker it ended on.
fn sign(outcome: &Outcome) -> Option<HealthSignal> {
    match outcome {
        Outcome::Succeeded { .. } => Some(HealthSignal::Good),
        Outcome::Failed(_) => Some(HealthSignal::Bad),
        Outcome::Lost { .. } if outcome.is_handed_back() => None,
        Outcome::Lost { started: false, .. } => Some(HealthSignal::NotBegun),
        Outcome::Lost { started: true, .. } => None,
    }
}
