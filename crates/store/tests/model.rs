//! Whatever is done to them, a file and a map tell the same story.

mod common;

use common::{Store, key, write};
use proptest::collection::vec;
use proptest::prelude::*;
use steadfast_core::event::JobState;
use steadfast_core::time::Timestamp;
use steadfast_store::{Filter, Journal, MemoryStore, Owner, SqliteStore, Write};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const OWNERS: [&str; 2] = [Owner::SHARD, "e"];

#[derive(Clone, Debug)]
enum Act {
    /// By an owner, in its epoch or one that is off by something.
    Commit(usize, i64, Vec<Plan>),
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
        3 => (0..OWNERS.len(), 0..9000u64, proptest::option::of(0..9u64))
            .prop_map(|(owner, at, since)| Act::Take(owner, at, since)),
        1 => (0..7u64).prop_map(Act::Purge),
        1 => Just(Act::Reopen),
    ]
}

fn fit(plan: &Plan, store: &mut impl Store) -> Write {
    let id = IDS[plan.job];
    let seq = store.get(id).unwrap().map_or(0, |stored| stored.seq);
    let expected = seq.saturating_add_signed(plan.seq_off);
    let mut write =
        write(id, expected, if expected == 0 { plan.events.max(1) } else { plan.events });
    write.row.state = plan.state;
    write.row.submitted_at = Timestamp(plan.times.0);
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
        story += &format!("{first:?} {second:?}\n");
    }
    for until in [3, u64::MAX] {
        story += &format!("{:?}\n", store.due(OWNERS[0], None, Timestamp(until), 4).unwrap());
    }
    story
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_file_and_a_map_answer_alike(acts in vec(act(), 1..30)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        let mut file = SqliteStore::open(&path).unwrap();
        let mut map = MemoryStore::new();
        let mut owners = OWNERS.map(|id| {
            file.take(id, Timestamp(0), None).unwrap();
            map.take(id, Timestamp(0), None).unwrap()
        });
        for act in acts {
            match act {
                Act::Commit(owner, epoch_off, plans) => {
                    let group: Vec<_> = plans.iter().map(|plan| fit(plan, &mut map)).collect();
                    let Owner { id, epoch } = owners[owner].clone();
                    let owner = Owner { id, epoch: epoch.saturating_add_signed(epoch_off) };
                    let answers = map.commit(&owner, &group).unwrap();
                    prop_assert_eq!(file.commit(&owner, &group).unwrap(), answers);
                }
                Act::Take(owner, at, down_since) => {
                    let (id, at) = (OWNERS[owner], Timestamp(at));
                    let down_since = down_since.map(Timestamp);
                    owners[owner] = map.take(id, at, down_since).unwrap();
                    prop_assert_eq!(&file.take(id, at, down_since).unwrap(), &owners[owner]);
                    let gaps = map.gaps(id, Timestamp(1)).unwrap();
                    prop_assert_eq!(file.gaps(id, Timestamp(1)).unwrap(), gaps);
                }
                Act::Purge(before) => {
                    let gone = map.purge(Timestamp(before)).unwrap();
                    prop_assert_eq!(file.purge(Timestamp(before)).unwrap(), gone);
                }
                Act::Reopen => file = SqliteStore::open(&path).unwrap(),
            }
            prop_assert_eq!(story(&mut file), story(&mut map));
        }
    }
}
