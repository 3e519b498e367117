//! Services that call back, with a server and a worker that are processes of their own.

use serde_json::{Value, json};

use crate::e2e::harness::{Place, Process};
use crate::e2e::rest::{Reply, Server, item};
use crate::service::{Answer, Callback, Service};
use crate::{job, named};

/// A worker that may call what is on this machine.
pub(crate) fn worker(place: &Place, server: &Server) -> Process {
    place.worker(&server.url(), "w").arg("--allow-outbound", "loopback").start()
}

pub(crate) fn later(service: &Service, rest: &[&str]) -> String {
    job(&format!("url: '{}', mode: async", service.url("/")), rest)
}

fn accepting() -> Service {
    Service::always(Answer::status(202))
}

#[track_caller]
pub(crate) fn counted(reply: &Reply, counted: bool) {
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.json(), json!({ "counted": counted }));
}

/// Folding the log again gives the stored state.
#[track_caller]
fn replays(place: &Place, job: &str) {
    let told = place.call(&["replay", job, "--data", &place.text("data"), "-o", "json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["equal"], true, "{told}");
}

/// The one job waits for the one service.
#[track_caller]
fn handed_over(server: &Server, service: &Service, rest: &[&str]) -> (String, Callback) {
    let before = service.calls();
    let id = server.submit(&later(service, rest));
    let callback = service.called(before + 1)[before].callback();
    server.until_item(&id, "awaiting_callback");
    (id, callback)
}

#[test]
fn a_callback_counts_after_the_server_was_killed_and_came_back() {
    let place = Place::new();
    let service = accepting();
    let server = place.server().at_a_port_of_its_own().start();
    let address = server.address.clone();
    let _worker = worker(&place, &server);
    let (id, callback) = handed_over(&server, &service, &[]);
    assert_eq!(callback.address, address);
    server.process.kill();
    assert!(callback.try_say(&json!({ "success": true })).is_none(), "nobody is there");
    let server = place.server().at(&address).start();
    assert_eq!(item(&server.status(&id))["state"], "awaiting_callback");
    counted(&callback.done("kept"), true);
    let status = server.end(&id);
    assert_eq!((&status["state"], &item(&status)["output"]), (&json!("succeeded"), &json!("kept")));
    counted(&callback.done("kept"), true);
    let events = server.events(&id);
    assert_eq!(named(&events, "AttemptStarted").len(), 1, "{events:#?}");
    assert_eq!(named(&events, "AttemptEnded").len(), 1, "{events:#?}");
    assert_eq!(named(&events, "LateCallback").len(), 0, "{events:#?}");
    assert_eq!(service.calls(), 1);
    replays(&place, &id);
}

#[test]
fn a_callback_after_a_cancel_is_recorded_once_and_changes_nothing() {
    let place = Place::new();
    let service = accepting();
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let (id, callback) = handed_over(&server, &service, &[]);
    assert_eq!(server.post(&format!("/v1/jobs/{id}/cancel")).status, 200);
    let before = server.end(&id);
    assert_eq!(before["state"], "cancelled");
    counted(&callback.done("too late"), false);
    let events = server.events(&id);
    let [late] = named(&events, "LateCallback")[..] else { panic!("{events:#?}") };
    assert_eq!(
        (&late["attempt"], &late["outcome"]["succeeded"]["output"]),
        (&json!(1), &json!("too late"))
    );
    counted(&callback.done("once more"), false);
    counted(&callback.say(&json!({ "success": false })), false);
    assert_eq!(server.events(&id), events, "it is recorded once");
    assert_eq!(server.status(&id), before);
    let progress = callback.say(&json!({ "progress": 1 }));
    assert_eq!(progress.status, 401, "{progress:?}");
    replays(&place, &id);
    // Also of a job that only the log knows any more.
    let (again, callback) = handed_over(&server, &service, &[]);
    assert_eq!(server.post(&format!("/v1/jobs/{again}/cancel")).status, 200);
    server.end(&again);
    let address = server.address.clone();
    server.process.kill();
    let server = place.server().at(&address).start();
    counted(&callback.done("after a restart"), false);
    counted(&callback.done("after a restart"), false);
    assert_eq!(named(&server.events(&again), "LateCallback").len(), 1);
    assert_eq!(server.status(&again)["state"], "cancelled");
    replays(&place, &again);
}

#[test]
fn a_callback_after_the_timeout_is_refused() {
    let place = Place::new();
    let service = accepting();
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let rest = ["timeout: 200ms", "retry: { max_attempts: 1 }"];
    let id = server.submit(&later(&service, &rest));
    let callback = service.called(1)[0].callback();
    let status = server.end(&id);
    assert_eq!(item(&status)["attempts"][0]["state"], "timed_out", "{status:#}");
    let reply = callback.done("late");
    assert_eq!((reply.status, &reply.json()["code"]), (401, &json!("callback_refused")));
    assert_eq!(server.status(&id), status);
    replays(&place, &id);
}

#[test]
fn a_worker_that_is_killed_takes_nothing_along_that_a_service_has() {
    let place = Place::new();
    let service = accepting();
    let server = place.server().lease(1500).start();
    let first = worker(&place, &server);
    let (id, callback) = handed_over(&server, &service, &[]);
    first.kill();
    server.until_gone("w");
    assert_eq!(item(&server.status(&id))["state"], "awaiting_callback");
    counted(&callback.done("done"), true);
    let status = server.end(&id);
    let item = item(&status);
    assert_eq!((&item["output"], &item["preemptions"]), (&json!("done"), &json!(0)));
    assert_eq!(service.calls(), 1);
    replays(&place, &id);
}

#[test]
fn a_callback_before_the_202_counts_also_when_the_202_never_comes() {
    let place = Place::new();
    let (tell, told) = std::sync::mpsc::channel();
    let service = Service::new(move |seen| {
        counted(&seen.callback().done(seen.attempt()), true);
        tell.send(()).expect("the test waits for it");
        Answer::Hang
    });
    let server = place.server().lease(1500).start();
    let first = worker(&place, &server);
    let id = server.submit(&later(&service, &[]));
    told.recv().expect("called back");
    let status = server.end(&id);
    first.kill();
    assert_eq!((&status["state"], &item(&status)["output"]), (&json!("succeeded"), &json!(1)));
    let events = server.events(&id);
    assert_eq!(named(&events, "AttemptEnded").len(), 1, "{events:#?}");
    assert_eq!(service.calls(), 1);
    replays(&place, &id);
}

/// A service that corrects itself must not believe that it was heard.
#[test]
fn the_same_again_counts_and_something_else_does_not() {
    let place = Place::new();
    let service = accepting();
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let rest = ["retry: { max_attempts: 3, initial_delay: 10m }"];
    let (id, callback) = handed_over(&server, &service, &rest);
    let failed = json!({ "success": false, "error": "x" });
    for _ in 0..2 {
        counted(&callback.say(&failed), true);
    }
    let reply = callback.done(1);
    assert_eq!(reply.status, 401, "{reply:?}");
    assert!(reply.body.contains("something else was said of it before"), "{reply:?}");
    assert_eq!(named(&server.events(&id), "LateCallback").len(), 0);

    let (id, callback) = handed_over(&server, &service, &[]);
    for _ in 0..2 {
        counted(&callback.done(1), true);
    }
    for _ in 0..2 {
        counted(&callback.done(2), false);
    }
    let events = server.events(&id);
    assert_eq!(named(&events, "LateCallback").len(), 1, "{events:#?}");
    assert_eq!(item(&server.end(&id))["output"], 1);
    replays(&place, &id);
}

/// Words about jobs that are over, by services that do not wait for the answer.
#[test]
fn who_hangs_up_on_a_late_callback_stops_nobody() {
    const ITEMS: usize = 40;
    let place = Place::new();
    let service = accepting();
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let rest = [&*format!("for_each: {{ range: {ITEMS} }}")];
    let id = server.submit(&later(&service, &rest));
    let callbacks: Vec<Callback> =
        service.called(ITEMS).iter().map(crate::service::Seen::callback).collect();
    place.call(&["cancel", &id, "--server", &server.url()]);
    server.end(&id);
    std::thread::scope(|scope| {
        for some in callbacks.chunks(ITEMS / 4) {
            scope.spawn(|| some.iter().for_each(Callback::say_and_hang_up));
        }
    });
    for callback in &callbacks {
        counted(&callback.done(1), false);
    }
    let late = named(&server.events(&id), "LateCallback").len();
    assert_eq!(late, ITEMS, "each is recorded once");
    replays(&place, &id);
}

#[test]
fn what_is_no_callback_is_refused_and_the_attempt_waits_on() {
    let place = Place::new();
    let service = accepting();
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let (id, callback) = handed_over(&server, &service, &[]);
    let json = ("Content-Type", "application/json");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let large = format!(r#"{{"success": true, "output": "{}"}}"#, "x".repeat(3 << 20));
    let deep = format!(r#"{{"success": true, "output": {}1{}}}"#, "[".repeat(110), "]".repeat(110));
    for (headers, body, status) in [
        (&[json][..], "{\"success\": tru", 400),
        (&[json], "", 400),
        (&[json], "[]", 400),
        (&[json], r#"{"success": "true"}"#, 400),
        (&[json], &deep, 400),
        (&[json], &large, 413),
        (&[form], "success=true", 415),
        (&[form], r#"{"success": true}"#, 415),
        (&[], r#"{"success": true}"#, 415),
        (&[("Content-Type", "text/plain")], r#"{"success": true}"#, 415),
    ] {
        let reply = callback.send(headers, body).expect("an answer");
        assert_eq!(reply.status, status, "{headers:?}: {reply:?}");
        let forged = callback.forged().send(headers, body).expect("an answer");
        assert!((400..500).contains(&forged.status), "{forged:?}");
    }
    let forged = callback.forged().done(1);
    assert_eq!(forged.status, 401, "{forged:?}");
    let got = server.ask("GET", &callback.path, &[], "").expect("an answer");
    assert_eq!(got.status, 405, "{got:?}");
    assert_eq!(item(&server.status(&id))["state"], "awaiting_callback");
    assert_eq!(named(&server.events(&id), "AttemptEnded").len(), 0);
    counted(&callback.done(1), true);
    assert_eq!(server.end(&id)["state"], "succeeded");
    replays(&place, &id);
}

#[test]
fn the_output_of_one_step_is_the_work_of_the_next_wherever_it_came_from() {
    let place = Place::new();
    let service = Service::new(|seen| match seen.path.as_str() {
        "/list" => Answer::status(202),
        _ => Answer::output(seen.json()),
    });
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let text = format!(
        "name: both\nsteps:\n  list:\n    http: {{ url: '{}', mode: async }}\n  each:\n    needs: [list]\n    \
         for_each: {{ output: list.names }}\n    http: {{ url: '{}', body: {{ name: '{{{{ item }}}}' }} }}\n",
        service.url("/list"),
        service.url("/each")
    );
    let id = server.submit(&text);
    let callback = service.called(1)[0].callback();
    counted(&callback.done(json!({ "names": ["a", "b", "c"] })), true);
    let status = server.end(&id);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    let items = status["runs"][0]["steps"]["each"]["items"].as_array().expect("items").clone();
    let names: Vec<&Value> = items.iter().map(|item| &item["output"]["name"]).collect();
    assert_eq!(names, ["a", "b", "c"]);
    replays(&place, &id);
}

#[test]
fn a_worker_that_dies_before_it_could_say_that_the_service_has_it_costs_a_call_with_the_same_key() {
    let place = Place::new();
    let service = Service::new(|seen| match seen.number {
        0 => Answer::Hang,
        _ => Answer::status(202),
    });
    let server = place.server().lease(1500).start();
    let first = worker(&place, &server);
    let id = server.submit(&later(&service, &[]));
    service.called(1);
    first.kill();
    let _second = place.worker(&server.url(), "v").arg("--allow-outbound", "loopback").start();
    let seen = service.called(2);
    assert_eq!(seen[0].key(), seen[1].key());
    assert_eq!((seen[0].attempt(), seen[1].attempt()), (1, 2));
    let superseded = seen[0].callback().done("from the first");
    assert_eq!(superseded.status, 401, "{superseded:?}");
    counted(&seen[1].callback().done("from the second"), true);
    let status = server.end(&id);
    let item = item(&status);
    assert_eq!((&item["preemptions"], &item["failures"]), (&json!(1), &json!(0)), "{item}");
    assert_eq!(item["output"], "from the second");
    replays(&place, &id);
}

#[test]
fn of_many_callbacks_at_once_one_counts_and_the_others_hear_whether_it_was_theirs() {
    let place = Place::new();
    let service = accepting();
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let at_once = |callback: &Callback| -> Vec<(u64, bool)> {
        std::thread::scope(|scope| {
            let says = (0..12).map(|number| {
                scope.spawn(move || {
                    // Each is said twice.
                    let reply = callback.done(number / 2);
                    assert_eq!(reply.status, 200, "{reply:?}");
                    (number / 2, reply.json() == json!({ "counted": true }))
                })
            });
            let says: Vec<_> = says.collect();
            says.into_iter().map(|said| said.join().expect("answered")).collect()
        })
    };
    let (id, callback) = handed_over(&server, &service, &["retry: { max_attempts: 1 }"]);
    let heard = at_once(&callback);
    let status = server.end(&id);
    let output = item(&status)["output"].as_u64().expect("one of them");
    for (said, counted) in heard {
        assert_eq!(counted, said == output, "{said} and {output}");
    }
    let events = server.events(&id);
    assert_eq!(named(&events, "AttemptEnded").len(), 1, "{events:#?}");
    assert_eq!(named(&events, "LateCallback").len(), 1, "{events:#?}");
    assert_eq!(server.status(&id)["runs"], status["runs"]);
    let (id, callback) = handed_over(&server, &service, &[]);
    assert_eq!(server.post(&format!("/v1/jobs/{id}/cancel")).status, 200);
    server.end(&id);
    assert!(at_once(&callback).iter().all(|(_, counted)| !counted));
    assert_eq!(named(&server.events(&id), "LateCallback").len(), 1);
    replays(&place, &id);
}

#[test]
fn a_worker_goes_on_with_other_work_when_a_service_has_called_back_and_does_not_answer() {
    let place = Place::new();
    let service = Service::new(|seen| {
        counted(&seen.callback().done(1), true);
        Answer::Hang
    });
    let server = place.server().start();
    let _worker =
        place.worker(&server.url(), "w").slots(1).arg("--allow-outbound", "loopback").start();
    for _ in 0..3 {
        let id = server.submit(&later(&service, &[]));
        assert_eq!(server.end(&id)["state"], "succeeded");
    }
}

#[test]
fn a_job_that_is_paused_is_still_called_back_and_goes_on_when_it_is_resumed() {
    let place = Place::new();
    let service = Service::new(|seen| Answer::status(if seen.path == "/" { 202 } else { 200 }));
    let server = place.server().start();
    let _worker = worker(&place, &server);
    let next =
        format!("  next:\n    needs: [call]\n    http: {{ url: '{}' }}\n", service.url("/next"));
    let id = server.submit(&(later(&service, &[]) + &next));
    let callback = service.called(1)[0].callback();
    server.until_item(&id, "awaiting_callback");
    assert_eq!(server.post(&format!("/v1/jobs/{id}/pause")).status, 200);
    counted(&callback.done("while paused"), true);
    let status = server.until(&id, |status| item(status)["state"] == "succeeded");
    assert_eq!((&status["state"], service.calls()), (&json!("paused"), 1), "{status:#}");
    assert_eq!(server.post(&format!("/v1/jobs/{id}/resume")).status, 200);
    assert_eq!((&server.end(&id)["state"], service.calls()), (&json!("succeeded"), 2));
    replays(&place, &id);
}

#[test]
fn services_are_told_the_address_by_which_others_reach_the_server() {
    let place = Place::new();
    let service = accepting();
    let server =
        place.server().set("STEADFAST_SERVER__PUBLIC_URL", "http://steadfast.example.com/").start();
    let _worker = worker(&place, &server);
    let (id, callback) = handed_over(&server, &service, &[]);
    assert_eq!(callback.address, "steadfast.example.com");
    assert!(callback.path.starts_with("/v1/callbacks/"), "{callback:?}");
    // As a proxy in front of it would hand it on.
    let mut request = format!("POST {} HTTP/1.1\r\nHost: steadfast.example.com\r\n", callback.path);
    request += "Content-Type: application/json\r\nContent-Length: 16\r\nConnection: close\r\n\r\n";
    request += r#"{"success":true}"#;
    let mut stream = std::net::TcpStream::connect(&server.address).expect("it listens");
    std::io::Write::write_all(&mut stream, request.as_bytes()).expect("sends");
    let answer = std::io::read_to_string(stream).expect("an answer");
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains(r#"{"counted":true}"#),
        "{answer}"
    );
    assert_eq!(server.end(&id)["state"], "succeeded");
}
