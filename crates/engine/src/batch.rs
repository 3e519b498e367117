//! What one input came to: events to make durable, and what follows once they are.

use std::sync::Arc;

use steadfast_core::event::{AttemptId, ItemId, JobId, RecordedEvent};

use crate::hash::HashSet;

/// Events of one transaction, and the effects that wait for it.
#[derive(Debug, Default)]
#[must_use = "events that are not committed are lost, and their effects with them"]
pub(crate) struct Batch {
    /// By job, in the order in which they were decided; a job may be there more than once.
    pub(crate) records: Vec<(JobId, Vec<RecordedEvent>)>,
    pub(crate) effects: Vec<Effect>,
}

/// Something that happens outside, after its events are durable.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// Run this attempt.
    Assign(Assignment),
    /// Stop it; whatever it still says is stale.
    Withdraw(Assignment),
}

/// One attempt at a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Assignment {
    pub job: JobId,
    pub item: ItemId,
    pub attempt: u32,
    /// The fence: a report counts only with the current one.
    pub token: u64,
    pub worker: Arc<str>,
}

impl Assignment {
    pub fn id(&self) -> AttemptId {
        AttemptId::new(self.job.clone(), self.token)
    }
}

impl Batch {
    pub(crate) fn push(&mut self, job: &JobId, log: Vec<RecordedEvent>) {
        if !log.is_empty() {
            self.records.push((job.clone(), log));
        }
    }

    /// Takes what came after into the same transaction.
    pub(crate) fn join(&mut self, later: Self) {
        append(&mut self.records, later.records);
        append(&mut self.effects, later.effects);
    }

    /// Whether it is about so many. Only when there is enough for as many are they told apart.
    pub(crate) fn has_jobs(&self, many: usize) -> bool {
        self.records.len() >= many
            && self.records.iter().map(|(job, _)| job).collect::<HashSet<_>>().len() >= many
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.effects.is_empty()
    }
}

/// Most have nothing before them.
fn append<T>(all: &mut Vec<T>, later: Vec<T>) {
    if all.is_empty() {
        *all = later;
    } else {
        all.extend(later);
    }
}
