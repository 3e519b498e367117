//! What only a database elsewhere can do: lose its connection, have two who write at once, be somebody else's.

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

#[path = "../common/mod.rs"]
mod common;
mod proxy;
mod readiness;
mod runs;
mod storage;
#[path = "../../../core/tests/properties/strategies.rs"]
#[allow(dead_code)]
mod strategies;
mod tables;
mod tls;
mod weeks;
#[path = "../../../core/tests/properties/world.rs"]
#[allow(dead_code)]
mod world;

use std::sync::Barrier;
use std::thread;

use common::{key, log, new_job, owner, plan_of, put, write};
use proxy::{Cut, Proxy};
use steadfast_core::time::Timestamp;
use steadfast_store::testing::{TestCluster, execute, query};
use steadfast_store::{
    Filter, Journal as _, Owner, PostgresStore, Reader as _, Refused, StoreError, Write,
};

in_one_test!(
    connections_and_owners:
    a_group_whose_answer_is_lost_is_neither_lost_nor_doubled,
    a_group_whose_backend_is_ended_is_not_kept_until_it_is_sent_again,
    a_connection_that_was_lost_is_made_again,
    a_stale_epoch_is_refused_wholly_and_events_carry_theirs,
    keys_that_two_owners_want_at_once_are_one_job_each_and_nobody_waits_for_ever,
    a_job_of_a_shard_of_somebody_else_is_refused_alone,
    a_plan_goes_with_the_last_job_that_has_it,
    a_character_that_the_database_cannot_have_stops_nobody,
    what_was_pinned_does_not_see_what_comes_after,
    what_the_database_refuses_is_told_by_what_to_do_about_it,
);

fn open(url: &str) -> PostgresStore {
    PostgresStore::open(url).expect("the database is there")
}

/// As the engine's writer does it: in a new epoch the lost transaction is over, and what is refused then is held against the log.
fn resolve(store: &mut PostgresStore, owner: &Owner, group: &[Write]) -> Vec<bool> {
    let owner = store.take(&owner.id, Timestamp(0), None).unwrap();
    let answers = store.commit(&owner, group).unwrap();
    let kept = |(write, answer): (&Write, Result<(), Refused>)| {
        answer.is_ok() || store.is_kept(write).unwrap()
    };
    group.iter().zip(answers).map(kept).collect()
}

fn a_group_whose_answer_is_lost_is_neither_lost_nor_doubled() {
    let Some(cluster) = TestCluster::shared() else { return };
    for cut in [Cut::Request, Cut::Answer] {
        let url = cluster.database();
        let proxy = Proxy::before(&url);
        let (mut store, mut direct) = (open(&proxy.url), open(&url));
        let owner = owner(&mut store, Owner::SHARD);
        let group = [
            Write { key: Some(key("k", "x")), ..new_job("a", "nightly") },
            write("a", 2, 3),
            write("b", 0, 1),
        ];
        proxy.cut_next(cut);
        let lost = store.commit(&owner, &group);
        assert!(matches!(lost, Err(StoreError::Unknown { .. })), "{cut:?}: {lost:?}");
        assert_eq!(resolve(&mut store, &owner, &group), [true; 3], "{cut:?}");
        assert_eq!((log(&mut direct, "a").len(), log(&mut direct, "b").len()), (5, 1), "{cut:?}");
        let jobs = direct.list(&Filter::default(), None, 9).unwrap().jobs;
        assert_eq!(jobs.len(), 2, "{cut:?}");
        let stale = store.commit(&owner, &[write("c", 0, 1)]).unwrap();
        assert!(matches!(stale[..], [Err(Refused::Fenced { .. })]), "{cut:?}: {stale:?}");
        assert_eq!(direct.get("c").unwrap(), None);
    }
}

/// Its transaction waits for the lock of another one when its backend is ended.
fn a_group_whose_backend_is_ended_is_not_kept_until_it_is_sent_again() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    let owner = owner(&mut store, Owner::SHARD);
    let group = [write("a", 0, 2)];
    let holder = Holder::of_owner(&url);
    let answer = thread::scope(|scope| {
        let commit = scope.spawn(|| store.commit(&owner, &group));
        holder.end_who_waits();
        commit.join().unwrap()
    });
    drop(holder);
    assert!(matches!(answer, Err(StoreError::Unknown { .. })), "{answer:?}");
    assert!(!store.is_kept(&group[0]).unwrap());
    assert_eq!(resolve(&mut store, &owner, &group), [true]);
    assert_eq!(log(&mut store, "a").len(), 2);
}

/// Somebody with the row of the owner locked.
struct Holder {
    url: String,
    locked: std::sync::mpsc::Sender<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Holder {
    fn of_owner(url: &str) -> Self {
        let (release, released) = std::sync::mpsc::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let held = url.to_owned();
        let thread = thread::spawn(move || {
            steadfast_store::testing::hold(
                &held,
                "SELECT FROM steadfast.owners FOR UPDATE",
                || {
                    tell.send(()).unwrap();
                    let _ = released.recv();
                },
            );
        });
        told.recv().expect("it holds the row");
        Self { url: url.to_owned(), locked: release, thread: Some(thread) }
    }

    fn end_who_waits(&self) {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND datname = current_database()";
        while query(&self.url, end).is_empty() {
            thread::yield_now();
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.locked.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn a_connection_that_was_lost_is_made_again() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    put(&mut store, write("a", 0, 1));
    let end_all = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
    execute(&url, end_all);
    assert_eq!(log(&mut store, "a").len(), 1);
    execute(&url, end_all);
    let owner = owner(&mut open(&url), Owner::SHARD);
    match store.commit(&owner, &[write("a", 1, 1)]) {
        // It was seen to be closed before anything was sent, or when it was.
        Ok(answers) => assert_eq!(answers, [Ok(())]),
        Err(StoreError::Unknown { .. }) => {
            assert_eq!(resolve(&mut store, &owner, &[write("a", 1, 1)]), [true]);
        }
        Err(other) => panic!("{other}"),
    }
    assert_eq!(log(&mut store, "a").len(), 2);
}

fn a_stale_epoch_is_refused_wholly_and_events_carry_theirs() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let (mut old, mut new) = (open(&url), open(&url));
    let first = old.take(Owner::SHARD, Timestamp(0), None).unwrap();
    assert_eq!(old.commit(&first, &[write("a", 0, 1)]).unwrap(), [Ok(())]);
    let second = new.take(Owner::SHARD, Timestamp(0), None).unwrap();
    let group = [
        Write { key: Some(key("k", "x")), ..new_job("b", "nightly") },
        write("a", 1, 1),
        Write { snapshot: Some(vec![1]), ..write("a", 2, 0) },
    ];
    let fenced = old.commit(&first, &group).unwrap();
    let all = |answer: &Result<(), Refused>| matches!(answer, Err(Refused::Fenced { .. }));
    assert!(fenced.len() == 3 && fenced.iter().all(all), "{fenced:?}");
    assert_eq!(query(&url, "SELECT count(*) FROM steadfast.keys"), ["(0)"]);
    assert_eq!(query(&url, "SELECT count(*) FROM steadfast.plans"), ["(0)"]);
    assert_eq!(log(&mut new, "a").len(), 1);
    assert_eq!(new.commit(&second, &group).unwrap(), [Ok(()), Ok(()), Ok(())]);
    let epochs = query(&url, "SELECT epoch FROM steadfast.events WHERE job = 'a' ORDER BY last");
    assert_eq!(epochs, [format!("({})", first.epoch), format!("({})", second.epoch)]);
}

/// Two owners want the same keys, each in its own order, again and again.
fn keys_that_two_owners_want_at_once_are_one_job_each_and_nobody_waits_for_ever() {
    const ROUNDS: usize = 20;
    const KEYS: usize = 8;
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    drop(open(&url));
    let both = Barrier::new(2);
    // A job of `run` is its own owner, so that each is an owner of its own.
    let race = |side: &'static str| {
        let (url, both) = (&url, &both);
        move || {
            let mut store = open(url);
            let mut made = vec![];
            for round in 0..ROUNDS {
                let id = format!("{side}-{round}");
                let owner = store.take(&id, Timestamp(0), None).unwrap();
                both.wait();
                let with = Write { key: Some(key(&format!("k{round}"), side)), ..write(&id, 0, 1) };
                made.push(store.commit(&owner, &[with]).unwrap().remove(0));
                both.wait();
            }
            made
        }
    };
    let (left, right) = thread::scope(|scope| {
        let (left, right) = (scope.spawn(race("left")), scope.spawn(race("right")));
        (left.join().unwrap(), right.join().unwrap())
    });
    for (round, answers) in left.iter().zip(&right).enumerate() {
        let holder = open(&url).key(&format!("k{round}")).unwrap().expect("somebody has it").0;
        let taken = Err(Refused::KeyTaken { job: holder.clone(), same_body: false });
        let expected = if holder.starts_with("left") { (Ok(()), taken) } else { (taken, Ok(())) };
        assert_eq!((answers.0.clone(), answers.1.clone()), expected, "{round}");
    }
    many_keys_in_two_orders(cluster, KEYS);
}

/// Shards of two owners, as several controllers will have them.
fn many_keys_in_two_orders(cluster: &TestCluster, keys: usize) {
    let url = cluster.database();
    let mut store = open(&url);
    store.take(Owner::SHARD, Timestamp(0), None).unwrap();
    store.take("other", Timestamp(0), None).unwrap();
    execute(&url, "UPDATE steadfast.shards SET owner = 'other' WHERE shard % 2 = 1");
    let both = Barrier::new(2);
    let ids_of = |owner: &str| {
        let sql = format!("SELECT shard FROM steadfast.shards WHERE owner = '{owner}'");
        let shards: Vec<u32> = query(&url, &sql)
            .iter()
            .map(|row| row.trim_matches(['(', ')']).parse().unwrap())
            .collect();
        let ids = (0..).map(move |n| format!("{n}"));
        ids.filter(move |id| shards.contains(&(crc32fast::hash(id.as_bytes()) % 64)))
    };
    let race = |owner: &'static str, reversed: bool| {
        let (url, both, ids) = (&url, &both, ids_of(owner));
        move || {
            let mut store = open(url);
            let owner = common::owner(&mut store, owner);
            let mut made = 0;
            let mut ids = ids;
            for round in 0..20 {
                let keyed = |n: usize, id: String| Write {
                    key: Some(key(&format!("{round}-{n}"), "x")),
                    ..write(&id, 0, 1)
                };
                let mut group: Vec<_> = (0..keys).map(|n| keyed(n, ids.next().unwrap())).collect();
                if reversed {
                    group.reverse();
                }
                both.wait();
                let answers = store.commit(&owner, &group).unwrap();
                made += answers.iter().filter(|answer| answer.is_ok()).count();
            }
            made
        }
    };
    let made = thread::scope(|scope| {
        let (one, other) =
            (scope.spawn(race(Owner::SHARD, false)), scope.spawn(race("other", true)));
        one.join().unwrap() + other.join().unwrap()
    });
    assert_eq!(made, 20 * keys, "each key is one job's");
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(query(&url, deadlocks), ["(0)"]);
}

fn a_job_of_a_shard_of_somebody_else_is_refused_alone() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    let ours = store.take(Owner::SHARD, Timestamp(0), None).unwrap();
    assert_eq!(store.commit(&ours, &[write("a", 0, 1)]).unwrap(), [Ok(())]);
    store.take("other", Timestamp(0), None).unwrap();
    let shard = i64::from(crc32fast::hash(b"a") % 64);
    execute(&url, &format!("UPDATE steadfast.shards SET owner = 'other' WHERE shard = {shard}"));
    let other = crc32fast::hash(b"b") % 64;
    assert_ne!(i64::from(other), shard);
    let answers = store.commit(&ours, &[write("a", 1, 1), write("b", 0, 1)]).unwrap();
    assert_eq!(answers, [Err(Refused::NotOurs { owner: "other".to_owned() }), Ok(())]);
    assert_eq!(store.get("a").unwrap().unwrap().owner, "other");
}

fn a_plan_goes_with_the_last_job_that_has_it() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    for id in ["a", "b"] {
        put(&mut store, new_job(id, "nightly"));
    }
    let plans = || query(&url, "SELECT count(*) FROM steadfast.plans");
    assert!(store.remove("a").unwrap());
    assert_eq!((plans(), plan_of(&mut store, "b").name()), (vec!["(1)".to_owned()], "nightly"));
    assert!(store.remove("b").unwrap());
    assert_eq!(plans(), ["(0)"]);
    for table in ["events", "jobs", "keys", "labels", "snapshots", "projections"] {
        assert_eq!(query(&url, &format!("SELECT FROM steadfast.{table}")), Vec::<String>::new());
    }
}

fn a_character_that_the_database_cannot_have_stops_nobody() {
    let Some(cluster) = TestCluster::shared() else { return };
    let mut store = open(&cluster.database());
    let mut odd = Write { key: Some(key("k\0", "x")), ..write("a", 0, 1) };
    odd.row.name = "night\0ly".into();
    odd.row.labels = [("te\0am".to_owned(), "a\0".to_owned())].into();
    put(&mut store, odd.clone());
    let again =
        common::commit(&mut store, vec![Write { job: "b".into(), row: common::row("b"), ..odd }]);
    assert_eq!(again, [Err(Refused::KeyTaken { job: "a".into(), same_body: true })]);
    assert_eq!(store.get("a").unwrap().unwrap().row.name, "night\u{fffd}ly");
    assert_eq!(store.get("a\0").unwrap(), None);
    assert_eq!(store.key("k\0").unwrap().unwrap().0, "a".into());
    assert!(store.park("a", "it is\0 odd").unwrap());
    assert!(store.remove("a").unwrap());
}

fn what_was_pinned_does_not_see_what_comes_after() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    put(&mut store, write("a", 0, 1));
    let mut reader = open(&url);
    reader.pin().unwrap();
    put(&mut store, write("a", 1, 1));
    put(&mut store, write("b", 0, 1));
    assert_eq!((log(&mut reader, "a").len(), reader.get("b").unwrap()), (1, None));
    execute(
        &url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction' \
         AND datname = current_database()",
    );
    let lost = reader.get("b");
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "that moment is gone: {lost:?}");
    let lost = reader.get("b");
    assert!(matches!(lost, Err(StoreError::Unavailable { .. })), "{lost:?}");
}

/// The database fails the next `times` groups with this code, after it has written some of each.
fn fail(url: &str, code: &str, times: u32) {
    execute(
        url,
        &format!(
            "DROP SEQUENCE IF EXISTS public.tries; CREATE SEQUENCE public.tries;
             CREATE OR REPLACE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN
                 IF nextval('public.tries') <= {times} THEN
                     RAISE EXCEPTION USING ERRCODE = '{code}';
                 END IF;
                 RETURN NEW;
             END $$;
             CREATE OR REPLACE TRIGGER fail BEFORE INSERT ON steadfast.events
             FOR EACH ROW EXECUTE FUNCTION public.fail()"
        ),
    );
}

fn what_the_database_refuses_is_told_by_what_to_do_about_it() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut store = open(&url);
    let owner = owner(&mut store, Owner::SHARD);
    let new = |id: &str| [Write { key: Some(key(id, "x")), ..write(id, 0, 1) }];
    fail(&url, "53100", 1);
    let full = store.commit(&owner, &new("a"));
    assert!(matches!(full, Err(StoreError::Full { .. })), "{full:?}");
    assert_eq!((store.get("a").unwrap(), store.key("a").unwrap()), (None, None));
    assert_eq!(store.commit(&owner, &new("a")).unwrap(), [Ok(())], "there is room again");
    for (id, code) in [("b", "40001"), ("c", "40P01")] {
        fail(&url, code, 3);
        assert_eq!(store.commit(&owner, &new(id)).unwrap(), [Ok(())], "{code}");
    }
    fail(&url, "40001", u32::MAX);
    let busy = store.commit(&owner, &new("d"));
    assert!(matches!(busy, Err(StoreError::Busy { .. })), "{busy:?}");
    fail(&url, "57014", 1);
    let cancelled = store.commit(&owner, &new("d"));
    assert!(matches!(cancelled, Err(StoreError::Unavailable { .. })), "{cancelled:?}");
    // As after a failover: the same connection would be read-only for ever.
    let name = url.rsplit('/').next().unwrap();
    execute(&url, &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let mut other = open(&url);
    let read_only = other.commit(&owner, &new("d"));
    assert!(matches!(read_only, Err(StoreError::Unavailable { .. })), "{read_only:?}");
    let reset = format!("ALTER DATABASE {name} RESET default_transaction_read_only");
    execute(&url, &format!("BEGIN READ WRITE; {reset}; COMMIT"));
    assert_eq!(other.commit(&owner, &new("d")).unwrap(), [Ok(())]);
    for error in [full, busy, cancelled, read_only] {
        assert!(!error.unwrap_err().is_fatal());
    }
}
