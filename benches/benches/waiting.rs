//! What jobs cost a server that it has nothing to do about for an hour: memory, the time until it is ready after
//! kill -9, CPU; and what happens when many fall due while it is down.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench waiting
//!
//! `-- 100000` has this many jobs wait instead of a million. They come into the data folder by a controller in this
//! process, with the events that a server would write, before one is started: over REST they would take half an hour.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../../crates/cli/tests/scale/sessions.rs"]
#[allow(dead_code, reason = "another benchmark submits over REST")]
mod sessions;

use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sessions::{Sessions, request};
use steadfast_benches::{Folder, Server, figure, millis, repeats};
use steadfast_core::event::AcceptedJob;
use steadfast_core::time::Timestamp;
use steadfast_engine::{Controller, FleetRules, Placement, Request};
use steadfast_jobfile::{Operator, load};
use steadfast_store::{Journal, Owner, SqliteStore};

const WAITING: usize = 1_000_000;
/// Of them, those that fall due while the server is down, and in how long.
const DUE: usize = 10_000;
const DUE_IN: Duration = Duration::from_secs(4);
const IDLING: Duration = Duration::from_secs(20);
/// Jobs in one transaction.
const GROUP: usize = 1000;
/// Beats often enough to see a stall of a fifth of a second.
const SETTINGS: &str = "[workers]\nlease = \"5s\"\nbeat = \"50ms\"\n";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    // `cargo test --benches` only wants to know that it starts.
    if args.iter().any(|arg| arg == "--test") {
        return;
    }
    let jobs = args.iter().find_map(|arg| arg.parse().ok()).unwrap_or(WAITING);
    for _ in 0..repeats(1) {
        wait(jobs);
    }
}

fn wait(waiting: usize) {
    let folder = Folder::new();
    fs::create_dir_all(folder.path()).expect("a folder");
    let settings = folder.path().join("settings.toml");
    fs::write(&settings, SETTINGS).expect("a file");
    let settings = ["--config", settings.to_str().expect("text")];

    let begun = Instant::now();
    fill(&folder, "in 1h", waiting, 0);
    let bytes = folder.stored()[0].map_or(0, |(bytes, _)| bytes);
    let took = begun.elapsed().as_secs_f64();
    println!("{waiting} jobs that wait an hour: stored in {took:.0} s, {} MB", bytes >> 20);

    drop(Server::start("server", &folder, &settings));
    let begun = Instant::now();
    let server = Server::start("server", &folder, &settings);
    until_ready(&server);
    let ready = begun.elapsed();
    figure("waiting", "ready", "s", ready.as_secs_f64());
    println!("  ready {ready:?} after its start, which followed on kill -9; {}", server.standing());
    std::thread::sleep(Duration::from_secs(2));
    let before = server.standing();
    std::thread::sleep(IDLING);
    let now = server.standing();
    let cpu = now.cpu - before.cpu;
    figure("waiting", "idle_cpu", "% of a core", cpu / IDLING.as_secs_f64() * 100.0);
    figure("waiting", "memory", "MB", now.peak_mb());
    println!("  {cpu:.2} s CPU in {IDLING:?} of idling; {now}");
    drop(server);

    let begun = Instant::now();
    fill(&folder, &format!("in {}s", DUE_IN.as_secs()), DUE, waiting);
    std::thread::sleep((DUE_IN + Duration::from_secs(1)).saturating_sub(begun.elapsed()));
    let begun = Instant::now();
    let server = Server::start("server", &folder, &settings);
    until_ready(&server);
    println!("{DUE} of them fell due while it was down: ready after {:?}", begun.elapsed());
    due(&server, begun);
}

fn until_ready(server: &Server) {
    while !request(&server.address, "GET /readyz", "").is_ok_and(|(status, _)| status == 200) {}
}

/// A worker comes in at once, and is given all of them.
fn due(server: &Server, begun: Instant) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut sessions = Sessions::open(&server.address, 1, 64).await;
        let (answered, last, longest) = (Cell::new(0), Cell::new(Instant::now()), Cell::new(Duration::ZERO));
        sessions
            .until("every job", |so_far| {
                if so_far.answered[0] > answered.replace(so_far.answered[0]) {
                    longest.set(longest.get().max(last.replace(Instant::now()).elapsed()));
                }
                so_far.acknowledged.len() == DUE
            })
            .await;
        let (took, gap) = (begun.elapsed(), longest.get().max(last.get().elapsed()));
        figure("waiting", "due_done", "s", took.as_secs_f64());
        figure("waiting", "longest_gap", "ms", millis(gap));
        println!(
            "  all done {took:?} after its start; {} beats of 50 ms were answered, the longest gap between two {gap:?}; {}",
            answered.get(),
            server.standing(),
        );
    });
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as u64)
}

/// Accepts jobs that begin then, as a server would.
fn fill(folder: &Folder, not_before: &str, jobs: usize, from: usize) {
    let text =
        format!("name: waits\nnot_before: {not_before}\nsteps: {{ s: {{ argv: [/bin/true] }} }}\n");
    let plan = load("waits.yaml", text.as_bytes(), &Operator::default()).expect("valid").plan;
    let plan = Arc::new(plan);
    let mut store = SqliteStore::open(&folder.path().join("steadfast.db")).expect("a store");
    let owner = store.take(Owner::SHARD, now(), None).expect("an owner");
    let mut controller = Controller::new(Placement::fleet(FleetRules::default()));
    controller.raise_horizon(now());
    for first in (0..jobs).step_by(GROUP) {
        let group = first..(first + GROUP).min(jobs);
        let requests = group.map(|n| {
            let id = format!("{:026}", from + n).into();
            let accepted = Box::new(AcceptedJob::new(id, plan.clone()));
            (None, Request::Submit { accepted, key: None })
        });
        let group = controller.step(requests, now()).expect("jobs");
        let answers = store.commit(&owner, &group.writes).expect("stored");
        for (job, seq) in group.committed(answers).idle {
            controller.idle(&job, seq);
        }
        drop(controller.group());
    }
}
