//! Copies jobs, a group at a time, and has each verified.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use steadfast_core::apply::fold;
use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_core::plan::Plan;
use steadfast_core::readiness::open_items;
use steadfast_core::time::Timestamp;

use super::{MovableBlobs, MoveError, MoveProgress, Moved, Transfer, blobs, verify};
use crate::{Owner, StoreError, Stored, Write};

/// Jobs that are written, and then verified, together. A page of a job's events has about a megabyte at most.
const JOBS_AT_ONCE: usize = 64;
/// More in a group than this, and it is written before the next is read.
const EVENTS_AT_ONCE: usize = 2000;
/// Events that are read at once.
const PAGE: usize = 1000;

/// One of the two stores.
pub(super) struct Side {
    pub(super) store: Box<dyn Transfer>,
    pub(super) blobs: Arc<dyn MovableBlobs>,
    pub(super) place: String,
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Why a job is not copied.
enum NotCopied {
    /// It is an open job of `run`.
    Left,
    Unreadable(String),
    Failed(MoveError),
}

impl<E: Into<MoveError>> From<E> for NotCopied {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Of the source: damage of one job is that job's.
fn of_job(error: StoreError) -> NotCopied {
    match error {
        StoreError::Corrupt { job: Some(_), place, why, .. } => {
            NotCopied::Unreadable(format!("{place}: {why}"))
        }
        error => NotCopied::Failed(error.into()),
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TransferRules {
    /// The target may have some already.
    pub(super) is_resumed: bool,
    /// Jobs that cannot be read are left behind.
    pub(super) skip_stuck: bool,
}

pub(super) struct JobTransfer {
    from: Side,
    to: Side,
    /// Of all jobs but those of `run`.
    owner: Owner,
    rules: TransferRules,
    moved: Moved,
    /// What is to be written next, all of it by this owner.
    group: Vec<Write>,
    group_owner: Owner,
}

impl JobTransfer {
    pub(super) fn new(from: Side, to: Side, owner: Owner, rules: TransferRules) -> Self {
        let (moved, group, group_owner) = (Moved::default(), vec![], owner.clone());
        Self { from, to, owner, rules, moved, group, group_owner }
    }

    /// `step` is called after each group; its error ends the move.
    pub(super) fn all(
        &mut self,
        step: &mut dyn FnMut(MoveProgress) -> Result<(), MoveError>,
    ) -> Result<Moved, MoveError> {
        let of = self.from.store.count_all()?;
        let (mut after, mut done) = (0, 0);
        step(MoveProgress { jobs: 0, of })?;
        loop {
            let jobs = self.from.store.numbered(after, JOBS_AT_ONCE)?;
            let Some((last, _)) = jobs.last() else { break };
            after = *last;
            self.some(jobs.iter().map(|(_, job)| job))?;
            done += jobs.len() as u64;
            step(MoveProgress { jobs: done, of: of.max(done) })?;
        }
        self.remove_others()?;
        Ok(std::mem::take(&mut self.moved))
    }

    fn some<'a>(&mut self, jobs: impl Iterator<Item = &'a JobId>) -> Result<(), MoveError> {
        let mut copied = vec![];
        for job in jobs {
            match self.copy(job) {
                Ok(stored) => copied.push(stored),
                Err(NotCopied::Left) => self.moved.left.push(job.clone()),
                Err(NotCopied::Failed(error)) => return Err(error),
                Err(NotCopied::Unreadable(why)) if !self.rules.skip_stuck => {
                    return Err(MoveError::Unreadable { job: job.clone(), why });
                }
                Err(NotCopied::Unreadable(_)) => {
                    self.commit()?;
                    self.to.store.remove(job)?;
                    self.to.blobs.remove(job);
                    self.moved.skipped.push(job.clone());
                }
            }
        }
        self.commit()?;
        self.settle(&copied)?;
        for (stored, _) in copied {
            let found = verify::job(&mut self.from, &mut self.to, &self.owner, &stored.row.id)?;
            self.moved.files += found.files;
            self.moved.logs += found.logs;
            self.moved.jobs += 1;
            self.moved.open += u64::from(!stored.row.over);
        }
        Ok(())
    }

    /// What of the job is not at the target yet goes into the group, and its files and logs to their place. When its last event was.
    fn copy(&mut self, job: &JobId) -> Result<(Stored, Timestamp), NotCopied> {
        let Some(stored) = self.from.store.get(job).map_err(of_job)? else {
            return Err(self.difference(job, "it went from the source meanwhile").into());
        };
        let is_its_own = *stored.owner == **job;
        if is_its_own && !stored.row.over {
            return Err(NotCopied::Left);
        }
        let there = if self.rules.is_resumed { self.to.store.row(job)? } else { None };
        let has = there.as_ref().map_or(0, |(_, seq)| *seq);
        if has > stored.seq {
            return Err(self.difference(job, "it has more events there").into());
        }
        let owner = if is_its_own && has < stored.seq {
            self.to.store.take(job, Timestamp(0), None)?
        } else {
            self.owner.clone()
        };
        let mut log = Log::new(&stored, self.to.store.keeps_readiness());
        while log.seq < stored.seq {
            let page =
                self.from.store.events(job, log.seq, log.limit(stored.seq)).map_err(of_job)?;
            if page.is_empty() {
                let why = format!("event {} of it is missing", log.seq + 1);
                return Err(NotCopied::Unreadable(why));
            }
            if let (0, Some(plan)) = (log.seq, plan_of(&page)) {
                let steps = plan.steps().iter().map(|step| step.name.as_str());
                let steps: BTreeSet<&str> = steps.collect();
                let (from, to) = (&*self.from.blobs, &*self.to.blobs);
                blobs::copy(from, to, job, &steps, self.rules.is_resumed)
                    .map_err(|error| self.io(error))?;
            }
            let before = log.seq;
            log.add(&page);
            if log.seq > has {
                let skipped = has.saturating_sub(before) as usize;
                let key =
                    if before + skipped as u64 == 0 { self.from.store.key_of(job)? } else { None };
                let write = Write {
                    job: job.clone(),
                    expected_seq: before + skipped as u64,
                    records: page[skipped..].to_vec(),
                    row: stored.row.clone(),
                    snapshot: log.snapshot(&stored),
                    key,
                    readiness: log.readiness(&stored),
                };
                self.add(&owner, write)?;
            }
        }
        // Something was written at the source since that is no event.
        if has == stored.seq && there.is_some_and(|(row, _)| row != stored.row) {
            let write = Write {
                job: job.clone(),
                expected_seq: has,
                records: vec![],
                row: stored.row.clone(),
                snapshot: None,
                key: None,
                readiness: log.readiness(&stored),
            };
            self.add(&owner, write)?;
        }
        Ok((stored, log.last_at))
    }

    fn add(&mut self, owner: &Owner, write: Write) -> Result<(), MoveError> {
        let events: usize = self.group.iter().map(|write| write.records.len()).sum();
        if *owner != self.group_owner || events >= EVENTS_AT_ONCE {
            self.commit()?;
            self.group_owner = owner.clone();
        }
        self.group.push(write);
        Ok(())
    }

    fn commit(&mut self) -> Result<(), MoveError> {
        let group = std::mem::take(&mut self.group);
        let answers = self.to.store.commit(&self.group_owner, &group)?;
        let refused = group.iter().zip(answers).find_map(|(write, answer)| {
            answer.err().map(|refused| self.difference(&write.job, &refused.to_string()))
        });
        refused.map_or(Ok(()), Err)
    }

    /// What is not part of a write, of jobs and when their last events were.
    fn settle(&mut self, copied: &[(Stored, Timestamp)]) -> Result<(), MoveError> {
        let mut downtime = vec![];
        for (stored, last_at) in copied.iter().filter(|(stored, _)| !stored.row.over) {
            let job = &stored.row.id;
            if let Some(why) = &stored.stuck {
                self.to.store.park(job, why)?;
            }
            let gaps = self.from.store.downtime(&stored.owner, job, *last_at)?;
            if self.to.store.gaps(&self.owner.id, job, *last_at)? != gaps {
                downtime.push((job.clone(), gaps));
            }
        }
        if !downtime.is_empty() {
            self.to.store.keep_downtime(&downtime)?;
        }
        Ok(())
    }

    /// Jobs that went from the source after an earlier attempt to move it.
    fn remove_others(&mut self) -> Result<(), MoveError> {
        if self.to.store.count_all()? == self.moved.jobs {
            return Ok(());
        }
        let mut after = 0;
        loop {
            let jobs = self.to.store.numbered(after, JOBS_AT_ONCE)?;
            let Some((last, _)) = jobs.last() else { break };
            after = *last;
            for (_, job) in &jobs {
                let is_left = self.moved.left.contains(job) || self.moved.skipped.contains(job);
                if is_left || self.from.store.row(job)?.is_none() {
                    self.to.store.remove(job)?;
                    self.to.blobs.remove(job);
                }
            }
        }
        if self.to.store.count_all()? == self.moved.jobs {
            return Ok(());
        }
        let why = format!("it has not the {} jobs that were moved", self.moved.jobs);
        Err(MoveError::Wrong { place: self.to.place.clone(), why })
    }

    fn difference(&self, job: &JobId, why: &str) -> MoveError {
        let (job, place) = (job.clone(), self.to.place.clone());
        MoveError::Difference { job, place, why: why.to_owned() }
    }

    fn io(&self, error: std::io::Error) -> MoveError {
        MoveError::Io { place: self.to.place.clone(), error }
    }
}

/// How many events to read where so many are left.
pub(super) fn page(left: u64) -> usize {
    PAGE.min(usize::try_from(left).unwrap_or(PAGE))
}

/// Of the first page of a log.
pub(super) fn plan_of(page: &[RecordedEvent]) -> Option<&Arc<Plan>> {
    match &page.first()?.event {
        Event::JobAccepted(accepted) => Some(&accepted.plan),
        _ => None,
    }
}

/// How far a job's log is read.
struct Log {
    seq: u64,
    last_at: Timestamp,
    /// Where a page must end, because the stored state is of that moment.
    snapshot_seq: u64,
    /// The target keeps what may start of it, and it could be folded so far.
    is_folded: bool,
    state: Option<Job>,
}

impl Log {
    fn new(stored: &Stored, keeps_readiness: bool) -> Self {
        let snapshot_seq = stored.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
        let is_folded = keeps_readiness && !stored.row.over;
        Self { seq: 0, last_at: Timestamp(0), snapshot_seq, is_folded, state: None }
    }

    /// Of the next page: no more than there are, so that nobody looks for more.
    fn limit(&self, last: u64) -> usize {
        let end = if self.snapshot_seq > self.seq { self.snapshot_seq.min(last) } else { last };
        page(end - self.seq)
    }

    fn add(&mut self, page: &[RecordedEvent]) {
        for record in page {
            (self.seq, self.last_at) = (record.seq, record.at);
            // One that contradicts itself will be found when it is to go on.
            self.is_folded = self.is_folded && fold(&mut self.state, record).is_ok();
        }
    }

    fn snapshot(&self, stored: &Stored) -> Option<Vec<u8>> {
        let snapshot = stored.snapshot.as_ref().filter(|_| self.seq == self.snapshot_seq)?;
        Some(snapshot.state.clone())
    }

    /// At the end of the log.
    fn readiness(&self, stored: &Stored) -> Option<String> {
        let state = self.state.as_ref().filter(|_| self.is_folded && self.seq == stored.seq)?;
        Some(serde_json::to_string(&open_items(state)).expect("names and numbers are JSON"))
    }
}
