//! Servers that share a database: each has its part of the jobs, any of them takes any request, and what one had goes on when it is gone.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::{Value, json};
use steadfast_store::testing::{TestCluster, query};

use super::harness::{
    Place, Process, STORE_URL, Server, ask, attempt_states, gated, number, step, wait_for,
};

/// Longer than it takes until another server has what one had.
const LEASE_MS: u64 = 15_000;
const SHARDS: usize = 64;

fn server(place: &Place, url: &str, name: &str) -> Server {
    let order = place.server().data(name).set(STORE_URL, url).lease(LEASE_MS);
    order.at_a_port_of_its_own().start()
}

fn worker(place: &Place, servers: &[&Server], name: &str) -> Process {
    let addresses: Vec<String> = servers.iter().map(|server| server.url()).collect();
    let worker = place.worker(&addresses.join(","), name).folder(name).slots(4).start();
    for server in servers {
        server.until_worker(name, "connected");
    }
    worker
}

/// By their owners.
fn shards(url: &str) -> BTreeMap<String, usize> {
    let rows = query(
        url,
        "SELECT owner || ' ' || count(*) FROM steadfast.shards WHERE owner IS NOT NULL GROUP BY owner",
    );
    let row = |row: &String| {
        let (owner, count) = row.trim_matches(['(', ')', '"']).split_once(' ').expect("both");
        (owner.to_owned(), count.parse().expect("a number"))
    };
    rows.iter().map(row).collect()
}

#[track_caller]
fn until_spread(url: &str, servers: usize) {
    wait_for(&format!("shards that are spread over {servers}"), || {
        let shards = shards(url);
        let is_even = shards.values().all(|has| *has <= SHARDS.div_ceil(servers));
        (shards.len() == servers && is_even).then_some(())
    });
}

fn one_step(script: &str, items: u32) -> String {
    let step =
        json!({ "run": script, "for_each": { "range": items }, "retry": { "max_attempts": 1 } });
    json!({ "name": "j", "steps": { "s": step } }).to_string()
}

#[track_caller]
fn was_charged_nothing(status: &Value) {
    assert_eq!(status["state"], "succeeded", "{status:#}");
    for item in step(status, 0)["items"].as_array().expect("items") {
        assert_eq!(attempt_states(item), ["succeeded"], "{item:#}");
        assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 0));
    }
}

/// One test, because a cluster takes long to start and each test may be a process.
#[test]
fn servers_share_a_database() {
    let Some(cluster) = TestCluster::shared() else { return };
    any_server_takes_any_request(&cluster.database());
    what_a_server_had_that_was_killed_goes_on_elsewhere(&cluster.database());
    one_that_slept_has_nothing_any_more_and_begins_anew(&cluster.database());
    one_that_is_told_to_stop_gives_everything_up_at_once(&cluster.database());
}

fn any_server_takes_any_request(url: &str) {
    let place = Place::new();
    let servers = ["one", "two"].map(|name| server(&place, url, name));
    until_spread(url, 2);
    let [one, two] = &servers;
    let _worker = worker(&place, &[one, two], "w1");
    for (here, there) in [(one, two), (two, one)] {
        let job = here.submit(&one_step("true", 3));
        let watched = place.call(&["watch", &job, "--server", &there.url()]);
        assert!(watched.contains("succeeded"), "{watched}");
        assert_eq!(there.status(&job)["state"], "succeeded");

        let job = here.submit(&one_step("sleep 300", 1));
        here.until(&job, |status| step(status, 0)["counts"]["running"] == 1);
        for (word, state) in [("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")] {
            there.post(&format!("/v1/jobs/{job}/{word}"));
            assert_eq!(here.status(&job)["state"], state);
        }
        let again = there.ask("POST", &format!("/v1/jobs/{job}/pause"), &[], "");
        assert_eq!(again.expect("an answer").status, 409, "it has ended");
    }
    // One job, whoever takes it.
    let job = json!({ "name": "once", "steps": { "s": { "run": "true" } } }).to_string();
    let addresses = servers.each_ref().map(|server| server.address.clone());
    let submit = |address: &str, key: &str| {
        let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
        let accepted = ask(address, "POST", "/v1/jobs", &headers, &job).expect("an answer");
        accepted.json()["id"].as_str().expect("an id").to_owned()
    };
    for nth in 0..10 {
        let key = format!("key-{nth}");
        let (submit, key) = (&submit, &key);
        let ids = std::thread::scope(|scope| {
            let both =
                addresses.each_ref().map(|address| scope.spawn(move || submit(address, key)));
            both.map(|submitted| submitted.join().expect("no panic"))
        });
        assert_eq!(ids[0], ids[1], "{key}");
    }
}

fn what_a_server_had_that_was_killed_goes_on_elsewhere(url: &str) {
    let place = Place::new();
    let servers = ["one", "two", "three"].map(|name| server(&place, url, name));
    until_spread(url, 3);
    let all: Vec<&Server> = servers.iter().collect();
    let _workers = ["w1", "w2", "w3"].map(|name| worker(&place, &all, name));
    let jobs: Vec<String> =
        servers.iter().map(|server| server.submit(&one_step(&gated(&place, "gate"), 3))).collect();
    place.has_lines("ran", 9);
    let [one, two, three] = servers;
    one.process.kill();
    until_spread(url, 2);
    for (job, server) in jobs.iter().zip([&two, &three, &two]) {
        server.until(job, |status| step(status, 0)["counts"]["running"] == 3);
    }
    place.open("gate");
    for job in &jobs {
        was_charged_nothing(&three.end(job));
    }
    assert_eq!(place.lines("ran").len(), 9, "nothing ran twice");
    two.process.kill();
    until_spread(url, 1);
    was_charged_nothing(&three.end(&three.submit(&one_step("true", 2))));
}

fn one_that_slept_has_nothing_any_more_and_begins_anew(url: &str) {
    let place = Place::new();
    let servers = ["one", "two"].map(|name| server(&place, url, name));
    until_spread(url, 2);
    let [one, two] = &servers;
    let _worker = worker(&place, &[one, two], "w1");
    let job = one.submit(&one_step(&gated(&place, "gate"), 3));
    place.has_lines("ran", 3);
    one.process.signal(Signal::STOP);
    wait_for("the other to have everything", || (shards(url).len() == 1).then_some(()));
    place.open("gate");
    was_charged_nothing(&two.end(&job));
    one.process.signal(Signal::CONT);
    one.process.says("ServerTakenOver");
    until_spread(url, 2);
    was_charged_nothing(&one.status(&job));
    // It serves as before.
    for server in [one, two] {
        was_charged_nothing(&server.end(&server.submit(&one_step("true", 2))));
    }
    assert_eq!(place.lines("ran").len(), 3, "nothing ran twice");
}

fn one_that_is_told_to_stop_gives_everything_up_at_once(url: &str) {
    let place = Place::new();
    let servers = ["one", "two"].map(|name| server(&place, url, name));
    until_spread(url, 2);
    let [mut one, two] = servers;
    let _worker = worker(&place, &[&one, &two], "w1");
    let job = one.submit(&one_step(&gated(&place, "gate"), 2));
    place.has_lines("ran", 2);
    one.process.signal(Signal::TERM);
    assert!(one.process.ends().success(), "{}", one.process.said());
    until_spread(url, 1);
    place.open("gate");
    was_charged_nothing(&two.end(&job));
    assert_eq!(place.lines("ran").len(), 2, "nothing ran twice");
}
