//! A server whose files and logs are in an object store: here a folder of objects, for any kind of store.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use steadfast_store::testing::{TestCluster, query};

use super::harness::{BLOBS_URL, Place, STORE_URL, Server, gated, step, wait_for};

fn submit(place: &Place, server: &Server) -> String {
    fs::create_dir_all(place.path("data-files")).expect("a folder");
    fs::write(place.path("data-files/one.txt"), "attached one\n").expect("writes");
    fs::write(place.path("data-files/two.txt"), "attached two\n").expect("writes");
    let script = format!("cat data-files/*.txt; {}; echo ended", gated(place, "gate"));
    let job = json!({ "name": "with-files", "steps": {
        "a": { "run": script, "files": ["data-files"], "for_each": { "range": 2 } },
    } });
    fs::write(place.path("job.json"), job.to_string()).expect("writes");
    let submit = ["submit", &place.text("job.json"), "--server", &server.url(), "-o", "json"];
    let submitted: Value = serde_json::from_str(&place.call(&submit)).expect("JSON");
    submitted["id"].as_str().expect("an id").to_owned()
}

/// Every object of a job.
fn objects(folder: &Path, job: &str) -> Vec<String> {
    let mut found = vec![];
    let mut folders = vec![folder.join(job)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => found.push(path.display().to_string()),
            }
        }
    }
    found
}

#[test]
fn files_reach_workers_logs_are_read_back_and_a_purge_removes_both() {
    goes_through_an_object_store(None);
    let Some(cluster) = TestCluster::shared() else { return };
    let database = cluster.database();
    goes_through_an_object_store(Some(&database));
    for table in ["files", "file_pieces", "logs", "log_pieces"] {
        let rows = query(&database, &format!("SELECT count(*) FROM steadfast.{table}"));
        assert_eq!(rows, ["(0)"], "{table}");
    }
}

/// `database`: where jobs are, if not in a data folder.
fn goes_through_an_object_store(database: Option<&str>) {
    let place = Place::with_data_folders();
    let folder = place.path("blobs");
    fs::create_dir(&folder).expect("a folder");
    let url = format!("file://{}", folder.display());
    let address = super::harness::address_of_its_own();
    let start = || {
        let server = place.server().set(BLOBS_URL, &url).lease(15_000).at(&address);
        match database {
            Some(database) => server.set(STORE_URL, database).start(),
            None => server.start(),
        }
    };
    let first = start();
    let _worker = place.worker(&first.url(), "w1").slots(4).start();
    let job = submit(&place, &first);
    place.has_lines("ran", 2);
    wait_for("what runs to be read", || {
        let logs = place.call(&["logs", &job, "--server", &first.url()]);
        (logs.matches("attached two").count() == 2).then_some(())
    });
    // What runs goes on, and its log with it.
    first.process.kill();
    let mut second = start();
    second.until(&job, |status| step(status, 0)["counts"]["running"] == 2);
    place.open("gate");
    let status = second.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    let logs = wait_for("the logs", || {
        let logs = place.call(&["logs", &job, "--server", &second.url()]);
        (logs.matches("ended").count() == 2).then_some(logs)
    });
    for words in ["attached one", "attached two", "ended"] {
        assert_eq!(logs.matches(words).count(), 2, "{words}: {logs}");
    }
    assert_eq!(objects(&folder, &job).len(), 3, "the files, and two logs");
    assert!(!place.path("data").join("files").join(&job).exists());
    assert!(!place.path("data").join("logs").join(&job).exists());
    second.process.signal(rustix::process::Signal::TERM);
    assert!(second.process.ends().success(), "{}", second.process.said());
    let data = place.text("data");
    let at = database.map_or(["--data", &data], |database| ["--store", database]);
    let purge = [&["purge", "--older", "0s", "--blobs", &url], &at[..]].concat();
    assert_eq!(place.call(&purge).trim(), "1 job is gone");
    assert_eq!(objects(&folder, &job), [""; 0]);
}

#[test]
fn a_place_for_files_that_is_away_refuses_them_and_nothing_else() {
    let place = Place::new();
    // Nobody listens there.
    let url = "s3://bucket?endpoint=http://127.0.0.1:1&region=eu-central-1";
    let server = place
        .server()
        .set(BLOBS_URL, url)
        .set("AWS_ACCESS_KEY_ID", "AKIATEST")
        .set("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
        .start();
    let _worker = place.worker(&server.url(), "w1").start();
    let job = json!({ "name": "j", "steps": { "s": { "run": "cat a", "files": ["a"] } } });
    fs::write(place.path("job.json"), job.to_string()).expect("writes");
    fs::write(place.path("a"), "a").expect("writes");
    let submit = ["submit", &place.text("job.json"), "--server", &server.url()];
    let refused = place.command(&submit).output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("attached files cannot be reached"),
        "{said}"
    );
    let plain = json!({ "name": "j", "steps": { "s": { "run": "echo hello" } } });
    let plain = server.submit(&plain.to_string());
    assert_eq!(server.end(&plain)["state"], "succeeded");
    server.process.says("LogNotWritten");
    let said = server.process.said();
    assert!(!said.contains("hunter2") && !said.contains("AKIATEST"), "{said}");
    let doctor = place
        .command(&["doctor", "--data", &place.text("doctored"), "--blobs", url])
        .env("AWS_ACCESS_KEY_ID", "AKIATEST")
        .env("AWS_SECRET_ACCESS_KEY", "hunter2hunter2")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&doctor.stdout);
    assert_eq!(doctor.status.code(), Some(1), "{said}");
    assert!(said.contains("blobs") && !said.contains("hunter2"), "{said}");
}
