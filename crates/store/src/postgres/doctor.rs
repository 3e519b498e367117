//! What an operator should know of the database. Changes nothing, and makes no schema.

mod tables;

use std::sync::Arc;

use steadfast_core::time::{Timestamp, human_ms};

use super::connection::{Connection, Database};
use super::fault::Fault;
use super::{read, reservation, schema};
use crate::Finding;
use crate::doctor::{moved, unreadable};

/// More than clocks that are kept differ by.
const APART_MS: u64 = 2_000;
/// A transaction that has been open for so long keeps dead rows from being removed.
const OPEN_SECONDS: i64 = 600;

pub(super) fn examine(database: &Arc<Database>, now: Timestamp) -> Vec<Finding> {
    let mut connection = Connection::unprepared(database);
    let mut found = vec![];
    if let Err(fault) = look(&mut connection, now, &mut found) {
        found.push(unreadable(&fault.at(database.place(), "reading")));
    }
    found
}

fn look(
    connection: &mut Connection,
    now: Timestamp,
    found: &mut Vec<Finding>,
) -> Result<(), Fault> {
    schema::check_settings(connection)?;
    let place = connection.database().place().to_owned();
    let version = connection.read("SELECT current_setting('server_version')", &[])?;
    let version: &str = version[0].get(0);
    found.push(Finding::ok("database", format!("{place}, PostgreSQL {version}")));
    found.push(Finding::ok("durability", "fsync, synchronous_commit and full_page_writes are on"));
    found.push(clock(connection, now)?);
    let Some(shards) = schema::shards(connection)? else {
        found.push(Finding::ok("schema", "there is none yet; the first server makes it"));
        return Ok(());
    };
    let version = schema::VERSION;
    found.push(Finding::ok("schema", format!("version {version}, {shards} shards")));
    found.push(server(connection)?);
    found.push(leases(connection)?);
    found.push(connections(connection)?);
    found.push(tables::vacuum(connection)?);
    found.push(tables::weeks(connection)?);
    found.push(tables::size(connection)?);
    found.push(Finding::of_jobs(&read::counts(connection)?));
    Ok(())
}

fn clock(connection: &mut Connection, now: Timestamp) -> Result<Finding, Fault> {
    let theirs = connection
        .read("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[])?[0]
        .get::<_, i64>(0) as u64;
    let apart = theirs.abs_diff(now.0);
    Ok(if apart > APART_MS {
        Finding::warning(
            "clock",
            format!("this machine's and the database's are {} apart", human_ms(apart)),
            "have both kept by NTP; delays and deadlines are of the server's clock, its lease of the database's",
        )
    } else {
        Finding::ok("clock", "this machine's and the database's agree")
    })
}

fn server(connection: &mut Connection) -> Result<Finding, Fault> {
    let place = connection.database().place().to_owned();
    if let Ok(Some(why)) = reservation::record(connection)?.map(|record| record.closes(&place)) {
        return Ok(moved(&why));
    }
    let rows = connection.read(
        "SELECT until > clock_timestamp(), \
         (extract(epoch FROM clock_timestamp() - renewed_at) * 1000)::bigint \
         FROM steadfast.owners WHERE serves ORDER BY renewed_at DESC",
        &[],
    )?;
    let there = rows.iter().filter(|row| row.get::<_, Option<bool>>(0) == Some(true)).count();
    let ago = rows.first().and_then(|row| row.get::<_, Option<i64>>(1));
    let ago = ago.map(|ms| human_ms(ms.max(0) as u64));
    Ok(match (there, ago) {
        (1, Some(ago)) => Finding::ok("server", format!("one has it, and renewed that {ago} ago")),
        (0, Some(ago)) => {
            Finding::ok("server", format!("none has it; the last one was there {ago} ago"))
        }
        (_, Some(ago)) => {
            Finding::ok("server", format!("{there} share it; the last renewal was {ago} ago"))
        }
        (_, None) => Finding::ok("server", "none has had it"),
    })
}

/// Whether those who have shards renew in time. One that does not is taken for dead by the others, if there are any.
fn leases(connection: &mut Connection) -> Result<Finding, Fault> {
    let row = connection.read(
        "SELECT count(*) FILTER (WHERE o.id IS NULL OR o.incarnation IS NULL), \
         count(*) FILTER (WHERE o.incarnation IS NOT NULL AND o.until < clock_timestamp()), \
         (extract(epoch FROM max(clock_timestamp() - o.until) \
            FILTER (WHERE o.incarnation IS NOT NULL AND o.until < clock_timestamp())) * 1000)::bigint, \
         (SELECT count(*) FROM steadfast.owners WHERE serves AND until > clock_timestamp()) \
         FROM steadfast.shards s LEFT JOIN steadfast.owners o ON o.id = s.owner",
        &[],
    )?;
    let (free, late, servers): (i64, i64, i64) = (row[0].get(0), row[0].get(1), row[0].get(3));
    let late_by = row[0].get::<_, Option<i64>>(2).map(|ms| human_ms(ms.max(0) as u64));
    Ok(match late_by {
        Some(late_by) if servers == 0 => Finding::warning(
            "leases",
            format!(
                "nobody goes on with the jobs of {late} shards: their server has said nothing for {late_by} after its term"
            ),
            "start a server, or see why the one that had them does not reach the database",
        ),
        Some(late_by) => Finding::warning(
            "leases",
            format!("the server of {late} shards has said nothing for {late_by} after its term"),
            "the others take them over within seconds; if they do not, look for ServerLost and errors in their logs",
        ),
        None if free > 0 && servers > 0 => Finding::warning(
            "leases",
            format!("{free} shards are nobody's, with {servers} servers there"),
            "they are taken within seconds; if they are not, look for errors in the servers' logs",
        ),
        None if free > 0 => Finding::ok("leases", "no server has shards"),
        None => Finding::ok("leases", "all shards are those of servers that renew in time"),
    })
}

fn connections(connection: &mut Connection) -> Result<Finding, Fault> {
    let row = connection.read(
        "SELECT count(*), current_setting('max_connections')::bigint, \
         coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::bigint \
         FROM pg_stat_activity",
        &[],
    )?;
    let (used, most, oldest): (i64, i64, i64) = (row[0].get(0), row[0].get(1), row[0].get(2));
    let said = format!("{used} of {most} are in use");
    Ok(if used * 5 > most * 4 {
        let advice = "raise max_connections, or put a PgBouncer in transaction mode between";
        Finding::warning("connections", said, advice)
    } else if oldest > OPEN_SECONDS {
        let oldest = human_ms(oldest.unsigned_abs() * 1000);
        Finding::warning(
            "connections",
            format!(
                "a transaction has been open for {oldest}, and keeps dead rows from being removed"
            ),
            "find it in pg_stat_activity, by xact_start, and end it",
        )
    } else {
        Finding::ok("connections", said)
    })
}
