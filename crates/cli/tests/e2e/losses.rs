//! Workers that die, sleep, or are told to go: the item runs elsewhere, and no failure is charged.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::harness::{
    Place, Server, attempt_states, attempt_workers, gated, hangup, is_there, item, now, number,
    pass, wait_for,
};

fn one_step(script: &str) -> String {
    json!({ "name": "j", "steps": { "s": { "run": script, "retry": { "max_attempts": 1 } } } })
        .to_string()
}

#[test]
fn a_worker_killed_mid_attempt_is_a_preemption_and_not_a_failure() {
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let first = place.worker(&server.url(), "w1").start();
    let job = server.submit(&one_step(&gated(&place, "gate")));
    place.has_lines("ran", 1);
    let _second = place.worker(&server.url(), "w2").start();
    server.until_worker("w2", "connected");
    first.kill();
    let ran = place.has_lines("ran", 2);
    place.open("gate");
    let status = server.end(&job);
    let item = item(&status);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 1));
    assert_eq!(attempt_states(item), ["worker_lost", "succeeded"]);
    assert_eq!(attempt_workers(item), ["w1", "w2"]);
    assert_eq!(item["attempts"][0]["is_worker_failure"], true);
    assert_eq!(item["attempts"][1]["is_worker_failure"], false);
    assert_eq!(ran.len(), 2);
    assert_ne!(ran[0].split(' ').next(), ran[1].split(' ').next(), "a fence of its own");
}

#[test]
fn a_worker_that_slept_past_its_lease_is_not_heard_and_ends_what_it_ran() {
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let first = place.worker(&server.url(), "w1").start();
    let pids = place.text("pids");
    let script = format!("echo $$ >> {pids}; {}", gated(&place, "gate-$STEADFAST_ATTEMPT"));
    let job = server.submit(&one_step(&script));
    place.has_lines("ran", 1);
    let pid = place.has_lines("pids", 1)[0].clone();
    first.signal(Signal::STOP);
    let _second = place.worker(&server.url(), "w2").start();
    place.has_lines("ran", 2);
    // The sleeper's attempt succeeds now, while its worker can neither see nor tell.
    place.open("gate-1");
    wait_for("the first process to end", || (!is_there(&pid)).then_some(()));
    first.signal(Signal::CONT);
    server.until_worker("w1", "connected");
    // Its report has been answered when it has a free slot again, by its own count and the server's.
    assert_eq!(server.worker("w1").expect("it is back")["busy"], 0);
    assert_eq!(server.status(&job)["state"], "running", "its word counted");
    place.open("gate-2");
    let status = server.end(&job);
    let item = item(&status);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(attempt_states(item), ["worker_lost", "succeeded"]);
    assert_eq!(attempt_workers(item), ["w1", "w2"]);
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 1));
    let successes = server.event_names(&job);
    assert_eq!(successes.iter().filter(|name| *name == "ItemSucceeded").count(), 1);
    let ran = place.lines("ran");
    assert_eq!(ran.len(), 2, "{ran:?}");
    assert_ne!(ran[0].split(' ').next(), ran[1].split(' ').next());
}

#[test]
fn a_process_that_is_still_running_when_its_worker_wakes_past_the_lease_is_killed() {
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let first = place.worker(&server.url(), "w1").start();
    let pids = place.text("pids");
    let script = format!("echo $$ >> {pids}; {}", gated(&place, "gate-$STEADFAST_ATTEMPT"));
    let job = server.submit(&one_step(&script));
    let pid = place.has_lines("pids", 1)[0].clone();
    first.signal(Signal::STOP);
    let _second = place.worker(&server.url(), "w2").start();
    place.has_lines("ran", 2);
    assert!(is_there(&pid), "nobody could have ended it yet");
    first.signal(Signal::CONT);
    wait_for("the worker to end it", || (!is_there(&pid)).then_some(()));
    place.open("gate-2");
    let status = server.end(&job);
    assert_eq!(attempt_states(item(&status)), ["worker_lost", "succeeded"]);
    assert_eq!(number(&item(&status)["failures"]), 0);
    assert_eq!(place.lines("ran").len(), 2);
}

#[test]
fn a_worker_cut_off_from_its_server_ends_what_it_runs_at_the_end_of_its_lease() {
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let worker = place.worker(&server.url(), "w1").start();
    let pids = place.text("pids");
    server.submit(&one_step(&format!("echo $$ >> {pids}; {}", gated(&place, "gate"))));
    let pid = place.has_lines("pids", 1)[0].clone();
    let gone_at = now();
    server.process.kill();
    wait_for("the worker to end it", || (!is_there(&pid)).then_some(()));
    // A beat of a tenth before the end may have been the last that was answered.
    assert!(gone_at.elapsed() >= Duration::from_millis(500), "{:?}", gone_at.elapsed());
    assert_eq!(place.lines("ran").len(), 1);
    drop(worker);
}

#[test]
fn a_drained_worker_finishes_what_it_runs_and_takes_nothing_new() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let mut first = place.worker(&server.url(), "w1").slots(4).start();
    let one = server.submit(&one_step(&gated(&place, "gate")));
    place.has_lines("ran", 1);
    let drained = server.post("/v1/workers/w1/drain");
    assert_eq!((drained.status, &drained.json()["state"]), (200, &"draining".into()));
    let two = server.submit(&one_step("true"));
    // It has three free slots; only another worker gets the job moving.
    let _second = place.worker(&server.url(), "w2").start();
    let status = server.end(&two);
    assert_eq!(attempt_workers(item(&status)), ["w2"], "{status:#}");
    assert_eq!(server.status(&one)["state"], "running");
    place.open("gate");
    let status = server.end(&one);
    assert_eq!(status["state"], "succeeded");
    assert_eq!(attempt_states(item(&status)), ["succeeded"]);
    assert_eq!(number(&item(&status)["preemptions"]), 0);
    // Then it leaves by itself.
    assert!(first.ends().success());
    server.until_gone("w1");
}

#[test]
fn a_drained_worker_that_has_nothing_to_do_leaves_at_once() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let mut worker = place.worker(&server.url(), "w1").start();
    server.until_worker("w1", "connected");
    let drained = server.post("/v1/workers/w1/drain");
    assert_eq!((drained.status, &drained.json()["state"]), (200, &"draining".into()));
    assert!(worker.ends().success());
    server.until_gone("w1");
}

#[test]
fn draining_a_worker_that_does_not_exist_says_so() {
    let place = Place::new();
    let server = place.server().start();
    let reply = server.post("/v1/workers/nobody/drain");
    assert_eq!(reply.status, 404, "{}", reply.body);
    assert!(reply.body.contains("nobody"), "{}", reply.body);
}

#[test]
fn sigterm_to_a_worker_hands_its_work_on_at_once() {
    hands_its_work_on(Signal::TERM);
}

#[test]
fn a_worker_whose_terminal_is_closed_hands_its_work_on_at_once() {
    hands_its_work_on(hangup());
}

fn hands_its_work_on(told_by: Signal) {
    let place = Place::new();
    // A lease that nobody here waits for.
    let server = place.server().lease(60_000).start();
    let mut first = place.worker(&server.url(), "w1").start();
    let told = place.text("told");
    let script = format!("trap 'echo told >> {told}; exit 9' TERM; {}", gated(&place, "gate"));
    let job = server.submit(&one_step(&script));
    place.has_lines("ran", 1);
    let _second = place.worker(&server.url(), "w2").start();
    server.until_worker("w2", "connected");
    let asked = now();
    first.signal(told_by);
    place.has_lines("ran", 2);
    assert!(asked.elapsed() < Duration::from_secs(20), "it waited for the lease");
    assert!(first.ends().success());
    assert_eq!(place.lines("told"), ["told"], "it had its grace");
    server.until_gone("w1");
    place.open("gate");
    let status = server.end(&job);
    let item = item(&status);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(attempt_states(item), ["worker_lost", "succeeded"]);
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 1));
}

#[test]
fn what_does_not_end_when_told_is_killed_when_the_grace_is_over() {
    let place = Place::new();
    let server = place.server().lease(60_000).start();
    let mut worker = place.worker(&server.url(), "w1").arg("--grace", "300ms").start();
    let pids = place.text("pids");
    let script = format!("trap '' TERM; echo $$ >> {pids}; {}", gated(&place, "gate"));
    let job = server.submit(&one_step(&script));
    place.has_lines("ran", 1);
    let asked = now();
    worker.signal(Signal::TERM);
    assert!(worker.ends().success());
    assert!(asked.elapsed() >= Duration::from_millis(300), "it had no grace");
    assert!(!is_there(&place.lines("pids")[0]));
    let status = server.until_item(&job, "ready");
    assert_eq!(attempt_states(&status), ["worker_lost"]);
}

/// How many groups the server made durable.
fn commits(server: &Server) -> String {
    let metrics = server.get("/metrics").body;
    let count = "steadfast_store_commit_duration_seconds_count ";
    let line = metrics.lines().find_map(|line| line.strip_prefix(count));
    line.unwrap_or_else(|| panic!("no {count}in {metrics}")).to_owned()
}

#[test]
fn with_all_workers_gone_jobs_wait_and_the_server_does_nothing() {
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let worker = place.worker(&server.url(), "w1").start();
    let job = server.submit(&one_step(&gated(&place, "gate")));
    place.has_lines("ran", 1);
    worker.kill();
    server.until_gone("w1");
    server.until_item(&job, "ready");
    let before = commits(&server);
    // Two leases: what is done again and again for a job that waits would have been done in them.
    pass(Duration::from_secs(2));
    assert_eq!(commits(&server), before, "the server wrote while there was nothing to do");
    place.open("gate");
    let _back = place.worker(&server.url(), "w2").start();
    assert_eq!(server.end(&job)["state"], "succeeded");
}

#[test]
fn a_worker_that_comes_back_from_the_dead_ends_what_its_last_life_left() {
    let place = Place::new();
    // A lease that nobody here waits for.
    let server = place.server().lease(60_000).start();
    let worker = place.worker(&server.url(), "w1").start();
    let pids = place.text("pids");
    let script = format!("echo $$ >> {pids}; {}", gated(&place, "gate"));
    let job = server.submit(&one_step(&script));
    let pid = place.has_lines("pids", 1)[0].clone();
    worker.kill();
    assert!(is_there(&pid), "there is nobody to end it");
    let _again = place.worker(&server.url(), "w1").start();
    place.has_lines("ran", 2);
    assert!(!is_there(&pid), "two attempts of one item at once");
    place.open("gate");
    let status = server.end(&job);
    let item = item(&status);
    assert_eq!(attempt_states(item), ["worker_lost", "succeeded"], "{status:#}");
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 1));
}

#[test]
fn what_is_cancelled_while_its_worker_sleeps_is_over_at_once_and_ends_when_it_wakes() {
    let place = Place::new();
    let server = place.server().lease(60_000).start();
    let worker = place.worker(&server.url(), "w1").start();
    let pids = place.text("pids");
    let job = server.submit(&one_step(&format!("echo $$ >> {pids}; {}", gated(&place, "gate"))));
    let pid = place.has_lines("pids", 1)[0].clone();
    worker.signal(Signal::STOP);
    server.post(&format!("/v1/jobs/{job}/cancel"));
    assert_eq!(server.end(&job)["state"], "cancelled");
    assert!(is_there(&pid));
    worker.signal(Signal::CONT);
    wait_for("the worker to end it", || (!is_there(&pid)).then_some(()));
    assert_eq!(place.lines("ran").len(), 1);
}

#[test]
fn a_name_is_free_when_the_lease_of_a_silent_worker_is_over() {
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let first = place.worker(&server.url(), "w1").start();
    server.until_worker("w1", "connected");
    first.signal(Signal::STOP);
    let _second = place.worker(&server.url(), "w1").folder("second").slots(3).start();
    wait_for("the second to come in", || server.worker("w1").filter(|w| w["slots"] == 3));
    // The sleeper wakes outside, and says why.
    first.signal(Signal::CONT);
    first.says("a worker named w1 is connected already");
    let status = server.end(&server.submit(&one_step("true")));
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(server.worker("w1").expect("the second")["slots"], 3);
}
