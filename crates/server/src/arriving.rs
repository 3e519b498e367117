//! Whether a log is whole: a worker's report comes before its log, which then follows piece by piece.
//!
//! As long as more of a log is to come, an empty file `NAME.part` lies beside it: from its first piece, or from the
//! report that says that there is a log, to its last. So a restart of the server changes nothing about it.

use std::path::{Path, PathBuf};

use steadfast_core::event::ItemId;
use steadfast_core::job::{Job, Phase};

/// Is there while a log is not whole.
pub(crate) fn part(log: &Path) -> PathBuf {
    log.with_extension("part")
}

/// The attempt has ended, and the rest of its log has not arrived from its worker yet.
pub fn is_arriving(job: &Job, item: ItemId, attempt: u32, log: &Path) -> bool {
    let runs = job
        .live(item)
        .is_some_and(|state| state.phase == Phase::Running && state.history.attempts == attempt);
    !runs && part(log).exists()
}
