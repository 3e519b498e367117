//! A program that adopts what its attempts leave behind: for the whole process, so that it has a test binary of its
//! own, in which nothing else is started.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use steadfast_core::outcome::Outcome;
use steadfast_worker::{Attempt, Command, Ended, Mask, Stop, adopt_orphans, run};
use tempfile::TempDir;

/// Longer than anything here takes, so that a failure is a failure and not a hang.
const LONG: Duration = Duration::from_mins(1);

/// One at a time: whose an orphan is follows from which attempts run.
static ALONE: Mutex<()> = Mutex::new(());

fn attempt(folder: &Path, name: &str, script: &str) -> Attempt {
    Attempt {
        command: Command::Shell(script.to_owned()),
        env: Vec::new(),
        inherit_env: false,
        cwd: folder.to_owned(),
        log: folder.join(format!("{name}.log")),
        log_cap: 1 << 20,
        log_times: false,
        output: folder.join(format!("{name}.json")),
        output_cap: 1 << 20,
        timeout: Some(LONG),
        kill_grace: LONG,
        mark: ("STEADFAST_TEST_ORPHANS".to_owned(), format!("{}-{name}", std::process::id())),
        mask: Mask::default(),
        user: None,
        grouped: false,
    }
}

/// Leaves a process behind that nothing is known of: its parent is gone, it has no environment, no open files
/// and a session of its own.
fn leaving(what: &str) -> String {
    format!(
        "(setsid env -i sh -c 'echo $$ > left.new; mv left.new left; {what}' < /dev/null > /dev/null 2>&1 &)
         until [ -e left ]; do sleep 0.01; done"
    )
}

fn left(folder: &Path) -> i32 {
    fs::read_to_string(folder.join("left")).unwrap().trim().parse().unwrap()
}

/// Also as one that has ended and is not let go of.
fn is_there(pid: i32) -> bool {
    test_kill_process(Pid::from_raw(pid).unwrap()).is_ok()
}

fn run_one(attempt: &Attempt) {
    let ended = run(attempt, &Stop::new().unwrap());
    assert_eq!(ended, Ended::Outcome(Outcome::Succeeded { output: None }));
}

#[allow(clippy::disallowed_methods, reason = "between two looks at what tells nobody")]
#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain");
}

#[test]
fn what_has_nothing_left_of_its_attempt_is_killed_when_that_ends() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(adopt_orphans());
    let folder = TempDir::new().unwrap();
    run_one(&attempt(folder.path(), "a", &leaving("exec sleep 1000")));
    assert!(!is_there(left(folder.path())));
}

#[test]
fn while_another_attempt_may_have_left_it_an_orphan_is_not_killed() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(adopt_orphans());
    let folder = TempDir::new().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    fs::create_dir(&first).unwrap();
    fs::create_dir(&second).unwrap();
    // Begun before, and over after: it cannot be told from the one that leaves something.
    let begun = second.join("begun");
    let script = "touch begun; until [ -e end ]; do sleep 0.01; done";
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| run_one(&attempt(&second, "b", script)));
        until(|| begun.exists());
        run_one(&attempt(&first, "a", &leaving("exec sleep 1000")));
        let there = is_there(left(&first));
        fs::write(second.join("end"), "").unwrap();
        other.join().unwrap();
        there
    });
    assert!(other, "it was somebody's");
    assert!(!is_there(left(&first)), "and nobody's in the end");
}

#[test]
fn adopted_children_that_end_are_let_go_of_while_attempts_run() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    assert!(adopt_orphans());
    let folder = TempDir::new().unwrap();
    let end = folder.path().join("end");
    let script = format!("{}; until [ -e end ]; do sleep 0.01; done", leaving("exit 0"));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| run_one(&attempt(folder.path(), "a", &script)));
        until(|| folder.path().join("left").exists());
        until(|| !is_there(left(folder.path())));
        fs::write(&end, "").unwrap();
        running.join().unwrap();
    });
}
