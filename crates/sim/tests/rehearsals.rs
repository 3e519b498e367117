//! Rehearsals as a whole: the same bytes for the same script, a log that replays, and limits.

use std::sync::Arc;

use proptest::prelude::*;
use steadfast_core::apply::replay;
use steadfast_core::event::{Event, RecordedEvent};
use steadfast_core::plan::Plan;
use steadfast_jobfile::{Operator, load};
use steadfast_sim::{Options, Rehearsal, Script, load_script, record, rehearse, rehearse_into};

fn plan(job: &str) -> Arc<Plan> {
    let loaded = load("job.yaml", job.as_bytes(), &Operator::default());
    Arc::new(loaded.expect("a valid job").plan)
}

fn script(text: &str, plan: &Plan) -> Script {
    load_script("script.yaml", text.as_bytes(), plan).expect("a valid script")
}

const JOB: &str = "
name: j
datacenters: [a, b]
retry: { max_attempts: 5, jitter: full, delay_budget: 1m }
retry_budget: { total: 40, per_step: 5 }
best_effort: { min_datacenters: 2, deadline: 1h }
steps:
  one: { run: 'true', timeout: 20s }
  many: { run: 'true', needs: [one], for_each: { range: 6 }, parallelism: 2, max_failed: 2 }
  last: { run: 'true', needs: [many], on_failure: { run: 'true', then: continue }, retry: { max_attempts: 2 } }
";

fn events(plan: &Arc<Plan>, script: &Script, options: &Options) -> (Rehearsal, Vec<RecordedEvent>) {
    let mut log = vec![];
    let end = rehearse_into(plan.clone(), script, options, |record| log.push(record.clone()));
    (end.expect("it ends"), log)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn the_same_script_gives_the_same_bytes_and_the_log_replays(
        lists in proptest::collection::vec(
            proptest::collection::vec((0usize..9, 0u64..40_000), 1..5), 5),
        slots in prop::option::of(1u32..4),
    ) {
        let words = ["ok", "ok", "exit:1", "lost", "timeout", "never", "not_started", "signal:9", "fail"];
        let keys = ["one", "many", "\"b/many[3]\"", "a/last", "\"last!\""];
        let mut text = String::new();
        for (key, list) in keys.iter().zip(&lists) {
            let entries: Vec<String> = list
                .iter()
                .enumerate()
                .map(|(i, (word, ms))| {
                    let down = if i > 0 && ms % 7 == 0 { format!("\"down:{ms}ms\", ") } else { String::new() };
                    format!("{down}\"{}@{ms}ms\"", words[*word])
                })
                .collect();
            text.push_str(&format!("{key}: [{}]\n", entries.join(", ")));
        }
        let plan = plan(JOB);
        let script = script(&text, &plan);
        let options = Options { slots, past_the_end: true, ..Options::default() };
        let (first, log) = events(&plan, &script, &options);
        let (second, again) = events(&plan, &script, &options);
        let bytes = |rehearsal: &Rehearsal| serde_json::to_string(rehearsal).expect("serializes");
        prop_assert_eq!(bytes(&first), bytes(&second));
        prop_assert_eq!(&log, &again);
        let job = replay(&log).expect("the log replays");
        prop_assert_eq!(job.state(), first.state);
        prop_assert_eq!(job.finished_at.map(|at| at.0), first.finished_ms);
        // The decisions that are told are the verdicts in the log, one for one.
        let verdicts = log.iter().filter(|record| matches!(
            record.event,
            Event::ItemSucceeded { .. } | Event::RetryScheduled { .. } | Event::ItemFailed { .. }
        ));
        prop_assert_eq!(verdicts.count(), first.decisions.len());
        // What was recorded of it plays the same again, but for downtimes, which a script cannot place.
        if !text.contains("down:") {
            let recording = record(&log, &plan);
            let recorded = load_script("recorded", recording.text.as_bytes(), &plan);
            let recorded = recorded.map_err(|why| TestCaseError::fail(format!("{why:?}\n{}", recording.text)))?;
            let (third, _) = events(&plan, &recorded, &options);
            prop_assert_eq!(bytes(&first), bytes(&third), "{}", recording.text);
        }
    }
}

#[test]
fn a_job_without_end_is_stopped_and_told() {
    let plan = plan("name: j\nsteps: { s: { run: 'true', retry: { max_attempts: unlimited } } }");
    let script = script("s: ['exit:1']", &plan);
    let options = Options { max_decisions: 1000, ..Options::default() };
    let error = rehearse(plan, &script, &options).expect_err("it goes on").to_string();
    assert!(error.starts_with("stopped after 1000 decisions, at 16h"), "{error}");
}

#[test]
fn a_script_is_recorded_from_what_happened() {
    let job = "name: j\nsteps: { fetch: { run: x }, index: { needs: [fetch], for_each: { output: fetch.files }, \
               argv: [x, '{{ item }}'] }, tidy: { needs: [index], run: x, retry: { max_attempts: 1 } } }";
    let plan = plan(job);
    let what = "fetch: ['exit:22=no route@5s', 'ok={\"files\":[\"a\",\"b\"]}@4s']\nindex: ['ok@20s']\n\
                \"index[1]\": [lost@8s, 'fail=bad: @5s@1s', 'ok@20s']\ntidy: [never]";
    let (_, log) = events(&plan, &script(what, &plan), &Options::default());
    let recording = record(&log, &plan);
    assert_eq!(
        recording.text,
        r#"# What happened to job rehearsal: every attempt, and how long it took.
fetch: ["exit:22=no route@5s", "ok={\"files\":[\"a\",\"b\"]}@4s"]
"index[0]": ["ok@20s"]
"index[1]": ["lost@8s", "fail=bad: @5s@1s", "ok@20s"]
tidy: ["never"]
"#
    );
    assert_eq!(recording.notes, ["attempt 1 of tidy had no outcome: it is `never` in the script"]);
    let renamed = load("job.yaml", job.replace("tidy", "clean").as_bytes(), &Operator::default());
    let changed = record(&log, &renamed.expect("valid").plan);
    assert_eq!(changed.notes[1], "`tidy` is left out: the job has no step `tidy`");
    assert!(!changed.text.contains("tidy"), "{}", changed.text);
}

#[test]
fn a_fan_out_over_an_output_that_is_not_scripted_says_what_to_write() {
    let plan = plan(
        "name: j\nsteps: { fetch: { run: x }, index: { needs: [fetch], \
         for_each: { output: fetch.found.files }, run: x } }",
    );
    let rehearsal = rehearse(plan.clone(), &Script::default(), &Options::default()).expect("ends");
    let step = &rehearsal.runs[0].steps[1];
    assert_eq!(step.error.as_deref(), Some("the output `fetch.found.files` is missing"));
    let hint = step.hint.as_deref().expect("a hint");
    let written = "fetch: ['ok={\"found\":{\"files\":[\"a\",\"b\"]}}']";
    assert!(hint.ends_with(written), "{hint}");
    let scripted = rehearse(plan.clone(), &script(written, &plan), &Options::default());
    let scripted = scripted.expect("ends");
    assert_eq!(scripted.runs[0].steps[1].attempts, 2, "what the hint says works");
    assert_eq!(
        serde_json::to_value(&scripted).expect("JSON")["result"]["outputs"]["fetch"]["found"]["files"]
            [1],
        "b"
    );
}

#[test]
fn slots_hold_at_every_instant() {
    let plan = plan(
        "name: j\ndatacenters: [a, b]\nsteps: { s: { run: 'true', for_each: { range: 50 } } }",
    );
    let script = script("s: ['lost@1s', 'exit:1@2s', 'ok@3s']", &plan);
    let options = Options { slots: Some(3), ..Options::default() };
    let (_, log) = events(&plan, &script, &options);
    let mut running = [0i32; 2];
    let mut most = 0;
    for record in log {
        match record.event {
            Event::AttemptStarted { item, .. } => running[item.run as usize] += 1,
            Event::AttemptEnded { item, .. } => running[item.run as usize] -= 1,
            _ => {}
        }
        most = most.max(running[0]).max(running[1]);
    }
    assert_eq!(most, 3);
}

#[test]
fn every_mistake_in_a_script_is_told_at_once() {
    let plan = plan(JOB);
    let text = "
on: [ok]
many[9]: [ok]
c/one: [ok]
one!: [ok]
one~: [ok]
last: [down:1s, ok, later, {}, 5]
many: []
";
    let problems = load_script("script.yaml", text.as_bytes(), &plan).expect_err("refused");
    let told: Vec<String> =
        problems.iter().map(|p| format!("{}:{} {}", p.line, p.column, p.message)).collect();
    insta::assert_snapshot!(told.join("\n"));
    assert!(load_script("s", b"[1, 2]", &plan).is_err());
    assert!(load_script("s", b"  \n", &plan).is_ok());
}
