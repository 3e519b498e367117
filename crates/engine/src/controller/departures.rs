//! Jobs that have left memory while stored jobs were being read.
//!
//! What the loader read of a job before it left may arrive afterwards: with attempts under way that have ended since, which would be
//! assigned again.

use std::collections::VecDeque;

use steadfast_core::event::JobId;

use crate::hash::HashMap;

/// So many are remembered before the loader is asked how far it is.
const REMEMBERED: usize = 1024;

/// Which jobs have left memory, numbered from 1. A read that began after departure `n` sees what was durable by then.
#[derive(Debug, Default)]
pub(super) struct Departures {
    last: u64,
    by_job: HashMap<JobId, u64>,
    in_order: VecDeque<(u64, JobId)>,
}

impl Departures {
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// What is read from now on can be told from what was read before.
    pub(super) const fn next(&mut self) {
        self.last += 1;
    }

    /// All that was decided about the job is durable, or is another owner's by now.
    pub(super) fn left(&mut self, job: &JobId) {
        self.next();
        self.by_job.insert(job.clone(), self.last);
        self.in_order.push_back((self.last, job.clone()));
    }

    /// What was read of the job, from after departure `as_of` on, was read before it left.
    pub(super) fn is_stale(&self, job: &JobId, as_of: u64) -> bool {
        self.by_job.get(job).is_some_and(|left| as_of < *left)
    }

    /// All that arrives from now on was read after departure `as_of`: jobs are read one after the other, and arrive in that order.
    pub(super) fn read_up_to(&mut self, as_of: u64) {
        while let Some((left, _)) = self.in_order.front()
            && *left <= as_of
            && let Some((left, job)) = self.in_order.pop_front()
        {
            if self.by_job.get(&job) == Some(&left) {
                self.by_job.remove(&job);
            }
        }
    }

    pub(super) fn are_many(&self) -> bool {
        self.in_order.len() >= REMEMBERED
    }
}
