//! Ends a job that no process runs.

use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, RecordedEvent, Requester};
use steadfast_core::job::Job;
use steadfast_engine::{Assignment, Live, Observer, Ownership, Placement, Slots, Work, Workers};
use steadfast_server::clock::SystemClock;

use super::{KeptClaim, Resumed, RunError, RunPlace, RunView, failed};

/// Cancels a job whose process is gone: nothing of it is started.
pub fn cancel(
    place: &RunPlace,
    claim: KeptClaim,
    job: Job,
    requested: Requester,
    view: &mut dyn RunView,
) -> Result<(), RunError> {
    let id = job.id.clone();
    let Resumed { claim, adopted, owner, .. } = Resumed::adopt(place, job, claim, view)?;
    let live = Live::start(
        claim.journal()?,
        Box::new(SystemClock),
        Placement::here(Slots::unlimited(), "cancel"),
        Ownership::alone(owner).with_patience(place.patience().0),
        |_| Idle,
        Box::new(Idle),
    );
    live.inbox().drain();
    live.inbox().adopt(adopted)?;
    live.inbox().command(&id, Input::Cancel(requested))?;
    live.stop().map_err(failed)?;
    place.forget(&claim, &id);
    Ok(())
}

/// Nothing starts while a job is cancelled, and nobody watches.
struct Idle;

impl Workers for Idle {
    fn assign(&mut self, _: Box<Work>) {}
    fn withdraw(&mut self, _: Assignment) {}
    fn settled(&mut self, _: &JobId, _: u64) {}
}

impl Observer for Idle {
    fn committed(&mut self, _: &JobId, _: Vec<RecordedEvent>) {}
}
