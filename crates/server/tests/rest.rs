//! REST over a real port, with a real engine and store behind it.

#[path = "rest/document.rs"]
mod document;
#[path = "rest/files.rs"]
mod files;
#[path = "rest/fuzz.rs"]
mod fuzz;
#[path = "rest/long.rs"]
mod long;
#[path = "rest/outputs.rs"]
mod outputs;
#[path = "rest/readiness.rs"]
mod readiness;
#[path = "rest/seen.rs"]
mod seen;
#[path = "rest/server.rs"]
mod server;
#[path = "rest/shared.rs"]
mod shared;
#[path = "rest/starts.rs"]
mod starts;
#[path = "rest/streams.rs"]
mod streams;
#[path = "rest/views.rs"]
mod views;
#[path = "rest/watched.rs"]
mod watched;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use server::{Answer, Server};
use steadfast_core::time::Timestamp;
use steadfast_jobfile::Operator;
use steadfast_store::{Journal as _, SqliteStore};

const OK: &str = "name: good\nsteps: { a: { run: ok }, b: { run: ok, needs: [a] } }";
const HOLD: &str = "name: slow\nsteps: { a: { run: hold } }";
const FAILS: &str = "name: bad\nretry: { max_attempts: 3, backoff: fixed, initial_delay: 1ms }\n\
                     steps: { a: { run: fail } }";

#[tokio::test]
async fn a_job_is_submitted_followed_to_its_end_and_shown() {
    let server = Server::start().await;
    let answer = Answer::of(server.submission(OK)).await;
    assert_eq!(answer.status, 201);
    let id = answer.json["id"].as_str().unwrap();
    assert_eq!(answer.headers["location"], format!("/v1/jobs/{id}"));
    let told = server.until_over(id).await;
    let (end, events) = told.split_last().unwrap();
    assert_eq!((end.event.as_str(), end.id), ("end", None));
    assert_eq!(end.data, json!({"state": "succeeded"}));
    let numbers: Vec<u64> = events.iter().map(|told| told.id.unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events[0].event, "JobAccepted");
    assert_eq!(events.last().unwrap().event, "JobEnded");
    assert!(events.iter().all(|told| told.data["event"] == told.event.as_str()));
    let status = server.get(&format!("/v1/jobs/{id}")).await;
    assert_eq!(status.json["state"], "succeeded");
    assert_eq!(status.json["runs"][0]["steps"]["b"]["items"][0]["output"], "done");
}

#[tokio::test]
async fn who_submits_can_wait_for_the_end() {
    let server = Server::start().await;
    let submission = |wait: &str, yaml: &str| {
        let request = server.client.post(format!("{}/v1/jobs?wait={wait}", server.url));
        request.header("content-type", "application/yaml").body(yaml.to_owned())
    };
    for (yaml, state) in [(OK, "succeeded"), (FAILS, "failed")] {
        let answer = Answer::of(submission("true", yaml)).await;
        assert_eq!((answer.status, &answer.json["job"]["state"]), (201, &json!(state)));
        let id = answer.json["id"].as_str().unwrap();
        assert_eq!(server.get(&format!("/v1/jobs/{id}")).await.json, answer.json["job"]);
    }
    let plain = Answer::of(submission("false", OK)).await;
    assert_eq!((plain.status, plain.json.get("job")), (201, None));
    let wrong = Answer::of(submission("5s", OK)).await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
}

#[tokio::test]
async fn many_jobs_come_in_one_request_and_each_is_answered_by_itself() {
    let server = Server::start().await;
    let job = |name: &str| json!({ "name": name, "steps": { "a": { "run": "ok" } } });
    let lines = [
        json!({ "job": job("one"), "idempotency_key": "k1" }).to_string(),
        String::new(),
        json!({ "job": { "name": "no steps" } }).to_string(),
        "{".to_owned(),
        json!({ "job": job("two") }).to_string(),
        json!({ "job": job("other"), "idempotency_key": "k1" }).to_string(),
        json!({ "job": job("one"), "idempotency_key": "k1" }).to_string(),
        json!({ "job": job("three"), "idempotency_key": "with space" }).to_string(),
    ];
    let url = format!("{}/v1/jobs/bulk", server.url);
    let request = |kind: &'static str| {
        server.client.post(&url).header("content-type", kind).body(lines.join("\n"))
    };
    let answer = request("application/x-ndjson").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.unwrap();
    let told: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes: Vec<Option<&str>> = told.iter().map(|it| it["code"].as_str()).collect();
    let (invalid, bad) = (Some("invalid_job"), Some("bad_request"));
    let conflict = Some("idempotency_conflict");
    assert_eq!(codes, [None, invalid, bad, None, conflict, None, bad]);
    assert_eq!((&told[5]["id"], &told[5]["existing"]), (&told[0]["id"], &json!(true)));
    assert_eq!(told[1]["status"], 400);
    assert!(told[1]["errors"][0]["message"].is_string(), "{}", told[1]);
    assert_eq!(server.get("/v1/jobs").await.json["jobs"].as_array().unwrap().len(), 2);

    let array = |body: &Value| server.client.post(&url).json(body);
    let again = array(&json!([
        { "job": job("one"), "idempotency_key": "k1" },
        { "job": "no job" },
        { "job": job("four"), "idempotency_key": null },
    ]));
    let again = Answer::of(again).await;
    assert_eq!((again.status, &again.json[0]["id"]), (200, &told[0]["id"]));
    assert_eq!(
        (&again.json[1]["code"], &again.json[2]["existing"]),
        (&json!("invalid_job"), &json!(false))
    );
    for wrong in [
        json!({}),
        json!([{ "job": job("five"), "key": "k" }]),
        json!([{}]),
        json!([[job("five"), null]]),
    ] {
        Answer::of(array(&wrong)).await.is_problem(400, "bad_request");
    }
    Answer::of(request("text/plain")).await.is_problem(415, "unsupported_media_type");
}

#[tokio::test]
async fn a_status_is_brought_up_to_date_by_what_has_happened_since() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    let mut stream = server.stream(&id, None).await;
    while stream.next().await.unwrap().event != "AttemptStarted" {}
    let status = server.get(&format!("/v1/jobs/{id}")).await;
    let attempts = &status.json["runs"][0]["steps"]["a"]["items"][0]["attempts"];
    assert_eq!(attempts[0]["state"], "running");
    let cancelled = server.post(&format!("/v1/jobs/{id}/cancel")).await;
    assert_eq!((cancelled.status, &cancelled.json["state"]), (200, &json!("cancelled")));
    let attempts = &cancelled.json["runs"][0]["steps"]["a"]["items"][0]["attempts"];
    assert_eq!((attempts.as_array().unwrap().len(), &attempts[0]["state"]), (1, &json!("killed")));
}

#[tokio::test]
async fn wishes_hold_once_and_are_refused_when_the_job_has_ended() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    let wish = |wish: &str| format!("/v1/jobs/{id}/{wish}");
    for _ in 0..2 {
        assert_eq!(server.post(&wish("pause")).await.json["state"], "paused");
    }
    for _ in 0..2 {
        assert_eq!(server.post(&wish("resume")).await.json["state"], "running");
    }
    for _ in 0..2 {
        assert_eq!(server.post(&wish("cancel")).await.json["state"], "cancelled");
    }
    server.post(&wish("pause")).await.is_problem(409, "already_ended");
    let form = server.client.post(format!("{}{}", server.url, wish("cancel")));
    let form = form.header("content-type", "application/x-www-form-urlencoded").body("a=b");
    Answer::of(form).await.is_problem(415, "unsupported_media_type");
}

#[tokio::test]
async fn one_key_is_one_job_however_many_ask_at_once() {
    let server = Server::start().await;
    let keyed = |yaml: &str, key: &str| {
        Answer::of(server.submission(yaml).header("idempotency-key", key.to_owned()))
    };
    let answers = futures_util::future::join_all((0..20).map(|_| keyed(OK, "k-1"))).await;
    let id = &answers[0].json["id"];
    assert!(answers.iter().all(|answer| answer.json["id"] == *id), "{answers:?}");
    let new = answers.iter().filter(|answer| answer.status == 201).count();
    let old = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((new, old), (1, 19));
    keyed(HOLD, "k-1").await.is_problem(409, "idempotency_conflict");
    assert_ne!(keyed(OK, "k-2").await.json["id"], *id);
    assert_eq!(server.get("/v1/jobs").await.json["jobs"].as_array().unwrap().len(), 2);
    for key in ["with space", &"x".repeat(256)] {
        keyed(OK, key).await.is_problem(400, "bad_request");
    }
}

#[tokio::test]
async fn pages_have_everything_once() {
    let server = Server::start().await;
    for n in 0..7 {
        let label = if n % 2 == 0 { "even" } else { "odd" };
        server.submit(&format!("{HOLD}\nlabels: {{ kind: {label} }}")).await;
    }
    let pages = async |path: String, key: &str, most: usize| {
        let mut all: Vec<Value> = vec![];
        let mut next = String::new();
        loop {
            let answer = server.get(&format!("{path}{next}")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let page = answer.json[key].as_array().unwrap();
            assert!(page.len() <= most, "{answer:?}");
            all.extend(page.iter().cloned());
            let place = if key == "events" { "after" } else { "cursor" };
            match &answer.json["next"] {
                Value::Null => return all,
                Value::String(cursor) => next = format!("&{place}={cursor}"),
                number => next = format!("&{place}={number}"),
            }
        }
    };
    let ids = |jobs: &[Value]| jobs.iter().map(|job| job["id"].to_string()).collect::<Vec<_>>();
    let all = pages("/v1/jobs?limit=2".into(), "jobs", 2).await;
    let mut sorted = ids(&all);
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), 7);
    let odd = pages("/v1/jobs?limit=2&label=kind=odd&state=running".into(), "jobs", 2).await;
    assert_eq!(odd.len(), 3);
    assert!(odd.iter().all(|job| job["labels"]["kind"] == "odd"));
    assert_eq!(pages("/v1/jobs?name=other&unknown=1".into(), "jobs", 9).await.len(), 0);

    let id = server.submit(FAILS).await;
    let told = server.until_over(&id).await;
    let events = pages(format!("/v1/jobs/{id}/events?limit=3"), "events", 3).await;
    assert_eq!(events, told[..told.len() - 1].iter().map(|t| t.data.clone()).collect::<Vec<_>>());
    let attempts = pages(format!("/v1/jobs/{id}/attempts?limit=1"), "attempts", 1).await;
    let brief: Vec<_> =
        attempts.iter().map(|a| (a["attempt"].as_u64(), a["state"].as_str())).collect();
    assert_eq!(brief, [1, 2, 3].map(|n| (Some(n), Some("failed"))));
    assert_eq!(attempts[0]["step"], "a");
    let logs = pages(format!("/v1/jobs/{id}/logs?limit=2"), "logs", 2).await;
    let brief: Vec<_> = logs.iter().map(|log| (log["attempt"].as_u64(), &log["size"])).collect();
    assert_eq!(brief, [1, 2, 3].map(|n| (Some(n), &logs[0]["size"])));
}

#[tokio::test]
async fn a_log_is_read_from_anywhere_and_followed_to_the_end_of_its_job() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    let mut stream = server.stream(&id, None).await;
    while stream.next().await.unwrap().event != "AttemptStarted" {}
    let list = loop {
        // The worker writes its line some time after the attempt is recorded.
        let list = server.get(&format!("/v1/jobs/{id}/logs?step=a")).await;
        if list.json["logs"][0]["size"].as_u64().is_some_and(|size| size > 0) {
            break list;
        }
        tokio::task::yield_now().await;
    };
    let log = &list.json["logs"][0];
    assert_eq!((&log["name"], &log["item"]), (&json!("a_0_attempt_1"), &json!(0)));
    let path = format!("/v1/jobs/{id}/logs/a/a_0_attempt_1");
    let whole = server.get(&path).await;
    assert_eq!(whole.text, "attempt 1 of a\n");
    assert_eq!(whole.headers["x-content-type-options"], "nosniff");
    assert_eq!(server.get(&format!("{path}?offset=8")).await.text, "1 of a\n");
    assert_eq!(server.get(&format!("{path}?offset=9223372036854775807")).await.text, "");

    let following = server.client.get(format!("{}{path}?follow=true", server.url));
    let mut response = following.send().await.unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "attempt 1 of a\n");
    let file = server.folder.logs(&id).join("a/a_0_attempt_1.log");
    let mut file = std::fs::OpenOptions::new().append(true).open(file).unwrap();
    std::io::Write::write_all(&mut file, b"more\n").unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "more\n");
    server.post(&format!("/v1/jobs/{id}/cancel")).await;
    assert_eq!(response.chunk().await.unwrap(), None);
    assert_eq!(server.get(&format!("{path}?follow=true")).await.text, "attempt 1 of a\nmore\n");
}

#[tokio::test]
async fn no_name_in_a_request_leads_out_of_its_folder() {
    let server = Server::start().await;
    let id = server.submit(OK).await;
    server.until_over(&id).await;
    std::fs::write(server.folder.root().join("secret.log"), "secret").unwrap();
    let logs = server.folder.logs(&id).join("a");
    std::os::unix::fs::symlink(
        server.folder.root().join("secret.log"),
        logs.join("a_9_attempt_9.log"),
    )
    .unwrap();
    for path in [
        format!("/v1/jobs/{id}/logs/a/..%2F..%2F..%2Fsecret"),
        format!("/v1/jobs/{id}/logs/..%2F../secret"),
        format!("/v1/jobs/{id}/logs/%2e%2e/secret"),
        format!("/v1/jobs/{id}/logs/a/%2Fetc%2Fpasswd"),
        format!("/v1/jobs/{id}/logs/a/a_0_attempt_1%00"),
        format!("/v1/jobs/{id}/logs/a/..%2Fb%2Fb_0_attempt_1"),
        "/v1/jobs/..%2F..%2Fetc/logs".to_owned(),
        format!("/v1/jobs/{}", id.to_uppercase()),
        format!("/v1/jobs/{id}%20"),
        "/v1/jobs/%ff%fe".to_owned(),
    ] {
        let answer = server.get(&path).await;
        assert!(!answer.text.contains("secret\""), "{path}");
        answer.is_problem(404, "not_found");
    }
    let linked = server.get(&format!("/v1/jobs/{id}/logs/a/a_9_attempt_9")).await;
    assert!(linked.status >= 400 && !linked.text.contains("secret"), "{linked:?}");
    let list = server.get(&format!("/v1/jobs/{id}/logs")).await;
    assert_eq!(list.json["logs"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn what_is_wrong_is_said_as_a_problem_with_its_code() {
    let server = Server::start().await;
    let wrong = Answer::of(server.submission("name: x\nsteps: { a: { rum: ok } }")).await;
    wrong.is_problem(400, "invalid_job");
    let error = &wrong.json["errors"][0];
    assert_eq!((&error["code"], &error["line"]), (&json!("unknown_key"), &json!(2)), "{wrong:?}");
    let unknown = "01arz3ndektsv4rrffq69g5fav";
    for (path, status, code) in [
        (format!("/v1/jobs/{unknown}"), 404, "not_found"),
        (format!("/v1/jobs/{unknown}/events"), 404, "not_found"),
        (format!("/v1/jobs/{unknown}/explain"), 404, "not_found"),
        (format!("/v1/jobs/{unknown}/attempts"), 404, "not_found"),
        (format!("/v1/jobs/{unknown}/logs"), 404, "not_found"),
        ("/v1/jobs/short".to_owned(), 404, "not_found"),
        ("/v2/jobs".to_owned(), 404, "not_found"),
        ("/v1/jobs?limit=0".to_owned(), 400, "bad_request"),
        ("/v1/jobs?limit=1001".to_owned(), 400, "bad_request"),
        ("/v1/jobs?limit=x".to_owned(), 400, "bad_request"),
        ("/v1/jobs?state=odd".to_owned(), 400, "bad_request"),
        ("/v1/jobs?label=odd".to_owned(), 400, "bad_request"),
        ("/v1/jobs?name=a&name=b".to_owned(), 400, "bad_request"),
        ("/v1/jobs?limit=+1".to_owned(), 400, "bad_request"),
        ("/v1/jobs?cursor=odd".to_owned(), 400, "bad_cursor"),
    ] {
        server.get(&path).await.is_problem(status, code);
    }
    for wish in ["cancel", "pause", "resume", "retry"] {
        server.post(&format!("/v1/jobs/{unknown}/{wish}")).await.is_problem(404, "not_found");
    }
    let method = server.post("/v1/jobs/short").await;
    method.is_problem(405, "method_not_allowed");
    assert_eq!(method.headers["allow"], "GET,HEAD");
    let untyped = server.client.post(format!("{}/v1/jobs", server.url)).body(OK);
    Answer::of(untyped).await.is_problem(415, "unsupported_media_type");
    for form in ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded"] {
        // Beside the content type of a job file, and alone.
        let both = server.submission(OK).header("content-type", form);
        Answer::of(both).await.is_problem(415, "unsupported_media_type");
        let alone = server.client.post(format!("{}/v1/jobs", server.url));
        let alone = alone.header("content-type", form).body(OK);
        Answer::of(alone).await.is_problem(415, "unsupported_media_type");
    }
}

#[tokio::test]
async fn an_array_is_no_command() {
    let server = Server::start().await;
    let id = server.submit(OK).await;
    server.until_over(&id).await;
    for wish in ["cancel", "pause", "resume", "retry"] {
        let url = format!("{}/v1/jobs/{id}/{wish}", server.url);
        for body in ["[]", "[null]", " []", "null", "1"] {
            let sent = server.client.post(&url).header("content-type", "application/json");
            let answer = sent.body(body).send().await.expect("an answer");
            assert_eq!(answer.status(), 400, "{wish} {body}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_with_and_without_a_length() {
    let server = Server::with(Operator { max_file_bytes: 1000, ..Operator::default() }, 0).await;
    let large = format!("{OK}\n#{}", "x".repeat(2000));
    Answer::of(server.submission(&large)).await.is_problem(413, "too_large");
    let chunks = large
        .into_bytes()
        .chunks(100)
        .map(|c| Ok::<_, std::io::Error>(c.to_vec()))
        .collect::<Vec<_>>();
    let stream = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let request = server.client.post(format!("{}/v1/jobs", server.url)).body(stream);
    let request = request.header("content-type", "application/yaml");
    Answer::of(request).await.is_problem(413, "too_large");
}

#[tokio::test]
async fn no_job_is_taken_while_the_disk_has_no_room_for_it() {
    let server = Server::with(Operator::default(), u64::MAX).await;
    Answer::of(server.submission(OK)).await.is_problem(507, "disk_full");
    assert_eq!(server.get("/v1/jobs").await.json["jobs"], json!([]));
}

#[tokio::test]
async fn a_job_that_was_purged_is_gone_for_those_who_knew_it() {
    let server = Server::start().await;
    let id = server.submit(OK).await;
    server.until_over(&id).await;
    assert_eq!(server.get(&format!("/v1/jobs/{id}")).await.status, 200);
    let mut store = SqliteStore::open(&server.folder.database()).unwrap();
    assert_eq!(store.purge(Timestamp(i64::MAX as u64)).unwrap().len(), 1);
    server.get(&format!("/v1/jobs/{id}")).await.is_problem(404, "not_found");
    server.get(&format!("/v1/jobs/{id}/events")).await.is_problem(404, "not_found");
}

#[tokio::test]
async fn why_a_job_is_where_it_is_can_be_asked() {
    let server = Server::start().await;
    let id = server.submit(FAILS).await;
    server.until_over(&id).await;
    let explained = server.get(&format!("/v1/jobs/{id}/explain?step=a")).await;
    assert_eq!(explained.json["job"]["state"], "failed");
    let verdicts = explained.json["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.last().unwrap()["reason"], "attempts_exhausted", "{explained:?}");
    server.get(&format!("/v1/jobs/{id}/explain?step=z")).await.is_problem(404, "not_found");
}

#[tokio::test]
async fn workers_are_listed_and_drained() {
    let server = Server::start().await;
    assert_eq!(server.get("/v1/workers").await.json["workers"][0]["labels"]["disk"], "ssd");
    assert_eq!(server.post("/v1/workers/w1/drain").await.json["name"], "w1");
    server.post("/v1/workers/w2/drain").await.is_problem(404, "not_found");
}

/// Reading goes on when a client has left, a few files at once; what waits for its turn goes with its client.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_leave_while_their_file_is_read_are_in_nobodys_way() {
    let server = Server::start().await;
    let steps: Vec<String> =
        (0..10_000).map(|n| format!("s{n}: {{ run: x, needs: [s{}, t{n}] }}", n + 1)).collect();
    let large = format!("name: large\nsteps: {{ {} }}\n", steps.join(", "));
    let mut leaving = Vec::new();
    for _ in 0..20 {
        leaving.push(tokio::spawn(server.submission(&large).send()));
    }
    // Until one was read, so that the others were being.
    let first = leaving.swap_remove(0).await.unwrap().unwrap();
    assert_eq!(first.status(), 400);
    for client in leaving {
        client.abort();
    }
    let id = server.submit("name: small\nsteps: { s: { run: x } }\n").await;
    assert!(!id.is_empty());
}
