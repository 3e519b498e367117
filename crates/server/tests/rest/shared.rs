//! One answer for all who ask the same.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use serde_json::Value;
use steadfast_core::time::Timestamp;
use steadfast_server::config::{Auth, ServerSettings};
use steadfast_server::guard::Guard;
use steadfast_server::tokens::{Scope, Tokens};
use steadfast_store::FolderSettings;

use crate::server::{Answer, Server};
use crate::{HOLD, OK};

/// As pages have it open.
struct Changes {
    bytes: Box<dyn futures_util::Stream<Item = reqwest::Result<axum::body::Bytes>> + Send + Unpin>,
    text: String,
}

impl Changes {
    async fn open(server: &Server) -> Self {
        let request = server.client.get(format!("{}/v1/jobs/changes", server.url));
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["cache-control"], "no-cache");
        Self { bytes: Box::new(Box::pin(response.bytes_stream())), text: String::new() }
    }

    async fn next(&mut self) -> Value {
        let next = async {
            loop {
                let text = self.text.clone();
                if let Some((message, rest)) = text.split_once("\n\n") {
                    let data = message.strip_prefix("event: jobs\ndata: ").expect(message);
                    let data = serde_json::from_str(data).expect("JSON");
                    rest.clone_into(&mut self.text);
                    return data;
                }
                let bytes = self.bytes.next().await.expect("goes on").unwrap();
                self.text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
        };
        tokio::time::timeout(Duration::from_secs(20), next).await.expect("a message")
    }

    /// The message that tells of the job, and as of which that is.
    async fn until_told(&mut self, id: &str) -> String {
        loop {
            let message = self.next().await;
            if message["ids"].as_array().unwrap().iter().any(|told| told == id) {
                return message["as_of"].as_str().unwrap().to_owned();
            }
        }
    }
}

fn has(page: &Answer, id: &str) -> bool {
    assert_eq!(page.status, 200, "{page:?}");
    assert_eq!(page.headers["content-type"], "application/json");
    page.json["jobs"].as_array().unwrap().iter().any(|job| job["id"] == id)
}

#[tokio::test]
async fn pages_that_are_told_the_same_have_one_answer_and_it_has_what_they_were_told() {
    let server = Server::start().await;
    let mut changes = Changes::open(&server).await;
    let first = changes.next().await;
    let before = first["as_of"].as_str().unwrap().to_owned();
    let stale = server.get(&format!("/v1/jobs?as_of={before}")).await;
    let id = server.submit(HOLD).await;
    assert!(!has(&stale, &id));
    let as_of = changes.until_told(&id).await;
    assert_ne!(as_of, before);
    server.watched.lists();
    let path = format!("/v1/jobs?limit=50&as_of={as_of}");
    let pages = join_all((0..100).map(|_| server.get(&path))).await;
    assert!(pages.iter().all(|page| has(page, &id) && page.text == pages[0].text));
    // What would be too old while they ask is read again.
    let read = server.watched.lists();
    assert!((1..=10).contains(&read), "read {read} times");
    let others = server.get(&format!("/v1/jobs?limit=50&state=failed&as_of={as_of}")).await;
    assert!(!has(&others, &id), "another question has another answer");
}

#[tokio::test]
async fn who_does_not_say_as_of_when_reads_what_was_written_before_it_asked() {
    let server = Server::start().await;
    let mut changes = Changes::open(&server).await;
    changes.next().await;
    let asked = async {
        for _ in 0..20 {
            let id = server.submit(OK).await;
            assert!(has(&server.get("/v1/jobs").await, &id));
            let counts = server.get("/v1/jobs/counts").await;
            let known: u64 = counts.json["by_state"]
                .as_object()
                .unwrap()
                .values()
                .filter_map(Value::as_u64)
                .sum();
            let listed = server.get("/v1/jobs").await.json["jobs"].as_array().unwrap().len();
            assert!(known <= listed as u64, "{counts:?}");
        }
    };
    // Beside others who ask the same all the time.
    let noise = async {
        loop {
            join_all((0..8).map(|_| server.get("/v1/jobs"))).await;
        }
    };
    tokio::select! {
        () = asked => {}
        () = noise => {}
    }
}

#[tokio::test]
async fn many_who_ask_at_once_wait_for_few_readings() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    server.watched.lists();
    let all = 200;
    let pages = join_all((0..all).map(|_| server.get("/v1/jobs"))).await;
    assert!(pages.iter().all(|page| has(page, &id)));
    let read = server.watched.lists();
    assert!(read < all, "each was read for itself");
}

#[tokio::test]
async fn as_of_is_that_of_a_message_and_of_another_server_it_says_nothing() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    for as_of in ["0123456789abcdef-7", "0123456789abcdef-0"] {
        assert!(has(&server.get(&format!("/v1/jobs?as_of={as_of}")).await, &id));
        let newer = server.submit(HOLD).await;
        assert!(has(&server.get(&format!("/v1/jobs?as_of={as_of}")).await, &newer));
    }
    for wrong in ["", "7", "now", "0123456789ABCDEF-7", "0123456789abcdef-", "0123456789abcdef--7"]
    {
        let answer = server.get(&format!("/v1/jobs?as_of={wrong}")).await;
        answer.is_problem(400, "bad_request");
    }
    server.get("/v1/jobs?cursor=no").await.is_problem(400, "bad_cursor");
}

#[tokio::test]
async fn an_answer_is_for_those_alone_who_may_ask() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    let folder = tempfile::tempdir().unwrap();
    let kept = Arc::new(FolderSettings::new(folder.path().to_owned()));
    let tokens = Arc::new(Tokens::open(kept).unwrap());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let settings = ServerSettings::default();
    let guard = Guard::new(&settings, Auth::Required, address, tokens.clone(), || Timestamp(1000));
    let guarded = guard.protect(server.routes.clone());
    tokio::spawn(async move { axum::serve(listener, guarded).await });
    let mut changes = Changes::open(&server).await;
    let as_of = changes.next().await["as_of"].as_str().unwrap().to_owned();
    let token = |scope| tokens.create(scope, None, None, Timestamp(0)).unwrap().text;
    let (reads, works) = (token(Scope::Read), token(Scope::Worker));
    let paths =
        [&format!("/v1/jobs?as_of={as_of}"), "/v1/jobs/counts", "/v1/workers", "/v1/overview"];
    for path in paths {
        let ask = |token: Option<&str>| {
            let request = server.client.get(format!("http://{address}{path}"));
            Answer::of(match token {
                Some(token) => request.bearer_auth(token),
                None => request,
            })
        };
        let seen = ask(Some(&reads)).await;
        assert_eq!(seen.status, 200, "{seen:?}");
        for (token, status) in [(Some(&*works), 403), (Some("wrong"), 401), (None, 401)] {
            let refused = ask(token).await;
            assert_eq!(refused.status, status, "{path}");
            assert!(!refused.text.contains(&id), "{refused:?}");
        }
    }
}
