//! What attempts print, as their workers send it, into their logs.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadfast_api::proto;
use steadfast_store::{Folder, is_plain_name};
use tonic::Status;

use super::SessionRegistry;
use super::proof::Holder;
use crate::arriving::part;
use crate::log_times;
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
        let path = self.log_path(&attempt);
        let registry = self.clone();
        let worker = chunk.worker.clone();
        let written = tokio::task::spawn_blocking(move || {
            let parts = &registry.0.parts;
            let log = LogFile { data: &parts.folder, path: &path };
            let answer = log.take(&chunk, parts.health.takes_logs())?;
            if answer.complete {
                registry.0.expected_logs.arrived(log)?;
            }
            Ok(answer)
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
        let (registry, path) = (self.clone(), self.log_path(attempt));
        let job = attempt.job_id.clone();
        self.0.expected_logs.insert(path.clone());
        tokio::task::spawn_blocking(move || {
            let log = LogFile { data: &registry.0.parts.folder, path: &path };
            if let Err(error) = registry.0.expected_logs.mark(log) {
                tracing::warn!(event = "LogNotWritten", job_id = %job, %error);
            }
        });
    }

    fn log_path(&self, attempt: &proto::AttemptRef) -> PathBuf {
        let (step, item) = (&attempt.step_name, attempt.item());
        self.0.parts.folder.log(&attempt.job_id, step, item, attempt.attempt)
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

/// Logs that are about to be marked as not whole. The mark is made apart from the session, and must not outlive the
/// last piece, should that be faster.
#[derive(Debug, Default)]
pub(super) struct ExpectedLogs {
    paths: Mutex<HashSet<PathBuf>>,
    /// Held by threads that make and remove marks: no session waits for it.
    marking: Mutex<()>,
}

impl ExpectedLogs {
    fn paths(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, path: PathBuf) {
        self.paths().insert(path);
    }

    fn mark(&self, log: LogFile<'_>) -> io::Result<()> {
        let _marking = self.marking.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.paths().remove(log.path) {
            return Ok(());
        }
        log.open()?;
        log.mark_unfinished()
    }

    fn arrived(&self, log: LogFile<'_>) -> io::Result<()> {
        let _marking = self.marking.lock().unwrap_or_else(PoisonError::into_inner);
        self.paths().remove(log.path);
        match fs::remove_file(part(log.path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Descriptors come back, and so does what an operator repairs. Logs give way on a full disk, and where nothing
/// may be written no worker keeps a log for ever.
fn is_worth_another_try(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    !matches!(error.kind(), PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull)
}

/// The last line of a log that ends before the attempt did. Nothing is added after it: it would not fit on.
const CUT_OFF: &str = "\n… the server's disk is nearly full: what follows is not kept …\n";

/// A log, and what says that it is [not whole](crate::arriving).
#[derive(Clone, Copy)]
struct LogFile<'a> {
    data: &'a Folder,
    path: &'a Path,
}

impl LogFile<'_> {
    fn open(&self) -> io::Result<File> {
        let path = self.path;
        let open =
            || File::options().read(true).write(true).create(true).truncate(false).open(path);
        match (open(), path.parent()) {
            (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
                self.data.create_inside(folder)?;
                open()
            }
            (opened, _) => opened,
        }
    }

    fn mark_unfinished(&self) -> io::Result<()> {
        File::create(part(self.path)).map(drop)
    }

    fn is_unfinished(&self) -> bool {
        part(self.path).exists()
    }

    /// `room`: there is enough on the disk for logs too.
    fn take(&self, chunk: &proto::LogChunk, room: bool) -> io::Result<proto::LogAck> {
        let proto::LogChunk { offset, bytes, last, .. } = chunk;
        if bytes.is_empty() && !self.path.exists() {
            return Ok(proto::LogAck { length: 0, complete: *last });
        }
        let is_new = !self.path.exists();
        let file = self.open()?;
        if is_new && !last {
            self.mark_unfinished()?;
        }
        let (length, end) = (file.metadata()?.len(), offset + bytes.len() as u64);
        if is_cut_off(&file, length)? {
            return Ok(proto::LogAck { length, complete: true });
        }
        // A question, or what would leave a hole: it goes on from where this ends.
        if (bytes.is_empty() && !last) || *offset > length {
            return Ok(proto::LogAck { length, complete: !self.is_unfinished() });
        }
        // What is written over what is there takes no room.
        if end > length && !room {
            file.write_all_at(CUT_OFF.as_bytes(), length)?;
            let length = length + CUT_OFF.len() as u64;
            return Ok(proto::LogAck { length, complete: true });
        }
        file.write_all_at(bytes, *offset)?;
        // What comes whole was printed when the file was written. Without times the log is still there.
        if *offset > 0 || !last {
            let _ = log_times::note(&file, self.path, length, *offset, end);
        }
        if !last {
            return Ok(proto::LogAck { length: end, complete: false });
        }
        // Nothing but what is printed changes the file's time.
        if length.max(end) != end {
            file.set_len(end)?;
        }
        Ok(proto::LogAck { length: end, complete: true })
    }
}

fn is_cut_off(file: &File, length: u64) -> io::Result<bool> {
    let Some(start) = length.checked_sub(CUT_OFF.len() as u64) else { return Ok(false) };
    let mut end = [0; CUT_OFF.len()];
    file.read_exact_at(&mut end, start)?;
    Ok(end == *CUT_OFF.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(offset: u64, text: &str, last: bool) -> proto::LogChunk {
        let bytes = text.as_bytes().to_vec().into();
        proto::LogChunk { offset, bytes, last, ..proto::LogChunk::default() }
    }

    fn ack(length: usize, complete: bool) -> proto::LogAck {
        proto::LogAck { length: length as u64, complete }
    }

    fn took(log: LogFile<'_>, chunk: &proto::LogChunk, room: bool) -> proto::LogAck {
        let answer = log.take(chunk, room).unwrap();
        if answer.complete {
            ExpectedLogs::default().arrived(log).unwrap();
        }
        answer
    }

    #[test]
    fn a_mark_does_not_outlive_a_last_piece_that_was_faster() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().to_owned());
        let path = data.logs("job").join("step").join("log");
        let log = LogFile { data: &data, path: &path };
        let expected = ExpectedLogs::default();
        expected.insert(path.clone());
        expected.mark(log).unwrap();
        assert!(log.is_unfinished() && path.exists(), "it is listed, and not whole");
        expected.insert(path.clone());
        expected.arrived(log).unwrap();
        expected.mark(log).unwrap();
        assert!(!log.is_unfinished());
    }

    #[test]
    fn a_log_ends_with_a_mark_where_the_room_did() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().to_owned());
        let path = data.logs("job").join("step").join("log");
        let log = LogFile { data: &data, path: &path };
        let put = |chunk: &proto::LogChunk, room| {
            let answer = took(log, chunk, room);
            (fs::read_to_string(&path).unwrap(), answer)
        };
        assert_eq!(put(&chunk(0, "one\n", false), true), ("one\n".to_owned(), ack(4, false)));
        assert!(log.is_unfinished());
        let cut = format!("one\n{CUT_OFF}");
        let told = (cut.clone(), ack(cut.len(), true));
        assert_eq!(put(&chunk(4, "two\n", false), false), told);
        assert_eq!(put(&chunk(8, "three\n", false), false), told);
        assert_eq!(put(&chunk(14, "four\n", true), true), told, "there is a gap before it");
        assert_eq!(put(&chunk(0, "one\ntwo\nthree\nfour\n", true), true), told);
        assert!(!log.is_unfinished());
    }

    #[test]
    fn a_log_goes_on_where_the_server_says_and_is_not_whole_before_its_last_piece() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().to_owned());
        let path = data.logs("job").join("step").join("log");
        let log = LogFile { data: &data, path: &path };
        let take = |chunk: &proto::LogChunk| took(log, chunk, true);
        assert_eq!(take(&chunk(0, "", false)), ack(0, false), "a question");
        assert_eq!(take(&chunk(0, "one\ntwo\n", false)), ack(8, false));
        assert_eq!(take(&chunk(100, "far", false)), ack(8, false), "there would be a hole");
        assert_eq!(take(&chunk(0, "", false)), ack(8, false));
        // Its last bytes have changed, and it is shorter now.
        assert_eq!(take(&chunk(4, "2\n", false)), ack(6, false));
        assert!(log.is_unfinished());
        assert_eq!(take(&chunk(6, "", true)), ack(6, true));
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\n2\n");
        assert!(!log.is_unfinished());
        // The worker did not hear that, and asks.
        assert_eq!(take(&chunk(0, "", false)), ack(6, true));
    }

    #[test]
    fn a_log_does_not_make_a_data_folder_anew_that_was_moved_away() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().join("data"));
        let path = data.logs("job").join("step").join("log");
        let log = LogFile { data: &data, path: &path };
        let written = log.take(&chunk(0, "one\n", false), true);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!data.root().exists());
    }
}
