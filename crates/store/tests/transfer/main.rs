//! What a move promises: all that was at one place is at the other, once, whenever it was stopped; and nobody serves half of it.

/// One test for several cases, because the server that they need takes long to start and each test may be a process.
macro_rules! in_one_test {
    ($name:ident: $($case:ident),+ $(,)?) => {
        #[test]
        fn $name() {
            $(eprintln!("{}", stringify!($case));
            $case();)+
        }
    };
}

mod jobs;
mod refused;
#[path = "../../../core/tests/properties/strategies.rs"]
#[allow(dead_code)]
mod strategies;
#[path = "../../../core/tests/properties/world.rs"]
#[allow(dead_code)]
mod world;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use jobs::{ALIVE, SETTINGS, fill, id, image, write};
use steadfast_core::decide::Input;
use steadfast_core::event::Requester;
use steadfast_core::time::Timestamp;
use steadfast_store::testing::{TestCluster, execute, query};
use steadfast_store::transfer::{
    LogAbout, Movable, MoveError, MoveOptions, Moved, move_jobs, undo_move,
};
use steadfast_store::{
    ClaimError, Folder, FolderStorage, LogChunk, LogName, LogReader, Owner, PostgresStorage,
    Storage as _,
};

/// More than two groups of a move.
const JOBS: usize = 140;
/// What a job of `run` that is over adds.
const ALL: u64 = JOBS as u64 + 1;
const NOW: Timestamp = Timestamp(1_700_000_100_000);
const OPTIONS: MoveOptions<'_> = MoveOptions { settings: &SETTINGS, skip_stuck: false };

fn folder(place: &tempfile::TempDir, name: &str) -> FolderStorage {
    FolderStorage::new(&Folder::new(place.path().join(name)))
}

fn database(cluster: &TestCluster) -> (String, PostgresStorage) {
    let url = cluster.database();
    let storage = PostgresStorage::new(&url).expect("a URL");
    (url, storage)
}

fn moved(from: &dyn Movable, to: &dyn Movable) -> Result<Moved, MoveError> {
    move_jobs(from, to, &OPTIONS, NOW, &mut |_| ControlFlow::Continue(()))
}

/// Stopped after so many groups, as by `kill -9` between two statements.
fn stopped(from: &dyn Movable, to: &dyn Movable, groups: u64) {
    let mut left = groups;
    let ended = move_jobs(from, to, &OPTIONS, NOW, &mut |_| match left.checked_sub(1) {
        Some(fewer) => {
            left = fewer;
            ControlFlow::Continue(())
        }
        None => ControlFlow::Break(()),
    });
    assert!(matches!(ended, Err(MoveError::Stopped)), "{ended:?}");
}

/// Why no server may have it.
fn closed(storage: &dyn Movable) -> String {
    match storage.claim() {
        Err(ClaimError::Moved(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn from_one_folder_to_another_nothing_is_lost_or_changed() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (folder(&place, "from"), folder(&place, "to"));
    fill(&from, JOBS);
    let before = image(&from);
    let told = moved(&from, &to).unwrap();
    assert_eq!((told.jobs, told.left.len(), told.skipped.len()), (ALL, 0, 0));
    assert!(told.open > 10 && told.files > 10 && told.logs > 30, "{told:?}");
    let after = image(&to);
    assert_eq!(after.order, before.order);
    for (id, job) in &before.jobs {
        assert_eq!(after.jobs.get(id), Some(job));
    }
    assert_eq!(after, before);
    assert!(closed(&from).contains("its jobs were moved to"));
    let found = from.examine(NOW, 0).into_iter().find(|found| found.check == "server").unwrap();
    assert!(found.said.contains("its jobs were moved to"), "{found:?}");
    assert_eq!(to.claim().unwrap().alive_at(), Some(ALIVE), "the time since is counted");
}

in_one_test!(
    between_a_folder_and_a_database:
    there_and_back_nothing_is_lost_or_changed,
    a_move_that_is_stopped_goes_on_and_nobody_serves_half_of_it,
    what_happens_at_the_source_between_two_attempts_is_moved_too,
    half_a_job_is_completed,
);

in_one_test!(
    to_a_database_and_not_quite:
    what_is_garbled_at_the_target_is_found_and_the_source_is_as_it_was,
    a_move_is_taken_back_until_a_server_has_used_it,
    servers_that_stopped_at_different_times_are_each_counted,
    a_log_of_many_pieces_replaces_what_was_there,
);

fn there_and_back_nothing_is_lost_or_changed() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let (from, back) = (folder(&place, "from"), folder(&place, "back"));
    let (url, there) = database(cluster);
    fill(&from, JOBS);
    let before = image(&from);
    assert_eq!(moved(&from, &there).unwrap().jobs, ALL);
    assert_eq!(image(&there), before);
    assert!(closed(&from).contains(&there.place()));
    let nothing_open = "SELECT count(*) FROM steadfast.jobs WHERE NOT over AND readiness IS NULL";
    assert_eq!(query(&url, nothing_open), ["(0)"], "SQL says what may start");

    let told = moved(&there, &back).unwrap();
    assert_eq!(told.jobs, ALL);
    assert_eq!(image(&back), before);
    assert!(closed(&there).contains("--data"));
    assert_eq!(back.claim().unwrap().alive_at(), Some(ALIVE));
    // Epochs rise on the way: what was said in the first folder is over.
    let epochs = [&from as &dyn Movable, &there, &back]
        .map(|storage| storage.transfer().unwrap().epoch().unwrap());
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
}

/// As a server does at its start.
fn a_server_begins(url: &str, alive: Timestamp) {
    let storage = PostgresStorage::new(url).unwrap();
    let claim = storage.claim().unwrap();
    let now = alive.plus(5_000);
    claim.begin(now).unwrap();
    let gaps = "SELECT DISTINCT down_since, up_at FROM steadfast.gaps WHERE scope NOT LIKE '01k%'";
    assert_eq!(query(url, gaps), [format!("({},{})", alive.0, now.0)]);
}

fn a_move_that_is_stopped_goes_on_and_nobody_serves_half_of_it() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let from = folder(&place, "from");
    let (url, there) = database(cluster);
    fill(&from, JOBS);
    let before = image(&from);
    for groups in 0..=3 {
        stopped(&from, &there, groups);
        assert!(closed(&there).contains("not all are here"));
        drop(from.claim().expect("its server may go on"));
        let count = query(&url, "SELECT count(*) FROM steadfast.jobs");
        let jobs = (groups * 64).min(ALL);
        assert_eq!(count, [format!("({jobs})")], "none twice");
    }
    let other = folder(&place, "other");
    fill(&other, 1);
    let foreign = moved(&other, &there).unwrap_err();
    assert!(matches!(foreign, MoveError::Unfinished { .. }), "{foreign}");
    moved(&from, &there).unwrap();
    assert_eq!(image(&there), before);
    a_server_begins(&url, ALIVE);
    let again = moved(&from, &there).unwrap_err();
    assert!(matches!(again, MoveError::Gone { .. }), "{again}");
}

fn what_happens_at_the_source_between_two_attempts_is_moved_too() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let from = folder(&place, "from");
    let (_, there) = database(cluster);
    let worlds = fill(&from, JOBS);
    stopped(&from, &there, 2);
    let mut store = from.transfer().unwrap();
    let owner = store.take(Owner::SHARD, NOW, None).unwrap();
    let mut cancelled = 0;
    for mut world in worlds.into_iter().step_by(2) {
        let before = world.job.seq;
        world.now = world.now.max(world.job.last_at);
        if world.input(&Input::Cancel(Requester::NOBODY)) {
            let write = write(&world.log, before, &world.job, false);
            assert_eq!(store.commit(&owner, &[write]).unwrap(), [Ok(())]);
            cancelled += 1;
        }
    }
    assert!(cancelled > 5);
    assert!(store.remove(&id(1)).unwrap() && store.remove(&id(139)).unwrap());
    from.blobs().remove(&id(1));
    let before = image(&from);
    moved(&from, &there).unwrap();
    assert_eq!(image(&there), before);
}

fn half_a_job_is_completed() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let from = folder(&place, "from");
    let (_, there) = database(cluster);
    let worlds = fill(&from, 4);
    stopped(&from, &there, 0);
    let mut store = there.transfer().unwrap();
    let owner = store.receive(NOW, 0).unwrap();
    // As a page of it would have been written.
    let mut some = write(&worlds[0].log, 0, &worlds[0].job, false);
    some.records.truncate(1);
    some.key = from.transfer().unwrap().key_of(&id(0)).unwrap();
    some.row = from.transfer().unwrap().row(&id(0)).unwrap().unwrap().0;
    assert!(worlds[0].log.len() > 1 && some.key.is_some());
    assert_eq!(store.commit(&owner, &[some]).unwrap(), [Ok(())]);
    moved(&from, &there).unwrap();
    assert_eq!(image(&there), image(&from));
}

fn what_is_garbled_at_the_target_is_found_and_the_source_is_as_it_was() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let from = folder(&place, "from");
    fill(&from, 20);
    let before = image(&from);
    let (victim, keyed) = (id(7), id(9));
    for (garbling, why) in [
        (
            format!("UPDATE steadfast.events SET lines = '\\x7b7d' WHERE job = '{victim}'"),
            "checksum",
        ),
        (
            format!("DELETE FROM steadfast.events WHERE job = '{victim}' AND first = 1"),
            "its log ends after event 0",
        ),
        (
            format!("UPDATE steadfast.keys SET digest = 'x' WHERE job = '{keyed}'"),
            "idempotency key",
        ),
        (format!("DELETE FROM steadfast.log_pieces WHERE job = '{victim}'"), "its log"),
        (
            format!(
                "UPDATE steadfast.jobs SET plan = (SELECT max(id) FROM steadfast.plans) WHERE id = '{victim}'"
            ),
            "",
        ),
    ] {
        let (url, there) = database(cluster);
        stopped(&from, &there, 1);
        execute(&url, &garbling);
        let found = moved(&from, &there).unwrap_err();
        assert!(matches!(found, MoveError::Difference { .. }), "{garbling}: {found}");
        let said = found.to_string();
        let named = if garbling.contains(&keyed) { &keyed } else { &victim };
        assert!(said.contains(&**named) && said.contains(why), "{garbling}: {said}");
        drop(from.claim().expect("its server may go on"));
        assert_eq!(image(&from), before);
        assert!(closed(&there).contains("not all are here"));
    }
}

fn a_move_is_taken_back_until_a_server_has_used_it() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let from = folder(&place, "from");
    let (url, there) = database(cluster);
    fill(&from, 3);
    let before = image(&from);
    drop(there.claim().expect("nothing was moved to it"));
    let nothing = undo_move(&from, &there).unwrap_err();
    assert!(matches!(nothing, MoveError::NotMoved { .. }), "{nothing}");
    moved(&from, &there).unwrap();
    undo_move(&from, &there).unwrap();
    drop(from.claim().expect("it has its jobs again"));
    assert!(closed(&there).contains("not all are here"));
    assert_eq!(image(&from), before);
    moved(&from, &there).unwrap();
    assert_eq!(image(&there), before);
    a_server_begins(&url, ALIVE);
    let late = undo_move(&from, &there).unwrap_err();
    assert!(matches!(late, MoveError::Served { .. }), "{late}");
    assert!(closed(&from).contains("--undo"));
}

fn servers_that_stopped_at_different_times_are_each_counted() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let (from, back) = (folder(&place, "from"), folder(&place, "back"));
    let (url, there) = database(cluster);
    fill(&from, 20);
    moved(&from, &there).unwrap();
    // Two have shared it since, and one of them stopped 60 s before the other.
    execute(
        &url,
        "INSERT INTO steadfast.owners (id, epoch, serves, renewed_at) \
         VALUES ('server-1', 1, true, 'epoch'::timestamptz + interval '2000000000 s'), \
                ('server-2', 1, true, 'epoch'::timestamptz + interval '2000000060 s'); \
         UPDATE steadfast.shards SET owner = 'server-' || 1 + shard % 2",
    );
    moved(&there, &back).unwrap();
    let last = Timestamp(2_000_000_060_000);
    assert_eq!(back.claim().unwrap().alive_at(), Some(last));
    let mut store = back.transfer().unwrap();
    let (mut alone, mut both) = (0, 0);
    for job in image(&back).jobs.values().filter_map(jobs::JobImage::open) {
        let gaps = store.gaps(Owner::SHARD, &job, ALIVE).unwrap();
        match &gaps[..] {
            [] => both += 1,
            [gap] => {
                assert_eq!((gap.from, gap.until), (Timestamp(2_000_000_000_000), last));
                alone += 1;
            }
            more => panic!("{more:?}"),
        }
    }
    assert!(alone > 0 && both > 0, "{alone} {both}");
}

fn a_log_of_many_pieces_replaces_what_was_there() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let from = folder(&place, "from");
    drop(from.claim().unwrap());
    let log = |name: &str| LogName { job: "j".into(), step: "s".to_owned(), name: name.to_owned() };
    // As many as are sent at once, one byte more, and a few.
    for (name, length) in [("even", 16 << 20), ("odd", (16 << 20) + 1), ("short", 300_000)] {
        let bytes: Vec<u8> = (0..length as u32).map(|n| (n % 251) as u8).collect();
        let chunk = LogChunk { offset: 0, bytes: &bytes, last: true };
        from.blobs().write_log(&log(name), chunk, true).unwrap();
    }
    for to in [&folder(&place, "to") as &dyn Movable, &database(cluster).1] {
        drop(to.claim().unwrap());
        let blobs = to.own_blobs();
        for name in ["even", "odd", "short"] {
            // Over another one, which is longer or shorter.
            for source in ["odd", "short", name] {
                let content = from.blobs().open_log(&log(source)).unwrap();
                let about = LogAbout {
                    log: log(name),
                    length: from.blobs().log_size(&log(source)).unwrap().unwrap(),
                    partial: source == name,
                    times: vec![(0, 5), (7, 8)],
                };
                blobs.put_log(&about, &*content).unwrap();
                let there = blobs.logs_of("j", &BTreeSet::from(["s"])).unwrap();
                assert!(there.contains(&about), "{source} as {name}: {there:?}");
                assert_eq!(blobs.log_times(&about.log).unwrap(), about.times);
                let copied = blobs.open_log(&log(name)).unwrap();
                let read = |log: &dyn LogReader| log.read(0, 32 << 20).unwrap();
                assert!(read(&*copied) == read(&*content), "{source} as {name}");
            }
        }
    }
}
