//! What SQL says of the items of a real server's jobs, held against what its REST says at the same moments.

use serde_json::{Value, json};
use steadfast_store::testing::{Client, TestCluster};

use super::harness::{Place, STORE_URL, gated, wait_for};

const COLUMNS: &str = "datacenter, step, role, item, dependencies_satisfied, attempts, failures, \
                       max_attempts, retryable, eligible, \
                       (extract(epoch FROM next_retry_at) * 1000)::bigint AS next_retry_at_ms, ready, reason";

/// What REST says of the items that have not ended, a row for each.
fn open_items(page: &Value) -> Vec<Value> {
    const ENDED: [&str; 2] = ["succeeded", "attempts_exhausted"];
    let rows = page["readiness"].as_array().expect("rows").iter();
    let rows = rows.filter(|row| !row["reason"].as_str().is_some_and(|why| ENDED.contains(&why)));
    let rows = rows.flat_map(|row| {
        let first = row["item"].as_u64().expect("a number");
        (first..first + row["items"].as_u64().unwrap_or(1)).map(move |item| {
            let mut row = row.clone();
            let columns = row.as_object_mut().expect("an object");
            let items = columns.remove("items").expect("how many");
            columns.remove("name");
            columns.insert("item".to_owned(), if items.is_null() { items } else { json!(item) });
            row
        })
    });
    rows.collect()
}

#[test]
fn the_view_says_what_the_server_says_while_jobs_run() {
    let Some(cluster) = TestCluster::shared() else { return };
    let (place, url) = (Place::new(), cluster.database());
    let server = place.server().set(STORE_URL, &url).start();
    let _worker = place.worker(&server.url(), "w1").slots(3).start();
    let mut client = Client::new(&url);
    let retry = json!({ "backoff": "fixed", "initial_delay": "40ms", "max_attempts": 4 });
    let job = json!({ "name": "j", "steps": {
        // Some of its attempts fail, by a number that is another one each time.
        "flaky": { "run": "test $(( $(date +%N | sed s/^0*//) % 3 )) -gt 0", "for_each": { "range": 12 },
                   "parallelism": 2, "retry": retry, "max_failed": 12 },
        "after": { "run": "true", "needs": ["flaky"] },
        "late": { "run": "false", "retry": { "backoff": "fixed", "initial_delay": "1h", "max_delay": "1h" } },
        "held": { "run": gated(&place, "gate"), "needs": ["after"] },
    } });
    let jobs = [(); 3].map(|()| server.submit(&job.to_string()));
    let mut compared = 0;
    wait_for("jobs that only wait for the gate and for an hour", || {
        let mut all_wait = true;
        for id in &jobs {
            let kept = format!("SELECT seq, readiness FROM steadfast.jobs WHERE id = '{id}'");
            let before = client.json(&kept);
            let page = server.get(&format!("/v1/jobs/{id}/readiness?limit=1000")).json();
            let sql = format!(
                "SELECT {COLUMNS} FROM steadfast.jobs j, \
                 steadfast.readiness_v1(j.readiness::jsonb, {}) WHERE j.id = '{id}'",
                page["at_ms"]
            );
            let rows = client.json(&sql);
            // Nothing was written between the two.
            if client.json(&kept) == before {
                assert_eq!(rows, open_items(&page), "{before:?}");
                compared += 1;
            }
            let reasons: Vec<_> = rows.iter().map(|row| &row["reason"]).collect();
            all_wait &= reasons == ["backing_off", "running"];
        }
        all_wait.then_some(())
    });
    assert!(compared >= jobs.len(), "at the end nothing is written");
    // Nothing changes now, and the view is of this moment.
    for id in &jobs {
        let view = format!("SELECT {COLUMNS} FROM steadfast.step_readiness WHERE job = '{id}'");
        let page = server.get(&format!("/v1/jobs/{id}/readiness?limit=1000")).json();
        assert_eq!(client.json(&view), open_items(&page));
    }
    for id in &jobs {
        assert_eq!(server.post(&format!("/v1/jobs/{id}/cancel")).status, 200);
    }
    place.open("gate");
    wait_for("the view to be empty", || {
        client.json("SELECT job FROM steadfast.step_readiness").is_empty().then_some(())
    });
}
