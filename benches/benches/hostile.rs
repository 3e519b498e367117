//! What 5,000 hostile connections from one address cost a client from another: silent ones, slow ones, ones that
//! do not read their answers, and ones that send half a body. All on loopback: they come from 127.0.0.2. Then what a
//! token of scope `read` costs in memory with 200 unread answers about a job with 60 MiB of outputs.
//!
//! The hostile ones are a process of their own with the lowest priority: they would have cores of their own elsewhere, and
//! what is measured is what they cost the server.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench hostile
//!
//! `-- 1000` has so many of them.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use steadfast::{Client, Context, Error, Job, Step, Worker};
use steadfast_core::time::Timestamp;
use steadfast_server::tokens::{Scope, Tokens};
use steadfast_store::Folder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

const HOSTILE: usize = 5000;
/// Reads of the good client in a round, several times as long as `AGAIN`; every tenth is a submission too.
const ASKED: usize = 40_000;
/// A hostile connection that was closed is opened again after so long.
const AGAIN: Duration = Duration::from_secs(3);
/// For all of them to be there, or refused, for the first time.
const GATHER: Duration = Duration::from_secs(5);
/// Answers that are asked for with one token, and not read.
const UNREAD: usize = 200;
/// Of the job that they are about, 1 MiB each.
const OUTPUTS: u32 = 60;
/// For all answers to begin; those that wait for their turn are counted as such.
const BEGIN: Duration = Duration::from_secs(20);
/// Of a hostile connection, so that little of an answer is out of the server's hands.
const RECEIVED: u32 = 4096;
/// Before the address that the hostile connections are made to.
const ATTACK: &str = "--attack=";
const JOB: &str = r#"{"name":"good","steps":{"s":{"call":"nobody"}}}"#;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test --benches` only wants to know that it starts.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let hostile = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(HOSTILE);
    if let Some(address) = args.iter().find_map(|arg| arg.strip_prefix(ATTACK)) {
        return attack(address.parse().expect("an address"), hostile);
    }
    attacked(hostile);
    unread();
}

fn attacked(hostile: usize) {
    let server = Server::start(&[]);
    round("warming up", &server);
    let quiet = round("alone", &server);
    let mut attackers = Attackers::start(server.address, hostile);
    std::thread::sleep(GATHER);
    // Most of those that were closed at once have not noticed yet.
    let named = format!("beside {hostile}, {}", attackers.ask());
    let attacked = round(&named, &server);
    println!("at the end of it {}", attackers.ask());
    drop(attackers);
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

/// The hostile connections, in another process.
struct Attackers(Child);

impl Attackers {
    fn start(server: SocketAddr, hostile: usize) -> Self {
        let started = Command::new("nice")
            .args(["-n", "19"])
            .arg(std::env::current_exe().expect("a path"))
            .args([format!("{ATTACK}{server}"), hostile.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        Self(started.expect("they start, by `nice`"))
    }

    /// How many there are, and what they have done.
    fn ask(&mut self) -> String {
        self.0.stdin.as_mut().expect("piped").write_all(b"\n").expect("it reads");
        let mut line = String::new();
        let stdout = self.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }
}

impl Drop for Attackers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What [`Attackers`] runs: it says how far it is whenever it is sent a line.
fn attack(server: SocketAddr, hostile: usize) {
    // Each end of a hostile connection has a descriptor; theirs are in this process.
    steadfast_server::listen::connections_within(hostile + 1000);
    let runtime = runtime();
    let done = Arc::new(Done::default());
    for number in 0..hostile {
        runtime.spawn(hostile_connection(number, server, done.clone()));
    }
    for _ in std::io::stdin().lines() {
        let (open, dialled, sent) = (&done.open, &done.dialled, &done.sent);
        println!(
            "{} connected as they see it, {} connections made and {} times something sent",
            open.load(Ordering::Relaxed),
            dialled.load(Ordering::Relaxed),
            sent.load(Ordering::Relaxed)
        );
    }
}

#[derive(Default)]
struct Done {
    open: AtomicUsize,
    dialled: AtomicU64,
    sent: AtomicU64,
}

fn runtime() -> Runtime {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime")
}

fn unread() {
    let server = Server::start(&[Scope::Submit, Scope::Worker, Scope::Read]);
    let [submit, worker, read] = &server.tokens[..] else { unreachable!("one for each scope") };
    runtime().block_on(async {
        let at = |token: &String| {
            steadfast::Server::new(format!("http://{}", server.address)).token(token)
        };
        let client = Client::connect(at(submit)).await.expect("a server");
        let large = |_: Context, (): ()| async { Ok::<_, Error>("x".repeat((1 << 20) - 2)) };
        let working =
            tokio::spawn(Worker::builder().function("large", large).build().run(at(worker)));
        let job = Job::new("large").step(Step::call("s", "large").for_each_range(OUTPUTS));
        let id = client.submit(&job).await.expect("taken");
        assert!(client.wait(&id).await.expect("a server").is_success());
        working.abort();
        for part in ["", "/outputs?limit=1000", "/events?limit=1000", "/explain", "/attempts"] {
            let path = format!("/v1/jobs/{id}{part}");
            server.forget_peak();
            let before = server.memory("VmRSS:");
            let asking = (0..UNREAD)
                .map(|_| tokio::spawn(left_unread(server.address, path.clone(), read.clone())));
            let mut counts = std::collections::BTreeMap::<String, usize>::new();
            let mut open = Vec::new();
            for asked in asking.collect::<Vec<_>>() {
                let (stream, status) = asked.await.expect("no panic");
                *counts.entry(status).or_default() += 1;
                open.push(stream);
            }
            let counts: Vec<_> =
                counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
            println!(
                "{UNREAD} unread of /v1/jobs/ID{part}: server {before}, at most {}; {}",
                server.memory("VmHWM:"),
                counts.join(", "),
            );
            drop(open);
            sleep(GATHER).await;
        }
    });
}

/// The connection, and the status of the answer that has begun on it.
async fn left_unread(
    server: SocketAddr,
    path: String,
    token: String,
) -> (tokio::net::TcpStream, String) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(RECEIVED).expect("a buffer");
    let mut stream = socket.connect(server).await.expect("connected");
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("written");
    let mut line = [0; "HTTP/1.1 200".len()];
    let status = match timeout(BEGIN, stream.read_exact(&mut line)).await {
        Ok(Ok(_)) => String::from_utf8_lossy(&line[9..]).into_owned(),
        Ok(Err(_)) => "closed".to_owned(),
        Err(_) => "wait".to_owned(),
    };
    (stream, status)
}

fn p50(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() / 2]
}

fn p99(sorted: &[Duration]) -> Duration {
    sorted[sorted.len() * 99 / 100]
}

/// Of reads and of submissions, each on a connection of its own, sorted.
fn round(name: &str, server: &Server) -> (Vec<Duration>, Vec<Duration>) {
    let (mut reads, mut submissions) = (Vec::new(), Vec::new());
    for number in 0..ASKED {
        let begun = Instant::now();
        ask(server.address, "GET /v1/jobs?limit=10", "");
        reads.push(begun.elapsed());
        if number % 10 == 0 {
            let begun = Instant::now();
            ask(server.address, "POST /v1/jobs", JOB);
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
        server.memory("VmRSS:"),
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

async fn hostile_connection(number: usize, server: SocketAddr, done: Arc<Done>) {
    // They do not know of each other, so what they do each second they do not do all at once.
    sleep(Duration::from_millis(number as u64 * 7 % 1000)).await;
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.2:0".parse().expect("an address")).expect("ours");
        if let Ok(Ok(mut stream)) = timeout(AGAIN, socket.connect(server)).await {
            done.open.fetch_add(1, Ordering::Relaxed);
            done.dialled.fetch_add(1, Ordering::Relaxed);
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
                done.sent.fetch_add(u64::from(!number.is_multiple_of(4)), Ordering::Relaxed);
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
            done.open.fetch_sub(1, Ordering::Relaxed);
        }
        sleep(AGAIN).await;
    }
}

struct Server {
    child: Child,
    address: SocketAddr,
    folder: PathBuf,
    /// Of those scopes that were asked for.
    tokens: Vec<String>,
}

impl Server {
    /// Wants tokens if there are scopes that they are for.
    fn start(scopes: &[Scope]) -> Self {
        let folder = std::env::temp_dir().join(format!("steadfast-bench-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let kept = Folder::new(folder.clone());
        kept.create().expect("a folder");
        let known = Tokens::open(kept.storage().settings()).expect("none yet");
        let create = |scope| known.create(scope, None, None, Timestamp(0)).expect("a token").text;
        let tokens: Vec<String> = scopes.iter().copied().map(create).collect();
        let auth = if tokens.is_empty() { "none" } else { "required" };
        let mut program = std::env::current_exe().expect("a path");
        program.pop();
        program.pop();
        let mut child = Command::new(program.join("steadfast"))
            .args(["server", "--listen", "127.0.0.1:0", "--auth", auth, "--data"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts; build it with `cargo build --release`");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").expect("an address").1;
        Self { child, address: address.parse().expect("an address"), folder, tokens }
    }

    fn memory(&self, which: &str) -> String {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(path).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix(which)).expect("a line");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        format!("{} MiB", kib / 1024)
    }

    /// `VmHWM` counts from here.
    fn forget_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").expect("ours");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
