//! What only a file can get wrong: other programs, other processes, bad disks, full ones.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use common::{commit, key, log, nobody, owner, put, records, write};
use rusqlite::Connection;
use serde_json::Value;
use steadfast_core::event::{Event, JobState};
use steadfast_core::time::Timestamp;
use steadfast_store::{Filter, Owner, Refused, SqliteStore, Store, StoreError, Write};
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
fn a_file_of_another_version_is_left_alone() {
    for (version, words) in [(7, "a newer version"), (-3, "an older version")] {
        let (_folder, path) = place();
        drop(open(&path));
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        let before = fs::read(&path).unwrap();
        for answer in [SqliteStore::open(&path), SqliteStore::open_read_only(&path)] {
            let error = answer.expect_err("it is another");
            assert!(matches!(error, StoreError::OtherVersion { reads: 4, .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("reads 4"), "{text}");
        }
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

/// In format 3 each job had an epoch of its own.
const AS_FORMAT_3: &str = "
    DROP INDEX jobs_wake; DROP INDEX jobs_stuck; DROP TABLE owners; DROP TABLE gaps;
    ALTER TABLE jobs DROP COLUMN owner;
    ALTER TABLE jobs DROP COLUMN stuck;
    ALTER TABLE jobs RENAME COLUMN wake_at TO due_at;
    ALTER TABLE jobs ADD COLUMN epoch INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE jobs ADD COLUMN owner TEXT;
    CREATE INDEX jobs_due ON jobs (due_at, id) WHERE due_at IS NOT NULL;
    PRAGMA user_version = 3";

#[test]
fn in_a_file_of_format_3_every_open_job_is_woken_by_its_owner() {
    let (_folder, path) = place();
    let mut store = open(&path);
    let mut over = write("over", 0, 1);
    over.row.over = true;
    let mut local = write("local", 0, 1);
    local.row.local = true;
    for new in [write("served", 0, 1), local, over] {
        put(&mut store, new);
    }
    drop(store);
    Connection::open(&path).unwrap().execute_batch(AS_FORMAT_3).unwrap();
    let mut store = open(&path);
    let due = |store: &mut SqliteStore, owner: &str| -> Vec<String> {
        let due = store.due(owner, None, Timestamp(0), 9).unwrap();
        due.into_iter().map(|(_, id)| id.to_string()).collect()
    };
    assert_eq!(due(&mut store, Owner::SHARD), ["served"]);
    assert_eq!(due(&mut store, "local"), ["local"]);
    put(&mut store, write("served", 1, 1));
}

/// A file as format 1 had it: a row for each event, another checksum. What is stored in it is that of
/// three events of `a` and many of `b`, and a snapshot of `a`.
fn file_of_format_1(path: &Path) {
    let mut store = open(path);
    put(&mut store, Write { snapshot: Some(vec![9, 8]), ..write("a", 0, 3) });
    put(&mut store, write("b", 0, SEVERAL_ROWS));
    drop(store);
    let file = Connection::open(path).unwrap();
    file.execute_batch(AS_FORMAT_3).unwrap();
    file.execute_batch(
        "DROP VIEW log; DROP TABLE events; ALTER TABLE jobs DROP COLUMN local;
         CREATE TABLE events (job TEXT NOT NULL, seq INTEGER NOT NULL, at_ms INTEGER NOT NULL,
             event TEXT NOT NULL, about TEXT, body TEXT NOT NULL, crc INTEGER NOT NULL,
             PRIMARY KEY (job, seq)) STRICT, WITHOUT ROWID;
         PRAGMA user_version = 1",
    )
    .unwrap();
    let crc = |seq: u64, at_ms: u64, text: &[u8]| {
        crc32fast::hash(&[&seq.to_le_bytes(), &at_ms.to_le_bytes(), text].concat())
    };
    for (job, count) in [("a", 3), ("b", SEVERAL_ROWS)] {
        for record in &write(job, 0, count).records {
            let body = serde_json::to_string(&record.event).unwrap();
            let crc = crc(record.seq, record.at.0, body.as_bytes());
            let row = (job, record.seq as i64, record.at.0 as i64, record.event.name(), body, crc);
            file.execute("INSERT INTO events VALUES (?1, ?2, ?3, ?4, 'x', ?5, ?6)", row).unwrap();
        }
    }
    file.execute("UPDATE snapshots SET crc = ?1", [crc(3, 0, &[9, 8])]).unwrap();
}

#[test]
fn a_file_of_format_1_is_brought_up_to_date() {
    let (_folder, path) = place();
    file_of_format_1(&path);
    let older = SqliteStore::open_read_only(&path).expect_err("it may not write");
    assert!(matches!(older, StoreError::OtherVersion { found: 1, .. }), "{older:?}");
    for _ in 0..2 {
        let mut store = open(&path);
        for (job, count) in [("a", 3), ("b", SEVERAL_ROWS)] {
            assert_eq!(log(&mut store, job), write(job, 0, count).records);
        }
        let snapshot = store.get("a").unwrap().expect("there").snapshot.expect("one");
        assert_eq!((snapshot.seq, snapshot.state), (3, vec![9, 8]));
    }
    let (first, last) = row_of(&path, SEVERAL_ROWS / 2);
    assert!(first < last, "its events share rows");
    put(&mut open(&path), write("a", 3, 2));
}

/// In format 2 only the first event told that a job was of `run`.
#[test]
fn a_file_of_format_2_knows_the_jobs_of_run_afterwards() {
    let (_folder, path) = place();
    let first = |source: &str| format!(r#"[1000,{{"event":"JobAccepted","id":"x"{source}}}]"#);
    let mut store = open(&path);
    for job in ["local", "server", "odd"] {
        put(&mut store, write(job, 0, 1));
    }
    drop(store);
    let file = Connection::open(&path).unwrap();
    let lines = [
        ("local", first(r#","source":{"path":"/a.yaml","digest":""}"#)),
        ("server", first("")),
        ("odd", "[".to_owned()),
    ];
    for (job, lines) in lines {
        file.execute("UPDATE events SET lines = ?2 WHERE job = ?1", (job, lines)).unwrap();
    }
    file.execute_batch(AS_FORMAT_3).unwrap();
    file.execute_batch("ALTER TABLE jobs DROP COLUMN local; PRAGMA user_version = 2").unwrap();
    drop(file);
    // The events above are not whole, so the store itself refuses to go on; the rows are there.
    let _ = SqliteStore::open(&path);
    let file = Connection::open(&path).unwrap();
    let mut rows = file.prepare("SELECT id FROM jobs WHERE local = 1").unwrap();
    let local: Vec<String> =
        rows.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(local, ["local"]);
}

#[test]
fn a_damaged_file_of_format_1_stays_as_it_is() {
    let (_folder, path) = place();
    file_of_format_1(&path);
    let file = Connection::open(&path).unwrap();
    file.execute("UPDATE events SET at_ms = 1 WHERE job = 'b' AND seq = 7", []).unwrap();
    drop(file);
    assert_eq!(corrupt(SqliteStore::open(&path)), "event 7 of job b");
    let file = Connection::open(&path).unwrap();
    let left: i64 = file.query_row("SELECT count(body) FROM events", [], |row| row.get(0)).unwrap();
    assert_eq!(left as u64, 3 + SEVERAL_ROWS);
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
