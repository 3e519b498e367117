//! Writing: groups, purges. Each function is called inside a transaction.

use rusqlite::{CachedStatement, Connection, OptionalExtension, named_params, params};
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use super::events::{Shapes, Written, crc};
use super::fault::Fault;
use super::owners;
use crate::{Owner, Refused, Row, Write};

/// The end of time, whatever it is, is the highest number there is.
pub(super) fn ms(at: Timestamp) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

struct Statements<'a> {
    connection: &'a Connection,
    shapes: Shapes,
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
    queued: Option<String>,
    over: bool,
}

impl Mutable {
    fn of(row: &Row) -> Self {
        Self {
            state: row.state.name().to_owned(),
            finished_at: row.finished_at.map(ms),
            wake_at: row.wake_at.map(ms),
            queued: row.queued.clone(),
            over: row.over,
        }
    }
}

pub(super) fn group(
    connection: &Connection,
    owner: &Owner,
    writes: &[Write],
    written: &[Written],
) -> Result<Vec<Result<(), Refused>>, Fault> {
    let current = owners::epoch(connection, &owner.id)?;
    if current != Some(owner.epoch) {
        let current = current.unwrap_or_default();
        let fenced = Refused::Fenced { owner: owner.id.clone(), epoch: owner.epoch, current };
        return Ok(vec![Err(fenced); writes.len()]);
    }
    let mut statements = Statements::prepare(connection)?;
    let group = writes.iter().zip(written);
    let answers = group.map(|(write, written)| statements.write(owner, write, written)).collect();
    statements.shapes.count(connection)?;
    answers
}

impl<'a> Statements<'a> {
    fn prepare(connection: &'a Connection) -> Result<Self, Fault> {
        let prepare = |sql| connection.prepare_cached(sql);
        Ok(Self {
            connection,
            shapes: Shapes::default(),
            key: prepare("SELECT id, key_digest FROM jobs WHERE key = ?1")?,
            current: prepare(
                "SELECT seq, owner, state, finished_at, wake_at, over, queued FROM jobs WHERE id = ?1",
            )?,
            job: prepare(
                "INSERT INTO jobs (id, name, state, submitted_at, finished_at, wake_at, over, \
                 labels, retried_from, local, seq, owner, key, key_digest, queued, plan) \
                 VALUES (:id, :name, :state, :submitted_at, :finished_at, :wake_at, :over, \
                 :labels, :retried_from, :local, :seq, :owner, :key, :key_digest, :queued, :plan)",
            )?,
            label: prepare(
                "INSERT INTO labels (name, value, submitted_at, job) VALUES (?1, ?2, ?3, ?4)",
            )?,
            event: prepare(
                "INSERT INTO events (job, last, first, lines, crc) VALUES (?1, ?2, ?3, ?4, ?5)",
            )?,
            end: prepare("UPDATE jobs SET seq = ?2 WHERE id = ?1")?,
            row: prepare(
                "UPDATE jobs SET seq = ?2, state = ?3, finished_at = ?4, wake_at = ?5, over = ?6, \
                 queued = ?7 WHERE id = ?1",
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
        written: &Written,
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
                    queued: row.get(6)?,
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
            None => self.new_job(owner, write, written)?,
        }
        for row in &written.rows {
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

    fn new_job(&mut self, owner: &Owner, write: &Write, written: &Written) -> Result<(), Fault> {
        let row = &write.row;
        let mut keep = |shape| self.shapes.keep(self.connection, shape);
        let plan = written.shape.as_ref().map(&mut keep).transpose()?;
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
            ":queued": row.queued,
            ":plan": plan,
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
            let Mutable { state, finished_at, wake_at, queued, over } = now;
            self.row.execute(params![id, seq, state, finished_at, wake_at, over, queued])?;
        }
        Ok(())
    }
}

/// Only the mark is written: what cannot be read is left as it is.
pub(super) fn park(connection: &Connection, job: &str, why: &str) -> Result<bool, Fault> {
    let parked = connection
        .prepare_cached(
            "UPDATE jobs SET stuck = ?2, wake_at = NULL, queued = NULL WHERE id = ?1 AND over = 0",
        )?
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
        // The last job with a plan takes it along.
        "UPDATE plans SET jobs = jobs - 1 WHERE id = (SELECT plan FROM jobs WHERE id = ?1)",
        "DELETE FROM plans WHERE jobs <= 0 AND id = (SELECT plan FROM jobs WHERE id = ?1)",
        "DELETE FROM jobs WHERE id = ?1",
    ] {
        let mut delete = connection.prepare_cached(sql)?;
        for job in jobs {
            delete.execute([job])?;
        }
    }
    Ok(())
}
