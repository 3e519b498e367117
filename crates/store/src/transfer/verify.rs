//! Whether a job came out as it went in: its log is read back and folded, beside the source's.

use serde::de::IgnoredAny;
use steadfast_core::apply::fold;
use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::time::Timestamp;

use super::MoveError;
use super::blobs::{self, Found};
use super::copy::{Side, page, plan_of};
use crate::{Owner, StoreError, Stored};

/// `owner`: of the target's jobs. How many files and logs it has.
pub(super) fn job(
    from: &mut Side,
    to: &mut Side,
    owner: &Owner,
    job: &JobId,
) -> Result<Found, MoveError> {
    let place = to.place.clone();
    let different =
        |why: String| MoveError::Difference { job: job.clone(), place: place.clone(), why };
    // What a disk has garbled there is a difference like others.
    let of_target = |error: StoreError| match error {
        StoreError::Corrupt { job: Some(_), place, why, .. } => {
            different(format!("{place}: {why}"))
        }
        error => error.into(),
    };
    let ours = from.store.get(job)?;
    let theirs = to.store.get(job).map_err(of_target)?;
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return Err(different("it is missing".to_owned()));
    };
    if let Some(what) = rows(job, &ours, &theirs) {
        return Err(different(format!("its {what} differs")));
    }
    if from.store.key_of(job)? != to.store.key_of(job).map_err(of_target)? {
        return Err(different("its idempotency key differs".to_owned()));
    }
    let mut logs = Logs::new(&ours);
    let mut steps = vec![];
    while logs.seq < ours.seq {
        let (after, most) = (logs.seq, page(ours.seq - logs.seq));
        let events = from.store.events(job, after, most)?;
        let copied = to.store.events(job, after, most).map_err(of_target)?;
        // Pages may end elsewhere, where events are large.
        if events.is_empty() || copied.is_empty() {
            return Err(different(format!("its log ends after event {after}")));
        }
        if let (0, Some(plan)) = (after, plan_of(&events)) {
            steps = plan.steps().iter().map(|step| step.name.clone()).collect();
        }
        for (record, copied) in events.iter().zip(&copied) {
            logs.add(record, copied).map_err(different)?;
        }
    }
    logs.end(&ours).map_err(different)?;
    if !ours.row.over {
        let gaps = from.store.downtime(&ours.owner, job, logs.last_at)?;
        if to.store.gaps(&owner.id, job, logs.last_at)? != gaps {
            return Err(different("the times in which nobody decided about it differ".to_owned()));
        }
    }
    let steps = steps.iter().map(String::as_str).collect();
    let found = blobs::compare(&*from.blobs, &*to.blobs, job, &steps);
    found.map_err(|error| MoveError::Io { place: place.clone(), error })?.map_err(different)
}

/// What differs, if something does.
fn rows(job: &JobId, ours: &Stored, theirs: &Stored) -> Option<&'static str> {
    let is_its_own = |stored: &Stored| *stored.owner == **job;
    if ours.row != theirs.row {
        Some("row")
    } else if ours.seq != theirs.seq {
        Some("number of events")
    } else if ours.stuck != theirs.stuck {
        Some("mark of being stuck")
    } else if is_its_own(ours) != is_its_own(theirs) {
        Some("owner")
    } else if ours.snapshot != theirs.snapshot {
        Some("stored state")
    } else {
        None
    }
}

/// A job, or the first event that cannot follow on those before.
type Folded = Result<Option<Job>, String>;

fn next(state: &mut Folded, record: &RecordedEvent) {
    if let Ok(job) = state
        && let Err(illegal) = fold(job, record)
    {
        *state = Err(illegal.to_string());
    }
}

/// Two logs, folded side by side.
struct Logs<'a> {
    seq: u64,
    last_at: Timestamp,
    ours: Folded,
    theirs: Folded,
    stored: &'a Stored,
}

impl<'a> Logs<'a> {
    fn new(stored: &'a Stored) -> Self {
        Self { seq: 0, last_at: Timestamp(0), ours: Ok(None), theirs: Ok(None), stored }
    }

    fn add(&mut self, ours: &RecordedEvent, theirs: &RecordedEvent) -> Result<(), String> {
        if ours != theirs {
            return Err(format!("event {} differs", ours.seq));
        }
        next(&mut self.ours, ours);
        next(&mut self.theirs, theirs);
        (self.seq, self.last_at) = (theirs.seq, theirs.at);
        match &self.stored.snapshot {
            Some(snapshot) if snapshot.seq == self.seq => self.is_state(&snapshot.state),
            _ => Ok(()),
        }
    }

    /// The stored state is what the log tells up to there.
    fn is_state(&self, state: &[u8]) -> Result<(), String> {
        let Ok(Some(folded)) = &self.theirs else { return Ok(()) };
        let unlike = |why: String| format!("its stored state after event {} {why}", self.seq);
        let kept: Job<IgnoredAny> = serde_json::from_slice(state)
            .map_err(|error| unlike(format!("cannot be read: {error}")))?;
        if kept.with_plan(folded.plan.clone()) != *folded {
            return Err(unlike("is not what its log tells".to_owned()));
        }
        Ok(())
    }

    fn end(&self, stored: &Stored) -> Result<(), String> {
        if self.seq != stored.seq {
            return Err(format!("its log ends with event {}, not {}", self.seq, stored.seq));
        }
        if self.ours != self.theirs {
            return Err("its log comes to another state there".to_owned());
        }
        let Ok(Some(job)) = &self.theirs else { return Ok(()) };
        let row = &stored.row;
        let is_its = row.state == job.state()
            && row.over == job.is_over()
            && row.finished_at == job.finished_at;
        if stored.stuck.is_none() && !is_its {
            return Err("its row says something else than its log".to_owned());
        }
        Ok(())
    }
}
