//! What one disk or one job does stops nothing else.

use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;

use super::harness::{Place, Server, ask, attempt_states, gated, item, now, pass, wait_for};

const LEASE_MS: u64 = 5000;
/// Twelve leases.
const STALL: Duration = Duration::from_mins(1);

fn job(script: &str) -> String {
    json!({ "name": "j", "steps": { "only": { "run": script } } }).to_string()
}

fn explain(server: &Server, id: &str) -> u16 {
    server.get(&format!("/v1/jobs/{id}/explain")).status
}

#[test]
fn a_store_that_stalls_for_a_minute_costs_no_attempt() {
    let place = Place::with_data_folders();
    let server = place.server().lease(LEASE_MS).start();
    let _worker = place.worker(&server.url(), "w").start();
    let during = server.submit(&job(&gated(&place, "during")));
    let after = server.submit(&job(&gated(&place, "after")));
    place.has_lines("ran", 2);
    let beats = || -> f64 {
        let metrics = server.get("/metrics");
        assert_eq!(metrics.status, 200);
        let line =
            metrics.body.lines().find(|line| line.starts_with("steadfast_heartbeats_total "));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("it is counted")
    };

    let other = Connection::open(place.path("data/steadfast.db")).expect("the server's");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let (began, mut answered) = (now(), beats());
    // It ends, and its worker reports it to a server that cannot keep it.
    place.open("during");
    let (address, key) = (server.address.clone(), "Idempotency-Key");
    let headers = [("Content-Type", "application/json"), (key, "stalled")];
    let submitting = thread::spawn(move || {
        ask(&address, "POST", "/v1/jobs", &headers, &job("true")).expect("an answer")
    });
    while began.elapsed() < STALL {
        pass(Duration::from_secs(1));
        for id in [&during, &after] {
            assert_eq!(server.status(id)["state"], "running", "what is durable is shown");
            assert_eq!(explain(&server, id), 200);
        }
        let worker = &server.get("/v1/workers").json()["workers"][0];
        assert_eq!(worker["state"], "connected", "{worker}");
        let before = std::mem::replace(&mut answered, beats());
        assert!(answered > before, "no beat was answered in a second: they come every half");
    }
    let open = submitting.join().expect("an answer");
    assert_eq!((open.status, &open.json()["code"]), (202, &json!("unconfirmed")), "{open:?}");
    let id = open.json()["id"].as_str().expect("an id").to_owned();
    let again = server.ask("POST", "/v1/jobs", &headers, &job("true")).expect("an answer");
    assert_eq!(again.status, 503, "the same is still under way: {again:?}");
    other.execute_batch("ROLLBACK").expect("the lock was ours");

    place.open("after");
    for id in [&during, &after, &id] {
        let status = server.end(id);
        assert_eq!(status["state"], "succeeded", "{status:#}");
        assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
    }
    assert_eq!(place.lines("ran").len(), 2, "no attempt was killed and begun again");
    let again = server.ask("POST", "/v1/jobs", &headers, &job("true")).expect("an answer");
    assert_eq!((again.status, again.json()["id"].as_str()), (200, Some(&*id)), "{again:?}");
}

#[test]
fn of_a_thousand_jobs_with_one_that_is_damaged_all_others_end() {
    const JOBS: usize = 1000;
    let place = Place::with_data_folders();
    let server = place.server().start();
    let ids: Vec<String> = (0..JOBS).map(|_| server.submit(&job(":"))).collect();
    server.process.kill();
    let harm = "UPDATE events SET lines = \'x\' WHERE job = (SELECT n FROM jobs WHERE id = ?1)";
    let file = Connection::open(place.path("data/steadfast.db")).expect("the server's");
    assert_eq!(file.execute(harm, [&ids[500]]).expect("it is text"), 1);
    drop(file);

    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w").start();
    let count = |state: &str| {
        let page = server.get(&format!("/v1/jobs?limit={JOBS}&state={state}")).json();
        page["jobs"].as_array().expect("jobs").len()
    };
    let mut last = 0;
    // As long as it goes on, it is waited for.
    while last < JOBS - 1 {
        last = wait_for("one more to end", || Some(count("succeeded")).filter(|now| *now > last));
    }
    assert_eq!(count("stuck"), 1);
    let explained = place.call(&["list", "--state", "stuck", "--server", &server.url()]);
    assert!(explained.contains(&ids[500]), "{explained}");
    let reply = server.get(&format!("/v1/jobs/{}/explain", ids[500]));
    assert_eq!((reply.status, &reply.json()["code"]), (500, &json!("stuck")), "{reply:?}");
    let detail = reply.json()["detail"].to_string();
    assert!(detail.contains("checksum") && detail.contains("steadfast purge"), "{detail}");
}
