//! Ending: timeouts, orders to stop, whole trees, processes that got away.

use std::fs;
use std::thread;
use std::time::Duration;

use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_worker::{Ended, Stop, kill_marked, run};

use super::{Folder, LONG, ended, is_gone, kind, outcome, pid_in, wait_gone};

const SHORT: Duration = Duration::from_millis(200);

/// As timeout: a process has got as far as it must long before, also on a busy machine.
const AWHILE: Duration = Duration::from_secs(1);

#[test]
fn a_timeout_is_a_timeout_even_if_the_process_then_succeeds() {
    let folder = Folder::new();
    let mut attempt = folder.shell("trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done");
    attempt.timeout = Some(AWHILE);
    assert_eq!(kind(&attempt), FailureKind::TimedOut);
    assert!(folder.read("logs/attempt.log").ends_with("bye\n"));
}

#[test]
fn sigterm_ignored_is_followed_by_sigkill() {
    let folder = Folder::new();
    let mut attempt =
        folder.shell("trap 'echo no' TERM; echo $$ > pid; while :; do sleep 0.02; done");
    attempt.timeout = Some(AWHILE);
    attempt.kill_grace = SHORT;
    assert_eq!(kind(&attempt), FailureKind::TimedOut);
    assert!(folder.read("logs/attempt.log").ends_with("no\n"));
    assert!(is_gone(pid_in(&folder.path("pid"))));
}

#[test]
fn a_timeout_kills_the_whole_tree() {
    let folder = Folder::new();
    let mut attempt =
        folder.shell("sh -c 'trap \"\" TERM; sleep 1000 & echo $! > pid; wait' & wait");
    attempt.timeout = Some(AWHILE);
    attempt.kill_grace = SHORT;
    assert_eq!(kind(&attempt), FailureKind::TimedOut);
    assert!(is_gone(pid_in(&folder.path("pid"))));
}

#[test]
fn a_grandchild_has_its_grace_when_the_leader_is_gone() {
    let folder = Folder::new();
    // Its output goes elsewhere, so the pipe says nothing about it.
    let mut attempt = folder.shell(
        "sh -c 'trap \"sleep 0.3; echo clean > left; exit\" TERM; while :; do sleep 0.02; done' >/dev/null 2>&1 & wait",
    );
    attempt.timeout = Some(AWHILE);
    assert_eq!(kind(&attempt), FailureKind::TimedOut);
    assert_eq!(folder.read("left"), "clean\n");
}

#[test]
fn one_that_left_the_group_is_killed_on_timeout() {
    let folder = Folder::new();
    let mut attempt =
        folder.shell("setsid sh -c 'echo $$ > pid; exec sleep 1000 >/dev/null 2>&1' & sleep 1000");
    attempt.timeout = Some(AWHILE);
    assert_eq!(kind(&attempt), FailureKind::TimedOut);
    assert!(is_gone(pid_in(&folder.path("pid"))));
}

#[test]
fn a_member_without_the_mark_is_killed_with_its_group() {
    let folder = Folder::new();
    let mut attempt =
        folder.shell("env -i sh -c 'trap \"\" TERM; echo $$ > pid; while :; do :; done' & wait");
    attempt.timeout = Some(AWHILE);
    attempt.kill_grace = Duration::ZERO;
    assert_eq!(kind(&attempt), FailureKind::TimedOut);
    assert!(is_gone(pid_in(&folder.path("pid"))));
}

#[test]
fn a_grandchild_that_holds_the_pipe_does_not_hold_the_attempt() {
    let folder = Folder::new();
    assert_eq!(
        kind(&folder.shell("sleep 1000 & echo $! > pid; echo said; exit 4")),
        FailureKind::Exited(4)
    );
    assert!(is_gone(pid_in(&folder.path("pid"))));
    assert_eq!(folder.read("logs/attempt.log"), "said\n");
}

#[test]
fn one_that_left_the_group_and_holds_the_pipe_is_killed() {
    let folder = Folder::new();
    folder.fifo("ready");
    let attempt = folder
        .shell("setsid sh -c 'echo $$ > pid; echo > ready; exec sleep 1000' & cat ready; exit 5");
    assert_eq!(kind(&attempt), FailureKind::Exited(5));
    assert!(is_gone(pid_in(&folder.path("pid"))));
}

#[test]
fn one_that_prints_for_ever_and_cannot_be_found_does_not_hold_the_attempt() {
    let folder = Folder::new();
    folder.fifo("ready");
    let attempt = folder.shell(
        "env -i setsid sh -c 'echo $$ > pid; echo > ready; exec cat /dev/zero' & cat ready; exit 6",
    );
    assert_eq!(kind(&attempt), FailureKind::Exited(6));
    // It dies of its next write.
    assert!(wait_gone(pid_in(&folder.path("pid"))));
}

#[test]
fn a_stop_after_the_end_changes_nothing() {
    let folder = Folder::new();
    // The leader is gone when the one that holds the pipe says that it is ready.
    let script =
        "(while kill -0 $$ 2>/dev/null && ! grep -q '^State:.Z' /proc/$$/status; do :; done
                   echo > ready; exec sleep 1000) & exit 3";
    let outcome = Ended::Outcome(FailureKind::Exited(3).into());
    assert_eq!(order(&folder, script, LONG, Stop::kill), outcome);
}

#[test]
fn what_is_left_in_the_group_ends_with_the_leader() {
    let folder = Folder::new();
    assert_eq!(outcome(&folder.shell("sleep 1000 >/dev/null 2>&1 & echo $! > pid")), Outcome::OK);
    assert!(wait_gone(pid_in(&folder.path("pid"))));
}

/// Runs it on another thread, and gives the order once it says that it is ready.
fn order(folder: &Folder, script: &str, grace: Duration, order: impl FnOnce(&Stop)) -> Ended {
    let ready = folder.fifo("ready");
    let mut attempt = folder.shell(script);
    attempt.kill_grace = grace;
    let stop = Stop::new().unwrap();
    thread::scope(|scope| {
        let running = scope.spawn(|| run(&attempt, &stop));
        fs::read(ready).unwrap();
        order(&stop);
        running.join().unwrap()
    })
}

#[test]
fn stop_asks_first() {
    let folder = Folder::new();
    let script = "trap 'echo bye; exit 0' TERM; echo > ready; while :; do sleep 0.02; done";
    assert_eq!(order(&folder, script, LONG, Stop::stop), Ended::Stopped);
    assert!(folder.read("logs/attempt.log").ends_with("bye\n"));
}

#[test]
fn stop_insists_after_its_grace() {
    let folder = Folder::new();
    let script = "trap '' TERM; echo > ready; while :; do sleep 0.02; done";
    assert_eq!(order(&folder, script, SHORT, Stop::stop), Ended::Stopped);
}

#[test]
fn kill_does_not_ask() {
    let folder = Folder::new();
    let script = "trap 'echo bye' TERM; sleep 1000 & echo $! > pid; echo > ready; wait";
    assert_eq!(order(&folder, script, LONG, Stop::kill), Ended::Stopped);
    assert!(is_gone(pid_in(&folder.path("pid"))));
    assert!(!folder.path("logs").exists());
}

#[test]
fn kill_cuts_the_grace_of_a_stop_short() {
    let folder = Folder::new();
    let script = "trap '' TERM; echo > ready; while :; do sleep 0.02; done";
    let both = |stop: &Stop| {
        stop.stop();
        stop.kill();
    };
    assert_eq!(order(&folder, script, LONG * 10, both), Ended::Stopped);
}

#[test]
fn what_was_stopped_before_does_not_start() {
    let folder = Folder::new();
    let stop = Stop::new().unwrap();
    stop.clone().stop();
    assert_eq!(run(&folder.shell("echo > started"), &stop), Ended::Stopped);
    assert!(!folder.path("started").exists());
}

#[test]
fn an_orphan_is_found_by_its_mark() {
    let folder = Folder::new();
    let ready = folder.fifo("ready");
    // What a worker that was killed leaves behind: a tree whose parents are gone.
    let status = std::process::Command::new("setsid")
        .args(["sh", "-c", "setsid sh -c 'echo $$ > pid; echo > ready; exec sleep 1000' & exit 0"])
        .current_dir(folder.path(""))
        .env("ORPHAN", folder.path(""))
        .status()
        .unwrap();
    assert!(status.success());
    fs::read(ready).unwrap();
    let value = folder.path("").display().to_string();
    assert_eq!(kill_marked("ORPHAN", &value[..value.len() - 1]).unwrap(), 0);
    assert!(!is_gone(pid_in(&folder.path("pid"))));
    assert_eq!(kill_marked("ORPHAN", &value).unwrap(), 1);
    assert!(is_gone(pid_in(&folder.path("pid"))));
    assert_eq!(kill_marked("ORPHAN", &value).unwrap(), 0);
}

#[test]
fn attempts_in_parallel_do_not_disturb_each_other() {
    let folders: Vec<_> = (0..8).map(|_| Folder::new()).collect();
    thread::scope(|scope| {
        for (index, folder) in folders.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..10 {
                    let code = index * 10 + round + 1;
                    let mut attempt =
                        folder.shell(&format!("echo {code}; echo {code} >&2; exit {code}"));
                    assert_eq!(kind(&attempt), FailureKind::Exited(code as u8));
                    assert_eq!(folder.read("logs/attempt.log"), format!("{code}\n{code}\n"));
                    if round == 5 {
                        attempt = folder.shell("sleep 1000");
                        attempt.timeout = Some(Duration::from_millis(20));
                        assert_eq!(kind(&attempt), FailureKind::TimedOut);
                    }
                }
            });
        }
    });
}

#[test]
fn nothing_is_left_behind() {
    let folder = Folder::new();
    assert_eq!(outcome(&folder.shell("echo $$ > pid")), Outcome::OK);
    // Not even a zombie.
    let pid = pid_in(&folder.path("pid"));
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
    let mut attempt = folder.shell("echo $$ > pid; sleep 1000");
    attempt.timeout = Some(AWHILE);
    assert!(matches!(ended(&attempt), Ended::Outcome(_)));
    let pid = pid_in(&folder.path("pid"));
    assert!(!fs::exists(format!("/proc/{pid}")).unwrap());
}
