//! What becomes of an answer that is under way when its token is taken away.

use std::convert::Infallible;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use reqwest::Client;
use steadfast_api::proto::WatchJobRequest;
use steadfast_api::proto::jobs_client::JobsClient;
use steadfast_core::time::Timestamp;
use steadfast_server::config::{Auth, ServerSettings};
use steadfast_server::tokens::Scope;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::Code;

use crate::support::{PATIENCE, Running};

/// It begins, and never ends by itself.
fn endless(kind: &'static str) -> impl IntoResponse {
    let first = Ok::<_, Infallible>(Bytes::from_static(b": here\n\n"));
    let body = tokio_stream::once(first).chain(tokio_stream::pending());
    ([(CONTENT_TYPE, kind)], Body::from_stream(body))
}

async fn server() -> Running {
    let silent = || async {
        let nothing = tokio_stream::pending::<Result<Bytes, Infallible>>();
        ([(CONTENT_TYPE, "application/grpc")], Body::from_stream(nothing))
    };
    let app = Router::new()
        .route("/v1/jobs/1/events", get(|| async { endless("text/event-stream") }))
        .route("/v1/jobs/1/logs/a/b", get(|| async { endless("text/plain; charset=utf-8") }))
        .route("/steadfast.v1.Jobs/WatchJob", post(silent));
    Running::start_with(Auth::Required, ServerSettings::default(), app).await
}

async fn opened(server: &Running, path: &str, token: &str) -> reqwest::Response {
    let request = Client::new().get(server.url(path)).bearer_auth(token);
    let mut response = request.send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert!(response.chunk().await.expect("open").is_some());
    response
}

#[tokio::test]
async fn a_stream_ends_soon_after_its_token_is_revoked_and_says_why() {
    let server = server().await;
    let token = server.tokens.create(Scope::Read, None, None, Timestamp(0)).expect("a token");
    let events = opened(&server, "/v1/jobs/1/events", &token.text).await;
    let log = opened(&server, "/v1/jobs/1/logs/a/b", &token.text).await;
    let mut jobs = JobsClient::connect(server.url("")).await.expect("HTTP/2");
    let mut request = tonic::Request::new(WatchJobRequest::default());
    let bearer = format!("Bearer {}", token.text).parse().expect("text");
    request.metadata_mut().insert("authorization", bearer);
    let mut watch = jobs.watch_job(request).await.expect("begun").into_inner();
    let other = server.token(Scope::Read);
    let mut kept = opened(&server, "/v1/jobs/1/events", &other).await;
    server.tokens.revoke(&token.id).expect("there");
    let rest = timeout(PATIENCE, events.text()).await.expect("it ends").expect("in order");
    assert!(rest.contains("event: problem") && rest.contains("unauthenticated"), "{rest}");
    assert!(rest.contains("revoked"), "{rest}");
    // A log has no place for words that were not printed: it breaks off, and who comes back is told.
    assert!(timeout(PATIENCE, log.bytes()).await.expect("it ends").is_err(), "it looks whole");
    let ended = timeout(PATIENCE, watch.message()).await.expect("it ends").expect_err("cut off");
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert!(ended.message().contains("revoked"), "{ended}");
    let silence = timeout(std::time::Duration::from_millis(10), kept.chunk()).await;
    assert!(silence.is_err(), "another's stream goes on");
}

#[tokio::test]
async fn a_stream_ends_soon_after_its_token_has_expired() {
    let server = server().await;
    let token = server.tokens.create(Scope::Read, None, Some(Timestamp(5000)), Timestamp(0));
    let events = opened(&server, "/v1/jobs/1/events", &token.expect("a token").text).await;
    server.now.store(5000, Ordering::Relaxed);
    let rest = timeout(PATIENCE, events.text()).await.expect("it ends").expect("in order");
    assert!(rest.contains("event: problem"), "{rest}");
}
