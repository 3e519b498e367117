//! Jobs over datacenters, one of which vanishes.

use std::time::Duration;

use serde_json::{Value, json};

use super::harness::{Place, Process, Server, gated, item, number, pass, step};

const HERE: &str = "us-east";
const THERE: &str = "eu-west";

/// A worker in each datacenter.
fn both(place: &Place, server: &Server) -> (Process, Process) {
    let worker = |datacenter: &str| {
        let worker = place.worker(&server.url(), datacenter).datacenter(datacenter).start();
        server.until_worker(datacenter, "connected");
        worker
    };
    (worker(HERE), worker(THERE))
}

/// In the first datacenter it succeeds at once, in the other it waits for its gate.
fn script(place: &Place) -> String {
    let ran = place.text("ran");
    format!(
        "if [ $STEADFAST_DATACENTER = {HERE} ]; then echo here >> {ran}; else {}; fi",
        gated(place, "gate")
    )
}

fn job(place: &Place, more: &Value, step_more: &Value) -> String {
    let mut step = json!({ "run": script(place), "retry": { "max_attempts": 1 } });
    let mut job = json!({ "name": "dcs", "datacenters": [HERE, THERE] });
    let merge = |into: &mut Value, more: &Value| {
        let (into, more) = (into.as_object_mut().expect("a map"), more.as_object().expect("a map"));
        into.extend(more.clone());
    };
    merge(&mut step, step_more);
    merge(&mut job, more);
    job["steps"] = json!({ "s": step });
    job.to_string()
}

/// Started in both; then the second datacenter is gone.
fn vanished(place: &Place, server: &Server, job: &str) -> (String, Process) {
    let (here, there) = both(place, server);
    let job = server.submit(job);
    place.has_lines("ran", 2);
    there.kill();
    (job, here)
}

#[test]
fn a_strict_job_whose_datacenter_vanished_fails_when_nobody_has_taken_it_in_time() {
    let place = Place::new();
    let server = place.server().lease(800).start();
    let text = job(&place, &json!({}), &json!({ "scheduling_timeout": "1s" }));
    let (job, _here) = vanished(&place, &server, &text);
    let status = server.end(&job);
    assert_eq!(status["state"], "failed", "{status:#}");
    assert_eq!(status["completion"]["reason"], "run_failed");
    assert_eq!(status["runs"][0]["state"], "succeeded");
    let there = &step(&status, 1)["items"][0];
    assert_eq!(there["reason"], "unschedulable", "{status:#}");
    assert_eq!((number(&there["failures"]), number(&there["preemptions"])), (0, 1));
}

#[test]
fn a_strict_job_whose_datacenter_vanished_fails_at_its_timeout() {
    let place = Place::new();
    let server = place.server().lease(800).start();
    let text = job(&place, &json!({ "timeout": "3s" }), &json!({}));
    let (job, _here) = vanished(&place, &server, &text);
    let explained = server.until(&job, |status| step(status, 1)["items"][0]["state"] == "ready");
    assert_eq!(explained["state"], "running");
    let status = server.end(&job);
    assert_eq!(status["state"], "failed", "{status:#}");
    assert_eq!(status["completion"]["reason"], "timed_out");
    let took = number(&status["finished_at_ms"]) - number(&status["submitted_at_ms"]);
    assert!((3000..5000).contains(&took), "{took} ms");
}

#[test]
fn best_effort_succeeds_at_once_when_enough_datacenters_have() {
    let place = Place::new();
    let server = place.server().lease(800).start();
    let best = json!({ "best_effort": { "min_datacenters": 1, "deadline": "1h" } });
    let (job, _here) = vanished(&place, &server, &job(&place, &best, &json!({})));
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(status["completion"]["reason"], "min_datacenters_reached");
    assert_eq!(status["completion"]["ratio"], 0.5);
}

#[test]
fn best_effort_below_its_minimum_is_partial_at_the_deadline() {
    let place = Place::new();
    let server = place.server().lease(800).start();
    let best = json!({ "best_effort": { "min_datacenters": 2, "deadline": "2s" } });
    let (job, _here) = vanished(&place, &server, &job(&place, &best, &json!({})));
    let status = server.end(&job);
    assert_eq!(status["state"], "partial", "{status:#}");
    assert_eq!(status["completion"]["reason"], "deadline_expired");
    let took = number(&status["finished_at_ms"]) - number(&status["submitted_at_ms"]);
    assert!((2000..4000).contains(&took), "{took} ms");
    assert_eq!(item(&status)["state"], "succeeded", "what there is is kept");
}

/// The second datacenter reports when the job is long over.
fn late(policy: &str) -> (Value, Value, Value) {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _workers = both(&place, &server);
    let best = json!({ "best_effort":
        { "min_datacenters": 1, "deadline": "1h", "late_results": policy } });
    let job = server.submit(&job(&place, &best, &json!({})));
    let before = server.end(&job);
    assert_eq!(before["state"], "succeeded", "{before:#}");
    place.has_lines("ran", 2);
    place.open("gate");
    let after = server.until(&job, |status| status["runs"][1]["state"] == "succeeded");
    let late = super::harness::wait_for("the late result", || {
        server.events(&job).into_iter().find(|event| event["event"] == "LateDatacenterResult")
    });
    server.process.says("BestEffortCompletion");
    server.process.says("LateDatacenterResult");
    let metrics = server.get("/metrics").body;
    let counted = "best_effort_completions_total{reason=\"min_datacenters_reached\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
    (before, after, late)
}

#[test]
fn a_late_result_is_logged_and_changes_no_state() {
    let (before, after, late) = late("log_only");
    assert_eq!((&late["run"], &late["added"]), (&1.into(), &false.into()));
    assert_eq!(after["state"], before["state"]);
    assert_eq!(after["finished_at_ms"], before["finished_at_ms"]);
    assert_eq!(after["completion"], before["completion"]);
}

#[test]
fn a_late_result_that_is_to_be_added_is_added_and_changes_no_state() {
    let (before, after, late) = late("update_result");
    assert_eq!((&late["run"], &late["added"]), (&1.into(), &true.into()));
    assert_eq!(after["state"], before["state"]);
    assert_eq!(after["finished_at_ms"], before["finished_at_ms"]);
    assert_eq!(after["completion"]["reason"], before["completion"]["reason"]);
}

#[test]
fn a_datacenter_without_workers_gets_nothing_from_the_others() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _here = place.worker(&server.url(), "w1").datacenter(HERE).start();
    let job = server.submit(&job(&place, &json!({}), &json!({})));
    server.until(&job, |status| status["runs"][0]["state"] == "succeeded");
    // The free worker must leave it alone.
    pass(Duration::from_millis(300));
    assert_eq!(place.lines("ran"), ["here"]);
    let waiting = server.get(&format!("/v1/jobs/{job}/explain")).body;
    assert!(waiting.contains("no worker in eu-west is connected"), "{waiting}");
    let _there = place.worker(&server.url(), "w2").datacenter(THERE).start();
    place.open("gate");
    assert_eq!(server.end(&job)["state"], "succeeded");
}

#[test]
fn datacenters_share_one_budget_and_a_restart_does_not_fill_it_up() {
    let place = Place::new();
    let server = place.server().lease(15_000).at_a_port_of_its_own().start();
    let address = server.address.clone();
    let _workers = both(&place, &server);
    let ran = place.text("ran");
    let job = server.submit(
        &json!({
            "name": "budget", "datacenters": [HERE, THERE], "retry_budget": { "total": 3, "per_step": 3 },
            "steps": { "s": {
                "run": format!("echo $STEADFAST_DATACENTER >> {ran}; exit 1"),
                "retry": { "max_attempts": 20, "backoff": "fixed", "initial_delay": "400ms" },
            } },
        })
        .to_string(),
    );
    server.until(&job, |status| number(&status["retry_budget"]["used"]) >= 2);
    server.process.kill();
    let server = place.server().lease(15_000).at(&address).start();
    let status = server.end(&job);
    assert_eq!(status["state"], "failed", "{status:#}");
    assert_eq!(status["retry_budget"]["used"], 3);
    let reasons: Vec<&Value> =
        (0..2).map(|run| &step(&status, run)["items"][0]["reason"]).collect();
    let out =
        |reason: &&Value| *reason == "job_budget_exhausted" || *reason == "step_budget_exhausted";
    assert!(reasons.iter().any(out), "{status:#}");
    // Two first attempts and three retries; the last may have been cut off.
    assert!((4..=5).contains(&place.lines("ran").len()), "{:?}", place.lines("ran"));
}
