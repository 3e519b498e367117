//! Logs that were elsewhere, with what is known of them there.

use std::io;

use tokio_postgres::types::Type;

use super::super::param::Text;
use super::super::pool::Pool;
use super::PIECE;
use super::logs::of_log;
use crate::blobs::logs::CUT_OFF;
use crate::transfer::LogAbout;
use crate::{LogName, LogReader};

/// Pieces that are sent in one statement: most logs are fewer, and cost one commit.
const AT_ONCE: usize = 64;

/// Of a job, in the order of their names.
pub(super) fn all(pool: &Pool, job: &str) -> io::Result<Vec<LogAbout>> {
    let rows = pool.with("reading logs", |connection| {
        connection.read(
            "SELECT l.step, l.name, l.length, l.partial, (extract(epoch FROM l.written_at) * 1000)::bigint, \
               ARRAY(SELECT t.start FROM steadfast.log_times t \
                     WHERE t.job = l.job AND t.step = l.step AND t.name = l.name ORDER BY t.start), \
               ARRAY(SELECT (extract(epoch FROM t.at) * 1000)::bigint FROM steadfast.log_times t \
                     WHERE t.job = l.job AND t.step = l.step AND t.name = l.name ORDER BY t.start) \
             FROM steadfast.logs l WHERE l.job = $1 ORDER BY l.step, l.name",
            &[(&Text(job), Type::TEXT)],
        )
    })?;
    let about = |row: &tokio_postgres::Row| {
        let log = LogName { job: job.into(), step: row.get(0), name: row.get(1) };
        let (length, written_ms) = (row.get::<_, i64>(2) as u64, row.get::<_, i64>(4) as u64);
        let (starts, at_ms): (Vec<i64>, Vec<i64>) = (row.get(5), row.get(6));
        let noted = starts.iter().zip(&at_ms).map(|(start, ms)| (*start as u64, *ms as u64));
        let mut times: Vec<_> = noted.collect();
        if times.is_empty() && length > 0 {
            times.push((0, written_ms));
        }
        LogAbout { log, length, partial: row.get(3), times }
    };
    Ok(rows.iter().map(about).collect())
}

pub(super) fn put(pool: &Pool, about: &LogAbout, content: &dyn LogReader) -> io::Result<()> {
    if !put_new(pool, about, content)? {
        remove(pool, &about.log)?;
        put_new(pool, about, content)?;
    }
    Ok(())
}

fn remove(pool: &Pool, log: &LogName) -> io::Result<()> {
    for table in ["log_pieces", "log_times", "logs"] {
        let sql =
            format!("DELETE FROM steadfast.{table} WHERE job = $1 AND step = $2 AND name = $3");
        of_log(pool, log, &sql, &[])?;
    }
    Ok(())
}

/// Its row comes last: a log without one is not there. False: there was one, and what is there now is neither.
fn put_new(pool: &Pool, about: &LogAbout, content: &dyn LogReader) -> io::Result<bool> {
    let (log, mut pieces) = (&about.log, read(content, 0)?);
    if pieces.len() == AT_ONCE {
        // Some may be left of one that a crash cut off.
        remove(pool, log)?;
    }
    let mut length = bytes_of(&pieces);
    while pieces.len() == AT_ONCE {
        let (starts, bytes) = columns(&pieces);
        of_log(
            pool,
            log,
            "INSERT INTO steadfast.log_pieces (job, step, name, start, bytes) \
             SELECT $1, $2, $3, p.start, p.bytes FROM unnest($4, $5) AS p(start, bytes) \
             ON CONFLICT DO NOTHING",
            &[(&starts, Type::INT8_ARRAY), (&bytes, Type::BYTEA_ARRAY)],
        )?;
        pieces = read(content, length)?;
        length += bytes_of(&pieces);
    }
    let is_cut = length
        .checked_sub(CUT_OFF.len() as u64)
        .map(|start| content.read(start, CUT_OFF.len()))
        .transpose()?
        .is_some_and(|tail| tail == CUT_OFF.as_bytes());
    let (starts, bytes) = columns(&pieces);
    let noted: Vec<i64> = about.times.iter().map(|(start, _)| *start as i64).collect();
    let noted_ms: Vec<i64> = about.times.iter().map(|(_, ms)| *ms as i64).collect();
    let put = of_log(
        pool,
        log,
        "WITH times AS (SELECT t.start, timestamptz 'epoch' + t.at_ms * interval '1 millisecond' AS at \
                        FROM unnest($4, $5) AS t(start, at_ms)), \
         noted AS (INSERT INTO steadfast.log_times (job, step, name, start, at) \
                   SELECT $1, $2, $3, t.start, t.at FROM times t ON CONFLICT DO NOTHING), \
         put AS (INSERT INTO steadfast.log_pieces (job, step, name, start, bytes) \
                 SELECT $1, $2, $3, p.start, p.bytes FROM unnest($6, $7) AS p(start, bytes) \
                 ON CONFLICT DO NOTHING) \
         INSERT INTO steadfast.logs (job, step, name, length, partial, cut, written_at) \
         SELECT $1, $2, $3, $8, $9, $10, coalesce(max(t.at), clock_timestamp()) FROM times t \
         ON CONFLICT DO NOTHING RETURNING 1",
        &[
            (&noted, Type::INT8_ARRAY),
            (&noted_ms, Type::INT8_ARRAY),
            (&starts, Type::INT8_ARRAY),
            (&bytes, Type::BYTEA_ARRAY),
            (&(length as i64), Type::INT8),
            (&about.partial, Type::BOOL),
            (&is_cut, Type::BOOL),
        ],
    )?;
    Ok(!put.is_empty())
}

type Piece = (u64, Vec<u8>);

fn read(content: &dyn LogReader, mut start: u64) -> io::Result<Vec<Piece>> {
    let mut pieces = vec![];
    while pieces.len() < AT_ONCE {
        let piece = content.read(start, PIECE)?;
        if piece.is_empty() {
            break;
        }
        let length = piece.len() as u64;
        pieces.push((start, piece));
        start += length;
    }
    Ok(pieces)
}

fn bytes_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|(_, piece)| piece.len() as u64).sum()
}

fn columns(pieces: &[Piece]) -> (Vec<i64>, Vec<&[u8]>) {
    let starts = pieces.iter().map(|(start, _)| *start as i64).collect();
    (starts, pieces.iter().map(|(_, piece)| piece.as_slice()).collect())
}
