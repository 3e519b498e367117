//! The tables, whose file this is, and whether it can be used.

use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior};

use super::BUSY;
use super::fault::Fault;

/// "Stdf", in the header of the file.
const APPLICATION_ID: i64 = 0x5374_6466;

/// Of the tables below. A file of another version is left alone: those before were never released.
pub(super) const VERSION: i64 = 7;

/// With 32 MiB in the write-ahead log, the writer moves what is left of it to the file.
pub(super) const WAL_PAGES: i64 = 8192;

/// A job's row in other tables, and in every index, has its number `n`, which is the order in which jobs were accepted. Snapshots
/// are apart from the jobs, whose rows are rewritten with every event. Labels are kept twice: with the job to be shown,
/// and by themselves to be found. By state are found the open jobs, which are few (`jobs_live`), those that ended
/// badly, and the others among all. A job that waits for a worker is in an index with all that its controller needs of
/// it.
///
/// A plan is kept once for all jobs of the same shape; `plans.jobs` counts these. Events have several in a row that were
/// written together, packed. A row's epoch is what a group of its owner is held against. A gap is a time in which an owner was down.
/// `counts` has how many jobs of servers are in each state, or `stuck`: see counts.rs.
const TABLES: &str = "
CREATE TABLE jobs (
    n INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    submitted_at INTEGER NOT NULL,
    finished_at INTEGER,
    wake_at INTEGER,
    over INTEGER NOT NULL,
    labels TEXT,
    retried_from TEXT,
    local INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    owner TEXT NOT NULL,
    key TEXT,
    key_digest TEXT,
    stuck TEXT,
    queued TEXT,
    plan INTEGER
) STRICT;

CREATE UNIQUE INDEX jobs_key ON jobs (key) WHERE key IS NOT NULL;
CREATE INDEX jobs_live ON jobs (over) WHERE over = 0;
CREATE INDEX jobs_by_name ON jobs (name);
CREATE INDEX jobs_ended_badly ON jobs (state) WHERE state IN ('failed', 'cancelled');
CREATE INDEX jobs_wake ON jobs (owner, wake_at, id) WHERE wake_at IS NOT NULL;
CREATE INDEX jobs_queued ON jobs (owner, submitted_at, id, queued) WHERE queued IS NOT NULL;
CREATE INDEX jobs_stuck ON jobs (owner) WHERE stuck IS NOT NULL;

CREATE TABLE events (
    job INTEGER NOT NULL,
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    lines ANY NOT NULL,
    crc INTEGER NOT NULL,
    PRIMARY KEY (job, last)
) STRICT, WITHOUT ROWID;

CREATE TABLE snapshots (
    job INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    state BLOB NOT NULL,
    crc INTEGER NOT NULL
) STRICT;

CREATE TABLE plans (
    id INTEGER PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    plan TEXT NOT NULL,
    jobs INTEGER NOT NULL
) STRICT;

CREATE TABLE labels (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    job INTEGER NOT NULL,
    PRIMARY KEY (name, value, job)
) STRICT, WITHOUT ROWID;

CREATE INDEX labels_of_job ON labels (job);

CREATE TABLE counts (
    state TEXT NOT NULL PRIMARY KEY,
    jobs INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE owners (
    id TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE gaps (
    owner TEXT NOT NULL,
    up_at INTEGER NOT NULL,
    down_since INTEGER NOT NULL,
    PRIMARY KEY (owner, up_at)
) STRICT, WITHOUT ROWID;
";

/// Of which version the file is; none: there is nothing in it yet. Asked in a transaction: another process
/// may be making it just now.
fn version(connection: &Transaction<'_>) -> Result<Option<i64>, Fault> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let application = number("application_id")?;
    let version = number("user_version")?;
    if application == APPLICATION_ID {
        return match version {
            VERSION => Ok(Some(version)),
            other => Err(Fault::Version(other)),
        };
    }
    let table = connection
        .query_row("SELECT name FROM sqlite_schema LIMIT 1", [], |row| row.get::<_, String>(0))
        .optional()?;
    match table {
        Some(table) => Err(Fault::Foreign(format!("it has a table {table} of somebody else"))),
        None if application != 0 || version != 0 => {
            Err(Fault::Foreign(format!("its application id is {application:#x}")))
        }
        None => Ok(None),
    }
}

pub(super) fn expect(connection: &mut Connection) -> Result<(), Fault> {
    match version(&connection.transaction()?)? {
        Some(_) => Ok(()),
        None => Err(Fault::Foreign("it is empty".to_owned())),
    }
}

/// Makes the tables if there are none.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), Fault> {
    let before = version(&connection.transaction()?)?;
    // Asked for only now: it writes to the file.
    let mode = write_ahead(connection)?;
    if mode != "wal" {
        let why = format!("its folder allows no write-ahead log (the journal mode is {mode})");
        return Err(Fault::Unusable(why));
    }
    // In this mode, every commit syncs.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", false)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -8 * 1024)?;
    // Jobs that go on rewrite the same pages: moved to the file less often, they are moved once.
    // More would make opening after a crash slow, as it reads the whole log.
    connection.pragma_update(None, "wal_autocheckpoint", WAL_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", 64 * 1024 * 1024)?;
    if before.is_some() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have been faster.
    if version(&transaction)?.is_none() {
        transaction.execute_batch(TABLES)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}

/// The journal mode after asking for a write-ahead log. `SQLite` does not wait here by itself when
/// others make the same file at the same moment.
#[expect(clippy::disallowed_methods, reason = "nobody says when the others are done")]
fn write_ahead(connection: &Connection) -> Result<String, Fault> {
    const PAUSE: Duration = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    loop {
        let mode =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        match mode {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && waited < BUSY =>
            {
                std::thread::sleep(PAUSE);
                waited += PAUSE;
            }
            mode => return Ok(mode?),
        }
    }
}
