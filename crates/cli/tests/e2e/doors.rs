//! Who comes in: servers, workers and people, with and without a token.

use rustix::process::Signal;
use serde_json::json;

use super::harness::{
    Place, Process, attempt_states, gated, hangup, is_there, item, number, wait_for,
};

#[test]
fn up_runs_a_job_by_itself_and_ends_in_order() {
    let place = Place::new();
    let mut up = place.server().start_up();
    let job = up.submit(&json!({ "name": "j", "steps": { "s": { "run": "true" } } }).to_string());
    let status = up.end(&job);
    assert_eq!(attempt_states(item(&status)), ["succeeded"], "{status:#}");
    up.process.signal(Signal::TERM);
    assert!(up.process.ends().success(), "{}", up.process.said());
}

#[test]
fn up_goes_on_with_its_jobs_however_it_ended() {
    let place = Place::new();
    let pids = place.text("pids");
    let script = format!("echo $$ >> {pids}; {}", gated(&place, "gate"));
    let mut up = place.server().start_up();
    let job = up.submit(
        &json!({ "name": "j", "steps": { "s": { "run": script, "retry": { "max_attempts": 1 } } } })
            .to_string(),
    );
    place.has_lines("ran", 1);
    // Its terminal is closed.
    up.process.signal(hangup());
    assert!(up.process.ends().success(), "{}", up.process.said());
    assert!(!is_there(&place.lines("pids")[0]), "a process outlived it");
    let up = place.server().start_up();
    place.has_lines("ran", 2);
    up.process.kill();
    let left = place.lines("pids")[1].clone();
    assert!(is_there(&left), "there was nobody to end it");
    let up = place.server().start_up();
    place.has_lines("ran", 3);
    assert!(!is_there(&left), "two attempts of one item at once");
    place.open("gate");
    let status = up.end(&job);
    let item = item(&status);
    assert_eq!(attempt_states(item), ["worker_lost", "worker_lost", "succeeded"], "{status:#}");
    assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 2));
}

#[test]
fn a_server_raises_its_limit_of_open_files_as_far_as_its_connections_need_it() {
    let place = Place::new();
    let program = place.command(&[]).get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -Sn 100; exec \"$0\" \"$@\""]).arg(program);
    shell.args(["server", "--listen", "127.0.0.1:0", "--data", &place.text("data")]);
    shell.env("STEADFAST_TEST_PLACE", place.path(""));
    shell.env("STEADFAST_SERVER__MAX_CONNECTIONS", "200");
    let server = Process::start(shell);
    // 200, and a reserve of 256 for the store and logs.
    wait_for("the raised limit", || {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.pid())).ok()?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        (line.split_whitespace().next() == Some("456")).then_some(())
    });
}

#[test]
fn a_second_server_on_one_data_folder_is_refused() {
    let place = Place::with_data_folders();
    let _first = place.server().start();
    let mut second = place.server().try_start("server");
    assert_eq!(second.ends().code(), Some(2));
    second.says("another server has ");
}

#[test]
fn with_auth_nobody_comes_in_without_the_right_token() {
    let place = Place::new();
    let data = place.text("data");
    let mut without = place.server().auth_required().try_start("server");
    assert_eq!(without.ends().code(), Some(2));
    without.says("token create");
    let token = |scope: &str| {
        place.call(&["token", "create", "--scope", scope, "--data", &data]).trim().to_owned()
    };
    let (read, submit, work) = (token("read"), token("submit"), token("worker"));
    let server = place.server().auth_required().start();
    let job = json!({ "name": "j", "steps": { "s": {
        "run": format!("env > {}", place.text("seen")),
    } } })
    .to_string();
    let send = |token: Option<&str>| {
        let bearer = format!("Bearer {}", token.unwrap_or_default());
        let mut headers = vec![("Content-Type", "application/json")];
        if token.is_some() {
            headers.push(("Authorization", &bearer));
        }
        server.ask("POST", "/v1/jobs", &headers, &job).expect("an answer")
    };
    assert_eq!(send(None).status, 401);
    assert_eq!(send(Some("sf_wrong")).status, 401);
    assert_eq!(send(Some(&read)).status, 403);
    assert_eq!(send(Some(&work)).status, 403);
    let accepted = send(Some(&submit));
    assert_eq!(accepted.status, 201, "{}", accepted.body);
    for wrong in [None, Some(&read), Some(&submit)] {
        let worker = place.worker(&server.url(), "w1").folder("refused");
        let worker = match wrong {
            None => worker,
            Some(token) => worker.arg("--token", token),
        };
        let mut worker = worker.start();
        assert_eq!(worker.ends().code(), Some(2), "{}", worker.said());
        worker.says("does not let this worker in");
    }
    let _worker = place.worker(&server.url(), "w1").env("STEADFAST_TOKEN", &work).start();
    let id = accepted.json()["id"].as_str().expect("an id").to_owned();
    let bearer = format!("Bearer {read}");
    let status = super::harness::wait_for("the job's end", || {
        let path = format!("/v1/jobs/{id}");
        let reply = server.ask("GET", &path, &[("Authorization", &bearer)], "")?;
        Some(reply.json()).filter(|status| !status["finished_at_ms"].is_null())
    });
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert!(!place.read("seen").contains(&work), "a step sees its worker's token");
}

#[test]
fn every_route_there_is_wants_a_token() {
    let place = Place::new();
    let data = place.text("data");
    let token = place.call(&["token", "create", "--scope", "admin", "--data", &data]);
    let bearer = format!("Bearer {}", token.trim());
    let server = place.server().auth_required().start();
    let document = server.ask("GET", "/openapi.json", &[("Authorization", &bearer)], "");
    let document = document.expect("an answer").json();
    let paths = document["paths"].as_object().expect("paths");
    let mut routes: Vec<(String, String)> = Vec::new();
    for (path, methods) in paths {
        let path = path.replace("{id}", "01m7fsgentectjqfy6g5es522p").replace(['{', '}'], "");
        let methods = methods.as_object().expect("methods").keys();
        routes.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
    }
    assert!(routes.len() > 10, "{routes:?}");
    for path in ["/openapi.json", "/metrics", "/nowhere", "/v1/nowhere"] {
        routes.push(("GET".to_owned(), path.to_owned()));
    }
    for (method, path) in routes {
        let json = [("Content-Type", "application/json")];
        let reply = server.ask(&method, &path, &json, "").expect("an answer");
        assert_eq!(reply.status, 401, "{method} {path}: {}", reply.body);
        // A callback has a token of its own, in its path.
        let callback = path.starts_with("/v1/callbacks/");
        let code = if callback { "callback_refused" } else { "unauthenticated" };
        assert!(reply.body.contains(code), "{}", reply.body);
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.ask("GET", path, &[], "").expect("an answer").status, 200, "{path}");
    }
}
