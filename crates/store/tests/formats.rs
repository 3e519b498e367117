//! Files that older versions have left.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{log, plan_of, put, write};
use rusqlite::Connection;
use steadfast_core::event::{Event, RecordedEvent};
use steadfast_core::time::Timestamp;
use steadfast_store::{Journal, Owner, Reader, SqliteStore, StoreError, Write};
use tempfile::TempDir;

/// Events are kept together in rows; so many of [`write`] are in three or more.
const SEVERAL_ROWS: u64 = 40;

fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("jobs.db");
    (folder, path)
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path).expect("it opens")
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
            assert!(matches!(error, StoreError::OtherVersion { reads: 5, .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(words) && text.contains("reads 5"), "{text}");
        }
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

/// In format 3 each job had an epoch of its own.
const AS_FORMAT_3: &str = "
    DROP INDEX jobs_queued; DROP TABLE plans;
    ALTER TABLE jobs DROP COLUMN queued; ALTER TABLE jobs DROP COLUMN plan;
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
    let rows = "SELECT count(*) FROM events WHERE job = 'b' AND first < last";
    let shared: i64 =
        Connection::open(&path).unwrap().query_row(rows, [], |row| row.get(0)).unwrap();
    assert!(shared > 0, "its events share rows");
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
    let damaged = SqliteStore::open(&path).expect_err("it does not fit its checksum");
    assert!(
        matches!(&damaged, StoreError::Corrupt { place, .. } if place == "event 7 of job b"),
        "{damaged:?}"
    );
    let file = Connection::open(&path).unwrap();
    let left: i64 = file.query_row("SELECT count(body) FROM events", [], |row| row.get(0)).unwrap();
    assert_eq!(left as u64, 3 + SEVERAL_ROWS);
}

/// What a program of format 4 left: two jobs of `run` that are over, and one of a server that waits for a worker.
const FORMAT_4: &str = include_str!("files/format-4.sql");

/// As the events of a job stand in a file, before it is opened by this program.
fn events_of_format_4(path: &Path, job: &str) -> Vec<RecordedEvent> {
    let file = Connection::open(path).unwrap();
    let mut rows = file.prepare("SELECT lines FROM events WHERE job = ?1 ORDER BY last").unwrap();
    let rows: Vec<String> =
        rows.query_map([job], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    let lines = rows.iter().flat_map(|row| row.split(",\n"));
    lines
        .zip(1..)
        .map(|(line, seq)| {
            let (at, event): (Timestamp, Event) = serde_json::from_str(line).unwrap();
            RecordedEvent { seq, at, event }
        })
        .collect()
}

#[test]
fn a_file_of_format_4_has_each_plan_once_afterwards_and_the_same_events() {
    let (_folder, path) = place();
    Connection::open(&path).unwrap().execute_batch(FORMAT_4).unwrap();
    let ids =
        ["01m7hk36mzgtk8p9nskpaf0q88", "01m7hk36sr43mytab159rhja1b", "01m7hk3w6mh14fh44pjep92keb"];
    let before = ids.map(|id| events_of_format_4(&path, id));
    for _ in 0..2 {
        let mut store = open(&path);
        for (id, before) in ids.iter().zip(&before) {
            assert_eq!(log(&mut store, id), *before, "{id}");
            assert_eq!(store.damage(id).unwrap(), None);
        }
        let (one, two) = (plan_of(&mut store, ids[0]), plan_of(&mut store, ids[1]));
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(store.due(Owner::SHARD, None, Timestamp(0), 9).unwrap().len(), 1, "it goes on");
    }
    let file = Connection::open(&path).unwrap();
    let count = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT sum(jobs) FROM plans"), 3);
    assert!(count("SELECT count(*) FROM plans") <= 2, "those of `run` are the same");
    assert_eq!(count("SELECT count(*) FROM events WHERE lines LIKE '%\"steps\"%'"), 0);
    let mut store = open(&path);
    for id in ids {
        assert!(store.remove(id).unwrap());
    }
    assert_eq!(count("SELECT count(*) FROM plans"), 0);
}
