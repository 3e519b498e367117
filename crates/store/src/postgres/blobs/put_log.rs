//! A log that was elsewhere, with what is known of it there.

use std::io;

use tokio_postgres::types::Type;

use super::super::pool::Pool;
use super::PIECE;
use super::logs::{of_log, size};
use crate::blobs::logs::CUT_OFF;
use crate::{LogName, LogReader};

/// Pieces that are sent in one statement: most logs are fewer, and cost one commit.
const AT_ONCE: usize = 64;

/// Its row comes last: a log without one is not there.
pub(super) fn put(
    pool: &Pool,
    log: &LogName,
    content: &dyn LogReader,
    partial: bool,
    times: &[(u64, u64)],
) -> io::Result<()> {
    let mut pieces = read(content, 0)?;
    if pieces.len() == AT_ONCE || size(pool, log)?.is_some() {
        for table in ["log_pieces", "log_times", "logs"] {
            let sql =
                format!("DELETE FROM steadfast.{table} WHERE job = $1 AND step = $2 AND name = $3");
            of_log(pool, log, &sql, &[])?;
        }
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
    let noted: Vec<i64> = times.iter().map(|(start, _)| *start as i64).collect();
    let noted_ms: Vec<i64> = times.iter().map(|(_, ms)| *ms as i64).collect();
    of_log(
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
         ON CONFLICT DO NOTHING",
        &[
            (&noted, Type::INT8_ARRAY),
            (&noted_ms, Type::INT8_ARRAY),
            (&starts, Type::INT8_ARRAY),
            (&bytes, Type::BYTEA_ARRAY),
            (&(length as i64), Type::INT8),
            (&partial, Type::BOOL),
            (&is_cut, Type::BOOL),
        ],
    )?;
    Ok(())
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
