//! How a job's events are kept in rows, whichever database has them: several that were written together in one, each a line of
//! JSON, packed, with a checksum. The plan of an accepted job is kept apart, once for all jobs that have one of the same shape.

use std::ops::RangeInclusive;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use steadfast_core::event::{AcceptedJob, Event, JobId, RecordedEvent};
use steadfast_core::plan::{Plan, PlanArguments};

use crate::packed::{Packed, unpack};
use crate::plans::{Plans, RecentShapes, Shape, digest, with_arguments};
use crate::{StoreError, Write};

/// Events that are kept in one row: `[AT_MS,EVENT]` each, with [`BETWEEN`] between them.
pub(crate) struct Lines {
    pub(crate) first: u64,
    pub(crate) last: u64,
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

    /// As they are stored, with their checksum.
    pub(crate) fn packed(&self) -> (Packed<'_>, u32) {
        let packed = Packed::new(&self.text);
        let crc = crc(self.first, self.last, packed.bytes());
        (packed, crc)
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
pub(crate) fn crc(first: u64, last: u64, text: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&first.to_le_bytes());
    crc.update(&last.to_le_bytes());
    crc.update(text);
    crc.finalize()
}

/// Nested too deeply to be read back.
pub(crate) fn is_too_deep(json: &str) -> bool {
    // Nearly everything has fewer brackets than that in all.
    json.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > DEPTH && depth(json) > DEPTH
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
pub(crate) enum First {
    JobAccepted(Box<AcceptedJob<PlanArguments>>),
}

impl First {
    /// What begins a line with one, after its time.
    const BEGINS: &str = r#"{"event":"JobAccepted""#;

    pub(crate) fn is(line: &str) -> bool {
        line.split_once(',').is_some_and(|(_, event)| event.starts_with(Self::BEGINS))
    }
}

/// What a write comes to, made before its transaction: others wait while that is open.
pub(crate) struct Written {
    pub(crate) rows: Vec<Lines>,
    pub(crate) shape: Option<Arc<Shape>>,
}

impl Written {
    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.text.len()).sum()
    }
}

pub(crate) fn written(write: &Write, shapes: &mut RecentShapes) -> Result<Written, StoreError> {
    let (mut rows, mut shape) = (Vec::new(), None);
    let mut line = Vec::with_capacity(512);
    for RecordedEvent { seq, at, event } in &write.records {
        line.clear();
        // Events are made of strings, numbers and lists: there is nothing in them that is not JSON.
        if let Event::JobAccepted(accepted) = event {
            shape = Some(shapes.of(&accepted.plan));
            let arguments = accepted.plan.arguments().clone();
            let mut first = (**accepted).clone().with_plan(arguments);
            first.id = "".into();
            let first = First::JobAccepted(Box::new(first));
            serde_json::to_writer(&mut line, &(at, first)).expect("an event is JSON");
        } else {
            serde_json::to_writer(&mut line, &(at, event)).expect("an event is JSON");
        }
        let line = str::from_utf8(&line).expect("JSON is text");
        if is_too_deep(line) || shape.as_ref().is_some_and(|shape| shape.is_too_deep) {
            let why = "one of its events is nested too deeply to be read back";
            return Err(StoreError::Unfit { job: write.job.clone(), why });
        }
        Lines::add(&mut rows, *seq, line);
    }
    Ok(Written { rows, shape })
}

/// What is wrong with what is kept of one job.
#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) job: JobId,
    pub(crate) place: String,
    pub(crate) why: String,
}

impl Damage {
    pub(crate) fn new(job: &str, place: impl Into<String>, why: impl Into<String>) -> Self {
        Self { job: job.into(), place: place.into(), why: why.into() }
    }

    /// In some events that are kept together.
    pub(crate) fn events(job: &str, seqs: RangeInclusive<u64>, why: impl Into<String>) -> Self {
        let place = match (seqs.start(), seqs.end()) {
            (first, last) if first == last => format!("event {first} of job {job}"),
            (first, last) => format!("events {first} to {last} of job {job}"),
        };
        Self::new(job, place, why)
    }
}

/// A row of events as a database gives it back.
pub(crate) struct StoredLines<'a> {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) is_compressed: bool,
    pub(crate) crc: i64,
}

impl StoredLines<'_> {
    pub(crate) fn is_intact(&self) -> bool {
        self.crc == i64::from(crc(self.first, self.last, self.bytes))
    }
}

/// A part of a job's log, read row by row.
pub(crate) struct LogPage<'a> {
    job: &'a str,
    log: Vec<RecordedEvent>,
    limit: usize,
    bytes_read: usize,
    /// The event that comes next.
    next: u64,
}

impl<'a> LogPage<'a> {
    pub(crate) fn new(job: &'a str, after: u64, limit: usize) -> Self {
        Self { job, log: vec![], limit, bytes_read: 0, next: after.saturating_add(1) }
    }

    pub(crate) fn wants_more(&self) -> bool {
        self.log.len() < self.limit && self.bytes_read < EVENT_BYTES
    }

    /// The last event that is in it, or that it begins after.
    pub(crate) fn last(&self) -> u64 {
        self.next - 1
    }

    pub(crate) fn into_events(self) -> Vec<RecordedEvent> {
        self.log
    }

    /// Rows come in order. `plan`: of the job, with its arguments.
    pub(crate) fn add<E: From<Damage>>(
        &mut self,
        row: &StoredLines<'_>,
        mut plan: impl FnMut(&PlanArguments) -> Result<Arc<Plan>, E>,
    ) -> Result<(), E> {
        let (job, next) = (self.job, self.next);
        let StoredLines { first, last, .. } = *row;
        if first > next || (first < next && !self.log.is_empty()) {
            return Err(Damage::events(job, next..=next, "it is missing").into());
        }
        let damaged = |why: &str| Damage::events(job, first..=last, why);
        if !row.is_intact() {
            return Err(damaged("the checksum does not fit").into());
        }
        let text = unpack(row.bytes, row.is_compressed).map_err(|why| damaged(&why))?;
        self.bytes_read += text.len();
        let lines = text.split(BETWEEN).skip((next - first) as usize);
        for (line, seq) in lines.zip(next..).take(self.limit - self.log.len()) {
            let unreadable =
                |error: serde_json::Error| Damage::events(job, seq..=seq, error.to_string());
            let (at, event) = if seq == 1 && First::is(line) {
                let (at, First::JobAccepted(first)) =
                    serde_json::from_str(line).map_err(unreadable)?;
                let mut first = {
                    let plan = plan(&first.plan)?;
                    first.with_plan(plan)
                };
                first.id = job.into();
                (at, Event::JobAccepted(Box::new(first)))
            } else {
                serde_json::from_str(line).map_err(unreadable)?
            };
            self.log.push(RecordedEvent { seq, at, event });
        }
        self.next = last + 1;
        Ok(())
    }
}

/// The plan of a job whose shape has this digest; none: there is none. `read`: the JSON of the shape with its digest.
pub(crate) fn plan<E: From<Damage>>(
    plans: &mut Plans,
    job: &str,
    shape: Option<String>,
    arguments: &PlanArguments,
    read: impl FnOnce() -> Result<Option<(String, String)>, E>,
) -> Result<Arc<Plan>, E> {
    let damaged = |why: String| Damage::new(job, format!("the plan of job {job}"), why);
    let Some(shape) = shape else { return Err(damaged("it is missing".to_owned()).into()) };
    // Jobs with the same have the same plan.
    let key = shape.clone() + &serde_json::to_string(arguments).expect("arguments are JSON");
    if let Some(plan) = plans.get(&key) {
        return Ok(plan);
    }
    let shape = plans.shape(&shape, || read().map(checked_shape))?.map_err(damaged)?;
    let plan = with_arguments(shape, arguments.clone()).map_err(damaged)?;
    Ok(plans.put(key, Arc::new(plan)))
}

/// The JSON of a shape that was stored with its digest, or why there is none to be trusted.
pub(crate) fn checked_shape(stored: Option<(String, String)>) -> Result<String, String> {
    match stored {
        None => Err("it is missing".to_owned()),
        Some((json, named)) if digest(json.as_bytes()) != named => {
            Err("the digest does not fit".to_owned())
        }
        Some((json, _)) => Ok(json),
    }
}

/// This many rows of events are looked at from the first one on: all of most jobs.
pub(crate) const CHECKED: usize = 64;

/// What is wrong with the rows of a log, as far as checksums tell, and which event should come next. `rows`: the first
/// [`CHECKED`] of them at most.
#[derive(Debug)]
pub(crate) struct LogCheck {
    pub(crate) next: u64,
    seen: usize,
}

impl LogCheck {
    pub(crate) fn new() -> Self {
        Self { next: 1, seen: 0 }
    }

    /// One of the rows from the first on; false: there is a gap before it.
    pub(crate) fn add(&mut self, row: &StoredLines<'_>) -> Result<bool, String> {
        let last = Self::intact(row)?;
        if row.first != self.next {
            return Ok(false);
        }
        (self.next, self.seen) = (last + 1, self.seen + 1);
        Ok(true)
    }

    /// There may be more than were looked at: then [`LogCheck::end`] is told the last.
    pub(crate) fn is_cut(&self) -> bool {
        self.seen == CHECKED
    }

    pub(crate) fn end(&mut self, row: &StoredLines<'_>) -> Result<(), String> {
        self.next = Self::intact(row)? + 1;
        Ok(())
    }

    /// What is missing of a log that ends with `last_event`.
    pub(crate) fn missing(&self, last_event: u64) -> Option<String> {
        (self.next <= last_event).then(|| format!("event {}: it is missing", self.next))
    }

    fn intact(row: &StoredLines<'_>) -> Result<u64, String> {
        let StoredLines { first, last, .. } = row;
        let damaged = || format!("events {first} to {last}: the checksum does not fit");
        if row.is_intact() { Ok(*last) } else { Err(damaged()) }
    }
}

#[cfg(test)]
mod fuzz;
