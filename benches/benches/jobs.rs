//! Separate one-call jobs, each with its own input, through a real server and a Rust worker over loopback: what most
//! people do. Every acknowledgement is synced. Rates, and what a job costs the server in CPU and bytes.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench jobs
//!
//! `-- separate 64 20000` runs one workload: `separate`, `wait` (submit and wait for the result), `alone` (one at a
//! time), `retries` (each fails twice, 100 ms between), with so many in flight and so many jobs.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::collections::HashMap;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use steadfast::{Backoff, Client, Context, Error, Jitter, Job, Retry, Step, Worker};
use steadfast_benches::{Folder, Server, Standing};
use tokio::sync::Notify;

const REPEATS: usize = 3;
const JOBS: u32 = 20_000;
const ALONE: u32 = 500;
const PROBES: usize = 200;
const BACKOFF: Duration = Duration::from_millis(100);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test --benches` only wants to know that it starts.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let number = |at: usize, or| args.get(at).and_then(|it| it.parse().ok()).unwrap_or(or);
        match args.first().map(String::as_str) {
            Some("separate") => {
                many("separate jobs", number(1, 64), number(2, JOBS), Until::Called).await;
            }
            Some("wait") => {
                many("jobs waited for", number(1, 64), number(2, JOBS), Until::Told).await;
            }
            Some("alone") => alone(number(1, ALONE)).await,
            Some("retries") => retries(number(1, 64), number(2, JOBS / 2)).await,
            _ => {
                many("separate jobs", 64, JOBS, Until::Called).await;
                many("separate jobs", 256, JOBS, Until::Called).await;
                many("jobs waited for", 64, JOBS, Until::Told).await;
                alone(ALONE).await;
                retries(1, 50).await;
                retries(64, JOBS / 2).await;
            }
        }
    });
}

/// A server with a worker, and what its function has seen.
struct Bench {
    folder: Folder,
    server: Server,
    client: Client,
    seen: Arc<Seen>,
    working: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    done: AtomicU32,
    /// When the attempt before failed, and how much too late the next ones came.
    failed: Mutex<HashMap<u32, Instant>>,
    late: Mutex<Vec<Duration>>,
    early: AtomicU32,
    /// Of one job each: its function has run.
    ended: Mutex<HashMap<u32, Arc<Notify>>>,
}

impl Seen {
    /// `fails`: how often before it succeeds.
    fn call(&self, job: u32, attempt: u32, fails: u32) -> Result<u32, Error> {
        let mut failed = self.failed.lock().expect("no panic");
        if let Some(before) = failed.remove(&job) {
            match before.elapsed().checked_sub(BACKOFF) {
                Some(late) => self.late.lock().expect("no panic").push(late),
                None => drop(self.early.fetch_add(1, Ordering::Relaxed)),
            }
        }
        if attempt <= fails {
            failed.insert(job, Instant::now());
            return Err(Error::new("fails twice"));
        }
        drop(failed);
        if let Some(end) = self.ended.lock().expect("no panic").remove(&job) {
            end.notify_one();
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(job)
    }

    fn end_of(&self, job: u32) -> Arc<Notify> {
        self.ended.lock().expect("no panic").entry(job).or_default().clone()
    }
}

impl Bench {
    async fn start(slots: u32, fails: u32) -> Self {
        let folder = Folder::new();
        let server = Server::start("server", &folder, &[]);
        let address = format!("http://{}", server.address);
        let client = Client::connect(&*address).await.expect("a server");
        let seen = Arc::new(Seen::default());
        let calls = Arc::clone(&seen);
        let function = move |context: Context, job: u32| {
            let called = calls.call(job, context.attempt(), fails);
            async move { called }
        };
        let worker = Worker::builder().slots(slots).function("nothing", function).build();
        let working = tokio::spawn(async move { drop(worker.run(address).await) });
        let bench = Self { folder, server, client, seen, working };
        // The first job waits for the worker to come in.
        let id = bench.client.submit(&job(u32::MAX)).await.expect("taken");
        assert!(bench.client.wait(&id).await.expect("ended").is_success());
        bench.seen.done.store(0, Ordering::Relaxed);
        bench
    }

    fn stored(&self) -> u64 {
        self.folder.stored().into_iter().flatten().map(|(bytes, _)| bytes).sum()
    }

    /// `in_flight` tasks submit one job after the other; the next when the last is done, as `until` says.
    async fn submit(&self, in_flight: u32, jobs: u32, until: Until) {
        let next = Arc::new(AtomicU32::new(0));
        let tasks = (0..in_flight).map(|_| {
            let (next, client, seen) = (next.clone(), self.client.clone(), self.seen.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        return;
                    }
                    let job = job(number);
                    match until {
                        Until::Called => {
                            let end = seen.end_of(number);
                            client.submit(&job).await.expect("taken");
                            end.notified().await;
                        }
                        Until::Told => {
                            let status = client.run(&job).await.expect("ended");
                            assert!(status.is_success(), "{status:?}");
                        }
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
        assert_eq!(self.seen.done.load(Ordering::Relaxed), jobs);
    }
}

#[derive(Clone, Copy, Debug)]
enum Until {
    /// The function has succeeded, here.
    Called,
    /// The client knows the result, and that it is durable.
    Told,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.working.abort();
    }
}

fn job(number: u32) -> Job {
    let retry = Retry::new()
        .max_attempts(3)
        .backoff(Backoff::Fixed)
        .initial_delay(BACKOFF)
        .jitter(Jitter::None);
    let step = Step::call("s", "nothing").input(&number).expect("JSON").retry(retry);
    Job::new("separate").step(step)
}

async fn many(what: &str, in_flight: u32, jobs: u32, until: Until) {
    let mut measured = Measured::default();
    for _ in 0..REPEATS {
        let bench = Bench::start(in_flight, 0).await;
        let (before, stored) = (bench.server.standing(), bench.stored());
        bench.submit(in_flight, jobs, until).await;
        measured.add(&bench, before, stored, jobs);
    }
    println!("{jobs} {what}, {in_flight} in flight: {measured}");
}

/// One job after the other: from submission to the result.
async fn alone(jobs: u32) {
    for _ in 0..REPEATS {
        let bench = Bench::start(1, 0).await;
        let probe = probe(&bench.folder);
        let mut times = Vec::new();
        for number in 0..jobs {
            let begun = Instant::now();
            assert!(bench.client.run(&job(number)).await.expect("ended").is_success());
            times.push(begun.elapsed());
        }
        let (p50, p99) = centiles(&mut times);
        println!(
            "one at a time: p50 {p50:?}, p99 {p99:?}; fdatasync p50 {:?}, p99 {:?}",
            probe.0, probe.1
        );
    }
}

/// Each job fails twice, with a fixed backoff: how much later than that its attempts begin.
async fn retries(in_flight: u32, jobs: u32) {
    for _ in 0..REPEATS {
        let bench = Bench::start(in_flight, 2).await;
        bench.seen.late.lock().expect("no panic").clear();
        let begun = Instant::now();
        bench.submit(in_flight, jobs, Until::Called).await;
        let took = begun.elapsed();
        let mut late = std::mem::take(&mut *bench.seen.late.lock().expect("no panic"));
        assert_eq!(late.len() as u32 + bench.seen.early.load(Ordering::Relaxed), jobs * 2);
        let (p50, p99) = centiles(&mut late);
        println!(
            "{jobs} jobs that fail twice, {in_flight} in flight: {took:?}; lateness p50 {p50:?}, p99 {p99:?}, {} early",
            bench.seen.early.load(Ordering::Relaxed),
        );
    }
}

/// Of all repeats.
#[derive(Default)]
struct Measured {
    rates: Vec<f64>,
    /// Of the server, and of this process, in µs a job.
    cpu: Vec<f64>,
    stored: Vec<f64>,
    written: Vec<f64>,
}

impl Measured {
    fn add(&mut self, bench: &Bench, before: Standing, stored: u64, jobs: u32) {
        let now = bench.server.standing();
        let each = |all: f64| all / f64::from(jobs);
        self.rates.push(f64::from(jobs) / (now.at - before.at).as_secs_f64());
        self.cpu.push(each((now.cpu - before.cpu) * 1e6));
        self.stored.push(each(bench.stored().saturating_sub(stored) as f64));
        self.written.push(each((now.written - before.written) as f64));
    }
}

impl std::fmt::Display for Measured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let median = |values: &[f64]| {
            let mut values = values.to_vec();
            values.sort_by(f64::total_cmp);
            (values[values.len() / 2], values[0], values[values.len() - 1])
        };
        let (rate, low, high) = median(&self.rates);
        let (cpu, least, most) = median(&self.cpu);
        write!(
            f,
            "{rate:.0}/s ({low:.0}–{high:.0}); server: {cpu:.0} µs CPU a job ({least:.0}–{most:.0}), {:.0} bytes \
             stored, {:.0} written",
            median(&self.stored).0,
            median(&self.written).0
        )
    }
}

fn centiles(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    (at(50), at(99))
}

/// What the disk takes for 4 KiB more.
fn probe(folder: &Folder) -> (Duration, Duration) {
    let mut file = File::create(folder.path().join("probe")).expect("a file");
    let mut times: Vec<_> = (0..PROBES)
        .map(|_| {
            let begun = Instant::now();
            file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).expect("synced");
            begun.elapsed()
        })
        .collect();
    centiles(&mut times)
}
