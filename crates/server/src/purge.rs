//! Ended jobs go, with their logs, files and working folders; interrupted ones if somebody asks for it.

use std::fs;

use steadfast_core::time::Timestamp;
use steadfast_store::{Folder, SqliteStore, Store as _, StoreError};

/// Removes jobs that are over and ended before a moment; how many. What is left in the folders of jobs
/// that are not in the store any more goes too, also of an earlier purge that was cut short.
pub fn purge(
    store: &mut SqliteStore,
    folder: &Folder,
    finished_before: Timestamp,
) -> Result<u64, StoreError> {
    let purged = store.purge(finished_before)?;
    if purged > 0 {
        for place in [folder.logs(""), folder.files(""), folder.work("")] {
            let Ok(entries) = fs::read_dir(&place) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name();
                let Some(job) = name.to_str() else { continue };
                if store.row(job)?.is_none() {
                    // What cannot be removed now is tried again with the next purge.
                    let _ = fs::remove_dir_all(entry.path());
                }
            }
        }
    }
    Ok(purged)
}
