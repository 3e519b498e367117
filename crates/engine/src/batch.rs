//! What one input came to: events to make durable, and what follows once they are.

use std::sync::Arc;

use steadfast_core::event::{AttemptId, ItemId, JobId, RecordedEvent};

/// Events of one transaction, and the effects that wait for it.
#[derive(Debug, Default)]
#[must_use = "events that are not committed are lost, and their effects with them"]
pub struct Batch {
    pub(crate) records: Vec<(JobId, RecordedEvent)>,
    pub(crate) effects: Vec<Effect>,
}

/// Where batches become durable: all of one, or nothing of it.
pub trait Log {
    type Error;

    fn append(&mut self, records: Vec<(JobId, RecordedEvent)>) -> Result<(), Self::Error>;
}

/// Something that happens outside, after its events are durable.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
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
    /// Takes what came after into the same transaction.
    pub fn join(&mut self, later: Self) {
        self.records.extend(later.records);
        self.effects.extend(later.effects);
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.effects.is_empty()
    }

    /// Makes the events durable and gives out the effects.
    pub fn commit<L: Log>(self, log: &mut L) -> Result<Vec<Effect>, L::Error> {
        if !self.records.is_empty() {
            log.append(self.records)?;
        }
        Ok(self.effects)
    }
}
