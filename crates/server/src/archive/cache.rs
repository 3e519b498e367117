//! Jobs that were asked for lately, folded: the next question reads only what has happened since.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Held, PoisonError};

use steadfast_api::{Attempts, JobStatus};
use steadfast_core::apply::fold;
use steadfast_core::event::JobId;
use steadfast_core::job::Job;
use steadfast_store::Store;
use tokio::sync::Mutex;

use super::CHUNK;
use crate::trouble::Trouble;

/// Enough for those that people and programs wait for; a large job's state is some megabytes.
const MOST: usize = 100;

#[derive(Clone, Debug, Default)]
pub(super) struct Cache(Arc<Held<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    jobs: HashMap<JobId, (u64, Arc<Mutex<Folded>>)>,
    /// Counts questions: the entry with the lowest was asked for longest ago.
    asked: u64,
}

/// A job and its attempts up to an event.
#[derive(Debug, Default)]
pub(super) struct Folded {
    job: Option<Job>,
    attempts: Attempts,
    status: Option<Arc<JobStatus>>,
}

impl Cache {
    pub(super) fn of(&self, id: &JobId) -> Arc<Mutex<Folded>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.asked += 1;
        let asked = entries.asked;
        if let Some((last, folded)) = entries.jobs.get_mut(id) {
            *last = asked;
            return folded.clone();
        }
        if entries.jobs.len() >= MOST {
            let oldest = entries.jobs.iter().min_by_key(|(_, (last, _))| *last);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                entries.jobs.remove(&oldest);
            }
        }
        let folded = Arc::<Mutex<Folded>>::default();
        entries.jobs.insert(id.clone(), (asked, folded.clone()));
        folded
    }

    pub(super) fn forget(&self, id: &JobId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).jobs.remove(id);
    }
}

impl Folded {
    pub(super) fn status(
        &mut self,
        store: &mut dyn Store,
        id: &JobId,
    ) -> Result<Arc<JobStatus>, Trouble> {
        let status = self.catch_up(store, id);
        if status.is_err() {
            *self = Self::default();
        }
        status
    }

    fn catch_up(&mut self, store: &mut dyn Store, id: &JobId) -> Result<Arc<JobStatus>, Trouble> {
        let known = self.job.as_ref().map_or(0, |job| job.seq);
        // A log that has lost its end reads like one that never had it.
        if self.job.is_none()
            && let Some(why) = store.damage(id)?
        {
            return Err(Trouble::Stuck { job: id.clone(), why });
        }
        // From the last known event on: if that is gone, so is the job.
        let mut after = known.saturating_sub(1);
        loop {
            let page = store.events(id, after, CHUNK)?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for record in page.iter().filter(|record| record.seq > known) {
                self.attempts.add(record);
                self.status = None;
                fold(&mut self.job, record)
                    .map_err(|error| Trouble::Stuck { job: id.clone(), why: error.to_string() })?;
            }
        }
        if after < known {
            return Err(Trouble::no_job(id));
        }
        let job = self.job.as_ref().ok_or_else(|| Trouble::no_job(id))?;
        let status =
            self.status.get_or_insert_with(|| Arc::new(JobStatus::new(job, &self.attempts)));
        Ok(status.clone())
    }
}
