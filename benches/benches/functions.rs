//! No-op functions of the Rust library, through a real server and a real worker over loopback: how many a
//! second with 64 and with 256 in flight, and how long one takes alone. Beside a probe of the disk, because
//! every start and end is synced.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench functions
//!
//! `-- 256 20000` measures so many slots with so many items, and nothing else.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use steadfast::{Client, Context, Error, Job, Step, Worker};

const REPEATS: usize = 3;
const ITEMS: u32 = 20_000;
const ALONE: usize = 500;
const PROBES: usize = 200;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test --benches` only wants to know that it starts.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let numbers: Vec<u32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        if let [slots, items] = numbers[..] {
            return many(slots, items).await;
        }
        many(64, ITEMS).await;
        many(256, ITEMS).await;
        alone().await;
    });
}

/// A fan-out in which each item is one call, from its submission to the end of the job.
async fn many(slots: u32, items: u32) {
    let (mut rates, mut probes) = (Vec::new(), Vec::new());
    let (mut cpu, mut own) = (0.0, 0.0);
    for _ in 0..REPEATS {
        let server = Server::start();
        probes.push(median(&probe(&server.folder)));
        let client = Client::connect(&server.address).await.expect("a server");
        let working = tokio::spawn(worker(slots).run(server.address.clone()));
        // The first job waits for the worker to come in.
        done(&client, &Job::new("first").step(Step::call("s", "nothing"))).await;
        let before = (cpu_of(server.child.id()), cpu_of(std::process::id()));
        let begun = Instant::now();
        let job = Job::new("many").step(Step::call("s", "nothing").for_each_range(items));
        let id = done(&client, &job).await;
        rates.push(f64::from(items) / begun.elapsed().as_secs_f64());
        cpu += cpu_of(server.child.id()) - before.0;
        own += cpu_of(std::process::id()) - before.1;
        let status = client.status(&id).await.expect("a status");
        assert_eq!(status.step("s").expect("shown").count(steadfast::ItemState::Succeeded), items);
        assert_eq!((status.failures, status.preemptions), (0, 0));
        working.abort();
    }
    rates.sort_by(f64::total_cmp);
    let each = |seconds: f64| seconds * 1e6 / f64::from(items) / REPEATS as f64;
    println!(
        "{items} calls, {slots} in flight: {:.0}/s ({:.0}–{:.0}); CPU of each: {:.1} µs in the server, {:.1} µs \
         here; fdatasync {:?}",
        rates[REPEATS / 2],
        rates[0],
        rates[REPEATS - 1],
        each(cpu),
        each(own),
        median(&probes),
    );
}

/// One job of one call after the other: from submission to the result.
async fn alone() {
    let server = Server::start();
    let client = Client::connect(&server.address).await.expect("a server");
    let working = tokio::spawn(worker(1).run(server.address.clone()));
    let job = Job::new("alone").step(Step::call("s", "nothing"));
    done(&client, &job).await;
    for repeat in 0..REPEATS {
        let probe = probe(&server.folder);
        let mut times = Vec::new();
        for _ in 0..ALONE {
            let begun = Instant::now();
            done(&client, &job).await;
            times.push(begun.elapsed());
        }
        times.sort();
        println!(
            "one at a time, {}: p50 {:?}, p99 {:?}; fdatasync p50 {:?}, p99 {:?}",
            repeat + 1,
            times[ALONE / 2],
            times[ALONE * 99 / 100],
            probe[PROBES / 2],
            probe[PROBES * 99 / 100],
        );
    }
    working.abort();
}

fn worker(slots: u32) -> Worker {
    let nothing = |_: Context, (): ()| async { Ok::<(), Error>(()) };
    Worker::builder().slots(slots).function("nothing", nothing).build()
}

async fn done(client: &Client, job: &Job) -> String {
    let id = client.submit(job).await.expect("taken");
    let status = client.wait(&id).await.expect("ended");
    assert!(status.is_success(), "{status:?}");
    id
}

/// What the disk takes for 4 KiB more, sorted.
fn probe(folder: &Path) -> Vec<Duration> {
    let mut file = File::create(folder.join("probe")).expect("a file");
    let mut times: Vec<_> = (0..PROBES)
        .map(|_| {
            let begun = Instant::now();
            file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).expect("synced");
            begun.elapsed()
        })
        .collect();
    times.sort();
    times
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

/// Seconds, of all threads of a process.
fn cpu_of(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    // After the name, which is in brackets: user and system time are the 12th and 13th.
    let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks / 100.0
}

struct Server {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl Server {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("steadfast-bench-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut child = Command::new(program())
            .args(["server", "--listen", "127.0.0.1:0", "--data"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts; build it with `cargo build --release`");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").expect("an address").1.to_owned();
        Self { child, address: format!("http://{address}"), folder }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    path.join("steadfast")
}
