//! The timers of all jobs, soonest first. Core says when a timer is really due; an entry here is only
//! a reminder to ask, so a stale one is dropped and an early one set again.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::{Event, ItemId, Role};
use steadfast_core::job::{Job, Phase, Timer};
use steadfast_core::time::Timestamp;

use crate::engine::JobKey;
use crate::watchdogs::Watchdogs;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_job: BTreeMap<JobKey, Reminders>,
    /// The soonest of each job.
    next: BTreeSet<(Timestamp, JobKey)>,
    pub(crate) watchdogs: Watchdogs,
    /// Workers enforce a step's timeout themselves and report it when the process is gone; the
    /// engine steps in only if they have not so much later. None: they do not, as in a rehearsal, and
    /// the engine is the one who does.
    timeout_lenience_ms: Option<u64>,
    /// The time that watchdogs run on.
    pub(crate) attended: u64,
}

#[derive(Debug, Default)]
struct Reminders {
    by_due: BTreeSet<(Timestamp, Timer)>,
    /// Steps with a reminder already set: each start of an item would set another one otherwise.
    scheduling: BTreeSet<(u32, u32)>,
}

impl Reminders {
    fn next(&self) -> Option<Timestamp> {
        self.by_due.first().map(|(due, _)| *due)
    }
}

impl Timers {
    pub(crate) fn new(timeout_lenience_ms: u64) -> Self {
        Self { timeout_lenience_ms: Some(timeout_lenience_ms), ..Self::default() }
    }

    pub(crate) fn lenience_ms(&self) -> u64 {
        self.timeout_lenience_ms.unwrap_or_default()
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.next.first().map(|(due, _)| *due)
    }

    pub(crate) fn next_due_of(&self, job: JobKey) -> Option<Timestamp> {
        self.by_job.get(&job).and_then(Reminders::next)
    }

    pub(crate) fn set(&mut self, key: JobKey, job: &Job, timer: Timer, due: Timestamp) {
        if let Some(ms) = self.watchdog_ms(job, timer) {
            self.watchdogs.begin(key, timer, self.attended.saturating_add(ms));
            return;
        }
        let reminders = self.by_job.entry(key).or_default();
        if let Timer::Scheduling { run, step } = timer
            && !reminders.scheduling.insert((run, step))
        {
            return;
        }
        let before = reminders.next();
        reminders.by_due.insert((due, timer));
        self.keep_next(key, before);
    }

    /// How long it runs from now, if it is one that runs on the engine's attention.
    fn watchdog_ms(&self, job: &Job, timer: Timer) -> Option<u64> {
        match timer {
            Timer::Attempt(item, _) => {
                let at_a_worker = job.live(item)?.phase == Phase::Running;
                let lenience = self.timeout_lenience_ms.filter(|_| at_a_worker)?;
                Some(job.plan.timeout_ms_of(item)?.saturating_add(lenience))
            }
            Timer::Heartbeat(item, _) => job.plan.step(item.step).heartbeat_ms,
            _ => None,
        }
    }

    /// The soonest one, if it is due.
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<(JobKey, Timer)> {
        let &(due, job) = self.next.first()?;
        if due > now {
            return None;
        }
        let reminders = self.by_job.get_mut(&job)?;
        let (_, timer) = reminders.by_due.pop_first()?;
        if let Timer::Scheduling { run, step } = timer {
            reminders.scheduling.remove(&(run, step));
        }
        self.keep_next(job, Some(due));
        Some((job, timer))
    }

    /// Brings the soonest reminder of a job in line with its state: what it was set for may be over, or later. When a job sleeps, its row says
    /// when it must be back, and a moment at which there is nothing to do would be taken for the last.
    pub(crate) fn settle(&mut self, key: JobKey, job: &Job) {
        while let Some(&(due, timer)) = self.by_job.get(&key).and_then(|all| all.by_due.first()) {
            let real = job.timer_due(&timer);
            if real.is_some_and(|real| real <= due) {
                return;
            }
            if let Some(reminders) = self.by_job.get_mut(&key) {
                reminders.by_due.pop_first();
                if let Timer::Scheduling { run, step } = timer {
                    reminders.scheduling.remove(&(run, step));
                }
            }
            self.keep_next(key, Some(due));
            if let Some(real) = real {
                self.set(key, job, timer, real);
            }
        }
    }

    fn keep_next(&mut self, job: JobKey, before: Option<Timestamp>) {
        let now = self.next_due_of(job);
        if now != before {
            if let Some(before) = before {
                self.next.remove(&(before, job));
            }
            if let Some(now) = now {
                self.next.insert((now, job));
            }
        }
    }

    pub(crate) fn forget(&mut self, job: JobKey) {
        if let Some(due) = self.next_due_of(job) {
            self.next.remove(&(due, job));
        }
        self.by_job.remove(&job);
        self.watchdogs.forget(job);
    }

    pub(crate) fn set_all(&mut self, key: JobKey, job: &Job) {
        for (due, timer) in job.timers() {
            self.set(key, job, timer, due);
        }
    }

    fn remind(&mut self, key: JobKey, job: &Job, timer: Timer) {
        if let Some(due) = job.timer_due(&timer) {
            self.set(key, job, timer, due);
        }
    }

    /// It has ended, or was cut off: a watchdog that is left would keep its job in memory, and its row would say that it must be there.
    pub(crate) fn attempt_over(&mut self, key: JobKey, item: ItemId, attempt: u32) {
        self.watchdogs.end(key, Timer::Attempt(item, attempt));
        self.watchdogs.end(key, Timer::Heartbeat(item, attempt));
    }

    /// The timers that an event calls for.
    pub(crate) fn after(&mut self, key: JobKey, job: &Job, event: &Event) {
        let mut set = |timer: Timer| self.remind(key, job, timer);
        match *event {
            Event::JobAccepted(_) => set(Timer::Begin),
            Event::JobStarted => {
                set(Timer::JobTimeout);
                set(Timer::Deadline);
            }
            Event::MinDatacentersReached => set(Timer::Grace),
            Event::AttemptStarted { item, attempt, .. } => set(Timer::Attempt(item, attempt)),
            Event::CallbackAwaited { item, attempt, .. } => {
                // What the service takes is wall-clock time: it goes on whatever becomes of the engine.
                self.watchdogs.end(key, Timer::Attempt(item, attempt));
                self.remind(key, job, Timer::Attempt(item, attempt));
                self.remind(key, job, Timer::Heartbeat(item, attempt));
            }
            Event::AttemptProgressed { item, attempt, .. } => {
                self.watchdogs.end(key, Timer::Heartbeat(item, attempt));
                self.remind(key, job, Timer::Heartbeat(item, attempt));
            }
            Event::AttemptEnded { item, attempt, .. } => self.attempt_over(key, item, attempt),
            Event::RetryScheduled { item, delay_ms: 1.., due_at, .. } => {
                let early = is_on(Defect::RetryDueAtOnce);
                let due_at = if early { Timestamp(due_at.0 / 2) } else { due_at };
                self.set(key, job, Timer::Retry(item), due_at);
                // Its place is free for those that have not started.
                self.remind(key, job, Timer::Scheduling { run: item.run, step: item.step });
            }
            Event::RetryScheduled { item, .. } | Event::RetryDue { item } => {
                set(Timer::Scheduling { run: item.run, step: item.step });
            }
            Event::StepReady { run, step, .. } | Event::StepFailing { run, step, .. } => {
                set(Timer::Scheduling { run, step });
            }
            Event::ItemSucceeded { item, .. } | Event::ItemFailed { item, .. }
                if item.role != Role::Compensation =>
            {
                // Its place is free: what waited for `parallelism` now waits for a worker.
                set(Timer::Scheduling { run: item.run, step: item.step });
            }
            // Compensations move on to another step.
            Event::RunFailing { .. }
            | Event::ItemSucceeded { .. }
            | Event::ItemFailed { .. }
            | Event::JobResumed { .. }
            | Event::EngineRestarted { .. } => self.set_all(key, job),
            _ => {}
        }
    }
}
