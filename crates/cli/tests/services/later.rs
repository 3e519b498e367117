//! Services that call back, with `steadfast run`.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::common::{Ended, Place, Process};
use crate::e2e::harness::wait_for;
use crate::service::{Answer, Callback, Service};
use crate::{job, named};

/// Calls `service`, which calls back.
fn later(service: &Service, rest: &[&str]) -> String {
    job(&format!("url: '{}', mode: async", service.url("/")), rest)
}

const QUICK: &str = "retry: { max_attempts: 3, initial_delay: 1ms }";

/// And after `call` another step, which keeps the program there until the service lets it go.
fn held(service: &Service, rest: &[&str]) -> String {
    let last =
        format!("  last:\n    needs: [call]\n    http: {{ url: '{}' }}\n", service.url("/last"));
    later(service, rest) + &last
}

/// Says 202 to all but `/last`, which hangs the first time.
fn accepting() -> Service {
    Service::new(|seen| match (seen.path.as_str(), seen.attempt()) {
        ("/last", _) => Answer::Hang,
        _ => Answer::status(202),
    })
}

fn item(place: &Place, job: &str) -> Value {
    place.json(&["status", job])["runs"][0]["steps"]["call"]["items"][0].clone()
}

#[track_caller]
fn until(place: &Place, job: &str, state: &str) -> Value {
    wait_for(state, || Some(item(place, job)).filter(|item| item["state"] == state))
}

#[track_caller]
fn ended_well(place: &Place, job: &str, ended: &Ended) -> Vec<Value> {
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let replay = place.call(&["replay", job]);
    assert_eq!(replay.status.code(), Some(0), "{replay:?}");
    place.events(job)
}

#[track_caller]
fn counted(reply: &crate::e2e::rest::Reply, counted: bool) {
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json(), json!({ "counted": counted }));
}

#[test]
fn a_callback_after_the_202_ends_the_attempt() {
    let service = accepting();
    let place = Place::new(&later(&service, &[]));
    let mut run = place.run(None);
    let id = run.id();
    let seen = &service.called(1)[0];
    let waiting = until(&place, &id, "awaiting_callback");
    assert_eq!(waiting["attempts"][0]["state"], "running");
    counted(&seen.callback().done(json!({ "rows": 7 })), true);
    let events = ended_well(&place, &id, &run.end());
    assert_eq!(item(&place, &id)["output"], json!({ "rows": 7 }));
    assert_eq!(named(&events, "CallbackAwaited").len(), 1);
    let [end] = named(&events, "AttemptEnded")[..] else { panic!("{events:#?}") };
    assert_eq!(end["by_callback"], true);
    assert_eq!(service.calls(), 1);
}

#[test]
fn a_failure_that_is_called_back_is_retried_by_policy() {
    let service = accepting();
    let place = Place::new(&later(&service, &[QUICK]));
    let mut run = place.run(None);
    let id = run.id();
    let first = service.called(1)[0].callback();
    counted(&first.say(&json!({ "success": false, "error": "no room" })), true);
    let second = service.called(2)[1].callback();
    assert_ne!(first, second, "each attempt has a token of its own");
    let permanent = json!({ "success": false, "permanent": true, "error": "never" });
    counted(&second.say(&permanent), true);
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let item = item(&place, &id);
    assert_eq!(
        (&item["reason"], &item["last_error"]),
        (&json!("permanent_error"), &json!("the handler reported failure: never"))
    );
    let seen = service.seen();
    assert_eq!(seen[0].key(), seen[1].key());
}

#[test]
fn a_callback_before_the_202_is_not_lost_and_the_202_then_changes_nothing() {
    let service = Service::new(|seen| {
        if seen.path == "/" {
            counted(&seen.callback().done(1), true);
            return Answer::status(202);
        }
        Answer::status(200)
    });
    let place = Place::new(&held(&service, &[]));
    let mut run = place.run(None);
    let id = run.id();
    let events = ended_well(&place, &id, &run.end());
    assert_eq!(service.calls(), 2);
    let ends = named(&events, "AttemptEnded");
    assert_eq!(ends.iter().filter(|end| end["by_callback"] == true).count(), 1);
    assert_eq!((ends.len(), named(&events, "CallbackAwaited").len()), (2, 0), "{events:#?}");
    assert_eq!(item(&place, &id)["output"], 1);
}

#[test]
fn who_calls_back_twice_hears_the_same_and_nothing_happens_twice() {
    let service = accepting();
    let place = Place::new(&held(&service, &[]));
    let mut run = place.run(None);
    let id = run.id();
    let callback = service.called(1)[0].callback();
    counted(&callback.done("first"), true);
    service.called(2);
    let before = place.events(&id);
    counted(&callback.done("first"), true);
    assert_eq!(place.events(&id), before);
    for _ in 0..2 {
        counted(&callback.done("second"), false);
        counted(&callback.say(&json!({ "success": false })), false);
    }
    let late = place.events(&id).split_off(before.len());
    assert_eq!((late.len(), named(&late, "LateCallback").len()), (1, 1), "{late:#?}");
    assert_eq!(item(&place, &id)["output"], "first");
    drop(run.kill());
}

#[test]
fn a_token_that_is_forged_or_of_another_job_is_refused() {
    let service = accepting();
    let place = Place::new(&later(&service, &[]));
    let other = Place::new(&later(&service, &[]));
    let mut run = place.run(None);
    let id = run.id();
    let ours = service.called(1)[0].callback();
    // One with the same data folder, and so with the same key, and one with another.
    let beside = place.run(None);
    service.called(2);
    let elsewhere = other.run(None);
    let seen = service.called(3);
    until(&place, &id, "awaiting_callback");
    let refused = |callback: &Callback| {
        let callback = Callback { address: ours.address.clone(), ..callback.clone() };
        let reply = callback.done(1);
        assert_eq!((reply.status, &reply.json()["code"]), (401, &json!("callback_refused")));
    };
    refused(&ours.forged());
    refused(&seen[1].callback());
    refused(&seen[2].callback());
    refused(&Callback { path: "/v1/callbacks/x".to_owned(), ..ours.clone() });
    assert_eq!(named(&place.events(&id), "AttemptEnded").len(), 0);
    counted(&ours.done(1), true);
    ended_well(&place, &id, &run.end());
    drop((beside.kill(), elsewhere.kill()));
}

#[test]
fn the_token_of_an_attempt_that_timed_out_is_refused() {
    let service = accepting();
    let retry = "retry: { max_attempts: 100, backoff: fixed, initial_delay: 1ms }";
    let place = Place::new(&later(&service, &["timeout: 300ms", retry]));
    let mut run = place.run(None);
    let id = run.id();
    let first = service.called(1)[0].callback();
    service.called(2);
    let reply = first.done("late");
    assert_eq!(reply.status, 401, "{reply:?}");
    // Whoever is slow meets the next attempt.
    wait_for("an attempt that is called back in time", || {
        let last = service.seen().pop()?.callback().done("in time");
        (last.status == 200).then_some(())
    });
    let events = ended_well(&place, &id, &run.end());
    let item = item(&place, &id);
    assert_eq!(item["output"], "in time");
    assert_eq!(item["attempts"][0]["state"], "timed_out");
    assert_eq!(named(&events, "LateCallback").len(), 0, "{events:#?}");
}

#[test]
fn progress_is_seen_and_extends_a_heartbeat_which_silence_ends() {
    let service = Service::new(|seen| match seen.attempt() {
        1 => Answer::status(202),
        _ => Answer::output("the second"),
    });
    let place = Place::new(&later(&service, &["heartbeat: 900ms", QUICK]));
    let mut run = place.run(None);
    let id = run.id();
    let callback = service.called(1)[0].callback();
    let mut told = 0;
    // Longer than one heartbeat: it lives by what it says.
    while told < 5 {
        let reply = callback.say(&json!({ "progress": { "done": told } }));
        match reply.status {
            200 => told += 1,
            // More often than is recorded.
            429 => assert_eq!(reply.json()["code"], "too_often"),
            other => panic!("{other} after {told}: {reply:?}"),
        }
    }
    let progress = item(&place, &id)["progress"].clone();
    assert_eq!((&progress["attempt"], &progress["said"]), (&json!(1), &json!({ "done": 4 })));
    let events = ended_well(&place, &id, &run.end());
    assert_eq!(named(&events, "AttemptProgressed").len(), 5);
    let item = item(&place, &id);
    let first = &item["attempts"][0];
    assert_eq!((&first["state"], &item["failures"]), (&json!("timed_out"), &json!(1)));
    assert!(first["error"].as_str().expect("an error").contains("silent"), "{first}");
    let lived = first["finished_at_ms"].as_u64().expect("ended")
        - first["started_at_ms"].as_u64().expect("began");
    assert!(lived >= 4 * 300 + 900, "it lived for {lived} ms");
    assert_eq!(callback.try_say(&json!({ "progress": 1 })).map(|reply| reply.status), None);
}

/// `end` ends the program while an attempt waits: it is resumed, and the callback counts.
fn goes_on_after(end: impl FnOnce(Process)) {
    let service = accepting();
    let place = Place::new(&later(&service, &[]));
    let mut run = place.run(None);
    let id = run.id();
    let callback = service.called(1)[0].callback();
    until(&place, &id, "awaiting_callback");
    end(run);
    assert!(callback.try_say(&json!({ "success": true })).is_none(), "nobody is there");
    let run = place.resumed(&id);
    counted(&callback.done("after all"), true);
    let events = ended_well(&place, &id, &run.end());
    assert_eq!(named(&events, "AttemptStarted").len(), 1, "{events:#?}");
    let item = item(&place, &id);
    assert_eq!((&item["output"], &item["preemptions"]), (&json!("after all"), &json!(0)));
    assert_eq!(service.calls(), 1);
}

#[test]
fn what_a_service_has_survives_a_run_that_is_killed() {
    goes_on_after(|run| drop(run.kill()));
}

#[test]
fn what_a_service_has_survives_an_interrupt() {
    goes_on_after(|run| {
        run.signal(Signal::INT);
        assert_eq!(run.end().status.code(), Some(130));
    });
}

#[test]
fn when_the_port_is_taken_meanwhile_the_attempt_times_out_and_the_next_one_is_told_another() {
    let service = accepting();
    let place = Place::new(&later(&service, &["timeout: 2s", QUICK]));
    let mut run = place.run(None);
    let id = run.id();
    let first = service.called(1)[0].callback();
    until(&place, &id, "awaiting_callback");
    drop(run.kill());
    let _taken = std::net::TcpListener::bind(&first.address).expect("it is free");
    let run = place.resumed(&id);
    run.hears("is taken: services that were called before the interruption cannot call back");
    let second = service.called(2)[1].callback();
    assert_ne!(first.address, second.address);
    counted(&second.done("there"), true);
    ended_well(&place, &id, &run.end());
    assert_eq!(item(&place, &id)["attempts"][0]["state"], "timed_out");
}

#[test]
fn who_answers_at_once_need_not_call_back() {
    let service = Service::new(|seen| match seen.path.as_str() {
        "/ok" => Answer::text(200, "now"),
        "/envelope" => Answer::text(202, r#"{"success": true, "output": "now"}"#),
        "/sync" => Answer::text(202, r#""now""#),
        path => Answer::status(path[1..].parse().expect("a status")),
    });
    let step = |name: &str, path: &str, mode: &str| {
        format!(
            "  {name}:\n    http: {{ url: '{}', mode: {mode} }}\n    retry: {{ max_attempts: 1 }}\n    \
             on_failure: continue\n",
            service.url(path)
        )
    };
    let steps = [
        step("ok", "/ok", "async"),
        step("envelope", "/envelope", "async"),
        step("sync", "/sync", "sync"),
        step("bad", "/500", "async"),
        step("gone", "/404", "async"),
    ];
    let place = crate::helpers::Place::new("later-at-once");
    let ran = place.run(&format!("name: at-once\nsteps:\n{}", steps.concat()));
    assert_eq!(ran.exit, Some(0), "{:#}", ran.status);
    for name in ["ok", "envelope", "sync"] {
        assert_eq!(ran.item(name)["output"], "now", "{name}");
    }
    assert_eq!(ran.item("bad")["reason"], "attempts_exhausted");
    assert_eq!(ran.item("gone")["reason"], "permanent_error");
    assert_eq!(named(&place.history(), "CallbackAwaited").len(), 0);
    place.replays();
}

#[test]
fn a_run_does_not_wait_for_the_answer_of_a_service_that_has_called_back() {
    let service = Service::new(|seen| {
        counted(&seen.callback().done("early"), true);
        Answer::Hang
    });
    let place = Place::new(&later(&service, &[]));
    let mut run = place.run(None);
    let id = run.id();
    ended_well(&place, &id, &run.end());
    assert_eq!(item(&place, &id)["output"], "early");
}

#[test]
fn a_cancel_does_not_wait_for_a_callback() {
    let service = accepting();
    let place = Place::new(&later(&service, &[]));
    let mut run = place.run(None);
    let id = run.id();
    service.called(1);
    until(&place, &id, "awaiting_callback");
    let cancel = place.call(&["cancel", &id]);
    assert_eq!(cancel.status.code(), Some(0), "{cancel:?}");
    assert_eq!(run.end().status.code(), Some(4));
    assert_eq!(place.call(&["replay", &id]).status.code(), Some(0));
}

/// The service may have done it: that is a loss, which is charged and which `retryable: false` forbids.
#[test]
fn a_call_that_was_under_way_when_the_run_was_killed_has_begun() {
    for (retry, calls, exit) in
        [("retry: { retryable: false }", 1, 1), ("retry: { max_attempts: 1 }", 2, 0)]
    {
        let service = Service::new(|seen| match seen.number {
            0 => Answer::Hang,
            _ => Answer::status(200),
        });
        let place = Place::new(&job(&format!("url: '{}'", service.url("/")), &[retry]));
        let mut run = place.run(None);
        let id = run.id();
        service.called(1);
        drop(run.kill());
        let ended = place.finish(&id);
        assert_eq!(
            (ended.status.code(), service.calls()),
            (Some(exit), calls),
            "{retry}: {ended:?}"
        );
        let item = item(&place, &id);
        assert_eq!(item["preemptions"], exit ^ 1, "{item}");
        assert_eq!(item["failures"], 0, "{item}");
    }
}

/// Calls are handed out ahead where services are quick; what still waits for its turn has cost nothing.
#[test]
fn an_interrupt_charges_only_the_calls_that_were_made() {
    let service = Service::new(|seen| match seen.number {
        30 => Answer::Hang,
        _ => Answer::status(200),
    });
    let place = Place::new(&job(
        &format!("url: '{}'", service.url("/")),
        &["for_each: { range: 60 }", "retry: { retryable: false, max_preemptions: 5 }"],
    ));
    let file = place.path("job.yaml");
    let file = file.to_str().expect("plain");
    let mut run = Process::start(place.command(&["run", file, "--slots", "1"]));
    let id = run.id();
    service.called(31);
    run.signal(Signal::INT);
    assert_eq!(run.end().status.code(), Some(130));
    let lost = |started: bool| {
        let ends = place.events(&id).into_iter().filter(|event| event["event"] == "AttemptEnded");
        ends.filter(|end| end["outcome"]["lost"]["started"] == started).count()
    };
    assert_eq!(lost(true), 1, "one was at the service; {} waited for their turn", lost(false));
    let ended = place.finish(&id);
    ended_well(&place, &id, &ended);
    assert_eq!(service.calls(), 61);
}
