//! What people see of a job by the program itself: warnings, who did what, items by name, late results, replays, and a
//! rehearsal of what happened.

use serde_json::{Value, json};

use super::harness::{Place, Server, gated};

struct CommandOutput {
    exit: Option<i32>,
    out: String,
    err: String,
}

fn told(place: &Place, args: &[&str]) -> CommandOutput {
    let output = place.command(args).output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    CommandOutput { exit: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// What it prints if it ends well, at that server.
#[track_caller]
fn at(place: &Place, server: &Server, args: &[&str]) -> String {
    let url = server.url();
    let CommandOutput { exit, out, err } = told(place, &[args, &["--server", &url]].concat());
    assert_eq!(exit, Some(0), "{args:?}: {err}");
    out
}

fn write(place: &Place, name: &str, job: &Value) -> String {
    std::fs::write(place.path(name), job.to_string()).expect("writes");
    place.text(name)
}

/// Prints the name of its item, and fails for one of them, each time.
fn archive() -> Value {
    json!({ "name": "archive", "steps": { "archive": {
        "for_each": ["disk", "mail\u{1b}[2J"],
        "argv": ["/bin/sh", "-c", "echo \"item $STEADFAST_ITEM_INDEX\"; [ $STEADFAST_ITEM_INDEX = 0 ]"],
        "retry": { "max_attempts": 2, "backoff": "fixed", "initial_delay": "1ms" },
    } } })
}

#[test]
fn submit_prints_the_warnings_of_the_server_that_clamps() {
    let place = Place::new();
    let server = place.server().set("RETRY_BUDGET_MAX", "7").start();
    let job = json!({ "name": "j", "retry_budget": { "total": 500 },
                      "steps": { "s": { "run": "true" } } });
    let file = write(&place, "job.json", &job);
    let url = server.url();
    let told = |more: &[&str]| told(&place, &[&["submit", &file, "--server", &url], more].concat());
    let plain = told(&[]);
    assert_eq!(plain.out.trim().len(), 26, "the id alone: {}", plain.out);
    assert!(plain.err.contains("warning[budget_clamped]"), "{}", plain.err);
    assert!(plain.err.contains("leaves 7"), "not by the client's numbers: {}", plain.err);
    let json = told(&["-o", "json"]);
    let answer: Value = serde_json::from_str(&json.out).expect("JSON");
    let codes: Vec<&Value> =
        answer["warnings"].as_array().expect("a list").iter().map(|w| &w["code"]).collect();
    assert!(codes.contains(&&json!("budget_clamped")), "{answer}");
    assert_eq!(json.err, "");
}

#[test]
fn who_cancelled_and_why_is_told_by_history_explain_and_status() {
    let place = Place::new();
    let server = place.server().auth_required();
    let data = place.text("data");
    let create = |name: &str| {
        let token =
            place.call(&["token", "create", "--scope", "submit", "--name", name, "--data", &data]);
        token.lines().find(|line| line.starts_with("sf_")).expect("a token").to_owned()
    };
    let token = create("ci");
    let server = server.start();
    let url = server.url();
    let file =
        write(&place, "job.json", &json!({ "name": "j", "steps": { "s": { "run": "true" } } }));
    let at = |args: &[&str]| {
        let told = told(&place, &[args, &["--server", &url, "--token", &token]].concat());
        assert_eq!(told.exit, Some(0), "{args:?}: {}", told.err);
        told.out
    };
    at(&["submit", &file]);
    at(&["pause", "last", "--reason", "disk swap"]);
    let status = at(&["status", "last"]);
    assert!(status.ends_with("paused by ci: disk swap\n"), "{status}");
    at(&["resume", "last"]);
    at(&["cancel", "last", "--reason", "wrong input\u{1b}[2J"]);
    let history = at(&["history", "last"]);
    for line in
        ["paused by ci: disk swap\n", "resumed by ci\n", "cancelled by ci: wrong input\\u{1b}[2J\n"]
    {
        assert!(history.contains(line), "{line}: {history}");
    }
    let status = at(&["status", "last"]);
    assert!(status.contains("\ncancelled by ci: wrong input\\u{1b}[2J\n"), "{status}");
    let explained = at(&["explain", "last"]);
    assert!(explained.contains("cancelled: ci cancelled it: wrong input"), "{explained}");
    assert!(!explained.contains('\u{1b}'), "text of others only shows");
    let long = "x".repeat(501);
    let refused = told(&place, &["cancel", "last", "--reason", &long, "--server", &url]);
    assert_eq!(refused.exit, Some(2));
    assert!(refused.err.contains("1 to 500 characters"), "{}", refused.err);
}

#[test]
fn a_cancel_on_this_machine_says_that_it_was_from_here() {
    let place = Place::new();
    let data = place.text("data");
    let job = json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } });
    let file = write(&place, "job.json", &job);
    let mut run = super::harness::Process::start(place.command(&["run", &file, "--data", &data]));
    place.has_lines("ran", 1);
    place.call(&["cancel", "last", "--reason", "wrong input", "--data", &data]);
    assert_eq!(run.ends().code(), Some(4));
    let history = place.call(&["history", "last", "--data", &data]);
    assert!(history.contains("cancelled by local user: wrong input\n"), "{history}");
    let status: Value =
        serde_json::from_str(&place.call(&["status", "last", "-o", "json", "--data", &data]))
            .expect("JSON");
    let asked = &status["cancel_request"];
    assert_eq!((&asked["by"], &asked["reason"]), (&json!("local user"), &json!("wrong input")));
}

#[test]
fn an_item_is_shown_with_its_value_and_asked_for_by_its_name() {
    let place = Place::new();
    let (server, data) = (place.server().start_up(), place.text("local"));
    let file = write(&place, "job.json", &archive());
    let id = at(&place, &server, &["submit", &file]);
    server.end(id.trim());
    let ran = told(&place, &["run", &file, "--data", &data]);
    assert_eq!(ran.exit, Some(1), "{}", ran.err);
    assert!(ran.out.contains("archive[0] disk attempt 1 started"), "progress: {}", ran.out);
    let url = server.url();
    for (place_flag, value) in [("--server", url.as_str()), ("--data", data.as_str())] {
        let at = |args: &[&str]| {
            let told = told(&place, &[args, &[place_flag, value]].concat());
            assert_eq!(told.exit, Some(0), "{args:?}: {}", told.err);
            assert!(!told.out.contains('\u{1b}'), "{args:?}: {:?}", told.out);
            told.out
        };
        assert!(at(&["status", "last"]).contains("archive[1] mail\\u{1b}[2J All attempts"));
        let logs = at(&["logs", "last", "archive[1]"]);
        assert_eq!(logs.matches("item 1\n").count(), 2, "{logs}");
        assert!(!logs.contains("item 0"), "{logs}");
        let explained = at(&["explain", "last", "archive[1]"]);
        assert!(explained.contains("archive[1] mail\\u{1b}[2J attempt 2"), "{explained}");
        let nothing = at(&["explain", "last", "archive[0]"]);
        assert!(!nothing.contains("\ndecisions\n"), "{nothing}");
        let history = at(&["history", "last", "--step", "archive[0]"]);
        assert_eq!(history.lines().count(), 3, "started, ended, succeeded: {history}");
        assert!(history.lines().all(|line| line.contains("archive[0] disk")), "{history}");
        for command in [
            &["logs", "last", "archive[2]"][..],
            &["explain", "last", "archive[2]"],
            &["history", "last", "--step", "archive[2]"],
        ] {
            let none = told(&place, &[command, &[place_flag, value]].concat());
            assert_eq!(none.exit, Some(2), "{command:?}");
            assert!(
                none.err.contains("`archive` has 2 items, 0 to 1; there is no [2]"),
                "{}",
                none.err
            );
        }
    }
}

#[test]
fn a_late_result_is_seen_for_what_became_of_it() {
    for (policy, added, counted) in [
        ("log_only", "only logged", "result: from east\n"),
        ("update_result", "added to the result", "result: from east, west\n"),
    ] {
        let place = Place::new();
        let server = place.server().start();
        let _workers =
            ["east", "west"].map(|dc| place.worker(&server.url(), dc).datacenter(dc).start());
        let run = format!(
            "[ $STEADFAST_DATACENTER = east ] || {{ {}; }}; echo \"\\\"$STEADFAST_DATACENTER\\\"\" > $STEADFAST_OUTPUT",
            gated(&place, "gate")
        );
        let job = json!({ "name": "j", "datacenters": ["east", "west"], "steps": { "s": { "run": run } },
                          "best_effort": { "min_datacenters": 1, "late_results": policy } });
        let id = server.submit(&job.to_string());
        place.has_lines("ran", 1);
        let first = server.end(&id);
        assert_eq!(
            first["result"],
            json!({"datacenters": ["east"], "outputs": {"s": {"east": "east"}}})
        );
        place.open("gate");
        let last = server.until(&id, |status| status["runs"][1]["late"] == true);
        assert_eq!(last["state"], "succeeded");
        let outputs = if policy == "log_only" {
            json!({"east": "east"})
        } else {
            json!({"east": "east", "west": "west"})
        };
        assert_eq!(last["result"]["outputs"]["s"], outputs, "{policy}");
        let status = at(&place, &server, &["status", &id]);
        assert!(status.contains(counted), "{status}");
        assert!(status.contains(&format!("late: west succeeded, {added}\n")), "{status}");
        let history = at(&place, &server, &["history", &id]);
        assert!(
            history.contains(&format!("west succeeded after the job had ended: {added}\n")),
            "{history}"
        );
        let explained = at(&place, &server, &["explain", &id]);
        assert!(explained.contains(&format!("; later west succeeded, {added}\n")), "{explained}");
    }
}

#[test]
fn replay_works_against_a_server_too() {
    let place = Place::new();
    let server = place.server().start_up();
    let file = write(&place, "job.json", &archive());
    let id = at(&place, &server, &["submit", &file]);
    server.end(id.trim());
    let replayed = at(&place, &server, &["replay", "last"]);
    assert!(replayed.contains("events give the server's status: failed"), "{replayed}");
    let mut by_environment = place.command(&["replay", "last", "-o", "json"]);
    let output = by_environment.env("STEADFAST_SERVER", server.url()).output().expect("starts");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&answer["equal"], &answer["state"]), (&json!(true), &json!("failed")));
    // Also of a job that goes on.
    let waits = json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } });
    server.submit(&waits.to_string());
    place.has_lines("ran", 1);
    let replayed = at(&place, &server, &["replay", "last"]);
    assert!(replayed.contains("events give the server's status: running"), "{replayed}");
}

#[test]
fn what_happened_to_a_job_is_rehearsed_and_written_down() {
    let place = Place::new();
    let (server, data) = (place.server().start_up(), place.text("local"));
    let file = write(&place, "job.json", &archive());
    let id = at(&place, &server, &["submit", &file]);
    server.end(id.trim());
    assert_eq!(told(&place, &["run", &file, "--data", &data]).exit, Some(1));
    let mut more = archive();
    more["steps"]["archive"]["retry"]["max_attempts"] = json!(4);
    let changed = write(&place, "changed.json", &more);
    let script = place.text("script.yaml");
    let url = server.url();
    for (flag, value) in [("--server", url.as_str()), ("--data", data.as_str())] {
        let rehearse = |more: &[&str]| {
            let told = told(&place, &[&["rehearse", "-o", "json"], more].concat());
            assert_eq!(told.exit, Some(1), "{}", told.err);
            serde_json::from_str::<Value>(&told.out).expect("JSON")
        };
        let as_it_was = rehearse(&["--from", "last", "--write-script", &script, flag, value]);
        assert_eq!(as_it_was["steps"]["archive"]["attempts"], 3, "{as_it_was}");
        let written = place.read("script.yaml");
        assert!(written.contains("\"archive[1]\": [\"exit:1@"), "{written}");
        let again = rehearse(&[&file, "--script", &script]);
        assert_eq!(again["decisions"], as_it_was["decisions"], "the script says it all");
        let otherwise = rehearse(&[&changed, "--from", "last", flag, value]);
        assert_eq!(otherwise["steps"]["archive"]["attempts"], 5, "the last outcome repeats");
    }
    let both = told(&place, &["rehearse", &file, "--from", "last", "--script", &script]);
    assert_eq!(both.exit, Some(2), "one or the other");
    let none = told(&place, &["rehearse", "--from", "nosuchjob", "--data", &data]);
    assert_eq!((none.exit, none.err.contains("nosuchjob")), (Some(2), true), "{}", none.err);
}

#[test]
fn a_drain_is_taken_back() {
    let place = Place::new();
    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w1").slots(2).start();
    let one = server.submit(
        &json!({ "name": "j", "steps": { "s": { "run": gated(&place, "gate") } } }).to_string(),
    );
    place.has_lines("ran", 1);
    assert!(at(&place, &server, &["drain", "w1"]).contains("draining; it finishes 1 attempt"));
    assert_eq!(at(&place, &server, &["undrain", "w1"]), "w1 connected\n");
    let two =
        server.submit(&json!({ "name": "j", "steps": { "s": { "run": "true" } } }).to_string());
    assert_eq!(server.end(&two)["state"], "succeeded", "it takes new work");
    place.open("gate");
    assert_eq!(server.end(&one)["state"], "succeeded");
    server.until_worker("w1", "connected");
    let url = server.url();
    let nobody = told(&place, &["undrain", "nobody", "--server", &url]);
    assert_eq!(nobody.exit, Some(2));
    assert!(nobody.err.contains("there is no worker \"nobody\""), "{}", nobody.err);
}
