//! What only a file can get wrong: other programs, other processes, bad disks, full ones.

#[path = "../common/mod.rs"]
mod common;
mod damage;

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use common::{commit, key, log, new_job, nobody, owner, put, records, write};
use rusqlite::Connection;
use serde_json::Value;
use steadfast_core::event::{Event, JobState};
use steadfast_core::time::Timestamp;
use steadfast_store::{Journal, Owner, Reader, Refused, SqliteStore, StoreError, Whose, Write};
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
    assert_eq!(reader.counts().unwrap().open(), 1);
    assert_eq!(store.counts().unwrap().open(), 3);
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
        assert_eq!(store.due(Whose::all(Owner::SHARD), None, Timestamp(7), 9).unwrap().len(), 1);
    }
    let again = Write { key: Some(key("k", "x")), ..write("b", 0, 1) };
    let taken = Refused::KeyTaken { job: "a".into(), same_body: true };
    assert_eq!(commit(&mut open(&path), vec![again]), [Err(taken)]);
}

/// What a store remembers of its last write is not what others have made of the job since.
#[test]
fn what_another_did_to_a_job_since_the_last_write_is_seen() {
    let (_folder, path) = place();
    let (mut one, mut two) = (open(&path), open(&path));
    let conflict = |expected, found| [Err(Refused::Conflict { expected, found })];
    put(&mut one, write("a", 0, 1));
    put(&mut two, write("a", 1, 2));
    assert_eq!(commit(&mut one, vec![write("a", 1, 1)]), conflict(1, 3));
    put(&mut one, write("a", 3, 1));
    // Its number is the next one's.
    assert!(two.remove("a").unwrap());
    put(&mut two, write("b", 0, 4));
    assert_eq!(commit(&mut one, vec![write("a", 4, 1)]), conflict(4, 0));
    assert_eq!(log(&mut one, "b").len(), 4);
    put(&mut one, write("b", 4, 1));
    assert!(two.park("b", "why").unwrap());
    put(&mut one, write("b", 5, 1));
    let counts = one.counts().unwrap();
    assert_eq!((counts.stuck, counts.open()), (1, 0), "{counts:?}");
    let taken = one.take(Owner::SHARD, Timestamp(0), None).unwrap();
    let mut ended = write("b", 6, 1);
    (ended.row.state, ended.row.over) = (JobState::Failed, true);
    assert_eq!(one.commit(&taken, &[ended]).unwrap(), [Ok(())]);
    let (row, seq) = one.row("b").unwrap().expect("it is there");
    assert_eq!((row.state, row.over, seq), (JobState::Failed, true, 7));
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

/// In a write-ahead log, behind its header.
const FRAME: usize = 24 + 4096;

/// What was written to a log, without the room behind it, where a frame would be of page 0.
fn journal(log: &Path) -> Vec<u8> {
    let mut written = vec![];
    File::open(log).unwrap().take(32 + 256 * FRAME as u64).read_to_end(&mut written).unwrap();
    let frames = written[32..].chunks(FRAME).take_while(|frame| frame[..4] != [0; 4]).count();
    assert!(frames < 256, "all of it was read");
    written.truncate(32 + frames * FRAME);
    written
}

/// A commit writes over what the file has. One who runs a job has no time to make room.
#[test]
fn the_log_of_a_server_has_room_from_the_start() {
    for (owner, has_room) in [(Owner::SHARD, true), ("a", false)] {
        let (_folder, path) = place();
        let mut store = open(&path);
        let owner = store.take(owner, Timestamp(0), None).unwrap();
        let before = fs::metadata(wal(&path)).unwrap().len();
        let written = journal(&wal(&path)).len() as u64;
        assert_eq!(before > written, has_room, "{before} {written}");
        assert_eq!(store.commit(&owner, &[write("a", 0, 1)]).unwrap(), [Ok(())]);
        assert!(journal(&wal(&path)).len() as u64 > written);
        assert_eq!(fs::metadata(wal(&path)).unwrap().len() == before, has_room);
        assert_eq!(store.take(&owner.id, Timestamp(0), None).unwrap().epoch, owner.epoch + 1);
        assert_eq!(log(&mut open(&path), "a").len(), 1);
    }
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
        ends.push(journal(&wal(&path)).len() as u64);
    }
    let (file, journal) = (fs::read(&path).unwrap(), journal(&wal(&path)));
    assert!(ends.is_sorted_by(|one, next| one < next), "nothing was moved to the file yet");
    let start = ends[0] as usize;
    let around = |at: &u64| [*at as usize - 1, *at as usize, *at as usize + 1];
    let cuts = (start..journal.len()).step_by(FRAME / 3 + 1).chain(ends.iter().flat_map(around));
    let cuts = cuts.filter(|cut| (start..=journal.len()).contains(cut));
    for (cut, room) in cuts.flat_map(|cut| [(cut, 0), (cut, 3 * FRAME)]) {
        let copy = folder.path().join(format!("copy-{cut}-{room}.db"));
        fs::write(&copy, &file).unwrap();
        fs::write(wal(&copy), [&journal[..cut], &vec![0; room]].concat()).unwrap();
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

#[test]
fn a_file_of_another_format_is_left_alone() {
    for (version, word) in [(6, "an older"), (8, "a newer")] {
        let (_folder, path) = place();
        put(&mut open(&path), write("a", 0, 4));
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        for answer in [SqliteStore::open(&path), SqliteStore::open_read_only(&path)] {
            let refused = answer.expect_err("it is not read");
            let StoreError::OtherVersion { found, .. } = &refused else { panic!("{refused:?}") };
            assert_eq!(*found, version);
            assert!(refused.to_string().contains(word), "{refused}");
        }
        Connection::open(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
        assert_eq!(log(&mut open(&path), "a").len(), 4);
    }
}

/// For a person with the `sqlite3` shell.
#[test]
fn the_tables_are_readable() {
    let (_folder, path) = place();
    put(&mut open(&path), write("a", 0, 4));
    let read = |sql: &str| -> String {
        Connection::open(&path).unwrap().query_row(sql, [], |row| row.get(0)).unwrap()
    };
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
    let again = Write { job: "again".into(), row: common::row("again"), ..taken.clone() };
    let new = Write { key: taken.key, ..new_job("new", "yearly") };
    let refused = commit(&mut store, vec![again, new]);
    assert!(refused.iter().all(Result::is_err), "they count for nothing: {refused:?}");
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
