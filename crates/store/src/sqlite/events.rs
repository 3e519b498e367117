//! A job's events in rows: several that were written together in one, each a line of JSON, with a checksum.
//! The plan of an accepted job is kept apart, once for all jobs that have one of the same shape.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Statement, params};
use serde::{Deserialize, Serialize};
use steadfast_core::event::{AcceptedJob, Event, RecordedEvent};
use steadfast_core::plan::{Plan, PlanArguments};

use super::fault::Fault;
use super::packed::{Packed, unpack};
use crate::plans::{Plans, RecentShapes, Shape, digest, with_arguments};
use crate::{StoreError, Write};

/// Events that are kept in one row: `[AT_MS,EVENT]` each, with [`BETWEEN`] between them.
pub(super) struct Lines {
    first: u64,
    last: u64,
    text: String,
}

impl Lines {
    /// To the last of them, or as a new one.
    fn add(rows: &mut Vec<Self>, seq: u64, line: &str) {
        match rows.last_mut().filter(|row| row.text.len() + line.len() <= ROW) {
            Some(row) => {
                row.text += BETWEEN;
                row.text += line;
                row.last = seq;
            }
            None => rows.push(Self { first: seq, last: seq, text: line.to_owned() }),
        }
    }

    /// `job`: its number.
    pub(super) fn insert(&self, statement: &mut Statement<'_>, job: i64) -> Result<(), Fault> {
        let Self { first, last, text } = self;
        let packed = Packed::new(text);
        let crc = crc(*first, *last, packed.bytes());
        statement.execute(params![job, *last as i64, *first as i64, packed, crc])?;
        Ok(())
    }
}

/// JSON has no line breaks in it.
const BETWEEN: &str = ",\n";
/// A row costs as much as its text, so there is more than one event in it; not so many that what is left of them
/// when they are packed would be moved out of its page.
const ROW: usize = 3000;
/// Deeper than this, JSON is written but not read back.
const DEPTH: usize = 120;
/// Events are read until there are this many bytes of them: one may carry an output of a megabyte.
const EVENT_BYTES: usize = 1 << 20;

/// JSON survives many a flipped bit: a number stays one. This does not.
pub(super) fn crc(first: u64, last: u64, text: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&first.to_le_bytes());
    crc.update(&last.to_le_bytes());
    crc.update(text);
    crc.finalize()
}

fn depth(json: &str) -> usize {
    let (mut depth, mut deepest, mut quoted, mut escaped) = (0usize, 0, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            b'[' | b'{' if !quoted => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !quoted => depth -= 1,
            _ => {}
        }
    }
    deepest
}

/// A first event as it is stored: without the id of its job, and of the plan only what its shape has not.
#[derive(Serialize, Deserialize)]
#[serde(tag = "event")]
pub(super) enum First {
    JobAccepted(Box<AcceptedJob<PlanArguments>>),
}

impl First {
    /// What begins a line with one, after its time.
    const BEGINS: &str = r#"{"event":"JobAccepted""#;

    pub(super) fn is(line: &str) -> bool {
        line.split_once(',').is_some_and(|(_, event)| event.starts_with(Self::BEGINS))
    }
}

/// Shapes that jobs of a group have, and how many of them: each is looked for once, and counted at the end.
#[derive(Default)]
pub(super) struct Shapes(HashMap<String, (i64, i64)>);

impl Shapes {
    /// Of a job that has just been made. Returns the number that its row has for it.
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

    pub(super) fn count(self, connection: &Connection) -> Result<(), Fault> {
        let mut count =
            connection.prepare_cached("UPDATE plans SET jobs = jobs + ?2 WHERE id = ?1")?;
        for (id, jobs) in self.0.into_values() {
            count.execute([id, jobs])?;
        }
        Ok(())
    }
}

/// What a write comes to, made before its transaction: others wait while that is open.
pub(super) struct Written {
    pub(super) rows: Vec<Lines>,
    pub(super) shape: Option<Arc<Shape>>,
}

impl Written {
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.text.len()).sum()
    }
}

pub(super) fn written(write: &Write, shapes: &mut RecentShapes) -> Result<Written, StoreError> {
    let (mut rows, mut shape) = (Vec::new(), None);
    let mut line = Vec::with_capacity(512);
    let unfit = |json: &str| json.len() > DEPTH * 2 && depth(json) > DEPTH;
    for RecordedEvent { seq, at, event } in &write.records {
        line.clear();
        // Events are made of strings, numbers and lists: there is nothing in them that is not JSON.
        if let Event::JobAccepted(accepted) = event {
            shape = Some(shapes.of(&accepted.plan));
            let arguments = accepted.plan.arguments();
            let mut first = (**accepted).clone().with_plan(arguments);
            first.id = "".into();
            let first = First::JobAccepted(Box::new(first));
            serde_json::to_writer(&mut line, &(at, first)).expect("an event is JSON");
        } else {
            serde_json::to_writer(&mut line, &(at, event)).expect("an event is JSON");
        }
        let line = str::from_utf8(&line).expect("JSON is text");
        if unfit(line) || shape.as_ref().is_some_and(|shape| unfit(&shape.json)) {
            let why = "one of its events is nested too deeply to be read back";
            return Err(StoreError::Unfit { job: write.job.clone(), why });
        }
        Lines::add(&mut rows, *seq, line);
    }
    Ok(Written { rows, shape })
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
    let mut log = vec![];
    let mut bytes_read = 0;
    let mut next = after.saturating_add(1);
    while log.len() < limit
        && bytes_read < EVENT_BYTES
        && let Some(from) = rows.next()?
    {
        let (first, last) = (from.get::<_, i64>(0)? as u64, from.get::<_, i64>(1)? as u64);
        if first > next || (first < next && !log.is_empty()) {
            return Err(Fault::events(job, next..=next, "it is missing"));
        }
        let damaged = |why: &str| Fault::events(job, first..=last, why);
        let stored = from.get_ref(2)?;
        let (ValueRef::Text(bytes) | ValueRef::Blob(bytes)) = stored else {
            return Err(damaged("no text"));
        };
        if from.get::<_, i64>(3)? != i64::from(crc(first, last, bytes)) {
            return Err(damaged("the checksum does not fit"));
        }
        let text = unpack(stored).map_err(|why| damaged(&why))?;
        bytes_read += text.len();
        let lines = text.split(BETWEEN).skip((next - first) as usize);
        for (line, seq) in lines.zip(next..).take(limit - log.len()) {
            let unreadable =
                |error: serde_json::Error| Fault::events(job, seq..=seq, error.to_string());
            let (at, event) = if seq == 1 && First::is(line) {
                let (at, First::JobAccepted(first)) =
                    serde_json::from_str(line).map_err(unreadable)?;
                let plan = plan(connection, plans, job, number, &first.plan)?;
                let mut first = first.with_plan(plan);
                first.id = job.into();
                (at, Event::JobAccepted(Box::new(first)))
            } else {
                serde_json::from_str(line).map_err(unreadable)?
            };
            log.push(RecordedEvent { seq, at, event });
        }
        next = last + 1;
    }
    Ok(log)
}

/// What a job's rows in other tables have for its id.
pub(super) fn number(connection: &Connection, job: &str) -> Result<Option<i64>, Fault> {
    let mut statement = connection.prepare_cached("SELECT n FROM jobs WHERE id = ?1")?;
    Ok(statement.query_row([job], |row| row.get(0)).optional()?)
}

fn plan(
    connection: &Connection,
    plans: &mut Plans,
    job: &str,
    number: i64,
    arguments: &PlanArguments,
) -> Result<Arc<Plan>, Fault> {
    let damaged = |why: String| Fault::damaged(job, format!("the plan of job {job}"), why);
    let mut shape = connection.prepare_cached(
        "SELECT digest FROM plans WHERE id = (SELECT plan FROM jobs WHERE n = ?1)",
    )?;
    let shape: Option<String> = shape.query_row([number], |row| row.get(0)).optional()?;
    let Some(shape) = shape else { return Err(damaged("it is missing".to_owned())) };
    // Jobs with the same have the same plan.
    let key = shape.clone() + &serde_json::to_string(arguments).expect("arguments are JSON");
    if let Some(plan) = plans.get(&key) {
        return Ok(plan);
    }
    let shape = plans.shape(&shape, || stored_shape(connection, number))?.map_err(damaged)?;
    let plan = with_arguments(shape, arguments.clone()).map_err(damaged)?;
    Ok(plans.put(key, Arc::new(plan)))
}

/// The JSON of the shape of a job's plan, or why there is none to be trusted.
fn stored_shape(connection: &Connection, job: i64) -> Result<Result<String, String>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT plan, digest FROM plans WHERE id = (SELECT plan FROM jobs WHERE n = ?1)",
    )?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    Ok(match statement.query_row([job], read).optional()? {
        None => Err("it is missing".to_owned()),
        Some((json, named)) if digest(json.as_bytes()) != named => {
            Err("the digest does not fit".to_owned())
        }
        Some((json, _)) => Ok(json),
    })
}

/// This many rows of events are looked at from the first one on: all of most jobs.
const CHECKED: i64 = 64;

/// What is wrong with the log of a job that ends with `last_event`, as far as checksums tell.
pub(super) fn damage(
    connection: &Connection,
    job: i64,
    last_event: u64,
) -> Result<Option<String>, Fault> {
    let select = "SELECT first, last, lines, crc FROM events WHERE job = ?1 ORDER BY last";
    let mut beginning = connection.prepare_cached(&format!("{select} LIMIT ?2"))?;
    let mut rows = beginning.query([job, CHECKED])?;
    let (mut next, mut seen) = (1, 0);
    while let Some(from) = rows.next()? {
        match intact(from)? {
            Err(why) => return Ok(Some(why)),
            Ok((first, _)) if first != next => break,
            Ok((_, last)) => next = last + 1,
        }
        seen += 1;
    }
    if seen == CHECKED {
        let mut end = connection.prepare_cached(&format!("{select} DESC LIMIT 1"))?;
        let mut rows = end.query([job])?;
        if let Some(from) = rows.next()? {
            match intact(from)? {
                Err(why) => return Ok(Some(why)),
                Ok((_, last)) => next = last + 1,
            }
        }
    }
    if next <= last_event {
        return Ok(Some(format!("event {next}: it is missing")));
    }
    let mut has_plan =
        connection.prepare_cached("SELECT 1 FROM jobs WHERE n = ?1 AND plan IS NOT NULL")?;
    if !has_plan.exists([job])? {
        return Ok(None);
    }
    let shape = stored_shape(connection, job)?;
    Ok(shape.err().map(|why| format!("its plan: {why}")))
}

/// The numbers of the events of a row, or why they cannot be read.
fn intact(from: &rusqlite::Row<'_>) -> Result<Result<(u64, u64), String>, Fault> {
    let (first, last) = (from.get::<_, i64>(0)? as u64, from.get::<_, i64>(1)? as u64);
    let fits = match from.get_ref(2)? {
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            from.get::<_, i64>(3)? == i64::from(crc(first, last, text))
        }
        _ => false,
    };
    let damaged = || format!("events {first} to {last}: the checksum does not fit");
    Ok(if fits { Ok((first, last)) } else { Err(damaged()) })
}
