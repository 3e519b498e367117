//! A job from the builder is the job of the file.

use std::time::Duration;

use serde_json::{Value, json};
use steadfast::{
    Action, Backoff, BestEffort, Cwd, Http, Jitter, Job, LateResults, Limit, Method, OnFailure,
    Retry, RetryBudget, Rule, Step,
};
use steadfast_core::plan::Plan;
use steadfast_jobfile::{Operator, load};

const EVERYTHING: &str = include_str!("../../../jobfile/tests/it/valid/everything.yaml");

/// Every key that `EVERYTHING` leaves out.
const REST: &str = r#"
name: the rest
retry_budget: { total: 20, per_step: 3 }
timeout: 2h
goals: [publish]
not_before: "2030-01-31T08:00:00Z"
datacenters: [us-east, eu-west, ap-south]
best_effort: { min_datacenters: 2, deadline: 5m, grace: 1s, late_results: log_only }
files: [index.sh]
env: { SOURCE: "http://127.0.0.1:9000/data" }
steps:
  fetch:
    run: curl -fsS "$SOURCE"
    timeout: 30s
    resources: { cpu: 1.5, memory: 512m }
    ports: [metrics]
    secrets: [TOKEN]
    retry: { backoff: exponential, multiplier: 3.0, jitter: full }
    on_failure: { run: ./other.sh, then: continue }
  index:
    needs: [fetch]
    for_each: [a, 2, { c: [3] }]
    parallelism: 4
    argv: [./index.sh, "{{ item }}"]
    retry: { backoff: fibonacci, jitter: equal, retryable: false }
    on_failure: { argv: [./alarm.sh] }
  notify:
    needs: [index]
    http: { url: "http://127.0.0.1:9000/notify", mode: async, redirects: 3, method: PATCH }
    heartbeat: 1m
    retry: { backoff: fixed, jitter: none, max_deferrals: unlimited, max_preemptions: 4 }
    compensate: { http: { url: "http://127.0.0.1:9000/undo", method: DELETE } }
  publish:
    needs: [notify]
    call: publish
    retry: { exit_codes: { retry: [1] }, rules: [{ exit: [2, 3], signal: [9], then: stop }] }
    on_failure: { call: unpublish, input: { now: true } }
    compensate: { call: unpublish }
"#;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn plan(text: &str) -> Plan {
    match load("job.yaml", text.as_bytes(), &Operator::default()) {
        Ok(file) => file.plan,
        Err(problems) => panic!("{text}\n{problems:?}"),
    }
}

#[track_caller]
fn same(job: &Job, file: &str) {
    let written = serde_json::to_string(job).unwrap();
    assert_eq!(plan(&written), plan(file), "{written}");
}

fn everything() -> serde_json::Result<Job> {
    let common = Retry::new()
        .max_attempts(Limit::Unlimited)
        .retryable(true)
        .backoff(Backoff::Linear)
        .initial_delay(ms(100))
        .max_delay(s(10))
        .increment(ms(50))
        .jitter(Jitter::Factor(0.25))
        .max_retry_after(s(600))
        .delay_budget(s(300))
        .window(s(3600))
        .max_preemptions(Limit::Unlimited)
        .max_deferrals(0)
        .retry_exit_codes([1, 137])
        .stop_exit_codes([2])
        .rule(Rule::defer().exit([75]).delay(s(30)))
        .rule(Rule::stop().error("quota|limit"))
        .rule(Rule::retry().signal([9]))
        .rule(Rule::defer().http_status([429, 503]))
        .rule(Rule::retry().timeout().delay(s(1)));
    let deep = json!({ "where": "/data", "deep": [1, 2.5, null, true, "{{ job.id }}"] });
    let ask = Http::new("https://example.org/{{ steps.list.output.id }}")
        .method(Method::Put)
        .header("X-Token", "abc")
        .header("X-Count", "3")
        .query("all", "true")
        .body(&json!({ "files": "{{ steps.each.outputs }}" }))?
        .timeout(s(10))
        .expect_envelope();
    Ok(Job::new("Größe 2/3 of_all.things:x")
        .start_in(s(5400))
        .priority(-3)
        .label("team", "search")
        .label("tier", "2")
        .secrets(["API_KEY"])
        .cwd(Cwd::Attempt)
        .retry_budget(RetryBudget::new().ratio(0.2).floor(5).total(40).counts_all())
        .best_effort(BestEffort::new().deadline(s(86_400)).late_results(LateResults::UpdateResult))
        .datacenters(["one"])
        .retry(common.clone())
        .step(
            Step::call("list", "files.list:all")
                .input(&deep)?
                .heartbeat(s(10))
                .scheduling_timeout(s(0))
                .env("ATTEMPT", "{{ attempt }}")
                .env("PORT", "8080")
                .env("DEBUG", "false")
                .retry(common),
        )
        .step(
            Step::argv(
                "each",
                [
                    "./each",
                    "{{ item.name }}",
                    "{{ item_index }}",
                    "{{ steps.list.output.root }}",
                    "7",
                ],
            )
            .needs(["list"])
            .for_each_output("list.files")
            .max_failed_percent(5)
            .cwd(Cwd::Source)
            .files(["each", "lib/a.txt"])
            .retry(Retry::new().backoff(Backoff::Listed(vec![s(1), s(5), s(10)])).max_delay(s(10))),
        )
        .step(
            Step::run("range", "echo \"$STEADFAST_ITEM\"")
                .for_each_range(1000)
                .max_failed(3)
                .label("gpu", "yes")
                .retry(Retry::new().jitter(Jitter::Decorrelated).max_attempts(2))
                .compensate(Action::run("./undo.sh"))
                .on_failure(OnFailure::proceed()),
        )
        .step(
            Step::http("ask", ask)
                .needs(["each", "range"])
                .on_failure(OnFailure::rescue(Action::http(Http::new("http://127.0.0.1/alarm"))))
                .compensate(Action::argv(["./undo", "{{ steps.ask.output.id }}"])),
        ))
}

fn rest() -> serde_json::Result<Job> {
    let notify = Http::new("http://127.0.0.1:9000/notify")
        .answers_later()
        .redirects(3)
        .method(Method::Patch);
    let undo = Http::new("http://127.0.0.1:9000/undo").method(Method::Delete);
    Ok(Job::new("the rest")
        .retry_budget(RetryBudget::new().total(20).per_step(3))
        .timeout(s(7200))
        .goals(["publish"])
        .not_before("2030-01-31T08:00:00Z")
        .datacenters(["us-east", "eu-west", "ap-south"])
        .best_effort(
            BestEffort::new()
                .min_datacenters(2)
                .deadline(s(300))
                .grace(s(1))
                .late_results(LateResults::LogOnly),
        )
        .files(["index.sh"])
        .env("SOURCE", "http://127.0.0.1:9000/data")
        .step(
            Step::run("fetch", "curl -fsS \"$SOURCE\"")
                .timeout(s(30))
                .cpu(1.5)
                .memory("512m")
                .ports(["metrics"])
                .secrets(["TOKEN"])
                .retry(
                    Retry::new().backoff(Backoff::Exponential).multiplier(3.0).jitter(Jitter::Full),
                )
                .on_failure(OnFailure::rescue(Action::run("./other.sh"))),
        )
        .step(
            Step::argv("index", ["./index.sh", "{{ item }}"])
                .needs(["fetch"])
                .for_each([json!("a"), json!(2), json!({ "c": [3] })])
                .parallelism(4)
                .retry(
                    Retry::new().backoff(Backoff::Fibonacci).jitter(Jitter::Equal).retryable(false),
                )
                .on_failure(OnFailure::fallback(Action::argv(["./alarm.sh"]))),
        )
        .step(
            Step::http("notify", notify)
                .needs(["index"])
                .heartbeat(s(60))
                .retry(
                    Retry::new()
                        .backoff(Backoff::Fixed)
                        .jitter(Jitter::None)
                        .max_deferrals(Limit::Unlimited)
                        .max_preemptions(4),
                )
                .compensate(Action::http(undo)),
        )
        .step(
            Step::call("publish", "publish")
                .needs(["notify"])
                .retry(
                    Retry::new().retry_exit_codes([1]).rule(Rule::stop().exit([2, 3]).signal([9])),
                )
                .on_failure(OnFailure::fallback(
                    Action::call("unpublish").input(&json!({ "now": true }))?,
                ))
                .compensate(Action::call("unpublish")),
        ))
}

#[test]
fn a_built_job_is_the_job_of_the_file() {
    same(&everything().unwrap(), EVERYTHING);
    same(&rest().unwrap(), REST);
}

/// Spellings of others, for those who come from there.
const DIALECTS: [&str; 7] = [
    "retry_config",
    "work_config",
    "retry_budget_per_workflow",
    "best_effort_min_dcs",
    "best_effort_deadline_seconds",
    "backoff_base_ms",
    "max_backoff_ms",
];

/// All blocks of this name, wherever they are.
fn blocks<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    let inner: Vec<&Value> = match value {
        Value::Object(map) => {
            found.extend(map.get(name));
            map.values().collect()
        }
        Value::Array(list) => list.iter().collect(),
        _ => return,
    };
    for inner in inner {
        blocks(inner, name, found);
    }
}

#[test]
fn every_native_key_of_the_job_file_can_be_built() {
    let schema = steadfast_jobfile::schema();
    let built = json!([{ "job": everything().unwrap() }, { "job": rest().unwrap() }]);
    let block = |name: &str| &schema["$defs"][name];
    for (name, of) in [
        ("job", &schema),
        ("steps", block("step")),
        ("retry", block("retry")),
        ("rules", block("rule")),
        ("http", block("http")),
    ] {
        let mut found = Vec::new();
        blocks(&built, name, &mut found);
        // Steps lie one deeper, by name, and rules in a list.
        let inner = |value: &Value| match value {
            Value::Array(list) => list.clone(),
            Value::Object(map) if name == "steps" => map.values().cloned().collect(),
            other => vec![other.clone()],
        };
        let found: Vec<Value> = found.into_iter().flat_map(inner).collect();
        let keys = of["properties"].as_object().expect("keys").keys();
        for key in keys.filter(|key| !DIALECTS.contains(&key.as_str())) {
            assert!(found.iter().any(|block| block.get(key).is_some()), "{key} in {name}");
        }
    }
}
