//! Whether a log is whole: a worker's report comes before its log, which then follows piece by piece. Until its last
//! piece it is partial, over restarts of the server too.

use steadfast_core::event::ItemId;
use steadfast_core::job::{Job, Phase};
use steadfast_store::{Blobs, LogName};

/// The attempt has ended, and the rest of its log has not arrived from its worker yet.
pub fn is_arriving(blobs: &dyn Blobs, job: &Job, item: ItemId, attempt: u32) -> bool {
    let step = &job.plan.step(item.step).name;
    !runs(job, item, attempt) && blobs.is_partial(&LogName::new(&job.id, step, item, attempt))
}

/// The attempt has not ended: of course its log is not whole.
pub(crate) fn runs(job: &Job, item: ItemId, attempt: u32) -> bool {
    job.live(item)
        .is_some_and(|state| state.phase == Phase::Running && state.history.attempts == attempt)
}
