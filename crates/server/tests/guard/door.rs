//! Who gets in.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use axum::Extension;
use axum::http::HeaderMap;
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN, WWW_AUTHENTICATE};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use steadfast_api::proto::jobs_client::JobsClient;
use steadfast_api::proto::workers_client::WorkersClient;
use steadfast_api::proto::{GetFileRequest, LaunchJobRequest, ListJobsRequest};
use steadfast_core::time::Timestamp;
use steadfast_server::config::{Auth, ServerSettings};
use steadfast_server::tokens::{Granted, Scope};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

use crate::support::{Log, Running, routes};

const OPEN: &[(Method, &str)] = &[
    (Method::GET, "/"),
    (Method::GET, "/assets/app.js"),
    (Method::GET, "/healthz"),
    (Method::GET, "/readyz"),
    (Method::POST, "/v1/callbacks/abc"),
    (Method::POST, "/grpc.health.v1.Health/Check"),
];

/// With the one scope of those below admin that is enough; none: admin alone, or worker alone.
const CLOSED: &[(Method, &str, Option<Scope>)] = &[
    (Method::GET, "/v1/jobs", Some(Scope::Read)),
    (Method::HEAD, "/v1/jobs", Some(Scope::Read)),
    (Method::GET, "/v1/jobs/1", Some(Scope::Read)),
    (Method::GET, "/metrics", Some(Scope::Read)),
    (Method::GET, "/openapi.json", Some(Scope::Read)),
    (Method::POST, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Some(Scope::Read)),
    (Method::POST, "/steadfast.v1.Jobs/ListJobs", Some(Scope::Read)),
    (Method::POST, "/steadfast.v1.Jobs/LaunchJob", Some(Scope::Submit)),
    (Method::POST, "/v1/jobs", Some(Scope::Submit)),
    (Method::POST, "/v1/jobs/1/cancel", Some(Scope::Submit)),
    (Method::POST, "/v1/workers/w/drain", None),
    (Method::POST, "/steadfast.v1.Workers/Session", Some(Scope::Worker)),
    (Method::GET, "/nowhere", Some(Scope::Read)),
    (Method::DELETE, "/nowhere", None),
    (Method::POST, "/some.other.Service/Call", None),
    (Method::OPTIONS, "/v1/jobs", None),
];

async fn sent(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

async fn code(response: Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE).cloned();
    assert_eq!(kind.expect("a type"), "application/problem+json");
    let status = response.status().as_u16();
    let problem: serde_json::Value = response.json().await.expect("JSON");
    assert_eq!(problem["status"], status);
    problem["code"].as_str().expect("a code").to_owned()
}

#[tokio::test]
async fn without_a_token_every_route_is_401_but_those_that_are_open() {
    let server = Running::start(Auth::Required, ServerSettings::default()).await;
    server.token(Scope::Admin);
    let client = Client::new();
    for (method, path) in OPEN {
        let response = sent(client.request(method.clone(), server.url(path))).await;
        assert_eq!(response.status(), StatusCode::OK, "{method} {path}");
    }
    for (method, path, _) in CLOSED {
        let response = sent(client.request(method.clone(), server.url(path))).await;
        assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{method} {path}");
        let challenge = response.headers().get(WWW_AUTHENTICATE).cloned().expect("a challenge");
        assert!(challenge.to_str().expect("text").starts_with("Bearer"), "{challenge:?}");
        if *method != Method::HEAD {
            assert_eq!(code(response).await, "unauthenticated", "{method} {path}");
        }
    }
    for wrong in ["Bearer nonsense", "Bearer sf_0000000000_00", "Basic abc", "Bearer", ""] {
        let request = client.get(server.url("/v1/jobs")).header("Authorization", wrong);
        assert_eq!(sent(request).await.status(), StatusCode::UNAUTHORIZED, "{wrong:?}");
    }
}

#[tokio::test]
async fn a_scope_opens_its_own_routes_and_no_others() {
    let server = Running::start(Auth::Required, ServerSettings::default()).await;
    let client = Client::new();
    for scope in Scope::ALL {
        let token = server.token(scope);
        for (method, path, wanted) in CLOSED {
            let request = client.request(method.clone(), server.url(path)).bearer_auth(&token);
            let response = sent(request).await;
            let allowed = match wanted {
                Some(wanted) => scope.allows(*wanted),
                None => scope == Scope::Admin,
            };
            let forbidden = response.status() == StatusCode::FORBIDDEN;
            assert_eq!(forbidden, !allowed, "{scope} {method} {path} {}", response.status());
            assert_ne!(response.status(), StatusCode::UNAUTHORIZED, "{scope} {method} {path}");
            if forbidden && *method != Method::HEAD {
                assert_eq!(code(response).await, "forbidden");
            }
        }
    }
}

#[tokio::test]
async fn two_tokens_in_one_request_are_none() {
    let server = Running::start(Auth::Required, ServerSettings::default()).await;
    let token = server.token(Scope::Admin);
    let request = Client::new().get(server.url("/v1/jobs")).bearer_auth(&token).bearer_auth(&token);
    assert_eq!(sent(request).await.status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_token_is_neither_logged_nor_handed_on() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
    let subscriber = subscriber.with_writer(Mutex::new(log.clone())).finish();
    // Everything runs on this thread.
    let _here = tracing::subscriber::set_default(subscriber);
    let seen = |headers: HeaderMap, granted: Option<Extension<Granted>>| async move {
        format!("{headers:?} {granted:?}")
    };
    let app = routes().route("/seen", axum::routing::get(seen));
    let server = Running::start_with(Auth::Required, ServerSettings::default(), app).await;
    let (good, gone) = (server.token(Scope::Read), server.token(Scope::Read));
    let revoked = gone.split('_').nth(1).expect("an id");
    server.tokens.revoke(revoked).expect("there");
    let client = Client::new();
    let seen = sent(client.get(server.url("/seen")).bearer_auth(&good)).await;
    let seen = seen.text().await.expect("text");
    let secret = |token: &str| token.rsplit('_').next().expect("a secret").to_owned();
    assert!(seen.contains("Read") && !seen.contains(&secret(&good)), "{seen}");
    sent(client.get(server.url("/seen")).bearer_auth(&gone)).await;
    let forbidden = client.post(server.url("/v1/jobs")).bearer_auth(&good);
    assert_eq!(sent(forbidden).await.status(), StatusCode::FORBIDDEN);
    let callback = client.post(server.url("/v1/callbacks/callback-token")).header(HOST, "evil");
    assert_eq!(sent(callback).await.status(), StatusCode::FORBIDDEN);
    let said = log.text();
    for code in ["unauthenticated", "forbidden", "host_not_allowed"] {
        assert!(said.contains(code), "{said}");
    }
    for secret in [secret(&good), secret(&gone), "callback-token".to_owned()] {
        // What the client itself says of its requests is not the server's.
        let ours = said.lines().filter(|line| line.contains("steadfast_server"));
        assert!(!ours.clone().any(|line| line.contains(&secret)), "{said}");
        assert!(ours.count() > 0);
    }
}

fn with<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {token}").parse().expect("text");
    request.metadata_mut().insert("authorization", value);
    request
}

async fn channel(server: &Running) -> Channel {
    let endpoint = Endpoint::from_shared(server.url("")).expect("a URL");
    endpoint.connect().await.expect("connected")
}

#[tokio::test]
async fn grpc_is_refused_in_its_own_words() {
    let server = Running::start(Auth::Required, ServerSettings::default()).await;
    let (read, worker) = (server.token(Scope::Read), server.token(Scope::Worker));
    let channel = channel(&server).await;
    let mut jobs = JobsClient::new(channel.clone());
    let list = ListJobsRequest::default;
    let nobody = jobs.list_jobs(list()).await.expect_err("no token");
    assert_eq!(nobody.code(), Code::Unauthenticated);
    assert!(nobody.message().contains("token create"), "{nobody}");
    let wrong = jobs.list_jobs(with(list(), "sf_1_2")).await.expect_err("wrong token");
    assert_eq!(wrong.code(), Code::Unauthenticated);
    let reader = jobs.list_jobs(with(list(), &read)).await.expect_err("behind the guard");
    assert_eq!((reader.code(), reader.message()), (Code::Unimplemented, "reached"));
    let launch = jobs.launch_job(with(LaunchJobRequest::default(), &read)).await;
    assert_eq!(launch.expect_err("reader").code(), Code::PermissionDenied);
    let mut workers = WorkersClient::new(channel);
    let file = workers.get_file(with(GetFileRequest::default(), &read)).await;
    assert_eq!(file.expect_err("no worker").code(), Code::PermissionDenied);
    let file = workers.get_file(with(GetFileRequest::default(), &worker)).await;
    assert_eq!(file.expect_err("behind the guard").code(), Code::Unimplemented);
}

#[tokio::test]
async fn a_revoked_or_expired_token_stops_at_the_next_request() {
    let server = Running::start(Auth::Required, ServerSettings::default()).await;
    let client = Client::new();
    let status = |token: &str| {
        let request = client.get(server.url("/v1/jobs")).bearer_auth(token);
        async { sent(request).await.status() }
    };
    let made = |expires| server.tokens.create(Scope::Read, None, expires, Timestamp(0));
    let lasting = made(None).expect("a token");
    let short = made(Some(Timestamp(5000))).expect("a token");
    assert_eq!(status(&lasting.text).await, StatusCode::OK);
    assert_eq!(status(&short.text).await, StatusCode::OK);
    server.now.store(5000, Ordering::Relaxed);
    assert_eq!(status(&short.text).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&lasting.text).await, StatusCode::OK);
    server.tokens.revoke(&lasting.id).expect("it is there");
    assert_eq!(status(&lasting.text).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_page_that_gives_us_its_own_name_is_refused() {
    let settings = ServerSettings {
        allowed_hosts: vec!["steadfast.test".into()],
        ..ServerSettings::default()
    };
    // Without tokens, for that is where a page could do harm.
    let server = Running::start(Auth::None, settings).await;
    let client = Client::new();
    for (host, fits) in [
        ("localhost:7117", true),
        ("127.0.0.1", true),
        ("steadfast.test", true),
        ("evil.example", false),
        ("localhost.evil.example:7117", false),
        ("192.168.1.1", false),
    ] {
        for path in ["/v1/jobs", "/healthz", "/"] {
            let response = sent(client.get(server.url(path)).header(HOST, host)).await;
            assert_eq!(response.status() == StatusCode::OK, fits, "{host} {path}");
            if !fits {
                assert_eq!(response.status(), StatusCode::FORBIDDEN);
                assert_eq!(code(response).await, "host_not_allowed");
            }
        }
    }
    let rebound = Endpoint::from_shared(server.url("")).expect("a URL");
    let rebound = rebound.origin("http://evil.example".parse().expect("a URL"));
    let mut jobs = JobsClient::new(rebound.connect().await.expect("connected"));
    let refused = jobs.list_jobs(ListJobsRequest::default()).await.expect_err("not our name");
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_page_of_another_origin_is_refused() {
    let allowed = "https://ops.example.com";
    let settings =
        ServerSettings { allowed_origins: vec![allowed.into()], ..ServerSettings::default() };
    let server = Running::start(Auth::None, settings).await;
    let client = Client::new();
    let own = format!("http://{}", server.address);
    for (origin, fits) in [
        (own.as_str(), true),
        (allowed, true),
        ("http://evil.example", false),
        ("http://localhost:1", false),
        ("http://127.0.0.1", false),
        ("null", false),
        ("https://ops.example.com.evil.example", false),
    ] {
        let response = sent(client.post(server.url("/v1/jobs")).header(ORIGIN, origin)).await;
        assert_eq!(response.status() == StatusCode::OK, fits, "{origin}");
        let told = response.headers().get("access-control-allow-origin").cloned();
        assert_eq!(told.is_some(), origin == allowed, "{origin}");
        if !fits {
            assert_eq!(code(response).await, "origin_not_allowed");
        }
    }
    let picture = client.get(server.url("/v1/jobs")).header("sec-fetch-site", "cross-site");
    assert_eq!(sent(picture).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_page_elsewhere_may_lead_to_the_dashboard_and_to_nothing_else() {
    let server = Running::start(Auth::None, ServerSettings::default()).await;
    let client = Client::new();
    for (path, from, to, fits) in [
        ("/", "cross-site", "document", true),
        ("/", "same-site", "document", true),
        ("/", "cross-site", "iframe", false),
        ("/v1/jobs", "cross-site", "document", false),
        ("/v1/jobs/1", "same-site", "document", false),
        ("/metrics", "cross-site", "document", false),
        ("/v1/jobs", "same-origin", "document", true),
        ("/v1/jobs", "none", "document", true),
    ] {
        let link = client.get(server.url(path)).header("sec-fetch-site", from);
        let link = link.header("sec-fetch-mode", "navigate").header("sec-fetch-dest", to);
        assert_eq!(sent(link).await.status() == StatusCode::OK, fits, "{path} {from} {to}");
    }
}

#[tokio::test]
async fn an_allowed_page_may_ask_whether_it_may_ask() {
    let allowed = "https://ops.example.com";
    let settings =
        ServerSettings { allowed_origins: vec![allowed.into()], ..ServerSettings::default() };
    let server = Running::start(Auth::Required, settings).await;
    let ask = |origin: &str| {
        let request = Client::new().request(Method::OPTIONS, server.url("/v1/jobs"));
        sent(request.header(ORIGIN, origin).header("access-control-request-method", "POST"))
    };
    let yes = ask(allowed).await;
    assert_eq!(yes.status(), StatusCode::NO_CONTENT);
    let headers = yes.headers().get("access-control-allow-headers").expect("told");
    assert!(headers.to_str().expect("text").contains("Authorization"));
    assert_eq!(ask("https://evil.example").await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn what_a_page_can_send_unasked_is_refused() {
    let server = Running::start(Auth::None, ServerSettings::default()).await;
    let client = Client::new();
    let own = format!("http://{}", server.address);
    for (kind, from_page, fits) in [
        ("application/x-www-form-urlencoded", false, false),
        ("Application/X-WWW-Form-Urlencoded; charset=utf-8", false, false),
        ("multipart/form-data; boundary=x", false, false),
        ("text/plain", false, false),
        ("application/octet-stream", false, false),
        ("text/html", false, false),
        ("", false, false),
        ("application/jsonp", false, false),
        ("application/problem+json", false, true),
        ("text/x-yaml", false, true),
        ("text/plain;charset=UTF-8", true, false),
        ("application/json", true, true),
        ("application/yaml", false, true),
        ("application/x-ndjson", false, true),
    ] {
        let mut request = client.post(server.url("/v1/jobs")).header(CONTENT_TYPE, kind).body("x");
        if from_page {
            request = request.header(ORIGIN, &own);
        }
        let response = sent(request).await;
        assert_eq!(response.status() == StatusCode::OK, fits, "{kind}");
        if !fits {
            assert_eq!(response.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
            assert_eq!(code(response).await, "unsupported_media_type");
        }
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_whether_it_says_its_size_or_not() {
    let settings = ServerSettings { max_body_bytes: 1024, ..ServerSettings::default() };
    let server = Running::start(Auth::None, settings).await;
    let client = Client::new();
    let post = |body: reqwest::Body| sent(client.post(server.url("/v1/jobs")).body(body));
    assert_eq!(post(vec![0; 1024].into()).await.text().await.expect("text"), "1024");
    assert_eq!(code(post(vec![0; 1025].into()).await).await, "too_large");
    let unsaid = |count: usize| {
        let parts = (0..count).map(|_| Ok::<_, std::io::Error>(vec![0u8; 64]));
        reqwest::Body::wrap_stream(tokio_stream::iter(parts))
    };
    assert_eq!(post(unsaid(16)).await.text().await.expect("text"), "1024");
    assert_eq!(post(unsaid(17)).await.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

/// The page needs no token; what it shows does, and any token may ask what it is good for.
#[tokio::test]
async fn a_page_is_opened_without_a_token_and_shows_nothing_by_itself() {
    let server = Running::start(Auth::Required, ServerSettings::default()).await;
    let get = |path: &str, accept: &'static str, site: &'static str| {
        let request = Client::builder()
            .no_proxy()
            .build()
            .expect("a client")
            .get(server.url(path))
            .header("accept", accept);
        let request = request.header("sec-fetch-site", site).header("sec-fetch-mode", "navigate");
        async {
            request
                .header("sec-fetch-dest", "document")
                .send()
                .await
                .expect("answers")
                .status()
                .as_u16()
        }
    };
    for site in ["none", "same-origin", "cross-site"] {
        for path in ["/", "/jobs/01h", "/overview"] {
            // 404: past the guard, where this server has no page.
            let status = get(path, "text/html", site).await;
            assert!(matches!(status, 200 | 404), "{path} from {site}: {status}");
        }
    }
    assert_eq!(get("/v1/jobs", "text/html", "none").await, 401);
    assert_eq!(get("/v1/jobs", "text/html", "cross-site").await, 403);
    assert_eq!(get("/metrics", "text/html", "none").await, 401);
    assert_eq!(get("/jobs/01h", "application/json", "none").await, 401);
    for scope in Scope::ALL {
        let token = server.token(scope);
        let answer = Client::builder()
            .no_proxy()
            .build()
            .expect("a client")
            .get(server.url("/v1/me"))
            .bearer_auth(token)
            .send()
            .await;
        assert_eq!(answer.expect("answers").status(), 404, "past the guard");
    }
    let nobody = Client::builder()
        .no_proxy()
        .build()
        .expect("a client")
        .get(server.url("/v1/me"))
        .send()
        .await
        .expect("answers");
    assert_eq!(nobody.status(), 401);
}
