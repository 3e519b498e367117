//! How fast it decides, plans and rehearses, and what that allocates.
//!
//! `cargo bench -p steadfast-benches` prints time and allocations for each workload; the targets are
//! in benches/README.md.

mod verdict;

use std::hint::black_box;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use steadfast_core::decide::{Input, accept, advance};
use steadfast_core::event::{AcceptedJob, ItemId, Role};
use steadfast_core::forecast::forecast;
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::{Action, ForEach, Plan, PlanDraft, StepDraft};
use steadfast_core::policy::Policy;
use steadfast_core::time::Timestamp;
use steadfast_jobfile::{Operator, load};
use steadfast_sim::{Options, Script, load_script, rehearse};
use verdict::Retries;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// One verdict on a retry, per item; must not allocate. `texts`: the outcomes carry error texts,
/// which five of the rules search.
#[divan::bench(args = [false, true])]
fn verdict_on_the_retry_path(bencher: Bencher, texts: bool) {
    let retries = Retries::new(texts);
    bencher.counter(ItemsCount::new(retries.len())).bench_local(|| retries.decide());
}

fn thousand_steps() -> String {
    let mut text = "name: big\nretry: { max_attempts: 5, jitter: full }\nsteps:\n".to_owned();
    for i in 0..1000 {
        let needs = if i == 0 { String::new() } else { format!(", needs: [s{}]", i - 1) };
        let attempts = 3 + i % 7;
        text.push_str(&format!(
            "  s{i}: {{ run: ./x.sh {i}, timeout: 1m{needs}, \
             retry: {{ max_attempts: {attempts}, initial_delay: {}ms }} }}\n",
            100 + i
        ));
    }
    text
}

/// Reads, checks and forecasts a job file of a thousand steps, each with its own policy.
#[divan::bench]
fn plan_of_1000_steps(bencher: Bencher) {
    let text = thousand_steps();
    bencher.bench_local(|| {
        let job = load("big.yaml", text.as_bytes(), &Operator::default()).expect("valid");
        for step in 0..1000 {
            black_box(forecast(&job.plan, step));
        }
    });
}

fn fan_out(items: u32, attempts: u32) -> (Arc<Plan>, Script) {
    let text = format!(
        "name: j\nsteps: {{ s: {{ run: 'true', for_each: {{ range: {items} }}, max_failed: 100%, \
         retry: {{ max_attempts: {attempts}, jitter: full }} }} }}"
    );
    let plan = Arc::new(load("j", text.as_bytes(), &Operator::default()).expect("valid").plan);
    let script = load_script("s", b"s: ['exit:1@2s']", &plan).expect("valid");
    (plan, script)
}

/// A million decisions, spread over ever more items that are under way at once.
#[divan::bench(args = [100, 10_000, 100_000], sample_count = 3)]
fn rehearse_1_000_000_decisions(bencher: Bencher, items: u32) {
    let (plan, script) = fan_out(items, 1_000_000 / items);
    bencher.counter(ItemsCount::new(1_000_000usize)).bench_local(|| {
        let end = rehearse(plan.clone(), &script, &Options::default()).expect("ends");
        assert_eq!(end.decisions.len(), 1_000_000);
        end
    });
}

/// Accepting a fan-out of a million items and running the first hundred: no record per untouched one.
#[divan::bench]
fn fan_out_of_1_000_000_untouched(bencher: Bencher) {
    let mut step = StepDraft::new("s", Action::Run("true".into()), Policy::default());
    step.for_each = ForEach::Range(1_000_000);
    let plan = Arc::new(Plan::new(PlanDraft::new("j", vec![step])).expect("valid"));
    bencher.bench_local(|| {
        let (mut job, _) = accept(AcceptedJob::new("j".into(), plan.clone()), Timestamp(0));
        for index in 0..100 {
            let item = ItemId { run: 0, step: 0, role: Role::Item, index };
            let start =
                Input::Start { item, worker: "w".into(), incarnation: None, least_token: 0 };
            advance(&mut job, &start, Timestamp(1)).expect("startable");
            let token = job.last_token;
            let report = Input::Report { item, token, outcome: Outcome::OK };
            advance(&mut job, &report, Timestamp(2)).expect("current");
        }
        job
    });
}
