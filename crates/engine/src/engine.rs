//! Jobs under way, and the loop that takes them on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_core::decide::{Input, Refusal, accept, advance};
use steadfast_core::event::{Accepted, Event, ItemId, JobId, Recorded};
use steadfast_core::job::{Job, Timer};
use steadfast_core::time::Timestamp;

use crate::batch::{Assignment, Batch, Effect};
use crate::slots::Slots;
use crate::timers::Timers;

/// Starts that one call of [`Engine::dispatch`] makes at most, so that a large fan-out cannot keep
/// reports and timers waiting behind it, nor grow one batch without bound.
const STARTS_PER_BATCH: usize = 1024;

#[derive(Debug)]
pub struct Engine {
    jobs: BTreeMap<JobId, Running>,
    timers: Timers,
    slots: Slots,
    /// Jobs that may have something to start.
    hungry: BTreeSet<JobId>,
    worker: Arc<str>,
}

#[derive(Debug)]
struct Running {
    job: Job,
    assigned: BTreeMap<ItemId, Assignment>,
}

/// No such job is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub JobId);

impl Engine {
    pub fn new(slots: Slots, worker: &str) -> Self {
        Self {
            jobs: BTreeMap::new(),
            timers: Timers::default(),
            slots,
            hungry: BTreeSet::new(),
            worker: worker.into(),
        }
    }

    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id).map(|running| &running.job)
    }

    /// Takes a job in. Its id is new; that is for the one who made it to see to.
    pub fn submit(&mut self, accepted: Accepted, now: Timestamp) -> Batch {
        let (job, log) = accept(accepted, now);
        let id = job.id.clone();
        self.jobs.insert(id.clone(), Running { job, assigned: BTreeMap::new() });
        let mut batch = Batch::default();
        self.book(&id, log, false, &mut batch);
        batch
    }

    /// Takes a fact or a wish to a job. Refused, it changes nothing.
    pub fn handle(
        &mut self,
        id: &JobId,
        input: &Input,
        now: Timestamp,
    ) -> Result<(Batch, Result<(), Refusal>), Unknown> {
        if !self.jobs.contains_key(id) {
            return Err(Unknown(id.clone()));
        }
        let mut batch = Batch::default();
        // A job's own walls stand before whatever comes after them, also when the engine was down.
        for wall in [Timer::JobTimeout, Timer::Deadline, Timer::Grace] {
            let due = self.jobs[id].job.timer_due(&wall);
            if due.is_some_and(|due| due < now) {
                let _ = self.transact(id, &Input::Fired(wall), now, &mut batch);
            }
        }
        let answer = self.transact(id, input, now, &mut batch);
        Ok((batch, answer))
    }

    /// When [`Engine::tick`] has something to do.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.timers.next_due()
    }

    /// Fires the soonest timer that is due.
    pub fn tick(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        let Some((id, timer)) = self.timers.pop(now) else { return batch };
        let Some(running) = self.jobs.get(&id) else { return batch };
        match running.job.timer_due(&timer) {
            Some(due) if due <= now => {
                // Core asked for it at this time, so it has nothing to refuse.
                let _ = self.transact(&id, &Input::Fired(timer), now, &mut batch);
            }
            Some(later) => self.timers.set(&id, timer, later),
            None => {}
        }
        batch
    }

    /// Starts what may start and has room, up to a batch full.
    pub fn dispatch(&mut self, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        let hungry: Vec<JobId> = self.hungry.iter().cloned().collect();
        for id in hungry {
            self.dispatch_job(&id, now, &mut batch);
            if batch.effects.len() >= STARTS_PER_BATCH {
                break;
            }
        }
        batch
    }

    fn dispatch_job(&mut self, id: &JobId, now: Timestamp, batch: &mut Batch) {
        let Some(runs) = self.jobs.get(id).map(|running| running.job.runs.len() as u32) else {
            self.hungry.remove(id);
            return;
        };
        let mut waits_for_room = false;
        for run in 0..runs {
            while batch.effects.len() < STARTS_PER_BATCH {
                let job = &self.jobs[id].job;
                let Some(item) = job.next_startable(run) else { break };
                if !self.slots.take(job.plan.datacenter(run)) {
                    waits_for_room = true;
                    break;
                }
                let input = Input::Start { item, worker: self.worker.clone() };
                // Core named the item as startable, so it has nothing to refuse.
                let _ = self.transact(id, &input, now, batch);
            }
        }
        if !waits_for_room && batch.effects.len() < STARTS_PER_BATCH {
            self.hungry.remove(id);
        }
    }

    /// Tells all jobs that the engine is back. Their timers are set as the state has them.
    pub fn restart(&mut self, down_since: Timestamp, now: Timestamp) -> Batch {
        let mut batch = Batch::default();
        self.timers = Timers::default();
        for id in self.jobs.keys().cloned().collect::<Vec<_>>() {
            let input = Input::Restarted { down_since };
            let _ = self.transact(&id, &input, now, &mut batch);
        }
        batch
    }

    fn transact(
        &mut self,
        id: &JobId,
        input: &Input,
        now: Timestamp,
        batch: &mut Batch,
    ) -> Result<(), Refusal> {
        let Some(running) = self.jobs.get_mut(id) else { return Err(Refusal::Ended) };
        let log = advance(&mut running.job, input, now)?;
        let reported = matches!(input, Input::Report { .. });
        self.book(id, log, reported, batch);
        Ok(())
    }

    /// Keeps timers, slots and assignments in line with what has happened, and notes the effects.
    /// `reported`: the worker itself said that the attempt is over, and need not be told.
    fn book(&mut self, id: &JobId, log: Vec<Recorded>, reported: bool, batch: &mut Batch) {
        let Some(running) = self.jobs.get_mut(id) else { return };
        let Running { job, assigned } = running;
        let mut cut = false;
        for record in log {
            self.timers.after(job, &record.event);
            match &record.event {
                Event::AttemptStarted { item, attempt, token, worker } => {
                    let assignment = Assignment {
                        job: id.clone(),
                        item: *item,
                        attempt: *attempt,
                        token: *token,
                        worker: worker.clone(),
                    };
                    assigned.insert(*item, assignment.clone());
                    batch.effects.push(Effect::Assign(assignment));
                }
                Event::AttemptEnded { item, .. } => {
                    if let Some(over) = assigned.remove(item) {
                        self.slots.give_back(job.plan.datacenter(item.run));
                        if !reported {
                            batch.effects.push(Effect::Withdraw(over));
                        }
                    }
                }
                Event::RunFailing { .. } | Event::RunEnded { .. } => cut = true,
                _ => {}
            }
            batch.records.push((id.clone(), record));
        }
        if cut {
            assigned.retain(|item, assignment| {
                let runs = job.live(*item).is_some_and(|live| live.token == assignment.token);
                if !runs {
                    self.slots.give_back(job.plan.datacenter(item.run));
                    batch.effects.push(Effect::Withdraw(assignment.clone()));
                }
                runs
            });
        }
        if job.is_over() {
            self.hungry.remove(id);
        } else {
            self.hungry.insert(id.clone());
        }
    }
}
