//! Reading. Whatever comes back is checked: what a disk has garbled is named, never handed on.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rusqlite::types::{ToSql, ValueRef};
use rusqlite::{Connection, params_from_iter};
use steadfast_core::event::{JobId, JobState};
use steadfast_core::time::Timestamp;

use super::events;
use super::fault::Fault;
use crate::cursor::Cursor;
use crate::events::{Damage, crc};
use crate::{Filter, Page, Row, Snapshot, Stored};

/// In the order in which [`row`] reads them.
const ROW: &str = "jobs.id, jobs.name, jobs.state, jobs.submitted_at, jobs.finished_at, \
                   jobs.wake_at, jobs.over, jobs.labels, jobs.retried_from, jobs.local, \
                   jobs.stuck, jobs.queued, jobs.n";

pub(super) fn at(ms: i64) -> Timestamp {
    if ms == i64::MAX { Timestamp(u64::MAX) } else { Timestamp(ms as u64) }
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The row, which must be whole.
fn row(from: &rusqlite::Row<'_>) -> Result<Row, Fault> {
    match readable(from)? {
        (row, None) => Ok(row),
        (row, Some(why)) => {
            Err(Damage::new(&row.id, format!("the row of job {}", row.id), why).into())
        }
    }
}

/// What can be read of a row, and what is wrong with the rest: a state that is none is shown as failed,
/// labels that are none are left out.
fn readable(from: &rusqlite::Row<'_>) -> Result<(Row, Option<String>), Fault> {
    let mut damage = None;
    let mut text = |column: usize| -> Result<String, Fault> {
        match from.get_ref(column)? {
            ValueRef::Text(bytes) => {
                let text = String::from_utf8_lossy(bytes);
                if matches!(text, Cow::Owned(_)) {
                    damage = Some(format!("{text:?} is no text"));
                }
                Ok(text.into_owned())
            }
            _ => Ok(from.get(column)?),
        }
    };
    let (id, name, state) = (JobId::from(text(0)?), text(1)?, text(2)?);
    let labels = if from.get_ref(7)? == ValueRef::Null { None } else { Some(text(7)?) };
    let known = JobState::ALL.iter().copied().find(|known| known.name() == state);
    if known.is_none() {
        damage = Some(format!("{state:?} is no state"));
    }
    let labels = labels.map_or(Ok(BTreeMap::new()), |labels| serde_json::from_str(&labels));
    let labels = labels.unwrap_or_else(|error| {
        damage = Some(format!("its labels: {error}"));
        BTreeMap::new()
    });
    let row = Row {
        id,
        name,
        state: known.unwrap_or(JobState::Failed),
        submitted_at: at(from.get(3)?),
        finished_at: from.get::<_, Option<i64>>(4)?.map(at),
        wake_at: from.get::<_, Option<i64>>(5)?.map(at),
        queued: from.get(11)?,
        over: from.get(6)?,
        labels,
        retried_from: from.get::<_, Option<String>>(8)?.map(JobId::from),
        local: from.get(9)?,
    };
    Ok((row, damage))
}

/// One statement, so that row and snapshot are of the same moment.
pub(super) fn get(connection: &Connection, job: &str) -> Result<Option<Stored>, Fault> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ROW}, jobs.seq, jobs.owner, \
         snapshots.seq, snapshots.state, snapshots.crc \
         FROM jobs LEFT JOIN snapshots ON snapshots.job = jobs.n WHERE jobs.id = ?1"
    ))?;
    let mut rows = statement.query([job])?;
    let Some(from) = rows.next()? else { return Ok(None) };
    let snapshot = match from.get::<_, Option<i64>>(15)? {
        None => None,
        Some(seq) => {
            let (seq, state): (u64, Vec<u8>) = (seq as u64, from.get(16)?);
            // The log is the truth, and gives the same state, only later: without a snapshot that fits
            // its checksum the job is as whole as before.
            let fits = from.get::<_, i64>(17)? == i64::from(crc(seq, seq, &state));
            fits.then_some(Snapshot { seq, state })
        }
    };
    Ok(Some(Stored {
        row: row(from)?,
        seq: from.get::<_, i64>(13)? as u64,
        owner: from.get(14)?,
        stuck: from.get(10)?,
        snapshot,
    }))
}

pub(super) fn end(connection: &Connection, job: &str) -> Result<Option<(Row, u64)>, Fault> {
    let mut statement =
        connection.prepare_cached(&format!("SELECT {ROW}, jobs.seq FROM jobs WHERE id = ?1"))?;
    let mut rows = statement.query([job])?;
    let Some(from) = rows.next()? else { return Ok(None) };
    Ok(Some((row(from)?, from.get::<_, i64>(13)? as u64)))
}

pub(super) fn key(connection: &Connection, key: &str) -> Result<Option<(JobId, String)>, Fault> {
    let mut statement =
        connection.prepare_cached("SELECT id, key_digest FROM jobs WHERE key = ?1")?;
    let mut rows = statement.query([key])?;
    let Some(from) = rows.next()? else { return Ok(None) };
    Ok(Some((from.get::<_, String>(0)?.into(), from.get(1)?)))
}

/// Fixed conditions are spelled out: with a parameter, `SQLite` would not use a partial index.
pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    cursor: Option<Cursor>,
    limit: usize,
) -> Result<Page, Fault> {
    let mut from = "jobs";
    let mut number = "jobs.n";
    let mut conditions: Vec<&str> = vec![];
    let mut values: Vec<Box<dyn ToSql>> = vec![];
    if let Some((name, value)) = filter.label.clone() {
        from = "labels CROSS JOIN jobs ON jobs.n = labels.job";
        number = "labels.job";
        conditions.push("labels.name = ? AND labels.value = ?");
        values.extend([Box::new(name) as Box<dyn ToSql>, Box::new(value)]);
    }
    if let Some(state) = filter.state {
        conditions.push("jobs.state = ?");
        values.push(Box::new(state.name()));
        // So that the index of these is used, which is of part of the rows.
        match state {
            JobState::Failed | JobState::Cancelled => {
                conditions.push("jobs.state IN ('failed', 'cancelled')");
            }
            state if !state.is_terminal() => conditions.push("jobs.over = 0"),
            _ => {}
        }
    }
    if let Some(name) = filter.name.clone() {
        conditions.push("jobs.name = ?");
        values.push(Box::new(name));
    }
    match filter.over {
        Some(true) => conditions.push("jobs.over = 1"),
        Some(false) => conditions.push("jobs.over = 0"),
        None => {}
    }
    if let Some(local) = filter.local {
        conditions.push("jobs.local = ?");
        values.push(Box::new(local));
    }
    let after = format!("{number} < ?");
    if let Some(Cursor(after_number)) = cursor {
        conditions.push(&after);
        values.push(Box::new(after_number));
    }
    values.push(Box::new(count(limit.saturating_add(1))));
    let conditions =
        if conditions.is_empty() { "TRUE".to_owned() } else { conditions.join(" AND ") };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {ROW} FROM {from} WHERE {conditions} ORDER BY {number} DESC LIMIT ?"
    ))?;
    let mut rows = statement.query(params_from_iter(values))?;
    let mut page = Page::default();
    let mut last = None;
    while let Some(from) = rows.next()? {
        if page.jobs.len() == limit {
            page.next = last.map(|last| Cursor(last).to_string());
            break;
        }
        last = Some(from.get(12)?);
        let (row, damage) = readable(from)?;
        let damage = damage.map(|why| format!("its row: {why}"));
        if let Some(why) = damage.or(from.get(10)?) {
            page.damaged.insert(row.id.clone(), why);
        }
        page.jobs.push(row);
    }
    Ok(page)
}

pub(super) fn damage(connection: &Connection, job: &str) -> Result<Option<String>, Fault> {
    let mut statement = connection
        .prepare_cached(&format!("SELECT {ROW}, jobs.seq FROM jobs WHERE jobs.id = ?1"))?;
    let mut rows = statement.query([job])?;
    let Some(from) = rows.next()? else { return Ok(None) };
    if let (_, Some(why)) = readable(from)? {
        return Ok(Some(format!("its row: {why}")));
    }
    if let Some(why) = from.get(10)? {
        return Ok(Some(why));
    }
    events::damage(connection, from.get(12)?, from.get::<_, i64>(13)? as u64)
}
