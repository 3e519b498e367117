//! A store that is gone with its process, for tests and rehearsals.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::time::Timestamp;

use crate::cursor::Cursor;
use crate::journal::{Chains, is_kept};
use crate::{
    Filter, Gap, IdempotencyKey, JobCounts, Journal, Owner, Page, Plans, QueueEntry, Reader,
    Refused, Row, Snapshot, StoreError, Stored, Whose, Write,
};

#[derive(Debug, Default)]
pub struct MemoryStore {
    jobs: BTreeMap<JobId, Kept>,
    keys: BTreeMap<String, (JobId, String)>,
    by_time: BTreeSet<(Timestamp, JobId)>,
    /// In the order in which they were accepted.
    by_number: BTreeMap<i64, JobId>,
    /// By owner.
    due: BTreeSet<(String, Timestamp, JobId)>,
    owners: BTreeMap<Arc<str>, u64>,
    gaps: BTreeMap<(String, Timestamp), Timestamp>,
    plans: Plans,
}

#[derive(Debug)]
struct Kept {
    number: i64,
    stored: Stored,
    log: Vec<RecordedEvent>,
    key: Option<String>,
    projection: Option<Snapshot>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    fn taken(&self, key: &IdempotencyKey) -> Option<Refused> {
        let (job, digest) = self.keys.get(&key.key)?;
        Some(Refused::KeyTaken { job: job.clone(), same_body: *digest == key.digest })
    }

    fn write(&mut self, owner: &Owner, mut write: Write) -> Result<(), Refused> {
        if let Some(refused) = write.key.as_ref().and_then(|key| self.taken(key)) {
            return Err(refused);
        }
        let (expected, last) = (write.expected_seq, write.last_seq());
        let snapshot = write.snapshot.map(|state| Snapshot { seq: last, state });
        let wake_at = write.row.wake_at;
        if let Some(RecordedEvent { event: Event::JobAccepted(accepted), .. }) =
            write.records.first_mut()
        {
            accepted.plan = self.plans.shared(accepted.plan.clone());
        }
        match self.jobs.get_mut(&*write.job) {
            Some(kept) => {
                let stored = &mut kept.stored;
                if expected > 0 && *stored.owner != *owner.id {
                    return Err(Refused::NotOurs { owner: stored.owner.clone() });
                }
                if expected != stored.seq {
                    return Err(Refused::Conflict { expected, found: stored.seq });
                }
                if let Some(due) = stored.row.wake_at {
                    self.due.remove(&(stored.owner.clone(), due, write.job.clone()));
                }
                stored.row.state = write.row.state;
                stored.row.finished_at = write.row.finished_at;
                stored.row.wake_at = write.row.wake_at;
                stored.row.queued = write.row.queued;
                stored.row.over = write.row.over;
                stored.seq = last;
                stored.snapshot = snapshot.or(stored.snapshot.take());
                kept.log.extend(write.records);
            }
            None if expected > 0 => return Err(Refused::Conflict { expected, found: 0 }),
            None => {
                self.by_time.insert((write.row.submitted_at, write.job.clone()));
                let key = write.key.map(|key| {
                    self.keys.insert(key.key.clone(), (write.job.clone(), key.digest));
                    key.key
                });
                let owner = owner.id.to_string();
                let stored = Stored { row: write.row, seq: last, owner, stuck: None, snapshot };
                let number = self.by_number.last_key_value().map_or(1, |(last, _)| last + 1);
                self.by_number.insert(number, write.job.clone());
                let kept = Kept { number, stored, log: write.records, key, projection: None };
                self.jobs.insert(write.job.clone(), kept);
            }
        }
        if let Some(due) = wake_at {
            self.due.insert((owner.id.to_string(), due, write.job));
        }
        Ok(())
    }
}

impl Journal for MemoryStore {
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        writes.iter().try_for_each(Write::check)?;
        let current = self.owners.get(&owner.id).copied();
        if current != Some(owner.epoch) {
            let current = current.unwrap_or_default();
            let fenced = Refused::Fenced { owner: owner.id.clone(), epoch: owner.epoch, current };
            return Ok(vec![Err(fenced); writes.len()]);
        }
        let mut chains = Chains::default();
        let answers = writes.iter().map(|write| match chains.refused(write) {
            Some(refused) => Err(refused),
            None => {
                let answer = self.write(owner, write.clone());
                chains.answered(write, &answer);
                answer
            }
        });
        Ok(answers.collect())
    }

    fn keeps_readiness(&self) -> bool {
        false
    }

    fn is_owned(&mut self, owner: &Owner, job: &str) -> Result<bool, StoreError> {
        let has = self.jobs.get(job).is_none_or(|kept| *kept.stored.owner == *owner.id);
        Ok(has && self.owners.get(&owner.id) == Some(&owner.epoch))
    }

    fn is_kept(&mut self, write: &Write) -> Result<bool, StoreError> {
        is_kept(self, write)
    }

    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError> {
        let before = self.owners.get(owner).copied().unwrap_or_default();
        let epoch = (before + 1).max(at.0 / 1000);
        self.owners.insert(owner.into(), epoch);
        if let Some(down_since) = down_since.filter(|since| *since < at) {
            let jobs = self.by_number.values().filter_map(|id| Some(&self.jobs.get(id)?.stored));
            let mut open = jobs.filter(|stored| stored.owner == owner && !stored.row.over);
            let oldest = open.next().map(|stored| stored.row.submitted_at);
            self.gaps.retain(|(of, until), _| of != owner || oldest.is_some_and(|at| *until > at));
            let touches = |of: &str, until: Timestamp| of == owner && until >= down_since;
            let touched = self.gaps.iter().filter(|((of, until), _)| touches(of, *until));
            let since = touched.map(|(_, since)| *since).chain([down_since]).min();
            self.gaps.retain(|(of, until), _| !touches(of, *until));
            self.gaps.insert((owner.to_owned(), at), since.unwrap_or(down_since));
        }
        Ok(Owner { id: owner.into(), epoch })
    }

    fn gaps(&mut self, owner: &str, _job: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        let gaps = self.gaps.iter().filter(|((of, until), _)| of == owner && *until > after);
        Ok(gaps.map(|((_, until), from)| Gap { from: *from, until: *until }).collect())
    }

    fn due(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        let due = self.due.iter().filter(|(of, at, _)| of == whose.owner && *at <= until);
        let due = due.map(|(_, at, job)| (*at, job.clone()));
        Ok(due.filter(|job| after.as_ref().is_none_or(|after| job > after)).take(limit).collect())
    }

    fn queued(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let jobs = self.by_time.range((from, Bound::Unbounded));
        let jobs = jobs.filter_map(|(_, id)| Some(&self.jobs.get(id)?.stored));
        let queued = jobs.filter(|stored| stored.owner == whose.owner).filter_map(|stored| {
            let Row { id, submitted_at, queued, .. } = &stored.row;
            let (submitted_at, job) = (*submitted_at, id.clone());
            Some(QueueEntry { submitted_at, job, queued: queued.clone()? })
        });
        Ok(queued.take(limit).collect())
    }

    fn hand_over(&mut self, _owner: &Owner, _shards: &[u16], _to: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn project(&mut self, job: &str, projection: &Snapshot) -> Result<bool, StoreError> {
        let Some(kept) = self.jobs.get_mut(job) else { return Ok(false) };
        kept.projection = Some(projection.clone());
        Ok(true)
    }

    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        let Some(kept) = self.jobs.get_mut(job).filter(|kept| !kept.stored.row.over) else {
            return Ok(false);
        };
        if let Some(due) = kept.stored.row.wake_at.take() {
            let stored = &kept.stored;
            self.due.remove(&(stored.owner.clone(), due, stored.row.id.clone()));
        }
        kept.stored.row.queued = None;
        kept.stored.stuck = Some(why.to_owned());
        Ok(true)
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let in_order =
            self.by_number.values().filter_map(|id| Some(&self.jobs.get(id)?.stored.row));
        let is_old =
            |row: &&Row| row.over && row.finished_at.is_some_and(|at| at < finished_before);
        let gone: Vec<JobId> = in_order.filter(is_old).map(|row| row.id.clone()).collect();
        for id in &gone {
            self.remove(id)?;
        }
        Ok(gone)
    }

    fn remove(&mut self, job: &str) -> Result<bool, StoreError> {
        let Some((id, Kept { number, stored, key, .. })) = self.jobs.remove_entry(job) else {
            return Ok(false);
        };
        self.by_time.remove(&(stored.row.submitted_at, id.clone()));
        self.by_number.remove(&number);
        if let Some(due) = stored.row.wake_at {
            self.due.remove(&(stored.owner, due, id));
        }
        if let Some(key) = key {
            self.keys.remove(&key);
        }
        // A job of `run` is its own owner.
        self.owners.remove(job);
        self.gaps.retain(|(of, _), _| of != job);
        Ok(true)
    }
}

impl Reader for MemoryStore {
    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        Ok(self.jobs.get(job).map(|kept| kept.stored.clone()))
    }

    fn projection(&mut self, job: &str) -> Result<Option<Snapshot>, StoreError> {
        Ok(self.jobs.get(job).and_then(|kept| kept.projection.clone()))
    }

    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError> {
        Ok(self.jobs.get(job).map(|Kept { stored, .. }| (stored.row.clone(), stored.seq)))
    }

    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError> {
        Ok(self.keys.get(key).cloned())
    }

    fn list(
        &mut self,
        filter: &Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let cursor = cursor.map(Cursor::read).transpose()?;
        let end = cursor.map_or(Bound::Unbounded, |Cursor(number)| Bound::Excluded(number));
        let older = self.by_number.range((Bound::Unbounded, end));
        let mut jobs: Vec<_> = (older.rev())
            .filter_map(|(number, id)| Some((*number, &self.jobs.get(id)?.stored.row)))
            .filter(|(_, row)| filter.matches(row))
            .take(limit.saturating_add(1))
            .collect();
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().filter(|_| more).map(|(number, _)| Cursor(*number).to_string());
        let jobs = jobs.into_iter().map(|(_, row)| row.clone()).collect();
        Ok(Page { jobs, next, damaged: BTreeMap::new() })
    }

    fn events(
        &mut self,
        job: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let log = self.jobs.get(job).map_or(&[][..], |kept| &kept.log);
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(log.len());
        Ok(log[from..].iter().take(limit).cloned().collect())
    }

    fn pin(&mut self) -> Result<(), StoreError> {
        // It has no other user.
        Ok(())
    }

    fn counts(&mut self) -> Result<JobCounts, StoreError> {
        let jobs = self.jobs.values().map(|kept| &kept.stored);
        let of_servers = jobs.filter(|stored| *stored.owner != *stored.row.id);
        Ok(JobCounts::of(of_servers.map(|stored| match stored.stuck {
            Some(_) => (JobCounts::STUCK, 1),
            None => (stored.row.state.name(), 1),
        })))
    }

    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError> {
        Ok(self.jobs.get(job).and_then(|kept| kept.stored.stuck.clone()))
    }
}
