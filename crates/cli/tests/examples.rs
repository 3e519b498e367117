//! The jobs under examples/ end as their comments say, on any machine with a POSIX shell.

mod helpers;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use helpers::{Place, Ran};
use serde_json::{Value, json};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// Plans it, rehearses it, runs it.
#[track_caller]
fn play(name: &str, exit: i32, state: &str, attempts: &[(&str, &[usize])]) -> (Place, Ran) {
    let place = Place::new(&format!("example-{name}"));
    let file = examples().join(name).with_extension("yaml");
    let path = file.to_str().expect("a plain path");
    let plan = place.steadfast(&["plan", path, "-o", "json"]);
    assert_eq!(plan.status.code(), Some(0), "{plan:?}");
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!(plan["valid"], true);
    let script = examples().join(name).with_extension("script.yaml");
    let script = script.exists().then(|| script.to_str().expect("a plain path").to_owned());
    let mut rehearse = vec!["rehearse", path];
    rehearse.extend(script.iter().flat_map(|script| ["--script", script]));
    let rehearsal = place.steadfast(&rehearse);
    let shown = String::from_utf8_lossy(&rehearsal.stdout).into_owned();
    assert_eq!(rehearsal.status.code(), Some(0), "{rehearsal:?}");
    assert!(shown.contains("succeeded after"), "{shown}");

    let ran = place.run_file(&file, &[]);
    assert_eq!((ran.exit, ran.state()), (Some(exit), state), "{}", ran.status);
    assert_eq!(place.status(), ran.status, "what `run` says is what `status` says");
    let steps = ran.status["runs"][0]["steps"].as_object().expect("steps");
    let had: BTreeMap<_, _> = steps.keys().map(|step| (&**step, ran.attempts(step))).collect();
    let wanted: BTreeMap<_, _> = attempts.iter().map(|(step, n)| (*step, n.to_vec())).collect();
    assert_eq!(had, wanted);
    place.replays();
    (place, ran)
}

fn logs(place: &Place, step: &str) -> String {
    let output = place.steadfast(&["logs", "last", step]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_flaky_download_succeeds_at_the_third_attempt() {
    let (place, ran) =
        play("flaky-download", 0, "succeeded", &[("download", &[3]), ("report", &[1])]);
    assert_eq!(ran.item("download")["output"], json!({"bytes": 1256, "attempt": 3}));
    assert_eq!(ran.item("download")["delay_spent_ms"], 600);
    assert_eq!(logs(&place, "report"), "1256 bytes at attempt 3\n");
}

#[test]
fn a_map_over_files_retries_the_one_that_failed_and_adds_up() {
    let (place, ran) = play(
        "map-over-files",
        0,
        "succeeded",
        &[("list", &[1]), ("count", &[1, 2, 1]), ("total", &[1])],
    );
    // Without a script nobody knows what there is to map over, and it is said.
    let path = examples().join("map-over-files.yaml");
    let rehearsal = place.steadfast(&["rehearse", path.to_str().expect("a plain path")]);
    assert_eq!(rehearsal.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&rehearsal.stdout).into_owned();
    assert!(shown.contains("the output `list.files` is missing"), "{shown}");

    let counts = ran.step("count")["items"].as_array().expect("items");
    let counts: Vec<_> = counts.iter().map(|item| &item["output"]).collect();
    assert_eq!(counts, [3, 5, 4]);
    assert_eq!(ran.item("total")["output"], 12);
    assert_eq!(logs(&place, "total"), "[3,5,4] makes 12\n");
}

#[test]
fn an_exit_status_decides_whether_it_is_tried_again() {
    let attempts: &[(&str, &[usize])] =
        &[("busy", &[3]), ("misconfigured", &[2]), ("never-reached", &[])];
    let (_, ran) = play("exit-code-filter", 1, "failed", attempts);
    assert_eq!(ran.item("misconfigured")["reason"], "exit_code_excluded");
    assert_eq!(ran.last_attempt("misconfigured")["exit_code"], 2);
    assert_eq!(ran.step("never-reached")["state"], "skipped");
}

#[test]
fn a_fallback_stands_in_and_a_failed_run_is_undone_latest_first() {
    let attempts: &[(&str, &[usize])] =
        &[("prices", &[2]), ("reserve", &[1]), ("charge", &[1]), ("ship", &[2])];
    let (place, ran) = play("fallback-and-rollback", 1, "failed", attempts);
    assert_eq!(ran.step("prices")["fallback"]["state"], "succeeded");
    assert_eq!(ran.step("ship")["items"][0]["reason"], "attempts_exhausted");
    assert!(logs(&place, "reserve").contains("reserved, with prices from mirror\n"));
    let undone = |step: &str| {
        let undo = &ran.step(step)["compensation"];
        assert_eq!(undo["state"], "succeeded", "{undo}");
        let attempt = &undo["attempts"][0];
        [&attempt["started_at_ms"], &attempt["finished_at_ms"]].map(|at| at.as_u64().expect("ms"))
    };
    assert!(undone("charge")[1] <= undone("reserve")[0], "the latest first");
}

#[test]
fn a_time_budget_binds_long_before_a_hundred_attempts() {
    let (place, ran) = play("time-budget", 1, "failed", &[("poll", &[4])]);
    assert_eq!(ran.item("poll")["reason"], "delay_budget_exhausted");
    assert_eq!(ran.item("poll")["delay_spent_ms"], 700);
    let plan = place.steadfast(&[
        "plan",
        examples().join("time-budget.yaml").to_str().expect("a plain path"),
        "-o",
        "json",
    ]);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!(plan["steps"]["poll"]["binding_limit"], "delay_budget");
    assert_eq!(plan["steps"]["poll"]["delays_ms"], json!([100, 200, 400]));
}

#[test]
fn every_example_that_runs_is_run_here() {
    let here = include_str!("examples.rs");
    for entry in fs::read_dir(examples()).expect("examples/ is there") {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name");
        let name = name.trim_end_matches(".yaml").trim_end_matches(".script");
        // The pipeline is for rehearsals: its scripts do not exist.
        if name != "flaky-pipeline" {
            assert!(here.contains(&format!("\"{name}\"")), "{name} has no test");
        }
    }
}
