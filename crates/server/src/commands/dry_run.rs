//! What a command would do: asked of core with the job as it is stored, and nothing is written.

use steadfast_core::decide::{Input, Refusal, decide};
use steadfast_core::event::Requester;
use steadfast_core::retry_job::retry_job;
use steadfast_core::time::Timestamp;

use super::control::of_run;
use super::{JobCommands, RetryRequest, Submitted, cannot_retry};
use crate::error::ApiError;

/// What is done to a job.
#[derive(Clone, Debug)]
pub enum JobAction {
    Cancel(Requester),
    Pause(Requester),
    Resume(Requester),
    /// The key is the job's own.
    Retry(RetryRequest),
}

impl JobCommands {
    /// Of a retry, the new job.
    pub async fn act(&self, id: &str, action: JobAction) -> Result<Option<Submitted>, ApiError> {
        match action {
            JobAction::Cancel(requested) => self.cancel(id, requested).await.map(|()| None),
            JobAction::Pause(requested) => self.pause(id, requested).await.map(|()| None),
            JobAction::Resume(requested) => self.resume(id, requested).await.map(|()| None),
            JobAction::Retry(how) => self.retry(id, how).await.map(Some),
        }
    }

    /// Whether it would be done, as the job is now.
    pub async fn would(
        &self,
        id: &str,
        action: &JobAction,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        let job = self.reader.job(id).await?;
        let input = match action {
            JobAction::Cancel(requested) => Input::Cancel(requested.clone()),
            JobAction::Pause(requested) => Input::Pause(requested.clone()),
            JobAction::Resume(requested) => Input::Resume(requested.clone()),
            JobAction::Retry(RetryRequest { from, grant, .. }) => {
                let retried = retry_job(&job, job.id.clone(), from.as_deref(), *grant);
                return retried.map_err(cannot_retry).and_then(|new| self.fits(&new.plan));
            }
        };
        if job.source.is_some() {
            return Err(of_run(job.id.clone(), job.state()));
        }
        match decide(&job, &input, now.max(job.last_at)) {
            Ok(_) | Err(Refusal::AlreadyPaused | Refusal::NotPaused) => Ok(()),
            Err(Refusal::Ended) => {
                Err(ApiError::AlreadyEnded { job: job.id.clone(), state: job.state() })
            }
            Err(why) => Err(ApiError::NotPossible(why.to_string())),
        }
    }
}
