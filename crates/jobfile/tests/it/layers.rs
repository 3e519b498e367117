use steadfast_core::plan::{
    Action, Budget, BudgetCounts, ForEach, HttpMode, MaxFailed, NotBefore, Ratio,
};
use steadfast_jobfile::{Limit, Operator, PolicyOverrides, Source, load, policy_view};

use crate::{VALID, step, valid};

#[test]
fn the_nearest_block_wins_key_by_key() {
    let operator = Operator {
        retry: PolicyOverrides {
            max_attempts: Some(Limit::Count(7)),
            window_ms: Some(9000),
            max_delay_ms: Some(2000),
            ..PolicyOverrides::default()
        },
        ..Operator::default()
    };
    let text = "name: j\nretry: { max_attempts: 5, initial_delay: 3s }\nsteps:\n  a: { run: x }\n  \
                b: { run: x, retry: { initial_delay: 1s } }\n";
    let job = load("j", text.as_bytes(), &operator).expect("valid");
    let sources = |step: usize| {
        let keys = ["max_attempts", "initial_delay", "window", "max_delay", "jitter"];
        keys.map(|key| job.steps[step].policy.get(key).name())
    };
    assert_eq!(sources(0), ["job", "job", "operator", "operator", "default"]);
    assert_eq!(sources(1), ["job", "step", "operator", "operator", "default"]);
    // The operator's cap yields to a longer first delay, as the built-in one does.
    assert_eq!(job.plan.step(0).policy.delays().max_ms(), 3000);
    assert_eq!(job.plan.step(1).policy.delays().max_ms(), 2000);
}

#[test]
fn only_a_file_can_write_max_preemptions() {
    let written = |retry: &str| {
        let job = valid(&step(retry));
        job.plan.step(0).policy.draft().max_preemptions_written
    };
    assert!(!written("retry: { retryable: false }"));
    assert!(written("retry: { retryable: false, max_preemptions: 100 }"));
}

#[test]
fn a_changed_backoff_leaves_the_jobs_numbers_behind() {
    let job = "name: j\nretry: { multiplier: 3.0 }\nsteps: { s: { run: x, retry: { backoff: fixed } }, t: { run: x } }\n";
    let job = valid(job);
    let view = policy_view(&job.plan.step(0).policy, &job.steps[0].policy);
    let multiplier = view.into_iter().find(|(key, ..)| *key == "multiplier");
    assert_eq!(multiplier, Some(("multiplier", serde_json::Value::Null, Source::Default)));
    assert!(job.warnings.is_empty(), "{:?}", job.warnings);
}

#[test]
fn a_view_has_every_key_of_the_retry_block_once() {
    let job = valid(VALID[1]);
    let view = policy_view(&job.plan.step(0).policy, &job.steps[0].policy);
    let shown: Vec<String> = view
        .into_iter()
        .map(|(key, value, source)| format!("{key} = {value} ({})", source.name()))
        .collect();
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn everything_that_is_written_arrives() {
    let job = valid(VALID[1]);
    let plan = &job.plan;
    assert_eq!(plan.not_before(), Some(NotBefore::InMs(5_400_000)));
    assert_eq!(plan.priority(), -3);
    let ratio = Some(Ratio { ratio: 0.2, floor: 5 });
    let budget = *plan.budget().expect("there");
    assert_eq!(
        Budget { total: None, ..budget },
        Budget { total: None, per_step: None, ratio, counts: BudgetCounts::All }
    );
    let [list, each, range, ask] = plan.steps() else {
        panic!("four steps");
    };
    assert_eq!(list.scheduling_timeout_ms, None);
    assert_eq!(list.surroundings.env["PORT"], "8080");
    assert_eq!(each.max_failed, MaxFailed::Percent(5.0));
    let output = ForEach::Output { step: "list".into(), path: vec!["files".into()] };
    assert_eq!(each.for_each, output);
    assert_eq!(range.for_each, ForEach::Range(1000));
    assert_eq!(range.scheduling_timeout_ms, Some(86_400_000));
    assert_eq!(ask.timeout_ms, Some(10_000));
    let nightly = valid(VALID[0]);
    let notify = nightly.plan.step(2);
    assert_eq!(notify.timeout_ms, Some(3_600_000));
    assert!(
        matches!(&notify.action, Action::Http(http) if http.mode == HttpMode::Async && http.method == "POST")
    );
}

#[test]
fn a_time_is_a_time() {
    let at = |text: &str| {
        let job = format!("name: j\nnot_before: {text}\nsteps: {{ s: {{ run: x }} }}\n");
        valid(&job).plan.not_before()
    };
    let moment = Some(NotBefore::At(steadfast_core::time::Timestamp(1_000)));
    assert_eq!(at("1970-01-01T00:00:01Z"), moment);
    assert_eq!(at("1970-01-01T02:00:01+02:00"), moment);
}

#[test]
fn json_is_the_same_language() {
    let job = valid(VALID[3]);
    assert_eq!(job.plan.name(), "plain A/b");
    assert_eq!(job.plan.surroundings().env["FACE"], "😀");
    let yaml = "name: plain A/b\nenv: {FACE: 😀}\nsteps:\n  a: {run: 'true', retry: {max_attempts: 2}}\n  \
                b: {argv: [echo, x], needs: [a], for_each: [1, -2.5e3, {k: null}]}\n";
    assert_eq!(job.plan, valid(yaml).plan);
}

#[test]
fn a_required_budget_is_the_operators() {
    let operator = Operator { budget_required: true, ..Operator::default() };
    let job = load("j", step("").as_bytes(), &operator).expect("valid");
    assert_eq!(job.plan.budget().and_then(|budget| budget.total_at(1)), Some(20));
    assert_eq!(job.budget.total, Some(Source::Operator));
}

#[test]
fn a_best_effort_has_its_sources_and_the_operator_is_named_as_it_names_itself() {
    let operator = Operator {
        best_effort_min_datacenters: 3,
        best_effort_deadline_ms: 1000,
        ..Operator::default()
    };
    let job = |top: &str| {
        let text = format!("name: j\n{top}\nsteps: {{ s: {{ run: x }} }}\n");
        load("j", text.as_bytes(), &operator)
    };
    let read = job("datacenters: [a, b, c]\nbest_effort: { grace: 1s }").expect("valid");
    let from = read.best_effort.expect("there");
    assert_eq!((from.min_datacenters, from.deadline), (Source::Operator, Source::Operator));
    assert_eq!((from.grace, from.late_results), (Source::Job, Source::Default));
    let ad44 = "datacenters: [a, b]\nbest_effort: true\nbest_effort_min_dcs: 1";
    let from = job(ad44).expect("valid").best_effort.expect("there");
    assert_eq!((from.min_datacenters, from.deadline), (Source::Ad44, Source::Operator));
    for (top, write) in [
        ("datacenters: [a, b]\nbest_effort: true", "best_effort_min_dcs: 2"),
        ("datacenters: [a, b]\nbest_effort: {}", "min_datacenters: 2"),
    ] {
        let problems = job(top).expect_err("refused");
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!((problem.path.as_str(), problem.line), ("best_effort", 3));
        let told = "the operator's minimum is 3 datacenters (BEST_EFFORT_DEFAULT_MIN_DCS, or \
                    `best_effort.default_min_datacenters` in the settings), but the job has 2 \
                    datacenters";
        assert_eq!(problem.message, told);
        let help = format!("write `{write}` or less, or name more datacenters");
        assert_eq!(problem.help.as_deref(), Some(&*help));
    }
}

#[test]
fn windows_line_ends_and_a_byte_order_mark_change_nothing() {
    let text = format!("\u{feff}{}", VALID[0].replace('\n', "\r\n"));
    assert_eq!(valid(&text).plan, valid(VALID[0]).plan);
}
