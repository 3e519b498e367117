//! Which items may start, as SQL says it, held against core.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use steadfast_core::event::ItemId;
use steadfast_core::job::Job;
use steadfast_core::readiness::{ItemReadiness, NotReady, open_items, readiness};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::eligible;
use steadfast_store::testing::{Client, TestCluster, execute};
use steadfast_store::{Journal as _, Owner, PostgresStore, Row, Write};

use crate::common::{owner, row};
use crate::strategies::plans;
use crate::world::{Happening, World};

in_one_test!(
    what_may_start:
    eligibility_in_sql_is_that_of_core,
    readiness_in_sql_is_that_of_core_at_any_moment_of_any_job,
    a_fan_out_of_a_hundred_thousand_is_kept_in_a_few_bytes,
    a_job_that_cannot_go_on_and_one_whose_process_is_gone_have_nothing_ready,
);

/// Tasker's: how often it was tried, of how many times, whether it may be retried, and what comes of it.
const BOUNDARIES: [(&str, &str, &str, bool); 16] = [
    // max_attempts 0 allows the first execution, and blocks after it
    ("0", "0", "true", true),
    ("1", "0", "true", false),
    // max_attempts 1: one execution
    ("0", "1", "true", true),
    ("1", "1", "true", false),
    // max_attempts 3: the first, and two retries
    ("0", "3", "true", true),
    ("1", "3", "true", true),
    ("2", "3", "true", true),
    ("3", "3", "true", false),
    // the first attempt ignores the retryable flag, retries require it
    ("0", "3", "false", true),
    ("1", "3", "false", false),
    // what is not said
    ("NULL", "NULL", "NULL", true),
    ("2", "NULL", "NULL", true),
    ("3", "NULL", "NULL", false),
    ("1", "NULL", "false", false),
    ("NULL", "0", "false", true),
    ("9223372036854775806", "9223372036854775807", "NULL", true),
];

fn eligibility_in_sql_is_that_of_core() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    drop(super::open(&url));
    let client = RefCell::new(Client::new(&url));
    for (attempts, most, retryable, expect) in BOUNDARIES {
        let sql = format!("SELECT steadfast.retry_eligible({attempts}, {most}, {retryable}) AS is");
        assert_eq!(client.borrow_mut().json(&sql), [json!({ "is": expect })], "{sql}");
    }
    let number = || prop::option::of(prop_oneof![9 => 0..12_i64, 1 => 0..=i64::MAX]);
    let case = (number(), number(), prop::option::of(any::<bool>()));
    let cases = prop::collection::vec(case, 1..200);
    let run = TestRunner::new(Config::with_cases(64)).run(&cases, |cases| {
        let text = |value: Option<String>| value.unwrap_or_else(|| "NULL".to_owned());
        let calls = cases.iter().map(|&(attempts, most, retryable)| {
            let attempts = text(attempts.map(|it| it.to_string()));
            let (most, retryable) =
                (text(most.map(|it| it.to_string())), text(retryable.map(|it| it.to_string())));
            format!("steadfast.retry_eligible({attempts}, {most}, {retryable})")
        });
        let calls: Vec<_> = calls.collect();
        let sql = format!("SELECT ARRAY[{}] AS are", calls.join(", "));
        let answer = client.borrow_mut().json(&sql);
        let core = cases.iter().map(|&(attempts, most, retryable)| {
            let (attempts, most) = (attempts.unwrap_or(0), most.unwrap_or(3));
            eligible(attempts as u64, most as u64, retryable.unwrap_or(true))
        });
        prop_assert_eq!(&answer[0]["are"], &json!(core.collect::<Vec<_>>()));
        Ok(())
    });
    run.unwrap_or_else(|why| panic!("{why}"));
}

/// A store that is told what the engine would tell it.
struct Kept {
    store: PostgresStore,
    owner: Owner,
    client: Client,
    seq: u64,
}

const COLUMNS: &str = "datacenter, step, role, item, dependencies_satisfied, attempts, failures, \
                       max_attempts, retryable, eligible, \
                       (extract(epoch FROM next_retry_at) * 1000)::bigint AS next_retry_at, ready, reason";

impl Kept {
    fn at(url: &str) -> Self {
        let mut store = super::open(url);
        assert!(store.keeps_readiness());
        let owner = owner(&mut store, Owner::SHARD);
        Self { store, owner, client: Client::new(url), seq: 0 }
    }

    fn keep(&mut self, world: &World) {
        let job = &world.job;
        let write = Write {
            job: job.id.clone(),
            expected_seq: self.seq,
            records: world.log[self.seq as usize..].to_vec(),
            row: Row { over: job.is_over(), state: job.state(), ..row(&job.id) },
            snapshot: None,
            key: None,
            readiness: (!job.is_over()).then(|| serde_json::to_string(&open_items(job)).unwrap()),
        };
        assert_eq!(self.store.commit(&self.owner, &[write]).expect("it is there"), [Ok(())]);
        self.seq = job.seq;
    }

    fn remove(&mut self, job: &str) {
        self.store.remove(job).expect("it is there");
        self.seq = 0;
    }

    fn at_moment(&mut self, now: Timestamp) -> Vec<Value> {
        self.client.json(&format!(
            "SELECT {COLUMNS} FROM steadfast.jobs j, \
             steadfast.readiness_v1(j.readiness::jsonb, {})",
            now.0
        ))
    }

    fn view(&mut self, job: &str) -> Vec<Value> {
        self.client
            .json(&format!("SELECT {COLUMNS} FROM steadfast.step_readiness WHERE job = '{job}'"))
    }
}

/// What core says of the items that have not ended, a row for each.
fn expected(job: &Job, now: Timestamp) -> Vec<Value> {
    use NotReady::{Cancelled, Failed, Skipped, Stopped, Succeeded};
    let is_open = |row: &ItemReadiness| {
        // At the beginning of time nothing has run out of it.
        let early = readiness(job, row.id, Timestamp(0)).next().expect("the same one").not_ready;
        !matches!(early, Some(Succeeded | Failed | Stopped(_) | Skipped | Cancelled))
    };
    let rows = readiness(job, ItemId::default(), now).filter(is_open);
    let rows = rows.flat_map(|row| {
        let first = u64::from(row.id.index);
        let items = first..first + row.items.map_or(1, u64::from);
        items.map(move |item| {
            json!({
                "datacenter": job.plan.datacenter(row.id.run),
                "step": job.plan.step(row.id.step).name,
                "role": row.id.role,
                "item": row.items.map(|_| item),
                "dependencies_satisfied": row.dependencies_satisfied,
                "attempts": row.attempts,
                "failures": row.failures,
                "max_attempts": row.max_attempts,
                "retryable": row.retryable,
                "eligible": row.eligible,
                "next_retry_at": row.next_retry_at,
                "ready": row.not_ready.is_none(),
                "reason": row.not_ready.map(NotReady::name),
            })
        })
    });
    if job.is_over() { vec![] } else { rows.collect() }
}

fn readiness_in_sql_is_that_of_core_at_any_moment_of_any_job() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let kept = RefCell::new(Kept::at(&url));
    let cases = (plans(), prop::collection::vec(any::<Happening>(), 0..60));
    let run = TestRunner::new(Config { cases: 96, max_shrink_iters: 200, ..Config::default() })
        .run(&cases, |(plan, happenings)| {
            let (mut world, mut kept) = (World::new(plan), kept.borrow_mut());
            // One that failed before has left it.
            kept.remove(&world.job.id);
            kept.keep(&world);
            for happening in happenings {
                world.happen(happening);
                kept.keep(&world);
                let now = world.now.plus(u64::from(happening.2) / 16);
                prop_assert_eq!(kept.at_moment(now), expected(&world.job, now));
            }
            // The view is of this moment, which is long after all of theirs.
            let late = Timestamp(1 << 40);
            prop_assert_eq!(kept.view(&world.job.id), expected(&world.job, late));
            world.drain();
            kept.keep(&world);
            prop_assert_eq!(kept.view(&world.job.id), Vec::<Value>::new(), "it is over");
            Ok(())
        });
    run.unwrap_or_else(|why| panic!("{why}"));
}

fn wide(items: u32) -> World {
    use steadfast_core::plan::{Action, ForEach, Plan, PlanDraft, StepDraft};
    use steadfast_core::policy::Policy;

    let mut step = StepDraft::new("wide", Action::Run("true".into()), Policy::default());
    step.for_each = ForEach::Range(items);
    World::new(Plan::new(PlanDraft::new("wide", vec![step])).expect("valid"))
}

fn a_fan_out_of_a_hundred_thousand_is_kept_in_a_few_bytes() {
    let Some(cluster) = TestCluster::shared() else { return };
    let mut kept = Kept::at(&cluster.database());
    let mut world = wide(100_000);
    world.start_some(1000);
    for (item, token) in world.running().into_iter().step_by(2).take(3) {
        let outcome = steadfast_core::outcome::Outcome::OK;
        world.input(&steadfast_core::decide::Input::Report { item, token, outcome });
    }
    kept.keep(&world);
    let bytes = kept.client.json("SELECT octet_length(readiness) AS bytes FROM steadfast.jobs");
    assert!(bytes[0]["bytes"].as_u64().expect("a number") < 200, "{bytes:?}");
    let counted = kept.client.json(
        "SELECT reason, count(*), min(item), max(item) FROM steadfast.step_readiness \
         GROUP BY reason ORDER BY reason",
    );
    let expected = [
        json!({ "reason": "running", "count": 997, "min": 1, "max": 999 }),
        json!({ "reason": null, "count": 99_000, "min": 1000, "max": 99_999 }),
    ];
    assert_eq!(counted, expected);
}

fn a_job_that_cannot_go_on_and_one_whose_process_is_gone_have_nothing_ready() {
    let Some(cluster) = TestCluster::shared() else { return };
    let url = cluster.database();
    let mut kept = Kept::at(&url);
    let world = wide(2);
    let id = &*world.job.id;
    kept.keep(&world);
    assert_eq!(kept.view(id).len(), 2);
    assert!(kept.store.park(id, "its log cannot be read").expect("it is there"));
    assert_eq!(kept.view(id), Vec::<Value>::new());
    kept.remove(id);
    // A job of `run`.
    kept.owner = kept.store.take(id, Timestamp(0), None).expect("it is there");
    kept.keep(&world);
    let said = |kept: &mut Kept| {
        let rows = kept.view(id);
        rows.iter().map(|row| (row["ready"].clone(), row["reason"].clone())).collect::<Vec<_>>()
    };
    let gone = (json!(false), json!("interrupted"));
    assert_eq!(said(&mut kept), [gone.clone(), gone]);
    execute(&url, "UPDATE steadfast.owners SET until = now() + interval '1 hour'");
    let ready = (json!(true), Value::Null);
    assert_eq!(said(&mut kept), [ready.clone(), ready]);
}
