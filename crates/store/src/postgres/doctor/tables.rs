//! What the tables have become: dead rows, weeks, and what they take of the disk.

use steadfast_core::time::human_ms;

use super::super::connection::Connection;
use super::super::fault::Fault;
use crate::Finding;

/// Dead rows are nothing to tell of below.
const DEAD_ROWS: i64 = 100_000;
/// Of 2³¹ transactions, after which a database that is not vacuumed stops.
const OLD_TRANSACTIONS: i64 = 1_500_000_000;
/// More weeks than this, and every plan looks at many tables: three years.
const MANY_WEEKS: i64 = 160;
/// A table with so many rows that was never analyzed is planned for as if it were small.
const MANY_ROWS: i64 = 100_000;

pub(super) fn vacuum(connection: &mut Connection) -> Result<Finding, Fault> {
    let rows = connection.read(
        "SELECT t.relname::text, t.n_dead_tup, t.n_live_tup, \
         (extract(epoch FROM clock_timestamp() - greatest(t.last_vacuum, t.last_autovacuum)) * 1000)::bigint, \
         greatest(t.last_analyze, t.last_autoanalyze) IS NOT NULL, \
         (SELECT age(datfrozenxid)::bigint FROM pg_database WHERE datname = current_database()), \
         current_setting('autovacuum') = 'on' \
         FROM pg_stat_user_tables t JOIN pg_class c ON c.oid = t.relid \
         WHERE t.schemaname = 'steadfast' AND c.relkind = 'r' \
         ORDER BY t.n_dead_tup > t.n_live_tup DESC, t.n_dead_tup DESC",
        &[],
    )?;
    let Some(worst) = rows.first() else {
        return Ok(Finding::ok("vacuum", "there are no tables"));
    };
    let (dead, live, age): (i64, i64, i64) = (worst.get(1), worst.get(2), worst.get(5));
    let name = worst.get::<_, &str>(0);
    let vacuumed = worst.get::<_, Option<i64>>(3);
    let vacuumed = vacuumed.map_or_else(
        || "was never vacuumed".to_owned(),
        |ms| format!("was last vacuumed {} ago", human_ms(ms.max(0) as u64)),
    );
    let unanalyzed =
        rows.iter().find(|row| row.get::<_, i64>(2) > MANY_ROWS && !row.get::<_, bool>(4));
    let held_up = "see that nothing holds autovacuum up: an old transaction, a replication slot, a prepared transaction";
    Ok(if age > OLD_TRANSACTIONS {
        let said = format!(
            "{age} transactions since the database was last frozen; at 2147483648 it stops"
        );
        Finding::problem("vacuum", said, format!("{held_up}; then VACUUM FREEZE"))
    } else if !worst.get::<_, bool>(6) {
        let said = "autovacuum is off: dead rows are never removed, and every write gets slower";
        Finding::problem("vacuum", said, "set autovacuum = on")
    } else if dead > DEAD_ROWS && dead > live / 5 {
        let said = format!("{dead} dead rows beside {live} in steadfast.{name}, which {vacuumed}");
        Finding::warning("vacuum", said, format!("{held_up}; then VACUUM steadfast.{name}"))
    } else if let Some(row) = unanalyzed {
        let (name, live): (&str, i64) = (row.get(0), row.get(2));
        let said = format!("steadfast.{name} has {live} rows, and was never analyzed");
        Finding::warning(
            "vacuum",
            said,
            format!("ANALYZE steadfast.{name}; see why autovacuum does not"),
        )
    } else {
        Finding::ok("vacuum", "autovacuum keeps up: no table has many dead rows")
    })
}

/// Whether there is one for the jobs that come, and whether anything is where no job should be.
pub(super) fn weeks(connection: &mut Connection) -> Result<Finding, Fault> {
    let rows = connection.read(
        "SELECT count(*), \
         (coalesce(max(ends_ms), 0) - extract(epoch FROM clock_timestamp()) * 1000)::bigint, \
         (SELECT job FROM steadfast.events_early LIMIT 1), (SELECT job FROM steadfast.events_late LIMIT 1) \
         FROM steadfast.weeks",
        &[],
    )?;
    let (count, ahead_ms): (i64, i64) = (rows[0].get(0), rows[0].get(1));
    let odd = rows[0].get::<_, Option<String>>(2).or_else(|| rows[0].get(3));
    Ok(if let Some(job) = odd {
        Finding::warning(
            "history",
            format!("job {job} is of before 2024 or after 2099, by its id"),
            "look at the clocks of all servers. Such jobs are kept and purged like others, but never together with their week",
        )
    } else if ahead_ms < 24 * 60 * 60 * 1000 {
        Finding::warning(
            "history",
            "there is no partition for tomorrow's jobs, so that the first of them waits until one is made",
            "start a server: it makes them for a fortnight, every hour. If one runs, look for StoreNotMaintained in its log",
        )
    } else if count > MANY_WEEKS {
        Finding::warning(
            "history",
            format!("{count} weeks are kept, as partitions of every table of history"),
            "set retention.finished_jobs, or `steadfast purge --older 365d`; a week goes when its last open job has ended and expired",
        )
    } else {
        let ahead = human_ms(ahead_ms.unsigned_abs());
        Finding::ok("history", format!("{count} weeks, the last of which ends in {ahead}"))
    })
}

/// How much there is; how much is left only the machine of the database knows.
pub(super) fn size(connection: &mut Connection) -> Result<Finding, Fault> {
    let row = connection.read(
        "SELECT pg_size_pretty(pg_database_size(current_database())), pg_size_pretty(coalesce( \
         (SELECT sum(pg_total_relation_size(i.inhrelid)) FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent \
          WHERE p.relnamespace = 'steadfast'::regnamespace AND p.relkind = 'p'), 0)), \
         pg_size_pretty(pg_total_relation_size('steadfast.jobs'))",
        &[],
    )?;
    let text = |column| row[0].get::<_, &str>(column);
    let said = format!(
        "the database takes {}: {} are history, {} rows of jobs. See on its machine how much is left",
        text(0),
        text(1),
        text(2)
    );
    Ok(Finding::ok("disk", said))
}
