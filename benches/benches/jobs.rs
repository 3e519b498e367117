//! Separate one-call jobs, each with its own input, through a real server and a Rust worker over loopback: what most
//! people do. Every acknowledgement is synced. Rates, and what a job costs the server in CPU and bytes.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench jobs
//!
//! `-- separate 64 20000` runs one workload: `separate`, `wait` (submit and wait for the result), `alone` (one at a
//! time), `retries` (each fails twice, 100 ms between), with so many in flight and so many jobs; `half` (retries at half
//! the rate that saturates), `bulk`, `delayed` (for an hour, and a server that is killed with all of them) and `history` (`separate`
//! again behind so many finished ones), with so many jobs.

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
const BULK: u32 = 50_000;
const DELAYED: u32 = 1_000_000;
const HISTORY: u32 = 1_000_000;
const HOUR: Duration = Duration::from_hours(1);
/// Delayed jobs that are made and sent together.
const CHUNK: u32 = 50_000;
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
            Some("retries") => drop(retries(number(1, 64), number(2, JOBS / 2), None).await),
            Some("half") => half(number(1, JOBS / 4)).await,
            Some("bulk") => bulk(number(1, BULK)).await,
            Some("delayed") => delayed(number(1, DELAYED)).await,
            Some("recovery") => recovery(number(1, JOBS / 2)).await,
            Some("history") => history(number(1, HISTORY)).await,
            _ => {
                many("separate jobs", 64, JOBS, Until::Called).await;
                many("separate jobs", 256, JOBS, Until::Called).await;
                many("jobs waited for", 64, JOBS, Until::Told).await;
                alone(ALONE).await;
                bulk(BULK).await;
                retries(1, 50, None).await;
                half(JOBS / 4).await;
                recovery(JOBS / 2).await;
                delayed(DELAYED).await;
                history(HISTORY).await;
            }
        }
    });
}

/// A server with a worker, and what its function has seen.
struct Bench {
    folder: Arc<Folder>,
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
        let folder = Arc::new(Folder::new());
        let server = Server::start("server", &folder, &[]);
        let address = format!("http://{}", server.address);
        let client = Client::connect(&*address).await.expect("a server");
        let seen = Arc::new(Seen::default());
        let working = work(address, &seen, slots, fails);
        let bench = Self { folder, server, client, seen, working };
        // The first job waits for the worker to come in.
        let id = bench.client.submit(&job(u32::MAX)).await.expect("taken");
        assert!(bench.client.wait(&id).await.expect("ended").is_success());
        bench.seen.done.store(0, Ordering::Relaxed);
        bench
    }

    /// All that were submitted have been called.
    async fn done(&self, jobs: u32) {
        while self.seen.done.load(Ordering::Relaxed) < jobs {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn submit_all(&self, jobs: impl Iterator<Item = Job> + Send) {
        for answer in self.client.submit_all(jobs).await {
            answer.expect("accepted");
        }
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

fn work(address: String, seen: &Arc<Seen>, slots: u32, fails: u32) -> tokio::task::JoinHandle<()> {
    let calls = Arc::clone(seen);
    let function = move |context: Context, job: u32| {
        let called = calls.call(job, context.attempt(), fails);
        async move { called }
    };
    let worker = Worker::builder().slots(slots).function("nothing", function).build();
    tokio::spawn(async move { drop(worker.run(address).await) })
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

/// Each job fails twice, with a fixed backoff: how much later than that its attempts begin. `every`: one is submitted in each
/// such time, instead of when another is done. Returns the rate.
async fn retries(in_flight: u32, jobs: u32, every: Option<Duration>) -> f64 {
    let mut rate = 0.0;
    for _ in 0..REPEATS {
        let bench = Bench::start(in_flight, 2).await;
        bench.seen.late.lock().expect("no panic").clear();
        let begun = Instant::now();
        match every {
            None => bench.submit(in_flight, jobs, Until::Called).await,
            Some(every) => {
                let mut ticks = tokio::time::interval(every);
                let mut tasks = Vec::new();
                for number in 0..jobs {
                    ticks.tick().await;
                    let client = bench.client.clone();
                    tasks.push(tokio::spawn(async move {
                        client.submit(&job(number)).await.expect("taken");
                    }));
                }
                for task in tasks {
                    task.await.expect("no panic");
                }
                bench.done(jobs).await;
            }
        }
        let took = begun.elapsed();
        rate = f64::from(jobs) / took.as_secs_f64();
        let mut late = std::mem::take(&mut *bench.seen.late.lock().expect("no panic"));
        assert_eq!(late.len() as u32 + bench.seen.early.load(Ordering::Relaxed), jobs * 2);
        let (p50, p99) = centiles(&mut late);
        println!(
            "{jobs} jobs that fail twice, {in_flight} in flight: {rate:.0}/s; lateness p50 {p50:?}, p99 {p99:?}, {} early",
            bench.seen.early.load(Ordering::Relaxed),
        );
    }
    rate
}

/// As many as there is room for, and then half as many in a second.
async fn half(jobs: u32) {
    let rate = retries(1024, jobs, None).await;
    retries(1024, jobs, Some(Duration::from_secs_f64(2.0 / rate))).await;
}

/// All at once: accepted, and done.
async fn bulk(jobs: u32) {
    let (mut accepted, mut measured) = (Vec::new(), Measured::default());
    for _ in 0..REPEATS {
        let bench = Bench::start(256, 0).await;
        let (before, stored) = (bench.server.standing(), bench.stored());
        bench.submit_all((0..jobs).map(job)).await;
        accepted.push(f64::from(jobs) / before.at.elapsed().as_secs_f64());
        bench.done(jobs).await;
        measured.add(&bench, before, stored, jobs);
    }
    let (rate, low, high) = median(&accepted);
    println!("{jobs} jobs in bulk: accepted {rate:.0}/s ({low:.0}–{high:.0}), done {measured}");
}

/// Jobs that wait for an hour, and how soon a server goes on that was killed with them.
async fn delayed(jobs: u32) {
    let bench = Bench::start(64, 0).await;
    let (before, stored) = (bench.server.standing(), bench.stored());
    for from in (0..jobs).step_by(CHUNK as usize) {
        let until = jobs.min(from + CHUNK);
        bench.submit_all((from..until).map(|number| job(number).start_in(HOUR))).await;
    }
    let now = bench.server.standing();
    let each = |all: f64| all / f64::from(jobs);
    println!(
        "{jobs} jobs delayed an hour: accepted {:.0}/s, {:.1} µs CPU a job, {:.0} bytes stored; {now}",
        f64::from(jobs) / (now.at - before.at).as_secs_f64(),
        each((now.cpu - before.cpu) * 1e6),
        each((bench.stored() - stored) as f64)
    );
    restarted(bench, "delayed jobs").await;
}

/// A server that is killed with so many jobs open, all of which wait for a worker.
async fn recovery(jobs: u32) {
    for _ in 0..REPEATS {
        let bench = Bench::start(64, 0).await;
        bench.working.abort();
        bench.submit_all((0..jobs).map(job)).await;
        let seen = restarted(bench, &format!("{jobs} open jobs")).await;
        assert!(seen.done.load(Ordering::Relaxed) >= 1);
    }
}

/// From the start of a server on what a killed one has left, to the first call.
async fn restarted(bench: Bench, with: &str) -> Arc<Seen> {
    bench.working.abort();
    let folder = bench.folder.clone();
    drop(bench);
    let begun = Instant::now();
    let server = Server::start("server", &folder, &[]);
    let ready = begun.elapsed();
    let address = format!("http://{}", server.address);
    let seen = Arc::new(Seen::default());
    let working = work(address.clone(), &seen, 64, 0);
    let client = Client::connect(&*address).await.expect("a server");
    client.submit(&job(u32::MAX - 1)).await.expect("taken");
    while seen.done.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    println!(
        "kill -9 with {with}: listens after {ready:?}, first call after {:?}",
        begun.elapsed()
    );
    working.abort();
    seen
}

/// What a job costs behind so many that have ended, and what is asked about them meanwhile.
async fn history(finished: u32) {
    let bench = Bench::start(256, 0).await;
    let mut done = 0;
    for from in (0..finished).step_by(CHUNK as usize) {
        let until = finished.min(from + CHUNK);
        bench.submit_all((from..until).map(job)).await;
        done += until - from;
        bench.done(done).await;
    }
    let first = bench.client.submit_with_key(&job(0), "asked again").await.expect("taken");
    bench.done(done + 1).await;
    let asking = {
        let client = bench.client.clone();
        tokio::spawn(async move {
            let (mut lists, mut statuses, mut keyed) = (vec![], vec![], vec![]);
            loop {
                let begun = Instant::now();
                let query = steadfast::Query::new().name("separate").at_most(100);
                client.list(&query).await.expect("listed");
                lists.push(begun.elapsed());
                let begun = Instant::now();
                client.status(&first).await.expect("told");
                statuses.push(begun.elapsed());
                let begun = Instant::now();
                client.submit_with_key(&job(0), "asked again").await.expect("known");
                keyed.push(begun.elapsed());
                let is_told = [&mut lists, &mut statuses, &mut keyed].map(|it| centiles(it).1);
                if lists.len().is_multiple_of(100) {
                    println!("behind them, list, status, keyed submit: p99 {is_told:?}");
                }
            }
        })
    };
    let mut measured = Measured::default();
    for _ in 0..REPEATS {
        bench.seen.done.store(0, Ordering::Relaxed);
        let (before, stored) = (bench.server.standing(), bench.stored());
        bench.submit(64, JOBS, Until::Called).await;
        measured.add(&bench, before, stored, JOBS);
    }
    asking.abort();
    println!(
        "{JOBS} separate jobs, 64 in flight, behind {finished} others: {measured}; {}",
        bench.server.standing()
    );
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

/// And the least and the most.
fn median(values: &[f64]) -> (f64, f64, f64) {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
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
