use serde_json::Value;
use steadfast_jobfile::{Limits, document, schema};

use crate::{VALID, read, step};

const CHECKED_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/job.schema.json");

fn json(text: &str) -> Value {
    let root = document("j", text.as_bytes(), Limits::default()).expect("valid");
    root.to_json().expect("JSON")
}

#[test]
fn the_checked_in_schema_is_what_the_code_says() {
    let fresh = serde_json::to_string_pretty(&schema()).expect("serializes") + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(CHECKED_IN, &fresh).expect("docs/ can be written");
    }
    let stale = std::fs::read_to_string(CHECKED_IN).unwrap_or_default() != fresh;
    assert!(
        !stale,
        "docs/job.schema.json is stale: run `UPDATE_SCHEMA=1 cargo test -p steadfast-jobfile` and commit it"
    );
}

#[test]
fn what_loads_is_valid_by_the_schema() {
    let validator = jsonschema::validator_for(&schema()).expect("a schema");
    for text in VALID {
        let problems: Vec<String> = validator
            .iter_errors(&json(text))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(problems.is_empty(), "{text}\n{problems:#?}");
    }
}

#[test]
fn both_read_the_same_durations() {
    let validator = jsonschema::validator_for(&schema()).expect("a schema");
    for (duration, reads) in [
        ("0s", true),
        ("500ms", true),
        ("1h30m", true),
        ("5min", true),
        ("1h 30m", true),
        ("90sec", true),
        ("2 minutes", true),
        ("1day", true),
        ("1year 2 months 3w 4d", true),
        ("5M5m", true),
        ("5", false),
        ("-5s", false),
        ("1.5s", false),
        ("500us", false),
        ("30m1h", false),
        ("5 m s", false),
        ("5sm", false),
        ("", false),
    ] {
        let text = step(&format!("retry: {{ initial_delay: \"{duration}\", max_delay: 90y }}"));
        assert_eq!(read(&text).is_ok(), reads, "{duration}");
        assert_eq!(validator.is_valid(&json(&text)), reads, "{duration}, by the schema");
    }
}

#[test]
fn errors_of_shape_are_refused_by_both() {
    let validator = jsonschema::validator_for(&schema()).expect("a schema");
    let top = |line: &str| format!("name: j\n{line}\nsteps: {{ s: {{ run: x }} }}\n");
    for text in [
        "steps: { s: { run: x } }".to_owned(),
        "name: j".to_owned(),
        top("unknown: 1"),
        top("timeout: 30"),
        top("retry_budget: lots"),
        top("best_effort: { min_datacenters: 0 }"),
        step("argv: [x]"),
        step("input: 3"),
        step("retry: { max_attempts: 0 }"),
        step("retry: { max_attempts: many }"),
        step("retry: { initial_delay: 1m1h }"),
        step("retry: { initial_delay: 5, jitter: 2 }"),
        step("retry: { backoff: quadratic }"),
        step("retry: { initial_delay: 5s, backoff_base_ms: 5 }"),
        step("retry: {}\n    retry_config: {}"),
        step("retry: { rules: [{ exit: 1 }] }"),
        step("for_each: { range: 1, output: x }"),
        step("on_failure: { run: x, argv: [y] }"),
        step("resources: { memory: 512 }"),
        step("parallelism: 0"),
    ] {
        assert!(read(&text).is_err(), "loads: {text}");
        assert!(!validator.is_valid(&json(&text)), "valid: {text}");
    }
}
