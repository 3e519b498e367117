//! What attempts print, as their workers send it, into their logs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use steadfast_api::proto;
use steadfast_store::Folder;

use super::session::{Peer, WorkerSessions};
use crate::log_times;

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
        let path = self.registry.0.parts.folder.log(
            &attempt.job_id,
            &attempt.step_name,
            attempt.item(),
            attempt.attempt,
        );
        let registry = self.registry.clone();
        let written = tokio::task::spawn_blocking(move || {
            let parts = &registry.0.parts;
            write_log(&parts.folder, &path, &output, parts.health.takes_logs())
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

/// The last line of a log that ends before the attempt did. Nothing is added after it: it would not fit on.
const CUT_OFF: &str = "\n… the server's disk is nearly full: what follows is not kept …\n";

/// `room`: there is enough on the disk for logs too.
fn write_log(data: &Folder, path: &Path, output: &proto::Output, room: bool) -> io::Result<()> {
    if output.bytes.is_empty() && !path.exists() {
        return Ok(());
    }
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(path);
    let file = match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == io::ErrorKind::NotFound => {
            data.create_inside(folder)?;
            open()?
        }
        (opened, _) => opened?,
    };
    let (length, end) = (file.metadata()?.len(), output.offset + output.bytes.len() as u64);
    if is_cut_off(&file, length)? {
        return Ok(());
    }
    // What is written over what is there takes no room.
    if end > length && !room {
        return file.write_all_at(CUT_OFF.as_bytes(), length);
    }
    file.write_all_at(&output.bytes, output.offset)?;
    // What comes whole was printed when the file was written. Without times the log is still there.
    if output.offset > 0 || !output.last {
        let _ = log_times::note(&file, path, length, output.offset, end);
    }
    // Nothing but what is printed changes the file's time.
    if output.last && length.max(end) != end {
        file.set_len(end)?;
    }
    Ok(())
}

fn is_cut_off(file: &File, length: u64) -> io::Result<bool> {
    let Some(start) = length.checked_sub(CUT_OFF.len() as u64) else { return Ok(false) };
    let mut end = [0; CUT_OFF.len()];
    file.read_exact_at(&mut end, start)?;
    Ok(end == *CUT_OFF.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn output(offset: u64, text: &str, last: bool) -> proto::Output {
        proto::Output {
            offset,
            bytes: text.as_bytes().to_vec().into(),
            last,
            ..proto::Output::default()
        }
    }

    #[test]
    fn a_log_ends_with_a_mark_where_the_room_did() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().to_owned());
        let path = data.logs("job").join("step").join("log");
        let put = |output: &proto::Output, room| {
            write_log(&data, &path, output, room).unwrap();
            fs::read_to_string(&path).unwrap()
        };
        assert_eq!(put(&output(0, "one\n", false), true), "one\n");
        let cut = format!("one\n{CUT_OFF}");
        assert_eq!(put(&output(4, "two\n", false), false), cut);
        assert_eq!(put(&output(8, "three\n", false), false), cut);
        assert_eq!(put(&output(14, "four\n", true), true), cut, "there is a gap before it");
        assert_eq!(put(&output(0, "one\ntwo\nthree\nfour\n", true), true), cut);
    }

    #[test]
    fn a_log_does_not_make_a_data_folder_anew_that_was_moved_away() {
        let root = tempfile::tempdir().unwrap();
        let data = Folder::new(root.path().join("data"));
        let path = data.logs("job").join("step").join("log");
        let written = write_log(&data, &path, &output(0, "one\n", false), true);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!data.root().exists());
    }
}
