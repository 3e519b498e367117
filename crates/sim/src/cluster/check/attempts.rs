//! What workers run, held against what is durable.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_api::WorkerReport;
use steadfast_core::event::{AttemptId, Event, ItemId, JobId, RecordedEvent};
use steadfast_core::job::{Job, Phase};

use super::{CANCEL, Checked, FENCE, violated};
use crate::cluster::messages::AttemptName;
use crate::cluster::server::{LEASE_MS, TOLERANCE_MS};
use crate::cluster::worker::KILL_GRACE_MS;

/// What a worker whose lease is over needs to end what it runs, and what clocks may differ in by then.
const OVERLAP_MS: u64 = 300;
/// In which what is not wanted any more has been stopped, by a withdrawal or by the end of the worker's lease.
const STOPPED_WITHIN_MS: u64 = LEASE_MS + TOLERANCE_MS + KILL_GRACE_MS + 4000;

#[derive(Default)]
pub(crate) struct Attempts {
    /// Which worker has begun it, ever.
    begun: BTreeMap<AttemptId, usize>,
    /// Since when two workers are at one item.
    overlapping: BTreeMap<(JobId, ItemId), u64>,
    /// Since when a worker runs what its job does not want any more.
    unwanted: BTreeMap<(usize, AttemptId), u64>,
    /// What was under way then, and is not stored any more, overlaps with what is.
    is_restored: bool,
    /// What the logs had then: words of before may still reach a worker that stands still.
    may_begin_again: BTreeSet<AttemptId>,
}

impl Attempts {
    pub(crate) fn began(&mut self, worker: usize, name: &AttemptName) -> Checked {
        let before = self.begun.insert(name.id.clone(), worker);
        if let Some(before) = before
            && !self.may_begin_again.remove(&name.id)
        {
            return violated(
                FENCE,
                format!("{} began on w{before}, and again on w{worker}", name.id),
            );
        }
        Ok(())
    }

    /// What the logs have may be begun again, as how it ended may be lost. What they have not was begun in vain, and nothing else may
    /// have its token.
    pub(super) fn restored(&mut self, logs: &[(JobId, Vec<RecordedEvent>)]) {
        for (job, log) in logs {
            for record in log {
                if let Event::AttemptStarted { token, .. } = record.event {
                    let id = AttemptId::new(job.clone(), token);
                    self.begun.remove(&id);
                    self.may_begin_again.insert(id);
                }
            }
        }
        self.is_restored = true;
        self.overlapping.clear();
        self.unwanted.clear();
    }

    /// `running`: of all workers that are awake. `is_reported`: the log has an end of the attempt that was not the loss of its worker. Of
    /// such a one the worker's part is stopped within its grace, which keeps nobody from going on.
    pub(crate) fn look<'a>(
        &mut self,
        now: u64,
        running: &[(usize, &AttemptName)],
        state: impl Fn(&str) -> Option<&'a Job>,
        is_reported: impl Fn(&AttemptId) -> bool,
    ) -> Checked {
        let mut by_item: BTreeMap<(JobId, ItemId), Vec<(usize, u64)>> = BTreeMap::new();
        for (worker, name) in running {
            let key = (name.id.job.clone(), name.item);
            by_item.entry(key).or_default().push((*worker, name.id.token));
        }
        for ((job, _), all) in by_item.iter_mut().filter(|(_, all)| all.len() > 1) {
            all.retain(|(_, token)| !is_reported(&AttemptId::new(job.clone(), *token)));
        }
        self.overlapping.retain(|key, _| by_item.get(key).is_some_and(|all| all.len() > 1));
        for (key, all) in by_item.into_iter().filter(|(_, all)| all.len() > 1) {
            let since = *self.overlapping.entry(key.clone()).or_insert(now);
            if now - since > OVERLAP_MS && !self.is_restored {
                let detail = format!("{key:?} runs at {all:?} since {} ms", now - since);
                return violated(FENCE, detail);
            }
        }
        let is_wanted = |name: &AttemptName| {
            let job = state(&name.id.job);
            let live = job.and_then(|job| job.live(name.item));
            live.is_some_and(|live| live.token == name.id.token && live.phase == Phase::Running)
        };
        let unwanted: BTreeMap<_, _> = running
            .iter()
            .filter(|(_, name)| !is_wanted(name))
            .map(|(worker, name)| {
                let key = (*worker, name.id.clone());
                let since = self.unwanted.get(&key).copied().unwrap_or(now);
                (key, since)
            })
            .collect();
        self.unwanted = unwanted;
        let overdue = self.unwanted.iter().find(|(_, since)| now - **since > STOPPED_WITHIN_MS);
        if let Some(((worker, id), since)) = overdue {
            let detail = format!("w{worker} runs {id}, unwanted since {} ms", now - since);
            return violated(CANCEL, detail);
        }
        Ok(())
    }

    /// A worker was told that its report counts: then that is what the log says of the attempt.
    pub(crate) fn judged(
        name: &AttemptName,
        report: &WorkerReport,
        log: &[RecordedEvent],
    ) -> Checked {
        let says_so = log.iter().any(|record| match (&record.event, report) {
            (Event::AttemptEnded { token, outcome, .. }, WorkerReport::Ended(said)) => {
                *token == name.id.token && outcome == said
            }
            (Event::CallbackAwaited { token, .. }, WorkerReport::AwaitsCallback) => {
                *token == name.id.token
            }
            _ => false,
        });
        if says_so {
            return Ok(());
        }
        violated(
            FENCE,
            format!("{} was said to count with {report:?}, and the log has no such end", name.id),
        )
    }
}
