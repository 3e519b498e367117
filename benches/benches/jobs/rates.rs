//! How many jobs a second, and how long one takes alone.

use std::sync::Arc;
use std::time::Instant;

use steadfast_benches::{Folder, Measured, centiles, figure, median, millis, probe_disk, repeats};

use crate::setup::{Bench, Until, job};

/// How a workload is called on an empty store, or behind what a folder holds.
fn named(workload: &str, folder: Option<&Arc<Folder>>) -> String {
    format!("{workload}{}", if folder.is_some() { "_history" } else { "" })
}

/// `in_flight` tasks submit one job after the other.
pub(crate) async fn many(in_flight: u32, jobs: u32, until: Until, folder: Option<&Arc<Folder>>) {
    let what = if matches!(until, Until::Told) { "submit_and_wait" } else { "separate" };
    let workload = named(&format!("{what}_{in_flight}"), folder);
    let mut measured = Measured::new(&workload, "job");
    for _ in 0..repeats(3) {
        let bench = Bench::start(in_flight, 0, folder).await;
        let before = bench.server.standing();
        bench.submit(in_flight, jobs, until).await;
        measured.add(before, bench.server.standing(), jobs);
    }
    println!("{workload}, {jobs} jobs: {measured}");
}

/// One job after the other: from submission to the result.
pub(crate) async fn alone(jobs: u32, folder: Option<&Arc<Folder>>) {
    let workload = named("one_at_a_time", folder);
    let mut measured = Measured::new(&workload, "job");
    for _ in 0..repeats(3) {
        let bench = Bench::start(1, 0, folder).await;
        let probe = probe_disk(&bench.folder);
        let before = bench.server.standing();
        let mut times = Vec::new();
        for number in 0..jobs {
            let begun = Instant::now();
            assert!(bench.client.run(&job(number)).await.expect("ended").is_success());
            times.push(begun.elapsed());
        }
        measured.add(before, bench.server.standing(), jobs);
        let (p50, p99) = centiles(&mut times);
        figure(&workload, "p50", "ms", millis(p50));
        figure(&workload, "p99", "ms", millis(p99));
        figure(&workload, "fdatasync_p50", "ms", millis(probe.0));
        println!(
            "{workload}: p50 {p50:?}, p99 {p99:?}; fdatasync p50 {:?}, p99 {:?}",
            probe.0, probe.1
        );
    }
    println!("{workload}, {jobs} jobs: {measured}");
}

/// All at once: accepted, and done.
pub(crate) async fn bulk(jobs: u32, folder: Option<&Arc<Folder>>) {
    let workload = named("bulk", folder);
    let (mut accepted, mut measured) = (Vec::new(), Measured::new(&workload, "job"));
    for _ in 0..repeats(3) {
        let bench = Bench::start(256, 0, folder).await;
        let before = bench.server.standing();
        bench.submit_all((0..jobs).map(job)).await;
        let rate = f64::from(jobs) / before.at.elapsed().as_secs_f64();
        figure(&workload, "accepted", "jobs/s", rate);
        accepted.push(rate);
        bench.done(jobs).await;
        measured.add(before, bench.server.standing(), jobs);
    }
    let (rate, low, high) = median(&accepted);
    println!("{workload}, {jobs} jobs: accepted {rate:.0}/s ({low:.0}–{high:.0}), done {measured}");
}
