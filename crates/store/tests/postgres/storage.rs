//! Schemas, settings and claims.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use steadfast_core::time::Timestamp;
use steadfast_store::testing::{TestCluster, execute, query};
use steadfast_store::{
    Claim, Journal as _, Owner, PostgresStorage, PostgresStore, Renewal, Settings, Severity,
    Storage as _, StoreError, storage_at,
};

in_one_test!(
    schemas_claims_and_settings:
    the_schema_is_made_once_by_however_many_start_at_once,
    a_schema_of_another_version_or_of_somebody_else_is_left_as_it_is,
    a_database_that_may_lose_what_it_has_acknowledged_is_refused,
    as_many_shards_as_were_asked_for_first,
    no_message_has_the_password,
    servers_share_what_is_there_and_take_over_from_one_that_is_silent,
    settings_are_changed_one_after_another_and_seen_by_all,
    what_an_operator_should_know_is_told_and_nothing_is_made,
);

fn what_an_operator_should_know_is_told_and_nothing_is_made() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let look = |url: &str| storage_at(url).unwrap().examine(now(), 0);
    let said = |url: &str, check: &str| {
        let found = look(url).into_iter().find(|it| it.check == check);
        found.map(|it| (it.severity, it.said))
    };
    assert_eq!(
        said(&url, "schema"),
        Some((Severity::Ok, "there is none yet; the first server makes it".to_owned()))
    );
    assert_eq!(query(&url, "SELECT to_regnamespace('steadfast')"), ["()"]);
    let claim = storage_at(&url).unwrap().claim().unwrap();
    claim.renew(now()).unwrap();
    let all = look(&url);
    assert!(all.iter().all(|it| it.severity == Severity::Ok), "{all:?}");
    assert!(said(&url, "server").unwrap().1.starts_with("one has it"));
    let name = url.rsplit('/').next().unwrap();
    execute(&url, &format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    let (severity, why) = said(&url, "database").unwrap();
    assert!(severity == Severity::Problem && why.contains("synchronous_commit"), "{why}");
    let nobody = "postgres://nobody@127.0.0.1:1/nothing";
    assert_eq!(said(nobody, "database").unwrap().0, Severity::Problem);
}

#[expect(clippy::disallowed_methods, reason = "the database has a clock, which is compared")]
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp(since.as_millis() as u64)
}

fn the_schema_is_made_once_by_however_many_start_at_once() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| PostgresStore::open(&url).expect("made by one of them"));
        }
    });
    assert_eq!(query(&url, "SELECT version, shards FROM steadfast.meta"), ["(2,64)"]);
    assert_eq!(query(&url, "SELECT count(*) FROM steadfast.shards"), ["(64)"]);
}

fn a_schema_of_another_version_or_of_somebody_else_is_left_as_it_is() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    drop(PostgresStore::open(&url).unwrap());
    execute(&url, "UPDATE steadfast.meta SET version = 99");
    let newer = PostgresStore::open(&url).unwrap_err();
    assert!(matches!(newer, StoreError::OtherVersion { found: 99, .. }), "{newer}");
    assert!(newer.to_string().contains("a newer version of Steadfast"), "{newer}");
    let url = cluster.database();
    execute(&url, "CREATE SCHEMA steadfast; CREATE TABLE steadfast.horses (name text)");
    let foreign = PostgresStore::open(&url).unwrap_err();
    assert!(matches!(foreign, StoreError::NotOurs { .. }), "{foreign}");
    assert_eq!(
        query(&url, "SELECT tablename FROM pg_tables WHERE schemaname = 'steadfast'"),
        ["(horses)"]
    );
}

fn a_database_that_may_lose_what_it_has_acknowledged_is_refused() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let name = url.rsplit('/').next().unwrap();
    execute(&url, &format!("ALTER DATABASE {name} SET synchronous_commit = off"));
    let refused = PostgresStore::open(&url).unwrap_err();
    assert!(matches!(refused, StoreError::Unsuitable { .. }), "{refused}");
    assert!(refused.to_string().contains("Set synchronous_commit = on"), "{refused}");
    assert_eq!(query(&url, "SELECT to_regnamespace('steadfast') IS NULL"), ["(t)"]);
    let unsafe_cluster = TestCluster::start("-c fsync=off").expect("there is one");
    let refused = PostgresStore::open(&unsafe_cluster.database()).unwrap_err();
    assert!(refused.to_string().contains("Set fsync = on"), "{refused}");
}

fn as_many_shards_as_were_asked_for_first() {
    let Some(cluster) = TestCluster::shared() else { return };
    let with = |url: &str, shards| PostgresStorage::with_shards(url, shards);
    for (asked, has) in [(Some(1), 1), (Some(1024), 1024), (None, 64)] {
        let url = cluster.database();
        assert_eq!(with(&url, asked).unwrap().migrate(None).unwrap(), (true, has));
        assert_eq!(
            query(&url, "SELECT count(*), max(shard) + 1 FROM steadfast.shards"),
            [format!("({has},{has})")]
        );
        assert_eq!(with(&url, asked).unwrap().migrate(None).unwrap(), (false, has), "again");
        assert_eq!(
            with(&url, None).unwrap().migrate(None).unwrap(),
            (false, has),
            "whatever there is"
        );
        for refused in [
            with(&url, Some(16)).unwrap().migrate(None).unwrap_err(),
            with(&url, Some(16)).unwrap().store().unwrap_err(),
        ] {
            let said = format!("made with {has} shards, and 16 are asked for");
            assert!(refused.to_string().contains(&said), "{refused}");
        }
        assert!(with(&url, Some(16)).unwrap().claim().is_err());
        // All of them are a server's, and it takes jobs of any.
        let storage = with(&url, asked).unwrap();
        let (claim, mut store) = (storage.claim().unwrap(), storage.store().unwrap());
        let owner = store.take(&claim.owner(), now(), None).unwrap();
        claim.begin(now()).unwrap();
        for job in ["01k00000000000000000000000", "01k00000000000000000000001", "x"] {
            assert!(claim.shards().has(job), "{job}");
            let written = store.commit(&owner, &[crate::new_job(job, "nightly")]).unwrap();
            assert!(written[0].is_ok(), "{written:?}");
        }
    }
    for wrong in [0, 1025] {
        assert!(with("postgres://me@host/jobs", Some(wrong)).is_err(), "{wrong}");
    }
}

fn no_message_has_the_password() {
    let url = "postgres://me:hunter2@127.0.0.1:1/jobs";
    let storage = PostgresStorage::new(url).unwrap();
    assert_eq!(storage.place(), "postgres://me@127.0.0.1:1/jobs");
    let refused = storage.store().unwrap_err();
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
    assert!(!format!("{refused} {refused:?} {storage:?}").contains("hunter2"));
    for odd in [
        "postgres://me:hunter2@host:port/jobs",
        "postgres://me@host/jobs?password=hunter2&sslpassword=hunter2",
        "postgres://me:hunter2@host/jobs?sslmode=allow",
        "postgres://me:hunter2@host/jobs?sslmode=verify-full&sslrootcert=nothing.pem",
        "postgre://me:hunter2@host/jobs",
    ] {
        let odd = storage_at(odd).expect_err(odd);
        let text = format!("{odd} {odd:?}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

/// Renews until a server has so many shards; others' gives are carried out on the way.
fn until_it_has(shards: usize, it: &dyn Claim, others: &[&dyn Claim], store: &mut PostgresStore) {
    let mut has = BTreeSet::new();
    let mut looks = 0;
    while has.len() != shards {
        for claim in others.iter().chain([&it]) {
            let Renewal { gained, give, .. } = claim.renew(now()).unwrap();
            if claim.owner() == it.owner() {
                has.extend(gained);
            }
            let owner = query_epoch(store, &claim.owner());
            for (to, given) in give {
                has.retain(|shard| claim.owner() != it.owner() || !given.contains(shard));
                store.hand_over(&owner, &given, &to).unwrap();
            }
        }
        looks += 1;
        assert!(looks < 60, "{has:?}");
        pause();
    }
}

/// As its server would write now.
fn query_epoch(store: &mut PostgresStore, owner: &str) -> Owner {
    store.take(owner, Timestamp(0), None).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a server looks once a second")]
fn pause() {
    thread::sleep(Duration::from_millis(300));
}

fn servers_share_what_is_there_and_take_over_from_one_that_is_silent() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let storage = || PostgresStorage::new(&url).unwrap();
    let mut store = storage().store().unwrap();
    let first = storage().claim().unwrap();
    assert!(first.shards().is_empty());
    first.begin(now()).unwrap();
    let job = "01k00000000000000000000000";
    assert!(first.shards().has(job) && first.shards().are_shared());

    let second = storage().claim().unwrap();
    assert!(!second.shards().has(job));
    until_it_has(32, &*second, &[&*first], &mut store);
    let both = [&first, &second].map(|claim| claim.shards().has(job));
    assert!(both[0] != both[1], "one of them has it");

    // The first says nothing for a term, and finds that others have what it had.
    until_it_has(32, &*second, &[], &mut store);
    assert!(second.shards().has(job));
    let gaps = query(&url, "SELECT count(*) FROM steadfast.gaps");
    assert_eq!(gaps, ["(32)"], "of what it had nobody decided anything meanwhile");
    let renewal = first.renew(now()).unwrap();
    assert!(renewal.is_ended && !first.shards().has(job));
    let Renewal { is_ended, ended, .. } = first.renew(now()).unwrap();
    assert!(!is_ended && ended.is_empty(), "it is there again, with nothing");
    // What is given up is nobody's at once.
    drop(second);
    until_it_has(64, &*first, &[], &mut store);
    assert!(first.shards().has(job));
}

fn settings_are_changed_one_after_another_and_seen_by_all() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let settings = || PostgresStorage::new(&url).unwrap().settings();
    let here: Arc<dyn Settings> = settings();
    let before = here.version("tokens").unwrap();
    assert_eq!(here.get("tokens").unwrap(), (before, None));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let settings = settings();
                for _ in 0..5 {
                    let mut add = |bytes: Option<Vec<u8>>| {
                        Ok([bytes.unwrap_or_default(), vec![b'x']].concat())
                    };
                    settings.change("tokens", &mut add).unwrap();
                }
            });
        }
    });
    let (version, bytes) = here.get("tokens").unwrap();
    assert_eq!(bytes, Some(vec![b'x'; 20]));
    assert_ne!(version, before);
    assert_eq!(here.version("tokens").unwrap(), version);
    let refused = here.change("tokens", &mut |_| Err(io::Error::other("no")));
    assert_eq!(refused.unwrap_err().to_string(), "no");
    assert_eq!(here.get("tokens").unwrap().1, Some(vec![b'x'; 20]));
    // Somebody else's change is seen without reading the setting again.
    settings().change("tokens", &mut |_| Ok(vec![])).unwrap();
    while here.version("tokens").unwrap() == version {
        thread::yield_now();
    }
    assert_eq!(here.get("tokens").unwrap().1, Some(vec![]));
}
