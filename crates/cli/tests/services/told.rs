//! What a person can find out: when and why a service was called again, and what a job waits for.

use serde_json::json;

use crate::common;
use crate::e2e::harness::{Place, wait_for};
use crate::helpers;
use crate::job;
use crate::served::worker;
use crate::service::{Answer, Service};

#[test]
fn history_lets_a_reader_reconstruct_when_and_why_a_service_was_called_again() {
    let service = Service::new(|seen| match seen.number {
        0 => Answer::text(503, "no room at the inn"),
        1 => Answer::json(&json!({ "success": false, "defer": "30ms", "error": "not ripe" })),
        2 => Answer::Nothing,
        _ => Answer::output(1),
    });
    let retry = "retry: { max_attempts: 4, backoff: [20ms, 40ms] }";
    let place = helpers::Place::new("told-history");
    let ran = place.run(&job(&format!("url: '{}'", service.url("/")), &[retry]));
    assert_eq!(ran.exit, Some(0), "{:#}", ran.status);
    let output = place.steadfast(&["history", "last"]);
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    // Each is said after the one before it.
    for (what, words) in [
        ("call attempt 1", &["503", "no room at the inn"][..]),
        ("call", &["20ms"]),
        ("call attempt 2", &["not ripe"]),
        ("call", &["30ms"]),
        ("call attempt 3", &["the connection was lost"]),
        ("call", &["40ms"]),
        ("call attempt 4", &[]),
        ("succeeded", &[]),
    ] {
        let says =
            |line: &&str| line.contains(what) && words.iter().all(|word| line.contains(word));
        assert!(
            lines.any(|line| says(&line)),
            "{what} {words:?} is not told after what is before it:\n{text}"
        );
    }
    let explained = place.steadfast(&["explain", "last"]);
    let explained = String::from_utf8(explained.stdout).expect("text");
    for words in [
        "no room at the inn",
        "not ripe",
        "the connection was lost",
        "retry in 20ms",
        "retry in 30ms",
        "retry in 40ms",
    ] {
        assert!(explained.contains(words), "{words}:\n{explained}");
    }
    place.replays();
}

#[test]
fn explain_says_that_a_callback_is_awaited_and_until_when() {
    let service = Service::always(Answer::status(202));
    let url = format!("url: '{}', mode: async, timeout: 10m", service.url("/"));
    let place = common::Place::new(&job(&url, &["heartbeat: 2m"]));
    let mut run = place.run(None);
    let id = run.id();
    let callback = service.called(1)[0].callback();
    let explained = wait_for("the wait", || {
        let output = place.call(&["explain", &id]);
        let text = String::from_utf8(output.stdout).expect("text");
        text.contains("callback").then_some(text)
    });
    assert!(explained.contains("for its callback, attempt 1"), "{explained}");
    let asked = place.json(&["explain", &id]);
    let waiting = &asked["waiting"][0];
    let started = place.json(&["status", &id])["runs"][0]["steps"]["call"]["items"][0]["attempts"]
        [0]["started_at_ms"]
        .as_u64()
        .expect("began");
    let until = waiting["until_ms"].as_u64().unwrap_or_else(|| panic!("until when: {waiting}"));
    assert!((started + 120_000..started + 180_000).contains(&until), "{waiting}");
    assert!(run.says("waits for its callback"));
    assert_eq!(callback.done(1).status, 200);
    assert_eq!(run.end().status.code(), Some(0));
    let told = place.told(&id).join("\n");
    assert!(told.contains("waits for its callback"), "{told}");
}

#[test]
fn a_job_that_only_calls_services_has_no_log_and_says_so() {
    let service = Service::always(Answer::output(1));
    let job = job(&format!("url: '{}'", service.url("/")), &[]);
    let words = "`call` only calls services, which print nothing here";
    let said = |output: std::process::Output| {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    };

    let here = helpers::Place::new("told-no-log");
    assert_eq!(here.run(&job).exit, Some(0));
    let told = said(here.steadfast(&["logs", "last", "call"]));
    assert!(told.contains(words), "{told}");

    let place = Place::new();
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let id = server.submit(&job);
    server.end(&id);
    let url = server.url();
    let status = place.call(&["status", &id, "--server", &url]);
    assert!(status.contains("✓ call  succeeded") && !status.contains("output:"), "{status}");
    let mut logs = place.command(&["logs", &id, "call", "--server", &url]);
    let told = said(logs.output().expect("starts"));
    assert!(told.contains(words), "{told}");
}
