//! How late retries are.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use steadfast_benches::{Measured, centiles, figure, millis, repeats};

use crate::setup::{Bench, Until, job};

/// Attempts that the worker may run at once where the load is not bounded by what is in flight.
const SLOTS: u32 = 1024;

/// When the next job is submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// As one of those in flight has succeeded.
    Done,
    /// As one of those in flight has been accepted.
    Accepted,
    /// One in each such time.
    Every(Duration),
}

/// Each job fails twice, with a fixed backoff: how much later than that its attempts begin. Returns the median rate.
pub(crate) async fn retries(in_flight: u32, jobs: u32, pace: Pace) -> f64 {
    let (workload, slots) = match pace {
        Pace::Done => (format!("retry_{in_flight}"), in_flight),
        Pace::Accepted => ("retry_saturated".to_owned(), SLOTS),
        Pace::Every(_) => ("retry_half".to_owned(), SLOTS),
    };
    let mut measured = Measured::new(&workload, "job");
    for _ in 0..repeats(3) {
        let bench = Bench::start(slots, 2, None).await;
        let before = bench.server.standing();
        match pace {
            Pace::Done => bench.submit(in_flight, jobs, Until::Called).await,
            Pace::Accepted => {
                bench.submit(in_flight, jobs, Until::Accepted).await;
                let last = Instant::now();
                bench.done(jobs).await;
                figure(&workload, "done_after_last", "s", last.elapsed().as_secs_f64());
            }
            Pace::Every(time) => submit_every(&bench, jobs, time).await,
        }
        measured.add(before, bench.server.standing(), jobs);
        lateness(&workload, &bench, jobs);
    }
    println!("{workload}, {jobs} jobs that fail twice: {measured}");
    measured.rate()
}

fn lateness(workload: &str, bench: &Bench, jobs: u32) {
    let mut late = std::mem::take(&mut *bench.seen.late.lock().expect("no panic"));
    let early = bench.seen.early.load(Ordering::Relaxed);
    assert_eq!(late.len() as u32 + early, jobs * 2);
    let (p50, p99) = centiles(&mut late);
    figure(workload, "lateness_p50", "ms", millis(p50));
    figure(workload, "lateness_p99", "ms", millis(p99));
    figure(workload, "early", "attempts", f64::from(early));
    println!("{workload}: lateness p50 {p50:?}, p99 {p99:?}, {early} early");
}

async fn submit_every(bench: &Bench, jobs: u32, time: Duration) {
    let mut ticks = tokio::time::interval(time);
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

/// As many as there is room for, and then half as many in a second.
pub(crate) async fn half(jobs: u32) {
    let rate = retries(SLOTS, jobs, Pace::Done).await;
    retries(SLOTS, jobs, Pace::Every(Duration::from_secs_f64(2.0 / rate))).await;
}
