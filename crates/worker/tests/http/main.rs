//! Calls to a web service of our own that misbehaves on purpose. Nothing leaves loopback, and no wait is for
//! time: where an attempt must time out, its own timeout is what is waited for.

mod breaking;
mod guarding;
mod redirecting;
mod sealing;
mod sending;
mod server;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use steadfast_core::event::{ItemId, Role};
use steadfast_core::outcome::{Failure, FailureKind, Outcome, Permanence, RequestedDelay};
use steadfast_core::plan::{Http, HttpExpect, HttpMode};
use steadfast_worker::http::{Allowed, Called, Caller, HttpOrder, Outbound};

use server::{LONG, Server, Then, answer};

pub(crate) fn caller() -> Caller {
    let allow = vec![Allowed::Loopback];
    Caller::new(&Outbound { allow, ..Outbound::default() }).expect("a caller")
}

pub(crate) fn post(url: String) -> Http {
    Http {
        method: "POST".to_owned(),
        url,
        headers: BTreeMap::new(),
        query: BTreeMap::new(),
        body: None,
        mode: HttpMode::Sync,
        expect: HttpExpect::Any,
        redirects: 0,
    }
}

pub(crate) const NO_SECRETS: &BTreeMap<String, String> = &BTreeMap::new();
pub(crate) const CALLBACK: &str = "http://127.0.0.1:1/v1/callbacks/abc";

pub(crate) fn order(http: &Http) -> HttpOrder<'_> {
    HttpOrder {
        http,
        job_id: "01JOB",
        step: "notify",
        item: ItemId { run: 0, step: 3, role: Role::Item, index: 7 },
        datacenter: None,
        attempt: 2,
        callback_url: Some(CALLBACK),
        timeout: Some(LONG),
        secrets: NO_SECRETS,
    }
}

pub(crate) async fn call(http: &Http) -> Outcome {
    ended(caller().call(&order(http)).await)
}

pub(crate) fn ended(called: Called) -> Outcome {
    match called {
        Called::Ended(outcome) => outcome,
        Called::AwaitsCallback => panic!("it has not ended"),
    }
}

pub(crate) fn failure(outcome: Outcome) -> Failure {
    match outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("it has not failed: {other:?}"),
    }
}

/// The kind and the text of its error.
pub(crate) fn error(failure: &Failure) -> (&str, &str) {
    let error = failure.error.as_ref().expect("an error");
    (error.kind.as_deref().unwrap_or_default(), &error.message)
}

#[tokio::test]
async fn the_body_is_the_output_and_an_envelope_decides() {
    for (status, body, outcome) in [
        ("200 OK", r#"{"a": [1, "é"]}"#, Some(Some(serde_json::json!({"a": [1, "é"]})))),
        ("200 OK", "done", Some(Some(Value::from("done")))),
        ("200 OK", "", Some(None)),
        ("200 OK", r#"{"a": "#, Some(Some(Value::from(r#"{"a": "#)))),
        ("500 Oops", r#"{"success": true, "output": 5}"#, Some(Some(Value::from(5)))),
        ("200 OK", r#"{"success": false, "error": "no"}"#, None),
        ("404 Gone", r#"{"success": false, "error": "no"}"#, None),
    ] {
        let server = Server::answering(status, body).await;
        match (call(&post(server.url("/"))).await, outcome) {
            (Outcome::Succeeded { output }, Some(expected)) => assert_eq!(output, expected),
            (Outcome::Failed(failure), None) => {
                assert_eq!(failure.kind, FailureKind::HandlerFailed, "{status} {body}");
                assert_eq!(error(&failure), ("", "no"));
            }
            (outcome, _) => panic!("{status} {body}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn statuses_mean_what_the_policy_expects_of_them() {
    for (status, permanence) in [
        ("500 x", Permanence::Open),
        ("503 x", Permanence::Open),
        ("408 x", Permanence::Open),
        ("429 x", Permanence::Open),
        ("400 x", Permanence::ByStatus),
        ("404 x", Permanence::ByStatus),
        ("304 x", Permanence::ByStatus),
    ] {
        let server = Server::answering(status, "").await;
        let failure = failure(call(&post(server.url("/"))).await);
        assert_eq!(failure.kind, FailureKind::NotCompleted, "{status}");
        assert_eq!(failure.permanence, permanence, "{status}");
        assert_eq!(failure.http_status, status[..3].parse().ok(), "{status}");
    }
}

#[tokio::test]
async fn retry_after_is_heard_however_it_is_written() {
    let date =
        |value: &str| format!("Date: Sun, 06 Nov 1994 08:49:00 GMT\r\nRetry-After: {value}\r\n");
    for (headers, ms) in [
        ("Retry-After: 7\r\n".to_owned(), Some(7000)),
        ("RETRY-AFTER: 7\r\n".to_owned(), Some(7000)),
        ("retry-after:   7  \r\n".to_owned(), Some(7000)),
        (format!("Retry-After: {}\r\n", "9".repeat(60)), Some(u64::MAX)),
        (date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(37_000)),
        (date("Sunday, 06-Nov-94 08:49:37 GMT"), Some(37_000)),
        (date("Sun Nov  6 08:49:37 1994"), Some(37_000)),
        (date("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0)),
        // By our own clock, as the service shows none.
        ("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n".to_owned(), Some(0)),
        ("Retry-After: soon\r\n".to_owned(), None),
        ("Retry-After: -5\r\n".to_owned(), None),
        ("Retry-After: 1.5\r\n".to_owned(), None),
    ] {
        for (status, body) in [("429 x", ""), ("503 x", ""), ("200 OK", r#"{"success": false}"#)] {
            let bytes = answer(status, &headers, body);
            let server = Server::start(move |_, _| (bytes.clone(), Then::Keep)).await;
            let asked = failure(call(&post(server.url("/"))).await).asked;
            assert_eq!(asked, ms.map(RequestedDelay::RetryAfterMs), "{status} {headers}");
        }
    }
}

#[tokio::test]
async fn an_accepted_call_waits_for_its_callback_only_if_it_is_async() {
    let accepted = Server::answering("202 Accepted", r#"{"id": 5}"#).await;
    let sync = post(accepted.url("/"));
    let output = Some(serde_json::json!({"id": 5}));
    assert_eq!(call(&sync).await, Outcome::Succeeded { output });
    assert_eq!(accepted.seen()[0].header("steadfast-callback-url"), None);

    let later = Http { mode: HttpMode::Async, ..sync };
    assert_eq!(caller().call(&order(&later)).await, Called::AwaitsCallback);
    assert_eq!(accepted.seen()[1].header("steadfast-callback-url"), Some(CALLBACK));
    let envelope = Http { expect: HttpExpect::Envelope, ..later.clone() };
    assert_eq!(caller().call(&order(&envelope)).await, Called::AwaitsCallback);

    let nobody = HttpOrder { callback_url: None, ..order(&later) };
    let failure = failure(ended(caller().call(&nobody).await));
    assert_eq!(error(&failure).0, "no_callback");

    for (status, body) in [("202 x", r#"{"success": true}"#), ("200 x", "")] {
        let at_once = Server::answering(status, body).await;
        let http = Http { url: at_once.url("/"), ..later.clone() };
        assert_eq!(caller().call(&order(&http)).await, Called::Ended(Outcome::OK), "{status}");
    }
    let broken = Server::answering("500 x", "").await;
    let http = Http { url: broken.url("/"), ..later };
    assert_eq!(ended(caller().call(&order(&http)).await), Outcome::from_http_status(500));
}

#[tokio::test]
async fn an_envelope_that_is_expected_is_missed() {
    let server = Server::answering("200 OK", "{\"success\": tru").await;
    let http = Http { expect: HttpExpect::Envelope, ..post(server.url("/")) };
    assert_eq!(error(&failure(call(&http).await)).0, "no_envelope");
}

#[tokio::test(start_paused = true)]
async fn an_async_handler_has_half_a_minute_to_accept() {
    let server = Server::start(|_, _| (String::new(), Then::Hang)).await;
    let http = Http { mode: HttpMode::Async, ..post(server.url("/")) };
    let order = HttpOrder { timeout: Some(Duration::from_hours(1)), ..order(&http) };
    let failure = failure(ended(caller().call(&order).await));
    assert_eq!(failure.kind, FailureKind::TimedOut);
    assert_eq!(error(&failure), ("timeout", "no answer within 30s"));
}
