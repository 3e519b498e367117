//! Writing: groups, purges. Each function is called inside a transaction.

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use super::counts::{Changes, counted};
use super::events::{Shapes, insert, number};
use super::fault::Fault;
use super::last_writes::LastWrites;
use super::{owners, projections};
use crate::events::{Written, crc};
use crate::journal::Chains;
use crate::{JobCounts, Owner, Refused, Row, Write};

/// The end of time, whatever it is, is the highest number there is.
pub(super) fn ms(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

struct Statements<'a> {
    connection: &'a Connection,
    shapes: Shapes,
    counts: Changes,
    key: CachedStatement<'a>,
    current: CachedStatement<'a>,
    job: CachedStatement<'a>,
    label: CachedStatement<'a>,
    event: CachedStatement<'a>,
    end: CachedStatement<'a>,
    row: CachedStatement<'a>,
    known_end: CachedStatement<'a>,
    known_row: CachedStatement<'a>,
    snapshot: CachedStatement<'a>,
    last_writes: &'a mut LastWrites,
}

/// What a write may change of a job's row.
#[derive(PartialEq)]
pub(super) struct Mutable<'a> {
    pub(super) state: &'a str,
    pub(super) finished_at: Option<i64>,
    pub(super) wake_at: Option<i64>,
    pub(super) queued: Option<&'a str>,
    pub(super) over: bool,
}

impl<'a> Mutable<'a> {
    fn of(row: &'a Row) -> Self {
        Self {
            state: row.state.name(),
            finished_at: row.finished_at.map(ms),
            wake_at: row.wake_at.map(ms),
            queued: row.queued.as_deref(),
            over: row.over,
        }
    }
}

/// A job's row before a write.
struct Found {
    number: i64,
    seq: u64,
    /// None: it is the one who writes.
    owner: Option<String>,
    /// The write changes something that has an index.
    is_changed: bool,
    counted: Option<&'static str>,
}

pub(super) fn group(
    connection: &Connection,
    owner: &Owner,
    writes: &[Write],
    written: &[Written],
    last_writes: &mut LastWrites,
) -> Result<Vec<Result<(), Refused>>, Fault> {
    let current = owners::epoch(connection, &owner.id)?;
    if current != Some(owner.epoch) {
        let current = current.unwrap_or_default();
        let fenced = Refused::Fenced { owner: owner.id.clone(), epoch: owner.epoch, current };
        return Ok(vec![Err(fenced); writes.len()]);
    }
    let mut statements = Statements::prepare(connection, last_writes)?;
    let mut chains = Chains::default();
    let group = writes.iter().zip(written);
    let answers = group.map(|(write, written)| match chains.refused(write) {
        Some(refused) => Ok(Err(refused)),
        None => {
            let answer = statements.write(owner, write, written)?;
            chains.answered(write, &answer);
            Ok(answer)
        }
    });
    let answers = answers.collect();
    statements.counts.keep(connection)?;
    statements.shapes.count(connection)?;
    answers
}

impl<'a> Statements<'a> {
    fn prepare(connection: &'a Connection, last_writes: &'a mut LastWrites) -> Result<Self, Fault> {
        let prepare = |sql| connection.prepare_cached(sql);
        Ok(Self {
            connection,
            shapes: Shapes::default(),
            counts: Changes::default(),
            key: prepare("SELECT id, key_digest FROM jobs WHERE key = ?1")?,
            current: prepare(
                "SELECT n, seq, owner, state, finished_at, wake_at, over, queued, \
                 stuck IS NOT NULL FROM jobs WHERE id = ?1",
            )?,
            job: prepare(
                "INSERT INTO jobs (id, name, state, submitted_at, finished_at, wake_at, over, \
                 labels, retried_from, local, seq, owner, key, key_digest, queued, plan) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16) \
                 ON CONFLICT DO NOTHING",
            )?,
            label: prepare("INSERT INTO labels (name, value, job) VALUES (?1, ?2, ?3)")?,
            event: prepare(
                "INSERT INTO events (job, last, first, lines, crc) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            end: prepare("UPDATE jobs SET seq = ?2 WHERE n = ?1")?,
            row: prepare(
                "UPDATE jobs SET seq = ?2, state = ?3, finished_at = ?4, wake_at = ?5, over = ?6, \
                 queued = ?7 WHERE n = ?1",
            )?,
            known_end: prepare(
                "UPDATE jobs SET seq = ?2 \
                 WHERE n = ?1 AND id = ?3 AND seq = ?4 AND owner = ?5 AND stuck IS NULL",
            )?,
            known_row: prepare(
                "UPDATE jobs SET seq = ?2, state = ?6, finished_at = ?7, wake_at = ?8, over = ?9, \
                 queued = ?10 \
                 WHERE n = ?1 AND id = ?3 AND seq = ?4 AND owner = ?5 AND stuck IS NULL",
            )?,
            snapshot: prepare(
                "INSERT INTO snapshots (job, seq, state, crc) VALUES (?1, ?2, ?3, ?4) \
                 ON CONFLICT (job) DO UPDATE SET seq = ?2, state = ?3, crc = ?4",
            )?,
            last_writes,
        })
    }

    /// What refuses the write does so before anything is touched.
    fn write(
        &mut self,
        owner: &Owner,
        write: &Write,
        written: &Written,
    ) -> Result<Result<(), Refused>, Fault> {
        let number = if write.expected_seq == 0 {
            self.new_job(owner, write, written)?
        } else {
            self.old_job(owner, write)?
        };
        let number = match number {
            Ok(number) => number,
            Err(refused) => return Ok(Err(refused)),
        };
        for row in &written.rows {
            insert(&mut self.event, number, row)?;
        }
        if let Some(state) = &write.snapshot {
            let seq = write.last_seq();
            let crc = crc(seq, seq, state);
            self.snapshot.execute(params![number, seq as i64, state, crc])?;
        }
        Ok(Ok(()))
    }

    fn found(&mut self, owner: &Owner, write: &Write) -> Result<Option<Found>, Fault> {
        let found = self.current.query_row([&*write.job], |row| {
            let before = Mutable {
                state: row.get_ref(3)?.as_str()?,
                finished_at: row.get(4)?,
                wake_at: row.get(5)?,
                over: row.get(6)?,
                queued: row.get_ref(7)?.as_str_or_null()?,
            };
            let found_owner = row.get_ref(2)?.as_str()?;
            Ok(Found {
                number: row.get(0)?,
                seq: row.get::<_, i64>(1)? as u64,
                owner: (found_owner != &*owner.id).then(|| found_owner.to_owned()),
                is_changed: before != Mutable::of(&write.row),
                counted: counted(&write.job, found_owner, before.state, row.get(8)?),
            })
        });
        Ok(found.optional()?)
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

    /// Its number. What stands in its way is only looked for when something does.
    fn new_job(
        &mut self,
        owner: &Owner,
        write: &Write,
        written: &Written,
    ) -> Result<Result<i64, Refused>, Fault> {
        let row = &write.row;
        let mut keep = |shape| self.shapes.keep(self.connection, shape);
        let plan = written.shape.as_deref().map(&mut keep).transpose()?;
        let labels = || serde_json::to_string(&row.labels).expect("strings are JSON");
        let labels = (!row.labels.is_empty()).then(labels);
        // By their numbers: sixteen names would be looked up for each job.
        let inserted = self.job.execute(params![
            &*row.id,
            row.name,
            row.state.name(),
            ms(row.submitted_at),
            row.finished_at.map(ms),
            row.wake_at.map(ms),
            row.over,
            labels,
            row.retried_from.as_deref(),
            row.local,
            write.last_seq() as i64,
            &*owner.id,
            write.key.as_ref().map(|key| &key.key),
            write.key.as_ref().map(|key| &key.digest),
            row.queued,
            plan,
        ])?;
        if inserted == 0 {
            if let Some(shape) = &written.shape {
                self.shapes.unkeep(shape);
            }
            return Ok(Err(self.in_the_way(owner, write)?));
        }
        let counted = (*row.id != *owner.id).then(|| row.state.name());
        self.counts.add(None, counted);
        let number = self.connection.last_insert_rowid();
        self.last_writes.keep(write, number, counted);
        for (name, value) in &row.labels {
            self.label.execute(params![name, value, number])?;
        }
        Ok(Ok(number))
    }

    /// Of a new job: one with its key, or else with its id.
    fn in_the_way(&mut self, owner: &Owner, write: &Write) -> Result<Refused, Fault> {
        if let Some(refused) = self.key_taken(write)? {
            return Ok(refused);
        }
        let found = self.found(owner, write)?.map_or(0, |found| found.seq);
        Ok(Refused::Conflict { expected: 0, found })
    }

    /// The number of a job that is as the last write left it.
    fn known_job(&mut self, owner: &Owner, write: &Write) -> Result<Option<i64>, Fault> {
        let Some(known) = self.last_writes.before(write) else { return Ok(None) };
        let (number, before) = (known.number, known.counted);
        let (job, owner) = (&*write.job, &*owner.id);
        let (seq, expected) = (write.last_seq() as i64, write.expected_seq as i64);
        let row = Mutable::of(&write.row);
        let changed = if known.row() == row {
            self.known_end.execute(params![number, seq, job, expected, owner])?
        } else {
            let Mutable { state, finished_at, wake_at, queued, over } = row;
            let row = params![
                number,
                seq,
                job,
                expected,
                owner,
                state,
                finished_at,
                wake_at,
                over,
                queued
            ];
            self.known_row.execute(row)?
        };
        if changed == 0 {
            self.last_writes.forget(write);
            return Ok(None);
        }
        let after = before.map(|_| write.row.state.name());
        self.counts.add(before, after);
        self.last_writes.keep(write, number, after);
        Ok(Some(number))
    }

    /// Its number. Most events change nothing that has an index, so those are spared.
    fn old_job(&mut self, owner: &Owner, write: &Write) -> Result<Result<i64, Refused>, Fault> {
        let expected = write.expected_seq;
        if let Some(number) = self.known_job(owner, write)? {
            return Ok(Ok(number));
        }
        let found = match self.found(owner, write)? {
            Some(Found { owner: Some(owner), .. }) => return Ok(Err(Refused::NotOurs { owner })),
            Some(found) if found.seq == expected => found,
            other => {
                let found = other.map_or(0, |found| found.seq);
                return Ok(Err(Refused::Conflict { expected, found }));
            }
        };
        let (number, seq) = (found.number, write.last_seq() as i64);
        let is_counted = found.counted.filter(|counted| *counted != JobCounts::STUCK);
        self.last_writes.keep(write, number, is_counted.map(|_| write.row.state.name()));
        if found.is_changed {
            let Mutable { state, finished_at, wake_at, queued, over } = Mutable::of(&write.row);
            match found.counted {
                None | Some(JobCounts::STUCK) => {}
                before => self.counts.add(before, Some(write.row.state.name())),
            }
            self.row.execute(params![number, seq, state, finished_at, wake_at, over, queued])?;
        } else {
            self.end.execute([number, seq])?;
        }
        Ok(Ok(number))
    }
}

/// Only the mark is written: what cannot be read is left as it is.
pub(super) fn park(connection: &Connection, job: &str, why: &str) -> Result<bool, Fault> {
    let before = counted_of(connection, "id = ?1 AND over = 0", job)?;
    let parked = connection
        .prepare_cached(
            "UPDATE jobs SET stuck = ?2, wake_at = NULL, queued = NULL WHERE id = ?1 AND over = 0",
        )?
        .execute([job, why])?;
    let mut counts = Changes::default();
    counts.add(before, before.map(|_| JobCounts::STUCK));
    counts.keep(connection)?;
    Ok(parked > 0)
}

/// What a job is counted as: the one for which the condition holds.
fn counted_of(
    connection: &Connection,
    condition: &str,
    value: impl rusqlite::ToSql,
) -> Result<Option<&'static str>, Fault> {
    let sql = format!("SELECT id, owner, state, stuck IS NOT NULL FROM jobs WHERE {condition}");
    let found = connection.prepare_cached(&sql)?.query_row([value], |row| {
        let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
        Ok(counted(text(0)?, text(1)?, text(2)?, row.get(3)?))
    });
    Ok(found.optional()?.flatten())
}

/// A purge lets others write in between.
const PURGED_AT_ONCE: usize = 200;
/// Jobs that are looked at in one transaction of a purge.
const LOOKED_AT: i64 = 2000;

/// Some of what may go, from the job after the one with this number on: which they were, and where to go on.
pub(super) fn purge(
    connection: &Connection,
    finished_before: Timestamp,
    after: i64,
) -> Result<(Vec<JobId>, Option<i64>), Fault> {
    let mut select = connection.prepare_cached(
        "SELECT n, id, over, finished_at FROM jobs WHERE n > ?1 ORDER BY n LIMIT ?2",
    )?;
    let mut rows = select.query([after, LOOKED_AT])?;
    let (mut gone, mut last, mut looked_at) = (vec![], after, 0);
    while let Some(row) = rows.next()? {
        (last, looked_at) = (row.get(0)?, looked_at + 1);
        let finished_at: Option<i64> = row.get(3)?;
        if row.get(2)? && finished_at.is_some_and(|at| at < ms(finished_before)) {
            gone.push((last, row.get::<_, String>(1)?));
        }
        // Others want to write too.
        if gone.len() == PURGED_AT_ONCE {
            looked_at = LOOKED_AT;
            break;
        }
    }
    drop(rows);
    for (number, job) in &gone {
        delete(connection, *number, job)?;
    }
    let next = (looked_at == LOOKED_AT).then_some(last);
    Ok((gone.into_iter().map(|(_, job)| job.into()).collect(), next))
}

/// Without reading any of it: what is damaged goes too.
pub(super) fn remove(connection: &Connection, job: &str) -> Result<bool, Fault> {
    let found = number(connection, job)?;
    if let Some(number) = found {
        delete(connection, number, job)?;
    }
    Ok(found.is_some())
}

fn delete(connection: &Connection, number: i64, job: &str) -> Result<(), Fault> {
    let mut counts = Changes::default();
    counts.add(counted_of(connection, "n = ?1", number)?, None);
    counts.keep(connection)?;
    // A job of `run` is its own owner.
    for sql in ["DELETE FROM owners WHERE id = ?1", "DELETE FROM gaps WHERE owner = ?1"] {
        connection.prepare_cached(sql)?.execute([job])?;
    }
    for sql in [
        "DELETE FROM events WHERE job = ?1",
        "DELETE FROM snapshots WHERE job = ?1",
        "DELETE FROM labels WHERE job = ?1",
        // The last job with a plan takes it along.
        "UPDATE plans SET jobs = jobs - 1 WHERE id = (SELECT plan FROM jobs WHERE n = ?1)",
        "DELETE FROM plans WHERE jobs <= 0 AND id = (SELECT plan FROM jobs WHERE n = ?1)",
        "DELETE FROM jobs WHERE n = ?1",
    ] {
        connection.prepare_cached(sql)?.execute([number])?;
    }
    projections::remove(connection, number)
}
