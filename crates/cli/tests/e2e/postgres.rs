//! A server that keeps everything in a database: what is asked of one with a data folder is asked of it too.

use std::fs;

use serde_json::json;
use steadfast_store::testing::{TestCluster, execute, query};

use super::harness::{
    Place, STORE_URL, Server, attempt_states, gated, item, number, step, wait_for,
};

/// Longer than a server waits for the claim of one that was killed.
const LEASE_MS: u64 = 15_000;

fn server(place: &Place, url: &str, address: &str) -> Server {
    place.server().set(STORE_URL, url).lease(LEASE_MS).at(address).start()
}

/// One test, because a cluster takes long to start and each test may be a process.
#[test]
fn everything_is_kept_in_postgres() {
    let Some(cluster) = TestCluster::shared() else { return };
    a_job_outlives_its_server(cluster);
    tokens_and_purges_go_to_the_database(cluster);
    a_server_without_the_right_to_make_a_schema_works_with_one_that_was_made(cluster);
    the_number_of_shards_is_fixed_when_the_schema_is_made(cluster);
    // Of its own, so that nobody else's is away.
    let crashes = TestCluster::start("").expect("as the other one");
    a_crash_of_the_database_costs_no_attempt(&crashes);
}

fn a_job_outlives_its_server(cluster: &TestCluster) {
    let (place, url) = (Place::new(), cluster.database());
    let address = super::harness::address_of_its_own();
    let first = server(&place, &url, &address);
    let _worker = place.worker(&first.url(), "w1").slots(4).start();
    fs::write(place.path("data.txt"), "attached").expect("writes");
    let script = format!("cat data.txt; {}", gated(&place, "gate"));
    let job = json!({ "name": "long", "steps": {
        "a": { "run": script, "files": ["data.txt"], "for_each": { "range": 3 },
               "retry": { "max_attempts": 1 } },
        "b": { "run": "echo done", "needs": ["a"] },
    } });
    fs::write(place.path("job.json"), job.to_string()).expect("writes");
    let submit = ["submit", &place.text("job.json"), "--server", &first.url(), "-o", "json"];
    let submitted: serde_json::Value = serde_json::from_str(&place.call(&submit)).expect("JSON");
    let job = submitted["id"].as_str().expect("an id").to_owned();
    place.has_lines("ran", 3);
    first.process.kill();
    let second = server(&place, &url, &address);
    second.until(&job, |status| step(status, 0)["counts"]["running"] == 3);
    place.open("gate");
    let status = second.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    for item in step(&status, 0)["items"].as_array().expect("items") {
        assert_eq!(attempt_states(item), ["succeeded"], "{item:#}");
        assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 0));
    }
    assert_eq!(place.lines("ran").len(), 3, "nothing ran twice");
    let logs = wait_for("the logs", || {
        let logs = place.call(&["logs", &job, "--server", &second.url()]);
        (logs.matches("attached").count() == 3 && logs.contains("done")).then_some(logs)
    });
    assert_eq!(logs.matches("done").count(), 1, "{logs}");
    let listed = place.call(&["list", "--server", &second.url()]);
    assert!(listed.contains("long"), "{listed}");
    assert!(!place.path("data").join("steadfast.db").exists(), "there is no other database");
}

fn tokens_and_purges_go_to_the_database(cluster: &TestCluster) {
    let (place, url) = (Place::new(), cluster.database());
    let token = |scope: &str| {
        place.call(&["token", "create", "--scope", scope, "--store", &url]).trim().to_owned()
    };
    let admin = token("admin");
    let server = place.server().set(STORE_URL, &url).auth_required().start();
    let _worker =
        place.worker(&server.url(), "w1").env("STEADFAST_TOKEN", &token("worker")).start();
    let headers = |token: &str| format!("Bearer {token}");
    let bearer = headers(&admin);
    let headers = [("Content-Type", "application/json"), ("Authorization", &*bearer)];
    let job = json!({ "name": "short", "steps": { "s": { "run": "echo hello" } } }).to_string();
    assert_eq!(server.ask("POST", "/v1/jobs", &[headers[0]], &job).expect("an answer").status, 401);
    let accepted = server.ask("POST", "/v1/jobs", &headers, &job).expect("an answer");
    assert_eq!(accepted.status, 201, "{}", accepted.body);
    let path = format!("/v1/jobs/{}", accepted.json()["id"].as_str().expect("an id"));
    wait_for("its end", || {
        let status = server.ask("GET", &path, &headers, "")?.json();
        (!status["finished_at_ms"].is_null()).then_some(())
    });
    let purged = place.call(&["purge", "--older", "0s", "--store", &url]);
    assert_eq!(purged.trim(), "1 job is gone");
    assert_eq!(server.ask("GET", &path, &headers, "").expect("an answer").status, 404);
    for table in ["jobs", "events", "plans", "logs", "log_pieces"] {
        let left = query(&url, &format!("SELECT count(*) FROM steadfast.{table}"));
        assert_eq!(left, ["(0)"], "{table}");
    }
    let id = admin.split('_').nth(1).expect("its id");
    place.call(&["token", "revoke", id, "--store", &url]);
    wait_for("the server to hear of it", || {
        let status = server.ask("GET", "/v1/jobs", &headers, "").expect("an answer").status;
        (status == 401).then_some(())
    });
}

/// While it is away nothing is acknowledged, and what workers run goes on.
fn a_crash_of_the_database_costs_no_attempt(cluster: &TestCluster) {
    let (place, url) = (Place::new(), cluster.database());
    let server = place.server().set(STORE_URL, &url).lease(LEASE_MS).start();
    let _worker = place.worker(&server.url(), "w1").slots(4).start();
    let job = json!({ "name": "j", "steps": { "s": {
        "run": gated(&place, "gate"), "for_each": { "range": 4 }, "retry": { "max_attempts": 1 },
    } } });
    let job = server.submit(&job.to_string());
    place.has_lines("ran", 4);
    cluster.crash();
    place.open("gate");
    wait_for("the server to say that it is not ready", || {
        let ready = server.get("/readyz");
        (ready.status == 503 && ready.body.contains("database")).then_some(())
    });
    cluster.restart();
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    for item in step(&status, 0)["items"].as_array().expect("items") {
        assert_eq!(attempt_states(item), ["succeeded"], "{item:#}");
    }
    assert_eq!(place.lines("ran").len(), 4);
    let next = json!({ "name": "n", "steps": { "s": { "run": "true" } } });
    let next = server.submit(&next.to_string());
    assert_eq!(attempt_states(item(&server.end(&next))), ["succeeded"]);
    assert_eq!(server.get("/readyz").status, 200);
}

fn the_number_of_shards_is_fixed_when_the_schema_is_made(cluster: &TestCluster) {
    const SHARDS: &str = "STEADFAST_STORE__SHARDS";
    let (place, url) = (Place::with_data_folders(), cluster.database());
    let made = place.call(&["migrate", "--store", &url, "--shards", "5"]);
    assert!(made.contains("the schema is made, with 5 shards"), "{made}");
    let again =
        place.command(&["migrate", "--store", &url, "--shards", "6"]).output().expect("it starts");
    assert_eq!(again.status.code(), Some(2));
    let refused = "made with 5 shards, and 6 are asked for";
    assert!(String::from_utf8_lossy(&again.stderr).contains(refused));
    let mut other = place.server().set(STORE_URL, &url).set(SHARDS, "6").try_start("server");
    assert_eq!(other.ends().code(), Some(2));
    other.says(refused);
    let mut folder = place.server().set(SHARDS, "6").try_start("server");
    assert_eq!(folder.ends().code(), Some(2));
    folder.says("a data folder has no shards");
    let server = place.server().set(STORE_URL, &url).set(SHARDS, "5").start();
    let _worker = place.worker(&server.url(), "w1").start();
    let job =
        json!({ "name": "j", "steps": { "s": { "run": "true", "for_each": { "range": 9 } } } });
    let jobs: Vec<_> = (0..9).map(|_| server.submit(&job.to_string())).collect();
    for job in jobs {
        assert_eq!(server.end(&job)["state"], "succeeded");
    }
    let other = query(&url, "SELECT count(*) FROM steadfast.jobs WHERE shard NOT BETWEEN 0 AND 4");
    assert_eq!(other, ["(0)"]);
}

fn a_server_without_the_right_to_make_a_schema_works_with_one_that_was_made(cluster: &TestCluster) {
    let (place, url) = (Place::new(), cluster.database());
    execute(&url, "CREATE ROLE \"the keeper\" LOGIN");
    let theirs = url.replace("steadfast@", "the%20keeper@");
    let mut refused = place.server().set(STORE_URL, &theirs).try_start("server");
    assert_eq!(refused.ends().code(), Some(2));
    refused.says("there is no schema yet");
    refused.says("steadfast migrate --store URL --grant USER");
    let migrate = |more: &[&str]| place.call(&[&["migrate", "--store", &url], more].concat());
    assert!(migrate(&[]).contains("the schema is made, with 64 shards"));
    let mut refused = place.server().set(STORE_URL, &theirs).try_start("server");
    assert_eq!(refused.ends().code(), Some(2), "it was granted nothing");
    refused.says("permission denied");
    let again = migrate(&["--grant", "the keeper", "-o", "json"]);
    let again: serde_json::Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!((&again["made"], &again["granted_to"]), (&json!(false), &json!("the keeper")));

    let server = place.server().set(STORE_URL, &theirs).start();
    let _worker = place.worker(&server.url(), "w1").start();
    let job = json!({ "name": "j", "steps": { "s": { "run": "echo hello" } } });
    let job = server.submit(&job.to_string());
    assert_eq!(server.end(&job)["state"], "succeeded");
    wait_for("its log", || {
        place.call(&["logs", &job, "--server", &server.url()]).contains("hello").then_some(())
    });
    place.call(&["purge", "--older", "0s", "--store", &theirs]);
    let wrong = place.command(&["migrate", "--store", "a-folder"]).output().expect("it starts");
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("a data folder needs no schema"));
}
