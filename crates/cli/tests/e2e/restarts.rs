//! The server dies and comes back; nobody's running work is lost, and nothing is forgotten.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::harness::{
    Place, Server, attempt_states, attempt_workers, gated, is_there, item, now, number, pass, step,
    wait_for,
};

const LEASE_MS: u64 = 15_000;

fn again(place: &Place, server: Server) -> Server {
    let address = server.address.clone();
    server.process.kill();
    place.server().lease(LEASE_MS).at(&address).start()
}

/// The store takes no write of it any more; that is nobody else's trouble.
#[test]
fn a_job_that_is_taken_away_from_under_a_server_affects_no_other() {
    let place = Place::with_data_folders();
    let server = place.server().start_up();
    let submit = |gate: &str| {
        let step = json!({ "run": gated(&place, gate) });
        server.submit(&json!({ "name": gate, "steps": { "s": step } }).to_string())
    };
    let (gone, stays) = (submit("gone"), submit("stays"));
    place.has_lines("ran", 2);
    let file = place.path("data/steadfast.db");
    let mut store = steadfast_store::SqliteStore::open(&file).expect("the server's");
    assert!(steadfast_store::Journal::remove(&mut store, &gone).expect("removed"));
    place.open("gone");
    server.process.says("StoreRewound");
    place.open("stays");
    assert_eq!(server.end(&stays)["state"], "succeeded");
    let next =
        server.submit(&json!({ "name": "n", "steps": { "s": { "run": "true" } } }).to_string());
    assert_eq!(server.end(&next)["state"], "succeeded");
}

#[test]
fn a_server_killed_while_fifty_attempts_run_finds_them_all_again() {
    let place = Place::new();
    let server = place.server().lease(LEASE_MS).at_a_port_of_its_own().start();
    let _workers: Vec<_> = (1..=5)
        .map(|n| {
            let name = format!("w{n}");
            // The machine has fewer cores than the test has attempts; they only wait.
            place.worker(&server.url(), &name).slots(10).start()
        })
        .collect();
    let job = server.submit(
        &json!({ "name": "fifty", "steps": { "s": {
            "run": gated(&place, "gate-$((STEADFAST_ITEM_INDEX % 3))"),
            "for_each": { "range": 50 }, "retry": { "max_attempts": 1 },
        } } })
        .to_string(),
    );
    place.has_lines("ran", 50);
    server.until(&job, |status| step(status, 0)["counts"]["running"] == 50);
    let address = server.address.clone();
    server.process.kill();
    // A third of them ends with nobody to tell, a third while their workers come back.
    place.open("gate-0");
    let server = place.server().lease(LEASE_MS).at(&address).start();
    place.open("gate-1");
    server.until(&job, |status| step(status, 0)["counts"]["succeeded"] == 34);
    assert_eq!(step(&server.status(&job), 0)["counts"]["running"], 16);
    place.open("gate-2");
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    let items = step(&status, 0)["items"].as_array().expect("items");
    assert_eq!(items.len(), 50);
    for item in items {
        assert_eq!(attempt_states(item), ["succeeded"], "{item:#}");
        assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 0), "{item:#}");
    }
    let mut ran = place.lines("ran");
    ran.sort();
    ran.dedup();
    assert_eq!(place.lines("ran").len(), 50, "something ran twice");
    assert_eq!(ran.len(), 50, "two attempts had one fence");
}

#[test]
fn a_report_kept_by_a_worker_that_died_too_counts_when_both_are_back() {
    let place = Place::new();
    let server = place.server().lease(LEASE_MS).at_a_port_of_its_own().start();
    let address = server.address.clone();
    let worker = place.worker(&server.url(), "w1").start();
    let output = r#"echo '{"n":7}' > "$STEADFAST_OUTPUT""#;
    let job = server.submit(
        &json!({ "name": "kept", "steps": { "s": {
            "run": format!("{}; {output}", gated(&place, "gate")), "retry": { "max_attempts": 1 },
        } } })
        .to_string(),
    );
    place.has_lines("ran", 1);
    server.process.kill();
    place.open("gate");
    let kept = place.path("worker-w1/reports");
    wait_for("the report on the worker's disk", || {
        let entries = std::fs::read_dir(&kept).ok()?;
        entries
            .flatten()
            .any(|entry| !entry.file_name().to_string_lossy().ends_with(".tmp"))
            .then_some(())
    });
    worker.kill();
    let server = place.server().lease(LEASE_MS).at(&address).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let status = server.end(&job);
    let item = item(&status);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(attempt_states(item), ["succeeded"]);
    assert_eq!(item["output"], json!({ "n": 7 }));
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 0));
    assert_eq!(place.lines("ran").len(), 1, "it ran twice");
}

/// On `PostgreSQL` another server might have vouched for the worker.
const TOLERANCE: &str = "STEADFAST_STORE__OUTAGE_TOLERANCE";

#[test]
fn a_worker_that_does_not_come_back_after_a_restart_is_lost_when_its_lease_is_over() {
    let place = Place::new();
    let server = place.server().lease(1000).set(TOLERANCE, "0s").at_a_port_of_its_own().start();
    let address = server.address.clone();
    let worker = place.worker(&server.url(), "w1").start();
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } }).to_string(),
    );
    place.has_lines("ran", 1);
    server.process.kill();
    worker.kill();
    let server = place.server().lease(1000).set(TOLERANCE, "0s").at(&address).start();
    let _other = place.worker(&server.url(), "w2").start();
    place.has_lines("ran", 2);
    place.open("gate");
    let status = server.end(&job);
    assert_eq!(attempt_states(item(&status)), ["worker_lost", "succeeded"], "{status:#}");
    assert_eq!(number(&item(&status)["failures"]), 0);
}

#[test]
fn an_idempotency_key_outlives_the_server() {
    let place = Place::new();
    let server = place.server().at_a_port_of_its_own().start();
    let submit = |server: &Server, body: &str| {
        let headers = [("Content-Type", "application/yaml"), ("Idempotency-Key", "k-1")];
        server.ask("POST", "/v1/jobs", &headers, body).expect("an answer")
    };
    let body = "name: once\nsteps: { s: { run: 'true' } }\n";
    let first = submit(&server, body);
    assert_eq!(first.status, 201, "{}", first.body);
    let server = again(&place, server);
    let second = submit(&server, body);
    assert_eq!(second.status, 200, "{}", second.body);
    assert_eq!(second.json()["id"], first.json()["id"]);
    let other = submit(&server, "name: other\nsteps: { s: { run: 'true' } }\n");
    assert_eq!(other.status, 409, "{}", other.body);
    assert_eq!(server.get("/v1/jobs").json()["jobs"].as_array().expect("jobs").len(), 1);
}

#[test]
fn a_retry_that_was_due_while_the_server_was_down_happens_at_once_and_is_charged_once() {
    let place = Place::new();
    let server = place.server().lease(LEASE_MS).at_a_port_of_its_own().start();
    let _worker = place.worker(&server.url(), "w1").start();
    let ran = place.text("ran");
    let script = format!("echo $STEADFAST_ATTEMPT >> {ran}; [ $(wc -l < {ran}) -gt 1 ]");
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": {
            "run": script, "retry": { "max_attempts": 2, "initial_delay": "300ms" },
        } } })
        .to_string(),
    );
    let due = number(&server.until_item(&job, "backing_off")["retry_available_at_ms"]);
    let address = server.address.clone();
    server.process.kill();
    wait_for("the retry to be due", || (super::harness::unix_ms() > due).then_some(()));
    assert_eq!(place.lines("ran"), ["1"]);
    let server = place.server().lease(LEASE_MS).at(&address).start();
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(attempt_states(item(&status)), ["failed", "succeeded"]);
    assert_eq!(number(&item(&status)["failures"]), 1);
    assert_eq!(number(&item(&status)["delay_spent_ms"]), 300);
}

#[test]
fn a_server_told_to_stop_ends_in_order_and_its_successor_goes_on() {
    let place = Place::new();
    let mut server = place.server().lease(LEASE_MS).at_a_port_of_its_own().start();
    let address = server.address.clone();
    let _worker = place.worker(&server.url(), "w1").start();
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } }).to_string(),
    );
    place.has_lines("ran", 1);
    let asked = now();
    server.process.signal(Signal::TERM);
    assert!(server.process.ends().success(), "{}", server.process.said());
    // Sessions of workers are no requests that it waits for.
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let server = place.server().lease(LEASE_MS).at(&address).start();
    place.open("gate");
    let status = server.end(&job);
    assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
    assert_eq!(place.lines("ran").len(), 1);
}

#[test]
fn a_server_that_sleeps_for_less_than_a_lease_loses_nobody() {
    let place = Place::new();
    let server = place.server().lease(3000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } }).to_string(),
    );
    place.has_lines("ran", 1);
    server.process.signal(Signal::STOP);
    pass(Duration::from_millis(1500));
    server.process.signal(Signal::CONT);
    place.open("gate");
    let status = server.end(&job);
    assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
}

#[test]
fn a_server_that_sleeps_for_longer_than_a_lease_charges_no_failure() {
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let pids = place.text("pids");
    let script = format!("echo $$ >> {pids}; {}", gated(&place, "gate"));
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": { "run": script, "retry": { "max_attempts": 1 } } } })
            .to_string(),
    );
    let pid = place.has_lines("pids", 1)[0].clone();
    server.process.signal(Signal::STOP);
    wait_for("the worker to end what it runs", || (!is_there(&pid)).then_some(()));
    server.process.signal(Signal::CONT);
    place.has_lines("ran", 2);
    place.open("gate");
    let status = server.end(&job);
    assert_eq!(attempt_states(item(&status)), ["worker_lost", "succeeded"], "{status:#}");
    assert_eq!(number(&item(&status)["failures"]), 0);
}

#[test]
fn a_worker_that_drains_goes_on_draining_under_the_next_server() {
    let place = Place::new();
    let server = place.server().lease(LEASE_MS).at_a_port_of_its_own().start();
    let mut first = place.worker(&server.url(), "w1").slots(4).start();
    let text =
        json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } }).to_string();
    let one = server.submit(&text);
    place.has_lines("ran", 1);
    assert_eq!(server.post("/v1/workers/w1/drain").status, 200);
    let server = again(&place, server);
    server.until_worker("w1", "draining");
    let two =
        server.submit(&json!({ "name": "j", "steps": { "s": { "run": "true" } } }).to_string());
    let _second = place.worker(&server.url(), "w2").start();
    assert_eq!(attempt_workers(item(&server.end(&two))), ["w2"]);
    place.open("gate");
    let status = server.end(&one);
    assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
    assert!(first.ends().success());
}
