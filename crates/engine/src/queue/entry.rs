//! A job that waits for a worker and is not in memory: a few dozen bytes, and what is stored to have them again.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use steadfast_core::event::JobId;
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;

use super::Rank;
use super::classes::ClassId;
use crate::engine::JobKey;
use crate::fleet::Needs;

/// A job with more steps that wait at once stays in memory: an entry for it would not be small.
const STEPS_MOST: usize = 16;

/// What is stored of a job that waits for a worker with nothing under way: its priority, and by run and step what it
/// wants of one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Queued(i32, Vec<(u32, u32, Needs)>);

impl Queued {
    /// None: something of it is under way, it waits for no worker, or for more than an entry has room for.
    pub(crate) fn of(job: &Job) -> Option<Self> {
        if job.is_in_flight() {
            return None;
        }
        let mut steps = Vec::new();
        for item in job.startable() {
            if steps.len() == STEPS_MOST {
                return None;
            }
            steps.push((item.run, item.step, Needs::of(&job.plan, item)));
        }
        (!steps.is_empty()).then(|| Self(job.plan.priority(), steps))
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).expect("numbers and strings are JSON")
    }

    /// None: it is not one that this program has written.
    pub(crate) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) job: JobId,
    since: Timestamp,
    priority: i32,
    pub(super) steps: Box<[(u32, u32, ClassId)]>,
}

impl Entry {
    pub(super) fn new(
        job: JobId,
        since: Timestamp,
        queued: &Queued,
        mut hold: impl FnMut(Needs) -> ClassId,
    ) -> Self {
        let Queued(priority, steps) = queued;
        let steps = steps.iter().map(|(run, step, needs)| (*run, *step, hold(needs.clone())));
        Self { job, since, priority: *priority, steps: steps.collect() }
    }

    pub(super) fn rank(&self, key: JobKey) -> Rank {
        (Reverse(self.priority), 0, self.since, key)
    }

    pub(super) fn classes(&self) -> BTreeSet<ClassId> {
        self.steps.iter().map(|(_, _, class)| *class).collect()
    }
}
