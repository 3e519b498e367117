//! What attempts have printed.

use std::io;
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::super::connection::Param;
use super::super::param::{Text, count};
use super::super::pool::Pool;
use super::super::weeks;
use super::PIECE;
use crate::blobs::log_times::TICK_MS;
use crate::blobs::logs::CUT_OFF;
use crate::{LogChunk, LogName, LogProgress, LogReader};

pub(super) const TABLES: [&str; 3] = ["logs", "log_pieces", "log_times"];

/// What comes at the end of a log joins its last piece while that is smaller.
const JOINED: usize = 16 << 10;

/// The parameters `$1` to `$3` of every statement here, and some more.
pub(super) fn of_log(
    pool: &Pool,
    log: &LogName,
    sql: &str,
    more: &[Param<'_>],
) -> io::Result<Vec<Row>> {
    let (job, step, name) = (Text(&log.job), Text(&log.step), Text(&log.name));
    let mut params: Vec<Param<'_>> =
        vec![(&job, Type::TEXT), (&step, Type::TEXT), (&name, Type::TEXT)];
    params.extend_from_slice(more);
    pool.with("reading or writing a log", |connection| {
        weeks::with(connection, [&*log.job], |connection| connection.read(sql, &params))
    })
}

/// May be done twice: the same bytes then come to the same place.
pub(super) fn write(
    pool: &Pool,
    log: &LogName,
    chunk: LogChunk<'_>,
    room: bool,
) -> io::Result<LogProgress> {
    let rows = of_log(
        pool,
        log,
        "SELECT length, complete FROM steadfast.write_log_v1($1, $2, $3, $4, $5, $6, $7, $8, \
         $9 * interval '1 millisecond', $10, $11)",
        &[
            (&(chunk.offset as i64), Type::INT8),
            (&chunk.bytes, Type::BYTEA),
            (&chunk.last, Type::BOOL),
            (&room, Type::BOOL),
            (&CUT_OFF.as_bytes(), Type::BYTEA),
            (&(TICK_MS as i64), Type::INT8),
            (&(PIECE as i32), Type::INT4),
            (&(JOINED as i32), Type::INT4),
        ],
    )?;
    Ok(LogProgress { length: rows[0].get::<_, i64>(0) as u64, complete: rows[0].get(1) })
}

pub(super) fn mark_partial(pool: &Pool, log: &LogName) -> io::Result<()> {
    of_log(
        pool,
        log,
        "INSERT INTO steadfast.logs (job, step, name, length, partial, cut, written_at) \
         VALUES ($1, $2, $3, 0, true, false, clock_timestamp()) \
         ON CONFLICT (job, step, name) DO UPDATE SET partial = true",
        &[],
    )?;
    Ok(())
}

pub(super) fn mark_whole(pool: &Pool, log: &LogName) -> io::Result<()> {
    of_log(
        pool,
        log,
        "UPDATE steadfast.logs SET partial = false \
         WHERE job = $1 AND step = $2 AND name = $3 AND partial",
        &[],
    )?;
    Ok(())
}

/// Its length, whether more of it is to come, and when it was written (Unix milliseconds).
fn about(pool: &Pool, log: &LogName) -> io::Result<Option<(u64, bool, u64)>> {
    let rows = of_log(
        pool,
        log,
        "SELECT length, partial, (extract(epoch FROM written_at) * 1000)::bigint \
         FROM steadfast.logs WHERE job = $1 AND step = $2 AND name = $3",
        &[],
    )?;
    Ok(rows
        .first()
        .map(|row| (row.get::<_, i64>(0) as u64, row.get(1), row.get::<_, i64>(2) as u64)))
}

pub(super) fn is_partial(pool: &Pool, log: &LogName) -> bool {
    matches!(about(pool, log), Ok(Some((_, true, _))))
}

pub(super) fn size(pool: &Pool, log: &LogName) -> io::Result<Option<u64>> {
    Ok(about(pool, log)?.map(|(length, ..)| length))
}

pub(super) fn each(
    pool: &Pool,
    job: &str,
    step: &str,
    see: &mut dyn FnMut(&str),
) -> io::Result<()> {
    let rows = pool.with("reading a log", |connection| {
        let sql = "SELECT name FROM steadfast.logs WHERE job = $1 AND step = $2";
        connection.read(sql, &[(&Text(job), Type::TEXT), (&Text(step), Type::TEXT)])
    })?;
    for row in &rows {
        see(row.get(0));
    }
    Ok(())
}

pub(super) fn times(pool: &Pool, log: &LogName) -> io::Result<Vec<(u64, u64)>> {
    let (length, _, written_ms) = about(pool, log)?.ok_or(io::ErrorKind::NotFound)?;
    let rows = of_log(
        pool,
        log,
        "SELECT start, (extract(epoch FROM at) * 1000)::bigint FROM steadfast.log_times \
         WHERE job = $1 AND step = $2 AND name = $3 ORDER BY start",
        &[],
    )?;
    let noted = |row: &Row| (row.get::<_, i64>(0) as u64, row.get::<_, i64>(1) as u64);
    Ok(match rows.is_empty() {
        false => rows.iter().map(noted).collect(),
        true if length > 0 => vec![(0, written_ms)],
        true => vec![],
    })
}

pub(super) fn open(pool: &Arc<Pool>, log: &LogName) -> io::Result<PostgresLog> {
    about(pool, log)?.ok_or(io::ErrorKind::NotFound)?;
    Ok(PostgresLog { pool: pool.clone(), log: log.clone() })
}

#[derive(Debug)]
pub(super) struct PostgresLog {
    pool: Arc<Pool>,
    log: LogName,
}

impl LogReader for PostgresLog {
    fn read(&self, offset: u64, most: usize) -> io::Result<Vec<u8>> {
        let from = i64::try_from(offset).unwrap_or(i64::MAX);
        let until = from.saturating_add(count(most));
        let rows = of_log(
            &self.pool,
            &self.log,
            "SELECT start, bytes FROM steadfast.log_pieces \
             WHERE job = $1 AND step = $2 AND name = $3 AND start > $4 - $6 AND start < $5 \
             ORDER BY start",
            &[(&from, Type::INT8), (&until, Type::INT8), (&(PIECE as i64), Type::INT8)],
        )?;
        let mut read = vec![];
        for row in &rows {
            let (start, bytes): (i64, &[u8]) = (row.get(0), row.get(1));
            let skipped = usize::try_from(from - start).unwrap_or(0).min(bytes.len());
            let bytes = &bytes[skipped..];
            read.extend_from_slice(&bytes[..bytes.len().min(most - read.len())]);
        }
        Ok(read)
    }
}
