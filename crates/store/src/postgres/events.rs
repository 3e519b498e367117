//! A job's log, read in pages that are about as large as their caller wants.

use steadfast_core::event::RecordedEvent;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::connection::Connection;
use super::fault::Fault;
use super::param::Text;
use crate::Plans;
use crate::events::{CHECKED, LogCheck, LogPage, StoredLines, checked_shape, plan};

/// Rows that are asked for at once, and bytes after which no more of them are sent: an event may carry an output of megabytes.
const ROWS: i64 = 256;
const BYTES: i64 = 1 << 20;

/// `from` has a row's first, last, compressed, lines and checksum.
fn stored(from: &Row) -> StoredLines<'_> {
    StoredLines {
        first: from.get::<_, i64>(0) as u64,
        last: from.get::<_, i64>(1) as u64,
        is_compressed: from.get(2),
        bytes: from.get(3),
        crc: from.get(4),
    }
}

pub(super) fn read(
    connection: &mut Connection,
    plans: &mut Plans,
    job: &str,
    after: u64,
    limit: usize,
) -> Result<Vec<RecordedEvent>, Fault> {
    let mut page = LogPage::new(job, after, limit);
    while page.wants_more() {
        let after = i64::try_from(page.last()).unwrap_or(i64::MAX);
        // The length of what is large is known without reading it. A job that is gone may have a log until its week is dropped.
        let rows = connection.read(
            "SELECT first, last, compressed, lines, crc, CASE WHEN first = 1 THEN \
               (SELECT p.digest FROM steadfast.jobs j JOIN steadfast.plans p ON p.id = j.plan \
                WHERE j.id = $1) END \
             FROM (SELECT *, sum(octet_length(lines)) OVER (ORDER BY last) - octet_length(lines) \
                   AS before FROM (SELECT * FROM steadfast.events WHERE job = $1 AND last > $2 \
                                   AND EXISTS (SELECT FROM steadfast.jobs WHERE id = $1) \
                                   ORDER BY last LIMIT $3) AS page) AS sized \
             WHERE before < $4 ORDER BY last",
            &[
                (&Text(job), Type::TEXT),
                (&after, Type::INT8),
                (&ROWS, Type::INT8),
                (&BYTES, Type::INT8),
            ],
        )?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            if !page.wants_more() {
                break;
            }
            page.add(&stored(row), |arguments| {
                let digest: Option<String> = row.get(5);
                plan(plans, job, digest, arguments, || stored_shape(connection, job))
            })?;
        }
    }
    Ok(page.into_events())
}

/// The JSON of the shape of a job's plan, and its digest.
fn stored_shape(connection: &mut Connection, job: &str) -> Result<Option<(String, String)>, Fault> {
    let rows = connection.read(
        "SELECT p.plan, p.digest FROM steadfast.jobs j JOIN steadfast.plans p ON p.id = j.plan \
         WHERE j.id = $1",
        &[(&Text(job), Type::TEXT)],
    )?;
    Ok(rows.first().map(|row| (row.get(0), row.get(1))))
}

/// What is wrong with the log of a job that ends with `last_event`, as far as checksums tell.
pub(super) fn damage(
    connection: &mut Connection,
    job: &str,
    last_event: u64,
    has_plan: bool,
) -> Result<Option<String>, Fault> {
    if let Err(why) = log_damage(connection, job, last_event)? {
        return Ok(Some(why));
    }
    if !has_plan {
        return Ok(None);
    }
    let shape = checked_shape(stored_shape(connection, job)?);
    Ok(shape.err().map(|why| format!("its plan: {why}")))
}

fn log_damage(
    connection: &mut Connection,
    job: &str,
    last_event: u64,
) -> Result<Result<(), String>, Fault> {
    let mut rows = |order: &str, limit: usize| {
        connection.read(
            &format!(
                "SELECT first, last, compressed, lines, crc FROM steadfast.events WHERE job = $1 \
                 ORDER BY last {order} LIMIT {limit}"
            ),
            &[(&Text(job), Type::TEXT)],
        )
    };
    let mut check = LogCheck::new();
    for row in &rows("ASC", CHECKED)? {
        match check.add(&stored(row)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(why) => return Ok(Err(why)),
        }
    }
    if check.is_cut()
        && let Some(row) = rows("DESC", 1)?.first()
        && let Err(why) = check.end(&stored(row))
    {
        return Ok(Err(why));
    }
    Ok(check.missing(last_event).map_or(Ok(()), Err))
}
