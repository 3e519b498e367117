//! What the bare machine does, to be read beside every figure: 4 KiB appended and synced, one verdict as a measure of
//! the CPU, processes that are started and waited for.
//!
//!     cargo bench -p steadfast-benches --bench probes

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod verdict;

use std::time::Instant;

use steadfast_benches::{Folder, figure, median, millis, probe_disk, probe_spawn};
use verdict::Retries;

const ROUNDS: usize = 51;
const SPAWNS: usize = 400;

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path()).expect("a folder");
    let (p50, p99) = probe_disk(&folder);
    let decided = verdict_ns();
    let (one, two) = (probe_spawn(1, SPAWNS), probe_spawn(2, SPAWNS));
    figure("probe", "fdatasync_p50", "ms", millis(p50));
    figure("probe", "fdatasync_p99", "ms", millis(p99));
    figure("probe", "verdict", "ns", decided);
    figure("probe", "spawn_1", "processes/s", one);
    figure("probe", "spawn_2", "processes/s", two);
    println!(
        "fdatasync p50 {p50:?}, p99 {p99:?}; a verdict {decided:.0} ns; processes {one:.0}/s with one thread, {two:.0}/s with two"
    );
}

/// The median of several rounds.
fn verdict_ns() -> f64 {
    let retries = Retries::new(false);
    let rounds = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        retries.decide();
        begun.elapsed().as_secs_f64() * 1e9 / retries.len() as f64
    });
    median(&rounds.collect::<Vec<_>>()).0
}
