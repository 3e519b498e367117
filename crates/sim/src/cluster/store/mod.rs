//! The store of a simulated cluster: what [`Journal`](steadfast_store::Journal) promises, kept in memory, with the faults that a disk or
//! a database has.
//!
//! It is a model, held to the same words as the others: a group commits whole or not at all, a write is refused alone, owners have epochs,
//! shards have owners. As a data folder it has one owner, `shard-0`; shared, it has rows of servers and shards as `PostgreSQL` has.
//! Nothing here knows what is checked.

mod journal;
mod reader;
mod rows;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::time::Timestamp;
use steadfast_store::{OwnedShards, Owner, Snapshot, Stored, Write};

use super::clock::WorldTime;
pub(crate) use rows::FORMAT;

/// What a commit meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitFault {
    /// The process ends before anything is written.
    CrashBefore,
    /// It ends in the middle: what there is of the group is cut off when the store is opened again.
    CrashTorn,
    /// It ends after the group is durable, and before anybody is told.
    CrashAfter,
    /// The sync fails, and whether the group is kept is known after a restart.
    SyncFails { kept: bool },
    /// There is no room, once.
    Full,
    /// Another process has it locked, once.
    Busy,
    /// The database cannot be reached, once.
    Unavailable,
    /// The answer is lost. The transaction is committed, or never will be, or may be later.
    Unknown(Fate),
}

/// Of a transaction whose answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Committed,
    Lost,
    /// It is still on its way, until it arrives or its owner's epoch has risen.
    UnderWay,
}

/// What became of it that others can see, in order.
#[derive(Clone, Debug)]
pub(crate) enum Observed {
    Committed(Committed),
    /// From now on the owner writes in this epoch.
    Epoch {
        owner: Arc<str>,
        epoch: u64,
    },
    /// From now on the shard is this owner's.
    Shard {
        shard: u16,
        owner: Arc<str>,
    },
    /// Nothing was decided about the jobs of this scope from one moment to another.
    Fault(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) struct Committed {
    pub(crate) server: usize,
    pub(crate) owner: Owner,
    pub(crate) job: JobId,
    pub(crate) records: Vec<RecordedEvent>,
    pub(crate) key: Option<steadfast_store::IdempotencyKey>,
    pub(crate) snapshot: Option<Snapshot>,
    pub(crate) wake_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Kept {
    number: u64,
    /// Its owner is that of its shard.
    stored: Stored,
    log: Vec<RecordedEvent>,
}

/// A server's row, or the one owner of a data folder.
#[derive(Clone, Debug, Default)]
struct OwnerRow {
    epoch: u64,
    /// None: it has ended.
    incarnation: Option<String>,
    /// In microseconds.
    until: i64,
    renewed_at: Timestamp,
}

#[derive(Clone, Debug, Default)]
struct ShardRow {
    owner: Option<Arc<str>>,
    term: u64,
}

/// What is durable.
#[derive(Clone, Debug, Default)]
pub(crate) struct Database {
    jobs: BTreeMap<JobId, Kept>,
    keys: BTreeMap<String, (JobId, String)>,
    owners: BTreeMap<Arc<str>, OwnerRow>,
    /// None: a data folder.
    shards: Vec<ShardRow>,
    /// By scope and end.
    gaps: BTreeMap<(String, Timestamp), Timestamp>,
    last_number: u64,
    last_incarnation: u64,
    /// When a server last said that it is alive: a data folder's lock file.
    pub(crate) alive_at: Option<Timestamp>,
    pub(crate) inputs: BTreeMap<i64, Input>,
    last_input: i64,
}

/// What one server asks another.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) job: JobId,
    pub(crate) asked: super::requests::Asked,
    pub(crate) answer: Option<super::requests::Answer>,
}

/// A group whose answer was lost, and that may still arrive.
#[derive(Clone, Debug)]
struct UnderWay {
    server: usize,
    owner: Owner,
    writes: Vec<Write>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) database: Database,
    pub(crate) time: WorldTime,
    /// By server: what its next groups meet.
    pub(crate) faults: BTreeMap<usize, VecDeque<CommitFault>>,
    /// These servers' processes have ended in the middle of a call.
    pub(crate) crashed: Vec<usize>,
    under_way: Vec<UnderWay>,
    pub(crate) observed: Vec<Observed>,
    /// Whether a lost transaction arrives before its epoch is raised, one after the other.
    pub(crate) arrives: super::rng::Rng,
    /// Reads that fail, once each.
    pub(crate) failing_reads: u32,
}

/// What there is after the store was put back: the logs, and who has each shard.
pub(crate) struct Restored {
    pub(crate) logs: Vec<(JobId, Vec<RecordedEvent>)>,
    pub(crate) shards: Vec<(u16, Arc<str>)>,
}

/// The store. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct SimStore(Arc<Mutex<Shared>>);

/// One server's way to it.
#[derive(Debug)]
pub(crate) struct Connection {
    store: SimStore,
    server: usize,
}

impl SimStore {
    /// `shards`: 0 for a data folder.
    pub(crate) fn new(shards: u16, time: &WorldTime, arrives: super::rng::Rng) -> Self {
        let rows = vec![ShardRow::default(); usize::from(shards)];
        let database = Database { shards: rows, ..Database::default() };
        Self(Arc::new(Mutex::new(Shared {
            database,
            time: time.clone(),
            faults: BTreeMap::new(),
            crashed: Vec::new(),
            under_way: Vec::new(),
            observed: Vec::new(),
            arrives,
            failing_reads: 0,
        })))
    }

    pub(crate) fn held(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn connect(&self, server: usize) -> Connection {
        Connection { store: self.clone(), server }
    }

    /// Everything is as it was then, but for what the clock has moved on.
    pub(crate) fn restore(&self, backup: Database) -> Restored {
        let mut shared = self.held();
        shared.under_way.clear();
        shared.observed.clear();
        shared.database = backup;
        let jobs = shared.database.jobs.iter();
        let logs = jobs.map(|(id, kept)| (id.clone(), kept.log.clone())).collect();
        let shards = (0..).zip(&shared.database.shards);
        let shards = shards.filter_map(|(n, row)| Some((n, row.owner.clone()?))).collect();
        Restored { logs, shards }
    }

    /// Lost transactions that have not been fenced arrive.
    pub(crate) fn arrive(&self) {
        let mut shared = self.held();
        for UnderWay { server, owner, writes } in std::mem::take(&mut shared.under_way) {
            shared.observed.push(Observed::Fault("commit arrived late"));
            let _ = shared.write_all(server, &owner, &writes);
        }
    }
}

impl Database {
    pub(crate) fn is_shared(&self) -> bool {
        !self.shards.is_empty()
    }

    pub(crate) fn shard_count(&self) -> u16 {
        self.shards.len() as u16
    }

    pub(crate) fn shard_of(&self, job: &str) -> u16 {
        OwnedShards::of(self.shards.len() as u16).shard_of(job)
    }

    /// Who may write a job, whether it is there or not.
    fn owner_of(&self, job: &str) -> Option<Arc<str>> {
        if self.is_shared() {
            self.shards[usize::from(self.shard_of(job))].owner.clone()
        } else {
            Some(Owner::SHARD.into())
        }
    }

    pub(crate) fn is_owned(&self, job: &str, owner: &str) -> bool {
        self.owner_of(job).as_deref() == Some(owner)
    }

    pub(crate) fn log(&self, job: &str) -> &[RecordedEvent] {
        self.jobs.get(job).map_or(&[], |kept| &kept.log)
    }

    pub(crate) fn stored(&self, job: &str) -> Option<Stored> {
        let kept = self.jobs.get(job)?;
        let owner = self.owner_of(job).map(|owner| owner.to_string()).unwrap_or_default();
        Some(Stored { owner, ..kept.stored.clone() })
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Stored> {
        self.jobs.values().map(|kept| &kept.stored)
    }

    pub(crate) fn key(&self, key: &str) -> Option<&(JobId, String)> {
        self.keys.get(key)
    }

    pub(crate) fn ask(&mut self, job: JobId, asked: super::requests::Asked) -> i64 {
        self.last_input += 1;
        self.inputs.insert(self.last_input, Input { job, asked, answer: None });
        self.last_input
    }

    /// What is asked of an owner and not answered.
    pub(crate) fn asked(&self, owner: &str) -> Vec<i64> {
        let open = self.inputs.iter().filter(|(_, input)| input.answer.is_none());
        let its = open.filter(|(_, input)| self.owner_of(&input.job).as_deref() == Some(owner));
        its.map(|(id, _)| *id).collect()
    }
}
