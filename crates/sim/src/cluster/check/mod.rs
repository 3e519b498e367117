//! Whether what must hold holds, after every event. Nothing here knows the scenario, which fault is on, or how anything is decided: it
//! sees what became durable, what workers ran, and what was answered.

mod attempts;
mod clients;
mod ledger;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use steadfast_core::apply::fold;
use steadfast_core::event::{Event, FailedOn, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::verdict::Cause;
use steadfast_engine::Controller;

use super::counts::{CAUSE, Counts, EVENT, FAULT, ON, REASON, SEEN, STATE, STOP};
use super::store::{Committed, Observed};
pub(crate) use attempts::Attempts;
pub(crate) use clients::Promises;
use ledger::Ledger;

/// What does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// By its number in the list of invariants, and in short.
    pub invariant: &'static str,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

pub(crate) type Checked = Result<(), Violation>;

pub(crate) fn violated<T>(invariant: &'static str, detail: String) -> Result<T, Violation> {
    Err(Violation { invariant, detail })
}

pub(crate) const REPLAY: &str = "1 replay equals live";
pub(crate) const DURABLE: &str = "2 what was acknowledged is in the log";
pub(crate) const SEQUENCE: &str = "3 sequences have no gaps, epochs never fall";
pub(crate) const ABSORBING: &str = "4 ends are final";
pub(crate) const NO_START_AFTER_END: &str = "5 nothing starts after its end";
pub(crate) const CHARGES: &str = "6 each counter moves by its own cause";
pub(crate) const BUDGET: &str = "7 retries are within the budget and add up";
pub(crate) const FENCE: &str = "8 one lease per item, a report counts once, with its token";
pub(crate) const EPOCH: &str = "9 no write of an owner that was taken over";
pub(crate) const PROGRESS: &str = "10 what is open has a reason to go on";
pub(crate) const DUE: &str = "11 nothing starts before it is due";
pub(crate) const NEEDS: &str = "12 a step starts after what it needs";
pub(crate) const KEYS: &str = "13 a key is one job's";
pub(crate) const BEST_EFFORT: &str = "14 enough datacenters, late results change nothing";
pub(crate) const LIMITS: &str = "15 limits hold";
pub(crate) const CANCEL: &str = "16 what was cancelled stops";
pub(crate) const LIVENESS: &str = "17 everything ends once faults have stopped";

/// Of one job.
struct Watched {
    /// The fold of what is durable.
    state: Option<Job>,
    ledger: Ledger,
}

#[derive(Default)]
pub(crate) struct Checker {
    jobs: BTreeMap<JobId, Watched>,
    /// By owner: the highest that was ever taken.
    epochs: BTreeMap<Arc<str>, u64>,
    /// Who has each shard.
    shards: BTreeMap<u16, Arc<str>>,
    pub(crate) attempts: Attempts,
    pub(crate) clients: Promises,
    pub(crate) counts: Counts,
}

impl Checker {
    /// What the store has done. `shard_of`: of a job, if there are shards.
    pub(crate) fn observed(
        &mut self,
        observed: Observed,
        shard_of: impl Fn(&str) -> Option<u16>,
    ) -> Checked {
        match observed {
            Observed::Fault(name) => self.counts.add(FAULT, name),
            Observed::Epoch { owner, epoch } => {
                let before = self.epochs.insert(owner.clone(), epoch);
                if before.is_some_and(|before| before >= epoch) {
                    return violated(
                        SEQUENCE,
                        format!("{owner} is in epoch {epoch} after {before:?}"),
                    );
                }
            }
            Observed::Shard { shard, owner } => drop(self.shards.insert(shard, owner)),
            Observed::Committed(committed) => {
                let shard = shard_of(&committed.job);
                self.may_write(&committed, shard)?;
                self.committed(&committed)?;
            }
        }
        Ok(())
    }

    fn may_write(&self, committed: &Committed, shard: Option<u16>) -> Checked {
        let Committed { owner, job, .. } = committed;
        let current = self.epochs.get(&owner.id).copied();
        if current != Some(owner.epoch) {
            let detail =
                format!("{job}: {} wrote in epoch {}, it is in {current:?}", owner.id, owner.epoch);
            return violated(EPOCH, detail);
        }
        let whose = shard.and_then(|shard| self.shards.get(&shard));
        if shard.is_some() && whose != Some(&owner.id) {
            let detail = format!("{job}: {} wrote, and {whose:?} has its shard", owner.id);
            return violated(EPOCH, detail);
        }
        Ok(())
    }

    fn committed(&mut self, committed: &Committed) -> Checked {
        let Committed { job, records, key, snapshot, .. } = committed;
        if let Some(key) = key {
            self.clients.key_written(&key.key, job)?;
        }
        for record in records {
            self.count(record);
            self.record(job, record)?;
        }
        let Some(Watched { state: Some(state), .. }) = self.jobs.get(job) else {
            return violated(SEQUENCE, format!("{job} has a write and no first event"));
        };
        if let Some(snapshot) = snapshot {
            let stored: Result<Job<serde::de::IgnoredAny>, _> =
                serde_json::from_slice(&snapshot.state);
            let stored = stored.map(|stored| stored.with_plan(state.plan.clone()));
            if stored.as_ref().ok() != Some(state) {
                let detail = format!(
                    "{job}: the stored state at {} is not the fold of its log",
                    snapshot.seq
                );
                return violated(REPLAY, detail);
            }
        }
        if let Some(wake_at) = committed.wake_at
            && let Some((due, timer)) = state.timers().into_iter().min()
            && due < wake_at
        {
            let detail =
                format!("{job} sleeps until {}, and {timer:?} is due at {}", wake_at.0, due.0);
            return violated(PROGRESS, detail);
        }
        goes_on(state)
    }

    fn record(&mut self, job: &JobId, record: &RecordedEvent) -> Checked {
        if let Event::JobAccepted(accepted) = &record.event {
            if self.jobs.contains_key(job) {
                return violated(ABSORBING, format!("{job} was accepted twice"));
            }
            let ledger = Ledger::new(accepted, record);
            self.jobs.insert(job.clone(), Watched { state: None, ledger });
        }
        let Some(watched) = self.jobs.get_mut(job) else {
            return violated(SEQUENCE, format!("{job} begins with {}", record.event.name()));
        };
        if let Err(why) = fold(&mut watched.state, record) {
            return violated(REPLAY, format!("{job}: its log cannot be read: {why}"));
        }
        watched.ledger.take(record).map_err(|violation| Violation {
            detail: format!(
                "{job} event {} {}: {}",
                record.seq,
                record.event.name(),
                violation.detail
            ),
            ..violation
        })
    }

    fn count(&mut self, record: &RecordedEvent) {
        self.counts.add(EVENT, record.event.name());
        match &record.event {
            Event::JobEnded { state, reason, .. } => {
                self.counts.add(STATE, state.name());
                self.counts.add(REASON, reason.name());
            }
            Event::ItemFailed { reason, on, .. } => {
                self.counts.add(STOP, reason.name());
                self.counts.add(
                    ON,
                    match on {
                        FailedOn::Outcome => "outcome",
                        FailedOn::Restart => "restart",
                        FailedOn::Resume => "resume",
                        FailedOn::NoWorker => "no worker",
                    },
                );
            }
            Event::RetryScheduled { cause, .. } => self.counts.add(
                CAUSE,
                match cause {
                    Cause::Failure => "failure",
                    Cause::Preemption => "preemption",
                    Cause::Deferral => "deferral",
                },
            ),
            _ => {}
        }
    }

    pub(crate) fn seen(&mut self, name: &str) {
        self.counts.add(SEEN, name);
    }

    pub(crate) fn fault(&mut self, name: &str) {
        self.counts.add(FAULT, name);
    }

    /// What a server has in memory is what is stored, whenever it is not ahead.
    pub(crate) fn live(&self, server: usize, controller: &Controller, id: &JobId) -> Checked {
        let (Some(live), Some(stored)) = (controller.job(id), self.state(id)) else {
            return Ok(());
        };
        if live.seq == stored.seq && live != stored {
            let (seq, live) = (stored.seq, live.clone().with_plan(()));
            let stored = stored.clone().with_plan(());
            let detail = format!(
                "{id} on server {server} at event {seq}:\n live {live:?}\n log  {stored:?}"
            );
            return violated(REPLAY, detail);
        }
        Ok(())
    }

    /// `has`: the job is this server's. Another one may have decided what it cannot write any more.
    pub(crate) fn all_live(
        &self,
        server: usize,
        controller: &Controller,
        has: impl Fn(&str) -> bool,
    ) -> Checked {
        let mut its = self.jobs.keys().filter(|id| has(id));
        its.try_for_each(|id| self.live(server, controller, id))
    }

    pub(crate) fn state(&self, job: &str) -> Option<&Job> {
        self.jobs.get(job)?.state.as_ref()
    }

    pub(crate) fn open_jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values().filter_map(|watched| watched.state.as_ref()).filter(|job| !job.is_over())
    }

    /// The store was put back: what is there now is what there is.
    pub(crate) fn restored(&mut self, logs: Vec<(JobId, Vec<RecordedEvent>)>) -> Checked {
        self.jobs.clear();
        self.shards.clear();
        // An epoch is at least the second it begins in: none is repeated, unless the clock was set back too.
        self.epochs.clear();
        self.clients.restored();
        self.attempts.restored(&logs);
        for (job, log) in logs {
            for record in &log {
                self.record(&job, record)?;
            }
        }
        Ok(())
    }

    pub(crate) fn shard_is(&mut self, shard: u16, owner: Arc<str>) {
        self.shards.insert(shard, owner);
    }
}

/// Something of it is under way, can start, waits for a moment, or for a person.
fn goes_on(job: &Job) -> Checked {
    let has_reason = job.is_over()
        || job.is_in_flight()
        || job.paused_at.is_some()
        || job.startable().next().is_some()
        || !job.timers().is_empty();
    if has_reason {
        return Ok(());
    }
    violated(PROGRESS, format!("{} is open, and nothing will ever happen to it", job.id))
}
