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
                "5 attempts_unreachable steps.s.retry.max_attempts: an item that keeps failing ends after attempt 3 of 5, because of the delay budget of 5s; with jitter after attempt 3 to 5",
            ],
        ),
        (
            "retry_config: { attempts: 100, retry_budget: 2m }",
            &[
                "5 attempts_unreachable steps.s.retry_config.attempts: an item that keeps failing ends after attempt 7 of 100, because of the retry_budget of 2m",
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
        (
            "retry: { max_attempts: 999999, max_delay: 5m }",
            &[
                "5 excessive_attempts steps.s.retry.max_attempts: 999999 attempts are as good as no limit: an item that keeps failing waits 3472d5h in all before it gives up; write `max_attempts: unlimited` if that is meant, or bound the time with `delay_budget` or `window`",
            ],
        ),
        (
            "work_config: { max_retries: 99999, backoff: 0, backoff_type: fixed }",
            &[
                "5 excessive_attempts steps.s.work_config.max_retries: 100000 attempts are as good as no limit: an item that keeps failing is tried without a pause; write `max_retries: -1` if that is meant, or bound the time with a native `retry` with `delay_budget` or `window`",
            ],
        ),
        ("retry: { max_attempts: 1000 }", &[]),
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
            "retry_budget: { per_step: 5 }",
            "2 budget_unreachable retry_budget.per_step: no step can spend its share of 5: its `max_attempts` allows 2 at most after failures; raise `max_attempts`, or lower the share",
        ),
        (
            "retry_budget_per_workflow: 4",
            "2 budget_unreachable retry_budget_per_workflow: no step can spend its share of 4: its `max_attempts` allows 2 at most after failures; only lost workers can spend the rest; raise `max_attempts`, or lower the share",
        ),
        (
            "best_effort: true",
            "2 best_effort_without_datacenters best_effort: the job has no `datacenters`, so there are none to do without: it has one run, and the deadline ends that",
        ),
        (
            "best_effort: { deadline: 5m }",
            "2 best_effort_without_datacenters best_effort: the job has no `datacenters`, so there are none to do without: it has one run, and the deadline ends that",
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
fn a_script_that_would_not_be_on_a_worker_is_told_where_it_matters() {
    let job = |top: &str, action: &str| {
        valid(&format!("name: j\n{top}\nsteps: {{ s: {{ {action} }}, t: {{ {action} }} }}\n"))
    };
    let told = |warnings: &[steadfast_jobfile::Warning]| -> Vec<String> {
        warnings.iter().map(|w| format!("{} {}: {}", w.code, w.path, w.message)).collect()
    };
    // `run` users are left in peace; `submit` tells them.
    let plain = job("priority: 1", "run: ./index.sh --all");
    assert_eq!(plain.warnings, []);
    let message = "script_not_in_files steps.s.run: `index.sh` is not in `files`: a worker starts \
                   it where only the job's `files` are; add `files: [index.sh]`";
    assert_eq!(told(&plain.worker_warnings), [message]);
    let some = job("files: [other.sh]", "argv: [./bin/index]");
    let message = "script_not_in_files steps.s.argv: `bin/index` is not in `files`: `files` names \
                   others, and a worker gets no more than those; add `files: [bin/index]`";
    assert_eq!((told(&some.warnings), some.worker_warnings), (vec![message.to_owned()], vec![]));
    let own = job("cwd: attempt", "run: ./index.sh");
    assert_eq!(own.warnings.len(), 1);
    for (top, action) in [
        ("files: [index.sh]", "run: ./index.sh"),
        ("files: [bin]", "argv: [./bin/index, x]"),
        ("cwd: source", "run: ./index.sh"),
        ("priority: 1", "run: echo ./index.sh"),
        ("priority: 1", "run: '\"./$NAME\"'"),
    ] {
        let job = job(top, action);
        assert_eq!((job.warnings, job.worker_warnings), (vec![], vec![]), "{top} {action}");
    }
}

#[test]
fn a_share_that_some_step_can_spend_is_not_warned_about() {
    for (top, s) in [
        ("retry_budget: { per_step: 5 }", "retry: { max_attempts: 6 }"),
        ("retry_budget: { per_step: 5 }", "for_each: { range: 3 }"),
        ("retry_budget: { per_step: 4 }\ndatacenters: [a, b]", "run: x"),
        ("retry_budget: { total: 50 }", "run: x"),
        ("retry_budget: 50", "run: x"),
    ] {
        let run = if s == "run: x" { "" } else { "run: x, " };
        check(&format!("name: j\n{top}\nsteps: {{ s: {{ {run}{s} }}, t: {{ run: x }} }}\n"), &[]);
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
