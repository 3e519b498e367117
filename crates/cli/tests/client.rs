//! The program against a real server: REST over a real port, a real engine and store behind it.

#[path = "client/following.rs"]
mod following;
#[path = "client/readiness.rs"]
mod readiness;
#[path = "client/server.rs"]
mod server;
#[path = "client/target.rs"]
mod target;
#[path = "client/views.rs"]
mod views;

mod common;
mod helpers;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Output, Stdio};

use common::wait_for;
use helpers::Place;
use serde_json::Value;
use server::{HOSTILE, Server};
use steadfast_jobfile::Operator;

const OK: &str =
    "name: good\nlabels: { team: search }\nsteps: { a: { run: ok }, b: { run: ok, needs: [a] } }";
const HOLD: &str = "name: slow\nsteps: { a: { run: hold } }";
const FAILS: &str = "name: bad\nretry: { max_attempts: 2, backoff: fixed, initial_delay: 1ms }\n\
                     steps: { a: { run: fail } }";
const PARTIAL: &str = "name: half\nretry: { max_attempts: 1 }\ndatacenters: [us, eu]\n\
                       best_effort: { min_datacenters: 2, deadline: 1m }\n\
                       steps: { a: { run: fail-in eu } }";

struct TestBed {
    place: Place,
    server: Server,
}

impl TestBed {
    fn new(name: &str) -> Self {
        Self::with(name, Operator::default())
    }

    fn with(name: &str, operator: Operator) -> Self {
        let place = Place::new(&format!("client-{name}"));
        Self { place, server: Server::with(operator, "127.0.0.1:0") }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("STEADFAST_SERVER", self.server.url()).env("HOME", self.place.path(""));
        command.env_remove("XDG_CONFIG_HOME").env_remove("STEADFAST_TOKEN");
        command
    }

    fn call(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// What a command that succeeds prints.
    #[track_caller]
    fn says(&self, args: &[&str]) -> String {
        let output = self.call(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let text = self.says(&[args, &["-o", "json"]].concat());
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).expect("JSON")
    }

    #[track_caller]
    fn refuses(&self, args: &[&str]) -> String {
        let output = self.call(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    /// The id of a job that was taken.
    #[track_caller]
    fn submit(&self, job: &str) -> String {
        let file = self.place.write("job.yaml", job);
        self.says(&["submit", file.to_str().expect("plain")]).trim_end().to_owned()
    }

    /// A job that has ended.
    #[track_caller]
    fn ended(&self, job: &str) -> String {
        let id = self.submit(job);
        self.call(&["wait", &id]);
        id
    }

    fn body(&self, path: &str) -> String {
        let url = self.server.url();
        steadfast_server::tls::use_ring();
        let asking = async { reqwest::get(format!("{url}{path}")).await?.text().await };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(asking).expect("an answer")
    }

    fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
    }
}

fn exit(output: &Output) -> Option<i32> {
    output.status.code()
}

fn is_id(text: &str) -> bool {
    text.len() == 26 && text.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
}

#[test]
fn submit_prints_the_id_alone() {
    let bed = TestBed::new("submit");
    let file = bed.place.write("job.yaml", OK);
    let file = file.to_str().unwrap();
    let text = bed.says(&["submit", file]);
    assert!(text.ends_with('\n') && is_id(text.trim_end()), "{text:?}");
    let id = bed.json(&["submit", file])["id"].as_str().unwrap().to_owned();
    assert!(is_id(&id) && id != text.trim_end());
    let json = bed.place.write("job.json", r#"{"name": "j", "steps": {"a": {"run": "ok"}}}"#);
    assert!(is_id(bed.says(&["submit", json.to_str().unwrap()]).trim_end()));

    let mut child = bed.command(&["submit", "-"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(OK.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(is_id(String::from_utf8(output.stdout).unwrap().trim_end()));
    assert_eq!(bed.json(&["list"])["jobs"].as_array().unwrap().len(), 4);
}

#[test]
fn each_line_of_a_file_is_a_job_of_its_own() {
    let bed = TestBed::new("each");
    let job = |name: &str| format!(r#"{{"name": "{name}", "steps": {{"a": {{"run": "ok"}}}}}}"#);
    let good = [job("one"), String::new(), job("two")].join("\n");
    let file = bed.place.write("good.ndjson", &good);
    let each = ["submit", "--each", file.to_str().unwrap(), "--idempotency-key", "nightly"];
    let ids = bed.says(&each);
    assert!(ids.lines().count() == 2 && ids.lines().all(is_id), "{ids}");
    assert_eq!(bed.says(&each), ids, "the same key");
    let names = bed.json(&["list"])["jobs"].clone();
    let names: Vec<_> = names.as_array().unwrap().iter().map(|job| job["name"].clone()).collect();
    assert_eq!(names, ["two", "one"]);

    let bad = [job("three"), r#"{"name": "no steps"}"#.to_owned(), "{".to_owned(), job("four")];
    let file = bed.place.write("bad.ndjson", bad.join("\n"));
    let output = bed.call(&["submit", "--each", file.to_str().unwrap()]);
    assert_eq!(exit(&output), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 2);
    assert!(told.contains("line 2: ") && told.contains("steps"), "{told}");
    assert!(told.contains("line 3: it is no JSON"), "{told}");
    assert!(told.ends_with("2 accepted, 2 refused\n"), "{told}");
    let output = bed.call(&["submit", "--each", file.to_str().unwrap(), "-o", "json"]);
    let told = String::from_utf8(output.stdout).unwrap();
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut lines: Vec<_> = told.iter().map(|it| (&it["line"], it["id"].is_string())).collect();
    lines.sort_by_key(|(line, _)| line.as_u64());
    let lines: Vec<_> = lines.into_iter().map(|(_, is_accepted)| is_accepted).collect();
    assert_eq!(lines, [true, false, false, true], "{told:?}");
    let missing = bed.refuses(&["submit", "--each", "nowhere.ndjson"]);
    assert!(missing.contains("nowhere.ndjson"), "{missing}");
}

#[test]
fn the_same_key_is_the_same_job() {
    let bed = TestBed::new("key");
    let file = bed.place.write("job.yaml", OK);
    let args = ["submit", file.to_str().unwrap(), "--idempotency-key", "tonight"];
    let first = bed.says(&args);
    assert_eq!(bed.says(&args), first);
    bed.place.write("job.yaml", HOLD);
    let why = bed.refuses(&args);
    assert!(why.contains(first.trim_end()) && why.contains("another body"), "{why}");
}

#[test]
fn files_that_the_job_names_go_with_it() {
    let bed = TestBed::new("files");
    fs::create_dir_all(bed.place.path("sub/lib")).unwrap();
    let script = bed.place.write("sub/go.sh", "#!/bin/sh\necho hi\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
    bed.place.write("sub/lib/data.bin", [0, 255, 10]);
    let job = "name: f\nfiles: [./go.sh]\nsteps: { a: { run: ok, files: [lib/, go.sh] } }";
    let file = bed.place.write("sub/job.yaml", job);
    let id = bed.says(&["submit", file.to_str().unwrap()]).trim_end().to_owned();
    let kept = bed.server.folder.files(&id);
    assert_eq!(fs::read(kept.join("lib/data.bin")).unwrap(), [0, 255, 10]);
    assert_eq!(fs::read_to_string(kept.join("go.sh")).unwrap(), "#!/bin/sh\necho hi\n");
    let executable = |name: &str| kept.join(name).metadata().unwrap().permissions().mode() & 0o100;
    assert_eq!((executable("go.sh") != 0, executable("lib/data.bin") != 0), (true, false));

    let file =
        bed.place.write("lacks.yaml", "name: f\nfiles: [none.sh]\nsteps: { a: { run: ok } }");
    let why = bed.refuses(&["submit", file.to_str().unwrap()]);
    assert!(why.contains("`none.sh`") && why.contains("there is no"), "{why}");
}

#[test]
fn a_wrong_file_is_shown_with_its_line_whoever_finds_it() {
    let bed = TestBed::with("wrong", Operator { max_items: 10, ..Operator::default() });
    let here = bed.place.write("here.yaml", "name: w\nsteps:\n  a: { run: ok, needz: [b] }\n");
    let why = bed.refuses(&["submit", here.to_str().unwrap()]);
    assert!(why.contains("here.yaml:3:") && why.contains("needz"), "{why}");
    // Only the server knows that it is too much.
    let there = bed
        .place
        .write("there.yaml", "name: w\nsteps:\n  a: { run: ok, for_each: { range: 11 } }\n");
    let there = there.to_str().unwrap();
    let why = bed.refuses(&["submit", there]);
    assert!(why.contains("there.yaml:3:") && why.contains("range: 11"), "{why}");
    assert!(why.contains("1 problem in "), "{why}");
    let output = bed.call(&["submit", there, "-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = &answer["error"];
    assert_eq!((&error["code"], &error["errors"][0]["line"]), (&"invalid_job".into(), &3.into()));
}

#[test]
fn the_exit_status_says_how_a_job_ended() {
    let bed = TestBed::new("exits");
    for (job, status, state) in
        [(OK, 0, "succeeded"), (FAILS, 1, "failed"), (PARTIAL, 3, "partial")]
    {
        let file = bed.place.write("job.yaml", job);
        let file = file.to_str().unwrap();
        let output = bed.call(&["submit", "--wait", file]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!(exit(&output), Some(status), "{text}");
        assert!(is_id(text.lines().next().unwrap()), "{text}");
        assert!(text.contains(&format!("{state} after ")), "{text}");
        let output = bed.call(&["submit", "--wait", file, "-o", "json"]);
        assert_eq!(exit(&output), Some(status));
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(answer["state"], state);
        assert_eq!(exit(&bed.call(&["wait", "last"])), Some(status));
    }
    let id = bed.submit(HOLD);
    let waiting = bed.start(&["wait", &id]);
    assert_eq!(bed.says(&["cancel", &id]), format!("{id} cancelled\n"));
    assert_eq!(exit(&waiting.wait_with_output().unwrap()), Some(4));
    let id = bed.submit(HOLD);
    let output = bed.call(&["wait", &id, "--timeout", "50ms", "-o", "json"]);
    assert_eq!(exit(&output), Some(124), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["state"], "running");
    assert_eq!(exit(&bed.call(&["wait", "zzz"])), Some(2));
    assert_eq!(exit(&bed.call(&["wait", &"z".repeat(26)])), Some(2));
    assert_eq!(exit(&bed.call(&["wait", &id, "--timeout", "5"])), Some(2));
    // The words of what failed are there, and where to look further.
    let id = bed.ended(FAILS);
    let text = bed.says(&["status", &id]);
    assert!(text.contains("attempt 2 of a prints"), "{text}");
    assert!(text.contains(&format!("steadfast explain {id}")), "{text}");
}

#[test]
fn waiting_survives_a_restart_of_the_server() {
    let mut bed = TestBed::new("restart");
    let id = bed.submit(HOLD);
    let mut waiting = bed.start(&["wait", &id, "--timeout", "1m"]);
    let mut watching = bed.start(&["watch", &id, "-o", "json"]);
    let mut seen = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let started = seen.by_ref().take_while(|line| !line.contains("AttemptStarted")).count();
    let mut said = BufReader::new(waiting.stderr.take().unwrap()).lines().map(Result::unwrap);
    wait_for("both to follow", || (bed.server.followers() == 2).then_some(()));
    bed.server.close();
    let lost = said.next().unwrap();
    assert!(lost.contains(&bed.server.url()), "{lost}");
    bed.server.open();
    assert_eq!(said.next().unwrap(), "it is back");
    bed.server.release();
    assert_eq!(exit(&waiting.wait_with_output().unwrap()), Some(0));
    let rest: Vec<String> = seen.collect();
    let numbers: Vec<u64> = rest
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap())
        .collect();
    let first = started as u64 + 2;
    let expected: Vec<u64> = (first..first + numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "no event is missed or told twice");
    assert!(rest.last().unwrap().contains("JobEnded"));
    assert_eq!(exit(&watching.wait_with_output().unwrap()), Some(0));
}

#[test]
fn a_server_that_stays_away_is_lost() {
    let mut bed = TestBed::new("lost");
    let id = bed.submit(HOLD);
    let mut waiting = bed.start(&["wait", &id, "--timeout", "3s"]);
    wait_for("it to follow", || (bed.server.followers() == 1).then_some(()));
    bed.server.close();
    let mut said = String::new();
    let mut stderr = BufReader::new(waiting.stderr.take().unwrap());
    while stderr.read_line(&mut said).unwrap() > 0 {}
    assert_eq!(exit(&waiting.wait_with_output().unwrap()), Some(5), "{said}");
    assert!(said.contains(&bed.server.url()), "{said}");
    for args in
        [&["list"][..], &["status", &id], &["submit", bed.place.path("job.yaml").to_str().unwrap()]]
    {
        let output = bed.call(args);
        let why = String::from_utf8_lossy(&output.stderr);
        assert_eq!(exit(&output), Some(5), "{why}");
        assert!(why.contains(&bed.server.url()) && why.contains("connection refused"), "{why}");
    }
    let output = bed.call(&["status", &id, "-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["error"]["code"], "no_server");
}

#[test]
fn whoever_stops_waiting_leaves_the_job_alone() {
    let bed = TestBed::new("interrupt");
    let id = bed.submit(HOLD);
    let waiting = bed.start(&["wait", &id]);
    wait_for("it to follow", || (bed.server.followers() == 1).then_some(()));
    let pid = rustix::process::Pid::from_child(&waiting);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(exit(&output), Some(130), "{output:?}");
    assert_eq!(bed.json(&["status", &id])["state"], "running");
}

#[test]
fn a_list_is_filtered_and_paged() {
    let bed = TestBed::new("list");
    let (good, bad) = (bed.ended(OK), bed.ended(FAILS));
    let (good, bad) = (good.as_str(), bad.as_str());
    let ids = |args: &[&str]| -> Vec<String> {
        let page = bed.json(&[&["list"], args].concat());
        let jobs = page["jobs"].as_array().unwrap();
        jobs.iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&[]), [bad, good]);
    assert_eq!(ids(&["--state", "failed"]), [bad]);
    assert_eq!(ids(&["--name", "good"]), [good]);
    assert_eq!(ids(&["--label", "team=search"]), [good]);
    assert_eq!(ids(&["--label", "team=other"]), [""; 0]);
    let first = bed.json(&["list", "--limit", "1"]);
    assert_eq!(ids(&["--cursor", first["next"].as_str().unwrap()]), [good]);
    let text = bed.says(&["list", "--limit", "1"]);
    assert!(text.contains(bad) && text.contains("more with --cursor "), "{text}");
    assert!(bed.refuses(&["list", "--state", "done"]).contains("is not a state"));
    assert!(bed.refuses(&["list", "--label", "team"]).contains("NAME=VALUE"));
    assert!(bed.refuses(&["list", "--cursor", "x"]).contains("is not a cursor"));
    assert!(bed.refuses(&["list", "--limit", "0"]).contains("1 to 1000"));
}

#[test]
fn a_job_is_found_by_a_beginning_of_its_id_or_as_the_last() {
    let bed = TestBed::new("find");
    assert!(bed.refuses(&["status", "last"]).contains("there is no job last"));
    let (first, last) = (bed.ended(OK), bed.ended(OK));
    let shown = |name: &str| bed.json(&["status", name])["id"].as_str().unwrap().to_owned();
    assert_eq!(shown("last"), last);
    let differs = first.bytes().zip(last.bytes()).position(|(a, b)| a != b).unwrap();
    assert_eq!(shown(&first[..=differs]), first);
    assert!(bed.refuses(&["status", &first[..differs]]).contains("more than one"));
    for none in ["zzzz", "", "../workers", "a/b", "LAST"] {
        assert!(bed.refuses(&["status", none]).contains("there is no job"), "{none}");
    }
}

#[test]
fn what_programs_get_is_what_the_server_says() {
    let bed = TestBed::new("same");
    let id = bed.ended(FAILS);
    let status = bed.says(&["status", &id, "-o", "json"]);
    assert_eq!(status.trim_end(), bed.body(&format!("/v1/jobs/{id}")));
    let events: Value = serde_json::from_str(&bed.body(&format!("/v1/jobs/{id}/events"))).unwrap();
    let stored: Vec<String> =
        events["events"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let history = bed.says(&["history", &id, "-o", "json"]);
    assert_eq!(history.lines().collect::<Vec<_>>(), stored);
    let explained = bed.json(&["explain", &id]);
    assert_eq!(explained["job"]["state"], "failed");
    assert_eq!(explained["verdicts"][1]["reason"], "attempts_exhausted");
    assert_eq!(bed.json(&["workers"])["workers"][0]["name"], "rack-3");
}

#[test]
fn a_server_tells_people_what_a_data_folder_tells_them() {
    let bed = TestBed::new("people");
    let id = bed.ended(FAILS);
    let data = bed.server.folder.root().to_str().unwrap().to_owned();
    let locally = |args: &[&str]| {
        let mut command = bed.place.command([args, &["--data", &data]].concat());
        let output = command.env_remove("STEADFAST_SERVER").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for args in [&["history", &id][..], &["explain", &id], &["explain", &id, "a"], &["logs", &id]] {
        let text = bed.says(args);
        assert!(text.contains("attempt"), "{args:?}: {text}");
        assert_eq!(text, locally(args), "{args:?}");
    }
    let why = bed.refuses(&["explain", &id, "none"]);
    assert!(why.contains("no step"), "{why}");
}

#[test]
fn a_job_is_paused_resumed_cancelled_and_retried() {
    let bed = TestBed::new("wishes");
    let id = bed.submit("name: p\nsteps: { a: { run: hold }, b: { run: hold, needs: [a] } }");
    wait_for("the attempt", || (bed.server.holds() == 1).then_some(()));
    assert_eq!(bed.says(&["pause", &id]), format!("{id} paused\n"));
    bed.server.release();
    let state = |state: &str| (bed.json(&["status", &id])["state"] == state).then_some(());
    assert!(bed.says(&["status", &id]).contains("paused for"));
    assert_eq!(bed.says(&["resume", &id]), format!("{id} running\n"));
    wait_for("the next attempt", || (bed.server.holds() == 1).then_some(()));
    bed.server.release();
    wait_for("the end", || state("succeeded"));
    let why = bed.refuses(&["cancel", &id]);
    assert!(why.contains("has ended: succeeded"), "{why}");
    let bad = bed.ended(FAILS);
    let new = bed.says(&["retry", &bad, "--grant", "2"]);
    assert!(is_id(new.trim_end()), "{new}");
    assert_eq!(exit(&bed.call(&["wait", new.trim_end()])), Some(1));
    assert_eq!(bed.json(&["status", new.trim_end()])["retried_from"], bad.as_str());
    assert!(bed.refuses(&["retry", &bad, "--from", "none"]).contains("none"));
    assert!(bed.refuses(&["retry", &bad, "--slots", "3"]).contains("--slots is for jobs"));
    assert!(bed.refuses(&["resume", &bad, "--changed"]).contains("--changed is for jobs"));
}

#[test]
fn workers_are_shown_and_drained() {
    let bed = TestBed::new("workers");
    let text = bed.says(&["workers"]);
    let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    let told = ["rack-3", "eu-west", "quarantined", "1/4", "1.5/8", "512MiB/1.5GiB", "disk=ssd"];
    assert_eq!(words[..7], told);
    assert!(text.contains("everything fails there"), "{text}");
    let text = bed.says(&["drain", "rack-3"]);
    assert!(text.starts_with("rack-3 ") && text.contains("it finishes 1 attempt"), "{text}");
    assert!(bed.refuses(&["drain", "rack-9"]).contains("rack-9"));
}

/// Colours are ours; everything else that a terminal would act on is not.
#[track_caller]
fn assert_inert(output: &Output) {
    for bytes in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(bytes);
        for part in text.split('\x1b').skip(1) {
            let end = part.find(|c: char| !matches!(c, '[' | ';' | '0'..='9'));
            assert_eq!(end.map(|end| &part[end..=end]), Some("m"), "{text:?}");
        }
        let moves = |c: char| (c.is_control() && !"\n\x1b".contains(c)) || c == '\u{202e}';
        assert!(!text.contains(moves), "{text:?}");
    }
}

#[test]
fn what_a_job_says_does_nothing_to_a_terminal() {
    let bed = TestBed::new("hostile");
    let id = bed.ended("name: h\nretry: { max_attempts: 1 }\nsteps: { a: { run: hostile } }");
    let data = bed.server.folder.root().to_str().unwrap().to_owned();
    for args in [
        &["status", &id][..],
        &["wait", &id],
        &["watch", &id],
        &["history", &id],
        &["explain", &id],
        &["list"],
        &["workers"],
        &["status", HOSTILE],
        &["drain", HOSTILE],
        &["logs", &id, HOSTILE],
        &["status", &id, "--data", &data],
        &["history", &id, "--data", &data],
        &["explain", &id, "--data", &data],
    ] {
        let mut command = bed.command(args);
        command.env_remove("NO_COLOR").env("CLICOLOR_FORCE", "1");
        if args.contains(&"--data") {
            command.env_remove("STEADFAST_SERVER");
        }
        let output = command.output().unwrap();
        assert!(!output.stdout.is_empty() || !output.stderr.is_empty(), "{args:?}");
        assert_inert(&output);
    }
}
