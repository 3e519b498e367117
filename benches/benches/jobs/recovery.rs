//! How soon a server goes on that was killed with jobs that are open, or wait for an hour.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast::Client;
use steadfast_benches::{Measured, Server, figure, repeats};

use crate::setup::{Bench, Seen, Until, job, work};

const HOUR: Duration = Duration::from_hours(1);

/// Jobs that wait for an hour, handed over in bulk, and a server that is killed with them.
pub(crate) async fn delayed(jobs: u32) {
    let mut measured = Measured::new("delayed", "job");
    for _ in 0..repeats(1) {
        let bench = Bench::start(64, 0, None).await;
        let before = bench.server.standing();
        bench.submit_chunks(jobs, |number| job(number).start_in(HOUR), Until::Accepted).await;
        let now = bench.server.standing();
        measured.add(before, now, jobs);
        println!("delayed, {jobs} jobs: {now}");
        restarted(bench, "recovery_delayed").await;
    }
    println!("delayed, {jobs} jobs: accepted {measured}");
}

/// Killed with so many jobs open, all of which wait for a worker.
pub(crate) async fn open(jobs: u32) {
    for _ in 0..repeats(3) {
        let bench = Bench::start(64, 0, None).await;
        bench.working.abort();
        bench.submit_all((0..jobs).map(job)).await;
        restarted(bench, "recovery").await;
    }
}

/// From the start of a server on what a killed one has left, to the first call.
async fn restarted(bench: Bench, workload: &str) {
    bench.working.abort();
    let folder = bench.folder.clone();
    drop(bench);
    let begun = Instant::now();
    let server = Server::start("server", &folder, &[]);
    let ready = begun.elapsed();
    let address = format!("http://{}", server.address);
    let seen = Arc::new(Seen::default());
    let working = work(std::slice::from_ref(&address), &seen, 64, 0);
    let client = Client::connect(&*address).await.expect("a server");
    client.submit(&job(u32::MAX - 1)).await.expect("taken");
    while seen.done.load(Ordering::Relaxed) == 0 {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let first = begun.elapsed();
    figure(workload, "ready", "s", ready.as_secs_f64());
    figure(workload, "first_call", "s", first.as_secs_f64());
    figure(workload, "memory", "MB", server.standing().peak_mb());
    println!("{workload}, kill -9: listens after {ready:?}, first call after {first:?}");
    working.abort();
}
