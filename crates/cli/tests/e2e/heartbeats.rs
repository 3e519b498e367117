//! Sessions: names, and beats that get lost on the way.

use serde_json::json;

use super::harness::{Place, attempt_states, attempt_workers, gated, item, number, step};
use super::played::Played;
use super::proxy::Proxy;

#[test]
fn a_second_worker_of_one_name_waits_outside_until_the_first_is_gone() {
    let place = Place::new();
    let server = place.server().lease(1500).start();
    let first = place.worker(&server.url(), "twin").start();
    server.until_worker("twin", "connected");
    let second = place.worker(&server.url(), "twin").folder("second").slots(3).start();
    second.says("a worker named twin is connected already");
    second.says("give this one another name");
    // The first is not disturbed by it.
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } }).to_string(),
    );
    place.has_lines("ran", 1);
    let workers = server.workers();
    assert_eq!(workers.len(), 1, "{workers:#?}");
    assert_ne!(workers[0]["slots"], 3, "{workers:#?}");
    first.kill();
    place.has_lines("ran", 2);
    assert_eq!(server.until_worker("twin", "connected")["slots"], 3);
    place.open("gate");
    let status = server.end(&job);
    assert_eq!(attempt_states(item(&status)), ["worker_lost", "succeeded"], "{status:#}");
    assert_eq!(attempt_workers(item(&status)), ["twin", "twin"]);
    assert_eq!(number(&item(&status)["failures"]), 0);
}

#[test]
fn two_workers_cannot_share_a_folder() {
    let place = Place::new();
    let server = place.server().start();
    let _first = place.worker(&server.url(), "w1").start();
    server.until_worker("w1", "connected");
    let mut second = place.worker(&server.url(), "w2").folder("worker-w1").start();
    assert_eq!(second.ends().code(), Some(2));
    second.says("is used by another worker");
}

#[test]
fn three_of_ten_beats_lost_on_the_way_lose_no_worker() {
    const LEASE_MS: u64 = 1000;
    let place = Place::new();
    let server = place.server().lease(LEASE_MS).start();
    let proxy = Proxy::start(&server.url(), 30, 20_261_115);
    let _workers: Vec<_> =
        (1..=4).map(|n| place.worker(&proxy.url(), &format!("w{n}")).slots(2).start()).collect();
    let job = server.submit(
        &json!({ "name": "beats", "steps": { "s": {
            "run": gated(&place, "gate"), "for_each": { "range": 8 }, "retry": { "max_attempts": 1 },
        } } })
        .to_string(),
    );
    place.has_lines("ran", 8);
    // Ten beats a lease and worker: what is wanted is six leases of four workers.
    proxy.until_beats(6 * 10 * 4);
    place.open("gate");
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    for item in step(&status, 0)["items"].as_array().expect("items") {
        assert_eq!(attempt_states(item), ["succeeded"], "a false loss: {item:#}");
        assert_eq!(number(&item["preemptions"]), 0);
    }
    assert_eq!(place.lines("ran").len(), 8);
    let (beats, dropped) = proxy.counts();
    assert!(dropped * 10 >= beats * 2 && dropped * 10 <= beats * 4, "{dropped} of {beats}");
    // A worker that hears nothing for most of a lease may try another connection; none is given up.
    assert!(proxy.sessions() >= 4);
    let said = server.process.said();
    assert!(!said.contains("WorkerLost") && said.contains("WorkerConnected"), "{said}");
}

#[test]
fn a_report_from_beyond_the_lease_is_refused_and_a_doubled_one_counts_once() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": { "run": "true", "retry": { "max_attempts": 1 } } } })
            .to_string(),
    );
    runtime.block_on(async {
        let mut silent = Played::comes(&server.url(), "silent").await;
        let first = silent.is_assigned().await;
        server.until_item(&job, "ready");
        let mut other = Played::comes(&server.url(), "other").await;
        let second = other.is_assigned().await;
        assert!(second.token > first.token);
        assert!(!silent.reports_success(&first).await, "a stale report counted");
        server.process.says("AttemptRejected");
        assert_eq!(server.status(&job)["state"], "running");
        assert!(other.reports_success(&second).await);
        assert!(!other.reports_success(&second).await, "it counted twice");
    });
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(attempt_states(item(&status)), ["worker_lost", "succeeded"]);
    let names = server.event_names(&job);
    assert_eq!(names.iter().filter(|name| *name == "ItemSucceeded").count(), 1);
}
