//! Servers and workers that die again and again, while many short attempts run: what was said is true.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{Place, Server, ask, at_the_end, item, number, pass, step, wait_for};

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
    let [at, it] = at_the_end(place, &mut server);
    let answer = place.call(&["replay", job, "-o", "json", &at, &it]);
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

#[test]
fn what_was_accepted_by_a_server_that_died_is_there_and_a_key_is_one_job() {
    const CLIENTS: u32 = 4;
    const EACH: u32 = 12;
    let place = Place::new();
    let first = place.server().at_a_port_of_its_own().start();
    let address = first.address.clone();
    let submit = |key: &str| {
        let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
        let body = json!({ "name": key, "steps": { "s": { "run": "true" } } }).to_string();
        // As often as it takes: whether an answer that never came was a yes only the key tells.
        wait_for("an answer", || {
            let reply = ask(&address, "POST", "/v1/jobs", &headers, &body)?;
            matches!(reply.status, 200 | 201).then(|| reply.json()["id"].clone())
        })
    };
    let (server, accepted) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let submit = &submit;
                scope.spawn(move || {
                    let keys = (0..EACH).map(|n| format!("key-{client}-{n}"));
                    keys.map(|key| submit(&key).to_string()).collect::<Vec<_>>()
                })
            })
            .collect();
        let mut server = first;
        for round in 1..=4 {
            let jobs = || server.get("/v1/jobs?limit=1000").json()["jobs"].as_array().map(Vec::len);
            wait_for("some jobs", || jobs().filter(|jobs| *jobs >= round * 6));
            server.process.kill();
            server = place.server().at(&address).start();
        }
        let told = clients.into_iter().flat_map(|client| client.join().expect("a client"));
        (server, told.collect::<BTreeSet<String>>())
    });
    let jobs = server.get("/v1/jobs?limit=1000").json()["jobs"].clone();
    let jobs = jobs.as_array().expect("jobs");
    let there: BTreeSet<String> = jobs.iter().map(|job| job["id"].to_string()).collect();
    let names: BTreeSet<&str> = jobs.iter().filter_map(|job| job["name"].as_str()).collect();
    assert_eq!(there, accepted);
    assert_eq!((jobs.len(), names.len()), (48, 48), "a key is one job");
    // And all of them run.
    let _worker = place.worker(&server.url(), "w1").start();
    for job in jobs {
        let job = job["id"].as_str().expect("an id");
        assert_eq!(server.end(job)["state"], "succeeded");
    }
}
