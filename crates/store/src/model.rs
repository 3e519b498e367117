//! What goes into a store and comes out of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::event::{JobId, JobState, RecordedEvent};
use steadfast_core::time::Timestamp;

use crate::{Reader, StoreError};

/// One decision of one job: its events, and what the job is after them.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub job: JobId,
    /// Of the last event there is; 0: the job is new.
    pub expected_seq: u64,
    /// May be empty, if the job exists.
    pub records: Vec<RecordedEvent>,
    pub row: Row,
    /// The state after the last record, or after `expected_seq` if there is none.
    pub snapshot: Option<Vec<u8>>,
    /// Of a new job only.
    pub key: Option<IdempotencyKey>,
    /// Of an open job, if [`Journal::keeps_readiness`](crate::Journal::keeps_readiness): the JSON of what of it has not ended,
    /// which is [`open_items`](steadfast_core::readiness::open_items).
    pub readiness: Option<String>,
}

/// What lists show and a controller needs. Of a job that exists, a write changes `state`, `finished_at`,
/// `wake_at`, `queued` and `over`; the rest stays what it was when the job was new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: JobId,
    pub name: String,
    pub state: JobState,
    pub submitted_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// When the job must be in its owner's memory: at the beginning of time while something of it is under way,
    /// at the end of time if it has nothing to do by itself. None: it is over, or stuck.
    pub wake_at: Option<Timestamp>,
    /// What its controller needs to know to queue it for a worker without reading it, in the controller's words.
    /// None: it waits for no worker, or something of it is under way.
    pub queued: Option<String>,
    /// Nothing of it runs or will run.
    pub over: bool,
    pub labels: BTreeMap<String, String>,
    pub retried_from: Option<JobId>,
    /// Begun by `run`, with a job file of its own: `resume` goes on with it, no server does.
    pub local: bool,
}

/// A job that waits for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueEntry {
    pub submitted_at: Timestamp,
    pub job: JobId,
    /// [`Row::queued`].
    pub queued: String,
}

/// The same key with the same body is the same submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyKey {
    pub key: String,
    /// Of the body.
    pub digest: String,
}

/// Why a write was not taken. The others of its group were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the job's log ends at event {found}, the write expected {expected}")]
    Conflict { expected: u64, found: u64 },
    /// Of every write of the group.
    #[error(
        "{owner} has been taken over: it is in epoch {current} now, the write is of epoch {epoch}"
    )]
    Fenced { owner: Arc<str>, epoch: u64, current: u64 },
    #[error("the job belongs to {owner}")]
    NotOurs { owner: String },
    #[error("the idempotency key belongs to job {job}")]
    KeyTaken { job: JobId, same_body: bool },
}

impl Refused {
    /// The store has less of the job than it has taken: it was put back to an earlier moment.
    pub fn is_rewound(&self) -> bool {
        matches!(self, Self::Conflict { expected, found } if found < expected)
    }
}

/// All that are set must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    pub state: Option<JobState>,
    pub name: Option<String>,
    pub label: Option<(String, String)>,
    pub over: Option<bool>,
    pub local: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub jobs: Vec<Row>,
    /// Where the next page begins, if there is more.
    pub next: Option<String>,
    /// What is wrong with jobs of the page. A list has those whose rows cannot be read, and shows of
    /// them what can; [`Page::check`] adds those whose logs cannot.
    pub damaged: BTreeMap<JobId, String>,
}

impl Page {
    /// Asks for the damage of every job of the page.
    pub fn check(&mut self, reader: &mut dyn Reader) -> Result<(), StoreError> {
        for row in &self.jobs {
            if !self.damaged.contains_key(&row.id)
                && let Some(damage) = reader.damage(&row.id)?
            {
                self.damaged.insert(row.id.clone(), damage);
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub row: Row,
    /// Of the last event.
    pub seq: u64,
    /// Who may write it: [`Owner::id`].
    pub owner: String,
    /// Why it cannot go on.
    pub stuck: Option<String>,
    pub snapshot: Option<Snapshot>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The events up to this one are in it.
    pub seq: u64,
    pub state: Vec<u8>,
}

/// How many jobs of servers there are, each counted once: in its state, or as stuck. Those of `run` are not among them: one whose
/// process is gone would count as running for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Every state has an entry.
    pub by_state: BTreeMap<JobState, u64>,
    pub stuck: u64,
}

impl JobCounts {
    /// What a job counts as that cannot go on, instead of its state.
    pub const STUCK: &'static str = "stuck";

    /// Of what a store keeps by name. What is no state is left out.
    pub(crate) fn of<'a>(kept: impl IntoIterator<Item = (&'a str, i64)>) -> Self {
        let mut counts = Self::none();
        for (name, jobs) in kept {
            let jobs = u64::try_from(jobs).unwrap_or(0);
            let state = JobState::ALL.iter().find(|state| state.name() == name);
            match state {
                Some(state) => *counts.by_state.entry(*state).or_default() += jobs,
                None if name == Self::STUCK => counts.stuck += jobs,
                None => {}
            }
        }
        counts
    }

    pub(crate) fn none() -> Self {
        Self { by_state: JobState::ALL.iter().map(|state| (*state, 0)).collect(), stuck: 0 }
    }

    /// Those that have not ended, and can go on.
    pub fn open(&self) -> u64 {
        self.by_state.iter().filter(|(state, _)| !state.is_terminal()).map(|(_, jobs)| jobs).sum()
    }
}

/// Who writes: a shard of a server, or a job of `run`. Each group is held against the stored epoch of its
/// owner, so that one who was taken over writes nothing any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub id: Arc<str>,
    pub epoch: u64,
}

impl Owner {
    /// The jobs of a server with one data folder.
    pub const SHARD: &'static str = "shard-0";
}

/// A time in which an owner was down, and decided nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from: Timestamp,
    pub until: Timestamp,
}

impl Filter {
    pub(crate) fn matches(&self, row: &Row) -> bool {
        self.state.is_none_or(|state| row.state == state)
            && self.name.as_ref().is_none_or(|name| row.name == *name)
            && self.label.as_ref().is_none_or(|(name, value)| row.labels.get(name) == Some(value))
            && self.over.is_none_or(|over| row.over == over)
            && self.local.is_none_or(|local| row.local == local)
    }
}

impl Write {
    /// Of the last event, once it is taken.
    pub(crate) fn last_seq(&self) -> u64 {
        self.expected_seq + self.records.len() as u64
    }

    /// A log with gaps must not come to be, whichever caller asks for it.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let unfit = |why| Err(StoreError::Unfit { job: self.job.clone(), why });
        let numbers = self.expected_seq + 1..;
        if self.row.id != self.job {
            return unfit("its row is that of another job");
        }
        if self.records.iter().zip(numbers).any(|(record, seq)| record.seq != seq) {
            return unfit("its events are not numbered on from the last one");
        }
        if self.expected_seq == 0 && self.records.is_empty() {
            return unfit("a new job begins with an event");
        }
        if self.expected_seq > 0 && self.key.is_some() {
            return unfit("only a new job takes an idempotency key");
        }
        Ok(())
    }
}
