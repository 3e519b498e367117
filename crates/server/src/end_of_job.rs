//! Waiting for a job's end: `RunJob`, `WatchJob` of the end alone, `POST /v1/jobs?wait=true`.

use std::sync::Arc;
use std::time::Duration;

use steadfast_api::{Attempts, JobStatus};
use steadfast_core::apply::fold;
use steadfast_core::event::{JobId, RecordedEvent};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::commands::Submitted;
use crate::error::ApiError;
use crate::notifications::{Durable, Notifications};
use crate::queries::JobReader;

/// How often a job that somebody waits for is read up to where it is.
const FOLD: Duration = Duration::from_millis(100);

/// A job that somebody waits for.
#[derive(Debug)]
pub struct EndOfJob {
    reader: JobReader,
    notifications: Notifications,
    id: JobId,
    is_over: bool,
    /// Followed from before it was read whether it `is_over`, or from before there was a job.
    changes: watch::Receiver<Durable>,
}

impl EndOfJob {
    pub async fn of(
        reader: &JobReader,
        notifications: &Notifications,
        id: JobId,
    ) -> Result<Self, ApiError> {
        let changes = notifications.follow(&id);
        let is_over = reader.row(&id).await?.state.is_terminal();
        let (reader, notifications) = (reader.clone(), notifications.clone());
        Ok(Self { reader, notifications, id, is_over, changes })
    }

    /// Submits a job under this new id, which is followed from before.
    pub async fn submit<F>(
        reader: &JobReader,
        notifications: &Notifications,
        id: JobId,
        submit: impl FnOnce(JobId) -> F,
    ) -> Result<(Submitted, Self), ApiError>
    where
        F: Future<Output = Result<Submitted, ApiError>>,
    {
        let changes = notifications.follow_new(&id);
        let submitted = submit(id.clone()).await?;
        if submitted.existing {
            let end = Self::of(reader, notifications, submitted.id.clone()).await?;
            return Ok((submitted, end));
        }
        let (reader, notifications) = (reader.clone(), notifications.clone());
        Ok((submitted, Self { reader, notifications, id, is_over: false, changes }))
    }

    /// The last status. A large job is folded as it goes, now and then, so that little is left to read when it ends.
    pub async fn status(mut self) -> Result<Arc<JobStatus>, ApiError> {
        let mut folded = 0;
        while !self.is_over {
            let waited = timeout(FOLD, self.changes.wait_for(|durable| durable.ended)).await;
            match waited.map(|ended| ended.is_ok()) {
                Ok(true) => self.is_over = true,
                Ok(false) => {
                    let why = "the server is ending; watch the job again";
                    return Err(ApiError::Overloaded(why.to_owned()));
                }
                Err(_) => {
                    let seq = self.changes.borrow().seq;
                    if seq > folded {
                        self.reader.status(&self.id).await?;
                        folded = seq;
                    }
                }
            }
        }
        match self.notifications.log(&self.id).and_then(|log| folded_status(&log)) {
            Some(status) => Ok(Arc::new(status)),
            None => self.reader.status(&self.id).await,
        }
    }
}

/// None: it is not a whole log.
fn folded_status(log: &[RecordedEvent]) -> Option<JobStatus> {
    let (mut job, mut attempts) = (None, Attempts::default());
    for record in log {
        attempts.add(record);
        fold(&mut job, record).ok()?;
    }
    job.map(|job| JobStatus::new(&job, &attempts))
}
