//! What an operator should know of the database. Changes nothing, and makes no schema.

use std::sync::Arc;

use steadfast_core::time::{Timestamp, human_ms};

use super::connection::{Connection, Database};
use super::fault::Fault;
use super::{reservation, schema};
use crate::Finding;
use crate::doctor::{moved, unreadable};

/// More than clocks that are kept differ by.
const APART_MS: u64 = 2_000;
/// Dead rows are nothing to tell of below.
const DEAD_ROWS: i64 = 100_000;
/// A transaction that has been open for so long keeps dead rows from being removed.
const OPEN_SECONDS: i64 = 600;
/// Of 2³¹ transactions, after which a database that is not vacuumed stops.
const OLD_TRANSACTIONS: i64 = 1_500_000_000;

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
    found.push(clock(connection, now)?);
    let Some(shards) = schema::shards(connection)? else {
        found.push(Finding::ok("schema", "there is none yet; the first server makes it"));
        return Ok(());
    };
    let version = schema::VERSION;
    found.push(Finding::ok("schema", format!("version {version}, {shards} shards")));
    found.push(server(connection)?);
    found.push(connections(connection)?);
    found.push(vacuum(connection)?);
    found.push(Finding::of_jobs(jobs(connection)?));
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

/// Of servers: those that are open, and those that are stuck.
fn jobs(connection: &mut Connection) -> Result<(u64, u64), Fault> {
    let rows = connection.read(
        "SELECT (SELECT count(*) FROM steadfast.jobs WHERE wake_at IS NOT NULL AND shard IS NOT NULL), \
         (SELECT count(*) FROM steadfast.jobs WHERE stuck IS NOT NULL AND shard IS NOT NULL)",
        &[],
    )?;
    Ok((rows[0].get::<_, i64>(0) as u64, rows[0].get::<_, i64>(1) as u64))
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

fn vacuum(connection: &mut Connection) -> Result<Finding, Fault> {
    let row = connection.read(
        "SELECT t.relname::text, t.n_dead_tup, \
         (SELECT max(age(datfrozenxid))::bigint FROM pg_database WHERE datname = current_database()) \
         FROM pg_stat_user_tables t WHERE t.schemaname = 'steadfast' \
         ORDER BY t.n_dead_tup > t.n_live_tup DESC, t.n_dead_tup DESC LIMIT 1",
        &[],
    )?;
    let Some(row) = row.first() else { return Ok(Finding::ok("vacuum", "there are no tables")) };
    let (table, dead, age): (&str, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let advice =
        "see that autovacuum is on and not held up by an old transaction or a replication slot";
    Ok(if age > OLD_TRANSACTIONS {
        let said = format!(
            "{age} transactions since the database was last frozen; at 2147483648 it stops"
        );
        Finding::problem("vacuum", said, advice)
    } else if dead > DEAD_ROWS {
        Finding::warning("vacuum", format!("{dead} dead rows in steadfast.{table}"), advice)
    } else {
        Finding::ok("vacuum", "no table has many dead rows")
    })
}
