//! How fast it decides, plans and rehearses, and what that allocates.
//!
//! `cargo bench -p steadfast-benches` prints time and allocations for each workload; the targets are
//! in benches/README.md.

use std::hint::black_box;
use std::sync::Arc;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use steadfast_core::account::{History, SharedAccounts};
use steadfast_core::backoff::{Jitter, JitterSeed};
use steadfast_core::decide::{Input, accept, advance};
use steadfast_core::event::{AcceptedJob, ItemId, Role};
use steadfast_core::forecast::forecast;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_core::plan::{Action, ForEach, Plan, PlanDraft, StepDraft};
use steadfast_core::policy::{Policy, PolicyDraft, RuleAction, RuleDraft};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::{Decision, verdict};
use steadfast_jobfile::{Operator, load};
use steadfast_sim::{Options, Script, load_script, rehearse};

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// Jitter, both budgets, a window, exit lists and twenty rules of all kinds, none of which matches.
fn busy_policy() -> Policy {
    let mut rules = vec![];
    for i in 0..5 {
        let base = RuleDraft { then: RuleAction::Stop, ..RuleDraft::default() };
        rules.push(RuleDraft { exit: Some(vec![100 + i, 110 + i]), ..base.clone() });
        rules.push(RuleDraft { signal: Some(vec![20 + i]), ..base.clone() });
        rules.push(RuleDraft { http_status: Some(vec![410 + i, 420 + i]), ..base.clone() });
        rules.push(RuleDraft { error: Some(format!("quota {i} (exceeded|spent)")), ..base });
    }
    Policy::new(PolicyDraft {
        max_attempts: None,
        jitter: Jitter::Full,
        delay_budget_ms: Some(u64::from(u32::MAX)),
        window_ms: Some(u64::from(u32::MAX)),
        exit_retry: (1..100).collect(),
        exit_stop: vec![200, 201],
        rules,
        ..PolicyDraft::default()
    })
    .expect("valid")
}

/// A thousand items, each with another history and another outcome.
fn different_items(texts: bool) -> Vec<(History, Outcome, u32)> {
    let item = |i: u32| {
        let history = History {
            attempts: i % 90,
            failures: i % 90,
            preemptions: i % 7,
            delay_spent_ms: u64::from(i) * 1000,
            last_delay_ms: Some(u64::from(i)),
            first_failure_at: Some(Timestamp(u64::from(i))),
            ..History::default()
        };
        let message = format!("worker {i}: connection reset by peer after {i} bytes");
        let failure = Failure {
            error: texts.then_some(ErrorText { kind: None, message }),
            ..Failure::new(FailureKind::Exited((i % 99) as u8 + 1))
        };
        (history, Outcome::Failed(failure), i)
    };
    (0..1000).map(item).collect()
}

/// One verdict on a retry, per item; must not allocate. `texts`: the outcomes carry error texts,
/// which five of the rules search.
#[divan::bench(args = [false, true])]
fn verdict_on_the_retry_path(bencher: Bencher, texts: bool) {
    let policy = busy_policy();
    let items = different_items(texts);
    let seed = JitterSeed::new("01890000-job", Some("eu-west"), "fetch");
    let shared = |item: u32, attempt: u32| SharedAccounts {
        job_retries: 10,
        job_budget: Some(1000),
        step_retries: 5,
        step_budget: Some(1000),
        budgeted: Some(steadfast_core::plan::BudgetCounts::Failures),
        timeout_at: Some(Timestamp(u64::MAX)),
        ..SharedAccounts::alone(seed.draw(item, attempt))
    };
    let decide = |(history, outcome, item): &(History, Outcome, u32)| {
        verdict(&policy, history, &shared(*item, history.attempts), outcome, Timestamp(2_000_000))
    };
    let all_retry = |item| matches!(decide(item).decision, Decision::Retry { .. });
    assert!(items.iter().all(all_retry), "the benchmark is about retries");
    bencher.counter(ItemsCount::new(items.len())).bench_local(|| {
        for item in &items {
            black_box(decide(black_box(item)));
        }
    });
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
            let start = Input::Start { item, worker: "w".into() };
            advance(&mut job, &start, Timestamp(1)).expect("startable");
            let token = job.last_token;
            let report = Input::Report { item, token, outcome: Outcome::OK };
            advance(&mut job, &report, Timestamp(2)).expect("current");
        }
        job
    });
}
