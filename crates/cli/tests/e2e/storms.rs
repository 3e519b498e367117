//! Servers and workers that die again and again, while many short attempts run: what was said is true.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Place, Server, item, number, pass, step};

fn many(place: &Place, items: u32) -> String {
    let ran = place.text("ran");
    json!({ "name": "many", "steps": { "s": {
        "run": format!("echo $STEADFAST_ATTEMPT_TOKEN $STEADFAST_ITEM_INDEX >> {ran}; sleep 0.05"),
        "for_each": { "range": items }, "retry": { "max_attempts": 1 },
    } } })
    .to_string()
}

fn succeeded(status: &Value) -> u64 {
    step(status, 0)["counts"]["succeeded"].as_u64().unwrap_or(0)
}

/// The log folded again is what the server says.
fn replays(place: &Place, mut server: Server, job: &str) {
    server.process.signal(Signal::TERM);
    assert!(server.process.ends().success(), "{}", server.process.said());
    let data = place.text("data");
    let answer = place.call(&["replay", job, "-o", "json", "--data", &data]);
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!((&answer["equal"], &answer["state"]), (&true.into(), &"succeeded".into()));
}

#[test]
fn a_server_that_dies_again_and_again_runs_nothing_twice() {
    const ITEMS: u32 = 100;
    let place = Place::new();
    // Workers try again after ever longer pauses, up to half a minute: none is lost here.
    let mut server = place.server().lease(40_000).at_a_port_of_its_own().start();
    let address = server.address.clone();
    let _workers =
        ["w1", "w2", "w3"].map(|name| place.worker(&server.url(), name).slots(2).start());
    let job = server.submit(&many(&place, ITEMS));
    for round in 1..=6 {
        // Some progress, then death at no particular moment of it.
        server.until(&job, |status| succeeded(status) >= round * 12);
        pass(Duration::from_millis(round * 7 % 20));
        server.process.kill();
        server = place.server().lease(40_000).at(&address).start();
    }
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    for item in step(&status, 0)["items"].as_array().expect("items") {
        assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 0), "{item:#}");
    }
    let ran = place.lines("ran");
    let items: BTreeSet<&str> = ran.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!((ran.len(), items.len()), (ITEMS as usize, ITEMS as usize), "{ran:?}");
    replays(&place, server, &job);
}

#[test]
fn workers_that_die_again_and_again_cost_no_failure_and_no_fence_is_used_twice() {
    const ITEMS: u32 = 80;
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let mut workers = Vec::from(
        ["w0", "w1", "w2"].map(|name| place.worker(&server.url(), name).slots(3).start()),
    );
    let job = server.submit(&many(&place, ITEMS));
    for round in 0..6usize {
        server.until(&job, |status| succeeded(status) >= round as u64 * 8);
        pass(Duration::from_millis(round as u64 * 11 % 40));
        let name = format!("w{}", round % 3);
        workers.remove(0).kill();
        workers.push(place.worker(&server.url(), &name).slots(3).start());
    }
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    let items = step(&status, 0)["items"].as_array().expect("items");
    assert!(items.iter().all(|item| item["failures"] == 0), "{status:#}");
    assert_eq!(item(&status)["state"], "succeeded");
    let ran = place.lines("ran");
    let tokens: BTreeSet<&str> = ran.iter().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(tokens.len(), ran.len(), "an attempt ran twice: {ran:?}");
    drop(workers);
    replays(&place, server, &job);
}
