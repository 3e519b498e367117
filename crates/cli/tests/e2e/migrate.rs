//! A data folder whose jobs go to a database, and back: what was open goes on there, and costs nothing.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use steadfast_store::testing::{TestCluster, query};

use super::harness::{
    Place, Process, STORE_URL, Server, address_of_its_own, attempt_states, gated, item, number,
    pass, step, wait_for,
};

/// Longer than it takes to move a few jobs and to start the next server.
const LEASE_MS: u64 = 30_000;

/// One test, because a cluster takes long to start and each test may be a process.
#[test]
fn a_data_folder_is_moved_to_postgres_and_back() {
    let Some(cluster) = TestCluster::shared() else { return };
    open_jobs_go_on_there_and_back_here(&cluster.database());
    a_move_that_is_killed_goes_on(&cluster.database());
}

fn stopped(mut server: Server) {
    server.process.signal(Signal::TERM);
    assert!(server.process.ends().success(), "{}", server.process.said());
}

fn migrate(place: &Place, from: &str, to: &str) -> Value {
    let told = place.call(&["migrate", "--from", from, "--to", to, "-o", "json"]);
    serde_json::from_str::<Value>(&told).expect("JSON")["moved"].clone()
}

/// Why no server starts there.
fn refused(mut process: Process, why: &str) {
    assert_eq!(process.ends().code(), Some(2), "{}", process.said());
    process.says(why);
}

fn submit_with_key(server: &Server, job: &str, key: &str) -> String {
    let headers = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
    let accepted = server.ask("POST", "/v1/jobs", &headers, job).expect("an answer");
    accepted.json()["id"].as_str().expect("an id").to_owned()
}

/// A job each that runs on the worker, waits for its time, and backs off.
struct Open {
    gate: String,
    running: String,
    delayed: String,
    backing_off: String,
}

impl Open {
    fn submit(place: &Place, server: &Server, gate: &str) -> Self {
        let once = json!({ "max_attempts": 1 });
        let running = json!({ "name": "running", "steps": { "s": {
            "run": gated(place, gate), "for_each": { "range": 2 }, "retry": once,
        } } });
        let delayed = json!({ "name": "delayed", "not_before": "in 8s", "steps": { "s": {
            "run": format!("echo late >> {}", place.text("late")), "retry": once,
        } } });
        // Its budget is spent by the delay, and would be by anything that is counted twice.
        let retry = json!({
            "max_attempts": 2, "backoff": "fixed", "initial_delay": "8s", "delay_budget": "9s",
        });
        let backing_off = json!({ "name": "backing-off", "steps": { "s": {
            "run": format!("[ -e {} ]", place.text(gate)), "retry": retry,
        } } });
        let submit = |job: Value| server.submit(&job.to_string());
        let open = Self {
            gate: gate.to_owned(),
            running: submit(running),
            delayed: submit(delayed),
            backing_off: submit(backing_off),
        };
        server.until(&open.running, |status| step(status, 0)["counts"]["running"] == 2);
        server.until_item(&open.backing_off, "backing_off");
        open
    }

    /// All end well, with nothing lost and nothing charged that did not fail.
    fn end(&self, place: &Place, server: &Server) {
        server.until(&self.running, |status| step(status, 0)["counts"]["running"] == 2);
        place.open(&self.gate);
        let status = server.end(&self.running);
        assert_eq!(status["state"], "succeeded", "{status:#}");
        for item in step(&status, 0)["items"].as_array().expect("items") {
            assert_eq!(attempt_states(item), ["succeeded"], "{item:#}");
            assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 0));
        }
        let status = server.end(&self.delayed);
        assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
        let status = server.end(&self.backing_off);
        assert_eq!(attempt_states(item(&status)), ["failed", "succeeded"], "{status:#}");
        assert_eq!(number(&item(&status)["preemptions"]), 0);
    }
}

fn open_jobs_go_on_there_and_back_here(url: &str) {
    let (place, address) = (Place::with_data_folders(), address_of_its_own());
    let (here, back) = (place.text("data"), place.text("back"));
    let server = place.server().lease(LEASE_MS).at(&address).start();
    let _worker = place.worker(&server.url(), "w1").slots(8).start();
    fs::write(place.path("data.txt"), "attached").expect("writes");
    let file = json!({ "name": "file", "steps": {
        "s": { "run": "cat data.txt", "files": ["data.txt"] },
    } });
    fs::write(place.path("file.json"), file.to_string()).expect("writes");
    let ended = place.call(&["submit", &place.text("file.json"), "--server", &server.url()]);
    let ended = ended.trim();
    server.end(ended);
    let simple = json!({ "name": "keyed", "steps": { "s": { "run": "true" } } }).to_string();
    let keyed = submit_with_key(&server, &simple, "once");
    server.end(&keyed);
    let logs = |server: &Server| {
        wait_for("its log", || {
            let logs = place.call(&["logs", ended, "--server", &server.url()]);
            logs.contains("attached").then_some(())
        });
    };
    logs(&server);
    place.call(&["token", "create", "--scope", "read", "--name", "ci", "--data", &here]);
    let open = Open::submit(&place, &server, "gate-1");
    let served = place.command(&["migrate", "--from", &here, "--to", url]).output();
    let served = served.expect("it starts");
    assert_eq!(served.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&served.stderr).contains("a server has it"));
    stopped(server);

    let moved = migrate(&place, &here, url);
    assert_eq!(
        (&moved["jobs"], &moved["open"], &moved["files"]),
        (&json!(5), &json!(3), &json!(1))
    );
    refused(place.server().try_start("server"), "its jobs were moved to postgres://");
    let cancel = place.command(&["cancel", &open.running, "--data", &here]).output();
    let said = cancel.expect("it starts").stderr;
    assert!(String::from_utf8_lossy(&said).contains("its jobs were moved"));
    assert!(place.call(&["token", "list", "--store", url]).contains("ci"));
    let there = place.server().set(STORE_URL, url).lease(LEASE_MS).at(&address).start();
    open.end(&place, &there);
    assert_eq!(place.lines("ran").len(), 2, "nothing ran twice");
    assert_eq!(place.lines("late").len(), 1);
    logs(&there);
    assert_eq!(submit_with_key(&there, &simple, "once"), keyed);

    let open = Open::submit(&place, &there, "gate-2");
    stopped(there);
    let moved = migrate(&place, url, &back);
    assert_eq!((&moved["jobs"], &moved["open"]), (&json!(8), &json!(3)));
    refused(
        place.server().set(STORE_URL, url).try_start("server"),
        &format!("its jobs were moved to {back}"),
    );
    let last = place.server().data("back").lease(LEASE_MS).at(&address).start();
    open.end(&place, &last);
    assert_eq!(place.lines("ran").len(), 4, "nothing ran twice");
    assert_eq!(place.lines("late").len(), 2);
    logs(&last);
    assert_eq!(submit_with_key(&last, &simple, "once"), keyed);
    assert!(place.call(&["token", "list", "--data", &back]).contains("ci"));
}

fn a_move_that_is_killed_goes_on(url: &str) {
    const JOBS: usize = 300;
    let place = Place::with_data_folders();
    let here = place.text("data");
    let server = place.server().start();
    let job = json!({ "name": "j", "steps": { "s": { "run": "true" } } }).to_string();
    let ids: Vec<String> = (0..JOBS).map(|_| server.submit(&job)).collect();
    stopped(server);
    for later in [0, 150, 400] {
        let migrate = Process::start(place.command(&["migrate", "--from", &here, "--to", url]));
        migrate.says(" of 300 jobs are moved");
        pass(Duration::from_millis(later));
        migrate.kill();
    }
    // The last one may have been done.
    let is_moved = place.command(&["migrate", "--from", &here, "--to", url]).output();
    let said = String::from_utf8_lossy(&is_moved.expect("it starts").stderr).into_owned();
    assert!(
        said.contains("300 of 300 jobs") || said.contains("where they were moved to"),
        "{said}"
    );
    assert_eq!(query(url, "SELECT count(*) FROM steadfast.jobs"), ["(300)"]);
    refused(place.server().try_start("server"), "its jobs were moved to");
    let there = place.server().set(STORE_URL, url).start();
    let _worker = place.worker(&there.url(), "w1").slots(8).start();
    for id in &ids {
        let status = there.end(id);
        assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
    }
}
