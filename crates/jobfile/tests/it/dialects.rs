use steadfast_core::plan::{Action, AfterFailure, BudgetCounts};
use steadfast_jobfile::{Source, policy_view};

use crate::{step, valid};

/// The effective values of `s` that are not defaults, as `key=value(source)`.
fn check(lines: &str, expected: &str) {
    let job = valid(&step(lines));
    let view = policy_view(&job.plan.step(0).policy, &job.steps[0].policy);
    let shown: Vec<String> = view
        .into_iter()
        .filter(|(_, _, source)| *source != Source::Default)
        .map(|(key, value, source)| format!("{key}={value}({})", source.name()))
        .collect();
    assert_eq!(shown.join(" "), expected, "{lines}");
}

#[test]
fn each_dialect_becomes_the_one_policy() {
    for (lines, expected) in [
        (
            "retry: { retryable: true, max_attempts: 3, backoff: exponential, backoff_base_ms: 1000, max_backoff_ms: 30000 }",
            "max_attempts=3(tasker) retryable=true(tasker) backoff=\"exponential\"(tasker) \
             initial_delay=1000(tasker) max_delay=30000(tasker)",
        ),
        (
            "retry: { retryable: false, max_attempts: 1, backoff: exponential }",
            "max_attempts=1(step) retryable=false(step) backoff=\"exponential\"(step)",
        ),
        (
            "retry_config: { attempts: 20, retry_budget: 10m, backoff: fibonacci, initial_delay: 2s, max_delay: 60s }",
            "max_attempts=20(prodigy) backoff=\"fibonacci\"(prodigy) initial_delay=2000(prodigy) \
             max_delay=60000(prodigy) delay_budget=600000(prodigy)",
        ),
        (
            "retry_config: { backoff: { linear: { increment: 3s } }, jitter: true }",
            "backoff=\"linear\"(prodigy) increment=3000(prodigy) jitter=0.3(prodigy)",
        ),
        (
            "retry_config: { backoff: { exponential: { base: 1.5 } }, jitter: true, jitter_factor: 0.1 }",
            "backoff=\"exponential\"(prodigy) multiplier=1.5(prodigy) jitter=0.1(prodigy)",
        ),
        ("retry_config: { jitter: false }", "jitter=\"none\"(prodigy)"),
        (
            "work_config: { max_retries: 3, backoff: 1000, max_backoff: 10000, backoff_type: linear }",
            "max_attempts=4(argyll) backoff=\"linear\"(argyll) initial_delay=1000(argyll) max_delay=10000(argyll)",
        ),
        (
            "work_config: { max_retries: 2, rules: [{ error: quota, then: stop }] }",
            "max_attempts=3(argyll) rules=[{\"error\":\"quota\",\"then\":\"stop\"}](argyll)",
        ),
        ("work_config: { max_retries: 0 }", "max_attempts=1(argyll)"),
        ("work_config: { max_retries: -1 }", "max_attempts=null(argyll)"),
    ] {
        check(lines, expected);
    }
}

#[test]
fn a_dialect_inherits_nothing() {
    let job = "name: j\nretry: { max_attempts: 9, jitter: full }\nsteps:\n  s:\n    run: x\n    \
               work_config: { max_retries: 2 }\n  t:\n    run: x\n    retry: { backoff_base_ms: 5 }\n";
    let job = valid(job);
    for (index, attempts) in [(0, 3), (1, 3)] {
        let draft = job.plan.step(index).policy.draft().clone();
        assert_eq!(draft.max_attempts, Some(attempts));
        assert_eq!(draft.jitter, steadfast_core::backoff::Jitter::None);
    }
}

#[test]
fn a_native_step_lies_over_the_jobs_tasker_block() {
    let job = "name: j\nretry: { max_attempts: 5, backoff_base_ms: 7 }\nsteps:\n  s: { run: x, retry: { max_attempts: 2 } }\n";
    let job = valid(job);
    let sources = &job.steps[0].policy;
    assert_eq!(sources.get("max_attempts"), Source::Step);
    assert_eq!(sources.get("initial_delay"), Source::Tasker);
    assert_eq!(job.plan.step(0).policy.draft().initial_delay_ms, 7);
}

#[test]
fn prodigys_fallback_rescues() {
    let job = valid(&step("on_failure: { fallback: { command: ./rescue.sh } }"));
    let on_failure = job.plan.step(0).on_failure.clone().expect("there");
    assert_eq!(on_failure.then, AfterFailure::Continue);
    assert_eq!(on_failure.action, Some(Action::Run("./rescue.sh".into())));
    let job = valid(&step("on_failure: continue"));
    let on_failure = job.plan.step(0).on_failure.clone().expect("there");
    assert_eq!((on_failure.action, on_failure.then), (None, AfterFailure::Continue));
    assert_eq!(valid(&step("on_failure: stop")).plan.step(0).on_failure, None);
}

#[test]
fn argylls_parallelism_is_the_steps() {
    let job = valid(&step("work_config: { parallelism: 2 }"));
    assert_eq!(job.plan.step(0).parallelism, Some(2));
}

#[test]
fn ad44_asks_for_a_budget_and_best_effort_in_numbers() {
    let job = |top: &str| valid(&format!("name: j\n{top}\nsteps: {{ s: {{ run: x }} }}\n"));
    for (top, total, per_step) in [
        ("retry_budget: 15", (15, 15, Source::Ad44), (3, 3, Source::Default)),
        (
            "retry_budget: 0\nretry_budget_per_workflow: 0",
            (0, 20, Source::Default),
            (0, 3, Source::Default),
        ),
        ("retry_budget_per_workflow: 4", (20, 20, Source::Default), (4, 4, Source::Ad44)),
        (
            "retry_budget: 500\nretry_budget_per_workflow: 9",
            (500, 50, Source::Ceiling),
            (9, 5, Source::Ceiling),
        ),
        ("retry_budget: { total: 0 }", (0, 0, Source::Job), (3, 3, Source::Default)),
        ("retry_budget: {}", (20, 20, Source::Default), (3, 3, Source::Default)),
    ] {
        let job = job(top);
        let budget = *job.plan.budget().expect("there");
        let (all, each) = (budget.total.expect("there"), budget.per_step.expect("there"));
        let sources = (job.budget.total.expect("there"), job.budget.per_step.expect("there"));
        let ad44 = !top.contains('{');
        assert_eq!(
            budget.counts,
            if ad44 { BudgetCounts::All } else { BudgetCounts::Failures },
            "{top}"
        );
        assert_eq!((all.requested, all.effective, sources.0), total, "{top}");
        assert_eq!((each.requested, each.effective, sources.1), per_step, "{top}");
    }
    let best = job(
        "datacenters: [a, b]\nbest_effort: true\nbest_effort_min_dcs: 2\nbest_effort_deadline_seconds: 1.5",
    );
    let best = *best.plan.best_effort().expect("there");
    assert_eq!((best.min_datacenters, best.deadline_ms), (2, 1500));
    assert_eq!(job("best_effort: false").plan.best_effort(), None);
    let best = *job("best_effort: true").plan.best_effort().expect("there");
    assert_eq!((best.min_datacenters, best.deadline_ms), (1, 300_000));
}
