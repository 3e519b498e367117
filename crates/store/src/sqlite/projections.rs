//! What was made of jobs' events, so that they need not be read again. All of it can be made anew from the log: its table
//! is of no version, comes with the first of them, and may be dropped at any time.

use rusqlite::{Connection, OptionalExtension, params};

use super::fault::Fault;
use crate::Snapshot;
use crate::events::crc;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS projections (
    job INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    state BLOB NOT NULL,
    crc INTEGER NOT NULL
) STRICT";

fn is_there(connection: &Connection) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'projections'";
    Ok(connection.prepare_cached(sql)?.exists([])?)
}

/// Of a job that there is, with that event.
pub(super) fn put(connection: &Connection, job: &str, made: &Snapshot) -> Result<bool, Fault> {
    let Snapshot { seq, state } = made;
    connection.execute_batch(TABLE)?;
    let mut put = connection.prepare_cached(
        "INSERT INTO projections (job, seq, state, crc) \
         SELECT n, ?2, ?3, ?4 FROM jobs WHERE id = ?1 AND seq >= ?2 \
         ON CONFLICT (job) DO UPDATE SET seq = ?2, state = ?3, crc = ?4",
    )?;
    let crc = crc(*seq, *seq, state);
    Ok(put.execute(params![job, *seq as i64, state, crc])? > 0)
}

pub(super) fn get(connection: &Connection, job: &str) -> Result<Option<Snapshot>, Fault> {
    if !is_there(connection)? {
        return Ok(None);
    }
    let mut get = connection.prepare_cached(
        "SELECT seq, state, crc FROM projections WHERE job = (SELECT n FROM jobs WHERE id = ?1)",
    )?;
    let found = get.query_row([job], |row| {
        let (seq, state): (u64, Vec<u8>) = (row.get::<_, i64>(0)? as u64, row.get(1)?);
        let fits = row.get::<_, i64>(2)? == i64::from(crc(seq, seq, &state));
        Ok(fits.then_some(Snapshot { seq, state }))
    });
    Ok(found.optional()?.flatten())
}

pub(super) fn remove(connection: &Connection, job: i64) -> Result<(), Fault> {
    if is_there(connection)? {
        connection.prepare_cached("DELETE FROM projections WHERE job = ?1")?.execute([job])?;
    }
    Ok(())
}
