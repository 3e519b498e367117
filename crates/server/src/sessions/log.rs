//! What attempts print, as their workers send it, into their logs.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast_api::proto;
use steadfast_store::{Blobs, LogChunk, LogName, LogProgress, is_plain_name};
use tonic::Status;

use super::proof::Holder;
use super::{SessionRegistry, Shared};
use crate::tokens::Granted;

/// The log may be a little longer than its cap, by the line about what was left out.
const LEFT_OUT_LINE: u64 = 4096;

impl SessionRegistry {
    /// Only what the server itself has signed says where a log goes, and only the worker that it was signed for may
    /// send it, also after the attempt's end.
    pub(super) async fn take_log(
        &self,
        chunk: proto::LogChunk,
        granted: Option<&Granted>,
    ) -> Result<proto::LogAck, Status> {
        let attempt = chunk.attempt.clone().unwrap_or_default();
        self.may_print(&attempt, &chunk.worker, granted)?;
        let rules = self.0.rules;
        let end = chunk.offset.saturating_add(chunk.bytes.len() as u64);
        if end > rules.log_cap + LEFT_OUT_LINE {
            return Ok(proto::LogAck { length: rules.log_cap, complete: true });
        }
        let log = log_name(&attempt);
        let registry = self.clone();
        let worker = chunk.worker.clone();
        // Never closed.
        let turn = self.0.log_writers.clone().acquire_owned().await;
        let written = tokio::task::spawn_blocking(move || {
            let _until_it_is_written = turn;
            let parts = &registry.0.parts;
            let piece = LogChunk { offset: chunk.offset, bytes: &chunk.bytes, last: chunk.last };
            let LogProgress { length, complete } =
                parts.blobs.write_log(&log, piece, parts.health.takes_logs())?;
            if complete {
                registry.0.expected_logs.arrived(&*parts.blobs, &log)?;
            }
            Ok::<_, io::Error>(proto::LogAck { length, complete })
        });
        let error = match written.await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error,
            Err(error) => return Err(Status::internal(error.to_string())),
        };
        tracing::warn!(event = "LogNotWritten", job_id = %attempt.job_id, %worker, %error);
        if is_worth_another_try(&error) {
            return Err(Status::unavailable(error.to_string()));
        }
        Ok(proto::LogAck { length: end, complete: true })
    }

    /// An attempt has ended whose log is still to come: until it has, the log is not taken for whole. Waits for no
    /// disk, as the session does not.
    pub(super) fn expect_log(&self, attempt: &proto::AttemptRef) {
        let (registry, log) = (self.clone(), log_name(attempt));
        self.0.expected_logs.insert(log.clone());
        tokio::task::spawn_blocking(move || {
            let Shared { expected_logs, parts, .. } = &*registry.0;
            if let Err(error) = expected_logs.mark(&*parts.blobs, &log) {
                tracing::warn!(event = "LogNotWritten", job_id = %log.job, %error);
            }
        });
    }

    fn may_print(
        &self,
        attempt: &proto::AttemptRef,
        worker: &str,
        granted: Option<&Granted>,
    ) -> Result<(), Status> {
        let bound = granted.and_then(|granted| granted.binding.worker.as_deref());
        let fingerprint = self.sessions().get(worker).map(|session| session.fingerprint.clone());
        let Some(fingerprint) = fingerprint else {
            // It comes back with one, and what it shows is checked then.
            return Err(Status::unavailable("a log is taken from a worker that has a session"));
        };
        let holder = Holder { name: worker, fingerprint: &fingerprint };
        let is_its = bound.is_none_or(|bound| bound == worker)
            && is_plain_name(&attempt.job_id)
            && is_plain_name(&attempt.step_name)
            && self.0.parts.proofs.is_attempt(attempt, holder);
        if is_its {
            return Ok(());
        }
        self.0.parts.watch.output_refused(worker);
        Err(Status::permission_denied(
            "a log is taken from the worker that has the attempt: send the attempt as it was assigned, and the \
             worker's name",
        ))
    }
}

fn log_name(attempt: &proto::AttemptRef) -> LogName {
    LogName::new(&attempt.job_id, &attempt.step_name, attempt.item(), attempt.attempt)
}

/// Logs that are about to be marked as partial. The mark is made apart from the session, and must not outlive the
/// last piece, should that be faster.
#[derive(Debug, Default)]
pub(super) struct ExpectedLogs {
    names: Mutex<HashSet<LogName>>,
    /// Held by threads that make and remove marks: no session waits for one, and few of other logs do.
    marking: [Mutex<()>; MARKS_AT_ONCE],
}

/// What keeps logs may be far away: marks of different logs do not wait for each other.
const MARKS_AT_ONCE: usize = 32;

impl ExpectedLogs {
    fn names(&self) -> MutexGuard<'_, HashSet<LogName>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, log: LogName) {
        self.names().insert(log);
    }

    fn marking(&self, log: &LogName) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        log.hash(&mut hasher);
        let its = &self.marking[hasher.finish() as usize % MARKS_AT_ONCE];
        its.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mark(&self, blobs: &dyn Blobs, log: &LogName) -> io::Result<()> {
        let _marking = self.marking(log);
        if self.names().remove(log) { blobs.mark_partial(log) } else { Ok(()) }
    }

    fn arrived(&self, blobs: &dyn Blobs, log: &LogName) -> io::Result<()> {
        let _marking = self.marking(log);
        self.names().remove(log);
        blobs.mark_whole(log)
    }
}

/// Descriptors come back, and so does what an operator repairs. Logs give way on a full disk, and where nothing
/// may be written no worker keeps a log for ever.
fn is_worth_another_try(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    !matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

#[cfg(test)]
mod tests {
    use steadfast_core::event::{ItemId, Role};
    use steadfast_store::Folder;

    use super::*;

    #[test]
    fn a_mark_does_not_outlive_a_last_piece_that_was_faster() {
        let root = tempfile::tempdir().unwrap();
        let storage = Folder::new(root.path().to_owned()).storage();
        let blobs = storage.blobs();
        let item = ItemId { run: 0, step: 0, role: Role::Item, index: 0 };
        let log = LogName::new("job", "step", item, 1);
        let expected = ExpectedLogs::default();
        expected.insert(log.clone());
        expected.mark(&*blobs, &log).unwrap();
        assert!(blobs.is_partial(&log));
        assert_eq!(blobs.log_size(&log).unwrap(), Some(0), "it is listed, and not whole");
        expected.insert(log.clone());
        expected.arrived(&*blobs, &log).unwrap();
        expected.mark(&*blobs, &log).unwrap();
        assert!(!blobs.is_partial(&log));
    }
}
