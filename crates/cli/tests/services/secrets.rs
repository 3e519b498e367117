//! Secrets reach the service they are for, and nothing and nobody else.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::e2e::harness;
use crate::helpers;
use crate::job;
use crate::service::{Answer, Service};

const SECRET: &str = "s3cr3t-that-is-nobodys-to-read";
const RETRY: &str = "retry: { max_attempts: 2, initial_delay: 1ms }";

/// Says in every way it can what it was sent, and fails.
fn indiscreet() -> Service {
    Service::new(|seen| {
        assert_eq!(seen.header("x-token"), Some(format!("Bearer {SECRET}").as_str()));
        assert_eq!(seen.json(), json!({ "pass": SECRET, "plain": "open" }));
        assert!(seen.path.contains(SECRET), "{seen:?}");
        let error = json!({ "type": SECRET, "message": format!("who is {SECRET}?") });
        match seen.attempt() {
            1 => Answer::json(&json!({ "success": false, "error": error })),
            _ => Answer::text(500, &format!("cannot log in with {SECRET}")),
        }
    })
}

fn text(service: &Service) -> String {
    let http = format!(
        "url: '{}', query: {{ k: '{{{{ secrets.TOKEN }}}}' }}, \
         headers: {{ X-Token: 'Bearer {{{{ secrets.TOKEN }}}}' }}, \
         body: {{ pass: '{{{{ secrets.TOKEN }}}}', plain: open }}",
        service.url("/")
    );
    job(&http, &["secrets: [TOKEN]", RETRY])
}

/// In no file of the folder.
#[track_caller]
fn in_no_file(folder: &Path) -> usize {
    let mut looked = 0;
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            looked += in_no_file(&path);
        } else if path.is_file() {
            let bytes = fs::read(&path).expect("readable");
            let holds = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
            assert!(!holds, "it is in {}", path.display());
            looked += 1;
        }
    }
    looked
}

#[test]
fn with_run_a_secret_is_in_the_request_and_in_no_file_and_no_output() {
    let service = indiscreet();
    let place = helpers::Place::new("secrets-run");
    let file = place.write("job.yaml", text(&service));
    let run = |args: &[&str]| {
        let output = place.command(args).env("TOKEN", SECRET).output().expect("the program starts");
        let said = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(said).expect("text"))
    };
    let (exit, said) = run(&["run", file.to_str().expect("plain")]);
    assert_eq!((exit, service.calls()), (Some(1), 2), "{said}");
    assert!(said.contains("cannot log in with …"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
    for command in ["history", "status", "explain", "logs", "replay"] {
        for format in [&["-o", "json"][..], &[]] {
            if command == "logs" && !format.is_empty() {
                continue;
            }
            let (_, said) = run(&[&[command, "last"], format].concat());
            assert!(!said.contains(SECRET), "{command}: {said}");
        }
    }
    assert!(in_no_file(&place.path("data")) > 0, "there is a store");
}

#[test]
fn with_a_worker_a_secret_is_in_the_request_and_in_no_file_and_no_answer() {
    let service = indiscreet();
    let place = harness::Place::with_data_folders();
    let server = place.server().start();
    fs::create_dir(place.path("secrets")).expect("a folder");
    fs::write(place.path("secrets/TOKEN"), SECRET).expect("writes");
    let worker = place
        .worker(&server.url(), "w")
        .arg("--allow-outbound", "loopback")
        .arg("--secrets", &place.text("secrets"))
        .arg("--secret", "TOKEN")
        .start();
    let id = server.submit(&text(&service));
    let status = server.end(&id);
    assert_eq!((&status["state"], service.calls()), (&json!("failed"), 2), "{status:#}");
    for path in ["", "/events", "/explain", "/attempts"] {
        let body = server.get(&format!("/v1/jobs/{id}{path}")).body;
        assert!(body.contains('…') || path == "/attempts", "{body}");
        assert!(!body.contains(SECRET), "{path}: {body}");
    }
    for said in [server.process.said(), worker.said()] {
        assert!(!said.contains(SECRET), "{said}");
    }
    for folder in ["data", "worker-w"] {
        assert!(in_no_file(&place.path(folder)) > 0, "{folder}");
    }
}

/// What is kept of an error is cut, and texts in it are quoted: neither gives away a part of a secret.
#[test]
fn not_even_a_part_of_a_secret_is_kept_of_what_a_service_repeats() {
    let secret = "half\\of\"it is gone";
    let said = secret.to_owned();
    let service = Service::new(move |seen| match seen.path.as_str() {
        "/cut" => Answer::text(500, &("x".repeat(295) + &said)),
        "/long" => {
            let error = "y".repeat(1995) + &said;
            Answer::json(&json!({ "success": false, "error": error }))
        }
        _ => Answer::text(500, &json!({ "you": { "sent": said, &said: [said] } }).to_string()),
    });
    let step = |name: &str| {
        format!(
            "  {name}:\n    http: {{ url: '{}', body: '{{{{ secrets.TOKEN }}}}' }}\n    \
             secrets: [TOKEN]\n    retry: {{ max_attempts: 1 }}\n    on_failure: continue\n",
            service.url(&format!("/{name}"))
        )
    };
    let place = helpers::Place::new("secrets-parts");
    let steps = [step("cut"), step("long"), step("quoted")].concat();
    let file = place.write("job.yaml", format!("name: parts\nsteps:\n{steps}"));
    let mut run = place.command(["run", file.to_str().expect("plain"), "-o", "json"]);
    let output = run.env("TOKEN", secret).output().expect("the program starts");
    assert_eq!((output.status.code(), service.calls()), (Some(0), 3), "{output:?}");
    let status = String::from_utf8(output.stdout).expect("text");
    assert!(!status.contains("half"), "{status}");
    assert_eq!(
        status.matches("you").count(),
        2,
        "the rest is told, as last error and as the attempt's: {status}"
    );
}

#[test]
fn a_secret_does_not_follow_a_redirect_to_somebody_else() {
    let other = Service::new(|seen| {
        let told = format!("{seen:?}");
        assert!(!told.contains(SECRET), "{told}");
        Answer::status(200)
    });
    let to = other.url("/");
    let first = Service::new(move |seen| {
        assert_eq!(seen.header("authorization"), Some(SECRET));
        Answer::status(307).with("Location", &to)
    });
    let http = format!(
        "url: '{}', redirects: 1, headers: {{ Authorization: '{{{{ secrets.TOKEN }}}}' }}",
        first.url("/")
    );
    let place = helpers::Place::new("secrets-redirect");
    let file = place.write("job.yaml", job(&http, &["secrets: [TOKEN]"]));
    let run = place.command(["run", file.to_str().expect("plain")]).env("TOKEN", SECRET).output();
    assert_eq!(run.expect("the program starts").status.code(), Some(0));
    assert_eq!((first.calls(), other.calls()), (1, 1));
    assert_eq!(other.seen()[0].header("authorization"), None);
}
