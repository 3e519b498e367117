//! What a disk garbles is named, never handed on, and costs no other job anything.

use std::fs;
use std::path::Path;

use rusqlite::Connection;
use steadfast_store::{Filter, Journal, Reader, Snapshot, StoreError, Write};

use super::common::{log, new_job, put, records, write};
use super::{open, place};

/// Turns a bit of a byte of `text` in the file, which must be there once.
fn flip(path: &Path, text: &[u8], byte: usize, bit: u8) {
    let mut bytes = fs::read(path).unwrap();
    let places: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at..].starts_with(text)).collect();
    assert_eq!(places.len(), 1, "it is in the file once");
    bytes[places[0] + byte] ^= 1 << bit;
    fs::write(path, bytes).unwrap();
}

fn corrupt<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> String {
    match answer {
        Err(StoreError::Corrupt { place, .. }) => place,
        answer => panic!("not noticed: {answer:?}"),
    }
}

/// Events are kept together in rows; so many of [`write`] are in three or more.
const SEVERAL_ROWS: u64 = 120;

/// The numbers of the events that are kept in one row with this one.
fn row_of(path: &Path, seq: u64) -> (u64, u64) {
    let sql = "SELECT first, last FROM events WHERE ?1 BETWEEN first AND last";
    let (first, last): (i64, i64) = Connection::open(path)
        .unwrap()
        .query_row(sql, [seq as i64], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    (first as u64, last as u64)
}

fn stored(path: &Path, seq: u64) -> Vec<u8> {
    let sql = "SELECT CAST(lines AS BLOB) FROM events WHERE ?1 BETWEEN first AND last";
    Connection::open(path).unwrap().query_row(sql, [seq as i64], |row| row.get(0)).unwrap()
}

/// Wherever in a row: its size, its text, the end.
#[test]
fn a_flipped_bit_in_an_event_is_named() {
    const SEQ: u64 = 60;
    for (part, bit) in [(0, 0), (1, 7), (2, 0), (3, 3)] {
        let (_folder, path) = place();
        put(&mut open(&path), write("a", 0, SEVERAL_ROWS));
        let (first, last) = row_of(&path, SEQ);
        assert!(first > 1 && first < last && last < SEVERAL_ROWS, "{first} to {last}");
        let row = stored(&path, SEQ);
        flip(&path, &row, (row.len() - 1) * part / 3, bit);
        let mut store = open(&path);
        let place = format!("events {first} to {last} of job a");
        assert_eq!(corrupt(store.events("a", 0, 200)), place);
        assert_eq!(corrupt(store.events("a", SEQ - 1, 1)), place);
        assert_eq!(store.events("a", 0, first as usize - 1).unwrap().len() as u64, first - 1);
        assert_eq!(store.events("a", last, 200).unwrap().len() as u64, SEVERAL_ROWS - last);
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
        execute("UPDATE events SET lines = x'00' || substr(lines, 2) WHERE job = 1 AND last = 4"),
        "events 4 to 4: the checksum does not fit",
    );
    damages(execute("DELETE FROM events WHERE job = 1 AND last = 4"), "event 4: it is missing");
    damages(execute("DELETE FROM events WHERE job = 1 AND last = 3"), "event 1: it is missing");
    damages(
        execute(
            "UPDATE events SET last = 5 WHERE job = 1 AND last = 4; UPDATE jobs SET seq = 5 WHERE id = 'a'",
        ),
        "events 4 to 5: the checksum does not fit",
    );
    damages(execute("DELETE FROM events WHERE job = 1"), "event 1: it is missing");
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
    let (first, last) = row_of(&path, 60);
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
    flip(&path, b"the state of things", 0, 2);
    let stored = open(&path).get("a").unwrap().expect("the job is there");
    assert_eq!((stored.seq, stored.snapshot), (1, None));
    assert_eq!(log(&mut open(&path), "a").len(), 1);
}

/// Whatever lies there afterwards: nothing, another database, or the log beside it replaced.
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

#[test]
fn a_damaged_projection_is_none_and_its_job_is_whole() {
    let (_folder, path) = place();
    let mut store = open(&path);
    put(&mut store, write("a", 0, 3));
    assert_eq!(store.projection("a").unwrap(), None, "there was never one in this file");
    assert!(store.project("a", &Snapshot { seq: 3, state: vec![1, 2] }).unwrap());
    assert!(!store.project("a", &Snapshot { seq: 4, state: vec![3] }).unwrap(), "of no event");
    assert_eq!(store.projection("a").unwrap().map(|made| made.seq), Some(3));
    execute("UPDATE projections SET state = x'00'")(&path);
    assert_eq!(store.projection("a").unwrap(), None);
    assert_eq!(log(&mut store, "a").len(), 3);
}
