//! Stored jobs, taken up again.

use steadfast_core::apply::fold;
use steadfast_core::event::JobId;
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;
use steadfast_store::{Filter, Row, Store, StoreError};

use crate::inbox::Adopted;

/// Events read at once.
const PAGE: usize = 10_000;
/// Jobs looked at, and claimed, at once.
const JOBS: usize = 1000;

/// Why a stored job cannot be taken up.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("job {0} has no events")]
    Missing(JobId),
    #[error("the stored state of job {job} is unreadable: {why}")]
    State { job: JobId, why: String },
}

impl Unreadable {
    /// Whether it is this one job that cannot be read, and not the store.
    pub fn is_of_one_job(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error, StoreError::Corrupt { job: Some(_), .. }),
            Self::Missing(_) | Self::State { .. } => true,
        }
    }
}

/// The state of a stored job: its snapshot, and the events since.
pub fn state(store: &mut dyn Store, job: &str) -> Result<Job, Unreadable> {
    let unreadable = |why: String| Unreadable::State { job: job.into(), why };
    let stored = store.get(job)?.ok_or_else(|| Unreadable::Missing(job.into()))?;
    let mut state: Option<Job> = match stored.snapshot {
        Some(snapshot) => Some(
            serde_json::from_slice(&snapshot.state)
                .map_err(|error| unreadable(error.to_string()))?,
        ),
        None => None,
    };
    let mut after = state.as_ref().map_or(0, |job| job.seq);
    loop {
        let page = store.events(job, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for record in &page {
            fold(&mut state, record).map_err(|error| unreadable(error.to_string()))?;
        }
    }
    // Somebody may have written on meanwhile.
    if after < stored.seq {
        return Err(unreadable(format!("event {} of it is missing", after + 1)));
    }
    state.ok_or_else(|| Unreadable::Missing(job.into()))
}

/// Claims every job that is not over and `is_ours`, a thousand at a time, and hands each to `adopt`.
/// `alive_at`: the engine that had them was last seen then. A job that cannot be read is told to `stuck`
/// and left as it is: the others are not kept from going on by it.
pub fn adopt_all<E: From<Unreadable>>(
    store: &mut dyn Store,
    owner: &str,
    alive_at: Option<Timestamp>,
    is_ours: impl Fn(&Job) -> bool,
    mut stuck: impl FnMut(&Row, &Unreadable),
    mut adopt: impl FnMut(Adopted) -> Result<(), E>,
) -> Result<usize, E> {
    let filter = Filter { over: Some(false), ..Filter::default() };
    let (mut cursor, mut adopted) = (None, 0);
    loop {
        let page = store.list(&filter, cursor.as_deref(), JOBS).map_err(Unreadable::from)?;
        let mut jobs = Vec::with_capacity(page.jobs.len());
        for row in &page.jobs {
            match state(store, &row.id) {
                Ok(job) if is_ours(&job) => jobs.push(job),
                Ok(_) => {}
                Err(why) if why.is_of_one_job() => stuck(row, &why),
                Err(why) => return Err(why.into()),
            }
        }
        let ids: Vec<&str> = jobs.iter().map(|job| &*job.id).collect();
        let claimed = store.claim(&ids, owner).map_err(Unreadable::from)?;
        for (job, claimed) in jobs.into_iter().zip(claimed) {
            let Some(claimed) = claimed else { continue };
            let down_since = alive_at.unwrap_or(job.last_at).max(job.last_at);
            adopt(Adopted { job, epoch: claimed.epoch, down_since, lost: Vec::new() })?;
            adopted += 1;
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(adopted);
        }
    }
}
