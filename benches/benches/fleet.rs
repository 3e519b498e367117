//! What many workers and many items cost a server: a thousand real sessions that only beat, then a
//! fan-out of a hundred thousand items over them; the rate of items that take no time; and `up`.
//!
//!     cargo build --release && cargo bench -p steadfast-benches --bench fleet
//!
//! `-- 1000 1 100000` measures so many workers with so many slots and so many items, and nothing else.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

#[path = "../../crates/cli/tests/scale/sessions.rs"]
mod sessions;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sessions::{Sessions, request, submit};

const BEATING: Duration = Duration::from_secs(10);
/// What the kernel counts CPU time in.
const TICKS: f64 = 100.0;

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
    let server = Server::start("server");
    // One thread: the other core is the server's.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        println!("{workers} workers × {slots} slots, {items} items");
        let mut sessions = Sessions::open(&server.address, workers, slots).await;
        println!("  connected: {}", server.standing());
        let (before, stored) = (server.standing(), server.stored());
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
            if server.stored() == stored { "unchanged" } else { "WRITTEN TO" },
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
    let server = Server::start("up");
    while !request(&server.address, "GET /readyz", "").is_ok_and(|(status, _)| status == 200) {}
    println!("up: ready after {:?}", begun.elapsed());
    // Its worker has come in by then.
    std::thread::sleep(Duration::from_secs(1));
    let before = server.standing();
    std::thread::sleep(BEATING);
    let now = server.standing();
    println!("  {:.2} s CPU in {BEATING:?} of idling; {now}", now.cpu - before.cpu);
}

struct Server {
    child: Child,
    address: String,
    folder: PathBuf,
}

/// Of the process, by now.
#[derive(Clone, Copy)]
struct Standing {
    at: Instant,
    cpu: f64,
    resident: u64,
    peak: u64,
    written: u64,
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mb = |kib: u64| kib as f64 / 1000.0 * 1.024;
        write!(
            f,
            "{:.1} MB resident, {:.1} at most, {:.2} s CPU in all",
            mb(self.resident),
            mb(self.peak),
            self.cpu
        )
    }
}

impl Server {
    fn start(how: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("steadfast-bench-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let mut child = Command::new(program())
            .args([how, "--listen", "127.0.0.1:0", "--auth", "none", "--data"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts; build it with `cargo build --release`");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").expect("an address").1.to_owned();
        Self { child, address, folder }
    }

    fn proc(&self, name: &str) -> String {
        let path = Path::new("/proc").join(self.child.id().to_string()).join(name);
        fs::read_to_string(path).expect("it runs")
    }

    fn standing(&self) -> Standing {
        let number = |text: &str, name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
        };
        let (status, io, stat) = (self.proc("status"), self.proc("io"), self.proc("stat"));
        // After the name, which is in brackets: user and system time are the 12th and 13th.
        let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
        let ticks: f64 = fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
        Standing {
            at: Instant::now(),
            cpu: ticks / TICKS,
            resident: number(&status, "VmRSS:"),
            peak: number(&status, "VmHWM:"),
            written: number(&io, "write_bytes:"),
        }
    }

    /// Size and time of the store's files.
    fn stored(&self) -> Vec<Option<(u64, std::time::SystemTime)>> {
        let of = |name: &str| {
            let data = fs::metadata(self.folder.join(name)).ok()?;
            Some((data.len(), data.modified().ok()?))
        };
        ["steadfast.db", "steadfast.db-wal"].map(of).into()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    path.join("steadfast")
}
