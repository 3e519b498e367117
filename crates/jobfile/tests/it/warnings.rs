use std::fmt::Write;

use steadfast_jobfile::WARNING_CODES;

use crate::{step, valid};

fn check(text: &str, expected: &[&str]) {
    let job = valid(text);
    let shown: Vec<String> = job
        .warnings
        .iter()
        .map(|w| format!("{} {} {}: {}", w.line, w.code, w.path, w.message))
        .collect();
    assert_eq!(shown, expected, "{text}");
    for warning in &job.warnings {
        let known = WARNING_CODES.iter().any(|(code, _)| *code == warning.code);
        assert!(known, "{} is not documented", warning.code);
    }
}

#[test]
fn what_will_surprise_is_said_at_its_place() {
    for (lines, expected) in [
        ("retry: { max_attempts: 3 }", &[][..]),
        (
            "retry: { max_attempts: 100, delay_budget: 2m }",
            &[
                "5 attempts_unreachable steps.s.retry.max_attempts: an item that keeps failing ends after attempt 7 of 100, because of the delay budget of 2m",
            ],
        ),
        (
            "retry: { window: 1s }",
            &[
                "5 attempts_unreachable steps.s.retry.window: an item that keeps failing ends at the latest after attempt 2 of 3, because of the window of 1s",
            ],
        ),
        (
            "retry: { max_attempts: unlimited }",
            &[
                "5 unlimited_attempts steps.s.retry.max_attempts: attempts are unlimited: only success, a rule or somebody ends this",
            ],
        ),
        (
            "retry: { max_attempts: unlimited, window: 10s }",
            &[
                "5 unlimited_attempts steps.s.retry.max_attempts: attempts are unlimited: window ends this after attempt 4",
            ],
        ),
        (
            "retry: { retryable: false, max_attempts: 3 }",
            &[
                "5 not_retryable_with_attempts steps.s.retry.max_attempts: max_attempts has no effect beyond the first: `retryable: false` stops there",
            ],
        ),
        (
            "retry: { rules: [{ exit: 75, then: defer, delay: 2h }] }",
            &[
                "5 delay_capped steps.s.retry.rules[0].delay: the delay of 2h is cut to 1h by max_retry_after; raise that too",
            ],
        ),
        (
            "retry: { max_attempts: 5, delay_budget: 5s, jitter: full }",
            &[
                "5 attempts_unreachable steps.s.retry.max_attempts: an item that keeps failing ends after attempt 3 of 5, because of the delay budget of 5s (before jitter)",
            ],
        ),
        (
            "retry: { delay_budget: 500ms }",
            &[
                "5 budget_below_first_delay steps.s.retry.delay_budget: the delay budget (500ms) is below the first delay (1s), so there is no retry",
            ],
        ),
        (
            "retry: { backoff: fixed, multiplier: 2 }",
            &[
                "5 unused_key steps.s.retry.multiplier: multiplier has no effect: only exponential backoff multiplies",
            ],
        ),
        (
            "retry: { increment: 2s }",
            &[
                "5 unused_key steps.s.retry.increment: increment has no effect: only linear backoff has an increment",
            ],
        ),
        (
            "retry: { backoff: [1s], initial_delay: 1s }",
            &[
                "5 unused_key steps.s.retry.initial_delay: initial_delay has no effect: `backoff` lists every delay",
            ],
        ),
        (
            "retry: { jitter: decorrelated, backoff: fixed }",
            &[
                "5 unused_key steps.s.retry.backoff: backoff has no effect: decorrelated jitter computes its delays from `initial_delay` alone",
            ],
        ),
        (
            "retry_config: { jitter_factor: 0.5 }",
            &[
                "5 unused_key steps.s.retry_config.jitter_factor: jitter_factor has no effect without `jitter: true`",
            ],
        ),
        (
            "on_failure: { run: 'echo {{ item }}' }",
            &[
                "5 template_in_run steps.s.on_failure.run: `run` is never templated: the item is in `$STEADFAST_ITEM`",
            ],
        ),
        ("on_failure: { run: 'docker ps --format {{.ID}}' }", &[]),
    ] {
        check(&step(lines), expected);
    }
    for (top, expected) in [
        (
            "retry_budget: { total: 60 }",
            "2 budget_clamped retry_budget.total: 60 retries were asked for; the operator's ceiling leaves 50",
        ),
        (
            "retry_budget: { floor: 3 }",
            "2 unused_key retry_budget.floor: floor has no effect without `ratio`",
        ),
        (
            "best_effort_min_dcs: 2",
            "2 unused_key best_effort_min_dcs: best_effort_min_dcs has no effect without `best_effort: true`",
        ),
        (
            "retry_budget: { total: 1 }",
            "2 attempts_unreachable retry_budget: an item that keeps failing ends after attempt 2 of 3, because of the job's retry budget of 1",
        ),
        (
            "retry: { backoff: fixed, multiplier: 2.0 }",
            "2 unused_key retry.multiplier: multiplier has no effect: only exponential backoff multiplies",
        ),
    ] {
        let text = format!("name: j\n{top}\nsteps: {{ s: {{ run: x }} }}\n");
        check(&text, &[expected]);
    }
}

#[test]
fn a_jobs_block_is_warned_about_once_however_many_steps_inherit_it() {
    let mut text =
        "name: j\nretry: { max_attempts: unlimited, increment: 1s }\nsteps:\n".to_owned();
    for n in 0..1000 {
        let _ = writeln!(text, "  s{n}: {{ run: x }}");
    }
    let once = "2 unlimited_attempts retry.max_attempts: attempts are unlimited: only success, a rule or somebody ends this (1000 steps)";
    let unused = "2 unused_key retry.increment: increment has no effect: only linear backoff has an increment";
    check(&text, &[once, unused]);
    // Somebody uses the increment now.
    text += "  linear: { run: x, retry: { backoff: linear } }\n";
    check(&text, &[&once.replace("1000", "1001")]);
}
