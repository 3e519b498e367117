//! What many workers and many items cost a server: a thousand real sessions that only beat, then a
//! fan-out of a hundred thousand items over them; the rate of items that take no time; and `up`.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench fleet
//!
//! `-- 1000 1 100000` measures so many workers with so many slots and so many items, and nothing else.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../../crates/cli/tests/scale/sessions.rs"]
mod sessions;

use std::time::{Duration, Instant};

use sessions::{Sessions, request, submit};
use steadfast_benches::{Folder, Server};

const BEATING: Duration = Duration::from_secs(10);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test --benches` only wants to know that it starts.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let numbers: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if let [workers, slots, items] = numbers[..] {
        fleet(workers, slots as u32, items);
        return;
    }
    fleet(1000, 1, 100_000);
    fleet(1, 256, 100_000);
    up();
}

fn fleet(workers: usize, slots: u32, items: usize) {
    let folder = Folder::new();
    let server = Server::start("server", &folder, &[]);
    // One thread: the other core is the server's.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        println!("{workers} workers × {slots} slots, {items} items");
        let mut sessions = Sessions::open(&server.address, workers, slots).await;
        println!("  connected: {}", server.standing());
        let (before, stored) = (server.standing(), folder.stored());
        let until = Instant::now() + BEATING;
        while Instant::now() < until {
            sessions.beat(1).await;
        }
        let beats: usize = sessions.answered.iter().sum();
        let now = server.standing();
        println!(
            "  only beats: {:.2} s CPU for {beats} beats in {:.1} s, {} bytes written, the store {}",
            now.cpu - before.cpu,
            (now.at - before.at).as_secs_f64(),
            now.written - before.written,
            if folder.stored() == stored { "unchanged" } else { "WRITTEN TO" },
        );
        let before = server.standing();
        let job = submit(&server.address, items);
        sessions.until("every item", |so_far| so_far.acknowledged.len() == items).await;
        let now = server.standing();
        let seconds = (now.at - before.at).as_secs_f64();
        let mut times = std::mem::take(&mut sessions.acknowledged);
        times.sort();
        println!(
            "  {:.0} items/s ({seconds:.2} s, {:.2} s CPU), assignment to acknowledgement: p50 {:?}, p99 {:?}",
            items as f64 / seconds,
            now.cpu - before.cpu,
            times[times.len() / 2],
            times[times.len() * 99 / 100],
        );
        println!("  at the end: {now}");
        let (_, shown) = request(&server.address, &format!("GET /v1/jobs/{job}"), "").expect("up");
        let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(shown["state"], "succeeded");
        let counts = &shown["runs"][0]["steps"]["s"]["counts"];
        assert_eq!(counts["succeeded"], items, "{counts}");
        println!("  losses: {}", sessions.losses.len());
    });
}

/// From nothing to an answer, and then nothing.
fn up() {
    let begun = Instant::now();
    let folder = Folder::new();
    let server = Server::start("up", &folder, &[]);
    while !request(&server.address, "GET /readyz", "").is_ok_and(|(status, _)| status == 200) {}
    println!("up: ready after {:?}", begun.elapsed());
    // Its worker has come in by then.
    std::thread::sleep(Duration::from_secs(1));
    let before = server.standing();
    std::thread::sleep(BEATING);
    let now = server.standing();
    println!("  {:.2} s CPU in {BEATING:?} of idling; {now}", now.cpu - before.cpu);
}
