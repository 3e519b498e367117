//! Jobs that were asked for lately, folded: the next question reads only what has happened since.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Held, PoisonError};

use serde_json::Value;
use steadfast_api::{Attempts, JobStatus};
use steadfast_core::apply::fold;
use steadfast_core::event::{Event, JobId};
use steadfast_core::job::Job;
use steadfast_core::outcome::Outcome;
use steadfast_store::Reader;
use tokio::sync::Mutex;

use super::CHUNK;
use crate::error::ApiError;

/// Enough for those that people and programs wait for.
const MOST: usize = 100;
/// Of what they hold in outputs; the one that was asked for last stays in any case.
const MOST_BYTES: usize = 256 << 20;

#[derive(Clone, Debug, Default)]
pub(super) struct Cache(Arc<Held<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    jobs: HashMap<JobId, Entry>,
    /// Counts questions: the entry with the lowest was asked for longest ago.
    asked: u64,
}

#[derive(Debug, Default)]
struct Entry {
    asked: u64,
    bytes: usize,
    folded: Arc<Mutex<Folded>>,
}

/// A job and its attempts up to an event.
#[derive(Debug, Default)]
pub(super) struct Folded {
    /// What its outputs take.
    bytes: usize,
    job: Option<Job>,
    attempts: Attempts,
    status: Option<Arc<JobStatus>>,
}

impl Cache {
    pub(super) fn of(&self, id: &JobId) -> Arc<Mutex<Folded>> {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.asked += 1;
        let asked = entries.asked;
        if let Some(entry) = entries.jobs.get_mut(id) {
            entry.asked = asked;
            return entry.folded.clone();
        }
        if entries.jobs.len() >= MOST {
            entries.forget_oldest();
        }
        let entry = Entry { asked, ..Entry::default() };
        let folded = entry.folded.clone();
        entries.jobs.insert(id.clone(), entry);
        folded
    }

    /// So much is held of it now; if that is too much with the others, those go that nobody asks for.
    pub(super) fn holds(&self, id: &JobId, bytes: usize) {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.jobs.get_mut(id) {
            entry.bytes = bytes;
        }
        while entries.jobs.len() > 1
            && entries.jobs.values().map(|entry| entry.bytes).sum::<usize>() > MOST_BYTES
        {
            entries.forget_oldest();
        }
    }

    pub(super) fn forget(&self, id: &JobId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).jobs.remove(id);
    }
}

impl Entries {
    fn forget_oldest(&mut self) {
        let oldest = self.jobs.iter().min_by_key(|(_, entry)| entry.asked);
        if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
            self.jobs.remove(&oldest);
        }
    }
}

/// What a value takes in memory, about: the smallest takes far more than its text.
fn size(value: &Value) -> usize {
    const NODE: usize = 32;
    NODE + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(size).sum(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| 2 * NODE + key.len() + size(value)).sum()
        }
    }
}

impl Folded {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn status(
        &mut self,
        reader: &mut dyn Reader,
        id: &JobId,
    ) -> Result<Arc<JobStatus>, ApiError> {
        self.job(reader, id)?;
        let Self { job: Some(job), attempts, status, .. } = self else {
            return Err(ApiError::no_job(id));
        };
        Ok(status.get_or_insert_with(|| Arc::new(JobStatus::new(job, attempts))).clone())
    }

    /// As it is stored now.
    pub(super) fn job(&mut self, reader: &mut dyn Reader, id: &JobId) -> Result<&Job, ApiError> {
        if let Err(trouble) = self.catch_up(reader, id) {
            *self = Self::default();
            return Err(trouble);
        }
        self.job.as_ref().ok_or_else(|| ApiError::no_job(id))
    }

    fn catch_up(&mut self, reader: &mut dyn Reader, id: &JobId) -> Result<(), ApiError> {
        let known = self.job.as_ref().map_or(0, |job| job.seq);
        // A log that has lost its end reads like one that never had it.
        if self.job.is_none()
            && let Some(why) = reader.damage(id)?
        {
            return Err(ApiError::Stuck { job: id.clone(), why });
        }
        // From the last known event on: if that is gone, so is the job.
        let mut after = known.saturating_sub(1);
        loop {
            let page = reader.events(id, after, CHUNK)?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for record in page.iter().filter(|record| record.seq > known) {
                if let Event::AttemptEnded { outcome: Outcome::Succeeded { output }, .. } =
                    &record.event
                {
                    self.bytes += output.as_ref().map_or(0, size);
                }
                self.attempts.add(record);
                self.status = None;
                fold(&mut self.job, record)
                    .map_err(|error| ApiError::Stuck { job: id.clone(), why: error.to_string() })?;
            }
        }
        if after < known {
            return Err(ApiError::no_job(id));
        }
        Ok(())
    }
}
