//! What somebody meets who uses the program for the first time: names for jobs, parts of logs, errors for
//! people and for programs.

mod common;
mod helpers;

use std::process::Output;

use common::wait_for;
use helpers::Place;
use serde_json::Value;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

#[track_caller]
fn says(place: &Place, args: &[&str]) -> String {
    let output = place.steadfast(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    text(&output.stdout)
}

#[track_caller]
fn refused(place: &Place, args: &[&str]) -> String {
    let output = place.steadfast(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
    text(&output.stderr)
}

fn job(name: &str) -> String {
    format!("name: {name}\nsteps: {{ a: {{ run: echo of {name} }} }}\n")
}

#[test]
fn a_job_is_found_by_its_name_the_newest_of_that_name() {
    let place = Place::new("names");
    let first = place.run(&job("nightly")).id().to_owned();
    let second = place.run(&job("nightly")).id().to_owned();
    let other = place.run(&job("日次 report")).id().to_owned();
    let id = |args: &[&str]| {
        let status: Value =
            serde_json::from_str(&says(&place, &[args, &["-o", "json"]].concat())).expect("JSON");
        status["id"].as_str().expect("an id").to_owned()
    };
    assert_eq!(id(&["status", "last"]), other);
    assert_eq!(id(&["status", "nightly"]), second);
    assert_eq!(id(&["status", "last", "nightly"]), second);
    assert_eq!(id(&["status", "last nightly"]), second);
    assert_eq!(id(&["status", &first]), first);
    assert_eq!(id(&["status", "日次 report"]), other);
    assert_eq!(says(&place, &["logs", "nightly", "a"]), "of nightly\n");
    assert!(says(&place, &["history", "nightly"]).contains("a succeeded"));
    assert!(says(&place, &["explain", "nightly", "a"]).starts_with("nightly"));
    assert!(says(&place, &["replay", "nightly"]).contains("succeeded"));
    for none in ["weekly", "last weekly", "last nightl"] {
        assert!(refused(&place, &["status", none]).contains(&format!("there is no job {none}")));
    }
    // The beginning of an id still does, unless something is called like that.
    let begin: String = other.chars().take(25).collect();
    assert_eq!(id(&["status", &begin]), other);
    let odd: String = first.chars().take(3).collect();
    place.run(&job(&format!("\"{odd}\"")));
    let why = refused(&place, &["status", &odd]);
    assert!(why.contains(&format!("write `last {odd}` or more of the id")), "{why}");
    assert!(says(&place, &["status", "last", &odd]).contains(&odd));
}

const TALKS: &str = "name: talks\nsteps:\n  a:\n    run: |\n      \
    for n in 1 2 3; do echo \"line $n of $STEADFAST_ATTEMPT\"; done\n      \
    sleep 0.4\n      echo late; exit $((STEADFAST_ATTEMPT < 2))\n    \
    retry: { initial_delay: 1ms }\n";

#[test]
fn parts_of_logs_can_be_asked_for() {
    let place = Place::new("parts");
    place.run(TALKS);
    let all = says(&place, &["logs", "last"]);
    assert_eq!(all.lines().count(), 10, "{all}");
    assert_eq!(
        says(&place, &["logs", "last", "--attempt", "2"]),
        "line 1 of 2\nline 2 of 2\nline 3 of 2\nlate\n"
    );
    let tail = says(&place, &["logs", "last", "a", "--tail", "2"]);
    let expected =
        "== a_0_attempt_1 ==\nline 3 of 1\nlate\n== a_0_attempt_2 ==\nline 3 of 2\nlate\n";
    assert_eq!(tail, expected);
    assert_eq!(says(&place, &["logs", "last", "--attempt", "1", "--tail", "0"]), "");
    assert_eq!(says(&place, &["logs", "last", "--since", "1h"]), all);
    assert_eq!(says(&place, &["logs", "last", "--attempt", "1", "--since", "1ms"]), "");
    refused(&place, &["logs", "last", "--attempt", "0"]);
    let none = place.steadfast(&["logs", "last", "--attempt", "7"]);
    assert!(text(&none.stderr).contains("no attempt 7 of this job has printed anything"));
}

/// When lines were printed, in milliseconds; the late one came 400 ms after the others.
#[track_caller]
fn check_times(lines: &str) {
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let texts: Vec<&str> = lines.iter().filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(texts, ["line 1 of 2\n", "line 2 of 2\n", "line 3 of 2\n", "late\n"]);
    let at: Vec<u64> = lines.iter().filter_map(|line| line["at_ms"].as_u64()).collect();
    assert!(at[3] - at[0] >= 250 && at[2] - at[0] < 250, "{at:?}");
    assert_eq!(lines[3]["offset"], 36);
}

#[test]
fn lines_have_the_time_they_were_printed_at() {
    let place = Place::new("times");
    place.run(TALKS);
    let args = ["logs", "last", "--attempt", "2", "--timestamps"];
    check_times(&says(&place, &[&args[..], &["-o", "json"]].concat()));
    let shown = says(&place, &args);
    for line in shown.lines() {
        let (time, rest) = line.split_once("Z ").expect("a time");
        assert!(time.len() == 23 && time.as_bytes()[10] == b'T', "{line}");
        assert!(rest.starts_with("line") || rest == "late", "{line}");
    }
    // What has no line break yet gets one time, not one for each piece.
    place.run("name: j\nsteps: { a: { run: 'printf one; sleep 0.3; printf two' } }\n");
    let shown = says(&place, &["logs", "last", "--timestamps"]);
    assert!(shown.ends_with("Z onetwo"), "{shown}");
}

/// A server, and a worker of its own, until dropped.
struct Up {
    child: std::process::Child,
    url: String,
}

impl Up {
    fn start(place: &Place, more: &[&str]) -> Self {
        use std::io::BufRead as _;
        let args = [&["up", "--listen", "127.0.0.1:0", "--data", "served"], more].concat();
        let mut command = place.command(args);
        command.current_dir(&place.folder).stdout(std::process::Stdio::piped());
        let mut child = command.stderr(std::process::Stdio::null()).spawn().expect("starts");
        let mut first = String::new();
        let mut out = std::io::BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut first).expect("a line");
        std::thread::spawn(move || std::io::copy(&mut out, &mut std::io::sink()));
        let url = first.split_whitespace().last().expect("an address").to_owned();
        Self { child, url }
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_server_tells_parts_of_logs_too_and_submit_shows_progress() {
    let place = Place::new("parts-served");
    let up = Up::start(&place, &[]);
    let file = place.write("job.yaml", TALKS);
    let with =
        |args: &[&str]| -> Output { place.steadfast(&[args, &["--server", &up.url]].concat()) };
    let waited = with(&["submit", "--wait", file.to_str().expect("plain")]);
    let shown = text(&waited.stdout);
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");
    let (id, rest) = shown.split_once('\n').expect("its id first");
    assert_eq!(id.len(), 26);
    for line in ["a attempt 1 started", "a attempt 1 failed: exit code 1", "a succeeded", "  ✓ a  "]
    {
        assert!(rest.lines().any(|said| said.starts_with(line)), "{line} in {rest}");
    }
    let tail = text(&with(&["logs", "talks", "--tail", "2", "--attempt", "2"]).stdout);
    assert_eq!(tail, "line 3 of 2\nlate\n");
    assert_eq!(text(&with(&["logs", "last", "--since", "1ms"]).stdout), "");
    let times = with(&["logs", "last", "talks", "--attempt", "2", "--timestamps", "-o", "json"]);
    assert_eq!(times.status.code(), Some(2), "the second word is a step there: {times:?}");
    let times = with(&["logs", "talks", "--attempt", "2", "--timestamps", "-o", "json"]);
    let text_of = text(&times.stdout);
    let late = text_of.lines().last().expect("lines");
    let late: Value = serde_json::from_str(late).expect("JSON");
    assert!(late["at_ms"].is_u64() && late["text"] == "late\n", "{late}");
    assert_eq!(with(&["status", "last", "talks"]).status.code(), Some(0));
    let json = with(&["submit", "--wait", file.to_str().expect("plain"), "-o", "json"]);
    let status: Value = serde_json::from_slice(&json.stdout).expect("the status alone");
    assert_eq!(status["state"], "succeeded");
}

#[track_caller]
fn error_of(place: &Place, args: &[&str]) -> Value {
    let output = place.steadfast(&[args, &["-o", "json"]].concat());
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"));
    assert_ne!(output.status.code(), Some(0), "{args:?}");
    let (code, message) = (&answer["error"]["code"], &answer["error"]["message"]);
    assert!(code.is_string() && message.is_string(), "{args:?}: {answer}");
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(1), "{answer}");
    // People are told too.
    let said = text(&output.stderr);
    let first = message.as_str().and_then(|message| message.lines().next()).expect("a line");
    assert!(said.contains(first), "{said} lacks {first}");
    answer["error"].clone()
}

#[test]
fn errors_for_programs_have_one_shape() {
    let place = Place::new("json-errors");
    let code = |args: &[&str]| error_of(&place, args)["code"].as_str().expect("text").to_owned();
    let wrong = place.write("wrong.yaml", "name: w\nsteps: { a: { run: ok, nope: 1 } }\n");
    let wrong = wrong.to_str().expect("plain");
    assert_eq!(code(&["run", "/nowhere.yaml"]), "unreadable");
    let error = error_of(&place, &["run", wrong]);
    assert_eq!((&error["code"], &error["errors"][0]["line"]), (&"invalid_job".into(), &2.into()));
    assert_eq!(code(&["rehearse", wrong]), "invalid_job");
    assert_eq!(code(&["submit", wrong]), "invalid_job");
    let of_jobs = [
        "status",
        "history",
        "logs",
        "explain",
        "readiness",
        "replay",
        "resume",
        "cancel",
        "retry",
    ];
    for command in of_jobs {
        assert_eq!(code(&[command, "nothing"]), "not_found", "{command}, of no folder yet");
    }
    place.run(&job("ended"));
    for command in of_jobs {
        assert_eq!(code(&[command, "nothing"]), "not_found", "{command}");
    }
    for command in ["resume", "cancel", "retry"] {
        assert_eq!(code(&[command, "ended"]), "not_possible", "{command}");
    }
    let nobody = ["--server", "http://127.0.0.1:1"];
    for command in [&["list"][..], &["status", "x"], &["wait", "x"], &["workers"], &["drain", "x"]]
    {
        assert_eq!(code(&[command, &nobody].concat()), "no_server", "{command:?}");
    }
    assert_eq!(code(&["status"]), "usage");
    assert_eq!(code(&["list", "--state", "done"]), "usage");
    assert_eq!(code(&["purge", "--older", "1d", "--state", "running"]), "usage");
    // `plan` says whether a file is valid, and that is its answer.
    let plan = place.steadfast(&["plan", wrong, "-o", "json"]);
    let plan: Value = serde_json::from_slice(&plan.stdout).expect("JSON");
    assert_eq!(
        (&plan["valid"], &plan["errors"][0]["code"]),
        (&false.into(), &"unknown_key".into())
    );
}

#[test]
fn what_is_wrong_with_a_token_is_said_once_with_the_flag_that_helps() {
    let place = Place::new("tokens");
    let made = place
        .command(["token", "create", "--scope", "read", "--data", "served"])
        .current_dir(&place.folder)
        .output()
        .expect("starts");
    let token = text(&made.stdout).split_whitespace().last().expect("a token").to_owned();
    let up = Up::start(&place, &["--auth", "required"]);
    let says = |args: &[&str]| {
        let output = place.steadfast(&[args, &["--server", &up.url]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        text(&output.stderr)
    };
    let url = &up.url;
    assert_eq!(
        says(&["list"]),
        format!(
            "error: the server at {url} wants a token: give it with --token, STEADFAST_TOKEN or a \
             profile; `steadfast token create`, where the server is, makes one\n"
        )
    );
    assert_eq!(
        says(&["list", "--token", "stf_wrong"]),
        format!(
            "error: the server at {url} does not take this token: it is wrong, expired or revoked; \
             `steadfast token create`, where the server is, makes a new one\n"
        )
    );
    let file = place.write("job.yaml", job("j"));
    assert_eq!(
        says(&["submit", file.to_str().expect("plain"), "--token", &token]),
        "error: this needs a token with scope `submit`, and this one has `read`; `steadfast token \
         create --scope`, where the server is, makes one\n"
    );
    wait_for("the list", || {
        let list = place.steadfast(&["list", "--server", url, "--token", &token]);
        list.status.success().then_some(())
    });
}
