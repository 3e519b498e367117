//! Lists: pages, filters, cursors.

use super::common::*;
use super::*;

/// Page by page to the end.
pub(crate) fn walk(store: &mut impl Store, filter: &Filter, limit: usize) -> Vec<Row> {
    let (mut all, mut cursor) = (vec![], None);
    loop {
        let Page { jobs, next, .. } = store.list(filter, cursor.as_deref(), limit).unwrap();
        assert!(jobs.len() <= limit && (next.is_none() || jobs.len() == limit));
        all.extend(jobs);
        cursor = next;
        if cursor.is_none() {
            return all;
        }
    }
}

/// Twenty-four of them, three at each moment, accepted in no order of their times or ids. The last one comes first.
pub(crate) fn many(store: &mut impl Store) -> Vec<Row> {
    let of = |n: u64| Row {
        submitted_at: Timestamp(100 + n / 3),
        name: if n.is_multiple_of(4) { "hourly" } else { "nightly" }.to_owned(),
        state: if n.is_multiple_of(2) { JobState::Failed } else { JobState::Running },
        over: n.is_multiple_of(2),
        local: n.is_multiple_of(3),
        labels: [("team".into(), format!("t{}", n % 5)), ("all".into(), "yes".into())].into(),
        ..row(&format!("job-{n:02}"))
    };
    let rows = || (0..24).map(|n| of(n * 7 % 24));
    let group = rows().map(|row| Write { job: row.id.clone(), row, ..write("", 0, 1) });
    assert!(commit(store, group.collect()).iter().all(Result::is_ok));
    rows().rev().collect()
}

pub(crate) fn pages_have_each_job_once_also_when_submitted_at_the_same_moment(
    store: &mut impl Store,
) {
    let expected = many(store);
    for limit in [1, 2, 3, 5, 24, 25, usize::MAX] {
        assert_eq!(walk(store, &Filter::default(), limit), expected, "pages of {limit}");
    }
}

pub(crate) fn filters_hold_together_and_over_pages(store: &mut impl Store) {
    let all = many(store);
    let (some, label) = (Some("nightly".to_owned()), |n| Some(("team".into(), format!("t{n}"))));
    let filters = [
        Filter { state: Some(JobState::Running), ..Filter::default() },
        Filter { name: some.clone(), ..Filter::default() },
        Filter { label: label(2), ..Filter::default() },
        Filter { over: Some(true), ..Filter::default() },
        Filter { over: Some(false), ..Filter::default() },
        Filter { name: some.clone(), over: Some(true), ..Filter::default() },
        Filter { name: some.clone(), label: label(1), ..Filter::default() },
        Filter { local: Some(true), ..Filter::default() },
        Filter { local: Some(false), name: some.clone(), ..Filter::default() },
        Filter {
            state: Some(JobState::Failed),
            name: some,
            label: label(1),
            over: Some(true),
            local: Some(false),
        },
        Filter { label: label(9), ..Filter::default() },
    ];
    for filter in filters {
        let expected: Vec<_> = (all.iter())
            .filter(|row| filter.state.is_none_or(|state| row.state == state))
            .filter(|row| filter.name.as_ref().is_none_or(|name| row.name == *name))
            .filter(|row| filter.over.is_none_or(|over| row.over == over))
            .filter(|row| filter.local.is_none_or(|local| row.local == local))
            .filter(|row| {
                filter.label.as_ref().is_none_or(|(name, value)| row.labels[name] == *value)
            })
            .cloned()
            .collect();
        for limit in [1, 3, 100] {
            assert_eq!(walk(store, &filter, limit), expected, "{filter:?}, pages of {limit}");
        }
    }
}

pub(crate) fn what_is_new_does_not_shift_the_pages(store: &mut impl Store) {
    let all = many(store);
    let first = store.list(&Filter::default(), None, 10).unwrap();
    put(store, write("newer", 0, 1));
    let second = store.list(&Filter::default(), first.next.as_deref(), 10).unwrap();
    assert_eq!(second.jobs, all[10..20]);
}

pub(crate) fn a_cursor_that_is_none_is_refused(store: &mut impl Store) {
    for text in ["", "x", "~", "1~a", "-1"] {
        let answer = store.list(&Filter::default(), Some(text), 10);
        assert!(matches!(answer, Err(StoreError::BadCursor { .. })), "{text:?}: {answer:?}");
    }
}
