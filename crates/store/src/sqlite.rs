//! A store in one `SQLite` file, which several processes may have open at once.
//!
//! Nothing here assumes to be alone: the epoch of the one who writes and the end of a job's log are read
//! inside the transaction that writes. Rows of jobs are text that a person can read with the `sqlite3` shell; events are packed,
//! and shown by `steadfast history`.

mod checkpointer;
mod counts;
mod events;
mod failure;
mod fault;
mod in_place;
mod last_writes;
mod log_room;
mod owners;
mod projections;
mod read;
mod schema;
mod transfer;
mod write;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior};
use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::time::Timestamp;

use crate::events::{Written, written};
use crate::journal::is_kept;
use crate::plans::RecentShapes;
use crate::{
    Filter, Gap, JobCounts, Journal, Owner, Page, Plans, QueueEntry, Reader, Refused, Row,
    Snapshot, StoreError, Stored, Whose, Write,
};
use checkpointer::Checkpointer;
use failure::DiskFailure;
use fault::Fault;
use last_writes::LastWrites;

pub(crate) use in_place::{InPlace, log_of};

/// The mode of the database.
const OWN: u32 = 0o600;

/// How long a lock of another process is waited for, unless the one who opens says otherwise.
const BUSY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    mover: Checkpointer,
    /// The disk has failed a write: nothing more is acknowledged.
    failure: DiskFailure,
    busy: Duration,
    /// Of a store that may write.
    in_place: Option<InPlace>,
    plans: Plans,
    shapes: RecentShapes,
    last_writes: LastWrites,
}

impl SqliteStore {
    /// Makes the file if there is none. One that is not ours is left as it is.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_waiting(path, BUSY)
    }

    /// The same, and a write waits `busy` for a lock of another process before it answers
    /// [`StoreError::Busy`].
    pub fn open_waiting(path: &Path, busy: Duration) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        own_alone(path).map_err(|error| StoreError::CannotOpen {
            store: path.display().to_string(),
            why: error.to_string(),
        })?;
        let mut store = Self::connect(path, flags, busy)?;
        store.attempt("opening", schema::prepare)?;
        let opened = InPlace::of(path).map_err(|error| StoreError::CannotOpen {
            store: path.display().to_string(),
            why: error.to_string(),
        })?;
        store.in_place = Some(opened);
        store.mover.left(path, &in_place::log_of(path));
        Ok(store)
    }

    /// The file must exist. Every write is refused.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut store = Self::connect(path, flags, BUSY)?;
        store.attempt("opening", schema::expect)?;
        Ok(store)
    }

    /// Everything as of now to a new file, which others need not wait for. Not synced.
    pub fn copy_to(&mut self, path: &Path) -> Result<(), StoreError> {
        self.attempt("copying", |connection| {
            // It may be there if it is empty.
            let made = File::options().write(true).create_new(true).mode(OWN).open(path);
            made.map_err(|error| Fault::Unusable(format!("{}: {error}", path.display())))?;
            let no_text = || Fault::Unusable(format!("{} is no text", path.display()));
            connection.execute("VACUUM INTO ?1", [path.to_str().ok_or_else(no_text)?])?;
            Ok(())
        })
    }

    /// How large the file may become. A write that does not fit answers [`StoreError::Full`], as on
    /// a full disk. For this store only, and until it is dropped; the write-ahead log comes on top.
    pub fn limit_bytes(&mut self, bytes: u64) -> Result<(), StoreError> {
        self.attempt("limiting", |connection| {
            let page: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
            let pages = (bytes / u64::from(page.max(1))).clamp(1, u32::MAX.into());
            connection.pragma_update_and_check(None, "max_page_count", pages as i64, |_| Ok(()))?;
            Ok(())
        })
    }

    /// What is wrong with the file's structure, if anything: the first few things.
    pub(crate) fn check(&mut self) -> Result<Vec<String>, StoreError> {
        self.attempt("checking", |connection| {
            let mut statement = connection.prepare("PRAGMA quick_check(3)")?;
            let said = statement.query_map([], |row| row.get::<_, String>(0))?;
            let said = said.collect::<Result<Vec<_>, _>>()?;
            Ok(said.into_iter().filter(|said| said != "ok").collect())
        })
    }

    /// When the last job was submitted.
    pub(crate) fn newest(&mut self) -> Result<Option<Timestamp>, StoreError> {
        self.attempt("reading", |connection| {
            let newest = "SELECT submitted_at FROM jobs ORDER BY n DESC LIMIT 1";
            let newest = connection.query_row(newest, [], |row| row.get::<_, i64>(0)).optional()?;
            Ok(newest.map(|at| Timestamp(at as u64)))
        })
    }

    fn connect(path: &Path, flags: OpenFlags, busy: Duration) -> Result<Self, StoreError> {
        let connect = || {
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(busy)?;
            // A statement is planned once, whatever its values are.
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
            connection.set_prepared_statement_cache_capacity(64);
            Ok(connection)
        };
        let connection = connect().map_err(|fault: Fault| fault.at(path, "opening", busy))?;
        let path = path.to_owned();
        let failure = DiskFailure::of(&path);
        let (mover, in_place) = (Checkpointer::new(failure.clone()), None);
        let (plans, shapes) = (Plans::default(), RecentShapes::default());
        let last_writes = LastWrites::default();
        Ok(Self { connection, path, mover, failure, busy, in_place, plans, shapes, last_writes })
    }

    fn attempt<T>(
        &mut self,
        doing: &'static str,
        act: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        act(&mut self.connection).map_err(|fault| fault.at(&self.path, doing, self.busy))
    }

    /// One transaction, taken for writing from the start, so that what is read in it still holds
    /// when it commits.
    fn transact<T>(
        &mut self,
        doing: &'static str,
        act: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        if self.failure.is_set() {
            let why = "an earlier write has failed, and nothing is written after that".to_owned();
            return Err(StoreError::Io { store: self.path.display().to_string(), doing, why });
        }
        let done = self.attempt(doing, |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = act(&transaction)?;
            transaction.commit()?;
            Ok(done)
        });
        if matches!(done, Err(StoreError::Io { .. })) {
            self.failure.set();
        }
        let done = done?;
        // Begun after the commit: what is said to be kept is where a restart will look for it.
        match &self.in_place {
            Some(place) if !place.holds_after_write() => {
                Err(StoreError::Moved { store: self.path.display().to_string() })
            }
            _ => Ok(done),
        }
    }
}

/// Makes the file, or makes it its owner's alone, whatever the folder and the umask say: jobs bring private things
/// along. What `SQLite` puts beside it has the same mode. One that is not ours to change is its owner's decision.
fn own_alone(path: &Path) -> io::Result<()> {
    let file = File::options().read(true).append(true).create(true).mode(OWN).open(path)?;
    let about = file.metadata()?;
    let mode = about.permissions().mode();
    if mode & 0o777 | OWN == OWN || about.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    for end in ["", "-wal", "-shm"] {
        let beside = PathBuf::from(format!("{}{end}", path.display()));
        match fs::set_permissions(beside, fs::Permissions::from_mode(OWN)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Journal for SqliteStore {
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        writes.iter().try_for_each(Write::check)?;
        if writes.is_empty() {
            return Ok(vec![]);
        }
        // Others wait while the transaction is open, so what can be done before it is.
        let written = writes.iter().map(|write| written(write, &mut self.shapes));
        let written = written.collect::<Result<Vec<_>, _>>()?;
        let mut last_writes = std::mem::take(&mut self.last_writes);
        let answers = self.transact("writing", |connection| {
            write::group(connection, owner, writes, &written, &mut last_writes)
        })?;
        // Of a group that was not written nothing is known.
        self.last_writes = last_writes;
        self.mover.written(&self.path, written.iter().map(Written::bytes).sum());
        Ok(answers)
    }

    fn keeps_readiness(&self) -> bool {
        false
    }

    fn is_owned(&mut self, owner: &Owner, job: &str) -> Result<bool, StoreError> {
        self.attempt("reading", |connection| owners::is_owned(connection, owner, job))
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
        let taken = self.transact("taking over", |connection| {
            owners::take(connection, owner, at, down_since)
        })?;
        if owner == Owner::SHARD {
            let log = log_of(&self.path);
            let make_room = |connection: &mut _| log_room::make(connection, &log);
            self.attempt("making room in the log", make_room)?;
        }
        Ok(taken)
    }

    fn gaps(&mut self, owner: &str, job: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        self.attempt("reading", |connection| owners::gaps(connection, owner, job, after))
    }

    fn due(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.attempt("reading", |connection| {
            owners::due(connection, whose.owner, after, until, limit)
        })
    }

    fn queued(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        self.attempt("reading", |connection| owners::queued(connection, whose.owner, after, limit))
    }

    /// There is one server.
    fn hand_over(&mut self, _owner: &Owner, _shards: &[u16], _to: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn project(&mut self, job: &str, projection: &Snapshot) -> Result<bool, StoreError> {
        self.transact("writing", |connection| projections::put(connection, job, projection))
    }

    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        self.transact("marking a job", |connection| write::park(connection, job, why))
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        let (mut gone, mut next) = (vec![], Some(0));
        while let Some(after) = next {
            let some = self
                .transact("purging", |connection| write::purge(connection, finished_before, after));
            let (some, then) = match some {
                // What went before is told: its caller has files of these jobs to remove. The next purge goes on.
                Err(_) if !gone.is_empty() => return Ok(gone),
                some => some?,
            };
            gone.extend(some);
            next = then;
        }
        Ok(gone)
    }

    fn remove(&mut self, job: &str) -> Result<bool, StoreError> {
        self.transact("removing a job", |connection| write::remove(connection, job))
    }
}

impl Reader for SqliteStore {
    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        self.attempt("reading", |connection| read::get(connection, job))
    }

    fn projection(&mut self, job: &str) -> Result<Option<Snapshot>, StoreError> {
        self.attempt("reading", |connection| projections::get(connection, job))
    }

    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError> {
        self.attempt("reading", |connection| read::end(connection, job))
    }

    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError> {
        self.attempt("reading", |connection| read::key(connection, key))
    }

    fn list(
        &mut self,
        filter: &Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let cursor = cursor.map(crate::cursor::Cursor::read).transpose()?;
        self.attempt("listing", |connection| read::list(connection, filter, cursor, limit))
    }

    fn events(
        &mut self,
        job: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut plans = std::mem::take(&mut self.plans);
        let events = self.attempt("reading", |connection| {
            events::read(connection, &mut plans, job, after, limit)
        });
        self.plans = plans;
        events
    }

    fn pin(&mut self) -> Result<(), StoreError> {
        // A transaction sees the file as of its first read.
        self.attempt("reading", |connection| {
            connection
                .execute_batch("BEGIN; SELECT count(*) FROM (SELECT 1 FROM owners LIMIT 1)")?;
            Ok(())
        })
    }

    fn counts(&mut self) -> Result<JobCounts, StoreError> {
        self.attempt("reading", |connection| counts::read(connection))
    }

    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError> {
        self.attempt("reading", |connection| read::damage(connection, job))
    }
}
