//! One worker of two servers: they never race for a slot, and neither's end is the other's.

use std::fs;

use serde_json::json;

use super::harness::{Place, Process, Server, attempt_states, gated, is_there, item, wait_for};

const LEASE_MS: u64 = 2000;

fn one_step(script: &str) -> String {
    json!({ "name": "j", "steps": { "s": { "run": script, "retry": { "max_attempts": 1 } } } })
        .to_string()
}

fn many(script: &str, items: u32) -> String {
    let step = json!({ "run": script, "for_each": { "range": items } });
    json!({ "name": "many", "steps": { "s": step } }).to_string()
}

fn server(place: &Place, name: &str) -> Server {
    place.server().data(name).lease(LEASE_MS).at_a_port_of_its_own().start()
}

fn two_servers(place: &Place) -> [Server; 2] {
    ["one", "two"].map(|name| server(place, name))
}

fn worker(place: &Place, servers: &[Server; 2], slots: u32) -> Process {
    let addresses = servers.each_ref().map(Server::url).join(",");
    let worker = place.worker(&addresses, "w1").slots(slots).start();
    for server in servers {
        server.until_worker("w1", "connected");
    }
    worker
}

/// A line when it begins and one when it ends.
fn counted(place: &Place, name: &str, seconds: f64) -> String {
    let ran = place.text("ran");
    format!("echo begin {name} >> {ran}; sleep {seconds}; echo end {name} >> {ran}")
}

/// The most that ran at once.
fn most_at_once(lines: &[String]) -> i32 {
    let mut now = 0;
    let counts = lines.iter().map(|line| {
        now += if line.starts_with("begin") { 1 } else { -1 };
        now
    });
    counts.max().unwrap_or(0)
}

#[test]
fn jobs_of_two_servers_end_and_never_have_more_than_the_slots() {
    for slots in [1, 2] {
        let place = Place::new();
        let servers = two_servers(&place);
        let _worker = worker(&place, &servers, slots);
        let jobs: Vec<String> = ["one", "two"]
            .into_iter()
            .zip(&servers)
            .map(|(name, server)| server.submit(&many(&counted(&place, name, 0.1), 12)))
            .collect();
        for (server, job) in servers.iter().zip(&jobs) {
            let status = server.end(job);
            assert_eq!(status["state"], "succeeded", "{status:#}");
        }
        let lines = place.lines("ran");
        assert_eq!(lines.len(), 48, "something ran twice");
        assert!(most_at_once(&lines) <= slots as i32, "{slots}: {lines:?}");
        // While both have work neither waits until the other has none.
        let first_half = &lines[..24];
        for name in ["begin one", "begin two"] {
            let begun = first_half.iter().filter(|line| *line == name).count();
            assert!(begun >= 2, "{slots}: {lines:?}");
        }
    }
}

#[test]
fn a_server_has_the_slots_that_the_other_does_not_use() {
    let place = Place::new();
    let servers = two_servers(&place);
    let _worker = worker(&place, &servers, 4);
    servers[0].submit(&many(&gated(&place, "gate"), 10));
    // One is kept for the other, which can begin at once.
    place.has_lines("ran", 3);
    wait_for("the slots to be shown", || {
        let shown = servers[0].worker("w1")?;
        (shown["credits"] == 3 && shown["slots"] == 4 && shown["busy"] == 3).then_some(())
    });
    let other = servers[1].submit(&one_step("true"));
    assert_eq!(servers[1].end(&other)["state"], "succeeded");
    let table = place.call(&["workers", "--server", &servers[0].url()]);
    assert!(table.contains("3/3 of 4"), "{table}");
    place.open("gate");
}

#[test]
fn a_server_that_is_killed_takes_its_own_attempts_along_and_no_others() {
    let place = Place::new();
    let servers = two_servers(&place);
    let _worker = worker(&place, &servers, 2);
    let pids = |name: &str| format!("echo $$ >> {}; ", place.text(name));
    let [lost, kept] = [("first", &servers[0]), ("second", &servers[1])].map(|(name, server)| {
        server.submit(&one_step(&format!("{}{}", pids(name), gated(&place, "gate"))))
    });
    let [first, second] = ["first", "second"].map(|name| place.has_lines(name, 1)[0].clone());
    let [one, two] = servers;
    let address = one.address.clone();
    one.process.kill();
    wait_for("the lease of the first to end", || (!is_there(&first)).then_some(()));
    assert!(is_there(&second), "the other server answers");
    // Its slot is the other's by now.
    let next = two.submit(&one_step("true"));
    assert_eq!(two.end(&next)["state"], "succeeded");
    let one = place.server().data("one").lease(LEASE_MS).at(&address).start();
    one.until_worker("w1", "connected");
    place.open("gate");
    let status = one.end(&lost);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(attempt_states(item(&status)), ["worker_lost", "succeeded"]);
    let status = two.end(&kept);
    assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
}

#[test]
fn a_drain_by_one_server_leaves_the_work_of_the_other() {
    let place = Place::new();
    let servers = two_servers(&place);
    let mut worker = worker(&place, &servers, 2);
    let drained = servers[0].post("/v1/workers/w1/drain");
    assert_eq!((drained.status, &drained.json()["state"]), (200, &"draining".into()));
    let waits = servers[0].submit(&one_step("true"));
    // All slots are the other's now.
    let job = servers[1].submit(&many(&gated(&place, "gate"), 2));
    place.has_lines("ran", 2);
    place.open("gate");
    assert_eq!(servers[1].end(&job)["state"], "succeeded");
    assert_ne!(servers[0].status(&waits)["state"], "succeeded");
    let undrained = servers[0].post("/v1/workers/w1/undrain");
    assert_eq!(undrained.status, 200, "{}", undrained.body);
    assert_eq!(servers[0].end(&waits)["state"], "succeeded");
    for server in &servers {
        assert_eq!(server.post("/v1/workers/w1/drain").status, 200);
    }
    assert!(worker.ends().success(), "both have let it go");
}

#[test]
fn reports_for_both_servers_outlive_the_worker_and_each_hears_its_own() {
    let place = Place::new();
    let servers = ["one", "two"]
        .map(|name| place.server().data(name).lease(15_000).at_a_port_of_its_own().start());
    let first = worker(&place, &servers, 2);
    let jobs = servers.each_ref().map(|server| {
        let script = format!("echo printed; {}", gated(&place, "gate"));
        server.submit(&one_step(&script))
    });
    place.has_lines("ran", 2);
    let addresses = servers.each_ref().map(|server| server.address.clone());
    for server in servers {
        server.process.kill();
    }
    place.open("gate");
    let kept = place.path("worker-w1/reports");
    wait_for("both reports on the worker's disk", || {
        let entries = fs::read_dir(&kept).ok()?.flatten();
        let whole = entries.filter(|it| it.path().extension().is_none_or(|it| it != "tmp"));
        (whole.count() == 2).then_some(())
    });
    first.kill();
    let [one, two] = [("one", &addresses[0]), ("two", &addresses[1])]
        .map(|(name, address)| place.server().data(name).lease(15_000).at(address).start());
    let servers = [one, two];
    let _second = worker(&place, &servers, 2);
    for (server, job) in servers.iter().zip(&jobs) {
        let status = server.end(job);
        assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
        wait_for("its log", || {
            let log = place.call(&["logs", "--server", &server.url(), job]);
            log.contains("printed").then_some(())
        });
    }
    assert_eq!(place.lines("ran").len(), 2, "something ran twice");
}

#[test]
fn a_server_is_learned_of_from_another() {
    let place = Place::new();
    let two = server(&place, "two");
    let one = place.server().data("one").set("STEADFAST_SERVER__PEERS", &two.url()).start();
    let _worker = place.worker(&one.url(), "w1").slots(2).start();
    two.until_worker("w1", "connected");
    for server in [&one, &two] {
        let job = server.submit(&one_step("true"));
        assert_eq!(server.end(&job)["state"], "succeeded");
    }
}
