//! What pages ask for.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};

use crate::server::{Answer, Server};
use crate::{FAILS, HOLD, OK};

async fn ask(server: &Server, path: &str, body: &Value) -> Answer {
    Answer::of(server.client.post(format!("{}{path}", server.url)).json(body)).await
}

fn names(page: &Answer) -> Vec<&str> {
    assert_eq!(page.status, 200, "{page:?}");
    page.json["jobs"].as_array().unwrap().iter().map(|job| job["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_page_is_served_at_its_own_addresses_and_nowhere_else() {
    let server = Server::start().await;
    let get = |path: &str, accept: &str| {
        let request = server.client.get(format!("{}{path}", server.url)).header("accept", accept);
        Answer::of(request)
    };
    for path in ["/", "/jobs", "/jobs/01h/steps/a", "/overview"] {
        let page = get(path, "text/html,application/xhtml+xml").await;
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        assert_eq!(page.headers["cache-control"], "no-cache");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert_eq!(page.headers["referrer-policy"], "no-referrer");
        assert!(page.text.to_lowercase().starts_with("<!doctype html>"), "{}", page.text);
    }
    get("/jobs", "application/json").await.is_problem(404, "not_found");
    get("/v1/nothing", "text/html").await.is_problem(404, "not_found");
    get("/assets/none.js", "*/*").await.is_problem(404, "not_found");
    let tag = get("/", "text/html").await.headers["etag"].clone();
    let request = server.client.get(&server.url).header("if-none-match", tag);
    let again = Answer::of(request).await;
    assert_eq!((again.status, again.text.as_str()), (304, ""));
    let request = server.client.get(&server.url).header("accept-encoding", "gzip, br");
    let compressed = request.send().await.unwrap();
    assert_eq!(compressed.headers()["content-encoding"], "br");
}

#[tokio::test]
async fn who_asks_is_told_what_they_may() {
    let server = Server::start().await;
    let me = server.get("/v1/me").await.json;
    assert_eq!((&me["auth"], &me["name"]), (&json!("none"), &Value::Null));
    assert_eq!(me["scopes"], json!(["read", "submit", "admin"]));
    assert_eq!(me["server"]["store"], "sqlite");
    let request = server.client.get(format!("{}/v1/me", server.url)).header("as-token", "ops");
    let me = Answer::of(request).await.json;
    assert_eq!((&me["auth"], &me["name"]), (&json!("required"), &json!("ops")));
    assert_eq!(me["scopes"], json!(["read", "submit"]));
    assert_eq!(me["may"], json!({"read": true, "submit": true, "admin": false}));
}

#[tokio::test]
async fn jobs_are_found_by_text_time_reason_and_several_states() {
    let server = Server::start().await;
    let good = server.submit(OK).await;
    let bad = server.submit(FAILS).await;
    for id in [&good, &bad] {
        server.until_over(id).await;
    }
    let held = server.submit(HOLD).await;
    let list = |query: &str| {
        let path = format!("/v1/jobs?{query}");
        async { server.get(&{ path }).await }
    };
    assert_eq!(names(&list("text=GOO").await), ["good"]);
    assert_eq!(names(&list(&format!("text={}", &bad[..26])).await), ["bad"]);
    assert_eq!(names(&list("text=nothing").await), Vec::<&str>::new());
    assert_eq!(names(&list("reason=attempts_exhausted").await), ["bad"]);
    assert_eq!(names(&list("reason=run_failed").await), ["bad"]);
    assert_eq!(names(&list("reason=window_expired").await), Vec::<&str>::new());
    assert_eq!(names(&list("state=failed&state=succeeded").await), ["bad", "good"]);
    let open = list("state=running&state=pending").await;
    assert_eq!(names(&open), ["slow"]);
    let row = list("state=failed").await.json["jobs"][0].clone();
    assert_eq!(row["stop_reason"], "attempts_exhausted");
    let at = row["submitted_at_ms"].as_u64().unwrap();
    assert_eq!(names(&list(&format!("since_ms={}", at + 3_600_000)).await), Vec::<&str>::new());
    assert_eq!(
        names(&list(&format!("since_ms={}&text=o", at - 3_600_000)).await),
        ["slow", "good"]
    );
    assert_eq!(names(&list(&format!("until_ms={}", at - 3_600_000)).await), Vec::<&str>::new());
    // A page that is full in the middle of what was looked through goes on right behind.
    let first = list("text=o&limit=1").await;
    assert_eq!(names(&first), ["slow"]);
    let next = first.json["next"].as_str().unwrap();
    assert_eq!(names(&list(&format!("text=o&limit=1&cursor={next}")).await), ["good"]);
    for wrong in ["reason=tired", "state=failed&state=odd", "since_ms=soon"] {
        list(wrong).await.is_problem(400, "bad_request");
    }
    let _ = held;
}

#[tokio::test]
async fn pages_are_told_which_jobs_have_changed() {
    let server = Server::start().await;
    let request = server.client.get(format!("{}/v1/jobs/changes", server.url));
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut stream = Box::pin(response.bytes_stream());
    let mut text = String::new();
    let id = server.submit(OK).await;
    let told = tokio::time::timeout(Duration::from_secs(20), async {
        while !text.contains(&id) {
            let bytes = stream.next().await.expect("goes on").unwrap();
            text.push_str(&String::from_utf8_lossy(&bytes));
        }
    });
    told.await.expect("the job is told");
    let first = text.split("\n\n").next().unwrap();
    assert!(first.starts_with("event: jobs\ndata: {\"ids\":[],\"more\":false,"), "{first}");
    server.notifications.close();
    let rest = tokio::time::timeout(Duration::from_secs(20), async {
        while stream.next().await.is_some() {}
    });
    rest.await.expect("it ends with the server");
}

#[tokio::test]
async fn items_come_by_index_and_state() {
    let server = Server::start().await;
    let fan = "name: fan\nretry: { max_attempts: 2, initial_delay: 1ms }\n\
               steps: { a: { run: fail, for_each: { range: 150 }, max_failed: 150 } }";
    let id = server.submit(fan).await;
    server.until_over(&id).await;
    let page = |query: &str| {
        let path = format!("/v1/jobs/{id}/steps/a/items?{query}");
        async { server.get(&{ path }).await }
    };
    let first = page("limit=2").await.json;
    assert_eq!((&first["total"], &first["counts"]), (&json!(150), &json!({"failed": 150})));
    assert_eq!((&first["next"], first["items"].as_array().unwrap().len()), (&json!(2), 2));
    assert_eq!(first["items"][0]["attempts"].as_array().unwrap().len(), 2);
    let late = page("from=148&state=failed").await.json;
    assert_eq!(late["next"], Value::Null);
    let last = &late["items"][1];
    assert_eq!((&last["index"], &last["state"]), (&json!(149), &json!("failed")));
    assert_eq!((&last["failures"], &last["reason"]), (&json!(2), &json!("attempts_exhausted")));
    assert_eq!(last["attempts_left_out"], true);
    assert_eq!(page("state=succeeded").await.json["items"], json!([]));
    page("state=odd").await.is_problem(400, "bad_request");
    server.get(&format!("/v1/jobs/{id}/steps/b/items")).await.is_problem(404, "not_found");
    let elsewhere = format!("/v1/jobs/{id}/steps/a/items?datacenter=eu");
    server.get(&elsewhere).await.is_problem(404, "not_found");
}

#[tokio::test]
async fn the_plan_is_shown_in_the_words_of_a_file() {
    let server = Server::start().await;
    let id = server.submit(FAILS).await;
    let plan = server.get(&format!("/v1/jobs/{id}/plan")).await.json;
    let step = &plan["steps"]["a"];
    assert_eq!(step["policy"]["backoff"], json!({"value": "fixed", "source": "job"}));
    assert_eq!(step["policy"]["retryable"], json!({"value": true, "source": "default"}));
    assert_eq!((&step["action"], &step["delays_ms"]), (&json!("run"), &json!([1, 1])));
    assert_eq!((&plan["goals"], &plan["datacenters"]), (&json!(["a"]), &Value::Null));
    assert_eq!(plan["file"]["reconstructed"], true);
    let text = plan["file"]["text"].as_str().unwrap();
    let again = server.submit(text).await;
    server.until_over(&again).await;
    let mut again = server.get(&format!("/v1/jobs/{again}/plan")).await.json;
    // The text has each policy with its step.
    assert_eq!(again["steps"]["a"]["policy"]["backoff"]["source"], "step");
    again["steps"]["a"]["policy"] = plan["steps"]["a"]["policy"].clone();
    assert_eq!(again, plan);
}

#[tokio::test]
async fn another_policy_is_judged_on_what_was_recorded() {
    let server = Server::start().await;
    let id = server.submit(FAILS).await;
    server.until_over(&id).await;
    let path = format!("/v1/jobs/{id}/what-if");
    let answer = ask(&server, &path, &json!({"step": "a", "with": {"max_attempts": 4}})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json["policy"], json!({"max_attempts": {"from": 3, "to": 4}}));
    assert_eq!(answer.json["differs"], 1);
    let last = &answer.json["verdicts"][2];
    assert_eq!(last["recorded"], json!({"verdict": "stop", "reason": "attempts_exhausted"}));
    assert_eq!(
        (&last["judged"]["verdict"], &last["judged"]["delay_ms"]),
        (&json!("retry"), &json!(1))
    );
    let same = ask(&server, &path, &json!({"with": {}})).await.json;
    assert_eq!((&same["differs"], &same["policy"]), (&json!(0), &json!({})));
    let wrong = ask(&server, &path, &json!({"with": {"max_atempts": 4}})).await;
    wrong.is_problem(400, "invalid_policy");
    assert_eq!(wrong.json["errors"][0]["path"], "max_atempts");
    ask(&server, &path, &json!({"step": "b", "with": {}})).await.is_problem(404, "not_found");
    ask(&server, &path, &json!({"wiht": {}})).await.is_problem(400, "bad_request");
    let used = server.get(&format!("/v1/jobs/{id}/budget")).await.json;
    assert_eq!(used["total"], json!({"used": 2, "limit": null}));
    assert_eq!(used["draws"].as_array().unwrap().len(), 2);
    assert_eq!(used["per_step"][0]["step"], "a");
}

#[tokio::test]
async fn many_jobs_are_acted_on_and_each_answers_for_itself() {
    let server = Server::start().await;
    let good = server.submit(OK).await;
    let bad = server.submit(FAILS).await;
    for id in [&good, &bad] {
        server.until_over(id).await;
    }
    let held = server.submit(HOLD).await;
    let act = |body: Value| {
        let server = &server;
        async move { ask(server, "/v1/jobs/actions", &body).await }
    };
    let outcomes = |answer: &Answer| -> Vec<(String, String)> {
        assert_eq!(answer.status, 200, "{answer:?}");
        let results = answer.json["results"].as_array().unwrap().iter();
        results
            .map(|it| {
                (it["id"].as_str().unwrap().to_owned(), it["outcome"].as_str().unwrap().to_owned())
            })
            .collect()
    };
    let said = |id: &str, outcome: &str| (id.to_owned(), outcome.to_owned());
    let ids = [&good, &bad, &held];
    let would = act(json!({"action": "cancel", "ids": ids, "dry_run": true})).await;
    assert_eq!(
        outcomes(&would),
        [said(&good, "refused"), said(&bad, "refused"), said(&held, "would")]
    );
    assert_eq!(would.json["results"][0]["problem"]["code"], "already_ended");
    let status = server.get(&format!("/v1/jobs/{held}")).await.json;
    assert_eq!(status["state"], "running", "nothing was done");
    let retry = |key: &str| {
        act(json!({
            "action": "retry", "filter": {"state": ["failed", "succeeded"]}, "grant": 1,
            "reason": "the service is back", "idempotency_key": key,
        }))
    };
    let done = retry("night-1").await;
    assert_eq!(outcomes(&done), [said(&bad, "ok"), said(&good, "refused")]);
    let new = done.json["results"][0]["new_id"].as_str().unwrap();
    let again = retry("night-1").await;
    let again =
        again.json["results"].as_array().unwrap().iter().find(|it| it["id"] == bad.as_str());
    assert_eq!(again.unwrap()["new_id"], new, "sent again it is the same job");
    let cancelled = act(json!({"action": "cancel", "filter": {"text": "slow"}})).await;
    assert_eq!(outcomes(&cancelled), [said(&held, "ok")]);
    assert_eq!(server.get(&format!("/v1/jobs/{held}")).await.json["state"], "cancelled");
    let nobody = act(json!({"action": "pause", "ids": ["nobody"]})).await;
    assert_eq!(nobody.json["results"][0]["problem"]["code"], "not_found");
    for wrong in [
        json!({"action": "cancel"}),
        json!({"action": "cancel", "filter": {}}),
        json!({"action": "cancel", "filter": {"state": "odd"}}),
        json!({"action": "cancel", "filter": {"until_ms": 1_u64 << 53}}),
        json!({"action": "cancel", "ids": [], "filter": {"state": "running"}}),
        json!({"action": "cancel", "ids": vec!["a"; 501]}),
        json!({"action": "cancel", "ids": [], "grant": 1}),
        json!({"action": "dance", "ids": []}),
    ] {
        act(wrong).await.is_problem(400, "bad_request");
    }
}
