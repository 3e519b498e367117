//! 1,000 × `true`: xargs and task-spooler, which store nothing, beside spawning and waiting with nothing else, in turns.

#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::process::{Command, Stdio};
use std::time::Instant;

use measure::print;

const PROCESSES: u32 = 1000;

fn main() {
    let repeats = std::env::var("REPEATS").map_or(3, |it| it.parse().expect("a number"));
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    let spooler = std::env::var("TASK_SPOOLER").ok();
    let (mut raw1, mut raw2, mut xargs2, mut spooled) = (vec![], vec![], vec![], vec![]);
    for _ in 0..repeats {
        if wants("raw_1") {
            raw1.push(rate(|| raw(1)));
        }
        if wants("raw_2") {
            raw2.push(rate(|| raw(2)));
        }
        if wants("xargs_2") {
            xargs2.push(rate(xargs));
        }
        if let Some(spooler) = spooler.as_deref().filter(|_| wants("task_spooler_2")) {
            // Two at once; the first call starts its server, which is no part of the time.
            run(Command::new(spooler).args(["-S", "2"]));
            spooled.push(rate(|| spool(spooler)));
            run(Command::new(spooler).arg("-K"));
        }
    }
    print("processes", "raw_1", "processes/s", PROCESSES, &raw1);
    print("processes", "raw_2", "processes/s", PROCESSES, &raw2);
    print("processes", "xargs_2", "processes/s", PROCESSES, &xargs2);
    print("processes", "task_spooler_2", "processes/s", PROCESSES, &spooled);
}

fn rate(all: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    all();
    f64::from(PROCESSES) / begun.elapsed().as_secs_f64()
}

fn run(command: &mut Command) {
    let ended = command.stdout(Stdio::null()).status().expect("a program");
    assert!(ended.success(), "{command:?}: {ended}");
}

fn raw(threads: u32) {
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..PROCESSES / threads).for_each(|_| run(&mut Command::new("true"))));
        }
    });
}

fn xargs() {
    let numbers = format!("seq {PROCESSES} | xargs -P2 -n1 true");
    run(Command::new("sh").args(["-c", &numbers]));
}

/// Each is queued by a call of its own, as its users do; the last call waits for the last process, and the one before
/// it may end a moment later.
fn spool(spooler: &str) {
    let calls = format!("for n in $(seq {PROCESSES}); do {spooler} -n true; done; {spooler} -w");
    run(Command::new("sh").args(["-c", &calls]));
}
