//! Redirects: off unless asked for, few, and with no keys for strangers.

use std::collections::BTreeMap;

use serde_json::json;
use steadfast_core::outcome::{Outcome, Permanence};
use steadfast_core::plan::{Http, HttpMode};
use steadfast_worker::http::HttpOrder;

use crate::server::{Server, Then, answer};
use crate::{call, caller, ended, error, failure, order, post};

/// `/STATUS/…` redirects to what follows; all else is `"there"`.
async fn redirecting() -> Server {
    Server::start(|seen, _| {
        let mut parts = seen.target.splitn(3, '/').skip(1);
        let bytes = match (parts.next(), parts.next()) {
            (Some(status), Some(to)) if status.starts_with('3') => {
                let to = if to.starts_with("http") { to.to_owned() } else { format!("/{to}") };
                answer(&format!("{status} x"), &format!("Location: {to}\r\n"), "away")
            }
            _ => answer("200 OK", "", "\"there\""),
        };
        (bytes, Then::Keep)
    })
    .await
}

fn there() -> Outcome {
    Outcome::Succeeded { output: Some("there".into()) }
}

#[tokio::test]
async fn a_redirect_is_a_status_like_others_unless_it_is_asked_for() {
    let server = redirecting().await;
    for status in [301, 302, 303, 307, 308] {
        let failure = failure(call(&post(server.url(&format!("/{status}/x")))).await);
        assert_eq!(failure.http_status, Some(status));
        assert_eq!(failure.permanence, Permanence::ByStatus);
    }
    assert_eq!(server.seen().len(), 5);
}

#[tokio::test]
async fn only_as_many_are_followed_as_are_asked_for() {
    let server = redirecting().await;
    let http = |redirects, path| Http { redirects, ..post(server.url(path)) };
    assert_eq!(call(&http(1, "/307/x")).await, there());
    assert_eq!(call(&http(3, "/307/302/301/x")).await, there());
    let failure = failure(call(&http(2, "/307/302/301/x")).await);
    assert_eq!(failure.http_status, Some(301));
    assert_eq!(server.seen().len(), 2 + 4 + 3);
}

#[tokio::test]
async fn method_and_body_survive_as_they_do_elsewhere() {
    for (method, status, becomes, keeps) in [
        ("POST", 301, "GET", false),
        ("POST", 302, "GET", false),
        ("POST", 303, "GET", false),
        ("PUT", 303, "GET", false),
        ("PUT", 301, "PUT", true),
        ("POST", 307, "POST", true),
        ("POST", 308, "POST", true),
        ("DELETE", 302, "DELETE", true),
        ("HEAD", 303, "HEAD", true),
    ] {
        let server = redirecting().await;
        let http = Http {
            method: method.to_owned(),
            body: Some(json!(1)),
            redirects: 1,
            ..post(server.url(&format!("/{status}/x")))
        };
        call(&http).await;
        let seen = server.seen();
        assert_eq!(seen[1].method, becomes, "{method} {status}");
        assert_eq!(seen[1].body == "1", keeps, "{method} {status}");
        assert_eq!(seen[1].header("content-type").is_some(), keeps, "{method} {status}");
        assert_eq!(seen[1].header("idempotency-key"), seen[0].header("idempotency-key"));
    }
}

#[tokio::test]
async fn strangers_get_no_keys() {
    let (first, second) = (redirecting().await, redirecting().await);
    let pairs = [("Authorization", "a"), ("Cookie", "b"), ("X-Api-Key", "c"), ("Accept", "d")];
    let headers: BTreeMap<String, String> =
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let http = Http {
        headers,
        redirects: 3,
        ..post(first.url(&format!("/307/307/{}", second.url(&format!("/307/{}", first.url("/x"))))))
    };
    assert_eq!(call(&http).await, there());
    let (at_home, abroad) = (first.seen(), second.seen());
    for name in ["authorization", "cookie", "x-api-key"] {
        assert!(at_home[1].header(name).is_some(), "{name}: the same origin is no stranger");
        assert_eq!(abroad[0].header(name), None, "{name}");
        assert_eq!(at_home[2].header(name), None, "{name}: a stranger has sent us here");
    }
    assert_eq!(abroad[0].header("accept"), Some("d"));
    assert_eq!(abroad[0].header("steadfast-attempt"), Some("2"));
}

/// Whatever the header is called that it stands in.
#[tokio::test]
async fn strangers_get_no_secrets() {
    let (first, second) = (redirecting().await, redirecting().await);
    let names = ["Steadfast-Token", "User-Agent", "Accept", "Idempotency-Key"];
    let secret = |name: &&str| ((*name).to_owned(), "\u{1}KEY\u{1}".to_owned());
    let url = first.url(&format!("/307/{}", second.url("/x")));
    let http = Http { headers: names.iter().map(secret).collect(), redirects: 1, ..post(url) };
    let secrets = BTreeMap::from([("KEY".to_owned(), "s3cr3t".to_owned())]);
    let order = HttpOrder { secrets: &secrets, ..order(&http) };
    assert_eq!(ended(caller().call(&order).await), there());
    let (at_home, abroad) = (first.seen(), second.seen());
    for name in names.map(str::to_lowercase) {
        assert_eq!(at_home[0].header(&name), Some("s3cr3t"), "{name}");
        assert_eq!(abroad[0].header(&name), None, "{name}");
    }
    assert_eq!(abroad[0].header("steadfast-step"), Some("notify"));
}

#[tokio::test]
async fn neither_callback_addresses_nor_secret_bodies_go_to_strangers() {
    let (first, second) = (redirecting().await, redirecting().await);
    let away = Http { redirects: 1, ..post(first.url(&format!("/307/{}", second.url("/x")))) };

    let later = Http { mode: HttpMode::Async, ..away.clone() };
    let refused = failure(ended(caller().call(&order(&later)).await));
    assert_eq!(error(&refused).0, "bad_redirect");

    let secret = Http { body: Some(json!("\u{1}KEY\u{1}")), ..away };
    let secrets = BTreeMap::from([("KEY".to_owned(), "s3cr3t".to_owned())]);
    let order = HttpOrder { secrets: &secrets, ..order(&secret) };
    let refused = failure(ended(caller().call(&order).await));
    assert_eq!(error(&refused).0, "bad_redirect");
    assert_eq!(second.connections(), 0);
}

#[tokio::test]
async fn a_redirect_to_nowhere_is_a_failure() {
    for location in ["ftp://x/", "http://", "javascript:alert(1)", "http://u:p@127.0.0.1/"] {
        let bytes = answer("302 x", &format!("Location: {location}\r\n"), "");
        let server = Server::start(move |_, _| (bytes.clone(), Then::Keep)).await;
        let http = Http { redirects: 5, ..post(server.url("/")) };
        let failure = failure(call(&http).await);
        assert_eq!(error(&failure).0, "bad_redirect", "{location}");
    }
    let bytes = answer("302 x", "", "");
    let server = Server::start(move |_, _| (bytes.clone(), Then::Keep)).await;
    let http = Http { redirects: 5, ..post(server.url("/")) };
    assert_eq!(failure(call(&http).await).http_status, Some(302));
}
