//! Nothing is said, and nothing is started, before the event that says so is synced to the disk.
//! Seen from below: a shim in front of the C library tells of writes, syncs, prints and starts.

mod common;
mod disk;

use std::fs;
use std::path::Path;

use common::{Place, Process, is};
use disk::{FailingDisk, shim};
use rusqlite::Connection;
use serde_json::Value;

const JOB: &str = "
name: synced
retry: { backoff: fixed, initial_delay: 10ms }
steps:
  fetch: { run: sh work.sh 1 }
  index: { needs: [fetch], for_each: { range: 4 }, run: sh work.sh 1 }
  publish:
    needs: [index]
    run: sh work.sh always
    on_failure: { run: sh work.sh 0, then: continue }
";

/// What the program did, in order.
enum Deed {
    Wrote { file: u8, bytes: Vec<u8> },
    Synced { file: u8 },
    Printed(String),
    Started { token: String },
}

fn deeds(bytes: &[u8]) -> Vec<Deed> {
    let mut rest = bytes;
    let mut deeds = Vec::new();
    while let [kind, file, a, b, c, d, more @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        let (data, after) = more.split_at(length);
        rest = after;
        let text = || String::from_utf8(data.to_vec()).expect("text");
        deeds.push(match kind {
            b'W' => Deed::Wrote { file: *file, bytes: data.to_vec() },
            b'S' => Deed::Synced { file: *file },
            b'P' => Deed::Printed(text()),
            b'X' => Deed::Started { token: text() },
            other => panic!("{other}?"),
        });
    }
    deeds
}

/// The rows of the job's events as they stand in the database: from which event to which, and the bytes.
struct Rows(Vec<(i64, i64, Vec<u8>)>);

impl Rows {
    fn read(database: &Path) -> Self {
        let database = Connection::open(database).expect("a database");
        let sql = "SELECT first, last, CAST(lines AS BLOB) FROM events ORDER BY last";
        let mut select = database.prepare(sql).expect("the table");
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        Self(rows.expect("rows").collect::<Result<_, _>>().expect("whole"))
    }

    /// What was written of an event, with those that stand beside it.
    fn of(&self, event: &Value) -> &[u8] {
        let seq = event["seq"].as_i64().expect("a number");
        let row = self.0.iter().find(|(first, last, _)| (*first..=*last).contains(&seq));
        &row.expect("it is stored").2
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[derive(Debug, Default)]
struct Seen {
    syncs: usize,
    prints: usize,
    starts: usize,
    /// Printed or started before its event was synced.
    too_early: Vec<String>,
}

fn watch(shim: &Path, swallow: bool) -> Seen {
    let place = Place::with_data_folder(JOB);
    let log = place.path("deeds");
    let file = place.path("job.yaml");
    let mut command = place.command(&["run", file.to_str().expect("plain")]);
    command.env("LD_PRELOAD", shim).env("SYNC_SHIM_LOG", &log);
    if swallow {
        command.env("SYNC_SHIM_SWALLOW", "1");
    }
    let ended = Process::start(command).end();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    let job = ended.id().expect("an id");
    let events = place.events(job);
    let told = place.told(job);
    assert_eq!(events.len(), told.len());
    let end_of_events = 1 + ended.acknowledged().count();

    let rows = Rows::read(&place.path("data/steadfast.db"));
    let (mut unsynced, mut durable) = (Vec::new(), Vec::new());
    let mut seen = Seen::default();
    let mut line = String::new();
    let mut next = 0;
    for deed in deeds(&fs::read(&log).expect("the shim is in front")) {
        match deed {
            Deed::Wrote { file: b'w', bytes } => unsynced.extend(bytes),
            Deed::Synced { file: b'w' } => {
                seen.syncs += 1;
                durable.append(&mut unsynced);
            }
            // The database itself is written when what is in the log is copied there.
            Deed::Wrote { .. } | Deed::Synced { .. } => {}
            Deed::Started { token } => {
                seen.starts += 1;
                let fence = token.strip_prefix(&format!("{job}.")).expect("a token of the job");
                let fence: u64 = fence.parse().expect("a number");
                let start = events
                    .iter()
                    .find(|event| is(event, "AttemptStarted") && event["token"] == fence);
                let start = start.expect("what runs is in the log");
                if !contains(&durable, rows.of(start)) {
                    seen.too_early.push(format!("attempt {token} began"));
                }
            }
            Deed::Printed(text) => {
                for part in text.split_inclusive('\n') {
                    line += part;
                    if !line.ends_with('\n') || seen.prints == end_of_events {
                        continue;
                    }
                    let words = std::mem::take(&mut line);
                    let words = words.trim_end();
                    // The id stands for the job that was accepted; the rest are events in words.
                    if seen.prints > 0 {
                        next += told[next..].iter().position(|it| it == words).expect("an event");
                    }
                    if !contains(&durable, rows.of(&events[next])) {
                        seen.too_early.push(format!("{words:?} was said"));
                    }
                    next += 1;
                    seen.prints += 1;
                }
            }
        }
    }
    assert_eq!(seen.prints, end_of_events, "every line that was said was seen");
    let starts = events.iter().filter(|event| is(event, "AttemptStarted")).count();
    assert_eq!(seen.starts, starts, "every start was seen");
    seen
}

#[test]
fn what_is_said_or_started_is_synced_before() {
    let Some(shim) = shim() else { return };
    let seen = watch(&shim, false);
    assert_eq!(seen.too_early, [] as [&str; 0]);
    assert!(seen.syncs > 10 && seen.starts > 10 && seen.prints > 20, "{seen:?}");

    let without = watch(&shim, true);
    assert_eq!(without.syncs, 0);
    let expect = without.prints + without.starts;
    assert_eq!(without.too_early.len(), expect, "a missing sync is noticed everywhere");
}

/// Whatever was printed before is there, nothing is printed after, and what the disk has lost is done again.
#[test]
fn a_failed_sync_ends_a_run_and_its_job_goes_on_from_what_was_said() {
    // On a busy machine several attempts share a sync; of what comes after each other there are twelve at least.
    for sync in [2, 7, 12] {
        let place = Place::with_data_folder(JOB);
        let database = place.path("data/steadfast.db");
        let Some(disk) = FailingDisk::below(&place.path(""), &database) else { return };
        let file = place.path("job.yaml");
        let mut command = place.command(&["run", file.to_str().expect("plain")]);
        command.envs(disk.settings()).env("SYNC_SHIM_FAIL_AFTER", sync.to_string());
        disk.fail_next_sync();
        let ended = Process::start(command).end();
        assert!(!matches!(ended.status.code(), Some(0 | 101) | None), "{sync}: {}", ended.stderr);
        assert!(disk.has_failed(), "{sync}: no sync failed");
        assert!(ended.stderr.contains("after a restart"), "{sync}: {}", ended.stderr);
        disk.lose_unsynced(|| false);

        let Some(job) = ended.id() else { continue };
        let told = place.told(job);
        let mut rest = told.iter();
        for words in ended.acknowledged() {
            assert!(
                rest.any(|told| told == words),
                "{sync}: {words:?} was said and is lost: {told:?}"
            );
        }
        let resumed = Process::start(place.command(&["resume", job])).end();
        assert_eq!(resumed.status.code(), Some(0), "{sync}: {}", resumed.stderr);
    }
}
