//! What 5,000 hostile connections from one address cost a client from another: silent ones, slow ones, ones that
//! do not read their answers, and ones that send half a body. All on loopback: they come from 127.0.0.2.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench hostile
//!
//! `-- 1000` has so many of them.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast_benches::{Folder, Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::time::{sleep, timeout};

const HOSTILE: usize = 5000;
/// Reads of the good client in a round; every tenth is a submission too.
const ASKED: usize = 2000;
/// A hostile connection that was closed is opened again after so long.
const AGAIN: Duration = Duration::from_secs(3);
/// For all of them to be there, or refused, for the first time.
const GATHER: Duration = Duration::from_secs(5);
const JOB: &str = r#"{"name":"good","steps":{"s":{"call":"nobody"}}}"#;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test --benches` only wants to know that it starts.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let hostile = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(HOSTILE);
    // Each end of a hostile connection has a descriptor; ours are in this process.
    steadfast_server::listen::connections_within(hostile + 1000);
    let folder = Folder::new();
    let server = Server::start("server", &folder, &[]);
    let address: SocketAddr = server.address.parse().expect("an address");
    round("warming up", &server);
    let quiet = round("alone", &server);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let open = Arc::new(AtomicUsize::new(0));
    for number in 0..hostile {
        runtime.spawn(hostile_connection(number, address, open.clone()));
    }
    std::thread::sleep(GATHER);
    // Most of those that were closed at once have not noticed yet.
    let named =
        format!("beside {hostile}, {} connected as they see it", open.load(Ordering::Relaxed));
    let attacked = round(&named, &server);
    drop(runtime);
    std::thread::sleep(GATHER);
    round("alone again", &server);
    for (what, before, with) in
        [("reads", &quiet.0, &attacked.0), ("submissions", &quiet.1, &attacked.1)]
    {
        let times = |part: fn(&[Duration]) -> Duration| {
            part(with).as_secs_f64() / part(before).as_secs_f64()
        };
        println!(
            "{what}: p50 {:.2} ×, p99 {:.2} × of what they were alone",
            times(p50),
            times(p99)
        );
    }
}

fn p50(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100]
}

/// Of reads and of submissions, each on a connection of its own, sorted.
fn round(name: &str, server: &Server) -> (Vec<Duration>, Vec<Duration>) {
    let address: SocketAddr = server.address.parse().expect("an address");
    let (mut reads, mut submissions) = (Vec::new(), Vec::new());
    for number in 0..ASKED {
        let begun = Instant::now();
        ask(address, "GET /v1/jobs?limit=10", "");
        reads.push(begun.elapsed());
        if number % 10 == 0 {
            let begun = Instant::now();
            ask(address, "POST /v1/jobs", JOB);
            submissions.push(begun.elapsed());
        }
    }
    reads.sort();
    submissions.sort();
    println!(
        "{name}: reads p50 {:?}, p99 {:?}; submissions p50 {:?}, p99 {:?}; server {}",
        p50(&reads),
        p99(&reads),
        p50(&submissions),
        p99(&submissions),
        server.standing(),
    );
    (reads, submissions)
}

fn ask(server: SocketAddr, what: &str, body: &str) {
    let mut stream = TcpStream::connect(server).expect("connected");
    let head = format!(
        "{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
}

async fn hostile_connection(number: usize, server: SocketAddr, open: Arc<AtomicUsize>) {
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("ours");
        if let Ok(Ok(mut stream)) = timeout(AGAIN, socket.connect(server)).await {
            open.fetch_add(1, Ordering::Relaxed);
            let said: &[u8] = match number % 4 {
                0 => b"",
                1 => b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
                2 => b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n",
                _ => {
                    b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                      Content-Length: 1000000\r\n\r\n{\"name\":"
                }
            };
            let mut still_open = stream.write_all(said).await.is_ok();
            while still_open {
                // Those that are slow go on, a byte a second; those that ask ask again, and read nothing.
                sleep(Duration::from_secs(1)).await;
                still_open = match number % 4 {
                    0 => true,
                    1 | 3 => stream.write_all(b"x").await.is_ok(),
                    _ => {
                        timeout(AGAIN, stream.write_all(said)).await.is_ok_and(|sent| sent.is_ok())
                    }
                };
                if number % 4 != 2 {
                    let mut byte = [0];
                    let read = timeout(Duration::from_millis(1), stream.read(&mut byte)).await;
                    still_open &= !matches!(read, Ok(Ok(0) | Err(_)));
                }
            }
            open.fetch_sub(1, Ordering::Relaxed);
        }
        sleep(AGAIN).await;
    }
}
