//! Events and plans in `SQLite`'s tables: whether a row's lines are TEXT or a BLOB tells whether they are compressed.

use std::collections::HashMap;

use rusqlite::types::{ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Statement, params};
use steadfast_core::event::RecordedEvent;

use super::fault::Fault;
use crate::events::{CHECKED, Damage, Lines, LogCheck, LogPage, StoredLines, checked_shape, plan};
use crate::packed::Packed;
use crate::plans::{Plans, Shape};

impl ToSql for Packed<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Compressed(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// `job`: its number.
pub(super) fn insert(statement: &mut Statement<'_>, job: i64, lines: &Lines) -> Result<(), Fault> {
    let (packed, crc) = lines.packed();
    statement.execute(params![job, lines.last as i64, lines.first as i64, packed, crc])?;
    Ok(())
}

/// Shapes that jobs of a group have, and how many of them: each is looked for once, and counted at the end.
#[derive(Default)]
pub(super) struct Shapes(HashMap<String, (i64, i64)>);

impl Shapes {
    /// Of a job that is about to be made. Returns the number that its row has for it.
    pub(super) fn keep(&mut self, connection: &Connection, shape: &Shape) -> Result<i64, Fault> {
        if let Some((id, jobs)) = self.0.get_mut(&shape.digest) {
            *jobs += 1;
            return Ok(*id);
        }
        let mut find = connection.prepare_cached("SELECT id FROM plans WHERE digest = ?1")?;
        let id = match find.query_row([&shape.digest], |row| row.get(0)).optional()? {
            Some(id) => id,
            None => connection
                .prepare_cached("INSERT INTO plans (digest, plan, jobs) VALUES (?1, ?2, 0)")?
                .insert([&shape.digest, &shape.json])?,
        };
        self.0.insert(shape.digest.clone(), (id, 1));
        Ok(id)
    }

    /// The job was not made after all.
    pub(super) fn unkeep(&mut self, shape: &Shape) {
        if let Some((_, jobs)) = self.0.get_mut(&shape.digest) {
            *jobs -= 1;
        }
    }

    pub(super) fn count(self, connection: &Connection) -> Result<(), Fault> {
        let mut count =
            connection.prepare_cached("UPDATE plans SET jobs = jobs + ?2 WHERE id = ?1")?;
        let mut drop = connection.prepare_cached("DELETE FROM plans WHERE id = ?1 AND jobs = 0")?;
        for (id, jobs) in self.0.into_values() {
            if jobs > 0 {
                count.execute([id, jobs])?;
            } else {
                drop.execute([id])?;
            }
        }
        Ok(())
    }
}

/// `from` has a row's first, last, lines and checksum.
fn stored<'a>(from: &'a rusqlite::Row<'_>) -> Result<Option<StoredLines<'a>>, Fault> {
    let (first, last) = (from.get::<_, i64>(0)? as u64, from.get::<_, i64>(1)? as u64);
    let (bytes, is_compressed) = match from.get_ref(2)? {
        ValueRef::Text(bytes) => (bytes, false),
        ValueRef::Blob(bytes) => (bytes, true),
        _ => return Ok(None),
    };
    Ok(Some(StoredLines { first, last, bytes, is_compressed, crc: from.get(3)? }))
}

pub(super) fn read(
    connection: &Connection,
    plans: &mut Plans,
    job: &str,
    after: u64,
    limit: usize,
) -> Result<Vec<RecordedEvent>, Fault> {
    let Some(number) = number(connection, job)? else { return Ok(vec![]) };
    let mut statement = connection.prepare_cached(
        "SELECT first, last, lines, crc FROM events WHERE job = ?1 AND last > ?2 ORDER BY last",
    )?;
    let mut rows = statement.query(params![number, i64::try_from(after).unwrap_or(i64::MAX)])?;
    let mut page = LogPage::new(job, after, limit);
    while page.wants_more()
        && let Some(from) = rows.next()?
    {
        let Some(row) = stored(from)? else {
            let (first, last) = (from.get::<_, i64>(0)? as u64, from.get::<_, i64>(1)? as u64);
            return Err(Damage::events(job, first..=last, "no text").into());
        };
        page.add(&row, |arguments| {
            let mut shape = connection.prepare_cached(
                "SELECT digest FROM plans WHERE id = (SELECT plan FROM jobs WHERE n = ?1)",
            )?;
            let shape = shape.query_row([number], |row| row.get(0)).optional()?;
            plan(plans, job, shape, arguments, || stored_shape(connection, number))
        })?;
    }
    Ok(page.into_events())
}

/// What a job's rows in other tables have for its id.
pub(super) fn number(connection: &Connection, job: &str) -> Result<Option<i64>, Fault> {
    let mut statement = connection.prepare_cached("SELECT n FROM jobs WHERE id = ?1")?;
    Ok(statement.query_row([job], |row| row.get(0)).optional()?)
}

/// The JSON of the shape of a job's plan, and its digest.
fn stored_shape(connection: &Connection, job: i64) -> Result<Option<(String, String)>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT plan, digest FROM plans WHERE id = (SELECT plan FROM jobs WHERE n = ?1)",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    Ok(statement.query_row([job], read).optional()?)
}

/// What is wrong with the log of a job that ends with `last_event`, as far as checksums tell.
pub(super) fn damage(
    connection: &Connection,
    job: i64,
    last_event: u64,
) -> Result<Option<String>, Fault> {
    match log_damage(connection, job, last_event)? {
        Ok(()) => {}
        Err(why) => return Ok(Some(why)),
    }
    let mut has_plan =
        connection.prepare_cached("SELECT 1 FROM jobs WHERE n = ?1 AND plan IS NOT NULL")?;
    if !has_plan.exists([job])? {
        return Ok(None);
    }
    let shape = checked_shape(stored_shape(connection, job)?);
    Ok(shape.err().map(|why| format!("its plan: {why}")))
}

fn log_damage(
    connection: &Connection,
    job: i64,
    last_event: u64,
) -> Result<Result<(), String>, Fault> {
    let select = "SELECT first, last, lines, crc FROM events WHERE job = ?1 ORDER BY last";
    let mut beginning = connection.prepare_cached(&format!("{select} LIMIT ?2"))?;
    let mut rows = beginning.query([job, CHECKED as i64])?;
    let mut check = LogCheck::new();
    let no_text = || "its events: no text".to_owned();
    while let Some(from) = rows.next()? {
        match stored(from)?.ok_or_else(no_text).and_then(|row| check.add(&row)) {
            Ok(true) => {}
            Ok(false) => break,
            Err(why) => return Ok(Err(why)),
        }
    }
    if check.is_cut() {
        let mut end = connection.prepare_cached(&format!("{select} DESC LIMIT 1"))?;
        let mut rows = end.query([job])?;
        if let Some(from) = rows.next()?
            && let Err(why) = stored(from)?.ok_or_else(no_text).and_then(|row| check.end(&row))
        {
            return Ok(Err(why));
        }
    }
    Ok(check.missing(last_event).map_or(Ok(()), Err))
}
