//! `WatchJob`: a status after each change, read when the client is ready for it. A client that reads
//! slowly gets fewer, and holds up nobody.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use steadfast_api::{JobStatus, proto};
use steadfast_core::event::JobId;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_stream::Stream;
use tonic::Status;

use super::told;
use crate::notifications::Durable;
use crate::queries::JobReader;

/// A job with many items changes thousands of times a second, and each status is all of it.
const PAUSE: Duration = Duration::from_millis(50);
fn ending() -> Status {
    Status::unavailable("the server is ending; watch the job again")
}

struct JobWatch {
    reader: JobReader,
    id: JobId,
    changes: watch::Receiver<Durable>,
    /// What the client has; none before the first.
    shown: Option<Arc<JobStatus>>,
    ended: bool,
}

/// `changes` were followed from before `first` was read.
pub(super) fn statuses(
    reader: JobReader,
    id: JobId,
    first: Arc<JobStatus>,
    changes: watch::Receiver<Durable>,
) -> impl Stream<Item = Result<proto::JobStatus, Status>> + Send {
    let watched = JobWatch { reader, id, changes, shown: None, ended: false };
    stream::unfold((watched, Some(first)), |(mut watched, first)| async move {
        if watched.ended {
            return None;
        }
        let next = match first {
            Some(first) => Ok(first),
            None => watched.next().await,
        };
        let next = match next {
            Ok(status) => watched.show(status).await,
            Err(trouble) => Err(trouble),
        };
        watched.ended |= next.is_err();
        Some((next, (watched, None)))
    })
}

impl JobWatch {
    async fn next(&mut self) -> Result<Arc<JobStatus>, Status> {
        // The end is what most wait for. what comes meanwhile is still news.
        let mut eyes = self.changes.clone();
        let _ = timeout(PAUSE, eyes.wait_for(|durable| durable.ended)).await;
        loop {
            let open = self.changes.changed().await.is_ok();
            let status = self.reader.status(&self.id).await?;
            // What was told may have been in the status before.
            if self.shown.as_ref().is_none_or(|shown| !Arc::ptr_eq(shown, &status)) {
                return Ok(status);
            }
            if !open {
                return Err(ending());
            }
        }
    }

    async fn show(&mut self, status: Arc<JobStatus>) -> Result<proto::JobStatus, Status> {
        self.ended = status.state.is_terminal();
        self.shown = Some(status.clone());
        Ok(told(status).await?)
    }
}
