//! Who may write, when each was down, and what each has to wake up.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use super::fault::Fault;
use super::read::at;
use super::write::ms;
use crate::{Gap, Owner, QueueEntry};

pub(super) fn take(
    connection: &Connection,
    owner: &str,
    now: Timestamp,
    down_since: Option<Timestamp>,
) -> Result<Owner, Fault> {
    let epoch: i64 = connection.query_row(
        "INSERT INTO owners (id, epoch) VALUES (?1, max(1, ?2)) \
         ON CONFLICT (id) DO UPDATE SET epoch = max(epoch + 1, ?2) RETURNING epoch",
        params![owner, ms(now) / 1000],
        |row| row.get(0),
    )?;
    if let Some(down_since) = down_since.filter(|since| *since < now) {
        // The oldest open job of all is the oldest of most owners, and found at once.
        connection.execute(
            "DELETE FROM gaps WHERE owner = ?1 AND up_at <= coalesce((SELECT submitted_at FROM jobs \
             WHERE owner = ?1 AND over = 0 ORDER BY n LIMIT 1), ?2)",
            params![owner, i64::MAX],
        )?;
        // One who came up and went down again before it could say so was down all the time. To a job that knows
        // of the first part, only what comes after its last event is new.
        let before: Option<i64> = connection.query_row(
            "SELECT min(down_since) FROM gaps WHERE owner = ?1 AND up_at >= ?2",
            params![owner, ms(down_since)],
            |row| row.get(0),
        )?;
        connection.execute(
            "DELETE FROM gaps WHERE owner = ?1 AND up_at >= ?2",
            params![owner, ms(down_since)],
        )?;
        let down_since = before.map_or(ms(down_since), |before| before.min(ms(down_since)));
        connection.execute(
            "INSERT INTO gaps (owner, up_at, down_since) VALUES (?1, ?2, ?3)",
            params![owner, ms(now), down_since],
        )?;
    }
    Ok(Owner { id: owner.into(), epoch: epoch as u64 })
}

/// The epoch that the owner is in; none: there is no such owner.
pub(super) fn epoch(connection: &Connection, owner: &Arc<str>) -> Result<Option<u64>, Fault> {
    let mut statement = connection.prepare_cached("SELECT epoch FROM owners WHERE id = ?1")?;
    let epoch = statement.query_row([&**owner], |row| row.get::<_, i64>(0)).optional()?;
    Ok(epoch.map(|epoch| epoch as u64))
}

pub(super) fn is_owned(connection: &Connection, owner: &Owner, job: &str) -> Result<bool, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT 1 FROM owners WHERE id = ?2 AND epoch = ?3 \
         AND coalesce((SELECT owner FROM jobs WHERE jobs.id = ?1), ?2) = ?2",
    )?;
    Ok(statement.exists((job, &*owner.id, owner.epoch as i64))?)
}

/// A job that came from another store has brought those along that it was in there, as its own. Of a job of `run`, they are its owner's.
pub(super) fn gaps(
    connection: &Connection,
    owner: &str,
    job: &str,
    after: Timestamp,
) -> Result<Vec<Gap>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT down_since, up_at FROM gaps WHERE up_at > ?2 AND owner IN (?1, \
         CASE WHEN EXISTS (SELECT 1 FROM owners WHERE id = ?3) THEN ?1 ELSE ?3 END) \
         ORDER BY up_at",
    )?;
    let gaps = statement.query_map(params![owner, ms(after), job], |row| {
        Ok(Gap { from: at(row.get(0)?), until: at(row.get(1)?) })
    })?;
    Ok(gaps.collect::<Result<_, _>>()?)
}

pub(super) fn due(
    connection: &Connection,
    owner: &str,
    after: Option<(Timestamp, JobId)>,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<(Timestamp, JobId)>, Fault> {
    let (from, id) = after.map_or((-1, "".into()), |(from, id)| (ms(from), id));
    let mut statement = connection.prepare_cached(
        "SELECT wake_at, id FROM jobs WHERE owner = ?1 AND wake_at IS NOT NULL \
         AND (wake_at, id) > (?2, ?3) AND wake_at <= ?4 ORDER BY wake_at, id LIMIT ?5",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let due = statement.query_map(params![owner, from, &*id, ms(until), limit], |row| {
        Ok((at(row.get(0)?), row.get::<_, String>(1)?.into()))
    })?;
    Ok(due.collect::<Result<_, _>>()?)
}

/// All of it is in an index.
pub(super) fn queued(
    connection: &Connection,
    owner: &str,
    after: Option<(Timestamp, JobId)>,
    limit: usize,
) -> Result<Vec<QueueEntry>, Fault> {
    let (from, id) = after.map_or((-1, "".into()), |(from, id)| (ms(from), id));
    let mut statement = connection.prepare_cached(
        "SELECT submitted_at, id, queued FROM jobs WHERE owner = ?1 AND queued IS NOT NULL \
         AND (submitted_at, id) > (?2, ?3) ORDER BY submitted_at, id LIMIT ?4",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let queued = statement.query_map(params![owner, from, &*id, limit], |row| {
        let job = row.get::<_, String>(1)?.into();
        Ok(QueueEntry { submitted_at: at(row.get(0)?), job, queued: row.get(2)? })
    })?;
    Ok(queued.collect::<Result<_, _>>()?)
}
