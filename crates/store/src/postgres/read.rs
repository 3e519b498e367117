//! Reading jobs and lists of them.

use std::collections::BTreeMap;

use steadfast_core::event::{JobId, JobState};
use tokio_postgres::types::Type;

use super::connection::{Connection, Param};
use super::events;
use super::fault::Fault;
use super::param::{Text, at, count};
use crate::cursor::Cursor;
use crate::events::{Damage, crc};
use crate::{Filter, JobCounts, Page, Row, Snapshot, Stored};

/// In the order in which [`readable`] reads them.
const ROW: &str = "j.id, j.name, j.state, j.submitted_at, j.finished_at, j.wake_at, j.over, \
                   j.labels, j.retried_from, j.local, j.stuck, j.queued, j.n, j.seq";

fn row(from: &tokio_postgres::Row) -> Result<Row, Fault> {
    match readable(from) {
        (row, None) => Ok(row),
        (row, Some(why)) => {
            Err(Damage::new(&row.id, format!("the row of job {}", row.id), why).into())
        }
    }
}

fn seq(from: &tokio_postgres::Row) -> u64 {
    from.get::<_, i64>(13) as u64
}

/// What can be read of a row, and what is wrong with the rest: a state that is none is shown as failed,
/// labels that are none are left out.
fn readable(from: &tokio_postgres::Row) -> (Row, Option<String>) {
    let mut damage = None;
    let state: &str = from.get(2);
    let known = JobState::ALL.iter().copied().find(|known| known.name() == state);
    if known.is_none() {
        damage = Some(format!("{state:?} is no state"));
    }
    let labels: Option<&str> = from.get(7);
    let labels = labels.map_or(Ok(BTreeMap::new()), serde_json::from_str);
    let labels = labels.unwrap_or_else(|error| {
        damage = Some(format!("its labels: {error}"));
        BTreeMap::new()
    });
    let row = Row {
        id: from.get::<_, &str>(0).into(),
        name: from.get(1),
        state: known.unwrap_or(JobState::Failed),
        submitted_at: at(from.get(3)),
        finished_at: from.get::<_, Option<i64>>(4).map(at),
        wake_at: from.get::<_, Option<i64>>(5).map(at),
        queued: from.get(11),
        over: from.get(6),
        labels,
        retried_from: from.get::<_, Option<&str>>(8).map(JobId::from),
        local: from.get(9),
    };
    (row, damage)
}

/// A kept state, if it fits its checksum. Without it the job is as whole as before: the log gives the same, only later.
fn snapshot(from: &tokio_postgres::Row, column: usize) -> Option<Snapshot> {
    let seq = from.get::<_, Option<i64>>(column)? as u64;
    let state: Vec<u8> = from.get(column + 1);
    let fits = from.get::<_, i64>(column + 2) == i64::from(crc(seq, seq, &state));
    fits.then_some(Snapshot { seq, state })
}

/// One statement, so that row and snapshot are of the same moment.
pub(super) fn get(connection: &mut Connection, job: &str) -> Result<Option<Stored>, Fault> {
    let rows = connection.read(
        &format!(
            "SELECT {ROW}, s.seq, s.state, s.crc, \
             CASE WHEN j.shard IS NULL THEN j.id ELSE coalesce(h.owner, '') END \
             FROM steadfast.jobs j LEFT JOIN steadfast.snapshots s ON s.job = j.id \
             LEFT JOIN steadfast.shards h ON h.shard = j.shard WHERE j.id = $1"
        ),
        &[(&Text(job), Type::TEXT)],
    )?;
    let Some(from) = rows.first() else { return Ok(None) };
    Ok(Some(Stored {
        row: row(from)?,
        seq: seq(from),
        owner: from.get(17),
        stuck: from.get(10),
        snapshot: snapshot(from, 14),
    }))
}

pub(super) fn projection(
    connection: &mut Connection,
    job: &str,
) -> Result<Option<Snapshot>, Fault> {
    let rows = connection.read(
        "SELECT seq, state, crc FROM steadfast.projections WHERE job = $1",
        &[(&Text(job), Type::TEXT)],
    )?;
    Ok(rows.first().and_then(|from| snapshot(from, 0)))
}

pub(super) fn end(connection: &mut Connection, job: &str) -> Result<Option<(Row, u64)>, Fault> {
    let sql = format!("SELECT {ROW} FROM steadfast.jobs j WHERE j.id = $1");
    let rows = connection.read(&sql, &[(&Text(job), Type::TEXT)])?;
    let Some(from) = rows.first() else { return Ok(None) };
    Ok(Some((row(from)?, seq(from))))
}

pub(super) fn key(
    connection: &mut Connection,
    key: &str,
) -> Result<Option<(JobId, String)>, Fault> {
    let rows = connection.read(
        "SELECT job, digest FROM steadfast.keys WHERE key = $1",
        &[(&Text(key), Type::TEXT)],
    )?;
    Ok(rows.first().map(|from| (from.get::<_, &str>(0).into(), from.get(1))))
}

pub(super) fn counts(connection: &mut Connection) -> Result<JobCounts, Fault> {
    let sql = "SELECT state, sum(jobs)::bigint FROM steadfast.job_counts GROUP BY state";
    let rows = connection.read(sql, &[])?;
    Ok(JobCounts::of(rows.iter().map(|row| (row.get(0), row.get(1)))))
}

/// Fixed conditions are spelled out, so that the planner uses a partial index.
pub(super) fn list(
    connection: &mut Connection,
    filter: &Filter,
    cursor: Option<Cursor>,
    limit: usize,
) -> Result<Page, Fault> {
    let label = filter.label.as_ref().map(|(name, value)| (Text(name), Text(value)));
    let name = filter.name.as_deref().map(Text);
    let state = filter.state.map(|state| Text(state.name()));
    let after = cursor.map(|Cursor(number)| number);
    let most = count(limit.saturating_add(1));
    let mut query = Query::new();
    let mut from = "steadfast.jobs j";
    let mut number = "j.n";
    if let Some((name, value)) = &label {
        from = "steadfast.labels l JOIN steadfast.jobs j ON j.n = l.job";
        number = "l.job";
        query.add("l.name = ", (name, Type::TEXT));
        query.add("l.value = ", (value, Type::TEXT));
    }
    if let (Some(state), Some(value)) = (filter.state, &state) {
        query.add("j.state = ", (value, Type::TEXT));
        match state {
            JobState::Failed | JobState::Cancelled => {
                query.conditions.push("j.state IN ('failed', 'cancelled')".to_owned());
            }
            state if !state.is_terminal() => query.conditions.push("NOT j.over".to_owned()),
            _ => {}
        }
    }
    if let Some(name) = &name {
        query.add("j.name = ", (name, Type::TEXT));
    }
    match filter.over {
        Some(true) => query.conditions.push("j.over".to_owned()),
        Some(false) => query.conditions.push("NOT j.over".to_owned()),
        None => {}
    }
    if let Some(local) = filter.local {
        query.conditions.push(if local { "j.local" } else { "NOT j.local" }.to_owned());
    }
    if let Some(after) = &after {
        query.add(&format!("{number} < "), (after, Type::INT8));
    }
    let conditions = query.conditions.join(" AND ");
    query.params.push((&most, Type::INT8));
    let sql = format!(
        "SELECT {ROW} FROM {from} WHERE {conditions} ORDER BY {number} DESC LIMIT ${}",
        query.params.len()
    );
    Ok(page(&connection.read(&sql, &query.params)?, limit))
}

/// Conditions that must all hold, and their values.
struct Query<'a> {
    conditions: Vec<String>,
    params: Vec<Param<'a>>,
}

impl<'a> Query<'a> {
    fn new() -> Self {
        Self { conditions: vec!["TRUE".to_owned()], params: vec![] }
    }

    fn add(&mut self, condition: &str, param: Param<'a>) {
        self.params.push(param);
        self.conditions.push(format!("{condition}${}", self.params.len()));
    }
}

fn page(rows: &[tokio_postgres::Row], limit: usize) -> Page {
    let mut page = Page::default();
    for from in rows.iter().take(limit) {
        let (row, damage) = readable(from);
        let damage = damage.map(|why| format!("its row: {why}"));
        if let Some(why) = damage.or(from.get(10)) {
            page.damaged.insert(row.id.clone(), why);
        }
        page.jobs.push(row);
    }
    if rows.len() > limit {
        let last = rows.get(limit.wrapping_sub(1));
        page.next = last.map(|last| Cursor(last.get(12)).to_string());
    }
    page
}

pub(super) fn damage(connection: &mut Connection, job: &str) -> Result<Option<String>, Fault> {
    let sql = format!("SELECT {ROW}, j.plan IS NOT NULL FROM steadfast.jobs j WHERE j.id = $1");
    let rows = connection.read(&sql, &[(&Text(job), Type::TEXT)])?;
    let Some(from) = rows.first() else { return Ok(None) };
    if let (_, Some(why)) = readable(from) {
        return Ok(Some(format!("its row: {why}")));
    }
    if let Some(why) = from.get(10) {
        return Ok(Some(why));
    }
    events::damage(connection, job, seq(from), from.get(14))
}
