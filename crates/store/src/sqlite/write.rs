//! Writing: groups, purges. Each function is called inside a transaction.

use rusqlite::{CachedStatement, Connection, OptionalExtension, Statement, named_params, params};
use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::time::Timestamp;

use super::fault::Fault;
use super::owners;
use crate::{Owner, Refused, Row, StoreError, Write};

/// The end of time, whatever it is, is the highest number there is.
pub(super) fn ms(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

/// Events that are kept in one row: `[AT_MS,EVENT]` each, with [`BETWEEN`] between them.
pub(super) struct Lines {
    first: u64,
    last: u64,
    text: String,
}

impl Lines {
    /// To the last of them, or as a new one.
    pub(super) fn add(rows: &mut Vec<Self>, seq: u64, line: &str) {
        match rows.last_mut().filter(|row| row.text.len() + line.len() <= ROW) {
            Some(row) => {
                row.text += BETWEEN;
                row.text += line;
                row.last = seq;
            }
            None => {
                let mut text = String::with_capacity(ROW.max(line.len()));
                text += line;
                rows.push(Self { first: seq, last: seq, text });
            }
        }
    }

    pub(super) fn insert(&self, statement: &mut Statement<'_>, job: &str) -> Result<(), Fault> {
        let Self { first, last, text } = self;
        let crc = crc(*first, *last, text.as_bytes());
        statement.execute(params![job, *last as i64, *first as i64, text, crc])?;
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// JSON has no line breaks in it.
pub(super) const BETWEEN: &str = ",\n";
/// A row costs as much as its text, so there is more than one event in it; not so many that it would
/// be moved out of its page.
const ROW: usize = 900;

/// JSON survives many a flipped bit: a number stays one. This does not.
pub(super) fn crc(first: u64, last: u64, text: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&first.to_le_bytes());
    crc.update(&last.to_le_bytes());
    crc.update(text);
    crc.finalize()
}

/// Deeper than this, JSON is written but not read back.
const DEPTH: usize = 120;

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

pub(super) fn lines(write: &Write) -> Result<Vec<Lines>, StoreError> {
    let mut rows: Vec<Lines> = vec![];
    let mut line = Vec::with_capacity(ROW);
    for RecordedEvent { seq, at, event } in &write.records {
        line.clear();
        // Events are made of strings, numbers and lists: there is nothing in them that is not JSON.
        serde_json::to_writer(&mut line, &(at, event)).expect("an event is JSON");
        let line = str::from_utf8(&line).expect("JSON is text");
        if line.len() > DEPTH * 2 && depth(line) > DEPTH {
            let why = "one of its events is nested too deeply to be read back";
            return Err(StoreError::Unfit { job: write.job.clone(), why });
        }
        Lines::add(&mut rows, *seq, line);
    }
    Ok(rows)
}

struct Statements<'a> {
    key: CachedStatement<'a>,
    current: CachedStatement<'a>,
    job: CachedStatement<'a>,
    label: CachedStatement<'a>,
    event: CachedStatement<'a>,
    end: CachedStatement<'a>,
    row: CachedStatement<'a>,
    snapshot: CachedStatement<'a>,
}

/// What a job's row says before a write.
#[derive(PartialEq)]
struct Mutable {
    state: String,
    finished_at: Option<i64>,
    wake_at: Option<i64>,
    over: bool,
}

impl Mutable {
    fn of(row: &Row) -> Self {
        Self {
            state: row.state.name().to_owned(),
            finished_at: row.finished_at.map(ms),
            wake_at: row.wake_at.map(ms),
            over: row.over,
        }
    }
}

pub(super) fn group(
    connection: &Connection,
    owner: &Owner,
    writes: &[Write],
    lines: &[Vec<Lines>],
) -> Result<Vec<Result<(), Refused>>, Fault> {
    let current = owners::epoch(connection, &owner.id)?;
    if current != Some(owner.epoch) {
        let current = current.unwrap_or_default();
        let fenced = Refused::Fenced { owner: owner.id.clone(), epoch: owner.epoch, current };
        return Ok(vec![Err(fenced); writes.len()]);
    }
    let mut statements = Statements::prepare(connection)?;
    let group = writes.iter().zip(lines);
    group.map(|(write, lines)| statements.write(owner, write, lines)).collect()
}

impl<'a> Statements<'a> {
    fn prepare(connection: &'a Connection) -> Result<Self, Fault> {
        let prepare = |sql| connection.prepare_cached(sql);
        Ok(Self {
            key: prepare("SELECT id, key_digest FROM jobs WHERE key = ?1")?,
            current: prepare(
                "SELECT seq, owner, state, finished_at, wake_at, over FROM jobs WHERE id = ?1",
            )?,
            job: prepare(
                "INSERT INTO jobs (id, name, state, submitted_at, finished_at, wake_at, over, \
                 labels, retried_from, local, seq, owner, key, key_digest) \
                 VALUES (:id, :name, :state, :submitted_at, :finished_at, :wake_at, :over, \
                 :labels, :retried_from, :local, :seq, :owner, :key, :key_digest)",
            )?,
            label: prepare(
                "INSERT INTO labels (name, value, submitted_at, job) VALUES (?1, ?2, ?3, ?4)",
            )?,
            event: prepare(
                "INSERT INTO events (job, last, first, lines, crc) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            end: prepare("UPDATE jobs SET seq = ?2 WHERE id = ?1")?,
            row: prepare(
                "UPDATE jobs SET seq = ?2, state = ?3, finished_at = ?4, wake_at = ?5, over = ?6 \
                 WHERE id = ?1",
            )?,
            snapshot: prepare(
                "INSERT INTO snapshots (job, seq, state, crc) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (job) DO UPDATE SET seq = ?2, state = ?3, crc = ?4",
            )?,
        })
    }

    /// Everything that can refuse the write is asked before anything is touched.
    fn write(
        &mut self,
        owner: &Owner,
        write: &Write,
        lines: &[Lines],
    ) -> Result<Result<(), Refused>, Fault> {
        if let Some(refused) = self.key_taken(write)? {
            return Ok(Err(refused));
        }
        let current = (self.current)
            .query_row([&*write.job], |row| {
                let before = Mutable {
                    state: row.get(2)?,
                    finished_at: row.get(3)?,
                    wake_at: row.get(4)?,
                    over: row.get(5)?,
                };
                let is_ours = row.get_ref(1)?.as_str()? == &*owner.id;
                let owner = if is_ours { None } else { Some(row.get::<_, String>(1)?) };
                Ok((row.get::<_, i64>(0)? as u64, owner, before))
            })
            .optional()?;
        let expected = write.expected_seq;
        match current {
            Some((_, Some(owner), _)) if expected > 0 => {
                return Ok(Err(Refused::NotOurs { owner }));
            }
            Some((found, _, _)) if expected != found => {
                return Ok(Err(Refused::Conflict { expected, found }));
            }
            None if expected > 0 => return Ok(Err(Refused::Conflict { expected, found: 0 })),
            Some((_, _, before)) => self.old_job(write, &before)?,
            None => self.new_job(owner, write)?,
        }
        for row in lines {
            row.insert(&mut self.event, &write.job)?;
        }
        if let Some(state) = &write.snapshot {
            let seq = write.last_seq();
            let crc = crc(seq, seq, state);
            self.snapshot.execute(params![&*write.job, seq as i64, state, crc])?;
        }
        Ok(Ok(()))
    }

    fn key_taken(&mut self, write: &Write) -> Result<Option<Refused>, Fault> {
        let Some(key) = &write.key else { return Ok(None) };
        let taken = (self.key)
            .query_row([&key.key], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
            .optional()?;
        Ok(taken.map(|(job, digest)| Refused::KeyTaken {
            job: job.into(),
            same_body: digest == key.digest,
        }))
    }

    fn new_job(&mut self, owner: &Owner, write: &Write) -> Result<(), Fault> {
        let row = &write.row;
        let labels = serde_json::to_string(&row.labels).expect("strings are JSON");
        self.job.execute(named_params! {
            ":id": &*row.id,
            ":name": row.name,
            ":state": row.state.name(),
            ":submitted_at": ms(row.submitted_at),
            ":finished_at": row.finished_at.map(ms),
            ":wake_at": row.wake_at.map(ms),
            ":over": row.over,
            ":labels": labels,
            ":retried_from": row.retried_from.as_deref(),
            ":local": row.local,
            ":seq": write.last_seq() as i64,
            ":owner": &*owner.id,
            ":key": write.key.as_ref().map(|key| &key.key),
            ":key_digest": write.key.as_ref().map(|key| &key.digest),
        })?;
        for (name, value) in &row.labels {
            self.label.execute(params![name, value, ms(row.submitted_at), &*row.id])?;
        }
        Ok(())
    }

    /// Most events change nothing that has an index, so those are spared.
    fn old_job(&mut self, write: &Write, before: &Mutable) -> Result<(), Fault> {
        let (id, seq) = (&*write.job, write.last_seq() as i64);
        let now = Mutable::of(&write.row);
        if now == *before {
            self.end.execute(params![id, seq])?;
        } else {
            let Mutable { state, finished_at, wake_at, over } = now;
            self.row.execute(params![id, seq, state, finished_at, wake_at, over])?;
        }
        Ok(())
    }
}

/// Only the mark is written: what cannot be read is left as it is.
pub(super) fn park(connection: &Connection, job: &str, why: &str) -> Result<bool, Fault> {
    let parked = connection
        .prepare_cached("UPDATE jobs SET stuck = ?2, wake_at = NULL WHERE id = ?1 AND over = 0")?
        .execute([job, why])?;
    Ok(parked > 0)
}

/// Some of what may go; which jobs that were.
pub(super) fn purge(
    connection: &Connection,
    finished_before: Timestamp,
    limit: usize,
) -> Result<Vec<JobId>, Fault> {
    let jobs: Vec<String> = connection
        .prepare_cached(
            "SELECT id FROM jobs WHERE over = 1 AND finished_at < ?1 \
             ORDER BY finished_at, id LIMIT ?2",
        )?
        .query_map(params![ms(finished_before), limit as i64], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    delete(connection, &jobs)?;
    Ok(jobs.into_iter().map(JobId::from).collect())
}

/// Without reading any of it: what is damaged goes too.
pub(super) fn remove(connection: &Connection, job: &str) -> Result<bool, Fault> {
    let is_there = connection.prepare_cached("SELECT 1 FROM jobs WHERE id = ?1")?.exists([job])?;
    if is_there {
        delete(connection, &[job.to_owned()])?;
    }
    Ok(is_there)
}

fn delete(connection: &Connection, jobs: &[String]) -> Result<(), Fault> {
    for sql in [
        "DELETE FROM events WHERE job = ?1",
        "DELETE FROM snapshots WHERE job = ?1",
        "DELETE FROM labels WHERE job = ?1",
        // A job of `run` is its own owner.
        "DELETE FROM owners WHERE id = ?1",
        "DELETE FROM gaps WHERE owner = ?1",
        "DELETE FROM jobs WHERE id = ?1",
    ] {
        let mut delete = connection.prepare_cached(sql)?;
        for job in jobs {
            delete.execute([job])?;
        }
    }
    Ok(())
}
