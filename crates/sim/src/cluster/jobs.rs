//! Jobs of every shape, policy and dialect, written as their authors would and read by the real parser.
//!
//! Times are short, so that a simulated minute has many retries; some are longer than a controller looks ahead, so that jobs sleep.

use std::sync::Arc;

use steadfast_core::plan::Plan;
use steadfast_jobfile::fluster::{Entrypoint, FlusterDefaults, FlusterJob, FlusterRetry};
use steadfast_jobfile::{Operator, fluster, load};

use super::rng::Rng;

pub(crate) const DATACENTERS: [&str; 3] = ["east", "north", "west"];

/// The most that an attempt may take, with what it takes to stop it.
const LONGEST_ATTEMPT_MS: u64 = 60_000;

/// A plan, and the text it was read from, for the trace.
pub(crate) fn job(rng: &mut Rng, number: usize) -> (String, Arc<Plan>) {
    if rng.percent(8) {
        return fluster_job(rng, number);
    }
    let text = text(rng, number);
    match load("job.yaml", text.as_bytes(), &Operator::default()) {
        Ok(file) => (text, Arc::new(file.plan)),
        Err(problems) => panic!("the generator wrote a job that is refused: {problems:?}\n{text}"),
    }
}

fn fluster_job(rng: &mut Rng, number: usize) -> (String, Arc<Plan>) {
    let retry = FlusterRetry {
        max_retries_failure: Some(rng.below(4) as i32),
        max_retries_preemption: Some(rng.between(1, 20) as i32),
        initial_retry_delay_ms: Some(rng.between(50, 2000) as i64),
        max_retry_delay_ms: Some(5000),
        backoff_multiplier: Some(1.5),
        retry_on_exit_codes: if rng.percent(30) { vec![1, 2, 7] } else { vec![] },
        no_retry_on_exit_codes: if rng.percent(30) { vec![75] } else { vec![] },
    };
    let job = FlusterJob {
        name: format!("fluster-{number}"),
        entrypoint: Some(Entrypoint::Argv(vec!["work".to_owned()])),
        timeout_ms: rng.percent(50).then_some(4000),
        memory: if rng.percent(30) { "512m".to_owned() } else { String::new() },
        scheduling_timeout_seconds: 90,
        retry,
        ..FlusterJob::default()
    };
    let plan = fluster::plan(&job, FlusterDefaults::default(), &Operator::default());
    (format!("{job:?}"), Arc::new(plan.expect("the generator writes good requests")))
}

/// The number of a job is in its name.
fn text(rng: &mut Rng, number: usize) -> String {
    let mut text = format!("name: job-{number}\n");
    if rng.percent(25) {
        text.push_str(&format!("retry: {}\n", retry(rng)));
    }
    match rng.below(10) {
        0 => text.push_str(&format!("retry_budget: {}\n", rng.below(6))),
        1 => text.push_str("retry_budget: 6\nretry_budget_per_workflow: 2\n"),
        2 => text.push_str(&format!(
            "retry_budget: {{ total: {}, per_step: {}, counts: {} }}\n",
            rng.between(1, 10),
            rng.between(1, 4),
            rng.pick(&["failures", "all"])
        )),
        3 => text.push_str("retry_budget: { ratio: 0.3, floor: 2 }\n"),
        _ => {}
    }
    if rng.percent(15) {
        text.push_str(&format!("timeout: {}s\n", rng.between(4, 60)));
    }
    if rng.percent(10) {
        text.push_str(&format!("not_before: in {}s\n", rng.pick(&[1, 5, 20, 100])));
    }
    if rng.percent(20) {
        text.push_str(&format!("priority: {}\n", rng.between(0, 5)));
    }
    datacenters(rng, &mut text);
    text.push_str("steps:\n");
    let steps = rng.between(1, 4) as usize;
    let mut fan_outs = Vec::new();
    for step in 0..steps {
        let fans_out = step_text(rng, step, &fan_outs, &mut text);
        fan_outs.push(fans_out);
    }
    text
}

fn datacenters(rng: &mut Rng, text: &mut String) {
    if !rng.percent(25) {
        return;
    }
    let some = rng.between(2, 3) as usize;
    text.push_str(&format!("datacenters: [{}]\n", DATACENTERS[..some].join(", ")));
    match rng.below(4) {
        0 => {}
        1 => text.push_str(&format!(
            "best_effort: true\nbest_effort_min_dcs: {}\nbest_effort_deadline_seconds: {}\n",
            rng.between(1, some as u64),
            rng.between(5, 40)
        )),
        _ => text.push_str(&format!(
            "best_effort: {{ min_datacenters: {}, deadline: {}s, grace: {}, late_results: {} }}\n",
            rng.between(1, some as u64),
            rng.between(5, 40),
            rng.pick(&["0s", "500ms", "3s"]),
            rng.pick(&["log_only", "update_result"])
        )),
    }
}

/// `fan_outs`: which of the steps before have many items. Whether this one has.
fn step_text(rng: &mut Rng, step: usize, fan_outs: &[bool], text: &mut String) -> bool {
    text.push_str(&format!("  s{step}:\n"));
    let has_timeout = action(rng, text);
    let mut key = |line: String| text.push_str(&format!("    {line}\n"));
    let mut fan_out_of = None;
    if step > 0 && rng.percent(65) {
        let needs = rng.below(step as u64) as usize;
        let second = rng.below(step as u64) as usize;
        if second == needs {
            key(format!("needs: [s{needs}]"));
        } else {
            key(format!("needs: [s{needs}, s{second}]"));
        }
        fan_out_of = Some(needs);
    }
    let mut items = 1;
    match (rng.below(10), fan_out_of) {
        (0, Some(of)) => {
            items = 2;
            let path = if fan_outs[of] { "" } else { ".list" };
            key(format!("for_each: {{ output: s{of}{path} }}"));
        }
        (1..4, _) => {
            items = rng.between(2, 9);
            key(format!("for_each: {{ range: {items} }}"));
        }
        (4, _) => {
            items = 3;
            key("for_each: [a, b, c]".to_owned());
        }
        _ => {}
    }
    if items > 1 && rng.percent(50) {
        key(format!("parallelism: {}", rng.between(1, 3)));
    }
    if items > 1 && rng.percent(40) {
        key(format!("max_failed: {}", rng.pick(&["1", "2", "50%"])));
    }
    if !has_timeout && rng.percent(45) {
        key(format!("timeout: {}", rng.pick(&["300ms", "1s", "3s", "8s"])));
    }
    if rng.percent(15) {
        // Half of what a worker has, or all.
        let part = 1 + step % 2;
        key(format!("resources: {{ cpu: {part}, memory: {part}GiB }}"));
    }
    if rng.percent(6) {
        // No worker has it.
        key("labels: { gpu: h100 }".to_owned());
        key(format!("scheduling_timeout: {}s", rng.between(1, 30)));
    } else {
        key(format!("scheduling_timeout: {}s", rng.pick(&[5, 60, 90])));
    }
    match rng.below(8) {
        0 => key("on_failure: continue".to_owned()),
        1 => key("on_failure: { run: rescue, then: continue }".to_owned()),
        2 => key("on_failure: { call: charge }".to_owned()),
        3 => key("on_failure: { fallback: { command: rescue } }".to_owned()),
        _ => {}
    }
    if rng.percent(20) {
        key("compensate: { run: undo }".to_owned());
    }
    match rng.below(10) {
        0..5 => key(format!("retry: {}", retry(rng))),
        5 => key(format!(
            "retry_config: {{ attempts: {}, backoff: {}, initial_delay: 200ms, max_delay: 3s, jitter: true, \
             retry_budget: {} }}",
            rng.between(1, 5),
            rng.pick(&["fixed", "linear", "exponential", "fibonacci"]),
            rng.pick(&["2s", "10s"])
        )),
        6 => key(format!(
            "work_config: {{ max_retries: {}, backoff: 100, max_backoff: 2000, backoff_type: {} }}",
            rng.pick(&["-1", "0", "2", "4"]),
            rng.pick(&["fixed", "linear", "exponential"])
        )),
        _ => {}
    }
    items > 1
}

/// Whether it says how long it may take.
fn action(rng: &mut Rng, text: &mut String) -> bool {
    match rng.below(10) {
        0..4 => text.push_str("    run: work\n"),
        4 => text.push_str("    argv: [work, \"1\"]\n"),
        5 | 6 => text.push_str("    call: charge\n    input: { cents: 5 }\n"),
        7 => {
            text.push_str("    http: { url: \"http://127.0.0.1:9000/do\", timeout: 4s }\n");
            return true;
        }
        _ => {
            text.push_str(&format!(
                "    http: {{ url: \"http://127.0.0.1:9000/do\", mode: async, timeout: {}s }}\n",
                rng.between(5, 15)
            ));
            if rng.percent(30) {
                text.push_str(&format!("    heartbeat: {}s\n", rng.between(1, 4)));
            }
            return true;
        }
    }
    false
}

fn retry(rng: &mut Rng) -> String {
    let mut keys = Vec::new();
    if rng.percent(75) {
        keys.push(format!("max_attempts: {}", rng.pick(&["1", "2", "3", "4", "6", "unlimited"])));
    }
    let (delay, most) = if rng.percent(8) {
        // Longer than what a controller keeps in memory for.
        ("75s", "100s")
    } else {
        (*rng.pick(&["50ms", "200ms", "1s", "2s"]), "6s")
    };
    match rng.below(7) {
        0 => {
            keys.push(format!("backoff_base_ms: {}, max_backoff_ms: 4000", rng.between(20, 1000)));
        }
        1 => keys.push("backoff: [100ms, 500ms, 2s]".to_owned()),
        _ => {
            let backoff = rng.pick(&["fixed", "linear", "exponential", "fibonacci"]);
            keys.push(format!("backoff: {backoff}, initial_delay: {delay}, max_delay: {most}"));
        }
    }
    if rng.percent(50) {
        keys.push(format!(
            "jitter: {}",
            rng.pick(&["none", "full", "equal", "decorrelated", "0.3"])
        ));
    }
    if rng.percent(12) {
        keys.push("retryable: false".to_owned());
    }
    if rng.percent(20) {
        keys.push(format!("delay_budget: {}", rng.pick(&["500ms", "3s", "15s"])));
    }
    if rng.percent(40) {
        keys.push(format!("window: {}", rng.pick(&["1s", "3s", "6s", "10s", "30s"])));
    }
    if rng.percent(25) {
        keys.push(format!("max_preemptions: {}", rng.below(3)));
    }
    if rng.percent(20) {
        keys.push(format!("max_deferrals: {}", rng.below(3)));
    }
    match rng.below(10) {
        0 => keys.push("exit_codes: { retry: [1, 2, 7] }".to_owned()),
        1 => keys.push("exit_codes: { stop: [75, 137] }".to_owned()),
        2 => keys.push("rules: [{ exit: 1, then: stop }, { timeout: true, then: retry }]".to_owned()),
        3 => keys.push(
            "rules: [{ error: Flaky, then: defer, delay: 300ms }, { http_status: 404, then: retry }]"
                .to_owned(),
        ),
        _ => {}
    }
    format!("{{ {} }}", keys.join(", "))
}

/// When a job that nothing disturbs any more has ended, at the latest, from now on: everything one after the other, on the one slot
/// that there is for it.
pub(crate) fn bound_ms(plan: &Plan) -> u64 {
    let runs = plan.runs().max(1) as u64;
    let steps = plan.steps().iter().map(|step| {
        let items = u64::from(step.for_each.items().unwrap_or(4));
        let attempt = step.timeout_ms.unwrap_or(LONGEST_ATTEMPT_MS).max(LONGEST_ATTEMPT_MS);
        let wait = step.scheduling_timeout_ms.unwrap_or(90_000);
        (items + 2) * 8 * (attempt + 10_000) + wait
    });
    let long_delays = 8 * 110_000;
    (steps.sum::<u64>() * runs + long_delays + 100_000).min(4 * 3600 * 1000)
}
