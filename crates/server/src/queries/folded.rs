//! A job as it is stored now: what was stored of its state and attempts, and the events since.

use std::sync::Arc;

use serde_json::Value;
use steadfast_api::{Attempts, JobStatus};
use steadfast_core::apply::fold;
use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::outcome::Outcome;
use steadfast_engine::Unreadable;
use steadfast_store::Reader;

use super::{CHUNK, projections};
use crate::error::ApiError;

/// A job and its attempts, up to an event.
#[derive(Debug, Default)]
pub struct FoldedJob {
    /// What its outputs take.
    bytes: usize,
    job: Option<Job>,
    attempts: Attempts,
    /// The last event that `attempts` has.
    attempts_seq: u64,
    status: Option<Arc<JobStatus>>,
}

impl FoldedJob {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn status(
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

    /// As it is stored now, with what is kept of its attempts.
    pub(super) fn with_attempts(
        &mut self,
        reader: &mut dyn Reader,
        id: &JobId,
    ) -> Result<(&Job, &Attempts), ApiError> {
        self.job(reader, id)?;
        let job = self.job.as_ref().ok_or_else(|| ApiError::no_job(id))?;
        Ok((job, &self.attempts))
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
        if self.job.is_none() {
            self.begin(reader, id)?;
        }
        let known = self.seq();
        // From the last known event on: if that is gone, so is the job.
        let mut after = known.min(self.attempts_seq).saturating_sub(1);
        loop {
            let page = reader.events(id, after, CHUNK)?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            for record in &page {
                self.add(record)
                    .map_err(|why| ApiError::Stuck { job: id.clone(), why: why.to_string() })?;
            }
        }
        if after < known {
            return Err(ApiError::no_job(id));
        }
        Ok(())
    }

    /// Takes what is stored of the job's state and attempts. Without both, the log is read from its beginning.
    fn begin(&mut self, reader: &mut dyn Reader, id: &JobId) -> Result<(), ApiError> {
        // A log that has lost its end reads like one that never had it.
        if let Some(why) = reader.damage(id)? {
            return Err(ApiError::Stuck { job: id.clone(), why });
        }
        let Some((attempts, attempts_seq)) = projections::stored(reader, id)? else {
            return Ok(());
        };
        let snapshot = reader.get(id)?.and_then(|stored| stored.snapshot);
        let Some(snapshot) = snapshot else { return Ok(()) };
        let job = match steadfast_engine::of_snapshot(reader, id, &snapshot) {
            Ok(job) => job,
            Err(Unreadable::Store(error)) => return Err(error.into()),
            Err(_) => return Ok(()),
        };
        let steps = job.runs.iter().flat_map(|run| &run.steps);
        let bytes = steps.flat_map(|step| step.outputs.values()).map(size).sum();
        *self = Self { bytes, job: Some(job), attempts, attempts_seq, status: None };
        Ok(())
    }

    fn seq(&self) -> u64 {
        self.job.as_ref().map_or(0, |job| job.seq)
    }

    fn add(&mut self, record: &RecordedEvent) -> Result<(), steadfast_core::apply::IllegalEvent> {
        if record.seq > self.attempts_seq {
            self.attempts.add(record);
            self.attempts_seq = record.seq;
            self.status = None;
        }
        if record.seq <= self.seq() {
            return Ok(());
        }
        if let Event::AttemptEnded {
            outcome: Outcome::Succeeded { output: Some(output) }, ..
        } = &record.event
        {
            self.bytes += size(output);
        }
        self.status = None;
        fold(&mut self.job, record)
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
