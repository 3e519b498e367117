//! Answers that never come, break off, or never end.

use std::time::Duration;

use steadfast_core::outcome::{FailureKind, Outcome, Permanence};
use steadfast_core::plan::Http;
use steadfast_worker::http::{Allowed, Caller, HttpOrder, Outbound};
use tokio::net::TcpListener;

use crate::server::{LONG, Server, Then, answer};
use crate::{call, caller, ended, error, failure, order, post};

/// Long enough for a loopback connection, short enough for a test that waits for it.
const SHORT: Duration = Duration::from_millis(300);

async fn raw(bytes: &str, then: Then) -> Server {
    let bytes = bytes.to_owned();
    Server::start(move |_, _| (bytes.clone(), then)).await
}

async fn kind_of(server: &Server) -> String {
    let failure = failure(call(&post(server.url("/"))).await);
    assert_eq!(failure.kind, FailureKind::NotCompleted, "{failure:?}");
    assert_eq!(failure.permanence, Permanence::Open, "{failure:?}");
    error(&failure).0.to_owned()
}

#[tokio::test]
async fn a_handler_that_hangs_times_out_and_its_connection_is_closed() {
    for (begun, message) in [
        ("", "no answer within 300ms"),
        ("HTTP/1.1 200 OK\r\nX-", "no answer within 300ms"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234",
            "only 4 bytes of the answer within 300ms",
        ),
    ] {
        let server = raw(begun, Then::Hang).await;
        let http = post(server.url("/"));
        let order = HttpOrder { timeout: Some(SHORT), ..order(&http) };
        let failure = failure(ended(caller().call(&order).await));
        assert_eq!(failure.kind, FailureKind::TimedOut, "{begun}");
        assert_eq!(error(&failure), ("timeout", message));
        server.left().await;
    }
}

#[tokio::test]
async fn a_slow_drip_does_not_outlast_the_timeout() {
    for head in ["HTTP/1.1 200 OK\r\nX-Slow: ", "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"]
    {
        let server = raw(head, Then::Drip).await;
        let http = post(server.url("/"));
        let order = HttpOrder { timeout: Some(SHORT), ..order(&http) };
        let failure = failure(ended(caller().call(&order).await));
        assert_eq!(failure.kind, FailureKind::TimedOut, "{head}");
        server.left().await;
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_ends_its_connection() {
    let server = raw("", Then::Hang).await;
    let http = post(server.url("/"));
    let caller = caller();
    let order = order(&http);
    tokio::select! {
        called = caller.call(&order) => panic!("it ended: {called:?}"),
        () = server.asked() => {}
    }
    server.left().await;
}

#[tokio::test]
async fn a_connection_that_is_lost_is_told_as_such() {
    for (bytes, then) in [
        ("", Then::Close),
        ("", Then::Reset),
        ("HTTP/1.1 200 OK\r\nContent-", Then::Close),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", Then::Close),
        ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", Then::Reset),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", Then::Close),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nhalf", Then::Close),
    ] {
        assert_eq!(kind_of(&raw(bytes, then).await).await, "connection_lost", "{bytes} {then:?}");
    }
}

#[tokio::test]
async fn what_is_not_http_is_no_answer() {
    let huge = format!("HTTP/1.1 200 OK\r\nX-Huge: {}\r\n\r\n", "x".repeat(1 << 20));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Many: 1\r\n".repeat(500));
    for bytes in [
        "SSH-2.0-OpenSSH_9.6\r\n",
        "HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        let server = raw(bytes, Then::Hang).await;
        let shown: String = bytes.chars().take(60).collect();
        assert_eq!(kind_of(&server).await, "bad_answer", "{shown:?}");
    }
    for bytes in [&huge, &many] {
        assert_eq!(kind_of(&raw(bytes, Then::Hang).await).await, "response_too_large");
    }
}

#[tokio::test]
async fn an_answer_without_end_is_read_up_to_the_cap_and_no_further() {
    let endless = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    let chunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n";
    for head in [endless, chunk] {
        let server = raw(head, Then::Flood).await;
        assert_eq!(kind_of(&server).await, "response_too_large", "{head}");
        server.left().await;
        // What was written and not read lies in the buffers of the sockets.
        assert!(server.flooded() < 64 << 20, "{} bytes", server.flooded());
    }
}

#[tokio::test]
async fn an_answer_that_says_it_is_huge_is_not_read_at_all() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n";
    let server = raw(head, Then::Hang).await;
    assert_eq!(kind_of(&server).await, "response_too_large");
    server.left().await;
}

#[tokio::test]
async fn the_cap_is_the_operators_and_is_exact() {
    let server = Server::answering("200 OK", "12345").await;
    let with_cap = |response_cap| {
        let allow = vec![Allowed::Loopback];
        Caller::new(&Outbound { allow, response_cap, ..Outbound::default() }).expect("a caller")
    };
    let http = post(server.url("/"));
    let fits = ended(with_cap(5).call(&order(&http)).await);
    assert_eq!(fits, Outcome::Succeeded { output: Some(12345.into()) });
    let too_large = failure(ended(with_cap(4).call(&order(&http)).await));
    assert_eq!(error(&too_large), ("response_too_large", "the answer is larger than 4 bytes"));
}

#[tokio::test]
async fn old_and_odd_servers_are_understood() {
    for (bytes, then) in [
        ("HTTP/1.0 200 OK\r\n\r\n\"old\"", Then::Close),
        ("HTTP/1.1 200 OK\r\n\r\n\"old\"", Then::Close),
        ("HTTP/1.1 200\r\nContent-Length: 5\r\n\r\n\"old\"", Then::Keep),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\"o\r\n3\r\nld\"\r\n0\r\n\r\n",
            Then::Keep,
        ),
        (
            "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n\"old\"",
            Then::Keep,
        ),
    ] {
        let server = raw(bytes, then).await;
        let outcome = call(&post(server.url("/"))).await;
        assert_eq!(outcome, Outcome::Succeeded { output: Some("old".into()) }, "{bytes}");
    }
}

#[tokio::test]
async fn what_was_compressed_unasked_is_not_taken_for_a_success() {
    let bytes = answer("200 OK", "Content-Encoding: gzip\r\n", "\u{1f}...");
    let server = raw(&bytes, Then::Keep).await;
    let failure = failure(call(&post(server.url("/"))).await);
    assert_eq!(error(&failure).0, "unreadable_answer");
    assert_eq!(server.seen()[0].header("accept-encoding"), None);
}

#[tokio::test]
async fn nobody_there_is_a_connection_that_was_not_made() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    drop(listener);
    let refused = failure(call(&post(format!("http://{address}/"))).await);
    assert_eq!(error(&refused).0, "connect");
    assert_eq!(refused.permanence, Permanence::Open);
    assert!(error(&refused).1.contains(&address.to_string()), "{refused:?}");
}

#[tokio::test]
async fn connections_are_used_again() {
    let server = Server::answering("200 OK", "1").await;
    let caller = caller();
    let http = post(server.url("/"));
    for _ in 0..20 {
        ended(caller.clone().call(&order(&http)).await);
    }
    assert_eq!((server.seen().len(), server.connections()), (20, 1));
}

#[tokio::test]
async fn a_connection_that_the_server_closes_between_calls_costs_no_attempt() {
    let server = Server::start(|_, n| {
        (answer("200 OK", "", "1"), if n % 2 == 0 { Then::Close } else { Then::Keep })
    })
    .await;
    let caller = caller();
    let http = post(server.url("/"));
    ended(caller.call(&order(&http)).await);
    server.left().await;
    for _ in 0..4 {
        let outcome = ended(caller.call(&order(&http)).await);
        assert_eq!(outcome, Outcome::Succeeded { output: Some(1.into()) });
    }
}

#[tokio::test]
async fn many_at_once_are_all_answered() {
    let server = Server::answering("200 OK", "1").await;
    let caller = caller();
    let url = server.url("/");
    let calls: Vec<_> = (0..200)
        .map(|_| {
            let (caller, http) = (caller.clone(), post(url.clone()));
            tokio::spawn(async move { ended(caller.call(&order(&http)).await) })
        })
        .collect();
    for called in calls {
        let outcome = tokio::time::timeout(LONG, called).await.expect("in time").expect("no panic");
        assert_eq!(outcome, Outcome::Succeeded { output: Some(1.into()) });
    }
}

#[tokio::test]
async fn a_head_has_no_body_whatever_it_says() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10737418240\r\n\r\n";
    let server = raw(head, Then::Keep).await;
    let http = Http { method: "HEAD".to_owned(), ..post(server.url("/")) };
    assert_eq!(call(&http).await, Outcome::OK);
}
