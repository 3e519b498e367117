//! Separate one-call jobs, each with its own input, through a real server and a Rust worker over loopback: what most
//! people do. Every acknowledgement is synced. Rates, and what a job costs the server in CPU and bytes.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench jobs
//!
//! `-- separate 64 20000` runs one workload, with so many in flight and so many jobs: `separate`, `wait` (submit and
//! wait for the result), `retries` (each fails twice, 100 ms between). With so many jobs: `alone` (one at a time),
//! `saturated` (retries, submitted as soon as the one before is accepted), `half` (retries at half the rate that 1,024 in
//! flight reach), `bulk`, `delayed` (for an hour, and a server that is killed with all of them), `recovery` (killed with so
//! many open). `dag` and `chain` have one job of so many steps. `-- history 1000000 20000` runs the separate jobs again
//! behind so many finished ones. On a `PostgreSQL` of its own: `-- servers 2 64 20000` has the separate jobs on two servers, `-- fan_out 256 20000`
//! the items of one job. `-- pages 1000 20000` has them beside so many open pages of the dashboard.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod cluster;
mod dag;
mod history;
mod pages;
mod rates;
mod recovery;
mod retries;
mod setup;

use rates::{alone, bulk, many};
use retries::{Pace, half, retries};
use setup::Until;

const JOBS: u32 = 20_000;
const ALONE: u32 = 500;
const BULK: u32 = 50_000;
const DELAYED: u32 = 1_000_000;
const HISTORY: u32 = 1_000_000;
const STEPS: u32 = 1000;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test --benches` only wants to know that it starts.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let numbers: Vec<u32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        match args.first() {
            Some(workload) => one(workload, &numbers).await,
            None => all().await,
        }
    });
}

async fn one(workload: &str, numbers: &[u32]) {
    let number = |at: usize, or| numbers.get(at).copied().unwrap_or(or);
    match workload {
        "separate" => many(number(0, 64), number(1, JOBS), Until::Called, None).await,
        "wait" => many(number(0, 64), number(1, JOBS), Until::Told, None).await,
        "alone" => alone(number(0, ALONE), None).await,
        "bulk" => bulk(number(0, BULK), None).await,
        "retries" => drop(retries(number(0, 64), number(1, JOBS / 2), Pace::Done).await),
        "saturated" => drop(retries(64, number(0, JOBS / 2), Pace::Accepted).await),
        "half" => half(number(0, JOBS / 4)).await,
        "delayed" => recovery::delayed(number(0, DELAYED)).await,
        "recovery" => recovery::open(number(0, JOBS / 2)).await,
        "dag" => dag::layers(number(0, STEPS)).await,
        "chain" => dag::chain(number(0, STEPS)).await,
        "servers" => {
            cluster::separate(number(0, 1), number(1, 64), number(2, JOBS)).await;
        }
        "fan_out" => cluster::fan_out(number(0, 256), number(1, JOBS)).await,
        "pages" => pages::pages(number(0, 1000), number(1, JOBS)).await,
        "history" => history::history(number(0, HISTORY), number(1, JOBS)).await,
        _ => panic!("no workload {workload}; the head of jobs/main.rs names them"),
    }
}

async fn all() {
    many(64, JOBS, Until::Called, None).await;
    many(256, JOBS, Until::Called, None).await;
    many(64, JOBS, Until::Told, None).await;
    alone(ALONE, None).await;
    bulk(BULK, None).await;
    retries(1, 50, Pace::Done).await;
    retries(64, JOBS / 2, Pace::Accepted).await;
    half(JOBS / 4).await;
    dag::layers(STEPS).await;
    dag::chain(STEPS).await;
    recovery::open(JOBS / 2).await;
    recovery::delayed(DELAYED).await;
    history::history(HISTORY, JOBS).await;
}
