//! Groups of decisions, owners, and what they have to go on with.

use std::collections::HashMap;
use std::sync::Arc;

use steadfast_core::defects::{Defect, is_on};
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use steadfast_store::{
    Gap, Journal, Owner, QueueEntry, Reader as _, Refused, Snapshot, StoreError, Stored, Whose,
    Write,
};

use super::{CommitFault, Committed, Connection, Fate, Kept, Observed, Shared, UnderWay};

const STORE: &str = "simulated store";

fn io(why: &str) -> StoreError {
    StoreError::Io { store: STORE.to_owned(), doing: "committing", why: why.to_owned() }
}

impl Shared {
    /// All writes of a group, or why each was refused.
    pub(super) fn write_all(
        &mut self,
        server: usize,
        owner: &Owner,
        writes: &[Write],
    ) -> Vec<Result<(), Refused>> {
        let current = self.database.owners.get(&owner.id).map(|row| row.epoch);
        if current != Some(owner.epoch) && !is_on(Defect::EpochNotCompared) {
            let current = current.unwrap_or_default();
            let fenced = Refused::Fenced { owner: owner.id.clone(), epoch: owner.epoch, current };
            return vec![Err(fenced); writes.len()];
        }
        // By job: the last number of what was refused in this group, and why.
        let mut refused: HashMap<&str, (u64, Refused)> = HashMap::new();
        let mut answers = Vec::new();
        for write in writes {
            let last = write.expected_seq + write.records.len() as u64;
            let answer = match refused.get(&*write.job) {
                Some((before, why)) if *before == write.expected_seq => Err(match why {
                    Refused::KeyTaken { .. } => {
                        Refused::Conflict { expected: write.expected_seq, found: 0 }
                    }
                    why => why.clone(),
                }),
                _ => self.write(server, owner, write),
            };
            if let Err(why) = &answer {
                refused.insert(&write.job, (last, why.clone()));
            }
            answers.push(answer);
        }
        answers
    }

    fn write(&mut self, server: usize, owner: &Owner, write: &Write) -> Result<(), Refused> {
        let database = &mut self.database;
        let (expected, last) =
            (write.expected_seq, write.expected_seq + write.records.len() as u64);
        let found = database.jobs.get(&write.job).map_or(0, |kept| kept.stored.seq);
        let whose = database.owner_of(&write.job);
        let is_compared =
            !is_on(Defect::TwoControllersOnOneShard) && !is_on(Defect::EpochNotCompared);
        if whose.as_ref() != Some(&owner.id) && is_compared {
            let owner = whose.map(|owner| owner.to_string()).unwrap_or_default();
            return Err(Refused::NotOurs { owner });
        }
        if found != expected {
            return Err(Refused::Conflict { expected, found });
        }
        if let Some(key) = &write.key {
            if let Some((job, digest)) = database.keys.get(&key.key) {
                let (job, same_body) = (job.clone(), *digest == key.digest);
                return Err(Refused::KeyTaken { job, same_body });
            }
            database.keys.insert(key.key.clone(), (write.job.clone(), key.digest.clone()));
        }
        let snapshot = write.snapshot.clone().map(|state| Snapshot { seq: last, state });
        self.observed.push(Observed::Committed(Committed {
            server,
            owner: owner.clone(),
            job: write.job.clone(),
            records: write.records.clone(),
            key: write.key.clone(),
            snapshot: snapshot.clone(),
            wake_at: write.row.wake_at,
        }));
        let database = &mut self.database;
        if let Some(kept) = database.jobs.get_mut(&write.job) {
            let row = &mut kept.stored.row;
            row.state = write.row.state;
            row.finished_at = write.row.finished_at;
            row.wake_at = write.row.wake_at;
            row.queued.clone_from(&write.row.queued);
            row.over = write.row.over;
            kept.stored.seq = last;
            kept.stored.snapshot = snapshot.or(kept.stored.snapshot.take());
            kept.log.extend(write.records.iter().cloned());
        } else {
            database.last_number += 1;
            let owner = String::new();
            let row = write.row.clone();
            let stored = Stored { row, seq: last, owner, stuck: None, snapshot };
            let kept = Kept { number: database.last_number, stored, log: write.records.clone() };
            database.jobs.insert(write.job.clone(), kept);
        }
        Ok(())
    }

    /// What a group meets now.
    fn next_fault(&mut self, server: usize, writes: &[Write]) -> Option<CommitFault> {
        if writes.is_empty() {
            return None;
        }
        self.faults.get_mut(&server)?.pop_front()
    }

    /// Keeps the time in which nobody decided about the jobs of a scope.
    pub(super) fn keep_gap(&mut self, scope: &str, since: Timestamp, at: Timestamp) {
        let database = &mut self.database;
        let is_its = |kept: &&Kept| {
            !database.is_shared() || database.shard_of(&kept.stored.row.id).to_string() == scope
        };
        let open = database.jobs.values().filter(|kept| !kept.stored.row.over).filter(is_its);
        let oldest = open.min_by_key(|kept| kept.number).map(|kept| kept.stored.row.submitted_at);
        database
            .gaps
            .retain(|(of, until), _| of != scope || oldest.is_some_and(|oldest| *until > oldest));
        let touches = |of: &str, until: Timestamp| of == scope && until >= since;
        let touched = database.gaps.iter().filter(|((of, until), _)| touches(of, *until));
        let from = touched.map(|(_, from)| *from).chain([since]).min().unwrap_or(since);
        database.gaps.retain(|(of, until), _| !touches(of, *until));
        database.gaps.insert((scope.to_owned(), at), from);
    }
}

impl Journal for Connection {
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        let mut shared = self.store.held();
        let server = self.server;
        let store = || STORE.to_owned();
        let Some(fault) = shared.next_fault(server, writes) else {
            return Ok(shared.write_all(server, owner, writes));
        };
        let name = fault.name();
        shared.observed.push(Observed::Fault(name));
        match fault {
            CommitFault::CrashBefore | CommitFault::CrashTorn => {
                shared.crashed.push(server);
                Err(io("the process has ended"))
            }
            CommitFault::CrashAfter => {
                let _ = shared.write_all(server, owner, writes);
                shared.crashed.push(server);
                Err(io("the process has ended"))
            }
            CommitFault::SyncFails { kept } => {
                if kept {
                    let _ = shared.write_all(server, owner, writes);
                }
                Err(io("fsync failed"))
            }
            CommitFault::Full => Err(StoreError::Full { store: store() }),
            CommitFault::Busy => Err(StoreError::Busy { store: store(), waited_ms: 1000 }),
            CommitFault::Unavailable => {
                Err(StoreError::Unavailable { store: store(), why: "no connection".to_owned() })
            }
            CommitFault::Unknown(fate) => {
                match fate {
                    Fate::Committed => drop(shared.write_all(server, owner, writes)),
                    Fate::Lost => {}
                    Fate::UnderWay => {
                        let (owner, writes) = (owner.clone(), writes.to_vec());
                        shared.under_way.push(UnderWay { server, owner, writes });
                    }
                }
                Err(StoreError::Unknown { store: store(), why: "the connection broke".to_owned() })
            }
        }
    }

    fn keeps_readiness(&self) -> bool {
        false
    }

    fn is_owned(&mut self, owner: &Owner, job: &str) -> Result<bool, StoreError> {
        let shared = self.store.held();
        let database = &shared.database;
        Ok(database.owner_of(job).as_ref() == Some(&owner.id)
            && database.owners.get(&owner.id).map(|row| row.epoch) == Some(owner.epoch))
    }

    fn is_kept(&mut self, write: &Write) -> Result<bool, StoreError> {
        let shared = self.store.held();
        let log = shared.database.log(&write.job);
        let from = (write.expected_seq as usize).min(log.len());
        Ok(log[from..].len() >= write.records.len() && log[from..].starts_with(&write.records))
    }

    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError> {
        let mut shared = self.store.held();
        let id: Arc<str> = owner.into();
        // Waits for a lost transaction of the owner, or fences it for ever.
        let (its, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut shared.under_way).into_iter().partition(|it| it.owner.id == id);
        shared.under_way = others;
        for UnderWay { server, owner, writes } in its {
            if shared.arrives.percent(50) {
                let _ = shared.write_all(server, &owner, &writes);
            }
        }
        // By the clock of who says so, or by the store's own.
        let began = if shared.database.is_shared() { shared.time.wall() } else { at };
        let row = shared.database.owners.entry(id.clone()).or_default();
        row.epoch = (row.epoch + 1).max(began.0 / 1000);
        let epoch = row.epoch;
        shared.observed.push(Observed::Epoch { owner: id.clone(), epoch });
        if let Some(since) = down_since.filter(|since| *since < at) {
            shared.keep_gap(owner, since, at);
        }
        Ok(Owner { id, epoch })
    }

    fn gaps(&mut self, owner: &str, job: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        let shared = self.store.held();
        let database = &shared.database;
        let scope = if database.is_shared() {
            database.shard_of(job).to_string()
        } else {
            owner.to_owned()
        };
        let gaps = database.gaps.iter().filter(|((of, until), _)| *of == scope && *until > after);
        Ok(gaps.map(|((_, until), from)| Gap { from: *from, until: *until }).collect())
    }

    fn due(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.read_fault()?;
        let due = self.of(whose, |stored| {
            let wake_at = stored.row.wake_at.filter(|at| *at <= until && stored.stuck.is_none())?;
            Some((wake_at, stored.row.id.clone()))
        });
        Ok(page(due, after.as_ref(), limit, Clone::clone))
    }

    fn queued(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        self.read_fault()?;
        let entries = self.of(whose, |stored| {
            let queued = stored.row.queued.clone()?;
            let (submitted_at, job) = (stored.row.submitted_at, stored.row.id.clone());
            Some(QueueEntry { submitted_at, job, queued })
        });
        Ok(page(entries, after.as_ref(), limit, |entry| (entry.submitted_at, entry.job.clone())))
    }

    fn hand_over(&mut self, owner: &Owner, shards: &[u16], to: &str) -> Result<(), StoreError> {
        let mut shared = self.store.held();
        if shared.database.owners.get(&owner.id).map(|row| row.epoch) == Some(owner.epoch) {
            for shard in shards {
                shared.move_shard(*shard, Some(&owner.id), to);
            }
        }
        Ok(())
    }

    fn project(&mut self, _job: &str, _projection: &Snapshot) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        let mut shared = self.store.held();
        let Some(kept) = shared.database.jobs.get_mut(job).filter(|it| !it.stored.row.over) else {
            return Ok(false);
        };
        (kept.stored.row.wake_at, kept.stored.row.queued) = (None, None);
        kept.stored.stuck = Some(why.to_owned());
        Ok(true)
    }

    fn purge(&mut self, _finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        Ok(Vec::new())
    }

    fn remove(&mut self, _job: &str) -> Result<bool, StoreError> {
        Ok(false)
    }
}

impl Connection {
    fn of<T>(&mut self, whose: Whose<'_>, wanted: impl Fn(&Stored) -> Option<T>) -> Vec<T> {
        let shared = self.store.held();
        let database = &shared.database;
        let is_its = |stored: &&Stored| {
            database.owner_of(&stored.row.id).as_deref() == Some(whose.owner)
                && whose.shards.is_none_or(|some| some.contains(&database.shard_of(&stored.row.id)))
        };
        database.jobs().filter(is_its).filter_map(wanted).collect()
    }

    fn read_fault(&mut self) -> Result<(), StoreError> {
        let mut shared = self.store.held();
        if shared.failing_reads > 0 {
            shared.failing_reads -= 1;
            shared.observed.push(Observed::Fault("read failed"));
            let why = "the connection broke".to_owned();
            return Err(StoreError::Unavailable { store: STORE.to_owned(), why });
        }
        Ok(())
    }

    /// What is stored, to be asked about.
    pub(crate) fn state(&mut self, job: &str) -> Option<steadfast_core::job::Job> {
        self.get(job).ok().flatten()?;
        steadfast_engine::state(self, job).ok()
    }
}

fn page<T>(
    mut all: Vec<T>,
    after: Option<&(Timestamp, JobId)>,
    limit: usize,
    place: impl Fn(&T) -> (Timestamp, JobId),
) -> Vec<T> {
    all.retain(|it| after.is_none_or(|after| place(it) > *after));
    all.sort_by_key(|it| place(it));
    all.truncate(limit);
    all
}

impl CommitFault {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CrashBefore => "crash before commit",
            Self::CrashTorn => "crash in mid group (torn tail)",
            Self::CrashAfter => "crash after commit, before the answer",
            Self::SyncFails { .. } => "fsync failed",
            Self::Full => "disk full",
            Self::Busy => "store locked",
            Self::Unavailable => "store unavailable at commit",
            Self::Unknown(Fate::Committed) => "commit unknown, was committed",
            Self::Unknown(Fate::Lost) => "commit unknown, was lost",
            Self::Unknown(Fate::UnderWay) => "commit unknown, still under way",
        }
    }
}
