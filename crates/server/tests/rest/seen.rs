//! What anybody can see of a job, and who did what to it.

use reqwest::RequestBuilder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use steadfast_api::{
    AttemptsPage, JobCounts, JobStatus, JobsPage, LogsPage, OutputsPage, ReadinessPage, WorkersPage,
};
use steadfast_core::explain::Explanation;
use steadfast_jobfile::Operator;

use crate::server::{Answer, Server};
use crate::{HOLD, OK};

fn command(server: &Server, id: &str, wish: &str, body: &Value) -> RequestBuilder {
    let request = server.client.post(format!("{}/v1/jobs/{id}/{wish}", server.url));
    request.header("as-token", "ci").json(body)
}

#[tokio::test]
async fn who_did_something_to_a_job_and_why_is_seen_everywhere() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    let paused = Answer::of(command(&server, &id, "pause", &json!({"reason": "disk swap"}))).await;
    let asked = &paused.json["pause_request"];
    assert_eq!((&asked["by"], &asked["reason"]), (&json!("ci"), &json!("disk swap")));
    assert!(asked["at_ms"].is_u64(), "{asked}");
    let resumed = Answer::of(command(&server, &id, "resume", &json!({}))).await;
    assert_eq!(resumed.json["pause_request"], Value::Null);
    let why = json!({"reason": "wrong input\n\u{1b}[2J"});
    let cancelled = Answer::of(command(&server, &id, "cancel", &why)).await;
    let asked = &cancelled.json["cancel_request"];
    assert_eq!((&asked["by"], &asked["reason"]), (&json!("ci"), &why["reason"]));
    let told = server.until_over(&id).await;
    let of = |name: &str| &told.iter().find(|told| told.event == name).expect(name).data;
    assert_eq!(of("JobPaused")["requested"], json!({"by": "ci", "reason": "disk swap"}));
    assert_eq!(of("JobResumed")["requested"], json!({"by": "ci"}));
    assert_eq!(of("CancelRequested")["requested"]["by"], "ci");
    let explained = server.get(&format!("/v1/jobs/{id}/explain")).await;
    let sentence = explained.json["job"]["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("cancelled: ci cancelled it: wrong input"), "{sentence}");

    let again = Answer::of(command(&server, &id, "retry", &json!({"reason": "fixed"}))).await;
    assert_eq!(again.status, 201, "{again:?}");
    let new = server.get(&format!("/v1/jobs/{}", again.json["id"].as_str().unwrap())).await;
    let asked = &new.json["retry_request"];
    assert_eq!((&asked["by"], &asked["reason"]), (&json!("ci"), &json!("fixed")));
}

#[tokio::test]
async fn a_reason_that_is_not_taken_changes_nothing() {
    let server = Server::start().await;
    let id = server.submit(HOLD).await;
    for body in [json!({"reason": "x".repeat(501)}), json!({"reason": ""}), json!({"why": "x"})] {
        Answer::of(command(&server, &id, "cancel", &body)).await.is_problem(400, "bad_request");
    }
    let text = server.client.post(format!("{}/v1/jobs/{id}/cancel", server.url)).body("because");
    Answer::of(text).await.is_problem(415, "unsupported_media_type");
    assert_eq!(server.get(&format!("/v1/jobs/{id}")).await.json["state"], "running");
    // Nobody need say why, nor who they are.
    let cancelled = server.post(&format!("/v1/jobs/{id}/cancel")).await;
    assert_eq!(cancelled.json["state"], "cancelled");
    assert_eq!(cancelled.json["cancel_request"]["by"], Value::Null);
}

#[tokio::test]
async fn the_door_tells_its_warnings_with_its_own_numbers() {
    let mut operator = Operator::default();
    operator.budget_total.max = 7;
    let server = Server::with(operator, 0).await;
    let yaml = "name: j\nretry_budget: { total: 500 }\nsteps: { a: { run: ok } }";
    for status in [201, 200] {
        let answer =
            Answer::of(server.submission(yaml).header("idempotency-key", "the-same")).await;
        assert_eq!(answer.status, status);
        let warnings = answer.json["warnings"].as_array().expect("a list");
        let clamped = warnings.iter().find(|warning| warning["code"] == "budget_clamped");
        let clamped = clamped.unwrap_or_else(|| panic!("{warnings:?}"));
        assert_eq!((&clamped["path"], &clamped["line"]), (&json!("retry_budget.total"), &json!(2)));
        let message = clamped["message"].as_str().unwrap();
        assert!(message.contains("500") && message.contains("leaves 7"), "{message}");
    }
    let plain = Answer::of(server.submission(OK)).await;
    assert_eq!(plain.json["warnings"], json!([]));
}

#[tokio::test]
async fn an_item_is_asked_for_by_the_name_that_is_shown() {
    let server = Server::start().await;
    let yaml = "name: j\nsteps: { archive: { for_each: [disk, mail], run: ok } }";
    let id = server.submit(yaml).await;
    server.until_over(&id).await;
    let logs = server.get(&format!("/v1/jobs/{id}/logs?step=archive%5B1%5D")).await;
    let logs = logs.json["logs"].as_array().unwrap().clone();
    assert_eq!(logs.len(), 1, "{logs:?}");
    assert_eq!(logs[0]["item"], 1);
    let explained = server.get(&format!("/v1/jobs/{id}/explain?step=archive%5B1%5D")).await;
    let verdicts = explained.json["verdicts"].as_array().unwrap().clone();
    assert_eq!(verdicts.len(), 1, "{verdicts:?}");
    let item = &verdicts[0]["item"];
    assert_eq!((&item["name"], &item["value"]), (&json!("archive[1]"), &json!("mail")));
    for route in ["explain", "logs"] {
        let none = server.get(&format!("/v1/jobs/{id}/{route}?step=archive%5B2%5D")).await;
        none.is_problem(404, "not_found");
        let detail = none.json["detail"].as_str().unwrap();
        assert!(detail.contains("0 to 1; there is no [2]"), "{detail}");
    }
}

#[tokio::test]
async fn a_status_has_what_the_document_says_and_nothing_else() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.json;
    let best_effort = "name: j\ndatacenters: [a, b]\nbest_effort: { min_datacenters: 1 }\n\
                       retry_budget: {}\nsteps: { s: { run: ok }, t: { needs: [s], run: ok } }";
    let skipped = "name: j\ngoals: [b]\nretry: { max_attempts: 2, backoff: [1ms] }\n\
                   steps: { a: { run: fail, on_failure: { run: ok, then: fail } }, \
                   b: { run: ok }, c: { needs: [a], run: ok } }";
    for (yaml, wishes) in
        [(best_effort, &["retry"][..]), (skipped, &[]), (HOLD, &["pause", "cancel"])]
    {
        let answer = Answer::of(server.submission(yaml)).await;
        fits(&document, &json!({"$ref": "#/components/schemas/Created"}), &answer.json, "created");
        let id = answer.json["id"].as_str().unwrap().to_owned();
        if yaml != HOLD {
            server.until_over(&id).await;
        }
        for wished in wishes {
            Answer::of(command(&server, &id, wished, &json!({"reason": "so"}))).await;
        }
        let status = server.get(&format!("/v1/jobs/{id}")).await.json;
        let schema = json!({"$ref": "#/components/schemas/JobStatus"});
        fits(&document, &schema, &status, "status");
        reads_back::<JobStatus>(&status);
        for (page, name, reads_back) in PAGES {
            let answer = server.get(&page.replace("{id}", &id)).await.json;
            let schema = json!({"$ref": format!("#/components/schemas/{name}")});
            fits(&document, &schema, &answer, name);
            reads_back(&answer);
        }
        if yaml == best_effort {
            let told = &status["best_effort"];
            assert_eq!(told["min_datacenters"], json!({"requested": 1, "effective": 1}));
            assert_eq!(told["deadline_ms"], 300_000);
            assert!(status["completion"]["ratio"].is_f64());
        }
        if yaml == skipped {
            let steps = &status["runs"][0]["steps"];
            assert_eq!(steps["c"]["skipped_because"], "a");
            assert_eq!(steps["a"]["retries_used"], 1);
            assert_eq!(
                status["result"],
                json!({"datacenters": [], "outputs": {"a": "done", "b": "done"}})
            );
        }
    }
}

/// What clients read with the types of `steadfast_api`, and the schema of each.
type Page = (&'static str, &'static str, fn(&Value));

const PAGES: &[Page] = &[
    ("/v1/jobs", "JobsPage", reads_back::<JobsPage>),
    ("/v1/jobs/{id}/attempts", "AttemptsPage", reads_back::<AttemptsPage>),
    ("/v1/jobs/{id}/outputs", "OutputsPage", reads_back::<OutputsPage>),
    ("/v1/jobs/{id}/readiness", "ReadinessPage", reads_back::<ReadinessPage>),
    ("/v1/jobs/{id}/logs", "LogsPage", reads_back::<LogsPage>),
    ("/v1/jobs/{id}/explain", "Explanation", reads_back::<Explanation>),
    ("/v1/jobs/counts", "JobCounts", reads_back::<JobCounts>),
    ("/v1/workers", "Workers", reads_back::<WorkersPage>),
];

/// The one type that the server writes and clients read: nothing of an answer is lost on the way.
#[track_caller]
fn reads_back<T: Serialize + DeserializeOwned>(answer: &Value) {
    let read: T = serde_json::from_value(answer.clone()).expect("a client can read it");
    assert_eq!(serde_json::to_value(read).expect("JSON"), *answer);
}

/// As a strict reader of the document would take it: what is required is there, and nothing that is not described.
#[track_caller]
fn fits(document: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/components/schemas/").expect("a schema");
        return fits(document, &document["components"]["schemas"][name], value, place);
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let of_value = any.iter().find(|schema| schema["type"] != "null");
        if !value.is_null() {
            fits(document, of_value.expect("not only null"), value, place);
        }
        return;
    }
    match value {
        Value::Object(map) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(map.contains_key(name.as_str().unwrap()), "{place} has no {name}");
            }
            for (name, value) in map {
                let known = schema["properties"].get(name);
                let known = known.or_else(|| schema.get("additionalProperties"));
                match known {
                    Some(schema) => fits(document, schema, value, &format!("{place}.{name}")),
                    None if schema.get("properties").is_none() => {}
                    None => panic!("{place}.{name} is not in the document"),
                }
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                fits(document, &schema["items"], value, &format!("{place}[{index}]"));
            }
        }
        _ => {}
    }
}

/// The guard stands before every route, so a client must expect its answers from each.
#[tokio::test]
async fn every_route_is_described_with_what_the_guard_may_answer() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.json;
    let scheme = &document["components"]["securitySchemes"]["token"];
    assert_eq!((&scheme["type"], &scheme["scheme"]), (&json!("http"), &json!("bearer")));
    assert_eq!(document["security"], json!([{ "token": [] }, {}]));
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for status in ["401", "403", "415", "429", "503"] {
                let problem =
                    &operation["responses"][status]["content"]["application/problem+json"];
                assert!(problem.is_object(), "{method} {path} {status}");
            }
            // A callback's token is in its address.
            let own = path.starts_with("/v1/callbacks/");
            assert_eq!(operation.get("security"), own.then_some(&json!([])), "{method} {path}");
        }
    }
}
