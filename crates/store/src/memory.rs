//! A store that is gone with its process, for tests and rehearsals.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use steadfast_core::event::{JobId, Recorded};
use steadfast_core::time::Timestamp;

use crate::cursor::Cursor;
use crate::{
    Claimed, Filter, IdempotencyKey, Page, Refused, Row, Snapshot, Store, StoreError, Stored, Write,
};

#[derive(Debug, Default)]
pub struct MemoryStore {
    jobs: BTreeMap<JobId, Kept>,
    keys: BTreeMap<String, (JobId, String)>,
    by_time: BTreeSet<(Timestamp, JobId)>,
    due: BTreeSet<(Timestamp, JobId)>,
}

#[derive(Debug)]
struct Kept {
    stored: Stored,
    log: Vec<Recorded>,
    key: Option<String>,
}

impl MemoryStore {
    pub fn new() -> Self {
        Self::default()
    }

    fn taken(&self, key: &IdempotencyKey) -> Option<Refused> {
        let (job, digest) = self.keys.get(&key.key)?;
        Some(Refused::KeyTaken { job: job.clone(), same_body: *digest == key.digest })
    }

    fn write(&mut self, write: Write) -> Result<(), Refused> {
        if let Some(refused) = write.key.as_ref().and_then(|key| self.taken(key)) {
            return Err(refused);
        }
        let (expected, last) = (write.expected_seq, write.last_seq());
        let snapshot = write.snapshot.map(|state| Snapshot { seq: last, state });
        let due_at = write.row.due_at;
        match self.jobs.get_mut(&*write.job) {
            Some(kept) => {
                let stored = &mut kept.stored;
                if expected > 0 && write.epoch != stored.epoch {
                    return Err(Refused::Fenced { epoch: write.epoch, current: stored.epoch });
                }
                if expected != stored.seq {
                    return Err(Refused::Conflict { expected, found: stored.seq });
                }
                if let Some(due) = stored.row.due_at {
                    self.due.remove(&(due, write.job.clone()));
                }
                stored.row.state = write.row.state;
                stored.row.finished_at = write.row.finished_at;
                stored.row.due_at = write.row.due_at;
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
                let epoch = write.epoch;
                let stored = Stored { row: write.row, seq: last, epoch, owner: None, snapshot };
                let kept = Kept { stored, log: write.records, key };
                self.jobs.insert(write.job.clone(), kept);
            }
        }
        if let Some(due) = due_at {
            self.due.insert((due, write.job));
        }
        Ok(())
    }
}

impl Store for MemoryStore {
    fn commit(&mut self, writes: &[Write]) -> Result<Vec<Result<(), Refused>>, StoreError> {
        writes.iter().try_for_each(Write::check)?;
        Ok(writes.iter().map(|write| self.write(write.clone())).collect())
    }

    fn claim(&mut self, jobs: &[&str], owner: &str) -> Result<Vec<Option<Claimed>>, StoreError> {
        let claimed = jobs.iter().map(|job| {
            let Kept { stored, .. } = self.jobs.get_mut(*job)?;
            stored.epoch += 1;
            stored.owner = Some(owner.to_owned());
            Some(Claimed { epoch: stored.epoch, seq: stored.seq })
        });
        Ok(claimed.collect())
    }

    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        Ok(self.jobs.get(job).map(|kept| kept.stored.clone()))
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
        let end = cursor.map_or(Bound::Unbounded, |cursor| {
            Bound::Excluded((cursor.submitted_at, cursor.id.into()))
        });
        let older = self.by_time.range((Bound::Unbounded, end));
        let mut jobs: Vec<_> = (older.rev())
            .filter_map(|(_, id)| Some(&self.jobs.get(id)?.stored.row))
            .filter(|row| filter.matches(row))
            .take(limit.saturating_add(1))
            .cloned()
            .collect();
        let more = jobs.len() > limit;
        jobs.truncate(limit);
        let next = jobs.last().filter(|_| more).map(Cursor::after);
        Ok(Page { jobs, next, damaged: BTreeMap::new() })
    }

    fn events(&mut self, job: &str, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        let log = self.jobs.get(job).map_or(&[][..], |kept| &kept.log);
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(log.len());
        Ok(log[from..].iter().take(limit).cloned().collect())
    }

    fn due(
        &mut self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        Ok(self.due.iter().take_while(|(at, _)| *at <= until).take(limit).cloned().collect())
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let old = self.jobs.values().filter_map(|Kept { stored: Stored { row, .. }, .. }| {
            let finished_at = row.finished_at.filter(|at| row.over && *at < finished_before)?;
            Some((finished_at, row.id.clone()))
        });
        let mut old: Vec<_> = old.collect();
        old.sort();
        let gone: Vec<JobId> = old.into_iter().map(|(_, id)| id).collect();
        for id in &gone {
            self.remove(id, None)?;
        }
        Ok(gone)
    }

    fn remove(&mut self, job: &str, epoch: Option<u64>) -> Result<bool, StoreError> {
        let fits = |kept: &Kept| epoch.is_none_or(|epoch| epoch == kept.stored.epoch);
        if !self.jobs.get(job).is_some_and(fits) {
            return Ok(false);
        }
        let Some((id, Kept { stored, key, .. })) = self.jobs.remove_entry(job) else {
            return Ok(false);
        };
        self.by_time.remove(&(stored.row.submitted_at, id.clone()));
        if let Some(due) = stored.row.due_at {
            self.due.remove(&(due, id));
        }
        if let Some(key) = key {
            self.keys.remove(&key);
        }
        Ok(true)
    }

    fn damage(&mut self, _: &str) -> Result<Option<String>, StoreError> {
        Ok(None)
    }
}
