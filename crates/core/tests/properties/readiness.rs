//! What may start, held against what starts when every worker has room.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_core::decide::{Input, advance};
use steadfast_core::event::{ItemId, Role};
use steadfast_core::job::{Job, Timer};
use steadfast_core::readiness::{
    ItemReadiness, NotReady, OpenStep, UnderWay, open_items, readiness,
};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::eligible;

pub(crate) fn check(job: &Job, now: Timestamp) {
    let rows: Vec<ItemReadiness> = readiness(job, ItemId::default(), now).collect();
    check_places(job, &rows, now);
    check_ready(job, &rows, now);
    check_open(job);
    let timers: BTreeMap<Timer, Timestamp> =
        job.timers().into_iter().map(|(due, timer)| (timer, due)).collect();
    for row in &rows {
        assert_eq!(row.next_retry_at, timers.get(&Timer::Retry(row.id)).copied());
        let counted = if row.attempts == Some(0) { Some(0) } else { row.failures };
        if let Some(counted) = counted {
            let most = row.max_attempts.map_or(u64::MAX, u64::from);
            assert_eq!(row.eligible, eligible(counted.into(), most, row.retryable));
        }
        let live = job.live(row.id).map(|live| live.history);
        assert!(live.is_none_or(
            |live| (row.attempts, row.failures) == (Some(live.attempts), Some(live.failures))
        ));
    }
}

/// Every item is in one row, the rows are in order, and each can be gone on from.
fn check_places(job: &Job, rows: &[ItemReadiness], now: Timestamp) {
    for (at, row) in rows.iter().enumerate().step_by(3) {
        let rest: Vec<ItemReadiness> = readiness(job, row.id, now).collect();
        assert_eq!(rest, rows[at..]);
    }
    assert!(rows.windows(2).all(|two| two[0].id < two[1].id));
    let mut next: BTreeMap<(u32, u32), u32> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.id.role == Role::Item) {
        let next = next.entry((row.id.run, row.id.step)).or_default();
        assert_eq!(row.id.index, *next, "an item is missing, or is there twice");
        *next += row.items.unwrap_or(0);
    }
    assert_eq!(next.len(), job.runs.len() * job.plan.steps().len(), "every step is there");
    for ((run, step), count) in next {
        let items = job.runs[run as usize].steps[step as usize].items;
        assert!(items == 0 || items == count);
    }
}

fn check_ready(job: &Job, rows: &[ItemReadiness], now: Timestamp) {
    let mut ready: BTreeMap<(u32, u32, Role), BTreeSet<u32>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.not_ready.is_none()) {
        assert!(row.eligible && row.dependencies_satisfied, "{row:?}");
        let (ItemId { run, step, role, index }, items) = (row.id, row.items.expect("known"));
        ready.entry((run, step, role)).or_default().extend(index..index + items);
    }
    let mut job = job.clone();
    let input = |job: &mut Job, input: Input| advance(job, &input, now).expect("it is due");
    let awaited =
        |timer: &Timer| matches!(timer, Timer::Begin | Timer::JobTimeout | Timer::Retry(_));
    while let Some((_, timer)) = (job.timers().into_iter())
        .find(|(due, timer)| *due <= now.max(job.last_at) && awaited(timer))
    {
        input(&mut job, Input::Fired(timer));
    }
    let mut started: BTreeMap<(u32, u32, Role), BTreeSet<u32>> = BTreeMap::new();
    while let Some(item) = (0..job.runs.len() as u32).find_map(|run| job.next_startable(run)) {
        input(
            &mut job,
            Input::Start { item, worker: "w".into(), incarnation: None, least_token: 0 },
        );
        started.entry((item.run, item.step, item.role)).or_default().insert(item.index);
    }
    assert!(started.keys().eq(ready.keys()), "{started:?} start, {ready:?} are ready");
    for (place, ready) in ready {
        let (run, step, _) = place;
        let live = job.runs[run as usize].steps[step as usize].live.values();
        let running = live.filter(|item| item.is_under_way()).count();
        let is_full = job.plan.step(step).parallelism.is_some_and(|most| running == most as usize);
        let started = &started[&place];
        assert!(started.is_subset(&ready), "{started:?} of {ready:?}");
        assert!(started.len() == ready.len() || is_full, "{started:?} of {ready:?}");
    }
}

/// What is kept for SQL has the items that have not ended, and no others.
fn check_open(job: &Job) {
    let open = open_items(job);
    // What runs out of time ends when its timer fires: at the beginning of time it has not.
    let rows: Vec<ItemReadiness> = readiness(job, ItemId::default(), Timestamp(0)).collect();
    let of_step = |of: &OpenStep<'_>| {
        let (step, role, datacenter) = (of.step.to_owned(), of.role, of.datacenter);
        let place = (datacenter.map(str::to_owned), step, role as u32);
        let items = of.items.iter().flat_map(move |range| {
            let place = place.clone();
            let count = range.items.map_or(1, u64::from);
            let indexes = u64::from(range.first)..u64::from(range.first) + count;
            indexes.map(move |index| {
                let tried = (range.attempts, range.failures);
                (place.clone(), index, range.items.is_none(), tried, range.under_way)
            })
        });
        items.collect::<Vec<_>>()
    };
    let kept: BTreeMap<_, _> = (open.steps.iter().flat_map(of_step))
        .map(|(place, index, unknown, tried, under_way)| {
            ((place, index, unknown), (tried, under_way))
        })
        .collect();
    let expected: BTreeMap<_, _> = rows
        .iter()
        .filter(|row| !row.not_ready.is_some_and(has_ended))
        .flat_map(|row| {
            let ItemId { run, step, role, index } = row.id;
            let datacenter = job.plan.datacenter(run).map(str::to_owned);
            let place = (datacenter, job.plan.step(step).name.clone(), role as u32);
            let under_way = match row.not_ready {
                Some(NotReady::Running) => Some(UnderWay::Running),
                Some(NotReady::AwaitingCallback) => Some(UnderWay::AwaitingCallback),
                _ => None,
            };
            let tried = (row.attempts.expect("kept"), row.failures.expect("kept"));
            let indexes = u64::from(index)..u64::from(index) + row.items.map_or(1, u64::from);
            let unknown = row.items.is_none();
            indexes.map(move |index| ((place.clone(), index, unknown), (tried, under_way)))
        })
        .collect();
    assert_eq!(kept, expected);
    let ranges = open.steps.iter().flat_map(|step| &step.items).count();
    assert!(ranges <= rows.len(), "{ranges} ranges for {} rows", rows.len());
}

fn has_ended(why: NotReady) -> bool {
    use NotReady::{Cancelled, Failed, Skipped, Stopped, Succeeded};
    matches!(why, Succeeded | Failed | Stopped(_) | Skipped | Cancelled)
}
