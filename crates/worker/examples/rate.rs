//! What `run` costs: processes per second beside the standard library's own spawn and wait, and bytes per
//! second of a process that prints.
//!
//!     cargo run --release -p steadfast-worker --example rate

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use steadfast_worker::{Attempt, Command, Ended, Mask, Stop, run};

const THREADS: usize = 2;
const EACH: usize = 100;
const ROUNDS: usize = 51;
const FLOOD_GIB: u64 = 10;

fn main() {
    let folder = std::env::temp_dir().join(format!("steadfast-rate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    let timeless = |_: &mut Attempt| {};
    let timed = |attempt: &mut Attempt| attempt.timeout = Some(Duration::from_mins(1));

    // In small turns, so that what else the machine does meets all alike.
    let rounds: Vec<[f64; 3]> = (0..ROUNDS)
        .map(|_| {
            [
                rate(|_| plain(&folder)),
                rate(|number| ours(&folder, number, timeless)),
                rate(|number| ours(&folder, number, timed)),
            ]
        })
        .collect();
    let median = |of: &dyn Fn(&[f64; 3]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!(
        "true on {THREADS} threads, {ROUNDS} × {}: standard library {:.0}/s, run {:.0}/s, with a timeout {:.0}/s",
        THREADS * EACH,
        median(&|rates| rates[0]),
        median(&|rates| rates[1]),
        median(&|rates| rates[2]),
    );
    println!(
        "ratio within a round: {:.3}, with a timeout {:.3}",
        median(&|rates| rates[1] / rates[0]),
        median(&|rates| rates[2] / rates[0]),
    );

    let bytes = FLOOD_GIB << 30;
    let ((), piped) = time(|| shell(&format!("head -c {bytes} /dev/zero | cat > /dev/null")));
    let ((), logged) = time(|| {
        let mut flood = attempt(&folder, 0);
        flood.command = Command::Shell(format!("exec head -c {bytes} /dev/zero"));
        assert!(matches!(run(&flood, &Stop::new().expect("an eventfd")), Ended::Outcome(_)));
    });
    let per_second = |time: Duration| FLOOD_GIB as f64 / time.as_secs_f64();
    println!(
        "{FLOOD_GIB} GiB printed: {:.2} GiB/s, beside `| cat > /dev/null` {:.2} GiB/s; {}",
        per_second(logged),
        per_second(piped),
        peak_memory()
    );
    let _ = std::fs::remove_dir_all(folder);
}

fn rate(one: impl Fn(usize) + Sync) -> f64 {
    let ((), taken) = time(|| {
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let one = &one;
                scope.spawn(move || (0..EACH).for_each(|number| one(thread * EACH + number)));
            }
        });
    });
    (THREADS * EACH) as f64 / taken.as_secs_f64()
}

fn plain(folder: &Path) {
    let status = std::process::Command::new("/bin/true")
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir(folder)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(status.is_ok_and(|status| status.success()));
}

fn ours(folder: &Path, number: usize, change: impl Fn(&mut Attempt)) {
    let mut attempt = attempt(folder, number);
    change(&mut attempt);
    let ended = run(&attempt, &Stop::new().expect("an eventfd"));
    assert_eq!(ended, Ended::Outcome(steadfast_core::outcome::Outcome::OK));
}

fn attempt(folder: &Path, number: usize) -> Attempt {
    Attempt {
        command: Command::Argv(vec!["/bin/true".to_owned()]),
        env: Vec::new(),
        inherit_env: false,
        cwd: folder.to_owned(),
        log: folder.join(format!("{number}.log")),
        log_cap: 1 << 20,
        log_times: true,
        output: folder.join(format!("{number}.json")),
        output_cap: 1 << 20,
        timeout: None,
        kill_grace: Duration::from_secs(10),
        mark: ("STEADFAST_RATE".to_owned(), number.to_string()),
        mask: Mask::default(),
        user: None,
        grouped: false,
    }
}

fn shell(script: &str) {
    let status = std::process::Command::new("/bin/sh").args(["-c", script]).status();
    assert!(status.is_ok_and(|status| status.success()));
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned()
}

#[allow(clippy::disallowed_methods, reason = "it measures")]
fn time<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = run();
    (result, start.elapsed())
}
