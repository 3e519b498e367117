//! What durability costs ten thousand calls of a web service: `steadfast run` over one local handler
//! beside a bare client that makes the same calls, as many at once, in turns, in one run. And what an
//! outage of that handler costs.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench http
//!
//! `-- calls 1000` makes so many calls, and has no outage.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::post;
use steadfast_benches::{figure, median, program, repeats};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const ITEMS: usize = 10_000;
const AT_ONCE: usize = 64;
const ROUNDS: usize = 5;
const OUTAGE: Duration = Duration::from_secs(30);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| args.iter().any(|arg| arg == word);
    // `cargo test --benches` only wants to know that it starts.
    if has("--test") {
        return;
    }
    // For a profiler: `-- --serve`, and the program beside it.
    if has("--serve") {
        let handler = Handler::start(None, Duration::ZERO);
        println!("{}", handler.address);
        std::thread::park();
    }
    steadfast_server::tls::use_ring();
    let folder = tempfile::tempdir().expect("a folder");
    let items = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(ITEMS);
    calls("http", folder.path(), Duration::ZERO, items);
    calls("http_5ms", folder.path(), Duration::from_millis(5), items);
    if !has("calls") {
        outage(folder.path());
    }
}

/// Ours beside the bare client, in turns.
fn calls(workload: &str, folder: &Path, takes: Duration, items: usize) {
    let handler = Handler::start(None, takes);
    let job = job(folder, handler.address, items, "");
    println!("{items} items, {AT_ONCE} at once, a handler that answers after {takes:?}");
    let (rounds, mut ratios) = (repeats(ROUNDS), vec![]);
    for round in 0..=rounds {
        let bare = items as f64 / bare(handler.address, items).as_secs_f64();
        let (took, memory) = run(folder, &job);
        let ours = items as f64 / took.as_secs_f64();
        println!("  bare {bare:.0}/s  run {ours:.0}/s  ratio {:.2}  {memory} MB", ours / bare);
        if round > 0 {
            ratios.push(ours / bare);
            figure(workload, "rate", "calls/s", ours);
            figure(workload, "bare", "calls/s", bare);
            figure(workload, "ratio", "of a bare client", ours / bare);
            figure(workload, "memory", "MB", memory as f64);
        }
    }
    assert_eq!(handler.calls(), 2 * items * (rounds + 1), "each item is called once");
    let (ratio, least, most) = median(&ratios);
    println!("  median ratio {ratio:.2} ({least:.2} to {most:.2})");
}

/// The handler is gone for half a minute while the job is under way.
fn outage(folder: &Path) {
    let handler = Handler::start(None, Duration::from_millis(50));
    let address = handler.address;
    let retry =
        "retry: { max_attempts: unlimited, initial_delay: 500ms, max_delay: 5s, jitter: full }";
    let job = job(folder, address, ITEMS, retry);
    let begun = Instant::now();
    let job = job.clone();
    let data = folder.to_owned();
    let running = std::thread::spawn(move || run(&data, &job));
    while handler.calls() < ITEMS / 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = handler.calls();
    drop(handler);
    std::thread::sleep(OUTAGE);
    let handler = Handler::start(Some(address), Duration::from_millis(50));
    let (_, memory) = running.join().expect("the job ends");
    let took = begun.elapsed().as_secs_f64();
    figure("http_outage", "all_done", "s", took);
    figure("http_outage", "memory", "MB", memory as f64);
    println!("a handler that is gone for {OUTAGE:?}: all done after {took:.1} s, {memory} MB");
    println!("  answered before {before}, after {}, of {ITEMS} items", handler.calls());
    let status = Command::new(program())
        .args(["history", "last", "-o", "json", "--data"])
        .arg(folder.join("data"))
        .output()
        .expect("runs");
    let text = String::from_utf8(status.stdout).expect("text");
    let many = |what: &str| text.matches(what).count();
    println!(
        "  {} attempts failed, {} retries, {} losses of a worker, {} items given up",
        many("\"not_completed\""),
        many("\"RetryScheduled\""),
        many("\"lost\""),
        many("\"ItemFailed\"")
    );
}

fn job(folder: &Path, address: SocketAddr, items: usize, more: &str) -> PathBuf {
    let job = folder.join("calls.yaml");
    let text = format!(
        "name: calls\nsteps:\n  s:\n    http: {{ url: \"http://{address}/\", body: {{ n: \"{{{{ item }}}}\" }} }}\n    \
         for_each: {{ range: {items} }}\n    {more}\n"
    );
    std::fs::write(&job, text).expect("writes");
    job
}

/// How long, and the most memory that it had, in MB.
fn run(folder: &Path, job: &Path) -> (Duration, u64) {
    let begun = Instant::now();
    let mut child = Command::new(program())
        .arg("run")
        .arg(job)
        .args(["-o", "json", "--slots", &AT_ONCE.to_string(), "--data"])
        .arg(folder.join("data"))
        .stdout(Stdio::null())
        .spawn()
        .expect("the program runs; build it with `cargo build --release`");
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0));
        if let Some(status) = child.try_wait().expect("a child") {
            assert!(status.success(), "{status}");
            return (begun.elapsed(), most / 1024);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn bare(address: SocketAddr, items: usize) -> Duration {
    let runtime = Runtime::new().expect("a runtime");
    let begun = Instant::now();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let next = Arc::new(AtomicUsize::new(0));
        let calls = (0..AT_ONCE).map(|_| {
            let (client, next) = (client.clone(), next.clone());
            tokio::spawn(async move {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= items {
                        return;
                    }
                    let body = serde_json::json!({ "n": n });
                    let answer = client.post(format!("http://{address}/")).json(&body).send();
                    let answer = answer.await.expect("an answer");
                    assert!(answer.status().is_success());
                    let body: serde_json::Value = answer.json().await.expect("JSON");
                    assert_eq!(body["success"], true);
                }
            })
        });
        for call in calls.collect::<Vec<_>>() {
            call.await.expect("a call");
        }
    });
    begun.elapsed()
}

/// One thread of its own; gone when dropped.
struct Handler {
    address: SocketAddr,
    calls: Arc<AtomicUsize>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Handler {
    fn start(at: Option<SocketAddr>, takes: Duration) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(at.unwrap_or(any)).expect("a port");
        listener.set_nonblocking(true).expect("does not block");
        let address = listener.local_addr().expect("an address");
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let (end, ended) = oneshot::channel();
        let answer = async move || {
            counted.fetch_add(1, Ordering::Relaxed);
            if !takes.is_zero() {
                tokio::time::sleep(takes).await;
            }
            ([("content-type", "application/json")], r#"{"success":true,"output":1}"#)
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let router = Router::new().route("/", post(answer));
                tokio::select! {
                    served = axum::serve(listener, router).into_future() => served.expect("serves"),
                    _ = ended => {}
                }
            });
        });
        Self { address, calls, end: Some(end), thread: Some(thread) }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
