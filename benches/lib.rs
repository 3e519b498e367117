//! Workloads for `cargo bench`; see benches/README.md. Comparison dependencies stay in this room.
//!
//! What several of them need: a real server of the release build, and what the kernel says of it.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Instant, SystemTime};

/// What the kernel counts CPU time in.
const TICKS: f64 = 100.0;

/// A data folder that goes with this.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("steadfast-bench-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Size and time of the store's files.
    pub fn stored(&self) -> Vec<Option<(u64, SystemTime)>> {
        let of = |name: &str| {
            let data = fs::metadata(self.0.join(name)).ok()?;
            Some((data.len(), data.modified().ok()?))
        };
        ["steadfast.db", "steadfast.db-wal"].map(of).into()
    }
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
    pub written: u64,
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
        Self { child, address }
    }

    fn proc(&self, name: &str) -> String {
        let path = Path::new("/proc").join(self.child.id().to_string()).join(name);
        fs::read_to_string(path).expect("it runs")
    }

    pub fn standing(&self) -> Standing {
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
}

/// With SIGKILL, as a crash would.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    let mut path = std::env::current_exe().expect("a path");
    path.pop();
    path.pop();
    path.join("steadfast")
}
