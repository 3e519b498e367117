//! The program against what is not the server it expects: proxies, silence, nonsense, attacks.

#[path = "client/fake.rs"]
mod fake;
mod helpers;

use std::process::Output;

use fake::{Fake, header, response};
use helpers::Place;
use serde_json::json;

const ID: &str = "01k00000000000000000000000";
const TOKEN: &str = "sf_very-s3cret-token";

fn call(place: &Place, url: &str, args: &[&str]) -> Output {
    let mut command = place.command(args);
    command.env("STEADFAST_SERVER", url).env("STEADFAST_TOKEN", TOKEN);
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME");
    command.output().expect("the program starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

fn problem(status: &str, code: &str, detail: &str) -> String {
    let body = json!({"type": "x", "title": "t", "code": code, "detail": detail}).to_string();
    response(status, "application/problem+json", &body)
}

#[test]
fn whatever_answers_there_is_a_message_and_a_status() {
    let place = Place::new("client-odd");
    place.write("job.yaml", "name: j\nsteps: { a: { run: 'true' } }");
    let page = "<html><body>Welcome to the \x1b[31mproxy</body></html>";
    let job = place.path("job.yaml");
    let commands: [&[&str]; 13] = [
        &["list"],
        &["status", ID],
        &["wait", ID],
        &["watch", ID],
        &["history", ID],
        &["explain", ID],
        &["readiness", ID],
        &["logs", ID],
        &["cancel", ID],
        &["retry", ID],
        &["workers"],
        &["drain", "w"],
        &["submit", job.to_str().expect("plain")],
    ];
    let answers = [
        (response("200 OK", "text/html", page), "proxy"),
        (response("200 OK", "application/json", ""), "nothing"),
        (response("200 OK", "application/json", "[1, 2"), "[1, 2"),
        (response("200 OK", "application/json", "{\"a\": null}"), "missing field"),
        (response("302 Found", "text/html", ""), "302"),
        (response("404 Not Found", "text/html", page), "404"),
        ("SSH-2.0-OpenSSH_9.9\r\n".to_owned(), ""),
    ];
    for (answer, says) in answers {
        let fake = Fake::always(answer.clone());
        for args in commands {
            // It asks more than once where nobody understood it, which is covered below.
            if answer.starts_with("SSH") && (args[0] == "submit" || args[0] == "retry") {
                continue;
            }
            let output = call(&place, &fake.url, args);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(5), "{args:?} of {answer:?}: {output:?}");
            assert!(said.contains(&fake.url) && said.contains(says), "{args:?}: {said}");
            assert!(!said.contains('\x1b') && !said.contains("panicked"), "{said:?}");
        }
    }
}

#[test]
fn a_submission_that_was_cut_off_is_said_again_with_its_key() {
    let place = Place::new("client-cut");
    let job = place.write("job.yaml", "name: j\nsteps: { a: { run: 'true' } }");
    let job = job.to_str().expect("plain");
    let keys = || {
        let fake = Fake::new(|number, _| match number {
            0 => String::new(),
            1 => problem("503 Service Unavailable", "overloaded", "not now"),
            2 => response("502 Bad Gateway", "text/html", "<html>"),
            _ => response("201 Created", "application/json", &json!({ "id": ID }).to_string()),
        });
        let output = call(&place, &fake.url, &["submit", job]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{ID}\n"));
        let requests = fake.requests();
        let keys = requests.iter().map(|request| header(request, "idempotency-key"));
        keys.map(|key| key.expect("a key").to_owned()).collect::<Vec<String>>()
    };
    let (first, second) = (keys(), keys());
    assert_eq!(first.len(), 4);
    assert!(first.iter().all(|key| *key == first[0]), "{first:?}");
    assert_ne!(first[0], second[0], "another submission is another job");
}

#[test]
fn a_token_is_sent_and_never_printed() {
    let place = Place::new("client-token");
    let fake = Fake::new(|_, request| {
        // Even a server that gives it away.
        let token = header(request, "authorization").unwrap_or_default().to_owned();
        assert_eq!(token, format!("Bearer {TOKEN}"));
        problem("401 Unauthorized", "unauthorized", "who are you?")
    });
    for args in [&["list"][..], &["status", ID, "-o", "json"], &["workers"]] {
        let output = call(&place, &fake.url, args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            stderr(&output).matches("token").count(),
            2,
            "said once, with what to do: {said}"
        );
        assert!(
            said.contains(" does not take this token: ") && said.contains("token create"),
            "{said}"
        );
        assert!(!said.contains("s3cret"), "{said}");
    }
    assert_eq!(fake.requests().len(), 3);
    // Nor by what goes wrong before anything is sent, nor by the help.
    for args in [
        &["list", "--token", "s3cret with spaces"][..],
        &["list", "--server", "http://me:s3cret@127.0.0.1:1"],
        &["list", "--token", "s3cret", "--bad-flag"],
        &["list", "--token", "s3cret", "--data", "x"],
        &["list", "--help"],
    ] {
        let output = call(&place, &fake.url, args);
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("s3cret"), "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(if args[1] == "--help" { 0 } else { 2 }), "{said}");
    }
    assert_eq!(fake.requests().len(), 3);
}

#[test]
fn what_a_server_says_does_nothing_to_a_terminal() {
    let place = Place::new("client-hostile");
    let bad = "\x1b]0;mine\x07\x1b[2J\u{202e}";
    let jobs = json!({"jobs": [{"id": bad, "name": bad, "state": "failed", "submitted_at_ms": 0,
        "finished_at_ms": 1}], "next": bad});
    let fakes = [
        Fake::always(problem("409 Conflict", bad, bad)),
        Fake::always(response("200 OK", "application/json", &jobs.to_string())),
        Fake::always(response("500 Internal Server Error", bad.trim_end(), bad)),
    ];
    for fake in &fakes {
        let mut command = place.command(["list"]);
        command.env("STEADFAST_SERVER", &fake.url).env_remove("NO_COLOR");
        let output = command.env("CLICOLOR_FORCE", "1").output().expect("the program starts");
        let said = stderr(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.is_empty());
        for moves in ["\x1b]", "\x1b[2J", "\x07", "\u{202e}"] {
            assert!(!said.contains(moves), "{said:?}");
        }
    }
}

#[test]
fn nobody_at_the_address_is_said_with_the_address() {
    let place = Place::new("client-nobody");
    let url = "http://127.0.0.1:1";
    let output = call(&place, url, &["list"]);
    assert_eq!(output.status.code(), Some(5));
    let said = stderr(&output);
    assert!(said.contains(url) && said.contains("Is it running"), "{said}");
}
