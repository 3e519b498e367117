//! Whom a job may call: nobody on the operator's own machines, unless the operator says so.

use serde_json::{Value, json};

use crate::e2e::harness::Place;
use crate::e2e::rest::item;
use crate::helpers;
use crate::job;
use crate::service::{Answer, Service};

#[track_caller]
fn refused(item: &Value) {
    assert_eq!(
        (&item["state"], &item["reason"]),
        (&json!("failed"), &json!("permanent_error")),
        "{item}"
    );
    assert_eq!(item["attempts"].as_array().map(Vec::len), Some(1), "{item}");
    let error = item["last_error"].as_str().expect("why");
    assert!(error.contains("--allow-outbound loopback"), "{error}");
}

#[test]
fn a_worker_calls_nothing_on_its_own_machine_unless_it_is_told_to() {
    let place = Place::new();
    let service = Service::always(Answer::status(200));
    let server = place.server().start();
    let guarded = place.worker(&server.url(), "guarded").start();
    let url = service.url("/");
    let port = url.rsplit_once(':').expect("a port").1;
    for host in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"] {
        let id = server.submit(&job(&format!("url: 'http://{host}:{port}'"), &[]));
        refused(item(&server.end(&id)));
    }
    assert_eq!(service.connections(), 0, "not even a connection");
    guarded.kill();
    let _open = place.worker(&server.url(), "open").arg("--allow-outbound", "loopback").start();
    let id = server.submit(&job(&format!("url: '{}'", service.url("/")), &[]));
    let status = server.end(&id);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!((service.calls(), service.connections()), (1, 1));
}

#[test]
fn a_redirect_from_an_allowed_to_a_refused_address_is_refused() {
    let place = Place::new();
    let hidden = Service::at("127.0.0.2:0", |_| Answer::output("secret"));
    let to = hidden.url("/");
    let open = Service::new(move |_| Answer::status(307).with("Location", &to));
    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w").arg("--allow-outbound", "127.0.0.1").start();
    let once = "retry: { max_attempts: 2, initial_delay: 1ms }";
    let id = server.submit(&job(&format!("url: '{}', redirects: 3", open.url("/")), &[once]));
    let status = server.end(&id);
    refused(item(&status));
    assert_eq!((open.calls(), hidden.connections()), (1, 0));
    // And without being asked to, none is followed.
    let id = server.submit(&job(&format!("url: '{}'", open.url("/")), &[once]));
    let status = server.end(&id);
    let error = item(&status)["last_error"].as_str().expect("why").to_owned();
    assert!(error.contains("a redirect, which the step does not follow"), "{error}");
    assert_eq!((open.calls(), hidden.connections()), (2, 0));
}

#[test]
fn a_redirect_that_is_asked_for_is_followed_to_where_calls_are_allowed() {
    let last = Service::new(|seen| Answer::output(json!([seen.method, seen.body])));
    let to = last.url("/there");
    let first = Service::new(move |_| Answer::status(307).with("Location", &to));
    let ran = helpers::Place::new("guard-followed")
        .run(&job(&format!("url: '{}', redirects: 1, body: [1]", first.url("/")), &[]));
    assert_eq!(ran.exit, Some(0), "{:#}", ran.status);
    assert_eq!(ran.item("call")["output"], json!(["POST", "[1]"]));
}

#[test]
fn up_calls_what_is_on_its_own_machine() {
    let place = Place::new();
    let service = Service::always(Answer::status(200));
    let server = place.server().start_up();
    let id = server.submit(&job(&format!("url: '{}'", service.url("/")), &[]));
    let status = server.end(&id);
    assert_eq!((&status["state"], service.calls()), (&json!("succeeded"), 1), "{status:#}");
}

#[test]
fn run_calls_its_own_machine_and_no_other_of_the_operators() {
    let place = helpers::Place::new("guard-run");
    for url in ["http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://0.0.0.0:1/"]
    {
        let ran =
            place.run(&job(&format!("url: '{url}', timeout: 5s"), &["retry: { max_attempts: 2 }"]));
        let item = ran.item("call");
        assert_eq!(item["reason"], "permanent_error", "{url}: {item}");
        assert!(
            item["last_error"].as_str().expect("why").contains("is not called"),
            "{url}: {item}"
        );
    }
}
