//! Workloads for `cargo bench`; see benches/README.md. Comparison dependencies stay in this room.
//!
//! What several of them need: a real server of the release build, and what the kernel says of it.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime};

pub use figures::{Measured, centiles, figure, median, millis, probe_disk, probe_spawn, repeats};

mod figures;

/// What the kernel counts CPU time in.
pub const TICKS: f64 = 100.0;

/// A data folder that goes with this.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        Self::named("data")
    }

    /// One of several.
    pub fn named(name: &str) -> Self {
        let folder = format!("steadfast-bench-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Size and time of the store's files.
    pub fn stored(&self) -> Vec<Option<(u64, SystemTime)>> {
        stored(&self.0)
    }
}

fn stored(folder: &Path) -> Vec<Option<(u64, SystemTime)>> {
    let of = |name: &str| {
        let data = fs::metadata(folder.join(name)).ok()?;
        Some((data.len(), data.modified().ok()?))
    };
    ["steadfast.db", "steadfast.db-wal"].map(of).into()
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A server of the release build, killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    folder: PathBuf,
    /// Host and port.
    pub address: String,
}

/// Of the process, by now.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    pub at: Instant,
    /// Seconds.
    pub cpu: f64,
    resident: u64,
    peak: u64,
    /// Bytes that the server had the kernel write.
    pub written: u64,
    /// Bytes of the store's files.
    pub stored: u64,
}

impl Standing {
    pub fn resident_mb(&self) -> f64 {
        self.resident as f64 * 1.024e-3
    }

    pub fn peak_mb(&self) -> f64 {
        self.peak as f64 * 1.024e-3
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.1} MB resident, {:.1} at most, {:.2} s CPU in all",
            self.resident_mb(),
            self.peak_mb(),
            self.cpu
        )
    }
}

impl Server {
    /// `how`: `server` or `up`. It listens when this returns.
    pub fn start(how: &str, folder: &Folder, more: &[&str]) -> Self {
        let mut child = Command::new(program())
            .args([how, "--listen", "127.0.0.1:0", "--auth", "none", "--data"])
            .arg(folder.path())
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts; build it with `cargo build --release`");
        let mut line = String::new();
        let stdout = child.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit_once("http://").expect("an address").1.to_owned();
        Self { child, folder: folder.path().to_owned(), address }
    }

    pub fn standing(&self) -> Standing {
        let number = |text: &str, name: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.split_whitespace().next().and_then(|n| n.parse().ok()).expect("a number")
        };
        let (status, io) = (proc(self.child.id(), "status"), proc(self.child.id(), "io"));
        Standing {
            at: Instant::now(),
            cpu: cpu_of(self.child.id()),
            resident: number(&status, "VmRSS:"),
            peak: number(&status, "VmHWM:"),
            written: number(&io, "write_bytes:"),
            stored: stored(&self.folder).into_iter().flatten().map(|(bytes, _)| bytes).sum(),
        }
    }
}

/// With SIGKILL, as a crash would.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn proc(process: u32, name: &str) -> String {
    let path = Path::new("/proc").join(process.to_string()).join(name);
    fs::read_to_string(path).expect("it runs")
}

/// Seconds, of all threads of a process.
pub fn cpu_of(process: u32) -> f64 {
    let stat = proc(process, "stat");
    // After the name, which is in brackets: user and system time are the 12th and 13th.
    let fields = stat.rsplit_once(')').expect("a name").1.split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks / TICKS
}

/// The program of the release build, which stands above this one.
pub fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    path.join("steadfast")
}
