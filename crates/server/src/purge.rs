//! Ended jobs go, with their logs, files and working folders; interrupted ones if somebody asks for it.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use steadfast_core::time::Timestamp;
use steadfast_store::{Folder, Store, StoreError};

/// A folder of no job may be of one that is being accepted: its files are there before it is, and a
/// server waits with it while its disk is full or its database locked. Older than this, it is what an
/// earlier purge or a crash has left.
const ORPHANED_AFTER: Duration = Duration::from_hours(24);

/// Removes jobs that are over and ended before a moment, and what was left of jobs that are gone; how
/// many jobs.
pub fn purge(
    store: &mut dyn Store,
    folder: &Folder,
    finished_before: Timestamp,
    now: Timestamp,
) -> Result<u64, StoreError> {
    let gone = store.purge(finished_before)?;
    for job in &gone {
        remove_folders(folder, job);
    }
    sweep(store, folder, now)?;
    Ok(gone.len() as u64)
}

/// Removes one job, whatever its state; whether there was such a one.
pub fn remove(store: &mut dyn Store, folder: &Folder, job: &str) -> Result<bool, StoreError> {
    let gone = store.remove(job)?;
    if gone {
        remove_folders(folder, job);
    }
    Ok(gone)
}

/// What cannot be removed now is an orphan that a later purge finds.
fn remove_folders(folder: &Folder, job: &str) {
    for place in [folder.logs(job), folder.files(job), folder.work(job)] {
        let _ = fs::remove_dir_all(place);
    }
}

/// Folders of no job, if they are old.
fn sweep(store: &mut dyn Store, folder: &Folder, now: Timestamp) -> Result<(), StoreError> {
    let now = UNIX_EPOCH + Duration::from_millis(now.0);
    let is_old = |changed: SystemTime| {
        now.duration_since(changed).is_ok_and(|passed| passed > ORPHANED_AFTER)
    };
    for place in [folder.logs(""), folder.files(""), folder.work("")] {
        let Ok(entries) = fs::read_dir(&place) else { continue };
        for entry in entries.flatten() {
            let changed = entry.metadata().and_then(|about| about.modified());
            let name = entry.file_name();
            if let (Some(job), true) = (name.to_str(), changed.is_ok_and(is_old))
                && !is_known(store, job)?
            {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
    Ok(())
}

/// One whose row cannot be read is there all the same.
fn is_known(store: &mut dyn Store, job: &str) -> Result<bool, StoreError> {
    match store.row(job) {
        Err(StoreError::Corrupt { job: Some(_), .. }) => Ok(true),
        row => Ok(row?.is_some()),
    }
}

#[cfg(test)]
mod tests {
    use steadfast_store::SqliteStore;

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
        let mut store = SqliteStore::open(&folder.database()).unwrap();
        touched(&folder.files("new"), Duration::from_mins(59));
        touched(&folder.files("old"), Duration::from_hours(25));
        touched(&folder.logs("old"), Duration::from_hours(25));
        assert_eq!(purge(&mut store, &folder, NOW, NOW).unwrap(), 0);
        assert!(folder.files("new").exists());
        assert!(!folder.files("old").exists() && !folder.logs("old").exists());
    }
}
