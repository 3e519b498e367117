//! What every store promises.

#[path = "../common/mod.rs"]
mod common;
mod counts;
mod lists;
mod queue;
mod snapshots;

use common::{Store, commit, key, log, nobody, owner, put, records, row, write};
use counts::*;
use lists::*;
use queue::*;
use snapshots::*;
use steadfast_core::event::JobState;
use steadfast_core::time::Timestamp;
use steadfast_store::testing::TestCluster;
use steadfast_store::{
    Filter, Gap, JobCounts, MemoryStore, Owner, Page, PostgresStore, Refused, Row, SqliteStore,
    StoreError, Whose, Write,
};

/// Every case, to a macro that makes tests of them.
macro_rules! cases {
    ($tests:ident, $with:path) => {
        $tests!($with:
            a_new_job_is_given_back_as_it_was_put,
            events_append_in_order_and_are_read_from_anywhere,
            a_write_in_a_group_may_follow_on_an_earlier_one,
            a_conflict_fails_alone_in_its_group,
            what_follows_on_a_refused_write_is_refused_although_it_would_fit,
            a_write_whose_answer_was_lost_is_known_by_its_events,
            a_writer_that_was_taken_over_is_fenced,
            a_job_is_written_by_its_owner_alone,
            gaps_are_kept_while_an_open_job_may_have_been_in_them,
            a_parked_job_is_marked_and_woken_no_more,
            an_idempotency_key_is_one_job,
            the_key_answers_before_the_id_does,
            a_key_names_its_job_and_body_until_the_job_is_purged,
            the_row_is_the_one_that_the_whole_job_has,
            a_refused_write_leaves_its_key_free,
            a_log_with_gaps_cannot_be_written,
            pages_have_each_job_once_also_when_submitted_at_the_same_moment,
            filters_hold_together_and_over_pages,
            what_is_new_does_not_shift_the_pages,
            a_cursor_that_is_none_is_refused,
            the_soonest_is_due_first,
            a_job_is_due_when_it_was_last_said_to_be,
            the_end_of_time_is_kept,
            a_purge_leaves_what_is_not_over,
            a_purge_takes_keys_labels_and_dues_along,
            a_job_is_removed_with_its_key_and_the_others_stay,
            a_job_that_is_removed_leaves_nothing_and_the_others_alone,
            a_snapshot_is_kept_and_replaced,
            each_job_of_a_group_has_its_own_snapshot,
            a_projection_is_kept_until_its_job_goes,
            a_write_without_events_changes_the_row,
            a_later_write_does_not_rename_the_job,
            of_an_unknown_job_there_is_nothing,
            what_waits_for_a_worker_is_queued_in_its_order_until_it_does_not,
            jobs_with_the_same_plan_share_one,
            jobs_are_counted_in_the_state_they_are_in,
            what_is_refused_is_not_counted,
            a_job_that_is_stuck_is_counted_as_such_until_it_goes,
            a_purge_takes_jobs_from_the_counts,
            a_job_of_run_is_not_counted,
        );
    };
}

macro_rules! a_test_each {
    ($with:path: $($case:ident),+ $(,)?) => {
        $(#[test]
        fn $case() {
            $with(|store| super::$case(store));
        })+
    };
}

/// One test for all, where what they need takes long to start.
macro_rules! one_after_another {
    ($with:path: $($case:ident),+ $(,)?) => {
        #[test]
        fn every_case() {
            $(eprintln!("{}", stringify!($case));
            $with(|store| super::$case(store));)+
        }
    };
}

mod memory {
    cases!(a_test_each, super::with_memory);
}

mod sqlite {
    cases!(a_test_each, super::with_sqlite);
}

mod postgres {
    cases!(one_after_another, super::with_postgres);
}

fn with_memory(test: impl FnOnce(&mut MemoryStore)) {
    test(&mut MemoryStore::new());
}

fn with_sqlite(test: impl FnOnce(&mut SqliteStore)) {
    let folder = tempfile::tempdir().expect("a folder");
    test(&mut SqliteStore::open(&folder.path().join("jobs.db")).expect("a new file"));
}

/// In a database of its own, if there is a server to make it.
fn with_postgres(test: impl FnOnce(&mut PostgresStore)) {
    let Some(cluster) = TestCluster::shared() else { return };
    test(&mut PostgresStore::open(&cluster.database()).expect("a new database"));
}

fn a_new_job_is_given_back_as_it_was_put(store: &mut impl Store) {
    let mut new = write("a", 0, 2);
    new.row.finished_at = Some(Timestamp(5));
    new.row.wake_at = Some(Timestamp(6));
    new.row.labels = [("team".into(), "sökning \"1\"".into())].into();
    new.row.retried_from = Some("z".into());
    put(store, new.clone());
    let stored = store.get("a").unwrap().expect("it was put");
    assert_eq!(stored.row, new.row);
    assert_eq!((stored.seq, &*stored.owner, stored.snapshot), (2, Owner::SHARD, None));
    assert_eq!(log(store, "a"), records(&new));
}

fn events_append_in_order_and_are_read_from_anywhere(store: &mut impl Store) {
    put(store, write("a", 0, 4));
    put(store, write("b", 0, 9));
    put(store, write("a", 4, 3));
    let all = records(&write("a", 0, 7));
    assert_eq!(log(store, "a"), all);
    for (after, limit) in [(0, 1), (0, 7), (3, 2), (6, 9), (7, 9), (8, 9), (u64::MAX, 9), (2, 0)] {
        let expected: Vec<_> =
            all.iter().filter(|record| record.seq > after).take(limit).cloned().collect();
        assert_eq!(store.events("a", after, limit).unwrap(), expected, "{limit} after {after}");
    }
}

fn a_write_in_a_group_may_follow_on_an_earlier_one(store: &mut impl Store) {
    let group = vec![write("a", 0, 1), write("a", 1, 2), write("b", 0, 1), write("a", 3, 1)];
    assert_eq!(commit(store, group), [Ok(()), Ok(()), Ok(()), Ok(())]);
    assert_eq!(log(store, "a").len(), 4);
}

fn a_conflict_fails_alone_in_its_group(store: &mut impl Store) {
    put(store, write("a", 0, 3));
    let mut behind = write("a", 2, 5);
    behind.row.state = JobState::Failed;
    behind.snapshot = Some(vec![1]);
    let group = vec![
        write("b", 0, 1),
        behind,
        write("a", 0, 1),
        write("a", 9, 1),
        write("ghost", 1, 1),
        write("a", 3, 1),
    ];
    let conflict = |expected, found| Err(Refused::Conflict { expected, found });
    let answers = commit(store, group);
    let expected = [Ok(()), conflict(2, 3), conflict(0, 3), conflict(9, 3), conflict(1, 0), Ok(())];
    assert_eq!(answers, expected);
    let stored = store.get("a").unwrap().unwrap();
    assert_eq!((stored.seq, stored.row.state, stored.snapshot), (4, JobState::Running, None));
    assert_eq!(log(store, "a"), records(&write("a", 0, 4)));
    assert_eq!(log(store, "b").len(), 1);
    assert_eq!(store.get("ghost").unwrap(), None);
}

fn what_follows_on_a_refused_write_is_refused_although_it_would_fit(store: &mut impl Store) {
    put(store, write("a", 0, 3));
    let group = vec![write("a", 1, 2), write("a", 3, 1), write("a", 4, 1), write("b", 0, 1)];
    let conflict = |expected| Err(Refused::Conflict { expected, found: 3 });
    assert_eq!(commit(store, group), [conflict(1), conflict(3), conflict(4), Ok(())]);
    assert_eq!(log(store, "a"), records(&write("a", 0, 3)));
    // Also after another job has begun again.
    let group = vec![write("a", 1, 2), write("b", 1, 1), write("b", 9, 1), write("a", 3, 1)];
    let of_b = Err(Refused::Conflict { expected: 9, found: 2 });
    assert_eq!(commit(store, group), [conflict(1), Ok(()), of_b, conflict(3)]);
    assert_eq!(commit(store, vec![write("a", 9, 1), write("a", 3, 1)]), [conflict(9), Ok(())]);
}

fn a_write_whose_answer_was_lost_is_known_by_its_events(store: &mut impl Store) {
    put(store, write("a", 0, 3));
    let mut is_kept = |write: &Write| store.is_kept(write).unwrap();
    assert!(is_kept(&write("a", 0, 3)) && is_kept(&write("a", 1, 2)));
    let mut other = write("a", 1, 2);
    other.records[1].at = Timestamp(9_999);
    assert!(!is_kept(&other), "another event has its number");
    assert!(!is_kept(&write("a", 2, 2)), "one of two is there");
    assert!(!is_kept(&write("ghost", 0, 1)));
}

fn is_owned(store: &mut impl Store, owner: &Owner, job: &str) -> bool {
    store.is_owned(owner, job).unwrap()
}

fn a_writer_that_was_taken_over_is_fenced(store: &mut impl Store) {
    put(store, write("a", 0, 2));
    let first = owner(store, Owner::SHARD);
    let second = store.take(Owner::SHARD, Timestamp(0), None).unwrap();
    assert!(second.epoch > first.epoch);
    let fenced =
        Refused::Fenced { owner: first.id.clone(), epoch: first.epoch, current: second.epoch };
    let owned = |store: &mut _, job| [&first, &second].map(|it| is_owned(store, it, job));
    assert_eq!(owned(store, "a"), [false, true]);
    assert_eq!(owned(store, "b"), [false, true], "there is no such job, and it would be its");
    let group = [write("a", 2, 1), write("b", 0, 1)];
    assert_eq!(store.commit(&first, &group).unwrap(), [Err(fenced.clone()), Err(fenced)]);
    assert_eq!(store.get("b").unwrap(), None, "nothing of its group is taken");
    assert_eq!(store.commit(&second, &group).unwrap(), [Ok(()), Ok(())]);
    let later = store.take(Owner::SHARD, Timestamp(5_000_000), None).unwrap();
    let least = later.epoch > second.epoch && later.epoch >= 5000;
    assert!(least, "no lower than the second it begins in: {}", later.epoch);
}

fn a_job_is_written_by_its_owner_alone(store: &mut impl Store) {
    put(store, write("a", 0, 1));
    let other = store.take("b", Timestamp(0), None).unwrap();
    let group = [write("b", 0, 1), write("a", 1, 1), write("b", 1, 1)];
    let not_ours = Err(Refused::NotOurs { owner: Owner::SHARD.to_owned() });
    assert_eq!(store.commit(&other, &group).unwrap(), [Ok(()), not_ours, Ok(())]);
    assert_eq!(store.get("b").unwrap().unwrap().owner, "b");
    put(store, write("a", 1, 1));
}

fn gaps_are_kept_while_an_open_job_may_have_been_in_them(store: &mut impl Store) {
    let gap = |from, until| Gap { from: Timestamp(from), until: Timestamp(until) };
    put(store, write("a", 0, 1));
    store.take(Owner::SHARD, Timestamp(2000), Some(Timestamp(1500))).unwrap();
    store.take(Owner::SHARD, Timestamp(3000), Some(Timestamp(3000))).unwrap();
    store.take(Owner::SHARD, Timestamp(4000), Some(Timestamp(3500))).unwrap();
    store.take("other", Timestamp(4000), Some(Timestamp(100))).unwrap();
    // It came up at 4000, and went down before it decided anything.
    store.take(Owner::SHARD, Timestamp(4500), Some(Timestamp(3600))).unwrap();
    let both = [gap(1500, 2000), gap(3500, 4500)];
    assert_eq!(store.gaps(Owner::SHARD, "a", Timestamp(0)).unwrap(), both);
    assert_eq!(store.gaps(Owner::SHARD, "a", Timestamp(2000)).unwrap(), both[1..]);
    let mut ended = write("a", 1, 1);
    ended.row.over = true;
    put(store, ended);
    store.take(Owner::SHARD, Timestamp(6000), Some(Timestamp(5000))).unwrap();
    assert_eq!(store.gaps(Owner::SHARD, "a", Timestamp(0)).unwrap(), [gap(5000, 6000)]);
}

fn a_parked_job_is_marked_and_woken_no_more(store: &mut impl Store) {
    let mut new = write("a", 0, 1);
    new.row.wake_at = Some(Timestamp(0));
    put(store, new);
    assert_eq!(store.due(Whose::all(Owner::SHARD), None, Timestamp(9), 9).unwrap().len(), 1);
    put(
        store,
        Write { row: Row { wake_at: Some(Timestamp(u64::MAX)), ..row("b") }, ..write("b", 0, 1) },
    );
    assert!(store.park("a", "it contradicts itself").unwrap());
    assert_eq!(store.damage("a").unwrap().as_deref(), Some("it contradicts itself"));
    assert_eq!(store.due(Whose::all(Owner::SHARD), None, Timestamp(9), 9).unwrap(), []);
    assert!(!store.park("ghost", "why").unwrap());
}

fn an_idempotency_key_is_one_job(store: &mut impl Store) {
    let with = |id, digest| Write { key: Some(key("k", digest)), ..write(id, 0, 1) };
    let taken = |same_body| Err(Refused::KeyTaken { job: "a".into(), same_body });
    let group = vec![with("a", "x"), with("b", "x"), with("c", "y"), write("d", 0, 1)];
    assert_eq!(commit(store, group), [Ok(()), taken(true), taken(false), Ok(())]);
    assert_eq!(commit(store, vec![with("e", "x"), with("f", "y")]), [taken(true), taken(false)]);
    assert_eq!(store.get("b").unwrap(), None);
    let other = Write { key: Some(key("K", "x")), ..write("g", 0, 1) };
    put(store, other);
}

/// Whoever does not know whether a submission was kept sends it again, and learns that it was.
fn the_key_answers_before_the_id_does(store: &mut impl Store) {
    let new = Write { key: Some(key("k", "x")), ..write("a", 0, 1) };
    put(store, new.clone());
    let again = commit(store, vec![new]);
    assert_eq!(again, [Err(Refused::KeyTaken { job: "a".into(), same_body: true })]);
}

fn a_key_names_its_job_and_body_until_the_job_is_purged(store: &mut impl Store) {
    let mut new = Write { key: Some(key("k", "x")), ..write("a", 0, 1) };
    new.row.over = true;
    new.row.finished_at = Some(Timestamp(5));
    put(store, new);
    put(store, write("b", 0, 1));
    assert_eq!(store.key("k").unwrap(), Some(("a".into(), "x".to_owned())));
    assert_eq!(store.key("K").unwrap(), None);
    assert_eq!(store.purge(Timestamp(6)).unwrap().len(), 1);
    assert_eq!(store.key("k").unwrap(), None);
}

fn the_row_is_the_one_that_the_whole_job_has(store: &mut impl Store) {
    let mut new = write("a", 0, 3);
    new.row.labels = [("team".into(), "search".into())].into();
    new.snapshot = Some(b"state".to_vec());
    put(store, new);
    let stored = store.get("a").unwrap().expect("it was put");
    assert_eq!(store.row("a").unwrap(), Some((stored.row, stored.seq)));
    assert_eq!(store.row("b").unwrap(), None);
}

fn a_refused_write_leaves_its_key_free(store: &mut impl Store) {
    put(store, write("a", 0, 1));
    let group = vec![
        Write { key: Some(key("k", "x")), ..write("a", 0, 1) },
        Write { key: Some(key("k", "x")), ..write("b", 0, 1) },
    ];
    assert_eq!(commit(store, group), [Err(Refused::Conflict { expected: 0, found: 1 }), Ok(())]);
}

fn a_log_with_gaps_cannot_be_written(store: &mut impl Store) {
    put(store, write("a", 0, 1));
    let mut gap = write("a", 1, 3);
    gap.records.remove(1);
    let late_key = Write { key: Some(key("k", "x")), ..write("a", 1, 1) };
    let other_row = Write { row: row("b"), ..write("a", 1, 1) };
    for unfit in [gap, late_key, other_row, write("b", 0, 0)] {
        let answer = store.commit(&nobody(), &[write("c", 0, 1), unfit]);
        assert!(matches!(answer, Err(StoreError::Unfit { .. })), "{answer:?}");
        assert_eq!(store.get("c").unwrap(), None, "nothing of the group is kept");
    }
    assert_eq!(log(store, "a").len(), 1);
}

fn due(store: &mut impl Store, until: u64, limit: usize) -> Vec<(u64, String)> {
    let due = store.due(Whose::all(Owner::SHARD), None, Timestamp(until), limit).unwrap();
    due.into_iter().map(|(at, id)| (at.0, id.to_string())).collect()
}

fn put_due(store: &mut impl Store, id: &str, seq: u64, at: Option<u64>) {
    let mut write = write(id, seq, 1);
    write.row.wake_at = at.map(Timestamp);
    put(store, write);
}

fn the_soonest_is_due_first(store: &mut impl Store) {
    for (id, at) in
        [("d", Some(30)), ("b", Some(10)), ("c", Some(20)), ("a", Some(20)), ("e", None)]
    {
        put_due(store, id, 0, at);
    }
    let all = [(10, "b"), (20, "a"), (20, "c"), (30, "d")].map(|(at, id)| (at, id.to_owned()));
    assert_eq!(due(store, 9, 10), []);
    assert_eq!(due(store, 20, 10), all[..3], "the very moment is due");
    assert_eq!(due(store, u64::MAX, 10), all);
    assert_eq!(due(store, u64::MAX, 2), all[..2]);
    let after = store.due(Whose::all(Owner::SHARD), None, Timestamp(u64::MAX), 2).unwrap().pop();
    let rest = store.due(Whose::all(Owner::SHARD), after, Timestamp(u64::MAX), 10).unwrap();
    assert_eq!(rest.len(), all.len() - 2, "{rest:?}");
    assert_eq!(store.due(Whose::all("nobody"), None, Timestamp(u64::MAX), 10).unwrap(), []);
}

fn a_job_is_due_when_it_was_last_said_to_be(store: &mut impl Store) {
    put_due(store, "a", 0, Some(10));
    put_due(store, "a", 1, Some(50));
    assert_eq!(due(store, 49, 10), []);
    assert_eq!(due(store, 50, 10), [(50, "a".to_owned())]);
    put_due(store, "a", 2, None);
    assert_eq!(due(store, u64::MAX, 10), []);
}

fn the_end_of_time_is_kept(store: &mut impl Store) {
    put_due(store, "a", 0, Some(u64::MAX));
    let mut last = write("a", 1, 1);
    last.records[0].at = Timestamp(u64::MAX);
    put(store, last);
    put_due(store, "b", 0, Some(u64::MAX));
    assert_eq!(due(store, u64::MAX, 10), [(u64::MAX, "b".to_owned())]);
    assert_eq!(log(store, "a")[1].at, Timestamp(u64::MAX));
}

fn ended(id: &str, finished_at: Option<u64>, over: bool) -> Write {
    let mut write = write(id, 0, 2);
    write.row.state = JobState::Succeeded;
    write.row.finished_at = finished_at.map(Timestamp);
    write.row.over = over;
    write
}

fn a_purge_leaves_what_is_not_over(store: &mut impl Store) {
    put(store, ended("old", Some(10), true));
    put(store, ended("older", Some(9), true));
    put(store, ended("new", Some(20), true));
    put(store, ended("late datacenters", Some(10), false));
    put(store, write("live", 0, 1));
    assert_eq!(store.purge(Timestamp(20)).unwrap(), ["old".into(), "older".into()]);
    assert_eq!(store.purge(Timestamp(20)).unwrap(), []);
    assert_eq!(store.get("old").unwrap(), None);
    assert_eq!(log(store, "old"), []);
    let ids: Vec<_> = walk(store, &Filter::default(), 9).into_iter().map(|row| row.id).collect();
    assert_eq!(ids.iter().map(|id| &**id).collect::<Vec<_>>(), ["live", "late datacenters", "new"]);
    assert_eq!(log(store, "new").len(), 2);
}

fn a_job_is_removed_with_its_key_and_the_others_stay(store: &mut impl Store) {
    put(store, Write { key: Some(key("k", "d")), ..write("a", 0, 2) });
    put(store, write("b", 0, 1));
    assert!(!store.remove("c").unwrap(), "there is none");
    assert!(store.get("a").unwrap().is_some());
    assert!(store.remove("a").unwrap());
    assert_eq!((store.get("a").unwrap(), store.key("k").unwrap()), (None, None));
    assert_eq!(log(store, "a"), []);
    assert_eq!(log(store, "b").len(), 1);
}

fn a_purge_takes_keys_labels_and_dues_along(store: &mut impl Store) {
    let labels = || [("team".into(), "a".into())].into();
    let mut old =
        Write { key: Some(key("k", "x")), snapshot: Some(vec![1]), ..ended("a", Some(1), true) };
    old.row.labels = labels();
    old.row.wake_at = Some(Timestamp(3));
    put(store, old);
    assert_eq!(store.purge(Timestamp(2)).unwrap(), ["a".into()]);
    assert_eq!(due(store, 9, 9), []);
    let mut new = Write { key: Some(key("k", "y")), ..write("a", 0, 1) };
    new.row.labels = labels();
    put(store, new);
    assert_eq!(store.get("a").unwrap().unwrap().snapshot, None);
    let filter = Filter { label: Some(("team".into(), "a".into())), ..Filter::default() };
    assert_eq!(walk(store, &filter, 9).len(), 1);
}

fn a_job_that_is_removed_leaves_nothing_and_the_others_alone(store: &mut impl Store) {
    let mut live = Write { key: Some(key("k", "x")), snapshot: Some(vec![1]), ..write("a", 0, 2) };
    live.row.wake_at = Some(Timestamp(3));
    put(store, live.clone());
    put(store, write("b", 0, 2));
    assert!(store.remove("a").unwrap());
    assert!(!store.remove("a").unwrap());
    assert_eq!(
        (store.get("a").unwrap(), log(store, "a"), due(store, 9, 9)),
        (None, vec![], vec![])
    );
    assert_eq!(log(store, "b").len(), 2);
    put(store, live);
}

fn a_write_without_events_changes_the_row(store: &mut impl Store) {
    put(store, write("a", 0, 2));
    let mut paused = write("a", 2, 0);
    paused.row.state = JobState::Paused;
    put(store, paused.clone());
    let stored = store.get("a").unwrap().unwrap();
    assert_eq!((stored.seq, stored.row), (2, paused.row));
}

fn a_later_write_does_not_rename_the_job(store: &mut impl Store) {
    let first = write("a", 0, 1);
    put(store, first.clone());
    let mut other = write("a", 1, 1);
    other.row.name = "other".into();
    other.row.submitted_at = Timestamp(1);
    other.row.labels = [("team".into(), "a".into())].into();
    other.row.over = true;
    put(store, other);
    assert_eq!(store.get("a").unwrap().unwrap().row, Row { over: true, ..first.row });
    let filter = Filter { label: Some(("team".into(), "a".into())), ..Filter::default() };
    assert_eq!(walk(store, &filter, 9), []);
}

fn of_an_unknown_job_there_is_nothing(store: &mut impl Store) {
    assert_eq!(store.get("ghost").unwrap(), None);
    assert_eq!(log(store, "ghost"), []);
    assert_eq!(store.list(&Filter::default(), None, 10).unwrap(), Page::default());
    assert_eq!(due(store, u64::MAX, 10), []);
    assert_eq!(store.purge(Timestamp(u64::MAX)).unwrap(), []);
    assert!(!store.remove("ghost").unwrap());
    assert_eq!(store.damage("ghost").unwrap(), None);
    assert_eq!(commit(store, vec![]), []);
}
