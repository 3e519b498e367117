//! Who runs a job of `run`, among processes of several machines, which are several folders here.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use steadfast_core::event::Requester;
use steadfast_core::time::Timestamp;
use steadfast_store::testing::{TestCluster, execute, query};
use steadfast_store::{
    Folder, PostgresStorage, Refused, RunClaim, RunClaimError, RunRenewal, Storage as _, StoreError,
};

use crate::common::{new_job, write};
use crate::proxy::{Cut, Proxy};

in_one_test!(
    claims_of_jobs_of_run:
    a_job_is_one_processs_at_a_time,
    one_that_is_silent_is_taken_over_and_writes_nothing_more,
    one_that_was_taken_over_does_not_take_the_job_back_to_look_for_a_lost_answer,
    of_many_who_want_a_job_at_once_one_has_it,
    what_is_asked_of_a_process_comes_with_its_renewal,
);

struct Machine {
    root: tempfile::TempDir,
    storage: PostgresStorage,
}

impl Machine {
    fn new(url: &str) -> Self {
        let storage = PostgresStorage::new(url).unwrap();
        Self { root: tempfile::tempdir().unwrap(), storage }
    }

    fn claim(&self, job: &str) -> Result<Box<dyn RunClaim>, RunClaimError> {
        self.storage.claim_run(job, &Folder::new(self.root.path().join("data")))
    }
}

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn store_job(claim: &dyn RunClaim, job: &str) {
    let mut journal = claim.journal().unwrap();
    let owner = journal.take(job, NOW, None).unwrap();
    assert_eq!(journal.commit(&owner, &[new_job(job, "nightly")]).unwrap(), [Ok(())]);
}

/// Others see that it lives.
fn renew_until(claim: &dyn RunClaim, end: &AtomicBool) {
    while !end.load(Ordering::SeqCst) {
        claim.renew(NOW).unwrap();
        thread::park_timeout(Duration::from_millis(100));
    }
}

/// Its term is over long ago. It may still live.
fn is_silent(url: &str, job: &str) {
    execute(
        url,
        &format!(
            "UPDATE steadfast.owners SET until = until - interval '1 hour' WHERE id = '{job}'"
        ),
    );
}

fn a_job_is_one_processs_at_a_time() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let (a, b) = (Machine::new(&url), Machine::new(&url));
    let first = a.claim("j").unwrap();
    assert_eq!(first.alive_at(), None);
    assert!(a.storage.is_run("j") && !a.storage.is_served());
    store_job(&*first, "j");
    let refused = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| renew_until(&*first, &refused));
        for machine in [&a, &b] {
            let why = machine.claim("j").map(drop).unwrap_err().to_string();
            let who = format!("another process right now: process {} on ", std::process::id());
            assert!(why.contains(&who), "{why}");
        }
        refused.store(true, Ordering::SeqCst);
    });
    drop(first);
    assert!(!a.storage.is_run("j"));
    let second = b.claim("j").unwrap();
    assert!(second.alive_at().is_some(), "when it was given back");
    // Of a job that was never stored nothing is left.
    drop(b.claim("unstored").unwrap());
    assert_eq!(query(&url, "SELECT id FROM steadfast.owners"), ["(j)"]);
}

fn one_that_is_silent_is_taken_over_and_writes_nothing_more() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let (a, b) = (Machine::new(&url), Machine::new(&url));
    let first = a.claim("j").unwrap();
    let mut journal = first.journal().unwrap();
    let owner = journal.take("j", NOW, None).unwrap();
    assert_eq!(journal.commit(&owner, &[new_job("j", "nightly")]).unwrap(), [Ok(())]);
    is_silent(&url, "j");
    let second = b.claim("j").unwrap();
    let stale = journal.commit(&owner, &[write("j", 2, 1)]).unwrap();
    assert!(matches!(stale[..], [Err(Refused::Fenced { .. })]), "{stale:?}");
    assert!(matches!(first.renew(NOW).unwrap(), RunRenewal::Taken { by: Some(_) }));
    drop(first);
    assert_eq!(second.renew(NOW).unwrap(), RunRenewal::Kept { cancel: None });
}

fn one_that_was_taken_over_does_not_take_the_job_back_to_look_for_a_lost_answer() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let proxy = Proxy::before(&url);
    let (a, b) = (Machine::new(&proxy.url), Machine::new(&url));
    let first = a.claim("j").unwrap();
    store_job(&*first, "j");
    let mut journal = first.journal().unwrap();
    let owner = journal.take("j", NOW, None).unwrap();
    let group = [write("j", 2, 1)];
    proxy.cut_next(Cut::Request);
    let lost = journal.commit(&owner, &group);
    assert!(matches!(lost, Err(StoreError::Unknown { .. })), "{lost:?}");
    is_silent(&url, "j");
    let second = b.claim("j").unwrap();
    let mut theirs = second.journal().unwrap();
    let their_owner = theirs.take("j", NOW, None).unwrap();
    // As the engine's writer does it.
    let owner = journal.take("j", Timestamp(0), None).unwrap();
    let stale = journal.commit(&owner, &group).unwrap();
    assert!(matches!(stale[..], [Err(Refused::Fenced { .. })]), "{stale:?}");
    let taken = theirs.commit(&their_owner, &[write("j", 2, 1)]).unwrap();
    assert_eq!(taken, [Ok(())], "it was fenced by the one that it had fenced");
}

fn of_many_who_want_a_job_at_once_one_has_it() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let machines: Vec<Machine> = (0..6).map(|_| Machine::new(&url)).collect();
    let first = machines[0].claim("j").unwrap();
    store_job(&*first, "j");
    is_silent(&url, "j");
    let (refused, all_are) = (AtomicUsize::new(0), AtomicBool::new(false));
    let claims = thread::scope(|scope| {
        let claiming = machines[1..].iter().map(|machine| {
            scope.spawn(|| {
                let claim = machine.claim("j");
                match &claim {
                    Ok(claim) => renew_until(&**claim, &all_are),
                    Err(_) if refused.fetch_add(1, Ordering::SeqCst) == 3 => {
                        all_are.store(true, Ordering::SeqCst);
                    }
                    Err(_) => {}
                }
                claim
            })
        });
        let claiming: Vec<_> = claiming.collect();
        claiming.into_iter().map(|claim| claim.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 1);
}

fn what_is_asked_of_a_process_comes_with_its_renewal() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let (a, b) = (Machine::new(&url), Machine::new(&url));
    let first = a.claim("j").unwrap();
    store_job(&*first, "j");
    let requested = Requester::local(Some("enough")).unwrap();
    b.storage.ask_to_cancel("j", &requested).unwrap();
    assert_eq!(first.renew(NOW).unwrap(), RunRenewal::Kept { cancel: Some(requested) });
    drop(first);
    let next = b.claim("j").unwrap();
    assert_eq!(
        next.renew(NOW).unwrap(),
        RunRenewal::Kept { cancel: None },
        "it was asked of the other"
    );
}
