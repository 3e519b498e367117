//! What a job, and another user of the machine, may not read: tokens, and what is the operator's.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, geteuid};
use serde_json::json;

use super::harness::{Place, address_of_its_own, gated, wait_for};

/// Root sees everything: then what is asked here is asked of this user.
const NOBODY: u32 = 65_534;

/// As an ordinary user, in a folder that is its own. None: there is no way to be one here.
fn ordinary(place: &Place, mut command: Command) -> Option<Command> {
    if !geteuid().is_root() {
        return Some(command);
    }
    chown(place.path(""), Some(NOBODY), Some(NOBODY)).expect("root may");
    let mut there = place.command(&["--version"]);
    let reachable = there.uid(NOBODY).gid(NOBODY).output().is_ok_and(|out| out.status.success());
    if !reachable {
        println!("left out: another user than root cannot reach the program");
        return None;
    }
    command.uid(NOBODY).gid(NOBODY);
    Some(command)
}

#[test]
fn a_job_cannot_look_into_the_process_that_runs_it() {
    let place = Place::new();
    let script = "cat /proc/$PPID/environ; head -c 1 /proc/$PPID/maps; ls /proc/$PPID/fd; \
                  echo \"token ${STEADFAST_TOKEN-none}, other $OTHER\"";
    let job = json!({ "name": "j", "steps": { "s": { "run": script } } });
    fs::write(place.path("job.json"), job.to_string()).expect("writes");
    let (file, data) = (place.text("job.json"), place.text("data"));
    let command = place.command(&["run", &file, "--data", &data]);
    let Some(mut command) = ordinary(&place, command) else { return };
    command.env("STEADFAST_TOKEN", "sf_very_secret").env("OTHER", "passed on");
    let ran = command.output().expect("starts");
    assert!(ran.status.success(), "{ran:?}");
    let printed = place.call(&["logs", "last", "--data", &data]);
    assert_eq!(printed.matches("ermission denied").count(), 3, "{printed}");
    assert!(printed.ends_with("token none, other passed on\n"), "{printed}");
}

#[test]
fn a_workers_token_comes_from_a_file_and_is_wiped_from_its_environment() {
    let place = Place::new();
    let data = place.text("data");
    let token = place.call(&["token", "create", "--scope", "worker", "--data", &data]);
    let admin = place.call(&["token", "create", "--scope", "admin", "--data", &data]);
    fs::write(place.path("worker.token"), &token).expect("writes");
    fs::write(place.path("admin.token"), &admin).expect("writes");
    for name in ["worker.token", "admin.token"] {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o600)).expect("ours");
    }
    let server = place.server().auth_required().start();
    let (url, admin) = (server.url(), place.text("admin.token"));
    let workers = |name: &str| {
        let list = place.call(&["workers", "--server", &url, "--token-file", &admin]);
        list.lines().any(|line| line.starts_with(name)).then_some(())
    };
    let from_file = place.worker(&url, "file").arg("--token-file", &place.text("worker.token"));
    let _from_file = from_file.start();
    wait_for("the worker with a file", || workers("file"));
    let from_env = place.worker(&url, "env").env("STEADFAST_TOKEN", token.trim()).start();
    wait_for("the worker with a variable", || workers("env"));
    // Where even root, or the same user without our protection, would look.
    if geteuid().is_root() {
        let environ = fs::read(format!("/proc/{}/environ", from_env.pid())).expect("root may");
        let environ = String::from_utf8_lossy(&environ);
        assert!(environ.contains("STEADFAST_TOKEN="), "{environ}");
        assert!(!environ.contains(token.trim()), "{environ}");
    }
    // Both at once are a mistake, and so is one that is not there.
    for wrong in [
        &["workers", "--token", "x", "--token-file", &admin][..],
        &["workers", "--server", &url, "--token-file", "none-such"],
        &["worker", "--server", &url, "--token-file", "none-such"],
        &["worker", "--server", &url, "--pass-env", "STEADFAST_TOKEN"],
    ] {
        let refused = place.command(wrong).output().expect("starts");
        assert_eq!(refused.status.code(), Some(2), "{wrong:?}: {refused:?}");
    }
}

#[test]
fn up_lets_the_programs_of_its_user_in_and_nobody_else() {
    let place = Place::new();
    let (home, data) = (place.path("home"), place.text("data"));
    fs::create_dir(&home).expect("a folder");
    let here = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("HOME", &home).env_remove("XDG_STATE_HOME");
        command
    };
    let mut up =
        super::harness::Process::start(here(&["up", "--data", &data, "--listen", "127.0.0.1:0"]));
    let address = up.address();
    let url = format!("http://{address}");
    let left = home.join(format!(
        ".local/state/steadfast/up-{}.json",
        address.rsplit_once(':').expect("a port").1
    ));
    let about = fs::metadata(&left).expect("it is left");
    assert_eq!((about.mode() & 0o777, about.uid()), (0o600, geteuid().as_raw()));

    let job = json!({ "name": "j", "steps": { "s": { "run": "true" } } });
    fs::write(place.path("job.json"), job.to_string()).expect("writes");
    let file = place.text("job.json");
    let submitted = here(&["submit", "--wait", &file, "--server", &url]).output().expect("starts");
    assert!(submitted.status.success(), "{submitted:?}");
    // A worker of the same user too.
    let folder = place.text("second");
    let second = ["worker", "--server", &url, "--name", "second", "--folder", &folder];
    let mut second = super::harness::Process::start(here(&second));
    wait_for("a second worker", || {
        let list = here(&["workers", "--server", &url]).output().expect("starts");
        String::from_utf8_lossy(&list.stdout).contains("second").then_some(())
    });
    second.signal(Signal::TERM);
    assert!(second.ends().success(), "{}", second.said());

    // Who has no token, and who is at home elsewhere.
    let reply = super::harness::ask(&address, "GET", "/v1/jobs", &[], "").expect("an answer");
    assert_eq!(reply.status, 401, "{reply:?}");
    let stranger = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("HOME", place.path("elsewhere")).env_remove("XDG_STATE_HOME");
        command.output().expect("starts")
    };
    let refused = stranger(&["submit", &file, "--server", &url]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("token"), "{refused:?}");
    let (name, folder) = ("third", place.text("third"));
    let refused = stranger(&["worker", "--server", &url, "--name", name, "--folder", &folder]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("does not let this worker in"), "{said}");
    // What others could have written is not believed.
    fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).expect("ours");
    let refused = here(&["workers", "--server", &url]).output().expect("starts");
    assert!(!refused.status.success(), "{refused:?}");

    up.signal(Signal::TERM);
    assert!(up.ends().success(), "{}", up.said());
    assert!(!left.exists(), "its token ends with it");
    let listed = place.call(&["token", "list", "--data", &data]);
    assert!(listed.contains("no tokens yet"), "{listed}");
}

/// Each `up` has tokens of its own; who follows a job looks for them anew.
#[test]
fn a_wait_goes_on_when_up_was_killed_and_has_another_token() {
    let place = Place::new();
    let (home, data, address) = (place.path("home"), place.text("data"), address_of_its_own());
    fs::create_dir(&home).expect("a folder");
    let here = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("HOME", &home).env_remove("XDG_STATE_HOME");
        super::harness::Process::start(command)
    };
    let start = || {
        let up = here(&["up", "--data", &data, "--listen", &address]);
        assert_eq!(up.address(), address);
        up
    };
    let first = start();
    let job = json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } });
    fs::write(place.path("job.json"), job.to_string()).expect("writes");
    let (file, url) = (place.text("job.json"), format!("http://{address}"));
    let mut waits = here(&["submit", "--wait", &file, "--server", &url]);
    place.has_lines("ran", 1);
    first.kill();
    let _second = start();
    place.has_lines("ran", 2);
    place.open("gate");
    assert!(waits.ends().success(), "{}", waits.said());
    let tokens = place.call(&["token", "list", "--data", &data]);
    assert_eq!(tokens.matches("steadfast up").count(), 2, "those of the first are gone: {tokens}");
}

#[test]
fn submit_follows_no_link_out_of_the_jobs_folder() {
    let place = Place::new();
    let job = place.path("job");
    fs::create_dir_all(job.join("parts")).expect("a folder");
    fs::write(place.path("private.key"), "mine").expect("writes");
    fs::write(job.join("inside"), "the job's").expect("writes");
    for (link, to) in [
        ("key", place.path("private.key")),
        ("parts/key", place.path("private.key")),
        ("parts/inside", job.join("inside")),
        ("out", place.path("")),
    ] {
        symlink(to, job.join(link)).expect("a link");
    }
    let submit = |files: &[&str]| {
        let text = json!({ "name": "j", "steps": { "s": { "run": "true", "files": files } } });
        fs::write(job.join("job.json"), text.to_string()).expect("writes");
        let file = job.join("job.json").display().to_string();
        // Nobody listens there: what may be sent is found out before.
        let args = ["submit", &file, "--server", "http://127.0.0.1:1"];
        place.command(&args).output().expect("starts")
    };
    for files in [&["key"][..], &["parts"], &["out/private.key"]] {
        let refused = submit(files);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{files:?}: {refused:?}");
        assert!(said.contains("leads out of the job's folder"), "{files:?}: {said}");
    }
    assert_eq!(submit(&["inside", "parts/inside"]).status.code(), Some(5), "and within is fine");
}

#[test]
fn the_database_is_its_owners_alone_whatever_the_umask() {
    let place = Place::with_data_folders();
    let job = json!({ "name": "j", "steps": { "s": { "run": "true" } } });
    fs::write(place.path("job.json"), job.to_string()).expect("writes");
    let script = format!(
        "umask 0; exec {} run {} --data {}",
        env!("CARGO_BIN_EXE_steadfast"),
        place.text("job.json"),
        place.text("data")
    );
    let ran = Command::new("/bin/sh").args(["-c", &script]).output().expect("starts");
    assert!(ran.status.success(), "{ran:?}");
    let mode = |name: &str| fs::metadata(place.path(name)).map(|about| about.mode() & 0o777);
    assert_eq!(mode("data").expect("there"), 0o700);
    assert_eq!(mode("data/steadfast.db").expect("there"), 0o600);
    for beside in ["data/steadfast.db-wal", "data/steadfast.db-shm"] {
        assert!(mode(beside).is_ok_and(|mode| mode == 0o600) || mode(beside).is_err(), "{beside}");
    }
    // And of one that was readable, once it is used.
    for (name, mode) in [("data", 0o755), ("data/steadfast.db", 0o644)] {
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).expect("ours");
    }
    place.call(&["run", &place.text("job.json"), "--data", &place.text("data")]);
    assert_eq!(mode("data").expect("there"), 0o700);
    assert_eq!(mode("data/steadfast.db").expect("there"), 0o600);
}
