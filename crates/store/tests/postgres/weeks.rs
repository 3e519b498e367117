//! History over time: weeks that come and go.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use steadfast_core::event::{JobId, JobState};
use steadfast_core::time::Timestamp;
use steadfast_store::testing::{TestCluster, execute, hold, query};
use steadfast_store::{
    AttachedFile, Blobs, Journal as _, LogChunk, LogName, PostgresStorage, PostgresStore,
    Reader as _, Refused, Snapshot, Storage as _, StoreError, Write,
};

use super::common::{commit, key, log, put, write};
use super::storage::now;

in_one_test!(
    history_over_time:
    a_job_of_long_ago_has_a_week_of_its_own_and_one_of_no_time_has_none,
    writers_that_find_no_week_at_once_make_one,
    a_week_goes_when_all_its_jobs_are_over_and_expired,
    a_week_with_an_open_job_keeps_it_whole_and_the_others_go_one_by_one,
    what_expires_waits_for_its_week_and_not_for_ever,
    a_week_that_somebody_reads_is_dropped_another_time_and_holds_nobody_up,
    a_job_that_comes_into_a_week_while_that_is_dropped_has_its_whole_log,
    a_server_that_may_make_no_tables_makes_and_drops_weeks,
    a_store_is_maintained_without_a_word,
);

const DAY: u64 = 24 * 60 * 60 * 1000;
const WEEK: u64 = 7 * DAY;

/// As a server makes them: the time, and then anything.
pub(crate) fn id_at(ms: u64, rest: &str) -> String {
    const DIGITS: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let time = (0..10).map(|place| DIGITS[(ms >> (45 - 5 * place)) as usize & 31] as char);
    format!("{}{rest:0>16}", time.collect::<String>())
}

/// Noon of the Wednesday of the week that was so many weeks ago.
fn weeks_ago(weeks: u64) -> u64 {
    let monday = (now().0 - 4 * DAY) / WEEK * WEEK + 4 * DAY;
    monday - weeks * WEEK + 2 * DAY + DAY / 2
}

pub(crate) fn ended(id: &str, at: u64) -> Write {
    let mut write = write(id, 0, 2);
    write.row.state = JobState::Succeeded;
    (write.row.over, write.row.finished_at) = (true, Some(Timestamp(at)));
    write
}

pub(crate) fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url).expect("the database is there")
}

/// The partitions that the events of a job are in.
fn places(url: &str, id: &str) -> Vec<String> {
    let sql =
        "SELECT DISTINCT c.relname FROM steadfast.events e JOIN pg_class c ON c.oid = e.tableoid";
    query(url, &format!("{sql} WHERE e.job = '{id}'"))
}

fn weeks(url: &str) -> Vec<u64> {
    let rows = query(url, "SELECT starts_ms FROM steadfast.weeks");
    rows.iter().map(|row| row.trim_matches(['(', ')']).parse().expect("a number")).collect()
}

fn has_week(url: &str, ms: u64) -> bool {
    weeks(url).iter().any(|starts| (*starts..starts + WEEK).contains(&ms))
}

/// All that a job may have in history.
fn fill(store: &mut PostgresStore, blobs: &dyn Blobs, new: Write) -> LogName {
    let job = new.job.clone();
    let seq = new.records.len() as u64;
    put(store, Write { snapshot: Some(vec![1; 100]), ..new });
    assert!(store.project(&job, &Snapshot { seq, state: vec![2; 100] }).unwrap());
    let file = AttachedFile { path: "a".to_owned(), content: vec![3; 100], executable: false };
    blobs.put_files(&job, &[("a".into(), file)].into()).unwrap();
    let log = LogName { job, step: "s".to_owned(), name: "0.1".to_owned() };
    for (offset, last) in [(0, false), (4, true)] {
        let chunk = LogChunk { offset, bytes: b"text", last };
        blobs.write_log(&log, chunk, true).unwrap();
    }
    log
}

fn a_job_of_long_ago_has_a_week_of_its_own_and_one_of_no_time_has_none() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    let then = weeks_ago(60);
    assert!(!has_week(&url, then));
    let (today, old) = (id_at(now().0, "a"), id_at(then, "b"));
    // One group, half of which has no week yet.
    let group = vec![write(&today, 0, 1), write(&old, 0, 3), write(&old, 3, 1)];
    assert_eq!(commit(&mut store, group), [Ok(()), Ok(()), Ok(())]);
    assert!(has_week(&url, then) && has_week(&url, now().0));
    assert_ne!(places(&url, &today), places(&url, &old));
    assert_eq!((log(&mut store, &old).len(), log(&mut store, &today).len()), (4, 1));
    for (id, place) in [("zebra", "late"), ("00000000aa0000000000000000", "early")] {
        put(&mut store, write(id, 0, 1));
        assert_eq!(places(&url, id), [format!("(events_{place})")]);
    }
    // Keys are unique over all of them.
    let keyed = |id: &str| Write { key: Some(key("k", "x")), ..write(id, 0, 1) };
    put(&mut store, keyed(&id_at(then, "c")));
    let taken = commit(&mut store, vec![keyed(&id_at(now().0, "d"))]);
    assert!(matches!(taken[..], [Err(Refused::KeyTaken { same_body: true, .. })]), "{taken:?}");
}

fn writers_that_find_no_week_at_once_make_one() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    drop(open(&url));
    let then = weeks_ago(30);
    thread::scope(|scope| {
        for n in 0..4 {
            let url = &url;
            scope.spawn(move || {
                let mut store = open(url);
                let id = id_at(then, &n.to_string());
                let itself = store.take(&id, Timestamp(0), None).unwrap();
                assert_eq!(store.commit(&itself, &[write(&id, 0, 1)]).unwrap(), [Ok(())]);
                let blobs = PostgresStorage::new(url).unwrap().blobs();
                let log = LogName { job: JobId::from(&*id), step: "s".into(), name: "0.1".into() };
                blobs.mark_partial(&log).unwrap();
            });
        }
    });
    assert_eq!(query(&url, "SELECT count(*) FROM steadfast.events"), ["(4)"]);
    assert_eq!(weeks(&url).iter().filter(|starts| **starts < then).count(), 1);
}

fn a_week_goes_when_all_its_jobs_are_over_and_expired() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let storage = PostgresStorage::new(&url).unwrap();
    let (mut store, blobs) = (storage.store().unwrap(), storage.blobs());
    let (old, older) = (weeks_ago(8), weeks_ago(9));
    let mut ids = vec![];
    for (n, at) in [(1, old), (2, old), (3, older)] {
        let id = id_at(at, &n.to_string());
        let new = Write { key: Some(key(&id, "x")), ..ended(&id, at + 5) };
        fill(&mut store, &*blobs, new);
        ids.push(id);
    }
    let kept = id_at(weeks_ago(1), "4");
    let kept_log = fill(&mut store, &*blobs, ended(&kept, weeks_ago(1) + 5));
    let gone = store.purge(Timestamp(now().0 - 30 * DAY)).unwrap();
    assert_eq!(gone.len(), 3);
    assert!(!has_week(&url, old) && !has_week(&url, older) && has_week(&url, weeks_ago(1)));
    let left = "SELECT relname FROM pg_class WHERE relnamespace = 'steadfast'::regnamespace \
                AND relkind = 'r' AND right(relname, 8) ~ '^[0-9]+$'";
    let tables = query(&url, left).len();
    assert_eq!(tables, 8 * weeks(&url).len(), "of each week every table is there, or none");
    for id in &ids {
        assert_eq!((store.get(id).unwrap(), store.key(id).unwrap()), (None, None));
        assert_eq!(log(&mut store, id), []);
    }
    assert_eq!(query(&url, "SELECT count(*) FROM steadfast.jobs"), ["(1)"]);
    assert_eq!(store.counts().unwrap().by_state[&JobState::Succeeded], 1);
    assert_eq!(log(&mut store, &kept).len(), 2);
    assert_eq!(blobs.open_log(&kept_log).unwrap().read(0, 99).unwrap(), b"texttext");
    // There is nothing to remove of those that went, and what stays is left alone.
    blobs.remove_all(&gone);
    assert_eq!(blobs.file_names(&kept, "a").unwrap(), ["a"]);
    put(&mut store, ended(&ids[0], old));
    assert!(has_week(&url, old), "it is made again for who comes into it");
}

fn a_week_with_an_open_job_keeps_it_whole_and_the_others_go_one_by_one() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let storage = PostgresStorage::new(&url).unwrap();
    let (mut store, blobs) = (storage.store().unwrap(), storage.blobs());
    let then = weeks_ago(20);
    let open_job = id_at(then, "open");
    let open_log = fill(&mut store, &*blobs, write(&open_job, 0, 900));
    let many: Vec<_> = (0..450).map(|n| id_at(then, &n.to_string())).collect();
    let group: Vec<_> = many.iter().map(|id| ended(id, then + 1)).collect();
    assert!(commit(&mut store, group).iter().all(Result::is_ok));
    let before = Timestamp(now().0 - 30 * DAY);
    let gone = store.expire(before).unwrap();
    assert_eq!(gone.len(), many.len(), "more than go at once");
    assert!(has_week(&url, then));
    assert_eq!(log(&mut store, &open_job).len(), 900);
    assert!(store.get(&open_job).unwrap().unwrap().snapshot.is_some());
    assert!(store.projection(&open_job).unwrap().is_some());
    assert_eq!(blobs.open_log(&open_log).unwrap().read(0, 99).unwrap(), b"texttext");
    assert_eq!(query(&url, "SELECT DISTINCT job FROM steadfast.events"), [format!("({open_job})")]);
    // It goes on, ends, and the week goes with it when it has expired too.
    let mut last = write(&open_job, 900, 1);
    (last.row.over, last.row.finished_at) = (true, Some(Timestamp(now().0 - 40 * DAY)));
    put(&mut store, last);
    assert_eq!(store.expire(before).unwrap(), [JobId::from(&*open_job)]);
    assert!(!has_week(&url, then));
}

fn what_expires_waits_for_its_week_and_not_for_ever() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    let then = weeks_ago(6);
    let [a, b] = ["a", "b"].map(|rest| id_at(then, rest));
    put(&mut store, ended(&a, then));
    // It ran for two weeks.
    put(&mut store, ended(&b, then + 2 * WEEK));
    let expire = |store: &mut PostgresStore, before| store.expire(Timestamp(before)).unwrap().len();
    assert_eq!(expire(&mut store, then + DAY), 0, "its week is not over");
    assert_eq!(expire(&mut store, then + WEEK), 0, "the other may go within a week");
    assert_eq!(expire(&mut store, then + 2 * WEEK), 1, "it has not");
    assert!(
        has_week(&url, then) && log(&mut store, &b).len() == 2 && log(&mut store, &a).is_empty()
    );
    assert_eq!(expire(&mut store, then + 3 * WEEK), 1);
    assert!(!has_week(&url, then));
    // Asked for by hand, it goes at once.
    let young = id_at(weeks_ago(2), "c");
    put(&mut store, ended(&young, weeks_ago(2)));
    put(&mut store, write(&id_at(weeks_ago(2), "d"), 0, 1));
    assert_eq!(expire(&mut store, weeks_ago(2) + DAY), 0);
    let purged = store.purge(Timestamp(weeks_ago(2) + DAY)).unwrap();
    assert_eq!(purged, [JobId::from(&*young)]);
    assert!(query(&url, &format!("SELECT FROM steadfast.events WHERE job = '{young}'")).is_empty());
}

fn a_week_that_somebody_reads_is_dropped_another_time_and_holds_nobody_up() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let (mut store, mut other) = (open(&url), open(&url));
    let then = weeks_ago(10);
    let id = id_at(then, "a");
    put(&mut store, ended(&id, then));
    let before = Timestamp(now().0 - 30 * DAY);
    // As pg_dump does it for hours.
    hold(&url, "SELECT FROM steadfast.events", || {
        thread::scope(|scope| {
            let purge = scope.spawn(|| store.purge(before).unwrap());
            for n in 0..50 {
                put(&mut other, write(&id_at(now().0, &n.to_string()), 0, 1));
            }
            assert_eq!(purge.join().unwrap(), [JobId::from(&*id)], "it is gone all the same");
        });
        assert!(has_week(&url, then));
        assert_eq!((other.get(&id).unwrap(), log(&mut other, &id)), (None, vec![]));
    });
    assert_eq!(store.purge(before).unwrap(), []);
    assert!(!has_week(&url, then));
}

fn a_job_that_comes_into_a_week_while_that_is_dropped_has_its_whole_log() {
    const JOBS: usize = 25;
    const AT_MOST: usize = 5000;
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    drop(open(&url));
    let then = weeks_ago(15);
    let dropped = AtomicUsize::new(0);
    thread::scope(|scope| {
        let comes = scope.spawn(|| {
            let mut store = open(&url);
            let has_seen = |n| n >= JOBS && dropped.load(Ordering::Relaxed) > 0;
            for n in (0..AT_MOST).take_while(|n| !has_seen(*n)) {
                let id = id_at(then, &n.to_string());
                put(&mut store, Write { snapshot: Some(vec![1]), ..write(&id, 0, 1) });
                put(&mut store, write(&id, 1, 2));
                assert_eq!(log(&mut store, &id).len(), 3, "{n}");
                assert!(store.get(&id).unwrap().unwrap().snapshot.is_some(), "{n}");
                let mut end = write(&id, 3, 1);
                (end.row.over, end.row.finished_at) = (true, Some(Timestamp(then)));
                put(&mut store, end);
            }
        });
        let mut store = open(&url);
        while !comes.is_finished() {
            let was_there = has_week(&url, then);
            store.purge(Timestamp(now().0 - 30 * DAY)).unwrap();
            let is_dropped = was_there && !has_week(&url, then);
            dropped.fetch_add(usize::from(is_dropped), Ordering::Relaxed);
        }
    });
    assert!(dropped.into_inner() > 0, "the test has seen nothing");
    let mut store = open(&url);
    store.purge(Timestamp(now().0 - 30 * DAY)).unwrap();
    assert_eq!(query(&url, "SELECT FROM steadfast.events").len(), 0);
    assert_eq!(store.counts().unwrap().by_state.values().sum::<u64>(), 0);
}

fn a_server_that_may_make_no_tables_makes_and_drops_weeks() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    execute(&url, "CREATE ROLE plain LOGIN");
    assert!(PostgresStorage::new(&url).unwrap().migrate(Some("plain")).unwrap().0);
    let theirs = url.replace("//steadfast@", "//plain@");
    let storage = PostgresStorage::new(&theirs).unwrap();
    let mut store = storage.store().unwrap();
    let then = weeks_ago(12);
    fill(&mut store, &*storage.blobs(), ended(&id_at(then, "a"), then));
    storage.maintain().unwrap();
    assert_eq!(store.purge(Timestamp(now().0 - 30 * DAY)).unwrap().len(), 1);
    assert!(!has_week(&url, then));
    // One who may only look may not.
    execute(&url, "CREATE ROLE curious LOGIN; GRANT USAGE ON SCHEMA steadfast TO curious");
    let refused = PostgresStorage::new(&url.replace("//steadfast@", "//curious@")).unwrap();
    let refused = refused.maintain();
    assert!(matches!(refused, Err(StoreError::Unsuitable { .. })), "{refused:?}");
}

fn a_store_is_maintained_without_a_word() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let storage = PostgresStorage::new(&url).unwrap();
    let mut store = storage.store().unwrap();
    put(&mut store, write(&id_at(now().0, "a"), 0, 1));
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| PostgresStorage::new(&url).unwrap().maintain().unwrap());
        }
    });
    storage.maintain().unwrap();
    for day in [0, 7, 14] {
        assert!(has_week(&url, now().0 + day * DAY), "{day}");
    }
    let analyzed = "SELECT count(*) FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid \
                    WHERE c.relkind = 'p' AND s.last_analyze IS NOT NULL";
    assert_eq!(query(&url, analyzed), ["(8)"], "autovacuum leaves them alone");
    // An owner that is gone leaves what it counted.
    execute(&url, "UPDATE steadfast.shards SET owner = NULL; DELETE FROM steadfast.owners");
    storage.maintain().unwrap();
    assert_eq!(query(&url, "SELECT * FROM steadfast.job_counts"), ["(\"\",running,1)"]);
    assert_eq!(store.counts().unwrap().open(), 1);
}
