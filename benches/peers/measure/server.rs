//! A peer's server as a process: started, watched and ended by its id.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// What the kernel counts CPU time in.
const TICKS: f64 = 100.0;
const GRACE: Duration = Duration::from_secs(10);

/// Ended when it is dropped.
pub struct Server(Child);

impl Server {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let asked = Instant::now();
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        while asked.elapsed() < GRACE {
            if let Ok(Some(_)) = self.0.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Seconds, of a process and its children, those that have ended too.
pub fn cpu_of(process: u32) -> f64 {
    let ticks = |process: u32| -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // utime, stime, cutime and cstime, counted behind the name, which may have spaces.
        let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
        Some(fields.filter_map(|field| field.parse::<f64>().ok()).sum())
    };
    tree(process).into_iter().filter_map(ticks).sum::<f64>() / TICKS
}

/// MB, of a process and its children; what they share counts once.
pub fn memory_of(process: u32) -> f64 {
    let kib = |process: u32| -> Option<f64> {
        let maps = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
        maps.lines()
            .find_map(|line| line.strip_prefix("Pss:"))?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    };
    tree(process).into_iter().filter_map(kib).sum::<f64>() * 1.024 / 1000.0
}

fn tree(process: u32) -> Vec<u32> {
    let mut found = vec![process];
    let mut at = 0;
    while let Some(process) = found.get(at) {
        let children = |task: fs::DirEntry| fs::read_to_string(task.path().join("children")).ok();
        let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let more: Vec<u32> = tasks
            .filter_map(children)
            .flat_map(|line| {
                line.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
            })
            .collect();
        found.extend(more);
        at += 1;
    }
    found
}
