//! A store in one `SQLite` file, which several processes may have open at once.
//!
//! Nothing here assumes to be alone: a job's epoch and the end of its log are read inside the
//! transaction that writes. What a person may want to read with the `sqlite3` shell is text.

mod fault;
mod mover;
mod read;
mod schema;
mod upgrade;
mod write;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use steadfast_core::event::{JobId, Recorded};
use steadfast_core::time::Timestamp;

use crate::{Claimed, Filter, Page, Refused, Row, Store, StoreError, Stored, Write};
use fault::Fault;
use mover::Mover;
use write::Lines;

const BUSY_S: u64 = 10;

/// A purge lets others write in between.
const PURGED_AT_ONCE: usize = 200;

#[derive(Debug)]
pub struct SqliteStore {
    connection: Connection,
    path: PathBuf,
    mover: Mover,
    /// The disk has failed a write: nothing more is acknowledged.
    failed: bool,
}

impl SqliteStore {
    /// Makes the file if there is none. One that is not ours is left as it is.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut store = Self::connect(path, flags)?;
        store.attempt("opening", |connection| {
            schema::prepare(connection)?;
            schema::check_ends(connection)
        })?;
        Ok(store)
    }

    /// The file must exist. Every write is refused.
    pub fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut store = Self::connect(path, flags)?;
        store.attempt("opening", |connection| {
            schema::expect(connection)?;
            schema::check_ends(connection)
        })?;
        Ok(store)
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

    fn connect(path: &Path, flags: OpenFlags) -> Result<Self, StoreError> {
        let connect = || {
            let connection = Connection::open_with_flags(path, flags)?;
            connection.busy_timeout(Duration::from_secs(BUSY_S))?;
            connection.set_prepared_statement_cache_capacity(64);
            Ok(connection)
        };
        let connection = connect().map_err(|fault: Fault| fault.at(path, "opening"))?;
        Ok(Self { connection, path: path.to_owned(), mover: Mover::default(), failed: false })
    }

    fn attempt<T>(
        &mut self,
        doing: &'static str,
        act: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        act(&mut self.connection).map_err(|fault| fault.at(&self.path, doing))
    }

    /// One transaction, taken for writing from the start, so that what is read in it still holds
    /// when it commits.
    fn transact<T>(
        &mut self,
        doing: &'static str,
        act: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        if self.failed || self.mover.has_failed() {
            let why = "an earlier write has failed, and nothing is written after that".to_owned();
            return Err(StoreError::Io { path: self.path.clone(), doing, why });
        }
        let done = self.attempt(doing, |connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = act(&transaction)?;
            transaction.commit()?;
            Ok(done)
        });
        self.failed = done.as_ref().is_err_and(|error| matches!(error, StoreError::Io { .. }));
        done
    }
}

impl Store for SqliteStore {
    fn commit(&mut self, writes: &[Write]) -> Result<Vec<Result<(), Refused>>, StoreError> {
        writes.iter().try_for_each(Write::check)?;
        if writes.is_empty() {
            return Ok(vec![]);
        }
        // Others wait while the transaction is open, so what can be done before it is.
        let lines = writes.iter().map(write::lines).collect::<Result<Vec<_>, _>>()?;
        let answers =
            self.transact("writing", |connection| write::group(connection, writes, &lines))?;
        self.mover.written(&self.path, lines.iter().flatten().map(Lines::bytes).sum());
        Ok(answers)
    }

    fn claim(&mut self, jobs: &[&str], owner: &str) -> Result<Vec<Option<Claimed>>, StoreError> {
        self.transact("claiming jobs", |connection| {
            jobs.iter().map(|job| write::claim(connection, job, owner)).collect()
        })
    }

    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        self.attempt("reading", |connection| read::get(connection, job))
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

    fn events(&mut self, job: &str, after: u64, limit: usize) -> Result<Vec<Recorded>, StoreError> {
        self.attempt("reading", |connection| read::events(connection, job, after, limit))
    }

    fn due(
        &mut self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.attempt("reading", |connection| read::due(connection, until, limit))
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<u64, StoreError> {
        let mut gone = 0;
        loop {
            let some = self.transact("purging", |connection| {
                write::purge(connection, finished_before, PURGED_AT_ONCE)
            })?;
            gone += some as u64;
            if some < PURGED_AT_ONCE {
                return Ok(gone);
            }
        }
    }

    fn remove(&mut self, job: &str, epoch: u64) -> Result<bool, StoreError> {
        self.transact("purging", |connection| write::remove(connection, job, epoch))
    }
}
