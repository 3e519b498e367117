//! Where attempts run: their folder, their files, their environment, their secrets.

use serde_json::json;

use super::harness::{Place, item};

#[test]
fn files_of_a_job_are_in_the_folder_of_each_attempt() {
    let place = Place::new();
    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w1").start();
    let file = "name: files\nfiles: [./tell.sh, data/]\nsteps:\n  s: { argv: [./tell.sh] }\n";
    // #!/bin/sh, then a look at what is there.
    let script = "#!/bin/sh\npwd > where; cat data/words.txt > \"$STEADFAST_OUTPUT\"\n\
                  [ \"$(pwd)\" = \"$STEADFAST_WORKDIR\" ] || exit 9\n[ -x data/words.txt ] && exit 8\nexit 0\n";
    let body = json!({ "file": file, "files": [
        { "path": "tell.sh", "content_base64": base64(script), "executable": true },
        { "path": "data/words.txt", "content_base64": base64("\"words\"") },
    ] });
    let kind = [("Content-Type", "application/vnd.steadfast.submission+json")];
    let reply = server.ask("POST", "/v1/jobs", &kind, &body.to_string()).expect("an answer");
    assert_eq!(reply.status, 201, "{}", reply.body);
    let job = reply.json()["id"].as_str().expect("an id").to_owned();
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(item(&status)["output"], "words");
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let bits = three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - three.len()));
        for letter in 0..4 {
            let letter_bits = (bits >> (18 - 6 * letter)) as usize & 63;
            out.push(if letter <= three.len() { LETTERS[letter_bits] as char } else { '=' });
        }
    }
    out
}

#[test]
fn an_attempt_sees_what_it_is_told_and_nothing_else_of_its_worker() {
    let place = Place::new();
    let server = place.server().start();
    let worker = place
        .worker(&server.url(), "w1")
        .arg("--pass-env", "PASSED_ON")
        .env("PASSED_ON", "yes")
        .env("CALLERS_OWN", "no")
        .env("STEADFAST_TOKEN", "sft_no")
        .env("STEADFAST_SECRET_unasked", "no")
        .start();
    let seen = place.text("seen");
    let job = server.submit(
        &json!({ "name": "env", "env": { "OF_THE_JOB": "here" }, "steps": { "s": {
            "run": format!("env | cut -d= -f1 | sort > {seen}; \
                            [ \"$PASSED_ON $OF_THE_JOB\" = 'yes here' ]"),
        } } })
        .to_string(),
    );
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#} {}", worker.said());
    let known = |name: &str| {
        let base = ["PATH", "HOME", "LANG", "TMPDIR", "PASSED_ON", "OF_THE_JOB"];
        let own = [
            "JOB_ID",
            "STEP",
            "ITEM",
            "ITEM_INDEX",
            "ATTEMPT",
            "ATTEMPT_TOKEN",
            "DATACENTER",
            "WORKDIR",
            "OUTPUT",
            "ERROR",
        ];
        let shell = ["PWD", "OLDPWD", "SHLVL", "_"];
        base.contains(&name)
            || shell.contains(&name)
            || name.strip_prefix("STEADFAST_").is_some_and(|name| own.contains(&name))
            || ["FLUSTER_JOB_ID", "FLUSTER_ATTEMPT_ID"].contains(&name)
    };
    let stray: Vec<String> = place.lines("seen").into_iter().filter(|n| !known(n)).collect();
    assert_eq!(stray, [] as [&str; 0]);
}

#[test]
fn a_secret_reaches_the_process_and_nothing_that_anybody_can_read() {
    const SECRET: &str = "hunter2-ten-times-over";
    let place = Place::with_data_folders();
    std::fs::create_dir_all(place.path("secrets")).expect("a folder");
    std::fs::write(place.path("secrets/api_key"), format!("{SECRET}\n")).expect("writes");
    let server = place.server().start();
    let secrets = place.text("secrets");
    let worker = place.worker(&server.url(), "w1").arg("--secrets", &secrets);
    let worker = worker.arg("--secret", "api_*").start();
    let got = place.text("got");
    let job = server.submit(
        &json!({ "name": "secret", "steps": { "s": {
            "run": format!("echo \"$api_key\" > {got}; echo done"), "secrets": ["api_key"],
        } } })
        .to_string(),
    );
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(place.lines("got"), [SECRET]);
    let paths = ["", "/events", "/explain", "/attempts", "/logs", "/logs/s"];
    for path in paths {
        let shown = server.get(&format!("/v1/jobs/{job}{path}")).body;
        assert!(!shown.contains(SECRET), "{path}: {shown}");
    }
    for said in [worker.said(), server.process.said()] {
        assert!(!said.contains(SECRET), "{said}");
    }
    let kept = everything_in(&place.path("data")) + &everything_in(&place.path("worker-w1"));
    assert!(!kept.contains(SECRET), "it is on a disk");
}

#[test]
fn a_job_whose_secret_the_worker_does_not_have_says_which() {
    let place = Place::new();
    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w1").arg("--secret", "absent").start();
    let job = server.submit(
        &json!({ "name": "secret", "steps": { "s": { "run": "true", "secrets": ["absent"],
            "retry": { "max_attempts": 1 } } } })
        .to_string(),
    );
    let status = server.end(&job);
    assert_eq!(status["state"], "failed", "{status:#}");
    let error = item(&status)["last_error"].as_str().expect("an error");
    assert!(error.contains("no secret absent"), "{error}");
}

fn everything_in(folder: &std::path::Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            all += &everything_in(&path);
        } else {
            all += &String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default());
        }
    }
    all
}

#[test]
fn what_an_attempt_prints_is_served_while_it_runs_and_afterwards() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let gate = place.text("gate");
    let job = server.submit(
        &json!({ "name": "logs", "steps": { "s": { "run": format!(
            "echo first words; while [ ! -e {gate} ]; do sleep 0.1; done; echo last words >&2"
        ) } } })
        .to_string(),
    );
    let list = || server.get(&format!("/v1/jobs/{job}/logs")).json()["logs"].clone();
    let log = super::harness::wait_for("the log of an attempt that runs", || {
        list().as_array()?.first().filter(|log| log["size"] != 0).cloned()
    });
    let path = format!("/v1/jobs/{job}/logs/s/{}", log["name"].as_str().expect("a name"));
    assert_eq!(server.get(&path).body, "first words\n");
    place.open("gate");
    assert_eq!(server.end(&job)["state"], "succeeded");
    // The end of a log may come after the end of its attempt.
    super::harness::wait_for("its last words", || {
        (server.get(&path).body == "first words\nlast words\n").then_some(())
    });
    assert_eq!(list().as_array().expect("logs").len(), 1);
}

#[test]
fn what_an_attempt_prints_while_it_is_cancelled_is_in_its_log() {
    let place = Place::new();
    let server = place.server().lease(2000).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let ran = place.text("ran");
    let job = server.submit(
        &json!({ "name": "logs", "steps": { "s": { "run": format!(
            "trap 'echo last words; exit 1' TERM; echo first words; echo x >> {ran}; \
             while :; do sleep 0.05 & wait; done"
        ) } } })
        .to_string(),
    );
    place.has_lines("ran", 1);
    server.post(&format!("/v1/jobs/{job}/cancel"));
    assert_eq!(server.end(&job)["state"], "cancelled");
    super::harness::wait_for("its last words", || {
        let logs = server.get(&format!("/v1/jobs/{job}/logs")).json();
        let name = logs["logs"][0]["name"].as_str()?.to_owned();
        let log = server.get(&format!("/v1/jobs/{job}/logs/s/{name}")).body;
        (log == "first words\nlast words\n").then_some(())
    });
}

#[test]
fn a_log_outlives_the_worker_that_was_killed() {
    let place = Place::new();
    let server = place.server().lease(800).start();
    let worker = place.worker(&server.url(), "w1").start();
    let job = server.submit(
        &json!({ "name": "logs", "steps": { "s": { "run": "echo some words; sleep 100" } } })
            .to_string(),
    );
    let list = || server.get(&format!("/v1/jobs/{job}/logs")).json()["logs"].clone();
    let log = super::harness::wait_for("the log", || {
        list().as_array()?.first().filter(|log| log["size"] != 0).cloned()
    });
    worker.kill();
    server.until_item(&job, "ready");
    let path = format!("/v1/jobs/{job}/logs/s/{}", log["name"].as_str().expect("a name"));
    assert_eq!(server.get(&path).body, "some words\n");
}

#[test]
fn an_output_of_a_megabyte_and_a_log_of_several_arrive_whole() {
    const OUTPUT: usize = (1 << 20) - 2;
    const LINES: usize = 60_000;
    let place = Place::new();
    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w1").start();
    let job = server.submit(
        &json!({ "name": "large", "steps": { "s": { "run": format!(
            "{{ printf '\"'; head -c {OUTPUT} /dev/zero | tr '\\0' x; printf '\"'; }} \
             > \"$STEADFAST_OUTPUT\"; seq -f 'a line of some length, number %06.0f' {LINES}"
        ) } } })
        .to_string(),
    );
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{}", item(&status)["last_error"]);
    assert_eq!(item(&status)["output"].as_str().map(str::len), Some(OUTPUT));
    // The end of a log may come after the end of its attempt.
    let log = super::harness::wait_for("all of its lines", || {
        let logs = server.get(&format!("/v1/jobs/{job}/logs")).json();
        let name = logs["logs"][0]["name"].as_str()?.to_owned();
        let log = server.get(&format!("/v1/jobs/{job}/logs/s/{name}")).body;
        (log.lines().count() == LINES).then_some(log)
    });
    let last = format!("a line of some length, number {LINES:06}");
    assert_eq!(log.lines().last(), Some(last.as_str()));
}
