//! Whatever a body holds: it is taken, or refused with a code, and the server goes on.

use serde_json::json;
use steadfast_fuzz::{Fuzz, Random, Shape};

use super::server::{Answer, Server};

/// Content types that a job comes in, and some that it does not.
const KINDS: [&str; 6] = [
    "application/json",
    "application/yaml",
    "application/vnd.steadfast.submission+json",
    "application/x-ndjson",
    "text/plain",
    "application/json; charset=latin1",
];

const PATHS: [&str; 10] = [
    "/v1/jobs",
    "/v1/jobs",
    "/v1/jobs/bulk",
    "/v1/jobs/bulk",
    "/v1/jobs/none/cancel",
    "/v1/jobs/none/pause",
    "/v1/jobs/none/retry",
    "/v1/workers/w1/drain",
    "/v1/callbacks/01k.0.0.0.0.1.1.AAAAAAAAAAAAAAAAAAAAAA",
    "/v1/jobs/none/resume",
];

fn bodies() -> Vec<String> {
    let job = json!({ "name": "j", "labels": { "a": "b" }, "steps": {
        "a": { "run": "hold", "for_each": [1, { "x": [null] }], "retry": { "max_attempts": 2 } },
        "b": { "needs": ["a"], "http": { "url": "http://127.0.0.1:1/{{ item }}", "method": "POST" },
               "input": { "of": "{{ steps.a.outputs }}" } },
    } });
    let small = json!({ "name": "j", "steps": { "a": { "run": "hold" } } });
    let files = json!([{ "path": "a/b.txt", "content_base64": "a2VwdAo=", "executable": true }]);
    let submission = json!({ "file": small.to_string(), "files": files });
    let lines = [
        json!({ "job": small, "idempotency_key": "k" }).to_string(),
        json!({ "job": job }).to_string(),
    ];
    vec![
        job.to_string(),
        small.to_string(),
        submission.to_string(),
        lines.join("\n"),
        json!([{ "job": small }, { "job": small, "idempotency_key": null }]).to_string(),
        json!({ "reason": "enough" }).to_string(),
        json!({ "success": true, "output": { "a": [1] } }).to_string(),
        json!({ "success": false, "error": { "type": "E", "message": "m" }, "retry_after": 1 })
            .to_string(),
        json!({ "progress": { "percent": 1 } }).to_string(),
        "name: y\nsteps:\n  a: { run: hold }\n".to_owned(),
    ]
}

#[test]
fn bodies_are_taken_or_refused_with_a_code_and_the_server_goes_on() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start());
    Fuzz::new(Shape::Text, 1500).corpus(bodies()).run(|body| {
        // Where to, as what, and with which key: by what it is.
        let random = &mut Random::new(
            body.iter().fold(7, |sum, byte| sum * 31 % 1_000_003 + u64::from(*byte)),
        );
        let (path, kind) = (random.pick(&PATHS).unwrap(), random.pick(&KINDS).unwrap());
        let mut request = server.client.post(format!("{}{path}", server.url));
        request = request.header("content-type", *kind).body(body.to_vec());
        if random.one_in(3) {
            request = request.header("idempotency-key", format!("k{}", random.below(4)));
        }
        let answer = runtime.block_on(Answer::of(request));
        let what = format!("{path} as {kind}: {answer:?}");
        assert!(answer.status < 500, "{what}");
        if answer.status >= 400 {
            assert!(answer.json["code"].as_str().is_some_and(|code| !code.is_empty()), "{what}");
            assert!(answer.json["detail"].as_str().is_some_and(|why| !why.is_empty()), "{what}");
            let errors = answer.json["errors"].as_array().into_iter().flatten();
            for error in errors {
                assert!(error["line"].as_u64().is_some_and(|line| line > 0), "{what}");
                assert!(error["code"].is_string() && error["message"].is_string(), "{what}");
            }
        }
    });
    let told = runtime.block_on(server.get("/v1/jobs"));
    assert_eq!(told.status, 200);
}

/// The parts of an address that a client writes.
#[test]
fn addresses_are_answered_or_refused_with_a_code() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Server::start());
    let id = runtime.block_on(server.submit(super::HOLD));
    let corpus = [
        format!("/v1/jobs/{id}"),
        format!("/v1/jobs/{id}/events?after=1&limit=2"),
        format!("/v1/jobs/{id}/logs/a/a_0_attempt_1?tail=5"),
        format!("/v1/jobs/{id}/items?step=a&state=running&cursor=0.0.0.1&limit=3"),
        format!("/v1/jobs/{id}/outputs?cursor=0.0.1"),
        format!("/v1/jobs/{id}/explain?step=a"),
        format!("/v1/jobs/{id}/readiness"),
        "/v1/jobs?limit=2&cursor=12&state=running&label=a%3Db&name=x".to_owned(),
        "/v1/workers".to_owned(),
    ];
    let words =
        ["../", "%2e%2e%2f", "%00", "?", "&", "=", "limit=0", "cursor=", "%ff", "//", "a[0]"];
    Fuzz::new(Shape::Text, 1500).corpus(corpus).words(words).run(|input| {
        let text = String::from_utf8_lossy(input);
        // What no client can send in a line is not sent.
        let path: String =
            text.chars().filter(|c| !c.is_control() && *c != ' ' && *c != '#').collect();
        let Ok(url) =
            reqwest::Url::parse(&format!("{}/{}", server.url, path.trim_start_matches('/')))
        else {
            return;
        };
        // A stream that goes on is not for here.
        if url.path().contains("events")
            && url.query().is_some_and(|query| query.contains("follow"))
        {
            return;
        }
        let answer = runtime.block_on(Answer::of(server.client.get(url.clone())));
        assert!(answer.status < 500, "{url}: {answer:?}");
        if answer.status >= 400 && answer.status != 404 && answer.status != 405 {
            assert!(answer.json["code"].is_string(), "{url}: {answer:?}");
        }
    });
}
