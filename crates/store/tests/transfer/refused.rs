//! What is not moved, and why.

use std::fs;

use steadfast_core::time::Timestamp;
use steadfast_store::testing::{TestCluster, execute, query};
use steadfast_store::transfer::move_jobs;
use steadfast_store::transfer::{Movable as _, MoveError, MoveOptions, MoveSide, ReserveError};
use steadfast_store::{Folder, Storage as _};

use crate::jobs::{fill, id, image, run_job};
use crate::{ALIVE, NOW, OPTIONS, closed, database, folder, moved};

#[test]
fn a_place_that_is_served_or_not_there_or_has_jobs_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (folder(&place, "from"), folder(&place, "to"));
    let nothing = moved(&from, &to).unwrap_err();
    assert!(matches!(nothing, MoveError::Reserve { why: ReserveError::Nothing, .. }), "{nothing}");
    assert!(!place.path().join("from").exists() && !place.path().join("to").exists());
    fill(&from, 3);
    let same = moved(&from, &from).unwrap_err();
    assert!(matches!(same, MoveError::Same(..)), "{same}");
    for served in [&from, &to] {
        let claim = served.claim().unwrap();
        let refused = moved(&from, &to).unwrap_err();
        assert!(
            matches!(refused, MoveError::Reserve { why: ReserveError::Served, .. }),
            "{refused}"
        );
        drop(claim);
    }
    fill(&to, 1);
    let refused = moved(&from, &to).unwrap_err();
    assert!(matches!(refused, MoveError::NotEmpty { .. }), "{refused}");
    drop(to.claim().expect("it is as it was"));
    let keyed = folder(&place, "keyed");
    drop(keyed.claim().unwrap());
    keyed.settings().change("callback.key", &mut |_| Ok(b"its own".to_vec())).unwrap();
    let refused = moved(&from, &keyed).unwrap_err();
    assert!(refused.to_string().contains("callback.key"), "{refused}");
    assert_eq!(keyed.settings().get("callback.key").unwrap().1, Some(b"its own".to_vec()));
}

#[test]
fn open_jobs_of_run_stay_where_they_are() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (folder(&place, "from"), folder(&place, "to"));
    fill(&from, 3);
    run_job(&mut *from.journal().unwrap(), "local-open", false);
    let told = moved(&from, &to).unwrap();
    assert_eq!((told.jobs, &*told.left), (4, &["local-open".into()][..]));
    assert!(!image(&to).jobs.contains_key("local-open"));
    assert!(image(&from).jobs.contains_key("local-open"));
}

#[test]
fn a_stuck_job_is_moved_as_it_is_and_one_that_cannot_be_read_is_named() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (folder(&place, "from"), folder(&place, "to"));
    let worlds = fill(&from, 12);
    let open: Vec<_> = worlds.iter().filter(|world| !world.job.is_over()).collect();
    let (stuck, damaged) = (&open[0].job.id, &open[1].job.id);
    assert!(from.journal().unwrap().park(stuck, "it contradicts itself").unwrap());
    let path = Folder::new(place.path().join("from")).database();
    let connection = rusqlite::Connection::open(path).unwrap();
    let garble = "UPDATE events SET crc = 7 WHERE job = (SELECT n FROM jobs WHERE id = ?1)";
    assert!(connection.execute(garble, [&**damaged]).unwrap() > 0);
    let refused = moved(&from, &to).unwrap_err();
    assert!(matches!(&refused, MoveError::Unreadable { job, .. } if job == damaged), "{refused}");
    assert!(refused.to_string().contains("--skip-stuck"), "{refused}");
    drop(from.claim().expect("its server may go on"));
    let options = MoveOptions { skip_stuck: true, ..OPTIONS };
    let mut go_on = |_| std::ops::ControlFlow::Continue(());
    let told = move_jobs(&from, &to, &options, NOW, &mut go_on).unwrap();
    assert_eq!((told.jobs, &*told.skipped), (12, &[damaged.clone()][..]));
    let mut store = to.transfer().unwrap();
    let moved = store.get(stuck).unwrap().unwrap();
    assert_eq!(moved.stuck.as_deref(), Some("it contradicts itself"));
    assert_eq!(store.count_all().unwrap(), 12);
}

in_one_test!(
    of_a_database:
    a_database_that_is_served_is_refused_and_none_is_served_while_it_is_moved,
    a_server_that_was_killed_is_waited_for_and_fenced,
    a_move_that_was_killed_keeps_nobody_out_for_long,
    questions_that_nobody_has_answered_come_first,
);

fn a_database_that_is_served_is_refused_and_none_is_served_while_it_is_moved() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let (url, there) = database(cluster);
    let from = folder(&place, "from");
    let nothing = moved(&there, &from).unwrap_err();
    assert!(matches!(nothing, MoveError::Reserve { why: ReserveError::Nothing, .. }), "{nothing}");
    assert_eq!(query(&url, "SELECT to_regnamespace('steadfast')"), ["()"], "none is made");
    fill(&from, 2);
    let claim = there.claim().unwrap();
    claim.begin(ALIVE).unwrap();
    std::thread::scope(|scope| {
        let moving = scope.spawn(|| moved(&from, &there).unwrap_err());
        while !moving.is_finished() {
            claim.renew(ALIVE).unwrap();
            std::thread::yield_now();
        }
        let refused = moving.join().unwrap();
        assert!(
            matches!(refused, MoveError::Reserve { why: ReserveError::Served, .. }),
            "{refused}"
        );
    });
    drop(claim);
    let reserved = there.reserve(MoveSide::Source).unwrap();
    assert!(closed(&there).contains("are being moved"));
    drop(reserved);
    drop(there.claim().expect("it is as it was"));
    assert_eq!(query(&url, "SELECT count(*) FROM steadfast.owners WHERE id = 'move'"), ["(0)"]);
}

fn a_server_that_was_killed_is_waited_for_and_fenced() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let (url, there) = database(cluster);
    let from = folder(&place, "from");
    fill(&from, 2);
    moved(&from, &there).unwrap();
    let claim = there.claim().unwrap();
    claim.begin(ALIVE).unwrap();
    let owner = there.journal().unwrap().take(&claim.owner(), Timestamp(0), None).unwrap();
    // It says nothing any more, and does not know.
    let back = folder(&place, "back");
    moved(&there, &back).unwrap();
    let epoch =
        format!("SELECT epoch > {} FROM steadfast.owners WHERE id = '{}'", owner.epoch, owner.id);
    assert_eq!(query(&url, &epoch), ["(t)"]);
    let refused = claim.renew(ALIVE).unwrap_err();
    assert!(refused.to_string().contains("its jobs were moved to"), "{refused}");
}

fn a_move_that_was_killed_keeps_nobody_out_for_long() {
    let Some(cluster) = TestCluster::shared() else { return };
    let (url, there) = database(cluster);
    drop(there.reserve(MoveSide::Target).unwrap());
    let killed = |until: &str| {
        execute(
            &url,
            &format!(
                "INSERT INTO steadfast.owners (id, epoch, incarnation, until) \
                 VALUES ('move', 0, 'killed', clock_timestamp() + interval '{until}')"
            ),
        );
    };
    killed("2 s");
    assert!(closed(&there).contains("are being moved"));
    // The next move waits for it.
    let mut next = there.reserve(MoveSide::Target).unwrap();
    // One that a server has ended, because it was silent, knows.
    execute(&url, "DELETE FROM steadfast.owners WHERE id = 'move'");
    assert!(next.mark(&steadfast_store::transfer::MoveRecord::Open).is_err());
    drop(next);
    killed("-1 s");
    drop(there.claim().expect("it is over"));
}

fn questions_that_nobody_has_answered_come_first() {
    let Some(cluster) = TestCluster::shared() else { return };
    let place = tempfile::tempdir().unwrap();
    let (_, there) = database(cluster);
    let from = folder(&place, "from");
    fill(&from, 2);
    moved(&from, &there).unwrap();
    there.exchange().unwrap().ask(&id(0), b"cancel").unwrap();
    let back = folder(&place, "back");
    let refused = moved(&there, &back).unwrap_err();
    assert!(matches!(refused, MoveError::Requests { count: 1, .. }), "{refused}");
    assert!(fs::read_dir(place.path().join("back")).unwrap().count() > 0, "it is made, and open");
    drop(back.claim().expect("nothing was moved to it"));
}
