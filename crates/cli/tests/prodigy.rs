//! Prodigy's documented examples, run for real: its seconds are hundredths of ours.
//!
//! docs/seeds/prodigy.md has them at their own size, planned and rehearsed.

mod helpers;

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use helpers::{Place, Ran};
use serde_json::{Value, json};

/// How late a retry may be on a machine that is busy with other tests. Never early.
const LATE_MS: u64 = 5000;

/// One step that always fails, unless `command` says otherwise.
fn play(name: &str, command: &str, retry_config: &str) -> (Place, Ran) {
    let place = Place::new(&format!("prodigy-{name}"));
    let ran = place.run(&format!(
        "name: {name}\nsteps:\n  s:\n    run: '{command}'\n    retry_config: {{ {retry_config} }}\n"
    ));
    place.replays();
    (place, ran)
}

/// The delays that were decided, each held against when the next attempt started.
fn delays(place: &Place) -> Vec<u64> {
    let events = place.history();
    let mut delays = vec![];
    let mut due = 0;
    for event in &events {
        match event["event"].as_str().expect("a name") {
            "RetryScheduled" => {
                assert_eq!(event["cause"], "failure");
                let delay = event["delay_ms"].as_u64().expect("a delay");
                due = event["due_at"].as_u64().expect("a time");
                assert_eq!(due, event["at"].as_u64().expect("a time") + delay);
                delays.push(delay);
            }
            "AttemptStarted" => {
                let at = event["at"].as_u64().expect("a time");
                assert!(at >= due, "attempt {} started early", event["attempt"]);
                assert!(due == 0 || at - due < LATE_MS, "{} ms late", at - due);
            }
            _ => {}
        }
    }
    delays
}

#[track_caller]
fn gave_up(ran: &Ran, attempts: usize, reason: &str) {
    assert_eq!((ran.exit, ran.state()), (Some(1), "failed"), "{}", ran.status);
    assert_eq!(ran.attempts("s"), [attempts]);
    let item = ran.item("s");
    assert_eq!(item["reason"], reason);
    // Both are kept: why there was no retry, and the last error.
    assert_eq!(item["last_error"], "exit code 1");
}

#[test]
fn example_1_the_budget_limits_before_the_attempts() {
    // Its documentation says about 8; the next delay is the cap of a minute, so it is 7.
    let config = "attempts: 100, retry_budget: 1200ms, backoff: { exponential: { base: 2.0 } }, \
                  initial_delay: 10ms, max_delay: 600ms";
    let (place, ran) = play("example-1", "sleep 0.03; exit 1", config);
    gave_up(&ran, 7, "delay_budget_exhausted");
    assert_eq!(delays(&place), [10, 20, 40, 80, 160, 320]);
    assert_eq!(ran.item("s")["delay_spent_ms"], 630);
    let shown = place.steadfast(&["status", "last"]).stdout;
    assert!(String::from_utf8_lossy(&shown).contains("Retry budget exhausted"));
}

#[test]
fn example_2_the_attempts_limit_before_the_budget() {
    // Its documentation adds up three delays; three attempts have two.
    let config = "attempts: 3, retry_budget: 6s, backoff: fixed, initial_delay: 50ms";
    let (place, ran) = play("example-2", "sleep 0.03; exit 1", config);
    gave_up(&ran, 3, "attempts_exhausted");
    assert_eq!(delays(&place), [50, 50]);
}

const TIMELINE: &str = "sleep 0.3; [ $STEADFAST_ATTEMPT = 4 ]";

#[test]
fn the_timeline_counts_delays_and_no_execution() {
    let config = "attempts: 10, retry_budget: 100ms, initial_delay: 10ms";
    let (place, ran) = play("timeline", TIMELINE, config);
    assert_eq!((ran.exit, ran.state()), (Some(0), "succeeded"));
    assert_eq!(ran.attempts("s"), [4]);
    assert_eq!(delays(&place), [10, 20, 40]);
    assert_eq!(ran.item("s")["delay_spent_ms"], 70);
    let at = |key: &str| ran.status[key].as_u64().expect("a time");
    // 30+1+30+2+30+4+30 = 127 seconds of its time, far beyond its budget of 10.
    assert!(at("finished_at_ms") - at("submitted_at_ms") >= 1270);
}

#[test]
fn the_timeline_with_a_budget_of_5s_fails_instead_of_the_third_retry() {
    let config = "attempts: 10, retry_budget: 50ms, initial_delay: 10ms";
    let (place, ran) = play("timeline-5s", TIMELINE, config);
    gave_up(&ran, 3, "delay_budget_exhausted");
    assert_eq!(delays(&place), [10, 20]);
}

#[test]
fn fast_failing_web_requests() {
    let config = "attempts: 10, retry_budget: 600ms, backoff: { exponential: { base: 2.0 } }, \
                  initial_delay: 5ms, max_delay: 100ms";
    let (place, ran) = play("web", "exit 1", config);
    gave_up(&ran, 10, "attempts_exhausted");
    assert_eq!(delays(&place), [5, 10, 20, 40, 80, 100, 100, 100, 100]);
}

#[test]
fn resilient_background_processing() {
    let config = "attempts: 20, retry_budget: 6s, backoff: fibonacci, initial_delay: 20ms, \
                  max_delay: 600ms";
    let (place, ran) = play("background", "exit 1", config);
    gave_up(&ran, 17, "delay_budget_exhausted");
    let mut wanted = vec![20, 20, 40, 60, 100, 160, 260, 420];
    wanted.resize(16, 600);
    assert_eq!(delays(&place), wanted);
}

#[test]
fn continuous_integration_with_a_strict_timeout() {
    let config = "attempts: 100, retry_budget: 4800ms, backoff: { exponential: { base: 2.0 } }, \
                  initial_delay: 10ms, max_delay: 300ms";
    let (place, ran) = play("ci", "exit 1", config);
    gave_up(&ran, 20, "delay_budget_exhausted");
    let mut wanted = vec![10, 20, 40, 80, 160];
    wanted.resize(19, 300);
    assert_eq!(delays(&place), wanted);
}

#[test]
fn its_own_test_at_its_own_size() {
    let config = "attempts: 10, initial_delay: 50ms, retry_budget: 100ms";
    let (place, ran) = play("own-test", "exit 1", config);
    gave_up(&ran, 2, "delay_budget_exhausted");
    assert_eq!(delays(&place), [50], "50 ms fit into 100, another 100 do not");
}

/// Its second mechanism: the budget has an expiry that an interruption does not move.
#[test]
fn a_budget_that_ran_out_while_nobody_was_there_ends_the_retries() {
    let place = Place::new("prodigy-resume");
    let file = place.write(
        "job.yaml",
        "name: resume\nsteps:\n  s:\n    run: 'exit 1'\n    \
         retry_config: { attempts: 10, retry_budget: 500ms, backoff: fixed, initial_delay: 400ms }\n",
    );
    let args = ["run".as_ref(), file.as_os_str()];
    let mut run = place.command(args).stdout(Stdio::piped()).spawn().expect("starts");
    let lines = BufReader::new(run.stdout.take().expect("piped")).lines();
    let waits = lines.map_while(Result::ok).find(|line| line.contains("attempt 2 in 400ms"));
    run.kill().expect("SIGKILL");
    run.wait().expect("gone");
    assert!(waits.is_some());
    // The downtime is what is tested, so it has to pass.
    assert!(Command::new("sleep").arg("0.6").status().expect("sleeps").success());
    let output = place.steadfast(&["resume", "last", "-o", "json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let ran = Ran { exit: output.status.code(), status };
    gave_up(&ran, 1, "delay_budget_exhausted");
    assert_eq!(ran.last_attempt("s")["exit_code"], json!(1));
    place.replays();
}
