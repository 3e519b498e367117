//! What failures cost, as the Fluster document has it, and what nothing else must cost.

use rustix::process::Signal;
use serde_json::json;

use super::harness::{
    Place, Server, attempt_states, attempt_workers, gated, item, number, pass, step, unix_ms,
};

/// A server with one worker, and what became of a job of one step.
fn ended(place: &Place, retry: &str, script: &str) -> (Server, serde_json::Value) {
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let job = server.submit(&one_step(retry, script));
    let status = server.end(&job);
    (server, status)
}

fn one_step(retry: &str, script: &str) -> String {
    json!({ "name": "j", "steps": { "s": { "run": script, "retry": serde_json::from_str::<serde_json::Value>(retry).expect("JSON") } } })
        .to_string()
}

/// Exits with `code` for the first `fails` attempts, counted outside.
fn fails(place: &Place, fails: u32, code: u32) -> String {
    let ran = place.text("ran");
    format!("echo $STEADFAST_ATTEMPT >> {ran}; [ $(wc -l < {ran}) -gt {fails} ] || exit {code}")
}

#[test]
fn a_step_that_fails_twice_and_then_succeeds_is_charged_two_failures() {
    let place = Place::new();
    let retry = r#"{ "max_attempts": 4, "initial_delay": "30ms" }"#;
    let (_server, status) = ended(&place, retry, &fails(&place, 2, 1));
    let item = item(&status);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(attempt_states(item), ["failed", "failed", "succeeded"]);
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (2, 0));
    assert_eq!(number(&item["delay_spent_ms"]), 30 + 60);
    assert_eq!(place.lines("ran"), ["1", "2", "3"]);
}

#[test]
fn a_step_that_fails_beyond_its_limit_fails_the_job() {
    let place = Place::new();
    let retry = r#"{ "max_attempts": 3, "initial_delay": "20ms" }"#;
    let (_server, status) = ended(&place, retry, &fails(&place, 99, 7));
    let item = item(&status);
    assert_eq!(status["state"], "failed", "{status:#}");
    assert_eq!(item["reason"], "attempts_exhausted");
    assert_eq!(number(&item["failures"]), 3);
    assert_eq!(item["attempts"][2]["exit_code"], 7);
    assert_eq!(place.lines("ran"), ["1", "2", "3"]);
}

#[test]
fn exit_codes_that_stop_are_not_tried_again_and_those_not_listed_neither() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let job = |filter: &str, code: u32| {
        let retry =
            format!(r#"{{ "max_attempts": 2, "initial_delay": "20ms", "exit_codes": {filter} }}"#);
        server.submit(&one_step(&retry, &format!("exit {code}")))
    };
    let cases = [
        (job(r#"{ "stop": [3] }"#, 3), "exit_code_excluded", 1),
        (job(r#"{ "stop": [3] }"#, 4), "attempts_exhausted", 2),
        (job(r#"{ "retry": [5] }"#, 4), "exit_code_not_listed", 1),
        (job(r#"{ "retry": [5] }"#, 5), "attempts_exhausted", 2),
        (job(r#"{ "retry": [5], "stop": [5] }"#, 5), "exit_code_excluded", 1),
    ];
    for (job, reason, attempts) in cases {
        let status = server.end(&job);
        assert_eq!(item(&status)["reason"], reason, "{status:#}");
        assert_eq!(attempt_states(item(&status)), vec!["failed"; attempts]);
    }
}

#[test]
fn what_is_cancelled_while_it_runs_is_ended_and_never_tried_again() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let worker = place.worker(&server.url(), "w1").start();
    let script = format!("echo $$ > {}; {}", place.text("pid"), gated(&place, "gate"));
    let retry = r#"{ "max_attempts": 5, "initial_delay": "10ms" }"#;
    let job = server.submit(&one_step(retry, &script));
    place.has_lines("ran", 1);
    assert_eq!(server.post(&format!("/v1/jobs/{job}/cancel")).status, 200);
    let status = server.end(&job);
    assert_eq!(status["state"], "cancelled");
    assert_eq!(attempt_states(item(&status)), ["killed"]);
    super::harness::wait_for("the process to be ended", || {
        (!super::harness::is_there(place.read("pid").trim())).then_some(())
    });
    super::harness::wait_for("the slot to be free", || {
        server.worker("w1").filter(|worker| worker["busy"] == 0)
    });
    drop(worker);
    assert_eq!(place.lines("ran").len(), 1);
    let item = item(&status);
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 0));
}

#[test]
fn of_eight_tasks_the_one_that_fails_once_costs_one_failure() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _workers = ["w1", "w2"].map(|name| place.worker(&server.url(), name).slots(2).start());
    let failed = place.text("failed");
    let script = format!(
        "[ $STEADFAST_ITEM_INDEX != 5 ] || [ -e {failed} ] || {{ touch {failed}; exit 1; }}"
    );
    let job = server.submit(
        &json!({ "name": "eight", "steps": { "s": {
            "run": script, "for_each": { "range": 8 },
            "retry": { "max_attempts": 2, "initial_delay": "20ms" },
        } } })
        .to_string(),
    );
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    let items = step(&status, 0)["items"].as_array().expect("items");
    let failures: Vec<u64> = items.iter().map(|item| number(&item["failures"])).collect();
    assert_eq!(failures, [0, 0, 0, 0, 0, 1, 0, 0]);
    assert!(items.iter().all(|item| item["preemptions"] == 0), "{status:#}");
}

#[test]
fn a_worker_that_goes_while_an_item_backs_off_costs_it_nothing_and_not_its_time() {
    let place = Place::new();
    let server = place.server().lease(800).start();
    let first = place.worker(&server.url(), "w1").start();
    let retry = r#"{ "max_attempts": 3, "initial_delay": "2500ms" }"#;
    let job = server.submit(&one_step(retry, &fails(&place, 1, 1)));
    let backing_off = server.until_item(&job, "backing_off");
    let due = number(&backing_off["retry_available_at_ms"]);
    first.kill();
    let _second = place.worker(&server.url(), "w2").start();
    server.until_gone("w1");
    server.until_worker("w2", "connected");
    assert!(unix_ms() < due, "the worker had to be lost before the retry was due");
    let status = server.end(&job);
    let item = item(&status);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (1, 0));
    assert_eq!(attempt_workers(item), ["w1", "w2"]);
    let began = number(&item["attempts"][1]["started_at_ms"]);
    assert!((due..due + 2000).contains(&began), "due at {due}, began at {began}");
}

#[test]
fn what_is_cancelled_while_it_backs_off_never_starts_again() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let retry = r#"{ "max_attempts": 3, "initial_delay": "900ms" }"#;
    let job = server.submit(&one_step(retry, &fails(&place, 9, 1)));
    let backing_off = server.until_item(&job, "backing_off");
    let due = number(&backing_off["retry_available_at_ms"]);
    server.post(&format!("/v1/jobs/{job}/cancel"));
    assert_eq!(server.end(&job)["state"], "cancelled");
    // Nothing is to happen when it would have been due.
    pass(std::time::Duration::from_millis(due.saturating_sub(unix_ms()) + 500));
    assert_eq!(place.lines("ran"), ["1"]);
    let names = server.event_names(&job);
    assert_eq!(names.iter().filter(|name| *name == "AttemptStarted").count(), 1, "{names:?}");
}

#[test]
fn losses_up_to_the_limit_are_survived_and_the_next_is_one_too_many() {
    let place = Place::new();
    let server = place.server().lease(3000).start();
    let retry = r#"{ "max_attempts": 1, "max_preemptions": 1 }"#;
    let job = server.submit(&one_step(retry, &gated(&place, "gate")));
    for loss in 1..=2 {
        let name = format!("w{loss}");
        let mut worker = place.worker(&server.url(), &name).arg("--grace", "100ms").start();
        place.has_lines("ran", loss);
        worker.signal(Signal::TERM);
        assert!(worker.ends().success());
    }
    let status = server.end(&job);
    let item = item(&status);
    assert_eq!(status["state"], "failed", "{status:#}");
    assert_eq!(item["reason"], "preemptions_exhausted");
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 1));
    assert_eq!(attempt_states(item), ["worker_lost", "worker_lost"]);
}

#[test]
fn an_attempt_that_takes_too_long_is_ended_and_is_a_failure() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let pids = place.text("pids");
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": {
            "run": format!("echo $$ >> {pids}; sleep 100"), "timeout": "300ms",
            "retry": { "max_attempts": 2, "initial_delay": "10ms" },
        } } })
        .to_string(),
    );
    let status = server.end(&job);
    assert_eq!(status["state"], "failed", "{status:#}");
    assert_eq!(attempt_states(item(&status)), ["timed_out", "timed_out"]);
    assert_eq!(number(&item(&status)["failures"]), 2);
    let pids = place.lines("pids");
    assert_eq!(pids.len(), 2);
    assert!(pids.iter().all(|pid| !super::harness::is_there(pid)), "{pids:?}");
}

#[test]
fn a_step_never_has_more_attempts_under_way_than_it_says_over_all_workers() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _workers =
        ["w1", "w2", "w3"].map(|name| place.worker(&server.url(), name).slots(4).start());
    std::fs::create_dir(place.path("now")).expect("a folder");
    let (now, seen) = (place.text("now"), place.text("seen"));
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": {
            "run": format!("touch {now}/$STEADFAST_ITEM_INDEX; ls {now} | wc -l >> {seen}; \
                            sleep 0.1; rm {now}/$STEADFAST_ITEM_INDEX"),
            "for_each": { "range": 12 }, "parallelism": 3,
        } } })
        .to_string(),
    );
    assert_eq!(server.end(&job)["state"], "succeeded");
    let most = place.lines("seen").iter().map(|n| n.trim().parse().expect("a number")).max();
    assert_eq!(most, Some(3u32));
}
