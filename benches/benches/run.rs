//! What durability costs a thousand tiny processes: `steadfast run` of 1,000 × `true` beside spawning
//! and waiting for them with nothing around, in turns, in one run.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench run

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

const ITEMS: usize = 1000;
const ROUNDS: usize = 7;

fn main() {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    let program = program();
    let folder = std::env::temp_dir().join(format!("steadfast-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let job = folder.join("true.yaml");
    let text = format!(
        "name: t\nsteps: {{ s: {{ argv: [/bin/true], for_each: {{ range: {ITEMS} }} }} }}\n"
    );
    std::fs::write(&job, text).expect("writes");
    let mut ratios = vec![];
    for round in 0..ROUNDS {
        let raw = ITEMS as f64 / raw();
        let begun = Instant::now();
        let status = Command::new(&program)
            .arg("run")
            .arg(&job)
            .args(["-o", "json", "--data"])
            .arg(folder.join("data"))
            .stdout(Stdio::null())
            .status()
            .expect("the program runs; build it with `cargo build --release`");
        assert!(status.success());
        let ours = ITEMS as f64 / begun.elapsed().as_secs_f64();
        println!("raw {raw:.0}/s  run {ours:.0}/s  ratio {:.2}", ours / raw);
        if round > 0 {
            ratios.push(ours / raw);
        }
    }
    ratios.sort_by(f64::total_cmp);
    let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
    println!("median ratio {:.2} ({least:.2} to {most:.2})", ratios[ratios.len() / 2]);
    let _ = std::fs::remove_dir_all(folder);
}

/// Two threads that spawn and wait.
fn raw() -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ITEMS / 2 {
                    let status = Command::new("/bin/true")
                        .stdin(Stdio::null())
                        .stdout(Stdio::null())
                        .stderr(Stdio::null())
                        .status();
                    assert!(status.is_ok_and(|status| status.success()));
                }
            });
        }
    });
    begun.elapsed().as_secs_f64()
}

fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    path.join("steadfast")
}
