//! What many workers and many items cost a server: a thousand real sessions that only beat, then a
//! fan-out of a hundred thousand items over them; the rate of items that take no time; and `up`.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench fleet
//!
//! `-- 1000 1 100000 10` measures so many workers with so many slots and so many items, which only beat for so many seconds
//! before, and nothing else; `-- up 10` only `up`, idle for so long.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../../crates/cli/tests/scale/sessions.rs"]
mod sessions;

use std::time::{Duration, Instant};

use sessions::{Sessions, request, submit};
use steadfast_benches::{Folder, Measured, Server, centiles, figure, millis, repeats};

const BEATING: Duration = Duration::from_secs(10);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test --benches` only wants to know that it starts.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let numbers: Vec<u32> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    let seconds = |at: usize| numbers.get(at).map_or(BEATING, |&n| Duration::from_secs(n.into()));
    for _ in 0..repeats(1) {
        match numbers[..] {
            [workers, slots, items, ..] => fleet(workers, slots, items, seconds(3)),
            _ if args.iter().any(|arg| arg == "up") => up(seconds(0)),
            _ => {
                fleet(1000, 1, 100_000, BEATING);
                fleet(1, 256, 100_000, BEATING);
                up(BEATING);
            }
        }
    }
}

fn fleet(workers: u32, slots: u32, items: u32, beating: Duration) {
    let workload = format!("fleet_{workers}");
    let folder = Folder::new();
    let server = Server::start("server", &folder, &[]);
    // One thread: the other core is the server's.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        println!("{workers} workers × {slots} slots, {items} items");
        let mut sessions = Sessions::open(&server.address, workers as usize, slots).await;
        println!("  connected: {}", server.standing());
        let (before, stored) = (server.standing(), folder.stored());
        let until = Instant::now() + beating;
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
        let job = submit(&server.address, items as usize);
        sessions.until("every item", |so_far| so_far.acknowledged.len() == items as usize).await;
        let now = server.standing();
        let mut measured = Measured::new(&workload, "item");
        measured.add(before, now, items);
        let (p50, p99) = centiles(&mut std::mem::take(&mut sessions.acknowledged));
        figure(&workload, "acknowledged_p50", "ms", millis(p50));
        figure(&workload, "acknowledged_p99", "ms", millis(p99));
        figure(&workload, "losses", "workers", sessions.losses.len() as f64);
        println!("  {measured}; assignment to acknowledgement: p50 {p50:?}, p99 {p99:?}");
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
fn up(idle: Duration) {
    let begun = Instant::now();
    let folder = Folder::new();
    let server = Server::start("up", &folder, &[]);
    while !request(&server.address, "GET /readyz", "").is_ok_and(|(status, _)| status == 200) {}
    let ready = begun.elapsed();
    println!("up: ready after {ready:?}");
    // Its worker has come in by then.
    std::thread::sleep(Duration::from_secs(1));
    let before = server.standing();
    std::thread::sleep(idle);
    let now = server.standing();
    let cpu = now.cpu - before.cpu;
    figure("up", "ready", "s", ready.as_secs_f64());
    figure("up", "idle_cpu", "% of a core", cpu / idle.as_secs_f64() * 100.0);
    figure("up", "memory", "MB", now.resident_mb());
    println!("  {cpu:.2} s CPU in {idle:?} of idling; {now}");
}
