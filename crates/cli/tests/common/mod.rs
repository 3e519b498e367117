//! Real runs of the real program, and what must hold of their logs however often they died.

#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

mod check;

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use steadfast_store::testing::TestCluster;

pub(crate) use check::{Checked, Tally, check};

pub(crate) const SIGABRT: i32 = 6;
pub(crate) const SIGKILL: i32 = 9;

/// Nothing here takes as long unless it hangs.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// `work.sh N`: leaves its token, takes a moment, fails N times (`always`: every time), then
/// succeeds. The failures are counted in a file, so that an attempt that was lost does not count.
const WORK: &str = r#"#!/bin/sh
echo "$STEADFAST_ATTEMPT_TOKEN" >> tokens
sleep 0.0$((1 + ${#STEADFAST_STEP} % 4))
[ "$1" = always ] && exit 1
count="failed-$STEADFAST_STEP-$STEADFAST_ITEM_INDEX"
if [ "$(cat "$count" 2>/dev/null | wc -l)" -lt "$1" ]; then
    echo >> "$count"
    exit 1
fi
exit 0
"#;

#[allow(clippy::disallowed_methods, reason = "bounds on waiting need a clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// As events have it.
#[allow(clippy::disallowed_methods, reason = "held against the times in a log")]
pub(crate) fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// Waits until there is something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = now() + LONG;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < until, "waited in vain for {what}");
        breathe();
    }
}

#[allow(clippy::disallowed_methods, reason = "between two looks at what tells nobody")]
fn breathe() {
    std::thread::sleep(Duration::from_millis(3));
}

/// Xorshift: enough to spread kills over time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// `STEADFAST_TEST_SEED` plays the kills of an earlier run again, as far as time allows.
    pub(crate) fn new() -> Self {
        let given = std::env::var("STEADFAST_TEST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| unix_ms() ^ (u64::from(std::process::id()) << 20));
        println!("STEADFAST_TEST_SEED={seed}");
        Self(seed | 1)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A fresh folder with a job file in it and a data folder of its own.
#[derive(Debug)]
pub(crate) struct Place {
    folder: tempfile::TempDir,
    /// The URL of the database that its jobs are in. None: they are in the data folder.
    database: Option<String>,
}

/// With `STEADFAST_TEST_STORE=postgres` jobs are in a database, but for tests that are about the folder.
fn in_postgres() -> Option<&'static TestCluster> {
    let store = std::env::var("STEADFAST_TEST_STORE").unwrap_or_default();
    (store == "postgres").then(TestCluster::shared)?
}

impl Place {
    pub(crate) fn new(job: &str) -> Self {
        let database = in_postgres().map(TestCluster::database);
        Self { database, ..Self::with_data_folder(job) }
    }

    pub(crate) fn is_in_postgres(&self) -> bool {
        self.database.is_some()
    }

    /// Its jobs are in the data folder, whatever the other tests' are.
    pub(crate) fn with_data_folder(job: &str) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        fs::write(folder.path().join("job.yaml"), job).expect("writes");
        fs::write(folder.path().join("work.sh"), WORK).expect("writes");
        Self { folder, database: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadfast"));
        command.args(args).env("STEADFAST_DATA", self.path("data"));
        command.env_remove("STEADFAST_CRASH").env_remove("STEADFAST_JOB_ID");
        command.envs(self.database.as_ref().map(|url| ("STEADFAST_STORE__URL", url)));
        command.stdin(Stdio::null());
        command
    }

    pub(crate) fn call(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    pub(crate) fn run(&self, crash: Option<&str>) -> Process {
        let file = self.path("job.yaml");
        self.start(&["run", file.to_str().expect("plain")], crash)
    }

    pub(crate) fn resume(&self, job: &str, crash: Option<&str>) -> Process {
        self.start(&["resume", job], crash)
    }

    fn start(&self, args: &[&str], crash: Option<&str>) -> Process {
        let mut command = self.command(args);
        if let Some(crash) = crash {
            command.env("STEADFAST_CRASH", crash);
        }
        Process::start(command)
    }

    /// Resumes, and waits for the end of that. A child of the dead run holds the job's lock until
    /// it has become the program that it was to be, so that can take a moment.
    #[track_caller]
    pub(crate) fn resume_to_end(&self, job: &str, crash: Option<&str>) -> Ended {
        wait_for("the lock of the dead run", || {
            let ended = self.resume(job, crash).end();
            (!ended.was_locked_out()).then_some(ended)
        })
    }

    /// At work on the job again.
    #[track_caller]
    pub(crate) fn resumed(&self, job: &str) -> Process {
        wait_for("the lock of the dead run", || {
            let mut process = self.resume(job, None);
            if process.says("resumed") {
                return Some(process);
            }
            let ended = process.end();
            assert!(ended.was_locked_out(), "{ended:?}");
            None
        })
    }

    /// Goes on to the job's end.
    #[track_caller]
    pub(crate) fn finish(&self, job: &str) -> Ended {
        let ended = self.resume_to_end(job, None);
        let code = ended.status.code();
        assert!(matches!(code, Some(0 | 1)), "{:?}: {}", ended.status, ended.stderr);
        ended
    }

    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let output = self.call(&[args, &["-o", "json"]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {stderr}"))
    }

    #[track_caller]
    pub(crate) fn events(&self, job: &str) -> Vec<Value> {
        let output = self.call(&["history", job, "-o", "json"]);
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| serde_json::from_str(line).expect("an event")).collect()
    }

    /// What a person sees of each event, in order.
    pub(crate) fn told(&self, job: &str) -> Vec<String> {
        let output = self.call(&["history", job]);
        let text = String::from_utf8(output.stdout).expect("text");
        // The number of the event and the time come first.
        let words = |line: &str| line.get(18..).unwrap_or_default().to_owned();
        text.lines().map(words).collect()
    }

    /// The ids of all jobs that were ever stored.
    pub(crate) fn jobs(&self) -> Vec<String> {
        let answer = self.json(&["list"]);
        let jobs = answer["jobs"].as_array().expect("jobs");
        jobs.iter().map(|job| job["id"].as_str().expect("an id").to_owned()).collect()
    }
}

/// `steadfast` at work.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    heard: Arc<Mutex<String>>,
    stderr: JoinHandle<()>,
}

/// What is left of it.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Whole lines of stdout.
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn id(&self) -> Option<&str> {
        self.lines.first().map(String::as_str)
    }

    /// It reached the point at which it was to crash.
    pub(crate) fn crashed(&self) -> bool {
        self.status.signal() == Some(SIGABRT)
    }

    pub(crate) fn was_locked_out(&self) -> bool {
        self.status.code() == Some(2) && self.stderr.contains("run by another process right now")
    }

    /// The events that it said have happened.
    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = &String> {
        // The summary at the end begins with the steps, which are indented.
        let events = self.lines.iter().skip(1).take_while(|line| !line.starts_with("  "));
        events.filter(|line| *line != "resumed")
    }
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut stderr = child.stderr.take().expect("piped");
        let (send, lines) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            // What was not ended by a line feed was not said.
            while stdout.read_line(&mut line).is_ok() && line.ends_with('\n') {
                line.pop();
                if send.send(std::mem::take(&mut line)).is_err() {
                    return;
                }
            }
        });
        let heard = Arc::<Mutex<String>>::default();
        let hearing = heard.clone();
        let stderr = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut part) {
                let text = String::from_utf8_lossy(&part[..count]);
                hearing.lock().expect("unpoisoned").push_str(&text);
            }
        });
        Self { child, lines, seen: vec![], heard, stderr }
    }

    /// Waits until it says something that contains `words`; false: it has ended without.
    pub(crate) fn says(&mut self, words: &str) -> bool {
        let until = now() + LONG;
        loop {
            if self.seen.iter().any(|line| line.contains(words)) {
                return true;
            }
            match self.lines.recv_timeout(until.saturating_duration_since(now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => panic!("it never says {words:?}"),
            }
        }
    }

    /// Waits until it has said so many lines; false: it has ended before.
    pub(crate) fn says_lines(&mut self, count: usize) -> bool {
        while self.seen.len() < count {
            match self.lines.recv_timeout(LONG) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return false,
                Err(RecvTimeoutError::Timeout) => panic!("it says no more: {:?}", self.seen),
            }
        }
        true
    }

    /// Waits until stderr contains `words`.
    #[track_caller]
    pub(crate) fn hears(&self, words: &str) {
        let said = || self.heard.lock().expect("unpoisoned").contains(words).then_some(());
        wait_for(words, said);
    }

    /// Its first line.
    #[track_caller]
    pub(crate) fn id(&mut self) -> String {
        assert!(self.says(""), "it ended before it named the job");
        self.seen[0].clone()
    }

    /// Lets it go on for so long; true: it ended by itself before.
    pub(crate) fn ends_within(&mut self, time: Duration) -> bool {
        let until = now() + time;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(now())) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => return false,
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("it has not been waited for");
    }

    pub(crate) fn kill(mut self) -> Ended {
        self.child.kill().expect("ours to kill");
        self.end()
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Ended {
        assert!(self.ends_within(LONG), "it does not end: {:?}", self.seen);
        let status = self.child.wait().expect("a child");
        self.stderr.join().expect("read to its end");
        let stderr = std::mem::take(&mut *self.heard.lock().expect("unpoisoned"));
        Ended { status, lines: self.seen, stderr }
    }
}

/// Processes that carry the job's mark.
pub(crate) fn processes_of(job: &str) -> Vec<u32> {
    let mark = format!("STEADFAST_JOB_ID={job}");
    let carries = |pid: u32| {
        let mut environ = Vec::new();
        fs::File::open(format!("/proc/{pid}/environ"))
            .and_then(|mut file| file.read_to_end(&mut environ))
            .is_ok_and(|_| environ.split(|byte| *byte == 0).any(|it| it == mark.as_bytes()))
    };
    let entries = fs::read_dir("/proc").expect("/proc");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid| carries(*pid)).collect()
}

/// The name of an event.
pub(crate) fn is(event: &Value, name: &str) -> bool {
    event["event"] == name
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// For a shim or a script that a test brings along.
pub(crate) fn beside_this(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Whoever started the tests did so with `nohup`, and what they start inherits that.
pub(crate) fn hangups_are_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("/proc");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    u64::from_str_radix(mask.trim(), 16).expect("hexadecimal") & 1 == 1
}
