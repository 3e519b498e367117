//! Whatever is done to them, a database and a map tell the same story.

mod common;

use std::cmp::Reverse;
use std::collections::HashSet;

use common::{Store, key, write};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use steadfast_core::event::JobState;
use steadfast_core::time::Timestamp;
use steadfast_store::testing::TestCluster;
use steadfast_store::{
    Filter, Gap, Journal, MemoryStore, Owner, Page, PostgresStore, Reader as _, Refused, Row,
    SqliteStore, Whose, Write,
};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const OWNERS: [&str; 2] = [Owner::SHARD, "e"];

#[derive(Clone, Debug)]
enum Act {
    /// By an owner, in its epoch or one that is off by something.
    Commit(usize, i64, Vec<Plan>),
    /// So much later than anything before, after having been down for so long.
    Take(usize, u64, Option<u64>),
    Purge(u64),
    Reopen,
}

/// A write, but for what it has to fit: the end of the log, off by something.
#[derive(Clone, Debug)]
struct Plan {
    job: usize,
    seq_off: i64,
    events: u64,
    state: JobState,
    times: (u64, Option<u64>, Option<u64>),
    over: bool,
    label: u8,
    snapshot: Option<Vec<u8>>,
    key: Option<(u8, u8)>,
}

fn time() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..6u64, 1 => Just(u64::MAX)]
}

/// Mostly none.
fn off() -> impl Strategy<Value = i64> {
    prop_oneof![8 => Just(0), 1 => -2..=2i64]
}

prop_compose! {
    fn plan()(
        job in 0..IDS.len(),
        seq_off in off(),
        events in 0..4u64,
        state in prop_oneof![
            Just(JobState::Running), Just(JobState::Failed), Just(JobState::Paused)
        ],
        times in (time(), proptest::option::of(time()), proptest::option::of(time())),
        over: bool,
        label in 0..3u8,
        snapshot in proptest::option::of(vec(any::<u8>(), 0..5)),
        key in proptest::option::of((0..3u8, 0..2u8)),
    ) -> Plan {
        Plan { job, seq_off, events, state, times, over, label, snapshot, key }
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => (0..OWNERS.len(), off(), vec(plan(), 1..5))
            .prop_map(|(owner, off, plans)| Act::Commit(owner, off, plans)),
        3 => (0..OWNERS.len(), prop_oneof![8 => 0..6u64, 1 => 0..9000u64], proptest::option::of(0..9u64))
            .prop_map(|(owner, later, down_for)| Act::Take(owner, later, down_for)),
        1 => (0..7u64).prop_map(Act::Purge),
        1 => Just(Act::Reopen),
    ]
}

/// Those that an open job was in, as far as it was there: a store may forget the rest.
fn gaps_of(store: &mut impl Journal, owner: &str, row: &Row) -> Vec<Gap> {
    let gaps = store.gaps(owner, &row.id, row.submitted_at).unwrap();
    gaps.into_iter().map(|gap| Gap { from: gap.from.max(row.submitted_at), ..gap }).collect()
}

/// In the owner's epoch, or one that is so far from it. Of a refusal is told whether the current epoch is the owner's.
fn commit(
    store: &mut impl Journal,
    owner: &Owner,
    epoch_off: i64,
    group: &[Write],
) -> Vec<Result<(), Refused>> {
    let epoch = owner.epoch.saturating_add_signed(epoch_off);
    let answers = store.commit(&Owner { id: owner.id.clone(), epoch }, group).unwrap();
    let told = |why| match why {
        Refused::Fenced { owner: id, current, .. } => {
            Refused::Fenced { owner: id, epoch: 0, current: u64::from(current == owner.epoch) }
        }
        other => other,
    };
    answers.into_iter().map(|answer| answer.map_err(told)).collect()
}

/// An owner that is a job makes no other. Jobs are submitted at moments that do not fall.
fn fit(plan: &Plan, owner: &str, clock: &mut u64, store: &mut impl Store) -> Write {
    let mut id = IDS[plan.job];
    if IDS.contains(&owner) && store.get(id).unwrap().is_none() {
        id = owner;
    }
    let seq = store.get(id).unwrap().map_or(0, |stored| stored.seq);
    let expected = seq.saturating_add_signed(plan.seq_off);
    let mut write =
        write(id, expected, if expected == 0 { plan.events.max(1) } else { plan.events });
    write.row.state = plan.state;
    write.row.submitted_at = match plan.times.0 {
        u64::MAX => Timestamp(u64::MAX),
        later => {
            *clock += later;
            Timestamp(*clock)
        }
    };
    write.row.finished_at = plan.times.1.map(Timestamp);
    write.row.wake_at = plan.times.2.map(Timestamp);
    write.row.over = plan.over;
    write.row.labels = [("team".into(), plan.label.to_string())].into();
    write.snapshot.clone_from(&plan.snapshot);
    if let Some((name, digest)) = plan.key.filter(|_| expected == 0) {
        write.key = Some(key(&name.to_string(), &digest.to_string()));
    }
    write
}

/// Everything one can ask.
fn story(store: &mut impl Store) -> String {
    let mut story = String::new();
    for id in IDS {
        let (stored, log) = (store.get(id).unwrap(), store.events(id, 1, 5).unwrap());
        story += &format!("{stored:?} {log:?}\n");
    }
    let label = Some(("team".to_owned(), "1".to_owned()));
    for filter in [
        Filter::default(),
        Filter { over: Some(false), ..Filter::default() },
        Filter { state: Some(JobState::Failed), label, ..Filter::default() },
    ] {
        let first = store.list(&filter, None, 2).unwrap();
        let second = store.list(&filter, first.next.as_deref(), 2).unwrap();
        for Page { jobs, next, damaged } in [first, second] {
            story += &format!("{jobs:?} {} {damaged:?}\n", next.is_some());
        }
    }
    for until in [3, u64::MAX] {
        story += &format!(
            "{:?}\n",
            store.due(Whose::all(OWNERS[0]), None, Timestamp(until), 4).unwrap()
        );
    }
    story + &format!("{:?}\n", store.counts().unwrap())
}

/// `open`: the same store, again and again.
fn answer_alike<S: Store>(
    acts: Vec<Act>,
    mut open: impl FnMut() -> S,
) -> Result<(), TestCaseError> {
    let (mut database, mut map) = (open(), MemoryStore::new());
    // Of the map and of the database, whose epochs may be by a clock of its own.
    let mut owners = OWNERS.map(|id| {
        let [its, ours] = [&mut map as &mut dyn Journal, &mut database]
            .map(|store| store.take(id, Timestamp(0), None).unwrap());
        (its, ours)
    });
    let (mut clock, mut in_order, mut were_over) = (0, true, HashSet::new());
    for act in acts {
        match act {
            Act::Commit(owner, epoch_off, plans) => {
                let (of_map, of_database) = &owners[owner];
                let group: Vec<_> =
                    plans.iter().map(|plan| fit(plan, &of_map.id, &mut clock, &mut map)).collect();
                let answers = commit(&mut map, of_map, epoch_off, &group);
                prop_assert_eq!(commit(&mut database, of_database, epoch_off, &group), answers);
                for id in IDS {
                    if map.get(id).unwrap().is_some_and(|stored| stored.row.over) {
                        were_over.insert(id);
                    }
                }
            }
            Act::Take(owner, later, down_for) => {
                clock += later;
                let (id, at) = (OWNERS[owner], Timestamp(clock));
                let down_since = down_for.map(|down| Timestamp(clock.saturating_sub(down)));
                owners[owner] = (
                    map.take(id, at, down_since).unwrap(),
                    database.take(id, at, down_since).unwrap(),
                );
                prop_assert_eq!(&owners[owner].0.id, &owners[owner].1.id);
                let open = Filter { over: Some(false), ..Filter::default() };
                let open = map.list(&open, None, 100).unwrap().jobs;
                // What a store forgets goes by the first open job, as if it were the oldest, and one that is over is not opened again. The
                // newest is listed first.
                in_order &= open.is_sorted_by_key(|row| Reverse(row.submitted_at));
                for row in open.iter().filter(|row| in_order && !were_over.contains(&*row.id)) {
                    if map.get(&row.id).unwrap().is_some_and(|stored| stored.owner == id) {
                        let gaps = gaps_of(&mut map, id, row);
                        prop_assert_eq!(gaps_of(&mut database, id, row), gaps);
                    }
                }
            }
            Act::Purge(before) => {
                let gone = map.purge(Timestamp(before)).unwrap();
                prop_assert_eq!(database.purge(Timestamp(before)).unwrap(), gone);
            }
            Act::Reopen => database = open(),
        }
        prop_assert_eq!(story(&mut database), story(&mut map));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_file_and_a_map_answer_alike(acts in vec(act(), 1..30)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        answer_alike(acts, || SqliteStore::open(&path).unwrap())?;
    }
}

#[test]
fn postgres_and_a_map_answer_alike() {
    let Some(cluster) = TestCluster::shared() else { return };
    let mut runner = TestRunner::new(Config { cases: 16, ..Config::default() });
    let told = runner.run(&vec(act(), 1..30), |acts| {
        let url = cluster.database();
        answer_alike(acts, || PostgresStore::open(&url).unwrap())
    });
    told.unwrap();
}
