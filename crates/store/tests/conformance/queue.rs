//! Jobs that wait for a worker, and plans that several have.

use std::sync::Arc;

use super::common::*;
use super::*;

fn put_queued(store: &mut impl Store, id: &str, seq: u64, submitted_at: u64, queued: Option<&str>) {
    let mut write = write(id, seq, 1);
    write.row.submitted_at = Timestamp(submitted_at);
    write.row.wake_at = Some(Timestamp(u64::MAX));
    write.row.queued = queued.map(str::to_owned);
    put(store, write);
}

fn queued(store: &mut impl Store, limit: usize) -> Vec<String> {
    let (mut all, mut after) = (vec![], None);
    loop {
        let page = store.queued(Whose::all(Owner::SHARD), after, limit).unwrap();
        after = page.last().map(|entry| (entry.submitted_at, entry.job.clone()));
        all.extend(page.iter().map(|entry| format!("{} {}", entry.job, entry.queued)));
        if page.len() < limit {
            return all;
        }
    }
}

pub(crate) fn what_waits_for_a_worker_is_queued_in_its_order_until_it_does_not(
    store: &mut impl Store,
) {
    put_queued(store, "late", 0, 9, Some("x"));
    put_queued(store, "b", 0, 5, Some("y"));
    put_queued(store, "a", 0, 5, Some("x"));
    put_queued(store, "runs", 0, 5, None);
    let mut other = write("others", 0, 1);
    other.row.queued = Some("x".to_owned());
    let owner = owner(store, "others");
    assert_eq!(store.commit(&owner, &[other]).unwrap(), [Ok(())]);
    for limit in [1, 2, 3, 99] {
        assert_eq!(queued(store, limit), ["a x", "b y", "late x"], "{limit}");
    }
    assert_eq!(store.row("b").unwrap().unwrap().0.queued.as_deref(), Some("y"));
    put_queued(store, "a", 1, 5, Some("z"));
    put_queued(store, "b", 1, 5, None);
    assert_eq!(queued(store, 99), ["a z", "late x"]);
    assert!(store.park("a", "it contradicts itself").unwrap());
    assert!(store.remove("late").unwrap());
    assert_eq!(queued(store, 99), Vec::<String>::new());
}

pub(crate) fn jobs_with_the_same_plan_share_one(store: &mut impl Store) {
    for id in ["a", "b"] {
        put(store, new_job(id, "nightly"));
    }
    put(store, new_job("c", "weekly"));
    let (a, b, c) = (plan_of(store, "a"), plan_of(store, "b"), plan_of(store, "c"));
    assert!(Arc::ptr_eq(&a, &b) && !Arc::ptr_eq(&a, &c));
    for (id, name) in [("a", "nightly"), ("b", "nightly"), ("c", "weekly")] {
        let new = new_job(id, name);
        assert_eq!(log(store, id), records(&new), "as it was given");
        put(
            store,
            Write { records: vec![record(new.records.len() as u64 + 1)], ..write(id, 2, 1) },
        );
    }
    assert!(store.remove("a").unwrap());
    assert_eq!(plan_of(store, "b"), b, "another has it");
    assert!(store.remove("b").unwrap());
    drop((a, b));
    put(store, new_job("d", "nightly"));
    assert_eq!(plan_of(store, "d").name(), "nightly", "it comes again");
}
