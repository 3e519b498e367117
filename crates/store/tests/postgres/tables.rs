//! Rows that are rewritten, counts that are kept, and what an operator is told of both.

use std::sync::Barrier;
use std::thread;

use steadfast_core::event::JobState;
use steadfast_core::time::Timestamp;
use steadfast_store::testing::{TestCluster, execute, query};
use steadfast_store::{
    Journal as _, Owner, PostgresStorage, Reader as _, Severity, Storage as _, Write,
};

use super::common::{owner, put, write};
use super::storage::now;
use super::weeks::{ended, id_at, open};

in_one_test!(
    tables_over_time:
    writes_that_change_nothing_with_an_index_touch_none,
    owners_that_write_at_once_are_counted_together,
    what_a_mark_and_a_write_do_at_once_is_counted_once,
    what_is_wrong_with_tables_and_leases_is_told,
);

fn writes_that_change_nothing_with_an_index_touch_none() {
    const WRITES: u64 = 200;
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    let owner = owner(&mut store, Owner::SHARD);
    let jobs: Vec<_> = (0..20).map(|n| id_at(now().0, &n.to_string())).collect();
    for seq in 0..WRITES {
        let group: Vec<_> = jobs.iter().map(|id| write(id, seq, 1)).collect();
        assert!(store.commit(&owner, &group).unwrap().iter().all(Result::is_ok));
    }
    let renew = "UPDATE steadfast.owners SET renewed_at = clock_timestamp()";
    (0..WRITES).for_each(|_| execute(&url, renew));
    // What a session did is told when it ends, at the latest.
    drop(store);
    let hot = |table: &str| {
        let sql = format!(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables \
             WHERE schemaname = 'steadfast' AND relname = '{table}'"
        );
        let row = query(&url, &sql).remove(0);
        let (all, hot) = row.trim_matches(['(', ')']).split_once(',').expect("two");
        (all.parse::<u64>().unwrap(), hot.parse::<u64>().unwrap())
    };
    for (table, updates) in [("jobs", (WRITES - 1) * 20), ("owners", WRITES)] {
        while hot(table).0 < updates {
            thread::yield_now();
        }
        let (all, hot) = hot(table);
        // None would be, if an index were touched. How many of the others find room in their page depends on when the database prunes it.
        assert!(hot * 2 >= all, "{table}: {hot} of {all}");
    }
}

fn owners_that_write_at_once_are_counted_together() {
    const JOBS: usize = 40;
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    let names = [Owner::SHARD, "one", "two"];
    for name in names {
        store.take(name, Timestamp(0), None).unwrap();
    }
    execute(
        &url,
        "UPDATE steadfast.shards SET owner = (ARRAY['shard-0', 'one', 'two'])[shard % 3 + 1]",
    );
    thread::scope(|scope| {
        for (place, name) in names.into_iter().enumerate() {
            let url = &url;
            scope.spawn(move || {
                let mut store = open(url);
                let owner = owner(&mut store, name);
                let ids = (0..).map(|n| id_at(now().0, &format!("{place}{n}")));
                let of_owner =
                    |id: &String| crc32fast::hash(id.as_bytes()) as usize % 64 % 3 == place;
                for id in ids.filter(of_owner).take(JOBS) {
                    let mut end = ended(&id, 5);
                    end = Write { records: write(&id, 1, 1).records, expected_seq: 1, ..end };
                    assert_eq!(store.commit(&owner, &[write(&id, 0, 1)]).unwrap(), [Ok(())]);
                    assert_eq!(store.commit(&owner, &[end]).unwrap(), [Ok(())]);
                }
            });
        }
        // Beside those who remove, whoever's jobs they are.
        let url = &url;
        scope.spawn(move || {
            let mut store = open(url);
            let mut gone = 0;
            while gone < names.len() * JOBS {
                gone += store.purge(Timestamp(6)).unwrap().len();
            }
        });
    });
    assert_eq!(store.counts().unwrap().by_state.values().sum::<u64>(), 0);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(query(&url, deadlocks), ["(0)"]);
}

/// Who marks a job is not its owner's transaction, and may come between what that has read and what it writes.
fn what_a_mark_and_a_write_do_at_once_is_counted_once() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    for n in 0..30 {
        let id = id_at(now().0, &n.to_string());
        put(&mut store, write(&id, 0, 1));
        let barrier = Barrier::new(2);
        thread::scope(|scope| {
            let (url, id, barrier) = (&url, &id, &barrier);
            scope.spawn(move || {
                let mut store = open(url);
                barrier.wait();
                store.park(id, "it contradicts itself").unwrap();
            });
            let mut end = write(id, 1, 1);
            end.row.state = JobState::Failed;
            barrier.wait();
            put(&mut store, end);
        });
    }
    let counts = store.counts().unwrap();
    assert_eq!((counts.stuck, counts.open(), counts.by_state[&JobState::Failed]), (30, 0, 0));
}

fn what_is_wrong_with_tables_and_leases_is_told() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let storage = PostgresStorage::new(&url).unwrap();
    let said = |check: &str| {
        let all = storage.examine(now(), 0);
        let found = all.iter().find(|it| it.check == check);
        let found = found.unwrap_or_else(|| panic!("{check}: {all:?}"));
        assert_eq!(found.advice.is_some(), found.severity > Severity::Ok, "{found:?}");
        (found.severity, found.said.clone())
    };
    let mut store = storage.store().unwrap();
    storage.maintain().unwrap();
    for check in ["durability", "schema", "leases", "vacuum", "history", "disk", "clock", "jobs"] {
        assert_eq!(said(check).0, Severity::Ok, "{check}: {:?}", said(check));
    }
    // Weeks that nobody has made, and what is in none.
    let ahead = "SELECT to_char(to_timestamp(starts_ms / 1000) AT TIME ZONE 'UTC', 'YYYYMMDD') \
                 FROM steadfast.weeks";
    for suffix in query(&url, ahead) {
        let suffix = suffix.trim_matches(['(', ')']);
        let tables = [
            "events",
            "snapshots",
            "projections",
            "logs",
            "log_pieces",
            "log_times",
            "files",
            "file_pieces",
        ];
        for table in tables {
            execute(&url, &format!("DROP TABLE steadfast.{table}_{suffix}"));
        }
    }
    assert!(
        said("history").1.contains("no partition for tomorrow's jobs"),
        "{:?}",
        said("history")
    );
    storage.maintain().unwrap();
    assert_eq!(said("history").0, Severity::Ok);
    put(&mut store, write("zebra", 0, 1));
    assert!(said("history").1.contains("job zebra"), "{:?}", said("history"));
    assert!(store.park("zebra", "it is odd").unwrap());
    assert_eq!(said("jobs").0, Severity::Warning);
    // A server that has shards, and is silent.
    execute(
        &url,
        "INSERT INTO steadfast.owners (id, epoch, incarnation, until, renewed_at, serves) \
         VALUES ('gone', 1, 'x', clock_timestamp() - interval '1 minute', clock_timestamp(), true); \
         UPDATE steadfast.shards SET owner = 'gone'",
    );
    let (severity, why) = said("leases");
    assert!(severity == Severity::Warning && why.contains("nobody goes on"), "{why}");
    execute(&url, "UPDATE steadfast.owners SET until = clock_timestamp() + interval '1 minute'");
    assert_eq!(said("leases").0, Severity::Ok);
    execute(&url, "UPDATE steadfast.shards SET owner = NULL WHERE shard < 3");
    assert!(said("leases").1.starts_with("3 shards are nobody's"), "{:?}", said("leases"));
}
