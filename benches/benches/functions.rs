//! No-op functions of the Rust library, through a real server and a real worker over loopback: how many a
//! second with 64 and with 256 in flight, and how long one takes alone. Beside a probe of the disk, because
//! every start and end is synced.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench functions
//!
//! `-- 256 20000` measures so many slots with so many items, and nothing else.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;

use steadfast::{Client, Context, Error, Job, Step, Worker};
use steadfast_benches::{Folder, Measured, Server, centiles, cpu_of, probe_disk, repeats};

const ITEMS: u32 = 20_000;
const ALONE: usize = 500;

type Working = tokio::task::JoinHandle<()>;

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
    let workload = format!("functions_{slots}");
    let (mut measured, mut own) = (Measured::new(&workload, "item"), 0.0);
    let repeats = repeats(3);
    for _ in 0..repeats {
        let (folder, server, client, working) = start(slots).await;
        let (before, here) = (server.standing(), cpu_of(std::process::id()));
        let job = Job::new("many").step(Step::call("s", "nothing").for_each_range(items));
        let id = done(&client, &job).await;
        measured.add(before, server.standing(), items);
        own += cpu_of(std::process::id()) - here;
        let status = client.status(&id).await.expect("a status");
        assert_eq!(status.step("s").expect("shown").count(steadfast::ItemState::Succeeded), items);
        assert_eq!((status.failures, status.preemptions), (0, 0));
        working.abort();
        drop((server, folder));
    }
    let own = own * 1e6 / f64::from(items) / repeats as f64;
    println!("{workload}, {items} calls: {measured}; {own:.1} µs CPU each here");
}

/// One job of one call after the other: from submission to the result.
async fn alone() {
    let (folder, server, client, working) = start(1).await;
    let job = Job::new("alone").step(Step::call("s", "nothing"));
    for repeat in 1..=repeats(3) {
        let probe = probe_disk(&folder);
        let mut times = Vec::new();
        for _ in 0..ALONE {
            let begun = Instant::now();
            done(&client, &job).await;
            times.push(begun.elapsed());
        }
        let (p50, p99) = centiles(&mut times);
        println!(
            "one at a time, {repeat}: p50 {p50:?}, p99 {p99:?}; fdatasync p50 {:?}, p99 {:?}",
            probe.0, probe.1
        );
    }
    working.abort();
    drop(server);
}

/// A server on an empty folder whose worker has come in.
async fn start(slots: u32) -> (Folder, Server, Client, Working) {
    let folder = Folder::new();
    let server = Server::start("server", &folder, &[]);
    let address = format!("http://{}", server.address);
    let client = Client::connect(&*address).await.expect("a server");
    let nothing = |_: Context, (): ()| async { Ok::<(), Error>(()) };
    let worker = Worker::builder().slots(slots).function("nothing", nothing).build();
    let working = tokio::spawn(async move { drop(worker.run(address).await) });
    done(&client, &Job::new("first").step(Step::call("s", "nothing"))).await;
    (folder, server, client, working)
}

async fn done(client: &Client, job: &Job) -> String {
    let id = client.submit(job).await.expect("taken");
    let status = client.wait(&id).await.expect("ended");
    assert!(status.is_success(), "{status:?}");
    id
}
