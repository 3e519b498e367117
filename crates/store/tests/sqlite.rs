//! What only a file can get wrong: other programs, other processes, bad disks, full ones.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use common::{commit, key, log, new_job, nobody, owner, put, records, write};
use rusqlite::Connection;
use serde_json::Value;
use steadfast_core::event::{Event, JobState};
use steadfast_core::time::Timestamp;
use steadfast_store::{Filter, Journal, Owner, Reader, Refused, SqliteStore, StoreError, Write};
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    (folder, path)
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path).expect("it opens")
}

fn wal(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

#[test]
fn a_pinned_reader_counts_what_was_there_when_it_was_pinned() {
    let (_folder, path) = place();
    let (mut store, mut reader) = (open(&path), open(&path));
    let due = |id: &str, seq: u64, at: Option<u64>| {
        let mut write = write(id, seq, 1);
        write.row.wake_at = at.map(Timestamp);
        write
    };
    put(&mut store, due("a", 0, Some(5)));
    reader.pin().unwrap();
    put(&mut store, due("b", 0, Some(5)));
    put(&mut store, due("a", 1, None));
    put(&mut store, due("c", 0, Some(5)));
    assert_eq!(reader.count(Owner::SHARD).unwrap(), (1, 0));
    assert_eq!(store.count(Owner::SHARD).unwrap(), (2, 0));
}

#[test]
fn everything_is_there_after_reopening() {
    let (_folder, path) = place();
    let mut new = Write { key: Some(key("k", "x")), snapshot: Some(vec![9]), ..write("a", 0, 5) };
    new.row.labels = [("team".into(), "a".into())].into();
    new.row.wake_at = Some(Timestamp(7));
    let before = {
        let mut store = open(&path);
        put(&mut store, new.clone());
        store.get("a").unwrap()
    };
    for mut store in [open(&path), SqliteStore::open_read_only(&path).unwrap()] {
        assert_eq!(store.get("a").unwrap(), before);
        assert_eq!(log(&mut store, "a"), records(&new));
        assert_eq!(store.due(Owner::SHARD, None, Timestamp(7), 9).unwrap().len(), 1);
    }
    let again = Write { key: Some(key("k", "x")), ..write("b", 0, 1) };
    let taken = Refused::KeyTaken { job: "a".into(), same_body: true };
    assert_eq!(commit(&mut open(&path), vec![again]), [Err(taken)]);
}

#[test]
fn two_with_the_same_file_see_and_fence_each_other() {
    let (_folder, path) = place();
    let (mut one, mut two) = (open(&path), open(&path));
    let mut reader = SqliteStore::open_read_only(&path).unwrap();
    put(&mut one, write("a", 0, 1));
    put(&mut two, write("b", 0, 1));
    put(&mut two, write("a", 1, 1));
    let behind = Refused::Conflict { expected: 1, found: 2 };
    assert_eq!(commit(&mut one, vec![write("a", 1, 1)]), [Err(behind)]);
    let before = owner(&mut one, Owner::SHARD);
    let epoch = two.take(Owner::SHARD, Timestamp(0), None).unwrap().epoch;
    let fenced = Refused::Fenced { owner: before.id.clone(), epoch: before.epoch, current: epoch };
    assert_eq!(one.commit(&before, &[write("a", 2, 1)]).unwrap(), [Err(fenced)]);
    for id in ["a", "b"] {
        assert_eq!(reader.get(id).unwrap(), one.get(id).unwrap());
    }
}

#[test]
fn many_may_make_the_file_and_write_at_once() {
    let (_folder, path) = place();
    let all = Barrier::new(8);
    thread::scope(|scope| {
        for n in 0..8 {
            let (path, all) = (&path, &all);
            scope.spawn(move || {
                all.wait();
                let mut store = open(path);
                for seq in 0..20 {
                    put(&mut store, write(&format!("job-{n}"), seq, 1));
                }
            });
        }
    });
    let mut store = open(&path);
    for n in 0..8 {
        assert_eq!(log(&mut store, &format!("job-{n}")).len(), 20);
    }
}

#[test]
fn a_reader_writes_nothing() {
    let (_folder, path) = place();
    put(&mut open(&path), write("a", 0, 1));
    let mut reader = SqliteStore::open_read_only(&path).unwrap();
    let answer = reader.commit(&nobody(), &[write("a", 1, 1)]);
    assert!(matches!(answer, Err(StoreError::ReadOnly { .. })), "{answer:?}");
    assert_eq!(log(&mut reader, "a").len(), 1);
}

#[test]
fn a_file_of_somebody_else_is_left_alone() {
    let (folder, path) = place();
    fs::write(&path, "dear diary, today I was not a database at all. ".repeat(100)).unwrap();
    let table = folder.path().join("table.db");
    Connection::open(&table).unwrap().execute_batch("CREATE TABLE diary (day TEXT)").unwrap();
    let marked = folder.path().join("marked.db");
    Connection::open(&marked).unwrap().pragma_update(None, "application_id", 5).unwrap();
    for path in [path, table, marked] {
        let before = fs::read(&path).unwrap();
        for answer in [SqliteStore::open(&path), SqliteStore::open_read_only(&path)] {
            assert!(matches!(answer, Err(StoreError::NotOurs { .. })), "{path:?}: {answer:?}");
        }
        assert_eq!(fs::read(&path).unwrap(), before, "{path:?}");
    }
}

#[test]
fn reading_makes_no_file_and_a_missing_folder_is_named() {
    let (folder, path) = place();
    let answer = SqliteStore::open_read_only(&path);
    assert!(matches!(answer, Err(StoreError::CannotOpen { .. })), "{answer:?}");
    assert!(!path.exists());
    let nowhere = folder.path().join("no/where.db");
    let error = SqliteStore::open(&nowhere).expect_err("there is no folder").to_string();
    assert!(error.contains("no/where.db") && error.contains("folder exists"), "{error}");
}

/// Of each group, all or nothing: groups write to two jobs at once and count up together.
#[test]
fn a_torn_wal_is_cut_to_whole_groups_and_loses_nothing_that_was_synced() {
    let (folder, path) = place();
    let mut store = open(&path);
    put(&mut store, write("first", 0, 1));
    let mut ends = vec![];
    for n in 0..6 {
        let group = vec![write("a", n * 2, 2), write("b", n, 1)];
        assert_eq!(commit(&mut store, group), [Ok(()), Ok(())]);
        ends.push(fs::metadata(wal(&path)).unwrap().len());
    }
    let (file, journal) = (fs::read(&path).unwrap(), fs::read(wal(&path)).unwrap());
    assert_eq!(ends.last(), Some(&(journal.len() as u64)), "nothing was moved to the file yet");
    let start = ends[0] as usize;
    let frame = 4096 + 24;
    let around = |at: &u64| [*at as usize - 1, *at as usize, *at as usize + 1];
    let cuts = (start..journal.len()).step_by(frame / 3 + 1).chain(ends.iter().flat_map(around));
    for cut in cuts.filter(|cut| (start..=journal.len()).contains(cut)) {
        let copy = folder.path().join(format!("copy-{cut}.db"));
        fs::write(&copy, &file).unwrap();
        fs::write(wal(&copy), &journal[..cut]).unwrap();
        let mut copy = open(&copy);
        let synced = ends.iter().filter(|end| **end <= cut as u64).count() as u64;
        let found = copy.get("b").unwrap().expect("it was synced").seq;
        assert_eq!(found, synced, "cut at {cut}");
        assert_eq!(copy.get("a").unwrap().unwrap().seq, found * 2);
        assert_eq!(log(&mut copy, "a"), records(&write("a", 0, found * 2)));
        assert_eq!(log(&mut copy, "b"), records(&write("b", 0, found)));
        assert_eq!(log(&mut copy, "first").len(), 1);
        put(&mut copy, write("b", found, 1));
    }
}

/// Turns a bit of the first byte of `text` in the file, which must be there once.
fn flip(path: &Path, text: &str, bit: u8) {
    let mut bytes = fs::read(path).unwrap();
    let places: Vec<_> =
        (0..bytes.len()).filter(|&at| bytes[at..].starts_with(text.as_bytes())).collect();
    assert_eq!(places.len(), 1, "{text} is in the file once");
    bytes[places[0]] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

fn corrupt<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Corrupt { place, .. }) => place,
        answer => panic!("not noticed: {answer:?}"),
    }
}

/// Events are kept together in rows; so many of [`write`] are in three or more.
const SEVERAL_ROWS: u64 = 40;

/// The numbers of the events that are kept in one row with this one.
fn row_of(path: &Path, seq: u64) -> (u64, u64) {
    let sql = "SELECT first, last FROM events WHERE ?1 BETWEEN first AND last";
    let (first, last): (i64, i64) = Connection::open(path)
        .unwrap()
        .query_row(sql, [seq as i64], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    (first as u64, last as u64)
}

/// Broken JSON, broken text, and the wicked one: a number that is still a number.
#[test]
fn a_flipped_bit_in_an_event_is_named() {
    for (text, bit) in [("\"token\":16", 0), ("16,\"worker\"", 0), ("16,\"worker\"", 7)] {
        let (_folder, path) = place();
        put(&mut open(&path), write("a", 0, SEVERAL_ROWS));
        let (first, last) = row_of(&path, 16);
        assert!(first > 1 && first < last && last < SEVERAL_ROWS, "{first} to {last}");
        flip(&path, text, bit);
        let mut store = open(&path);
        let place = format!("events {first} to {last} of job a");
        assert_eq!(corrupt(store.events("a", 0, 100)), place);
        assert_eq!(corrupt(store.events("a", 15, 1)), place);
        assert_eq!(store.events("a", 0, first as usize - 1).unwrap().len() as u64, first - 1);
        assert_eq!(store.events("a", last, 100).unwrap().len() as u64, SEVERAL_ROWS - last);
    }
}

/// A job whose log is damaged, and one beside it that is not: the file opens, both are listed, and what is
/// wrong with the first is told.
#[track_caller]
fn damages(harm: impl FnOnce(&Path), expected: &str) {
    let (_folder, path) = place();
    put(&mut open(&path), write("a", 0, 3));
    put(&mut open(&path), write("a", 3, 1));
    put(&mut open(&path), write("b", 0, SEVERAL_ROWS));
    harm(&path);
    let mut store = open(&path);
    let mut page = store.list(&Filter::default(), None, 9).unwrap();
    page.check(&mut store).unwrap();
    assert_eq!(page.jobs.iter().map(|row| &*row.id).collect::<Vec<_>>(), ["b", "a"]);
    assert_eq!(page.damaged, [("a".into(), expected.to_owned())].into());
    assert_eq!(log(&mut store, "b").len() as u64, SEVERAL_ROWS);
    assert!(store.remove("a").unwrap(), "what is damaged can be removed");
    assert_eq!(store.list(&Filter::default(), None, 9).unwrap().jobs.len(), 1);
}

fn execute(sql: &str) -> impl FnOnce(&Path) {
    move |path| Connection::open(path).unwrap().execute_batch(sql).unwrap()
}

#[test]
fn a_damaged_job_is_named_and_the_others_are_readable() {
    damages(
        execute(
            "UPDATE events SET lines = replace(lines, '\"token\":4', '\"token\":5') WHERE job = 'a'",
        ),
        "events 4 to 4: the checksum does not fit",
    );
    damages(execute("DELETE FROM events WHERE job = 'a' AND last = 4"), "event 4: it is missing");
    damages(execute("DELETE FROM events WHERE job = 'a' AND last = 3"), "event 1: it is missing");
    damages(
        execute(
            "UPDATE events SET last = 5 WHERE job = 'a' AND last = 4; UPDATE jobs SET seq = 5 WHERE id = 'a'",
        ),
        "events 4 to 5: the checksum does not fit",
    );
    damages(execute("DELETE FROM events WHERE job = 'a'"), "event 1: it is missing");
    damages(
        execute("UPDATE jobs SET state = 'rumming' WHERE id = 'a'"),
        "its row: \"rumming\" is no state",
    );
    damages(
        execute("UPDATE jobs SET labels = '{' WHERE id = 'a'"),
        "its row: its labels: EOF while parsing an object at line 1 column 1",
    );
    damages(
        execute("UPDATE jobs SET name = CAST(x'6eff' AS TEXT) WHERE id = 'a'"),
        "its row: \"n\u{fffd}\" is no text",
    );
}

/// Beyond the rows that are looked at from the first one on.
#[test]
fn the_end_of_a_long_log_is_looked_at() {
    let (_folder, path) = place();
    let mut store = open(&path);
    for n in 0..100 {
        put(&mut store, write("a", n * 2, 2));
    }
    assert_eq!(store.damage("a").unwrap(), None);
    execute("DELETE FROM events WHERE last = 200")(&path);
    assert_eq!(store.damage("a").unwrap().as_deref(), Some("event 199: it is missing"));
}

#[test]
fn a_missing_event_is_named() {
    let (_folder, path) = place();
    put(&mut open(&path), write("a", 0, SEVERAL_ROWS));
    let (first, last) = row_of(&path, 16);
    let delete = "DELETE FROM events WHERE last = ?1";
    Connection::open(&path).unwrap().execute(delete, [last as i64]).unwrap();
    for after in [0, first - 1] {
        let place = corrupt(open(&path).events("a", after, 100));
        assert_eq!(place, format!("event {first} of job a"));
    }
}

/// Wherever a reader begins and however much it asks for, rows are not what it sees.
#[test]
fn a_log_can_be_read_from_anywhere() {
    let (_folder, path) = place();
    let mut store = open(&path);
    let all = write("a", 0, SEVERAL_ROWS);
    put(&mut store, all.clone());
    for after in 0..=SEVERAL_ROWS + 1 {
        for limit in [0, 1, 2, 7, 100] {
            let expected: Vec<_> = all.records.iter().skip(after as usize).take(limit).collect();
            assert_eq!(
                store.events("a", after, limit).unwrap().iter().collect::<Vec<_>>(),
                expected
            );
        }
    }
    assert!(store.events("a", u64::MAX, 100).unwrap().is_empty());
}

/// The log has all that was in it.
#[test]
fn a_flipped_bit_in_a_snapshot_costs_the_snapshot_alone() {
    let (_folder, path) = place();
    let state = b"the state of things".to_vec();
    put(&mut open(&path), Write { snapshot: Some(state), ..write("a", 0, 1) });
    flip(&path, "the state of things", 2);
    let stored = open(&path).get("a").unwrap().expect("the job is there");
    assert_eq!((stored.seq, stored.snapshot), (1, None));
    assert_eq!(log(&mut open(&path), "a").len(), 1);
}

/// Whatever lies there afterwards: nothing, another database, or the log beside it replaced.
#[test]
fn what_is_written_after_the_file_was_moved_is_not_acknowledged() {
    let replaced: [fn(&Path, &Path); 3] = [
        |_, _| (),
        |old, _| drop(open(&old.join("jobs.db"))),
        |old, new| {
            fs::copy(new.join("jobs.db"), old.join("jobs.db")).unwrap();
        },
    ];
    for replace in replaced {
        let (folder, _) = place();
        let (old, new) = (folder.path().join("old"), folder.path().join("new"));
        fs::create_dir(&old).unwrap();
        let mut store = open(&old.join("jobs.db"));
        put(&mut store, write("a", 0, 1));
        fs::rename(&old, &new).unwrap();
        fs::create_dir(&old).unwrap();
        replace(&old, &new);
        for _ in 0..2 {
            let answer = store.commit(&nobody(), &[write("b", 0, 1)]);
            assert!(matches!(answer, Err(StoreError::Moved { .. })), "{answer:?}");
            assert!(answer.unwrap_err().is_fatal());
        }
        fs::remove_dir_all(&old).unwrap();
        fs::rename(&new, &old).unwrap();
        put(&mut store, write("a", 1, 1));
    }
}

#[test]
fn a_write_ahead_log_that_was_taken_away_is_noticed() {
    let (_folder, path) = place();
    let mut store = open(&path);
    put(&mut store, write("a", 0, 1));
    fs::remove_file(wal(&path)).unwrap();
    let answer = store.commit(&nobody(), &[write("a", 1, 1)]);
    assert!(matches!(answer, Err(StoreError::Moved { .. })), "{answer:?}");
}

#[test]
fn a_lock_of_another_process_is_waited_for_as_long_as_was_said() {
    let (_folder, path) = place();
    let mut store = SqliteStore::open_waiting(&path, Duration::from_millis(20)).unwrap();
    put(&mut store, write("a", 0, 1));
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let answer = store.commit(&nobody(), &[write("a", 1, 1)]);
    assert!(matches!(answer, Err(StoreError::Busy { waited_ms: 20, .. })), "{answer:?}");
    assert!(!answer.unwrap_err().is_fatal());
    assert_eq!(log(&mut store, "a").len(), 1, "it can be read meanwhile");
    other.execute_batch("ROLLBACK").unwrap();
    put(&mut store, write("a", 1, 1));
}

#[test]
fn a_full_disk_writes_nothing_of_the_group_and_the_store_goes_on() {
    let (_folder, path) = place();
    let mut store = open(&path);
    put(&mut store, write("a", 0, 1));
    store.limit_bytes(fs::metadata(&path).unwrap().len() + 400_000).unwrap();
    let big = |id| Write { snapshot: Some(vec![7; 1_000_000]), ..write(id, 0, 1) };
    let answer = store.commit(&nobody(), &[write("a", 1, 1), big("b")]);
    assert!(matches!(answer, Err(StoreError::Full { .. })), "{answer:?}");
    assert!(!answer.unwrap_err().is_fatal());
    assert_eq!(log(&mut store, "a").len(), 1);
    put(&mut store, write("a", 1, 1));
    store.limit_bytes(u64::MAX).unwrap();
    put(&mut store, big("b"));
    assert_eq!(log(&mut open(&path), "a").len(), 2);
}

/// A job's output must not make its log unreadable.
#[test]
fn what_could_not_be_read_back_is_not_written() {
    let (_folder, path) = place();
    let mut store = open(&path);
    let nested = |depth| {
        let value = (0..depth).fold("[{\\\"".into(), |value: Value, _| vec![value].into());
        let event = Event::StepReady { run: 0, step: 0, items: 1, values: Some([value].into()) };
        let mut write = write(&format!("depth {depth}"), 0, 1);
        write.records[0].event = event;
        write
    };
    let owner = owner(&mut store, Owner::SHARD);
    for depth in 0..200 {
        let write = nested(depth);
        match store.commit(&owner, std::slice::from_ref(&write)) {
            Ok(_) => assert_eq!(log(&mut store, &write.job), records(&write)),
            Err(StoreError::Unfit { .. }) => assert!(depth > 110),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(store.get("depth 199").unwrap(), None);
}

#[test]
fn a_purge_of_more_than_it_takes_at_once_takes_all() {
    let (_folder, path) = place();
    let mut store = open(&path);
    let group = (0..450).map(|n| {
        let mut write = write(&format!("{n}"), 0, 1);
        write.row.state = JobState::Succeeded;
        write.row.finished_at = Some(Timestamp(n));
        write.row.over = true;
        write
    });
    commit(&mut store, group.collect());
    assert_eq!(store.purge(Timestamp(449)).unwrap().len(), 449);
    assert!(store.get("449").unwrap().is_some());
}

/// For a person with the `sqlite3` shell.
#[test]
fn the_tables_are_readable() {
    let (_folder, path) = place();
    put(&mut open(&path), write("a", 0, 4));
    let read = |sql: &str| -> String {
        Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let sql = "SELECT seq || ' ' || at_ms || ' ' || event || ' ' || (body ->> 'worker') FROM log \
               WHERE seq = 4";
    assert_eq!(read(sql), "4 1004 AttemptStarted wörker-1");
    assert_eq!(read("SELECT state || ' ' || seq FROM jobs"), "running 4");
}

#[test]
fn a_plan_is_stored_once_and_goes_with_its_last_job() {
    let (_folder, path) = place();
    let mut store = open(&path);
    let many: Vec<Write> = (0..50).map(|n| new_job(&format!("j{n}"), "nightly")).collect();
    commit(&mut store, many);
    put(&mut store, new_job("other", "weekly"));
    let taken = Write { key: Some(key("k", "x")), ..new_job("first", "nightly") };
    put(&mut store, taken.clone());
    let again = Write { job: "again".into(), row: common::row("again"), ..taken };
    assert!(commit(&mut store, vec![again])[0].is_err(), "it counts for nothing");
    let read = |sql: &str| -> i64 {
        Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(read("SELECT count(*) FROM plans"), 2);
    assert_eq!(read("SELECT max(jobs) FROM plans"), 51);
    for n in 0..50 {
        store.remove(&format!("j{n}")).unwrap();
    }
    assert_eq!(read("SELECT count(*) FROM plans"), 2, "one job has it still");
    store.remove("first").unwrap();
    assert_eq!(read("SELECT count(*) FROM plans"), 1);
    assert_eq!(log(&mut open(&path), "other"), records(&new_job("other", "weekly")));
}

#[test]
fn a_damaged_or_missing_plan_stops_the_jobs_that_have_it_and_no_other() {
    for (sql, why) in [
        (
            "UPDATE plans SET plan = replace(plan, 'true', 'false') WHERE id = 1",
            "the digest does not fit",
        ),
        ("DELETE FROM plans WHERE id = 1", "it is missing"),
    ] {
        let (_folder, path) = place();
        let mut store = open(&path);
        for (id, plan) in [("a", "nightly"), ("b", "nightly"), ("c", "weekly")] {
            put(&mut store, new_job(id, plan));
        }
        drop(store);
        Connection::open(&path).unwrap().execute_batch(sql).unwrap();
        let mut store = open(&path);
        for id in ["a", "b"] {
            assert_eq!(corrupt(store.events(id, 0, 9)), format!("the plan of job {id}"));
            assert_eq!(store.damage(id).unwrap(), Some(format!("its plan: {why}")));
        }
        assert_eq!(log(&mut store, "c"), records(&new_job("c", "weekly")));
        assert_eq!(store.damage("c").unwrap(), None);
        assert!(store.remove("a").unwrap() && store.remove("b").unwrap(), "without reading it");
    }
}
