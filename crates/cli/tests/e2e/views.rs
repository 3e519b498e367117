//! What people are told while nothing moves, and of workers that are put aside.

use std::io::{BufRead as _, BufReader};

use rustix::process::Signal;
use serde_json::json;

use super::harness::{Place, Server, gated, item, step, wait_for};

#[test]
fn a_job_that_waits_for_a_worker_says_for_which() {
    let place = Place::new();
    let server = place.server().start();
    let explained = |job: &str| server.get(&format!("/v1/jobs/{job}/explain")).body;
    let submit = |more: serde_json::Value| {
        let mut step = json!({ "run": "true" });
        step.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        server.submit(&json!({ "name": "j", "steps": { "s": step } }).to_string())
    };
    let any = submit(json!({}));
    assert!(explained(&any).contains("no worker is connected"), "{}", explained(&any));
    assert_eq!(item(&server.status(&any))["state"], "ready");
    let _worker =
        place.worker(&server.url(), "w1").arg("--label", "disk=ssd").arg("--cpu", "2").start();
    server.end(&any);
    let big = submit(json!({ "resources": { "cpu": 8 } }));
    let labelled = submit(json!({ "labels": { "gpu": "yes" } }));
    let says = |job: &str, words: &str| {
        wait_for(words, || explained(job).contains(words).then_some(()));
    };
    says(&big, "no worker has 8 cpus; the largest has 2");
    says(&labelled, "no worker has the label gpu=yes");
    for job in [&big, &labelled] {
        let status = server.status(job);
        assert_eq!(status["state"], "pending", "no attempt of it has started");
        assert_eq!(status["runs"][0]["state"], "pending");
        assert_eq!(item(&status)["state"], "ready");
        assert_eq!(item(&status)["attempts"], json!([]));
        let listed = |state: &str| {
            let page = server.get(&format!("/v1/jobs?state={state}")).json();
            let jobs = page["jobs"].as_array().expect("jobs").clone();
            jobs.iter().any(|row| row["id"] == job.as_str() && row["state"] == state)
        };
        assert!(listed("pending") && !listed("running"), "the list and its filter agree");
        assert!(explained(job).contains("\"pending: "), "{}", explained(job));
    }
}

#[test]
fn a_worker_on_which_everything_fails_is_put_aside_and_says_why() {
    let place = Place::new();
    let server = place.server().lease(2000).set("STEADFAST_WORKERS__QUARANTINE_AFTER", "3").start();
    let _bad = place
        .worker(&server.url(), "bad")
        .slots(1)
        .arg("--pass-env", "BROKEN")
        .env("BROKEN", "yes")
        .start();
    server.until_worker("bad", "connected");
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": {
            "run": "[ -z \"$BROKEN\" ]", "for_each": { "range": 60 },
            "retry": { "max_attempts": 500, "backoff": "fixed", "initial_delay": "50ms" },
        } } })
        .to_string(),
    );
    server.until(&job, |status| {
        let items = step(status, 0)["items"].as_array().expect("items");
        items.iter().filter(|item| item["failures"] != 0).count() >= 3
    });
    let _good = place.worker(&server.url(), "good").slots(1).start();
    let bad = server.until_worker("bad", "quarantined");
    let why = bad["why"].as_str().expect("a reason");
    assert!(why.starts_with("failed ") && why.contains(" of `s`, others 0 of "), "{why}");
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(server.until_worker("good", "connected")["why"], json!(null));
}

#[test]
fn who_follows_a_job_over_a_restart_misses_nothing_and_hears_nothing_twice() {
    let place = Place::new();
    let server = place.server().lease(15_000).at_a_port_of_its_own().start();
    let address = server.address.clone();
    let _worker = place.worker(&server.url(), "w1").start();
    let job = server.submit(
        &json!({ "name": "j", "steps": {
            "a": { "run": "true" }, "b": { "needs": ["a"], "run": gated(&place, "gate") },
        } })
        .to_string(),
    );
    let follow = |server: &Server, after: u64| {
        let (path, after) = (format!("/v1/jobs/{job}/events"), after.to_string());
        let headers = [("Accept", "text/event-stream"), ("Last-Event-ID", &*after)];
        BufReader::new(server.send("GET", &path, &headers, "").expect("an answer")).lines()
    };
    let id = |line: std::io::Result<String>| -> Option<u64> {
        line.ok()?.strip_prefix("id:")?.trim().parse().ok()
    };
    place.has_lines("ran", 1);
    let mut following = follow(&server, 0);
    let first = following.by_ref().find_map(id);
    assert_eq!(first, Some(1));
    server.process.signal(Signal::TERM);
    let mut seen = vec![1];
    seen.extend(following.filter_map(id));
    drop(server);
    let server = place.server().lease(15_000).at(&address).start();
    place.open("gate");
    let last = *seen.last().expect("the first");
    seen.extend(follow(&server, last).filter_map(id));
    let all: Vec<u64> = (1..=server.events(&job).len() as u64).collect();
    assert_eq!(seen, all);
}

#[test]
fn a_paused_job_finishes_what_runs_and_starts_nothing_until_it_is_resumed() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let (ran, gate) = (place.text("ran"), place.text("gate"));
    let job = server.submit(
        &json!({ "name": "j", "steps": {
            "a": { "run": format!("echo a >> {ran}; while [ ! -e {gate} ]; do sleep 0.1; done") },
            "b": { "needs": ["a"], "run": format!("echo b >> {ran}") },
        } })
        .to_string(),
    );
    place.has_lines("ran", 1);
    assert_eq!(server.post(&format!("/v1/jobs/{job}/pause")).status, 200);
    place.open("gate");
    let paused = server.until(&job, |status| step(status, 0)["state"] == "succeeded");
    assert_eq!(paused["state"], "paused");
    wait_for("a free slot", || server.worker("w1").filter(|worker| worker["busy"] == 0));
    assert_eq!(place.lines("ran"), ["a"]);
    assert_eq!(server.post(&format!("/v1/jobs/{job}/resume")).status, 200);
    assert_eq!(server.end(&job)["state"], "succeeded");
    assert_eq!(place.lines("ran"), ["a", "b"]);
}
