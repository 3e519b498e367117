//! What one connection may cost.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::get;
use reqwest::{Client, StatusCode};
use steadfast_api::proto::jobs_client::JobsClient;
use steadfast_api::proto::{ListJobsRequest, WatchJobRequest};
use steadfast_server::config::{Auth, ServerSettings};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::support::{PATIENCE, Running, once, routes};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn connect(server: &Running) -> TcpStream {
    TcpStream::connect(server.address).await.expect("connected")
}

/// From another address of this machine.
async fn connect_from(address: &str, server: &Running) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{address}:0").parse().expect("an address")).expect("ours");
    socket.connect(server.address).await.expect("connected")
}

/// All that comes until the server closes; being cut off is closing too.
async fn until_closed(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await;
    let _ = read.expect("the server closes");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One whole answer, the connection still open.
async fn answer(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 1024];
    while !text.ends_with("reached") {
        let count = timeout(PATIENCE, stream.read(&mut buffer)).await.expect("an answer");
        let count = count.expect("readable");
        assert!(count > 0, "closed after {text:?}");
        text += std::str::from_utf8(&buffer[..count]).expect("text");
    }
    text
}

#[tokio::test]
async fn who_sends_no_whole_request_is_closed() {
    let settings = ServerSettings { header_timeout_ms: 200, ..ServerSettings::default() };
    let server = Running::start(Auth::None, settings).await;
    for begun in [
        b"".as_slice(),
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        b"PRI * HT",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        let mut stream = connect(&server).await;
        stream.write_all(begun).await.expect("written");
        let said = until_closed(&mut stream).await;
        assert!(!said.contains("200 OK"), "{said}");
    }
    // A byte now and then is no progress.
    let (mut read, mut write) = connect(&server).await.into_split();
    let drip = tokio::spawn(async move {
        let mut every = tokio::time::interval(std::time::Duration::from_millis(20));
        while write.write_all(b"G").await.is_ok() {
            every.tick().await;
        }
    });
    let mut rest = Vec::new();
    let closed = timeout(PATIENCE, read.read_to_end(&mut rest)).await;
    assert!(closed.is_ok(), "a dripping header holds its connection");
    timeout(PATIENCE, drip).await.expect("cannot write any more").expect("no panic");
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_stream_is_not() {
    let settings = ServerSettings { idle_timeout_ms: 150, ..ServerSettings::default() };
    // One at a time is enough for a test.
    let (sender, receiver) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let receiver = once(receiver);
    let stream = move || {
        let receiver = receiver();
        async move { Body::from_stream(ReceiverStream::new(receiver)) }
    };
    let app = routes().route("/v1/jobs/1/events", get(stream));
    let server = Running::start_with(Auth::None, settings, app).await;
    let events = Client::new().get(server.url("/v1/jobs/1/events")).send().await.expect("begun");
    let mut events = events.bytes_stream();
    // Long enough for the farewell to one that is wrongly held to be idle.
    for number in 0..12 {
        let number = number.to_string();
        let mut idle = connect(&server).await;
        idle.write_all(REQUEST).await.expect("written");
        // Its end is the proof that the time for idleness has passed.
        assert!(until_closed(&mut idle).await.contains("200 OK"));
        sender.send(Ok(number.clone().into())).await.expect("the stream is open");
        let event = timeout(PATIENCE, events.next()).await.expect("in time");
        assert_eq!(event.expect("open").expect("whole"), number);
    }
    drop(sender);
    assert!(timeout(PATIENCE, events.next()).await.expect("in time").is_none());
}

#[tokio::test]
async fn headers_too_large_or_too_many_are_refused() {
    let server = Running::start(Auth::None, ServerSettings::default()).await;
    let client = Client::new();
    let large = client.get(server.url("/healthz")).header("x-large", "x".repeat(64 << 10));
    let status = large.send().await.expect("an answer").status();
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let mut many = client.get(server.url("/healthz"));
    for number in 0..200 {
        many = many.header(format!("x-{number}"), "x");
    }
    let status = many.send().await.expect("an answer").status();
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let endpoint = tonic::transport::Endpoint::from_shared(server.url("")).expect("a URL");
    let mut jobs = JobsClient::new(endpoint.connect().await.expect("connected"));
    let mut request = tonic::Request::new(ListJobsRequest::default());
    request.metadata_mut().insert("x-large", "x".repeat(64 << 10).parse().expect("text"));
    let refused = jobs.list_jobs(request).await.expect_err("too large");
    assert_ne!(refused.code(), Code::Unimplemented, "{refused}");
}

#[tokio::test]
async fn one_port_speaks_both_versions() {
    let server = Running::start(Auth::None, ServerSettings::default()).await;
    let one = Client::new().get(server.url("/healthz")).send().await.expect("an answer");
    assert_eq!((one.version(), one.status()), (reqwest::Version::HTTP_11, StatusCode::OK));
    let mut jobs = JobsClient::connect(server.url("")).await.expect("HTTP/2");
    let two = jobs.list_jobs(ListJobsRequest::default()).await.expect_err("only a route");
    assert_eq!(two.message(), "reached");
}

#[tokio::test]
async fn no_more_connections_are_served_than_are_allowed() {
    const ALLOWED: u32 = 2;
    const ASKING: usize = 6;
    let settings = ServerSettings { max_connections: ALLOWED, ..ServerSettings::default() };
    let (serving, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let go = Arc::new(Semaphore::new(0));
    // As many as there are requests.
    let (arrived, mut arrivals) = mpsc::channel(ASKING);
    let handler = {
        let (most, go) = (Arc::clone(&most), Arc::clone(&go));
        move || {
            let (serving, most) = (Arc::clone(&serving), Arc::clone(&most));
            let (go, arrived) = (Arc::clone(&go), arrived.clone());
            async move {
                most.fetch_max(serving.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                arrived.send(()).await.expect("the test waits");
                go.acquire().await.expect("open").forget();
                serving.fetch_sub(1, Ordering::SeqCst);
                "done"
            }
        }
    };
    let app = Router::new().route("/", get(handler));
    let server = Running::start_with(Auth::None, settings, app).await;
    let mut asking = Vec::new();
    for _ in 0..ASKING {
        let mut stream = connect(&server).await;
        asking.push(tokio::spawn(async move {
            let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.expect("written");
            until_closed(&mut stream).await
        }));
    }
    for _ in 0..ALLOWED {
        timeout(PATIENCE, arrivals.recv()).await.expect("in time").expect("served");
    }
    for _ in ALLOWED as usize..ASKING {
        go.add_permits(1);
        timeout(PATIENCE, arrivals.recv()).await.expect("the next has its turn").expect("served");
    }
    go.add_permits(ALLOWED as usize);
    for asked in asking {
        assert!(asked.await.expect("no panic").ends_with("done"));
    }
    assert_eq!(most.load(Ordering::SeqCst), ALLOWED as usize);
}

#[tokio::test]
async fn who_takes_nothing_of_an_answer_is_cut_off() {
    struct NotifyOnDrop(Option<oneshot::Sender<()>>);
    impl Drop for NotifyOnDrop {
        fn drop(&mut self) {
            let _ = self.0.take().expect("once").send(());
        }
    }
    let settings = ServerSettings { write_timeout_ms: 200, ..ServerSettings::default() };
    let (told, dropped) = oneshot::channel();
    let told = once(NotifyOnDrop(Some(told)));
    let endless = move || {
        let told = told();
        let parts = std::iter::repeat_with(move || {
            let _held = &told;
            Ok::<_, Infallible>(Bytes::from(vec![b'x'; 65536]))
        });
        async move { Body::from_stream(tokio_stream::iter(parts)) }
    };
    let app = Router::new().route("/", get(endless));
    let server = Running::start_with(Auth::None, settings, app).await;
    let mut stream = connect(&server).await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("written");
    timeout(PATIENCE, dropped).await.expect("the answer is given up").expect("told");
}

#[tokio::test]
async fn a_body_that_does_not_come_ends_its_request() {
    let settings = ServerSettings { body_timeout_ms: 200, ..ServerSettings::default() };
    let server = Running::start(Auth::None, settings).await;
    let mut stream = connect(&server).await;
    let request = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nx";
    stream.write_all(request).await.expect("written");
    let said = until_closed(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 4"), "{said}");
}

#[tokio::test]
async fn a_stop_lets_requests_end_and_takes_no_more() {
    let (begun, began) = oneshot::channel();
    let (go, gone) = oneshot::channel::<()>();
    let parts = once((begun, gone));
    let slow = move || {
        let (begun, gone) = parts();
        async move {
            begun.send(()).expect("the test waits");
            gone.await.expect("told to go on");
            "reached"
        }
    };
    let app = routes().route("/slow", get(slow));
    let mut server = Running::start_with(Auth::None, ServerSettings::default(), app).await;
    let mut idle = connect(&server).await;
    idle.write_all(REQUEST).await.expect("written");
    answer(&mut idle).await;
    let asked = tokio::spawn(Client::new().get(server.url("/slow")).send());
    timeout(PATIENCE, began).await.expect("in time").expect("begun");
    server.stop();
    until_closed(&mut idle).await;
    assert!(TcpStream::connect(server.address).await.is_err(), "the port is closed");
    go.send(()).expect("it waits");
    let response = asked.await.expect("no panic").expect("a whole answer");
    assert_eq!(response.text().await.expect("text"), "reached");
    timeout(PATIENCE, &mut server.done).await.expect("it returns").expect("no panic");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_ever() {
    let settings = ServerSettings { shutdown_grace_ms: 100, ..ServerSettings::default() };
    let endless = || async {
        Body::from_stream(
            tokio_stream::once(Ok::<_, Infallible>("x")).chain(tokio_stream::pending()),
        )
    };
    let app = Router::new().route("/", get(endless));
    let mut server = Running::start_with(Auth::None, settings, app).await;
    let mut stream = connect(&server).await;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.expect("written");
    let first = timeout(PATIENCE, stream.read_u8()).await.expect("in time");
    assert_eq!(first.expect("an answer begins"), b'H');
    server.stop();
    timeout(PATIENCE, &mut server.done).await.expect("it returns").expect("no panic");
    until_closed(&mut stream).await;
}

#[tokio::test]
async fn an_address_that_has_enough_connections_keeps_out_nobody_else() {
    const EACH: u32 = 3;
    let settings =
        ServerSettings { max_connections_per_address: EACH, ..ServerSettings::default() };
    let server = Running::start(Auth::None, settings).await;
    let mut held = Vec::new();
    for _ in 0..EACH {
        let mut stream = connect_from("127.0.0.2", &server).await;
        stream.write_all(REQUEST).await.expect("written");
        answer(&mut stream).await;
        held.push(stream);
    }
    for _ in 0..2 * EACH {
        let mut more = connect_from("127.0.0.2", &server).await;
        let _ = more.write_all(REQUEST).await;
        assert_eq!(until_closed(&mut more).await, "", "one too many was served");
    }
    let mut other = connect(&server).await;
    other.write_all(REQUEST).await.expect("written");
    answer(&mut other).await;
    drop(held);
    // The server sees soon that they are gone.
    loop {
        let mut again = connect_from("127.0.0.2", &server).await;
        let _ = again.write_all(REQUEST).await;
        let mut first = [0];
        if matches!(timeout(PATIENCE, again.read(&mut first)).await.expect("in time"), Ok(1)) {
            break;
        }
    }
}

#[tokio::test]
async fn a_stranger_does_not_stay_with_the_health_service() {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_service_status("", tonic_health::ServingStatus::Serving).await;
    let app = tonic::service::Routes::new(health).into_axum_router();
    let settings = ServerSettings { body_timeout_ms: 300, ..ServerSettings::default() };
    let server = Running::start_with(Auth::Required, settings, app).await;
    let channel = tonic::transport::Endpoint::from_shared(server.url("")).expect("a URL");
    let channel = channel.connect().await.expect("connected");
    let mut client = tonic_health::pb::health_client::HealthClient::new(channel);
    let asked = tonic_health::pb::HealthCheckRequest { service: String::new() };
    client.check(asked.clone()).await.expect("it serves");
    let mut watch = client.watch(asked.clone()).await.expect("begun").into_inner();
    assert!(watch.message().await.expect("the first").is_some());
    let ended = timeout(PATIENCE, watch.message()).await.expect("it ends").expect_err("cut off");
    assert_eq!(ended.code(), Code::DeadlineExceeded, "{ended}");
    // Who has a token is no stranger.
    let token = server.token(steadfast_server::tokens::Scope::Read);
    let mut known = tonic::Request::new(asked);
    let bearer = format!("Bearer {token}").parse().expect("text");
    known.metadata_mut().insert("authorization", bearer);
    let mut known = client.watch(known).await.expect("begun").into_inner();
    assert!(known.message().await.expect("the first").is_some());
    // A call that is never said to its end.
    let mut stream = connect(&server).await;
    let begun = b"POST /grpc.health.v1.Health/Check HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\n\
                  Content-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\0\0\0\r\n";
    stream.write_all(begun).await.expect("written");
    let said = until_closed(&mut stream).await;
    assert!(said.contains("grpc-status"), "{said}");
    reporter.set_service_status("", tonic_health::ServingStatus::NotServing).await;
    let told = timeout(PATIENCE, known.message()).await.expect("in time");
    assert!(told.expect("still watched").is_some());
}

#[tokio::test]
async fn a_call_that_is_not_answered_in_time_ends() {
    let settings = ServerSettings { body_timeout_ms: 100, ..ServerSettings::default() };
    let never = || std::future::pending::<&str>();
    let app = Router::new().route("/steadfast.v1.Jobs/ListJobs", axum::routing::post(never));
    let server = Running::start_with(Auth::None, settings, app).await;
    let mut jobs = JobsClient::connect(server.url("")).await.expect("HTTP/2");
    let call = timeout(PATIENCE, jobs.list_jobs(ListJobsRequest::default())).await;
    let ended = call.expect("it ends").expect_err("nobody answered");
    assert_eq!(ended.code(), Code::DeadlineExceeded, "{ended}");
}

#[tokio::test]
async fn who_takes_nothing_of_an_answer_on_http_2_is_cut_off() {
    let settings = ServerSettings { write_timeout_ms: 200, ..ServerSettings::default() };
    let endless = || async {
        let message = Bytes::from([vec![0, 0, 1, 0, 0], vec![0; 1 << 16]].concat());
        let parts = std::iter::repeat_with(move || Ok::<_, Infallible>(message.clone()));
        let body = Body::from_stream(tokio_stream::iter(parts));
        ([("content-type", "application/grpc")], body)
    };
    let app = Router::new().route("/steadfast.v1.Jobs/WatchJob", axum::routing::post(endless));
    let server = Running::start_with(Auth::None, settings, app).await;
    let mut jobs = JobsClient::connect(server.url("")).await.expect("HTTP/2");
    // It is open, and nobody reads it: pings are answered meanwhile.
    let unread = jobs.watch_job(WatchJobRequest::default()).await.expect("begun");
    let mut last = unread.into_inner();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let read_on = async { while let Ok(Some(_)) = last.message().await {} };
    timeout(PATIENCE, read_on).await.expect("an endless answer has ended");
}

#[tokio::test]
async fn what_a_client_leaves_unread_is_bounded() {
    const ANSWER: usize = 24 << 20;
    let settings = ServerSettings { max_unread_bytes: 2 * ANSWER, ..ServerSettings::default() };
    let app = routes().route("/v1/jobs/large", get(|| async { vec![b'x'; ANSWER] }));
    let server = Running::start_with(Auth::None, settings, app).await;
    let ask = b"GET /v1/jobs/large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut unread = Vec::new();
    let mut refused = 0;
    for _ in 0..6 {
        let mut stream = connect(&server).await;
        stream.write_all(ask).await.expect("written");
        let mut status = [0; 12];
        let read = timeout(PATIENCE, stream.read_exact(&mut status)).await.expect("in time");
        read.expect("an answer begins");
        match &status[9..] {
            b"200" => unread.push(stream),
            b"429" => refused += 1,
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    assert_eq!((unread.len(), refused), (2, 4));
    // Small ones are answered, and so are others.
    let client = Client::new();
    let small = client.get(server.url("/v1/jobs/1")).send().await.expect("an answer");
    assert_eq!(small.status(), StatusCode::OK);
    let mut other = connect_from("127.0.0.2", &server).await;
    other.write_all(ask).await.expect("written");
    assert!(until_closed(&mut other).await.len() > ANSWER);
    drop(unread);
    loop {
        let again = client.get(server.url("/v1/jobs/large")).send().await.expect("an answer");
        if again.status() == StatusCode::OK {
            assert_eq!(again.bytes().await.expect("whole").len(), ANSWER);
            break;
        }
    }
}
