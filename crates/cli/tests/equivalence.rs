//! A rehearsal of what a real run met decides as the real run did: there is one engine.

mod common;

use std::collections::BTreeMap;
use std::fs;

use common::{Place, is, number, wait_for};
use serde_json::{Value, json};

/// The verdicts on one item, in order.
type Verdicts = BTreeMap<String, Vec<Value>>;

/// As scripts write it.
fn label(outcome: &Value) -> String {
    if let Some(succeeded) = outcome["succeeded"].as_object() {
        return succeeded.get("output").map_or("ok".to_owned(), |output| format!("ok={output}"));
    }
    match outcome["lost"]["started"].as_bool() {
        Some(true) => return "lost".to_owned(),
        Some(false) => return "not_started".to_owned(),
        None => {}
    }
    let failed = &outcome["failed"];
    let kind = &failed["kind"];
    match kind.as_str() {
        Some("timed_out") => "timeout".to_owned(),
        Some("not_completed") if failed["permanence"] == "said" => "permanent".to_owned(),
        Some("not_completed") => "not_completed".to_owned(),
        _ if kind["exited"].is_u64() => format!("exit:{}", kind["exited"]),
        _ if kind["signalled"].is_u64() => format!("signal:{}", kind["signalled"]),
        _ => panic!("{outcome} has no label"),
    }
}

/// `index[2]`, `publish!`: the key of an item in a script, and in a rehearsal's decisions.
fn name(plan: &Value, item: &Value) -> String {
    let step = &plan["steps"][number(&item["step"]) as usize];
    let name = step["name"].as_str().expect("a name");
    match item["role"].as_str() {
        Some("fallback") => format!("{name}!"),
        Some("compensation") => format!("{name}~"),
        _ if step["for_each"].is_null() || step["for_each"] == "once" => name.to_owned(),
        _ => format!("{name}[{}]", item["index"]),
    }
}

struct Recorded {
    state: String,
    script: BTreeMap<String, Vec<String>>,
    verdicts: Verdicts,
}

fn recorded(events: &[Value], delays: bool) -> Recorded {
    let plan = &events[0]["plan"];
    let mut script: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut verdicts = Verdicts::new();
    let mut state = String::new();
    for event in events {
        let name = || name(plan, &event["item"]);
        match event["event"].as_str().expect("a name") {
            "AttemptEnded" => {
                let mut took = number(&event["at"]) - number(&event["started_at"]);
                let label = label(&event["outcome"]);
                // The worker's clock, which its timeout is of, starts a little after the log's.
                let step = &plan["steps"][number(&event["item"]["step"]) as usize];
                if let Some(timeout) = step["timeout_ms"].as_u64()
                    && label != "timeout"
                {
                    took = took.min(timeout - 1);
                }
                let entry = format!("{label}@{took}ms");
                script.entry(name()).or_default().push(entry);
            }
            kind @ ("ItemSucceeded" | "RetryScheduled" | "ItemFailed") => {
                let verdict = match kind {
                    "ItemSucceeded" => "complete",
                    "RetryScheduled" => "retry",
                    _ => "stop",
                };
                verdicts.entry(name()).or_default().push(decision(verdict, event, delays));
            }
            "JobEnded" => event["state"].as_str().expect("a state").clone_into(&mut state),
            _ => {}
        }
    }
    Recorded { state, script, verdicts }
}

/// What is compared of a decision, from an event or from a rehearsal.
fn decision(verdict: &str, from: &Value, delays: bool) -> Value {
    // The event of a success leaves out what is zero.
    let spent = |account: &str| json!(from["accounts"][account].as_u64().unwrap_or_default());
    let delay = |value: Value| if delays { value } else { Value::Null };
    json!({
        "attempt": from["attempt"], "verdict": verdict, "reason": from["reason"],
        "cause": from["cause"], "failures": spent("failures"),
        "preemptions": spent("preemptions"), "delay_ms": delay(from["delay_ms"].clone()),
        "delay_spent_ms": delay(spent("delay_spent_ms")),
    })
}

fn rehearsed(
    place: &Place,
    script: &BTreeMap<String, Vec<String>>,
    delays: bool,
) -> (String, Verdicts) {
    let file = place.path("script.json");
    fs::write(&file, json!(script).to_string()).expect("writes");
    let job = place.path("job.yaml");
    let (job, file) = (job.to_str().expect("plain"), file.to_str().expect("plain"));
    let answer = place.json(&["rehearse", job, "--slots", "4", "--script", file]);
    let mut verdicts = Verdicts::new();
    for from in answer["decisions"].as_array().unwrap_or_else(|| panic!("{answer}")) {
        let step = from["step"].as_str().expect("a step");
        let indexed = format!("{step}[{}]", from["item"]);
        let name = if script.contains_key(&indexed) { indexed } else { step.to_owned() };
        let verdict = from["verdict"].as_str().expect("a verdict");
        verdicts.entry(name).or_default().push(decision(verdict, from, delays));
    }
    (answer["state"].as_str().expect("a state").to_owned(), verdicts)
}

/// Runs the job, rehearses what it met, and compares; returns the verdicts' stop reasons in order.
#[track_caller]
fn agree_on(place: &Place, job: &str, delays: bool) -> Vec<String> {
    let real = recorded(&place.events(job), delays);
    let (state, verdicts) = rehearsed(place, &real.script, delays);
    assert_eq!(verdicts, real.verdicts);
    assert_eq!(state, real.state);
    let all = real.verdicts.values().flatten();
    all.filter_map(|it| Some(it["reason"].as_str()?.to_owned())).collect()
}

#[track_caller]
fn same(job: &str, delays: bool, reasons: &[&str]) {
    let place = Place::new(job);
    let ended = place.run(None).end();
    assert!(matches!(ended.status.code(), Some(0 | 1)), "{}", ended.stderr);
    assert_eq!(agree_on(&place, ended.id().expect("an id"), delays), reasons);
}

#[test]
fn failures_and_their_growing_delays_are_rehearsed_as_they_were() {
    let job = "name: j\nretry: { initial_delay: 10ms, max_attempts: 5 }\n\
               steps: { a: { run: sh work.sh 3 }, b: { needs: [a], run: sh work.sh 0 } }\n";
    same(job, true, &[]);
    same(&job.replace("max_attempts: 5", "max_attempts: 3"), true, &["attempts_exhausted"]);
    same(&job.replace("max_attempts: 5", "delay_budget: 30ms"), true, &["attempts_exhausted"]);
    same(&job.replace("max_attempts: 5", "delay_budget: 29ms"), true, &["delay_budget_exhausted"]);
}

#[test]
fn exit_codes_signals_rules_and_programs_that_are_missing_are_rehearsed_as_they_were() {
    let job = |how: &str, rest: &str| {
        format!(
            "name: j\nretry: {{ initial_delay: 10ms, {rest} }}\n\
             steps: {{ s: {{ {how} }}, then: {{ needs: [s], run: 'true' }} }}\n"
        )
    };
    same(&job("run: exit 7", "exit_codes: { stop: [7] }"), true, &["exit_code_excluded"]);
    same(&job("run: exit 7", "exit_codes: { retry: [8] }"), true, &["exit_code_not_listed"]);
    same(&job("run: 'kill -9 $$'", "exit_codes: { stop: [137] }"), true, &["exit_code_excluded"]);
    same(&job("run: 'kill -9 $$'", "backoff: fibonacci"), true, &["attempts_exhausted"]);
    same(&job("run: exit 7", "rules: [{ exit: [7], then: stop }]"), true, &["rule_stop"]);
    let deferred = "max_deferrals: 2, rules: [{ exit: [7], then: defer, delay: 15ms }]";
    same(&job("run: exit 7", deferred), true, &["deferrals_exhausted"]);
    same(&job("argv: [/nowhere/program]", "backoff: linear"), true, &["attempts_exhausted"]);
    same(&job("run: exit 1", "retryable: false"), true, &["not_retryable"]);
}

#[test]
fn an_attempt_that_takes_too_long_is_rehearsed_as_it_was() {
    let job = "name: j\nsteps:\n  s:\n    timeout: 700ms\n    \
               retry: { initial_delay: 10ms, max_attempts: 2 }\n    run: exec sleep 60\n    \
               on_failure: { run: sh work.sh 1, then: continue }\n  \
               t: { needs: [s], run: 'true' }\n";
    same(job, true, &["attempts_exhausted"]);
}

#[test]
fn a_fan_out_of_an_output_with_mixed_outcomes_is_rehearsed_as_it_was() {
    let job = "name: j\nretry: { initial_delay: 10ms }\nsteps:\n  \
               list: { run: 'echo \"[1, 2, 3, 4]\" > $STEADFAST_OUTPUT' }\n  \
               each:\n    needs: [list]\n    for_each: { output: list }\n    max_failed: 2\n    \
               retry: { exit_codes: { stop: [3] } }\n    run: |\n      \
               case $STEADFAST_ITEM in 1) sh work.sh 1;; 2) exit 3;; 3) exit 1;; esac\n  \
               last: { needs: [each], run: sh work.sh 2 }\n";
    same(job, true, &["exit_code_excluded", "attempts_exhausted"]);
}

/// One item after the other: which of two at once is first is the machine's to say.
#[test]
fn budgets_that_steps_share_are_rehearsed_as_they_were_spent() {
    let job = "name: j\nretry: { initial_delay: 10ms, max_attempts: unlimited }\n\
               retry_budget: { total: 5, per_step: 4 }\nsteps:\n  \
               a: { run: exit 1, for_each: [x], max_failed: 1 }\n  \
               b: { needs: [a], run: exit 1, on_failure: { run: 'true', then: continue } }\n  \
               c: { needs: [b], run: exit 1 }\n";
    same(job, true, &["step_budget_exhausted", "job_budget_exhausted", "job_budget_exhausted"]);
}

#[test]
fn with_jitter_all_but_the_length_of_the_delays_is_rehearsed_as_it_was() {
    let job = "name: j\nretry: { initial_delay: 20ms, max_attempts: 4, jitter: full }\n\
               steps: { a: { run: sh work.sh 3 }, b: { needs: [a], run: sh work.sh always } }\n";
    same(job, false, &["attempts_exhausted"]);
}

#[test]
fn a_run_that_was_killed_is_rehearsed_with_its_losses() {
    let place = Place::new(
        "name: j\nretry: { initial_delay: 10ms }\nsteps:\n  s:\n    run: |\n      \
         test $STEADFAST_ATTEMPT = 2 || exec sh work.sh 1\n      \
         echo $STEADFAST_ATTEMPT_TOKEN >> tokens\n      exec sleep 60\n",
    );
    let mut process = place.run(None);
    let job = process.id();
    let second = || place.read("tokens").lines().nth(1).map(drop);
    wait_for("the second attempt", second);
    process.kill();
    place.finish(&job);
    assert_eq!(agree_on(&place, &job, true), [] as [&str; 0]);
    let lost = place.events(&job).iter().filter(|event| is(event, "RetryScheduled")).count();
    assert_eq!(lost, 2, "a failure and a loss");
}
