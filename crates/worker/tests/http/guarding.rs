//! Addresses that are not called, however they are written and whoever names them.

use steadfast_core::outcome::{Outcome, Permanence};
use steadfast_core::plan::Http;
use steadfast_worker::http::{Allowed, Caller, Outbound};

use crate::server::{Server, Then, answer};
use crate::{ended, error, failure, order, post};

fn allowing(words: &[&str]) -> Caller {
    let allow = words.iter().map(|word| word.parse().expect("a word")).collect();
    Caller::new(&Outbound { allow, ..Outbound::default() }).expect("a caller")
}

#[tokio::test]
async fn this_machine_is_not_called_in_any_notation() {
    let server = Server::answering("200 OK", "").await;
    let port = server.address.port();
    let caller = allowing(&[]);
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0177.0.0.01",
        "127.0.0.1.",
        "%31%32%37.0.0.1",
        "１２７.0.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[::]",
        "0.0.0.0",
        "0",
        "localhost",
        "LOCALHOST",
    ] {
        let http = post(format!("http://{host}:{port}/"));
        let failure = failure(ended(caller.call(&order(&http)).await));
        assert_eq!(error(&failure).0, "refused_address", "{host}: {failure:?}");
        assert!(error(&failure).1.contains("--allow-outbound"), "{failure:?}");
        assert_eq!(failure.permanence, Permanence::Said, "{host}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn neighbours_and_metadata_are_not_called() {
    let caller = allowing(&["loopback"]);
    for (host, word) in [
        ("169.254.169.254", "link-local"),
        ("[fe80::1]", "link-local"),
        ("0xa9fea9fe", "link-local"),
        ("10.0.0.1", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("[fd00:ec2::254]", "private"),
        ("224.0.0.1", "224.0.0.1/32"),
        ("255.255.255.255", "255.255.255.255/32"),
    ] {
        for scheme in ["http", "https"] {
            let http = post(format!("{scheme}://{host}/latest/meta-data"));
            let failure = failure(ended(caller.call(&order(&http)).await));
            let (kind, message) = error(&failure);
            assert_eq!(kind, "refused_address", "{host}");
            assert!(message.contains(&format!("--allow-outbound {word} ")), "{message}");
        }
    }
}

#[tokio::test]
async fn a_redirect_leads_to_no_address_that_is_refused() {
    let inner = Server::answering("200 OK", "\"secrets\"").await;
    let port = inner.address.port();
    // Another address of this machine, so that one is allowed and the other is not.
    let targets =
        [format!("http://127.0.0.2:{port}/"), format!("http://0x7f.2:{port}/"), "//[::1]/".into()];
    for target in targets {
        let bytes = answer("307 x", &format!("Location: {target}\r\n"), "");
        let outer = Server::start(move |_, _| (bytes.clone(), Then::Keep)).await;
        let http = Http { redirects: 5, ..post(outer.url("/")) };
        let failure = failure(ended(allowing(&["127.0.0.1/32"]).call(&order(&http)).await));
        assert_eq!(error(&failure).0, "refused_address", "{target}");
        assert_eq!(failure.permanence, Permanence::Said);
    }
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn what_is_allowed_is_called() {
    let server = Server::answering("200 OK", "").await;
    let port = server.address.port();
    for words in [&["loopback"][..], &["127.0.0.0/8"], &["private", "127.0.0.1"]] {
        for host in ["127.0.0.1", "2130706433", "[::ffff:127.0.0.1]", "localhost"] {
            let http = post(format!("http://{host}:{port}/"));
            let outcome = ended(allowing(words).call(&order(&http)).await);
            assert_eq!(outcome, Outcome::OK, "{words:?} {host}");
        }
    }
}

#[tokio::test]
async fn a_name_that_does_not_exist_may_exist_later() {
    let caller = Caller::new(&Outbound { allow: vec![Allowed::Loopback], ..Outbound::default() });
    // Longer than a label may be, so that no name server is asked.
    let http = post(format!("http://{}.invalid/", "x".repeat(64)));
    let failure = failure(ended(caller.expect("a caller").call(&order(&http)).await));
    assert_eq!(error(&failure).0, "dns", "{failure:?}");
    assert_eq!(failure.permanence, Permanence::Open);
}
