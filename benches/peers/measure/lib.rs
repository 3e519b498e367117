//! The workloads, the same for every peer and the same as ours (benches/benches/jobs/), and what the kernel says of
//! the peer's server meanwhile. One line of JSON for each figure; `run` adds the peer's version and settings.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
pub use server::{Server, cpu_of, free_port, memory_of};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

mod server;

pub const BACKOFF: Duration = Duration::from_millis(100);
pub const HOUR: Duration = Duration::from_secs(3600);
/// Jobs that are done before the clock runs, fewer where each takes its backoffs; numbered apart from the others.
const WARM_UP: u32 = 100;
const WARM_UP_FAILING: u32 = 10;
const WARM_UP_FIRST: u32 = 1_000_000_000;
/// A repeat that takes longer has stalled.
const PATIENCE: Duration = Duration::from_secs(240);

/// A system that runs jobs, started on an empty folder. Its handler calls [`Seen::call`].
pub trait Peer: Sized + Send + Sync + 'static {
    const NAME: &'static str;
    /// Workloads that it has no words for, and why.
    const LEAVES_OUT: &'static [(&'static str, &'static str)] = &[];

    fn start(stage: Stage) -> impl Future<Output = Self> + Send;
    /// Returns when the peer has promised to run the job.
    fn submit(&self, job: u32) -> impl Future<Output = ()> + Send;
    /// Returns when the job's result is here.
    fn submit_and_wait(&self, job: u32) -> impl Future<Output = ()> + Send;
    /// Returns when the peer has promised to run the job in an hour.
    fn delay(&self, job: u32) -> impl Future<Output = ()> + Send;
    /// Whose CPU and memory count, with all its children. An embedded peer is this process, client and handler included.
    fn server(&self) -> u32 {
        std::process::id()
    }
    /// Before it is dropped.
    fn stop(&self) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// What a peer is started with.
#[derive(Clone)]
pub struct Stage {
    pub folder: PathBuf,
    /// Jobs that are open at once.
    pub in_flight: u32,
    pub seen: Arc<Seen>,
}

/// What the handler has seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// How often a job fails before it succeeds.
    fails: u32,
    done: AtomicU32,
    /// Of the jobs that have failed: how often, and when last.
    failed: Mutex<HashMap<u32, (u32, Instant)>>,
    /// Milliseconds past the backoff; below zero is early.
    late: Mutex<Vec<f64>>,
    ended: Mutex<HashMap<u32, oneshot::Sender<()>>>,
}

/// The handler shall fail.
#[derive(Debug)]
pub struct Fail;

impl std::fmt::Display for Fail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("fails twice")
    }
}

impl std::error::Error for Fail {}

impl Seen {
    /// The whole of a handler.
    pub fn call(&self, job: u32) -> Result<u32, Fail> {
        if self.fails > 0 {
            let mut failed = self.failed.lock().expect("no panic");
            let before = failed.get(&job).copied();
            if let Some((_, at)) = before {
                let late = at.elapsed().as_secs_f64() - BACKOFF.as_secs_f64();
                self.late.lock().expect("no panic").push(late * 1e3);
            }
            let times = before.map_or(0, |(times, _)| times);
            if times < self.fails {
                failed.insert(job, (times + 1, Instant::now()));
                return Err(Fail);
            }
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        if let Some(end) = self.ended.lock().expect("no panic").remove(&job) {
            let _ = end.send(());
        }
        Ok(job)
    }

    /// Resolves when the handler has succeeded.
    pub fn end_of(&self, job: u32) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        self.ended.lock().expect("no panic").insert(job, end);
        ended
    }
}

/// When the next job is submitted in the place of one.
#[derive(Clone, Copy)]
enum Until {
    Accepted,
    /// The handler has succeeded.
    Called,
    /// The client has the result.
    Told,
    /// The peer has promised to run it in an hour.
    Delayed,
}

/// Runs every workload that the command line names, or all.
pub async fn all<P: Peer>() {
    let number = |name: &str, or: u32| {
        std::env::var(name).ok().map_or(or, |it| it.parse().expect("a number"))
    };
    let (jobs, delayed) = (number("JOBS", 20_000), number("DELAYED", 100_000));
    let bench = Bench { repeats: number("REPEATS", 3), wanted: std::env::args().skip(1).collect() };
    bench.rate::<P>("separate_64", 64, jobs, Until::Called).await;
    bench.rate::<P>("separate_256", 256, jobs, Until::Called).await;
    bench.rate::<P>("submit_and_wait_64", 64, jobs, Until::Told).await;
    bench.alone::<P>("one_at_a_time", jobs.min(500)).await;
    bench.retries::<P>("retry_1", 1, (jobs / 400).max(1), Until::Called).await;
    bench.retries::<P>("retry_64", 64, jobs / 10, Until::Called).await;
    bench.retries::<P>("retry_saturated", 64, jobs / 2, Until::Accepted).await;
    bench.rate::<P>("delayed_256", 256, delayed, Until::Delayed).await;
}

struct Bench {
    repeats: u32,
    wanted: Vec<String>,
}

impl Bench {
    async fn rate<P: Peer>(&self, workload: &str, in_flight: u32, jobs: u32, until: Until) {
        let (mut rates, mut cpu, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for _ in self.repeats_of::<P>(workload) {
            let Some(running) = Running::<P>::start(workload, in_flight, 0).await else { return };
            let server = running.peer.server();
            let (begun, before) = (Instant::now(), cpu_of(server));
            let went = running.submit(0..jobs, until).await;
            rates.push(f64::from(jobs) / begun.elapsed().as_secs_f64());
            cpu.push((cpu_of(server) - before) * 1e6 / f64::from(jobs));
            memory.push(memory_of(server));
            running.stop().await;
            if !went {
                return;
            }
        }
        print(P::NAME, workload, "jobs/s", jobs, &rates);
        print(P::NAME, &format!("{workload}_cpu"), "µs/job", jobs, &cpu);
        print(P::NAME, &format!("{workload}_memory"), "MB", jobs, &memory);
    }

    async fn alone<P: Peer>(&self, workload: &str, jobs: u32) {
        let (mut p50, mut p99) = (Vec::new(), Vec::new());
        for _ in self.repeats_of::<P>(workload) {
            let Some(running) = Running::<P>::start(workload, 1, 0).await else { return };
            let mut times = Vec::new();
            for job in 0..jobs {
                let begun = Instant::now();
                if !running.submit(job..job + 1, Until::Told).await {
                    return;
                }
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            running.stop().await;
            p50.push(centile(&mut times, 50));
            p99.push(centile(&mut times, 99));
        }
        print(P::NAME, &format!("{workload}_p50"), "ms", jobs, &p50);
        print(P::NAME, &format!("{workload}_p99"), "ms", jobs, &p99);
    }

    /// Each job fails twice: how much later than its backoff the next attempt begins.
    async fn retries<P: Peer>(&self, workload: &str, in_flight: u32, jobs: u32, until: Until) {
        let (mut p50, mut p99, mut first, mut took) = (vec![], vec![], vec![], vec![]);
        for _ in self.repeats_of::<P>(workload) {
            let Some(running) = Running::<P>::start(workload, in_flight, 2).await else { return };
            let begun = Instant::now();
            let went = running.submit(0..jobs, until).await;
            took.push(begun.elapsed().as_secs_f64());
            let mut late = std::mem::take(&mut *running.stage.seen.late.lock().expect("no panic"));
            running.stop().await;
            if !went {
                return;
            }
            p50.push(centile(&mut late, 50));
            p99.push(centile(&mut late, 99));
            first.push(centile(&mut late, 0));
        }
        print(P::NAME, &format!("{workload}_lateness_p50"), "ms", jobs, &p50);
        print(P::NAME, &format!("{workload}_lateness_p99"), "ms", jobs, &p99);
        print(P::NAME, &format!("{workload}_lateness_least"), "ms", jobs, &first);
        print(P::NAME, &format!("{workload}_all_done"), "s", jobs, &took);
    }

    /// None, and a word about it, when the peer cannot do it.
    fn repeats_of<P: Peer>(&self, workload: &str) -> Range<u32> {
        if !self.wanted.is_empty() && !self.wanted.iter().any(|it| it == workload) {
            return 0..0;
        }
        if let Some((_, why)) = P::LEAVES_OUT.iter().find(|(name, _)| *name == workload) {
            missed::<P>(workload, why);
            return 0..0;
        }
        0..self.repeats
    }
}

/// A peer on an empty folder that has done its first jobs.
struct Running<P> {
    peer: Arc<P>,
    stage: Stage,
    workload: String,
}

impl<P: Peer> Running<P> {
    async fn start(workload: &str, in_flight: u32, fails: u32) -> Option<Self> {
        let folder = std::env::temp_dir().join(format!("peer-{}-{}", P::NAME, std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let seen = Arc::new(Seen { fails, ..Seen::default() });
        let stage = Stage { folder, in_flight, seen };
        let Ok(peer) = timeout(PATIENCE, P::start(stage.clone())).await else {
            missed::<P>(workload, "it did not start");
            return None;
        };
        let running = Self { peer: Arc::new(peer), stage, workload: workload.to_owned() };
        let jobs = if fails > 0 { WARM_UP_FAILING } else { WARM_UP };
        if !running.submit(WARM_UP_FIRST..WARM_UP_FIRST + jobs, Until::Called).await {
            return None;
        }
        running.stage.seen.done.store(0, Ordering::Relaxed);
        running.stage.seen.late.lock().expect("no panic").clear();
        Some(running)
    }

    /// As many tasks as are in flight submit one job after the other. False, and a word about it, when they stall.
    async fn submit(&self, jobs: Range<u32>, until: Until) -> bool {
        let next = Arc::new(AtomicU32::new(jobs.start));
        let mut tasks = JoinSet::new();
        let counts = self.stage.seen.done.load(Ordering::Relaxed);
        for _ in 0..self.stage.in_flight.min(jobs.len() as u32) {
            let (next, peer, seen) = (next.clone(), self.peer.clone(), self.stage.seen.clone());
            tasks.spawn(async move {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs.end {
                        return;
                    }
                    match until {
                        Until::Accepted => peer.submit(job).await,
                        Until::Called => {
                            let end = seen.end_of(job);
                            peer.submit(job).await;
                            end.await.expect("the handler keeps it until the end");
                        }
                        Until::Told => peer.submit_and_wait(job).await,
                        Until::Delayed => peer.delay(job).await,
                    }
                }
            });
        }
        let done = || self.stage.seen.done.load(Ordering::Relaxed) - counts;
        let all = async {
            while let Some(task) = tasks.join_next().await {
                task.expect("no panic");
            }
            while matches!(until, Until::Accepted) && done() < jobs.len() as u32 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let ended = timeout(PATIENCE, all).await.is_ok();
        if !ended {
            let (done, of) = (done(), jobs.len());
            missed::<P>(
                &self.workload,
                &format!("stalled: {done} of {of} done after {PATIENCE:?}"),
            );
        }
        ended
    }

    async fn stop(self) {
        self.peer.stop().await;
        drop(self.peer);
        let _ = fs::remove_dir_all(&self.stage.folder);
    }
}

fn centile(values: &mut [f64], share: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * share / 100).copied().unwrap_or(f64::NAN)
}

/// A figure's median and range. Nothing, when it was not asked for.
pub fn print(peer: &str, workload: &str, unit: &str, jobs: u32, values: &[f64]) {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (values.first(), values.last()) else { return };
    let (median, repeats) = (values[values.len() / 2], values.len());
    println!(
        "{}",
        json!({"peer": peer, "workload": workload, "unit": unit, "jobs": jobs, "median": median, "low": low,
            "high": high, "repeats": repeats})
    );
}

fn missed<P: Peer>(workload: &str, why: &str) {
    println!("{}", json!({"peer": P::NAME, "workload": workload, "missed": why}));
}
