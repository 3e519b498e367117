//! What attempts print, as their workers send it, into their logs.

use std::io;

use steadfast_api::proto;
use steadfast_store::{LogChunk, LogName};

use super::session::{Peer, WorkerSessions};

/// The log may be a little longer than its cap, by the line about what was left out.
const LEFT_OUT_LINE: u64 = 4096;

impl WorkerSessions {
    /// Only what the server itself has signed says where it goes. False: it could not be written now, and must come
    /// again before the report of its attempt counts.
    pub(super) async fn output(&self, peer: &Peer, output: proto::Output) -> bool {
        let Some(attempt) = &output.attempt else { return true };
        if !self.registry.is_assigned_to(attempt, peer) {
            self.registry.0.parts.watch.output_refused(&peer.name);
            return true;
        }
        let key = attempt.id();
        let is_its = self.registry.sessions().get_mut(&peer.name).is_some_and(|session| {
            let is_its = session.may_print(&key);
            if output.last {
                session.withdrawn.retain(|withdrawn| *withdrawn != key);
            }
            is_its
        });
        let end = output.offset.saturating_add(output.bytes.len() as u64);
        if !is_its || end > self.registry.0.rules.log_cap + LEFT_OUT_LINE {
            return true;
        }
        let log =
            LogName::new(&attempt.job_id, &attempt.step_name, attempt.item(), attempt.attempt);
        let registry = self.registry.clone();
        let written = tokio::task::spawn_blocking(move || {
            let parts = &registry.0.parts;
            let chunk = LogChunk { offset: output.offset, bytes: &output.bytes, last: output.last };
            parts.blobs.write_log(&log, chunk, parts.health.takes_logs())
        });
        let Ok(Err(error)) = written.await else { return true };
        tracing::warn!(event = "LogNotWritten", job_id = %key.job, worker = %peer.name, %error);
        !is_worth_another_try(&error)
    }
}

/// Descriptors come back, and so does what an operator repairs. Logs give way on a full disk, and where nothing
/// may be written a job is not held up for its log.
fn is_worth_another_try(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    !matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}
