//! Ended jobs go: week by week where all of a week have, and one by one where some of it stay.

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use super::connection::Connection;
use super::fault::Fault;
use super::insist;
use super::param::ms;
use super::weeks::WEEK_MS;

/// A purge lets others write in between: jobs that are looked at, and that go with their history, in one transaction.
const LOOKED_AT: i32 = 2000;
const PURGED_AT_ONCE: i32 = 200;
/// A week is dropped when nobody writes for a moment, which is waited for this often; then with the next purge.
const DROP_TRIES: u32 = 5;

/// How long what may go waits to go with its week, where that has jobs which may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    None,
    /// From the moment on that all of the week could have gone.
    AWeek,
}

/// Jobs by their ids, which are after one and before another.
struct Range {
    after: String,
    until: Option<String>,
    week: Option<Week>,
}

struct Week {
    starts_ms: i64,
    ends_ms: i64,
    /// Nothing of it is just being made.
    is_past: bool,
}

pub(super) fn purge(
    connection: &mut Connection,
    finished_before: Timestamp,
    patience: Patience,
) -> Result<Vec<JobId>, Fault> {
    let mut gone = vec![];
    for range in ranges(connection)? {
        match purge_range(connection, &range, ms(finished_before), patience, &mut gone) {
            // What went before is told: its caller has files of these jobs to remove. The next purge goes on.
            Err(_) if !gone.is_empty() => return Ok(gone),
            done => done?,
        }
    }
    Ok(gone)
}

/// All ids there can be: those of the weeks, and those before and after them, which are of no time.
fn ranges(connection: &mut Connection) -> Result<Vec<Range>, Fault> {
    let rows = connection.read(
        "SELECT low, high, starts_ms, ends_ms, \
         ends_ms <= extract(epoch FROM clock_timestamp()) * 1000 - 86400000 FROM steadfast.weeks",
        &[],
    )?;
    let mut ranges = vec![Range { after: String::new(), until: None, week: None }];
    for row in &rows {
        let (starts_ms, ends_ms, is_past) = (row.get(2), row.get(3), row.get(4));
        let week = Some(Week { starts_ms, ends_ms, is_past });
        let before = ranges.last_mut().expect("there is one");
        before.until.get_or_insert_with(|| row.get(0));
        ranges.push(Range { after: row.get(0), until: Some(row.get(1)), week });
    }
    if let Some(last) = ranges.last().and_then(|range| range.until.clone()) {
        ranges.push(Range { after: last, until: None, week: None });
    }
    Ok(ranges)
}

fn purge_range(
    connection: &mut Connection,
    range: &Range,
    before: i64,
    patience: Patience,
    gone: &mut Vec<JobId>,
) -> Result<(), Fault> {
    if let Some(week) = &range.week {
        if week.is_past && week.ends_ms <= before && has_expired(connection, range, before)? {
            // Without their history: that goes with the week. If it is kept from going now, it does another time, as there is no job in it.
            purge_jobs(connection, range, before, false, gone)?;
            return drop_week(connection, week);
        }
        if patience == Patience::AWeek && week.ends_ms + WEEK_MS > before {
            return Ok(());
        }
    }
    purge_jobs(connection, range, before, true, gone)
}

fn has_expired(connection: &mut Connection, range: &Range, before: i64) -> Result<bool, Fault> {
    let rows = connection.read(
        "SELECT NOT EXISTS (SELECT FROM steadfast.jobs WHERE id > $1 AND id < $2 \
         AND NOT (over AND coalesce(finished_at < $3, false)))",
        &[(&range.after, Type::TEXT), (&range.until, Type::TEXT), (&before, Type::INT8)],
    )?;
    Ok(rows[0].get(0))
}

fn purge_jobs(
    connection: &mut Connection,
    range: &Range,
    before: i64,
    history: bool,
    gone: &mut Vec<JobId>,
) -> Result<(), Fault> {
    let at_once = if history { PURGED_AT_ONCE } else { LOOKED_AT };
    let mut next = Some(range.after.clone());
    while let Some(after) = next {
        let some = insist(connection, |connection| {
            connection.query(
                "SELECT gone, next FROM steadfast.purge_v1($1, $2, $3, $4, $5, $6)",
                &[
                    (&before, Type::INT8),
                    (&after, Type::TEXT),
                    (&range.until, Type::TEXT),
                    (&LOOKED_AT, Type::INT4),
                    (&at_once, Type::INT4),
                    (&history, Type::BOOL),
                ],
            )
        })?;
        gone.extend(some[0].get::<_, Vec<&str>>(0).into_iter().map(JobId::from));
        next = some[0].get(1);
    }
    Ok(())
}

fn drop_week(connection: &mut Connection, week: &Week) -> Result<(), Fault> {
    for _ in 0..DROP_TRIES {
        let dropped =
            connection.query("SELECT steadfast.drop_week_v1($1)", &[(&week.starts_ms, Type::INT8)]);
        match dropped {
            Err(fault) if fault.is_locked_out() => {}
            dropped => return dropped.map(drop),
        }
    }
    Ok(())
}
