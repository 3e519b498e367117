//! One work item of a job: what it has been through, and where it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::account::History;
use crate::event::FailedOn;
use crate::outcome::FailureSummary;
use crate::time::Timestamp;
use crate::verdict::{Cause, StopReason};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoppedItem {
    pub reason: StopReason,
    #[serde(default)]
    pub on: FailedOn,
    pub error: Option<String>,
    pub history: History,
}

/// A step's fallback or compensation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuxiliaryItem {
    Live(WorkItem),
    Succeeded,
    Failed(StoppedItem),
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkItem {
    pub history: History,
    pub phase: Phase,
    /// In this phase; of an attempt that waits for its callback, since it started.
    pub since: Timestamp,
    /// Of its latest attempt; 0 before the first.
    pub token: u64,
    /// Who has that attempt.
    pub worker: Option<Arc<str>>,
    /// Which life of it, where several servers share a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Arc<str>>,
    pub last_failure: Option<FailureSummary>,
    /// What its attempts said last about how far they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Box<Progress>>,
}

/// How far an item is, in the words of its attempts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub attempt: u32,
    pub at: Timestamp,
    pub said: Arc<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Ready,
    Running,
    /// Its attempt goes on at a service, which will say how it ended.
    AwaitingCallback,
    BackingOff {
        cause: Cause,
        due_at: Timestamp,
        /// When the delay budget's clock, which runs in a backoff after a failure, runs out.
        budget_expires_at: Option<Timestamp>,
    },
}

impl WorkItem {
    pub(crate) fn ready(at: Timestamp) -> Self {
        Self {
            history: History::default(),
            phase: Phase::Ready,
            since: at,
            token: 0,
            worker: None,
            incarnation: None,
            last_failure: None,
            progress: None,
        }
    }

    /// An attempt of it is under way, at a worker or at a service.
    pub fn is_under_way(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::AwaitingCallback)
    }

    /// When the attempt under way was last heard of.
    pub(super) fn heard_at(&self) -> Timestamp {
        let progress = self.progress.as_ref();
        let progress = progress.filter(|progress| progress.attempt == self.history.attempts);
        progress.map_or(self.since, |progress| progress.at)
    }

    /// The last thing that went wrong, for a person.
    pub fn last_error(&self) -> Option<String> {
        self.last_failure.as_ref().map(FailureSummary::describe)
    }

    /// How much of a downtime counts on the delay budget's clock: what is backing off after a
    /// failure past its time, and what is queued after one. Executing does not, nor does a backoff
    /// that was not charged.
    pub(crate) fn charged_downtime_ms(&self, down_since: Timestamp, now: Timestamp) -> u64 {
        let from = match self.phase {
            Phase::BackingOff { cause: Cause::Failure, due_at, .. } => due_at,
            Phase::Ready if self.history.first_failure_at.is_some() => self.since,
            _ => return 0,
        };
        now.since(from.max(down_since))
    }
}
