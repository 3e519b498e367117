//! A copy that was made while the server ran is as good as the folder itself.

use std::fs;

use serde_json::{Value, json};

use crate::e2e::harness::{Place, gated};
use crate::e2e::rest::item;
use crate::served::{counted, later, worker};
use crate::service::{Answer, Callback, Service};

#[test]
fn a_server_goes_on_from_a_backup_of_one_that_ran() {
    let place = Place::with_data_folders();
    let token = place.call(&["token", "create", "--scope", "admin", "--data", &place.text("data")]);
    let service = Service::always(Answer::status(202));
    let server = place.server().start();
    let working = worker(&place, &server);
    let waiting = server.submit(&later(&service, &[]));
    let callback = service.called(1)[0].callback();
    server.until_item(&waiting, "awaiting_callback");
    // "kept\n"
    let files = json!([{ "path": "in/f.txt", "content_base64": "a2VwdAo=", "executable": true }]);
    let step = json!({ "run": "cat in/f.txt; exit 3", "retry": { "max_attempts": 1 } });
    let file = json!({ "name": "j", "files": ["in"], "steps": { "s": step } });
    let body = json!({ "file": file.to_string(), "files": files }).to_string();
    let kind = [("Content-Type", "application/vnd.steadfast.submission+json")];
    let reply = server.ask("POST", "/v1/jobs", &kind, &body).expect("an answer");
    let failed = reply.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(server.end(&failed)["state"], "failed");
    let running = server.submit(
        &json!({ "name": "r", "steps": { "s": { "run": gated(&place, "gate") } } }).to_string(),
    );
    place.has_lines("ran", 1);

    let copy = place.text("copy");
    let backup = |to: &str| {
        let args = ["backup", to, "--data", &place.text("data"), "-o", "json"];
        place.command(&args).output().expect("the program starts")
    };
    let told = backup(&copy);
    assert!(told.status.success(), "{told:?}");
    let told: Value = serde_json::from_slice(&told.stdout).expect("JSON");
    assert_eq!((&told["jobs"], &told["files"], &told["logs"]), (&json!(3), &json!(1), &json!(1)));
    assert_eq!(told["others"], json!(["steadfast.db", "callback.key", "tokens.json"]));
    let again = backup(&copy);
    assert_eq!(again.status.code(), Some(2), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stderr).contains("not empty"), "{again:?}");
    let inside = backup(&place.text("data/copy"));
    assert_eq!(inside.status.code(), Some(2), "{inside:?}");
    assert!(!place.path("data/copy").exists());

    // Everything of the server is lost, and what happened after the backup with it.
    let before: Vec<Value> = [&waiting, &failed, &running].map(|id| server.status(id)).to_vec();
    drop(working);
    server.process.kill();
    fs::remove_dir_all(place.path("data")).expect("it is gone");
    fs::rename(&copy, place.path("data")).expect("the copy is put in its place");
    let data = place.text("data");
    for id in [&waiting, &failed, &running] {
        let told = place.call(&["replay", id, "--data", &data, "-o", "json"]);
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told["equal"], true, "{told}");
    }
    let server = place.server().lease(2000).start();
    assert_eq!(server.status(&failed), before[1]);
    let log = server.get(&format!("/v1/jobs/{failed}/logs/s/s_0_attempt_1"));
    assert_eq!(log.body, "kept\n");
    // What came with the job is there to be run again.
    let again = server.post(&format!("/v1/jobs/{failed}/retry"));
    assert_eq!(again.status, 201, "{again:?}");
    let _worker = worker(&place, &server);
    let again = again.json()["id"].as_str().expect("an id").to_owned();
    assert_eq!(server.end(&again)["state"], "failed");
    let log = server.get(&format!("/v1/jobs/{again}/logs/s/s_0_attempt_1"));
    assert_eq!(log.body, "kept\n");
    let callback = Callback { address: server.address.clone(), ..callback };
    counted(&callback.done("after the restore"), true);
    let status = server.end(&waiting);
    assert_eq!(item(&status)["output"], "after the restore");
    place.open("gate");
    assert_eq!(server.end(&running)["state"], "succeeded");
    drop(server);
    let server = place.server().auth_required().start();
    let bearer = format!("Bearer {}", token.trim());
    let reply =
        server.ask("GET", "/v1/jobs", &[("Authorization", &bearer)], "").expect("an answer");
    assert_eq!(reply.status, 200, "{reply:?}");
}
