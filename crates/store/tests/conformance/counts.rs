//! How many jobs there are, by state.

use std::collections::BTreeMap;

use super::common::*;
use super::*;

fn put_in(store: &mut impl Store, id: &str, seq: u64, state: JobState) {
    let mut write = write(id, seq, 1);
    write.row.state = state;
    write.row.over = state.is_terminal();
    write.row.finished_at = state.is_terminal().then_some(Timestamp(10));
    put(store, write);
}

/// Those that are not 0, by name.
fn counted(store: &mut impl Store) -> BTreeMap<&'static str, u64> {
    let JobCounts { by_state, stuck } = store.counts().unwrap();
    assert_eq!(by_state.len(), JobState::ALL.len(), "every state is told");
    let by_name = by_state.into_iter().map(|(state, jobs)| (state.name(), jobs));
    by_name.chain([("stuck", stuck)]).filter(|(_, jobs)| *jobs > 0).collect()
}

pub(crate) fn jobs_are_counted_in_the_state_they_are_in(store: &mut impl Store) {
    assert_eq!(counted(store), BTreeMap::new());
    for (id, state) in [("a", JobState::Pending), ("b", JobState::Pending), ("c", JobState::Paused)]
    {
        put_in(store, id, 0, state);
    }
    assert_eq!(counted(store), [("pending", 2), ("paused", 1)].into());
    // Through several states in one group, and one that is made and ends in it.
    let in_state = |id: &str, seq, state| {
        let mut write = write(id, seq, 1);
        write.row.state = state;
        write
    };
    let group = vec![
        in_state("a", 1, JobState::Running),
        in_state("d", 0, JobState::Running),
        in_state("a", 2, JobState::Failed),
        in_state("d", 1, JobState::Succeeded),
        in_state("c", 1, JobState::Paused),
    ];
    assert!(commit(store, group).iter().all(Result::is_ok));
    let counts = [("pending", 1), ("paused", 1), ("failed", 1), ("succeeded", 1)];
    assert_eq!(counted(store), counts.into());
    assert_eq!(store.counts().unwrap().open(), 2);
    // A job whose writes do not follow on each other goes in rounds.
    let group = vec![
        in_state("b", 1, JobState::Running),
        in_state("b", 9, JobState::Failed),
        in_state("b", 2, JobState::Cancelled),
    ];
    assert_eq!(commit(store, group).iter().filter(|answer| answer.is_ok()).count(), 2);
    let counts = [("cancelled", 1), ("paused", 1), ("failed", 1), ("succeeded", 1)];
    assert_eq!(counted(store), counts.into());
    put(store, Write { row: Row { state: JobState::Partial, ..row("c") }, ..write("c", 2, 0) });
    assert_eq!(counted(store)["partial"], 1, "also without an event");
}

pub(crate) fn what_is_refused_is_not_counted(store: &mut impl Store) {
    let with_key = |id| Write { key: Some(key("k", "x")), ..write(id, 0, 1) };
    let group = vec![with_key("a"), with_key("b"), write("c", 5, 1), write("a", 0, 1)];
    let taken = commit(store, group).iter().filter(|answer| answer.is_ok()).count();
    assert_eq!((taken, counted(store)), (1, [("running", 1)].into()));
    let mut failed = write("a", 4, 1);
    failed.row.state = JobState::Failed;
    assert!(commit(store, vec![failed])[0].is_err());
    let stale = owner(store, Owner::SHARD);
    store.take(Owner::SHARD, Timestamp(0), None).unwrap();
    assert!(store.commit(&stale, &[write("d", 0, 1)]).unwrap()[0].is_err());
    assert_eq!(counted(store), [("running", 1)].into());
}

pub(crate) fn a_job_that_is_stuck_is_counted_as_such_until_it_goes(store: &mut impl Store) {
    for id in ["a", "b", "c"] {
        put_in(store, id, 0, JobState::Running);
    }
    for _ in 0..2 {
        assert!(store.park("a", "it contradicts itself").unwrap());
        assert_eq!(counted(store), [("running", 2), ("stuck", 1)].into());
    }
    assert_eq!(store.counts().unwrap().open(), 2);
    put_in(store, "a", 1, JobState::Failed);
    assert_eq!(counted(store), [("running", 2), ("stuck", 1)].into(), "the mark stays");
    put_in(store, "b", 1, JobState::Succeeded);
    assert!(!store.park("b", "it is over").unwrap() && !store.park("ghost", "why").unwrap());
    assert_eq!(counted(store), [("running", 1), ("succeeded", 1), ("stuck", 1)].into());
    assert!(store.remove("a").unwrap() && !store.remove("a").unwrap());
    assert_eq!(counted(store), [("running", 1), ("succeeded", 1)].into());
    assert!(store.remove("c").unwrap());
    assert_eq!(counted(store), [("succeeded", 1)].into());
}

pub(crate) fn a_purge_takes_jobs_from_the_counts(store: &mut impl Store) {
    for (n, state) in JobState::ALL.iter().enumerate() {
        put_in(store, &format!("a{n}"), 0, *state);
        put_in(store, &format!("b{n}"), 0, *state);
    }
    assert_eq!(counted(store).values().sum::<u64>(), 14);
    for purge in [true, false] {
        let gone = if purge { store.purge(Timestamp(11)) } else { store.expire(Timestamp(11)) };
        assert_eq!(gone.unwrap().len(), if purge { 8 } else { 0 });
        assert_eq!(counted(store), [("pending", 2), ("running", 2), ("paused", 2)].into());
    }
}

/// One whose process is gone is in the state that it was in.
pub(crate) fn a_job_of_run_is_not_counted(store: &mut impl Store) {
    let itself = owner(store, "a");
    let mut failed = write("a", 1, 1);
    failed.row.state = JobState::Failed;
    assert_eq!(store.commit(&itself, &[write("a", 0, 1), failed]).unwrap(), [Ok(()), Ok(())]);
    assert_eq!(counted(store), BTreeMap::new());
    assert!(store.park("a", "it is odd").unwrap());
    assert_eq!(counted(store), BTreeMap::new());
    assert!(store.remove("a").unwrap());
    assert_eq!(counted(store), BTreeMap::new());
}
