//! Ended jobs go, with their logs, files and working folders; interrupted ones if somebody asks for it.

use std::time::{Duration, UNIX_EPOCH};

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use steadfast_store::{Blobs, Journal, Reader, StoreError};

/// A folder of no job may be of one that is being accepted: its files are there before it is, and a
/// server waits with it while its disk is full or its database locked. Older than this, it is what an
/// earlier purge or a crash has left.
const ORPHANED_AFTER: Duration = Duration::from_hours(24);

/// Removes jobs that are over and ended before a moment, and what was left of jobs that are gone; how
/// many jobs.
pub fn purge(
    journal: &mut dyn Journal,
    reader: &mut dyn Reader,
    blobs: &dyn Blobs,
    finished_before: Timestamp,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let gone = journal.purge(finished_before)?;
    clear(&gone, reader, blobs, now)
}

/// The same by a server, again and again: what is cheaper to remove a little later stays until then.
pub fn expire(
    journal: &mut dyn Journal,
    reader: &mut dyn Reader,
    blobs: &dyn Blobs,
    finished_before: Timestamp,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let gone = journal.expire(finished_before)?;
    clear(&gone, reader, blobs, now)
}

fn clear(
    gone: &[JobId],
    reader: &mut dyn Reader,
    blobs: &dyn Blobs,
    now: Timestamp,
) -> Result<u64, StoreError> {
    blobs.remove_all(gone);
    sweep(reader, blobs, now)?;
    Ok(gone.len() as u64)
}

/// Removes one job, whatever its state; whether there was such a one.
pub fn remove(journal: &mut dyn Journal, blobs: &dyn Blobs, job: &str) -> Result<bool, StoreError> {
    let gone = journal.remove(job)?;
    if gone {
        blobs.remove(job);
    }
    Ok(gone)
}

/// What is of no job, if it is old.
fn sweep(reader: &mut dyn Reader, blobs: &dyn Blobs, now: Timestamp) -> Result<(), StoreError> {
    let moment = UNIX_EPOCH + Duration::from_millis(now.0).saturating_sub(ORPHANED_AFTER);
    for job in blobs.unchanged_since(moment) {
        if !is_known(reader, &job)? {
            blobs.remove(&job);
        }
    }
    Ok(())
}

/// One whose row cannot be read is there all the same.
fn is_known(reader: &mut dyn Reader, job: &str) -> Result<bool, StoreError> {
    match reader.row(job) {
        Err(StoreError::Corrupt { job: Some(_), .. }) => Ok(true),
        row => Ok(row?.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use steadfast_store::{Folder, FolderBlobs, SqliteStore};

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn touched(folder: &std::path::Path, before: Duration) {
        fs::create_dir_all(folder).unwrap();
        let at = UNIX_EPOCH + Duration::from_millis(NOW.0) - before;
        let times = fs::FileTimes::new().set_modified(at);
        fs::File::open(folder).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn a_folder_of_no_job_goes_only_when_it_is_old() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::new(root.path().to_owned());
        let open = || SqliteStore::open(&folder.database()).unwrap();
        touched(&folder.files("new"), Duration::from_mins(59));
        touched(&folder.files("old"), Duration::from_hours(25));
        touched(&folder.logs("old"), Duration::from_hours(25));
        assert_eq!(
            purge(&mut open(), &mut open(), &FolderBlobs::new(&folder), NOW, NOW).unwrap(),
            0
        );
        assert!(folder.files("new").exists());
        assert!(!folder.files("old").exists() && !folder.logs("old").exists());
    }
}
