//! Stored jobs, read when they are needed.

use serde::de::IgnoredAny;
use steadfast_core::apply::fold;
use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_store::{Journal, Owner, QueueEntry, Reader, Snapshot, StoreError, Stored, Whose};

use crate::inbox::Adopted;

/// Events read at once.
const PAGE: usize = 10_000;

/// Why a stored job cannot be taken up.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("job {0} has no events")]
    Missing(JobId),
    #[error("the stored state of job {job} is unreadable: {why}")]
    State { job: JobId, why: String },
    /// It was found unable to go on before.
    #[error("{0}")]
    Parked(String),
    /// Another server has it.
    #[error("job {job} is {owner}'s")]
    Elsewhere { job: JobId, owner: String },
}

impl Unreadable {
    /// Whether it is this one job that cannot be read, and not the store.
    pub fn is_of_one_job(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error, StoreError::Corrupt { job: Some(_), .. }),
            Self::Missing(_) | Self::State { .. } | Self::Parked(_) | Self::Elsewhere { .. } => {
                true
            }
        }
    }
}

/// The state of a stored job: its snapshot, and the events since.
pub fn state(reader: &mut dyn Reader, job: &str) -> Result<Job, Unreadable> {
    let stored = reader.get(job)?.ok_or_else(|| Unreadable::Missing(job.into()))?;
    state_of(reader, job, &stored)
}

/// The same, of a job whose row and snapshot are known.
pub fn state_of(reader: &mut dyn Reader, job: &str, stored: &Stored) -> Result<Job, Unreadable> {
    let unreadable = |why: String| Unreadable::State { job: job.into(), why };
    let mut state = match &stored.snapshot {
        Some(snapshot) => Some(of_snapshot(reader, job, snapshot)?),
        None => None,
    };
    let mut after = state.as_ref().map_or(0, |job| job.seq);
    // What its owner has written meanwhile may be among the last of them.
    if is_on(Defect::TailNotReplayed)
        && let Some(state) = state
    {
        return Ok(state);
    }
    while after < stored.seq {
        let page = reader.events(job, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for record in &page {
            fold(&mut state, record).map_err(|error| unreadable(error.to_string()))?;
        }
    }
    if after < stored.seq {
        return Err(unreadable(format!("event {} of it is missing", after + 1)));
    }
    state.ok_or_else(|| Unreadable::Missing(job.into()))
}

/// The state that was stored with a job.
pub fn of_snapshot(
    reader: &mut dyn Reader,
    job: &str,
    snapshot: &Snapshot,
) -> Result<Job, Unreadable> {
    let unreadable = |why: String| Unreadable::State { job: job.into(), why };
    let without_plan: Job<IgnoredAny> =
        serde_json::from_slice(&snapshot.state).map_err(|error| unreadable(error.to_string()))?;
    let first = reader.events(job, 0, 1)?.into_iter().next();
    let Some(RecordedEvent { event: Event::JobAccepted(accepted), .. }) = first else {
        return Err(unreadable("its first event is not that it was accepted".to_owned()));
    };
    Ok(without_plan.with_plan(accepted.plan))
}

/// Reads the jobs of an owner, on connections of its own.
pub struct Loader {
    journal: Box<dyn Journal>,
    reader: Box<dyn Reader>,
    owner: Owner,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl Loader {
    pub fn new(journal: Box<dyn Journal>, reader: Box<dyn Reader>, owner: Owner) -> Self {
        Self { journal, reader, owner }
    }

    /// None: there is no such job, it is over, or one of `run`.
    pub(crate) fn load(&mut self, job: &str) -> Result<Option<Adopted>, Unreadable> {
        let Some(stored) = self.reader.get(job)? else { return Ok(None) };
        if stored.row.over || stored.row.local {
            return Ok(None);
        }
        if *stored.owner != *self.owner.id {
            return Err(Unreadable::Elsewhere { job: job.into(), owner: stored.owner });
        }
        if let Some(why) = &stored.stuck {
            return Err(Unreadable::Parked(why.clone()));
        }
        let job = state_of(&mut *self.reader, job, &stored)?;
        let gaps = self.journal.gaps(&self.owner.id, &job.id, job.last_at)?;
        Ok(Some(Adopted { job, gaps, lost: Vec::new() }))
    }

    /// A page of those that wait for a worker, after the one `after`. `shards`: only those in these.
    pub(crate) fn queued(
        &mut self,
        shards: Option<&[u16]>,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, Unreadable> {
        let owner = self.owner.id.clone();
        Ok(self.journal.queued(Whose { owner: &owner, shards }, after, limit)?)
    }

    /// A page of those to be woken after `after`, up to `until`.
    pub(crate) fn due(
        &mut self,
        shards: Option<&[u16]>,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, Unreadable> {
        let owner = self.owner.id.clone();
        Ok(self.journal.due(Whose { owner: &owner, shards }, after, until, limit)?)
    }
}
