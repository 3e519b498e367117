//! Which items may start, as REST tells it.

use serde_json::{Value, json};

use crate::server::{Answer, Server};

impl Server {
    async fn readiness(&self, id: &str, query: &str) -> Answer {
        let answer = self.get(&format!("/v1/jobs/{id}/readiness?{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer
    }
}

#[tokio::test]
async fn what_may_start_and_what_keeps_the_others() {
    let server = Server::start().await;
    let job = "name: j\nretry: { backoff: fixed, initial_delay: 1h, max_delay: 1h }\nsteps:\n  \
               a: { run: fail }\n  \
               b: { run: hold, for_each: { range: 1000 }, parallelism: 1 }\n  \
               c: { run: ok, needs: [a, b] }\n";
    let id = server.submit(job).await;
    let page = loop {
        let page = server.readiness(&id, "").await.json;
        if page["readiness"][0]["reason"] == "backing_off" && page["readiness"][1]["attempts"] == 1
        {
            break page;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&page["job"], &page["next"]), (&json!(id), &Value::Null));
    let status = server.get(&format!("/v1/jobs/{id}")).await.json;
    let due = &status["runs"][0]["steps"]["a"]["items"][0]["retry_available_at_ms"];
    assert!(due.as_u64() > page["at_ms"].as_u64());
    let row = |step: &str, item: u32, items: u32, reason: &str| {
        json!({
            "name": step, "datacenter": null, "step": step, "role": "item", "item": item, "items": items,
            "dependencies_satisfied": true, "attempts": 0, "failures": 0, "max_attempts": 3,
            "retryable": true, "eligible": true, "next_retry_at_ms": null, "ready": false, "reason": reason,
        })
    };
    let with = |mut row: Value, changes: Value| {
        let changes = changes.as_object().unwrap().clone();
        row.as_object_mut().unwrap().extend(changes);
        row
    };
    let failed = json!({"attempts": 1, "failures": 1, "next_retry_at_ms": due});
    let expected = json!([
        with(row("a", 0, 1, "backing_off"), failed),
        with(row("b", 0, 1, "running"), json!({"name": "b[0]", "attempts": 1})),
        row("b", 1, 999, "parallelism"),
        with(row("c", 0, 1, "waiting"), json!({"dependencies_satisfied": false})),
    ]);
    assert_eq!(page["readiness"], expected);
    assert_eq!(server.post(&format!("/v1/jobs/{id}/pause")).await.status, 200);
    let paused = server.readiness(&id, "").await.json;
    let reasons: Vec<&Value> =
        paused["readiness"].as_array().unwrap().iter().map(|row| &row["reason"]).collect();
    assert_eq!(reasons, ["paused", "running", "paused", "paused"]);
}

#[tokio::test]
async fn readiness_is_read_page_by_page() {
    let server = Server::start().await;
    let job = "name: j\nretry: { max_attempts: 1 }\ndatacenters: [eu]\nsteps:\n  \
               a: { run: fail, for_each: { range: 6 }, max_failed: 6, compensate: { run: ok } }\n  \
               b: { run: fail, needs: [a], on_failure: { run: fail } }\n";
    let id = server.submit(job).await;
    server.until_over(&id).await;
    let whole = server.readiness(&id, "limit=1000").await.json["readiness"].clone();
    for limit in [1, 2, 5] {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.readiness(&id, &format!("limit={limit}{cursor}")).await.json;
            let rows = page["readiness"].as_array().unwrap();
            assert!(rows.len() <= limit);
            all.extend(rows.clone());
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(Value::from(all), whole);
    }
    let names: Vec<&str> =
        whole.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    let items = ["eu/a[0]", "eu/a[1]", "eu/a[2]", "eu/a[3]", "eu/a[4]", "eu/a[5]"];
    assert_eq!(names, [&items[..], &["eu/a~", "eu/b", "eu/b!"]].concat());
    for wrong in ["x", "1.2.0", "0.0.3.0", "0.0.0.0.0", "-1.0.0.0", "0.0.0.99999999999", "+1.0.0.0"]
    {
        let path = format!("/v1/jobs/{id}/readiness?cursor={wrong}");
        server.get(&path).await.is_problem(400, "bad_cursor");
    }
    let past = server.readiness(&id, "cursor=9.9.2.9").await.json;
    assert_eq!((&past["readiness"], &past["next"]), (&json!([]), &Value::Null));
    server.get("/v1/jobs/nothing/readiness").await.is_problem(404, "not_found");
}
