//! Snapshots and projections: states that spare reading a log.

use steadfast_core::time::Timestamp;
use steadfast_store::{Snapshot, Write};

use crate::common::{Store, commit, put, write};

pub(crate) fn a_snapshot_is_kept_and_replaced(store: &mut impl Store) {
    let mut snapshot = |write: Write| {
        put(store, write);
        store.get("a").unwrap().unwrap().snapshot.map(|Snapshot { seq, state }| (seq, state))
    };
    assert_eq!(snapshot(write("a", 0, 2)), None);
    let first = Write { snapshot: Some(vec![0, 255, 7]), ..write("a", 2, 2) };
    assert_eq!(snapshot(first), Some((4, vec![0, 255, 7])));
    assert_eq!(snapshot(write("a", 4, 1)), Some((4, vec![0, 255, 7])));
    let second = Write { snapshot: Some(vec![]), ..write("a", 5, 0) };
    assert_eq!(snapshot(second), Some((5, vec![])));
}

/// Although its writes stand among those of another.
pub(crate) fn each_job_of_a_group_has_its_own_snapshot(store: &mut impl Store) {
    let with = |byte, write| Write { snapshot: Some(vec![byte]), ..write };
    let group = vec![
        with(1, write("a", 0, 1)),
        with(2, write("b", 0, 1)),
        write("a", 1, 1),
        with(3, write("c", 0, 1)),
        with(4, write("b", 1, 1)),
        write("c", 1, 1),
    ];
    assert!(commit(store, group).iter().all(Result::is_ok));
    let kept = ["a", "b", "c"].map(|id| store.get(id).unwrap().unwrap().snapshot.unwrap());
    assert_eq!(kept.map(|kept| (kept.seq, kept.state[0])), [(1, 1), (2, 4), (1, 3)]);
}

pub(crate) fn a_projection_is_kept_until_its_job_goes(store: &mut impl Store) {
    let made = |seq, byte| Snapshot { seq, state: vec![byte; 9] };
    assert!(!store.project("a", &made(1, 0)).unwrap(), "there is no such job");
    for id in ["a", "b"] {
        put(store, write(id, 0, 3));
        assert_eq!(store.projection(id).unwrap(), None);
        assert!(store.project(id, &made(1, 1)).unwrap() && store.project(id, &made(3, 2)).unwrap());
    }
    assert_eq!(store.projection("a").unwrap(), Some(made(3, 2)));
    assert!(store.remove("a").unwrap());
    put(store, write("a", 0, 3));
    assert_eq!(store.projection("a").unwrap(), None);
    assert_eq!(store.projection("b").unwrap(), Some(made(3, 2)));
    let mut over = write("b", 3, 1);
    (over.row.over, over.row.finished_at) = (true, Some(Timestamp(5)));
    put(store, over);
    assert_eq!(store.purge(Timestamp(6)).unwrap().len(), 1);
    put(store, write("b", 0, 3));
    assert_eq!(store.projection("b").unwrap(), None);
}
