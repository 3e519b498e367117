//! Real processes. Nothing here sleeps to wait for something: what a process has done is told by a named
//! pipe or by its end, and every wait is bounded by the attempt's own timeout.

mod ending;
mod leaving;
mod logging;
mod slots;
mod starting;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_worker::{Attempt, Command, Ended, Mask, Stop, run};

/// Longer than anything here takes, so that a failure is a failure and not a hang.
const LONG: Duration = Duration::from_mins(1);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("steadfast-worker-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn attempt(&self, command: Command) -> Attempt {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Attempt {
            command,
            env: Vec::new(),
            inherit_env: false,
            cwd: self.0.clone(),
            log: self.path("logs/attempt.log"),
            log_cap: 1 << 20,
            log_times: false,
            output: self.path("output.json"),
            output_cap: 1 << 20,
            timeout: Some(LONG),
            kill_grace: LONG,
            mark: ("STEADFAST_TEST_MARK".to_owned(), format!("{}-{number}", std::process::id())),
            mask: Mask::default(),
            user: None,
            grouped: false,
        }
    }

    fn shell(&self, script: &str) -> Attempt {
        self.attempt(Command::Shell(script.to_owned()))
    }

    fn argv(&self, argv: &[&str]) -> Attempt {
        self.attempt(Command::Argv(argv.iter().map(|&word| word.to_owned()).collect()))
    }

    /// A named pipe: opening it to read waits for the process that opens it to write.
    fn fifo(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        path
    }
}

/// One that has ended and was not let go of yet does nothing any more.
fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn ended(attempt: &Attempt) -> Ended {
    run(attempt, &Stop::new().unwrap())
}

fn outcome(attempt: &Attempt) -> Outcome {
    match ended(attempt) {
        Ended::Outcome(outcome) => outcome,
        Ended::Stopped => panic!("nobody stopped it"),
    }
}

fn kind(attempt: &Attempt) -> FailureKind {
    match outcome(attempt) {
        Outcome::Failed(failure) => failure.kind,
        other => panic!("{other:?}"),
    }
}

/// The kind and the message of a failure without an exit code.
fn error(attempt: &Attempt) -> (String, String) {
    match outcome(attempt) {
        Outcome::Failed(failure) if failure.kind == FailureKind::NotCompleted => {
            let error = failure.error.unwrap();
            (error.kind.unwrap(), error.message)
        }
        other => panic!("{other:?}"),
    }
}

fn pid_in(path: &Path) -> Pid {
    let text = fs::read_to_string(path).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

/// A zombie that nobody has reaped yet counts as gone.
fn is_gone(pid: Pid) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().unwrap().trim_start().starts_with(['Z', 'X']),
        Err(_) => true,
    }
}

/// Waits until it is gone, and kills it if it is not in time: nothing may outlive a failed test.
fn wait_gone(pid: Pid) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { return true };
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    let gone = poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })) == Ok(1);
    if !gone {
        let _ = kill_process(pid, Signal::KILL);
    }
    gone
}
