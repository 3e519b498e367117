//! Who may write, when each was down, and what each has to wake up.

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use super::connection::Connection;
use super::fault::Fault;
use super::param::{Text, at, count, ms};
use crate::shards::shard_of;
use crate::{Gap, Owner, QueueEntry, Whose};

/// Jobs of the owner `$1`: those of its shards, only those of `$2` unless that is null, and the one of `run` that it is.
const SOME_JOBS: &str = "(shard IN (SELECT shard FROM steadfast.shards \
                                    WHERE owner = $1 AND ($2::smallint[] IS NULL OR shard = ANY ($2))) \
                          OR $2 IS NULL AND shard IS NULL AND id = $1)";

fn some(shards: Option<&[u16]>) -> Option<Vec<i16>> {
    shards.map(|shards| shards.iter().map(|shard| *shard as i16).collect())
}

pub(super) fn take(
    connection: &mut Connection,
    owner: &str,
    now: Timestamp,
    down_since: Option<Timestamp>,
    runner: Option<&str>,
) -> Result<Owner, Fault> {
    let rows = connection.query(
        "SELECT steadfast.take_v1($1, $2, $3, $4, $5)",
        &[
            (&Text(owner), Type::TEXT),
            (&ms(now), Type::INT8),
            (&down_since.map(ms), Type::INT8),
            (&(owner == Owner::SHARD), Type::BOOL),
            (&runner, Type::TEXT),
        ],
    )?;
    Ok(Owner { id: owner.into(), epoch: rows[0].get::<_, i64>(0) as u64 })
}

pub(super) fn is_owned(
    connection: &mut Connection,
    owner: &Owner,
    job: &str,
) -> Result<bool, Fault> {
    let shard = shard_of(job, connection.database().shards()?) as i16;
    let rows = connection.read(
        "SELECT 1 FROM steadfast.owners o LEFT JOIN steadfast.jobs j ON j.id = $3 \
         LEFT JOIN steadfast.shards s ON s.shard = CASE WHEN j.id IS NULL THEN $4 ELSE j.shard END \
         WHERE o.id = $1 AND o.epoch = $2 AND coalesce(s.owner, j.id) = $1",
        &[
            (&Text(&owner.id), Type::TEXT),
            (&(owner.epoch as i64), Type::INT8),
            (&Text(job), Type::TEXT),
            (&shard, Type::INT2),
        ],
    )?;
    Ok(!rows.is_empty())
}

/// A job that came from another store has brought those along that it was in there, as its own. Of a job of `run`, they are its owner's.
pub(super) fn gaps(
    connection: &mut Connection,
    owner: &str,
    job: &str,
    after: Timestamp,
) -> Result<Vec<Gap>, Fault> {
    let shards = connection.database().shards()?;
    let scope = if owner == job { job.to_owned() } else { shard_of(job, shards).to_string() };
    let rows = connection.read(
        "SELECT down_since, up_at FROM steadfast.gaps WHERE up_at > $2 AND scope = ANY (ARRAY[$1, \
         CASE WHEN EXISTS (SELECT FROM steadfast.owners WHERE id = $3) THEN $1 ELSE $3 END]) \
         ORDER BY up_at",
        &[(&Text(&scope), Type::TEXT), (&ms(after), Type::INT8), (&Text(job), Type::TEXT)],
    )?;
    Ok(rows.iter().map(|row| Gap { from: at(row.get(0)), until: at(row.get(1)) }).collect())
}

/// A group that was sent before is committed before.
pub(super) fn hand_over(
    connection: &mut Connection,
    owner: &Owner,
    shards: &[u16],
    to: &str,
) -> Result<(), Fault> {
    connection.query(
        "UPDATE steadfast.shards s SET owner = $4, term = steadfast.next_term_v1(s.term) \
         FROM steadfast.owners o \
         WHERE s.owner = $1 AND s.shard = ANY ($3) AND o.id = $1 AND o.epoch = $2",
        &[
            (&&*owner.id, Type::TEXT),
            (&(owner.epoch as i64), Type::INT8),
            (&some(Some(shards)), Type::INT2_ARRAY),
            (&to, Type::TEXT),
        ],
    )?;
    Ok(())
}

pub(super) fn due(
    connection: &mut Connection,
    whose: Whose<'_>,
    after: Option<(Timestamp, JobId)>,
    until: Timestamp,
    limit: usize,
) -> Result<Vec<(Timestamp, JobId)>, Fault> {
    let (from, id) = after.map_or((-1, "".into()), |(from, id)| (ms(from), id));
    let rows = connection.read(
        &format!(
            "SELECT wake_at, id FROM steadfast.jobs WHERE wake_at IS NOT NULL \
             AND (wake_at, id) > ($3, $4) AND wake_at <= $5 AND {SOME_JOBS} \
             ORDER BY wake_at, id LIMIT $6"
        ),
        &[
            (&Text(whose.owner), Type::TEXT),
            (&some(whose.shards), Type::INT2_ARRAY),
            (&from, Type::INT8),
            (&Text(&id), Type::TEXT),
            (&ms(until), Type::INT8),
            (&count(limit), Type::INT8),
        ],
    )?;
    Ok(rows.iter().map(|row| (at(row.get(0)), row.get::<_, &str>(1).into())).collect())
}

/// All of it is in an index.
pub(super) fn queued(
    connection: &mut Connection,
    whose: Whose<'_>,
    after: Option<(Timestamp, JobId)>,
    limit: usize,
) -> Result<Vec<QueueEntry>, Fault> {
    let (from, id) = after.map_or((-1, "".into()), |(from, id)| (ms(from), id));
    let rows = connection.read(
        &format!(
            "SELECT submitted_at, id, queued FROM steadfast.jobs WHERE queued IS NOT NULL \
             AND (submitted_at, id) > ($3, $4) AND {SOME_JOBS} \
             ORDER BY submitted_at, id LIMIT $5"
        ),
        &[
            (&Text(whose.owner), Type::TEXT),
            (&some(whose.shards), Type::INT2_ARRAY),
            (&from, Type::INT8),
            (&Text(&id), Type::TEXT),
            (&count(limit), Type::INT8),
        ],
    )?;
    let entry = |row: &tokio_postgres::Row| QueueEntry {
        submitted_at: at(row.get(0)),
        job: row.get::<_, &str>(1).into(),
        queued: row.get(2),
    };
    Ok(rows.iter().map(entry).collect())
}
