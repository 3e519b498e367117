//! What a request carries.

use std::collections::BTreeMap;

use serde_json::json;
use steadfast_core::event::{ItemId, Role};
use steadfast_core::outcome::{Outcome, Permanence};
use steadfast_core::plan::Http;
use steadfast_worker::http::HttpOrder;

use crate::server::{Server, Then, answer};
use crate::{call, caller, ended, error, failure, order, post};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn a_request_says_what_it_is_for() {
    let server = Server::answering("200 OK", "").await;
    let http = Http { body: Some(json!({"a": ["é", 1]})), ..post(server.url("/x?a=1")) };
    assert_eq!(call(&http).await, Outcome::OK);
    let seen = &server.seen()[0];
    assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/x?a=1"));
    assert_eq!(seen.body, r#"{"a":["é",1]}"#);
    let agent = concat!("steadfast/", env!("CARGO_PKG_VERSION"));
    for (name, value) in [
        ("idempotency-key", "01JOB-0-notify-i7"),
        ("steadfast-job-id", "01JOB"),
        ("steadfast-step", "notify"),
        ("steadfast-item", "7"),
        ("steadfast-attempt", "2"),
        ("content-type", "application/json"),
        ("user-agent", agent),
        ("host", &server.address.to_string()),
    ] {
        assert_eq!(seen.header(name), Some(value), "{name}");
    }
    for name in ["steadfast-datacenter", "steadfast-callback-url", "cookie"] {
        assert_eq!(seen.header(name), None, "{name}");
    }
}

#[tokio::test]
async fn the_idempotency_key_is_the_items_and_not_the_attempts() {
    let server = Server::answering("200 OK", "").await;
    let http = post(server.url("/"));
    let item = |run, role, index| ItemId { run, step: 3, role, index };
    let items = [
        item(0, Role::Item, 0),
        item(1, Role::Item, 0),
        item(0, Role::Item, 1),
        item(0, Role::Fallback, 0),
        item(0, Role::Compensation, 0),
    ];
    for item in items {
        for attempt in [1, 2, 100] {
            ended(caller().call(&HttpOrder { item, attempt, ..order(&http) }).await);
        }
    }
    let keys: Vec<String> = server
        .seen()
        .iter()
        .map(|seen| seen.header("idempotency-key").expect("a key").to_owned())
        .collect();
    let distinct: std::collections::BTreeSet<&String> = keys.iter().collect();
    assert_eq!(distinct.len(), items.len());
    assert!(keys.chunks(3).all(|same| same[0] == same[1] && same[1] == same[2]), "{keys:?}");
}

#[tokio::test]
async fn the_steps_headers_win_except_over_ours() {
    let server = Server::answering("200 OK", "").await;
    let headers = map(&[
        ("IDEMPOTENCY-key", "mine"),
        ("User-Agent", "me"),
        ("Steadfast-Attempt", "99"),
        ("Steadfast-Callback-Url", "http://elsewhere/"),
        ("X-Own", "a\tb"),
        ("Content-Type", "application/vnd.x+json"),
    ]);
    let http = Http { headers, body: Some(json!("text")), ..post(server.url("/")) };
    call(&http).await;
    let seen = &server.seen()[0];
    for (name, value) in [
        ("idempotency-key", Some("mine")),
        ("user-agent", Some("me")),
        ("steadfast-attempt", Some("2")),
        ("steadfast-callback-url", None),
        ("x-own", Some("a\tb")),
        ("content-type", Some("application/vnd.x+json")),
    ] {
        assert_eq!(seen.header(name), value, "{name}");
    }
    assert_eq!(seen.body, "\"text\"");
}

#[tokio::test]
async fn a_text_of_another_kind_is_sent_as_it_is() {
    let server = Server::answering("200 OK", "").await;
    let headers = map(&[("content-type", "text/csv; charset=utf-8")]);
    let csv = Http { headers, body: Some(json!("a,\"b\"\n")), ..post(server.url("/")) };
    call(&csv).await;
    call(&Http { body: Some(json!({"a": 1})), ..csv }).await;
    let bodies: Vec<String> = server.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, ["a,\"b\"\n", r#"{"a":1}"#]);
}

#[tokio::test]
async fn query_entries_are_encoded_and_added() {
    let server = Server::answering("200 OK", "").await;
    let query = map(&[("a b", "1&2=3"), ("é", "/?#"), ("n", "\r\n")]);
    call(&Http { query: query.clone(), ..post(server.url("/p?x=1#part")) }).await;
    call(&Http { query, method: "GET".to_owned(), ..post(server.url("/p")) }).await;
    let targets: Vec<String> = server.seen().into_iter().map(|seen| seen.target).collect();
    let added = "a+b=1%262%3D3&n=%0D%0A&%C3%A9=%2F%3F%23";
    assert_eq!(targets, [format!("/p?x=1&{added}"), format!("/p?{added}")]);
}

#[tokio::test]
async fn what_a_template_put_into_a_header_cannot_become_another() {
    let server = Server::answering("200 OK", "").await;
    for (name, value, word) in [
        ("X-A", "1\r\nX-Evil: 1", "a line break"),
        ("X-A", "1\nX-Evil: 1", "a line break"),
        ("X-A", "\0", "control characters"),
        ("X-A", "café", "beyond ASCII"),
        ("X A", "1", "no proper name"),
        ("X-A:\r\nX-Evil", "1", "no proper name"),
        ("", "1", "no proper name"),
        ("Content-Length", "5", "belongs to the connection"),
        ("transfer-encoding", "chunked", "belongs to the connection"),
    ] {
        let http = Http { headers: map(&[(name, value)]), ..post(server.url("/")) };
        let failure = failure(call(&http).await);
        assert_eq!(error(&failure).0, "bad_header", "{name}: {value}");
        assert!(error(&failure).1.contains(word), "{failure:?}");
        assert_eq!(failure.permanence, Permanence::Said);
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn what_is_no_address_is_said_to_be_none() {
    for (url, word) in [
        ("", "relative URL"),
        ("/path", "relative URL"),
        ("ftp://127.0.0.1/", "neither http nor https"),
        ("file:///etc/passwd", "neither http nor https"),
        ("http://", "empty host"),
        ("http://a b/", "invalid"),
        ("http://127.0.0.1:99999/", "port"),
        ("http://user:pw@127.0.0.1/", "credentials"),
        ("http://127.0.0.1/\r\nHost: evil", "line break"),
        ("http://127.0.0.1\n.example/", "line break"),
    ] {
        let failure = failure(call(&post(url.to_owned())).await);
        assert_eq!(error(&failure).0, "bad_url", "{url}");
        assert!(error(&failure).1.contains(word), "{url}: {failure:?}");
        assert_eq!(failure.permanence, Permanence::Said);
        assert!(!error(&failure).1.contains("pw"), "{failure:?}");
    }
    let http = Http { method: "CONNECT".to_owned(), ..post("http://127.0.0.1/".to_owned()) };
    assert_eq!(error(&failure(call(&http).await)).0, "bad_request");
}

#[tokio::test]
async fn secrets_are_sent_and_never_told() {
    let secrets = map(&[("KEY", "s3cr3t/x"), ("EMPTY", "")]);
    let mark = "\u{1}KEY\u{1}";
    // It repeats everything that it was sent.
    let server = Server::start(|seen, _| {
        let told = format!("{} {:?} {}", seen.target, seen.headers, seen.body);
        (answer("500 x", "", &told), Then::Keep)
    })
    .await;
    let http = Http {
        headers: map(&[("Authorization", &format!("Bearer {mark}"))]),
        query: map(&[("q", mark)]),
        body: Some(json!({ "key": [mark] })),
        ..post(server.url(&format!("/{mark}")))
    };
    let with = HttpOrder { secrets: &secrets, ..order(&http) };
    assert!(!format!("{with:?}").contains("s3cr3t"));
    let echoed = failure(ended(caller().call(&with).await));
    assert!(!format!("{echoed:?}").contains("s3cr3t"), "{echoed:?}");
    let seen = &server.seen()[0];
    assert_eq!(seen.target, "/s3cr3t%2Fx?q=s3cr3t%2Fx");
    assert_eq!(seen.header("authorization"), Some("Bearer s3cr3t/x"));
    assert_eq!(seen.body, r#"{"key":["s3cr3t/x"]}"#);

    let without = failure(ended(caller().call(&order(&http)).await));
    assert_eq!(error(&without).0, "secret_missing");
    assert_eq!(without.permanence, Permanence::Open);
    assert_eq!(server.seen().len(), 1);
}
