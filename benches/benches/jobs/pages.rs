//! What open pages of the dashboard cost: each has a stream of changes, and asks for the list again when it is told of some.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast_benches::{Measured, figure, repeats};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::setup::{Bench, Until};

/// Pages from one address; a server takes 512 connections of each.
const OF_ONE_ADDRESS: u32 = 200;
const IDLE: Duration = Duration::from_secs(10);

/// Jobs with 64 in flight beside no page, one, and `pages`; before them, what the pages cost while nothing happens.
pub(crate) async fn pages(pages: u32, jobs: u32) {
    for open in [0, 1, pages] {
        let workload = format!("pages_{open}");
        let mut measured = Measured::new(&workload, "job");
        for _ in 0..repeats(3) {
            let bench = Bench::start(64, 0, None).await;
            let asked = Arc::new(AtomicU64::new(0));
            let mut tasks = JoinSet::new();
            for number in 0..open {
                let stream = connect(&bench.server.address, number).await;
                tasks.spawn(page(stream, bench.server.address.clone(), number, asked.clone()));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            let before = bench.server.standing();
            tokio::time::sleep(IDLE).await;
            let idle = (bench.server.standing().cpu - before.cpu) / IDLE.as_secs_f64() * 100.0;
            figure(&workload, "idle", "% of a core", idle);
            asked.store(0, Ordering::Relaxed);
            let before = bench.server.standing();
            bench.submit(64, jobs, Until::Called).await;
            measured.add(before, bench.server.standing(), jobs);
            println!(
                "{workload}: idle {idle:.2} % of a core; {} lists asked for while jobs ran",
                asked.load(Ordering::Relaxed)
            );
        }
        println!("{workload}, {jobs} jobs: {measured}");
    }
}

async fn connect(server: &str, number: u32) -> TcpStream {
    let server: SocketAddr = server.parse().expect("an address");
    let socket = TcpSocket::new_v4().expect("a socket");
    let from = format!("127.0.0.{}:0", 2 + number / OF_ONE_ADDRESS);
    socket.bind(from.parse().expect("an address")).expect("ours");
    socket.connect(server).await.expect("connected")
}

/// As the dashboard does: one stream, and after each message a list as of that message, a second after the last one at the soonest.
/// The server sends one message a second at most.
async fn page(mut stream: TcpStream, server: String, number: u32, asked: Arc<AtomicU64>) {
    let head =
        "GET /v1/jobs/changes HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut lists = connect(&server, number).await;
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = stream.read(&mut bytes).await.unwrap_or(0);
        if read == 0 {
            return;
        }
        let told = String::from_utf8_lossy(&bytes[..read]);
        if !told.contains("event: jobs") || told.contains("\"ids\":[],\"more\":false") {
            continue;
        }
        asked.fetch_add(1, Ordering::Relaxed);
        let as_of = told.split_once("\"as_of\":\"").and_then(|(_, rest)| rest.split('"').next());
        let as_of = as_of.map(|as_of| format!("&as_of={as_of}")).unwrap_or_default();
        let head = format!("GET /v1/jobs?limit=100{as_of} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        if lists.write_all(head.as_bytes()).await.is_err() || !read_answer(&mut lists).await {
            lists = connect(&server, number).await;
        }
    }
}

/// False: it did not come to its end.
async fn read_answer(stream: &mut TcpStream) -> bool {
    let (mut answer, mut bytes) = (Vec::new(), vec![0; 16 << 10]);
    loop {
        match stream.read(&mut bytes).await {
            Ok(read) if read > 0 => answer.extend_from_slice(&bytes[..read]),
            _ => return false,
        }
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| {
            line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
        });
        if length.is_some_and(|length: usize| body.len() >= length) {
            return true;
        }
    }
}
