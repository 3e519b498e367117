//! What durability costs a thousand tiny processes: `steadfast run` of 1,000 × `true` beside spawning
//! and waiting for them with nothing around, in turns, in one run.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench run
//!
//! `-- 100` runs so many.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use steadfast_benches::{Folder, figure, median, probe_spawn, program, repeats};

const ITEMS: usize = 1000;
const ROUNDS: usize = 6;

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let items = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(ITEMS);
    let folder = Folder::new();
    std::fs::create_dir_all(folder.path()).expect("a folder");
    let text = format!(
        "name: t\nsteps: {{ s: {{ argv: [/bin/true], for_each: {{ range: {items} }} }} }}\n"
    );
    std::fs::write(folder.path().join("true.yaml"), text).expect("writes");
    let mut ratios = vec![];
    // The first makes the data folder.
    for round in 0..=repeats(ROUNDS) {
        let raw = probe_spawn(2, items);
        let ours = items as f64 / run(folder.path());
        println!("raw {raw:.0}/s  run {ours:.0}/s  ratio {:.2}", ours / raw);
        if round > 0 {
            ratios.push(ours / raw);
            figure("processes", "rate", "processes/s", ours);
            figure("processes", "raw", "processes/s", raw);
            figure("processes", "ratio", "of raw", ours / raw);
        }
    }
    let (ratio, least, most) = median(&ratios);
    println!("median ratio {ratio:.2} ({least:.2} to {most:.2})");
}

/// Seconds.
fn run(folder: &Path) -> f64 {
    let begun = Instant::now();
    let status = Command::new(program())
        .arg("run")
        .arg(folder.join("true.yaml"))
        .args(["-o", "json", "--data"])
        .arg(folder.join("data"))
        .stdout(Stdio::null())
        .status()
        .expect("the program runs; build it with `cargo build --release`");
    assert!(status.success());
    begun.elapsed().as_secs_f64()
}
