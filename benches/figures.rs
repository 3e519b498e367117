//! What the workloads measure, for people and as lines of JSON for `benches/run`; and what the bare machine does.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{Folder, Standing};

const PROBES: usize = 200;

/// One value of a figure, as a line of JSON. Nothing, unless `STEADFAST_FIGURES` is set.
pub fn figure(workload: &str, metric: &str, unit: &str, value: f64) {
    if std::env::var_os("STEADFAST_FIGURES").is_some() {
        println!(
            "{{\"workload\":{workload:?},\"metric\":{metric:?},\"unit\":{unit:?},\"value\":{value}}}"
        );
    }
}

/// How often a workload is measured: `REPEATS` of the environment, or this often.
pub fn repeats(or: usize) -> usize {
    std::env::var("REPEATS").ok().and_then(|it| it.parse().ok()).unwrap_or(or).max(1)
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// And the least and the most.
pub fn median(values: &[f64]) -> (f64, f64, f64) {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

/// The 50th and the 99th.
pub fn centiles(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort();
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
    (at(50), at(99))
}

/// What jobs cost a server, over all repeats.
#[derive(Debug)]
pub struct Measured {
    workload: String,
    /// What there are many of: `job`, `item`, `step`.
    one: &'static str,
    rates: Vec<f64>,
    /// Of the server, in µs each.
    cpu: Vec<f64>,
    stored: Vec<f64>,
    written: Vec<f64>,
}

impl Measured {
    pub fn new(workload: impl Into<String>, one: &'static str) -> Self {
        let (rates, cpu, stored, written) = (vec![], vec![], vec![], vec![]);
        Self { workload: workload.into(), one, rates, cpu, stored, written }
    }

    /// Those that were done between the two.
    pub fn add(&mut self, before: Standing, now: Standing, jobs: u32) {
        let jobs = f64::from(jobs);
        let take = |values: &mut Vec<f64>, metric: &str, unit: &str, value: f64| {
            values.push(value);
            figure(&self.workload, metric, unit, value);
        };
        let each = |unit: &str| format!("{unit}/{}", self.one);
        let rate = jobs / (now.at - before.at).as_secs_f64();
        take(&mut self.rates, "rate", &format!("{}s/s", self.one), rate);
        take(&mut self.cpu, "cpu", &each("µs"), (now.cpu - before.cpu) * 1e6 / jobs);
        let stored = now.stored.saturating_sub(before.stored);
        take(&mut self.stored, "stored", &each("bytes"), stored as f64 / jobs);
        take(
            &mut self.written,
            "written",
            &each("bytes"),
            (now.written - before.written) as f64 / jobs,
        );
        figure(&self.workload, "memory", "MB", now.peak_mb());
    }

    /// The median.
    pub fn rate(&self) -> f64 {
        median(&self.rates).0
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, low, high) = median(&self.rates);
        let (cpu, least, most) = median(&self.cpu);
        write!(
            f,
            "{rate:.0}/s ({low:.0}–{high:.0}); server: {cpu:.0} µs CPU each ({least:.0}–{most:.0}), {:.0} bytes \
             stored, {:.0} written",
            median(&self.stored).0,
            median(&self.written).0
        )
    }
}

/// What the disk takes for 4 KiB more, synced: p50 and p99.
pub fn probe_disk(folder: &Folder) -> (Duration, Duration) {
    let mut file = File::create(folder.path().join("probe")).expect("a file");
    let mut times: Vec<_> = (0..PROBES)
        .map(|_| {
            let begun = Instant::now();
            file.write_all(&[7; 4096]).and_then(|()| file.sync_data()).expect("synced");
            begun.elapsed()
        })
        .collect();
    centiles(&mut times)
}

/// Threads that spawn `true` and wait for it, this often in all: how many a second.
pub fn probe_spawn(threads: usize, times: usize) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..times / threads).for_each(|_| spawn()));
        }
    });
    times as f64 / begun.elapsed().as_secs_f64()
}

fn spawn() {
    let mut command = Command::new("/bin/true");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().is_ok_and(|status| status.success()));
}
