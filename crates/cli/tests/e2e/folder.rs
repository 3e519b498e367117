//! What befalls a data folder: purged while jobs come in, locked, moved away, damaged, full, closed.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rusqlite::Connection;
use rustix::process::Signal;
use serde_json::{Value, json};
use steadfast_core::time::Timestamp;
use steadfast_store::{Folder, SqliteStore};

use super::harness::{Place, Server, ask, gated, unix_ms, wait_for};
use super::small_disk::SmallDisk;

fn submission(run: &str, file: &str) -> String {
    // "kept\n"
    let files = json!([{ "path": file, "content_base64": "a2VwdAo=" }]);
    let job = json!({ "name": "j", "files": [file], "steps": { "s": {
        "run": run, "retry": { "max_attempts": 1 },
    } } });
    json!({ "file": job.to_string(), "files": files }).to_string()
}

fn job(run: &str) -> String {
    json!({ "name": "j", "steps": { "s": { "run": run } } }).to_string()
}

fn ready(server: &Server) -> Result<(), String> {
    let reply = server.get("/readyz");
    if reply.status == 200 { Ok(()) } else { Err(reply.body) }
}

#[track_caller]
fn until_ready(server: &Server) {
    wait_for("readiness", || ready(server).ok());
}

#[track_caller]
fn until_unready(server: &Server, words: &str) {
    wait_for(words, || ready(server).err().filter(|why| why.contains(words)));
}

/// Also when the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_purge_leaves_the_files_of_jobs_that_are_being_accepted() {
    const JOBS: usize = 80;
    let place = Place::with_data_folders();
    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w").slots(4).start();
    let ran = place.text("ran");
    let done = AtomicBool::new(false);
    let body = submission(&format!("cat kept.txt >> {ran}"), "kept.txt");
    thread::scope(|scope| {
        let _end = Ends(&done);
        scope.spawn(|| {
            let folder = Folder::new(place.path("data"));
            let open = || SqliteStore::open(&folder.database()).expect("the server's");
            let (mut journal, mut reader, blobs) = (open(), open(), folder.storage().blobs());
            while !done.load(Ordering::Relaxed) {
                let now = Timestamp(unix_ms());
                steadfast_server::purge::purge(&mut journal, &mut reader, &*blobs, now, now)
                    .expect("purges");
            }
        });
        let (address, body) = (server.address.as_str(), body.as_str());
        let submitting: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(move || {
                    let kind = [("Content-Type", "application/vnd.steadfast.submission+json")];
                    for _ in 0..JOBS / 4 {
                        let reply = ask(address, "POST", "/v1/jobs", &kind, body);
                        let reply = reply.expect("an answer");
                        assert_eq!(reply.status, 201, "{}", reply.body);
                    }
                })
            })
            .collect();
        let submitted = submitting.into_iter().try_for_each(thread::ScopedJoinHandle::join);
        assert!(submitted.is_ok());
        // Those that ended are gone, however they ended: what one leaves that found its file is a line.
        wait_for("all to have ended", || {
            (server.get("/v1/jobs").json()["jobs"] == json!([])).then_some(())
        });
        assert_eq!(place.lines("ran").len(), JOBS);
    });
}

/// Held for longer than the server waits at a time.
#[test]
fn a_lock_of_another_process_is_waited_for_and_told() {
    let place = Place::with_data_folders();
    let server = place.server().start_up();
    let other = Connection::open(place.path("data/steadfast.db")).expect("the server's");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    thread::scope(|scope| {
        let address = server.address.clone();
        let submitted = scope.spawn(move || {
            let kind = [("Content-Type", "application/json")];
            ask(&address, "POST", "/v1/jobs", &kind, &job("true")).expect("an answer")
        });
        until_unready(&server, "another process has kept the database locked for 3 s");
        server.process.says("NotReady");
        server.process.says("another process has kept the database locked");
        server.process.says(&place.text("data"));
        assert!(!submitted.is_finished(), "nothing is acknowledged that is not stored");
        other.execute_batch("ROLLBACK").expect("the lock was ours");
        let reply = submitted.join().expect("an answer");
        assert_eq!(reply.status, 201, "{}", reply.body);
        let id = reply.json()["id"].as_str().expect("an id").to_owned();
        assert_eq!(server.end(&id)["state"], "succeeded");
    });
    until_ready(&server);
}

#[test]
fn nothing_is_acknowledged_while_the_data_folder_is_moved_away() {
    let place = Place::with_data_folders();
    let server = place.server().at_a_port_of_its_own().start();
    let address = server.address.clone();
    let before = server.submit(&job("true"));
    let (data, away) = (place.path("data"), place.path("away"));
    fs::rename(&data, &away).expect("moves");
    let kind = [("Content-Type", "application/json")];
    let submit = || server.ask("POST", "/v1/jobs", &kind, &job("true")).expect("an answer");
    let with_files = || {
        let kind = [("Content-Type", "application/vnd.steadfast.submission+json")];
        server.ask("POST", "/v1/jobs", &kind, &submission("true", "f")).expect("an answer")
    };
    for reply in [submit(), with_files(), server.post(&format!("/v1/jobs/{before}/cancel"))] {
        assert_eq!((reply.status, &reply.json()["code"]), (503, &json!("not_ready")));
    }
    until_unready(&server, "the data folder was moved or replaced");
    server.process.says("NotReady");
    assert!(!data.exists(), "it does not come to be again, with nothing in it");
    // An empty one in its place is not its own.
    fs::create_dir(&data).expect("a folder");
    assert_eq!(submit().status, 503);
    fs::remove_dir(&data).expect("nothing is in it");
    fs::rename(&away, &data).expect("moves back");
    until_ready(&server);
    let after = server.submit(&job("true"));
    server.process.kill();
    let server = place.server().at(&address).start();
    for id in [before, after] {
        assert_eq!(server.status(&id)["id"], json!(id));
    }
}

/// Something had to be stored while it was away, and was not acknowledged: it stays so until a restart.
#[test]
fn a_server_whose_report_could_not_be_kept_stays_unready_and_goes_on_after_a_restart() {
    let place = Place::with_data_folders();
    let mut server = place.server().lease(20_000).at_a_port_of_its_own().start();
    let address = server.address.clone();
    let _worker = place.worker(&server.url(), "w").start();
    let id = server.submit(&job(&gated(&place, "gate")));
    place.has_lines("ran", 1);
    fs::rename(place.path("data"), place.path("away")).expect("moves");
    place.open("gate");
    server.process.says("StoreFailed");
    fs::rename(place.path("away"), place.path("data")).expect("moves back");
    until_unready(&server, "put it back, then restart the server");
    assert_eq!(server.get("/healthz").status, 200, "nobody starts another one by itself");
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.ends().code(), Some(1));
    server.process.says("the data folder was moved or replaced while it was in use");
    let server = place.server().lease(20_000).at(&address).start();
    let status = server.end(&id);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(place.lines("ran").len(), 1);
}

#[test]
fn a_damaged_job_is_shown_as_stuck_and_is_in_nobodys_way() {
    let place = Place::with_data_folders();
    let data = place.text("data");
    let server = place.server().start();
    let (stuck, live) = (server.submit(&job("true")), server.submit(&job("true")));
    let worker = place.worker(&server.url(), "w").start();
    let ended = server.submit(&job("true"));
    server.end(&ended);
    for id in [&stuck, &live] {
        server.end(id);
    }
    drop(worker);
    let (stuck, live) = (server.submit(&job("true")), server.submit(&job("true")));
    server.process.kill();
    let harm = "UPDATE events SET lines = \'x\' WHERE job = (SELECT n FROM jobs WHERE id = ?1)";
    let file = Connection::open(place.path("data/steadfast.db")).expect("the server's");
    assert_eq!(file.execute(harm, [&stuck]).expect("it is text"), 1);
    drop(file);

    let local = |args: &[&str]| place.call(&[args, &["--data", &data]].concat());
    let rows = |told: &Value, id: &str| -> Value {
        let rows = told["jobs"].as_array().expect("jobs").iter();
        rows.clone().find(|row| row["id"] == id).expect("it is listed").clone()
    };
    let listed: Value = serde_json::from_str(&local(&["list", "-o", "json"])).expect("JSON");
    assert_eq!(rows(&listed, &stuck)["state"], "stuck");
    assert_eq!(rows(&listed, &live)["state"], "pending");
    assert!(local(&["list"]).lines().any(|row| row.contains(&stuck) && row.contains("stuck")));
    assert!(local(&["status", &stuck]).contains("the checksum does not fit"));
    assert!(local(&["status", &ended]).contains("succeeded"));
    assert_eq!(local(&["purge", &ended]), "1 job is gone\n");
    assert_eq!(local(&["purge", "--older", "0s"]), "2 jobs are gone\n");

    let server = place.server().start();
    let listed = server.get("/v1/jobs").json();
    assert_eq!(rows(&listed, &stuck)["state"], "stuck");
    assert!(rows(&listed, &stuck)["reason"].as_str().is_some_and(|why| why.contains("checksum")));
    let url = server.url();
    assert!(place.call(&["list", "--server", &url]).contains("stuck"));
    // A job that waits for a worker is not read before its turn comes: only then does the server meet the damage.
    let _worker = place.worker(&url, "w").start();
    server.process.says("JobStuck");
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("\nsteadfast_jobs_stuck 1\n"), "{metrics}");
    for reply in
        [server.get(&format!("/v1/jobs/{stuck}")), server.post(&format!("/v1/jobs/{stuck}/cancel"))]
    {
        assert_eq!((reply.status, &reply.json()["code"]), (500, &json!("stuck")), "{reply:?}");
    }
    assert_eq!(server.end(&live)["state"], "succeeded");
    let refused = place.command(&["purge", &stuck, "--data", &data]).output().expect("starts");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    server.process.kill();
    assert_eq!(local(&["purge", &stuck]), "1 job is gone\n");
    assert!(!local(&["list"]).contains(&stuck));
}

#[test]
fn on_a_full_disk_logs_give_way_and_completions_and_cancels_fit() {
    let place = Place::with_data_folders();
    let Some(disk) = SmallDisk::mount(place.path("data"), 32) else { return };
    let server = place.server().set("STEADFAST_LIMITS__DISK_RESERVE", "8m").start();
    until_ready(&server);
    let _worker = place.worker(&server.url(), "w").slots(8).start();
    let held: Vec<String> =
        ["a", "b", "c"].map(|gate| server.submit(&job(&gated(&place, gate)))).into_iter().collect();
    place.has_lines("ran", 3);

    // Its log alone is larger than the disk.
    let flood = server.submit(&job("head -c 50000000 /dev/zero | tr '\\0' x; echo the end"));
    assert_eq!(server.end(&flood)["state"], "succeeded");
    // It follows the end of its job.
    wait_for("the mark where the room ended", || {
        let log = place.path(&format!("data/logs/{flood}/s/s_0_attempt_1.log"));
        let log = fs::read_to_string(log).ok()?;
        log.ends_with("the server's disk is nearly full: what follows is not kept …\n")
            .then_some(())
    });
    until_unready(&server, "8 MiB are kept for jobs that run");
    server.process.says("NotReady");
    let kind = [("Content-Type", "application/json")];
    let submit = || server.ask("POST", "/v1/jobs", &kind, &job("true")).expect("an answer");
    assert_eq!((submit().status, &submit().json()["code"]), (507, &json!("disk_full")));
    place.open("a");
    assert_eq!(server.end(&held[0])["state"], "succeeded", "the reserve is for this");

    // Somebody else takes the rest of it.
    disk.fill();
    let cancelled = server.post(&format!("/v1/jobs/{}/cancel", held[1]));
    assert_eq!((cancelled.status, &cancelled.json()["state"]), (200, &json!("cancelled")));
    server.process.says("BallastReleased");

    // And the ballast too: nobody is left hanging, and it goes on when there is room.
    let filler = disk.fill();
    let refused = server.post(&format!("/v1/jobs/{}/cancel", held[2]));
    assert_eq!((refused.status, &refused.json()["code"]), (507, &json!("disk_full")));
    until_unready(&server, "nothing can be stored");
    fs::remove_file(filler).expect("the operator makes room");
    fs::remove_dir_all(place.path(&format!("data/logs/{flood}"))).expect("and more");
    place.open("c");
    assert_eq!(server.end(&held[2])["state"], "succeeded");
    until_ready(&server);
    wait_for("new ballast", || place.path("data/ballast").exists().then_some(()));
    assert_eq!(submit().status, 201);
    drop(server);
}

/// As somebody who may not look into it: the superuser may look everywhere.
#[test]
fn a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one() {
    let place = Place::with_data_folders();
    let file = place.path("job.yaml");
    fs::write(&file, "name: j\nsteps: { s: { run: 'true' } }\n").expect("writes");
    let data = place.text("data");
    place.call(&["run", file.to_str().expect("plain"), "--data", &data]);
    let root = rustix::process::getuid().is_root();
    let above = Path::new(&data).parent().expect("the test's");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    };
    let commands = [
        "list",
        "status last",
        "logs last",
        "history last",
        "explain last",
        "replay last",
        "purge --older 1d",
        "purge last",
        "cancel last",
        "resume last",
        "retry last",
    ];
    let backup = format!("backup {}", place.text("copy"));
    let refuses = |data: &str, words: &str| {
        for command in commands.iter().copied().chain([&*backup]) {
            let args: Vec<&str> = command.split(' ').chain(["--data", data]).collect();
            let mut started = place.command(&args);
            if root {
                started.uid(65534).gid(65534);
            }
            let output = started.current_dir("/").output().expect("the program starts");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command}: {output:?}");
            assert!(said.contains(data) && said.contains(words), "{command}: {said}");
        }
    };
    // Its folder cannot be looked into, then the one above it neither.
    mode(above, 0o755);
    mode(Path::new(&data), if root { 0o700 } else { 0 });
    refuses(&data, "Permission denied");
    mode(above, if root { 0o700 } else { 0 });
    refuses(&data, "Permission denied");
    mode(above, 0o755);
    mode(Path::new(&data), 0o755);
    refuses(&format!("{}/below", file.display()), "Not a directory");
}

#[test]
fn a_log_that_could_not_be_written_holds_no_job_up_and_is_sent_again() {
    let place = Place::with_data_folders();
    let server = place.server().start();
    let id = server.submit(&job("echo one; echo two"));
    let logs = place.path("data").join("logs");
    fs::create_dir_all(&logs).expect("a folder");
    // It leads nowhere for now.
    let closed = logs.join(&id);
    std::os::unix::fs::symlink(place.path("nowhere"), &closed).expect("a link");
    let _worker = place.worker(&server.url(), "w").start();
    server.process.says("LogNotWritten");
    let status = server.end(&id);
    fs::remove_file(&closed).expect("there");
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(
        status["runs"][0]["steps"]["s"]["items"][0]["attempts"].as_array().map(Vec::len),
        Some(1)
    );
    wait_for("the log", || {
        let log = server.get(&format!("/v1/jobs/{id}/logs/s/s_0_attempt_1")).body;
        (log == "one\ntwo\n").then_some(())
    });
}

/// A report does not wait for its log; who asks for the log meanwhile is told that it is not whole.
#[test]
fn a_log_that_has_not_arrived_is_not_taken_for_whole() {
    let place = Place::with_data_folders();
    let server = place.server().start();
    let id = server.submit(&job("seq 100000"));
    let _worker = place.worker(&server.url(), "w").start();
    server.end(&id);
    let log = place.path(&format!("data/logs/{id}/s/s_0_attempt_1.log"));
    let part = log.with_extension("part");
    let url = format!("/v1/jobs/{id}/logs");
    let whole = server.get(&url).json();
    assert_eq!(whole["logs"][0]["arriving"], false, "a list waits a moment for it: {whole}");
    assert_eq!(whole["logs"][0]["size"], 588_895);
    assert!(!part.exists());
    // As if the worker had gone before it could send the rest.
    fs::write(&part, "").expect("writes");
    let some = server.get(&url).json();
    assert_eq!(some["logs"][0]["arriving"], true, "{some}");
    let data = place.text("data");
    for from in [["--server", &server.url()], ["--data", &data]] {
        let shown = place.command(&[&["logs", &id], &from[..]].concat()).output().expect("starts");
        let said = String::from_utf8_lossy(&shown.stderr).into_owned();
        assert!(said.contains("the rest of the log s_0_attempt_1 has not arrived"), "{said}");
        assert!(shown.stdout.ends_with(b"100000\n"));
    }
}

/// Three events for each item, and a projection for each 5,000.
#[test]
fn status_and_logs_of_a_long_job_of_run_do_not_read_its_early_events() {
    let place = Place::with_data_folders();
    let (file, data) = (place.text("long.yaml"), place.text("data"));
    let job = "name: long\nsteps: { a: { run: echo one, for_each: { range: 1800 } } }\n";
    std::fs::write(&file, job).expect("writes");
    let says = |exit: i32, args: &[&str]| {
        let output =
            place.command(&[args, &["--data", &data]].concat()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(exit), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    says(0, &["run", &file]);
    let shown = || {
        let status = says(0, &["status", "last", "-o", "json"]);
        (status, says(0, &["status", "last"]), says(0, &["logs", "last", "a[7]"]))
    };
    let before = shown();
    assert!(before.0.contains("\"succeeded\"") && before.2.contains("one"), "{before:?}");
    let file = Connection::open(place.path("data/steadfast.db")).expect("opens");
    let damage = "UPDATE events SET lines = 'x' WHERE first BETWEEN 2000 AND 2100";
    assert!(file.execute(damage, []).expect("writes") > 0);
    assert_eq!(shown(), before);
    says(2, &["explain", "last"]);
}
