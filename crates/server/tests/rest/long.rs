//! Jobs with long logs: what is shown of them is not read from their first event on.

use std::sync::Arc;

use rusqlite::Connection;
use serde_json::Value;
use steadfast_api::{Attempts, JobStatus};
use steadfast_core::apply::replay;
use steadfast_core::event::RecordedEvent;
use steadfast_server::queries::{JobReader, PROJECT_EVERY};

use super::server::Server;
use super::watched::Asked;

/// Each item that succeeds has three events.
const ITEMS: u64 = PROJECT_EVERY / 3 + 500;
/// No page is longer.
const PAGE: usize = 1000;

/// A job with more events than a projection is made for, which has one; and its log.
async fn long(server: &Server, first: &str) -> (String, Vec<RecordedEvent>) {
    let many = format!("a: {{ run: ok, for_each: {{ range: {ITEMS} }} }}");
    let id = server.submit(&format!("name: long\nsteps:\n{first}  {many}\n")).await;
    let mut reader = server.folder.storage().reader().unwrap();
    loop {
        let seen = server.get(&format!("/v1/jobs/{id}")).await;
        let is_done = seen.json["runs"][0]["steps"]["a"]["state"] == "succeeded";
        if is_done && reader.projection(&id).unwrap().is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let mut log = vec![];
    loop {
        let after = log.last().map_or(0, |record: &RecordedEvent| record.seq);
        let page = reader.events(&id, after, PAGE).unwrap();
        if page.is_empty() {
            return (id, log);
        }
        log.extend(page);
    }
}

/// Events in the middle of the log are no more what they were.
fn damage(server: &Server, id: &str) {
    let file = Connection::open(server.folder.database()).unwrap();
    let sql = "UPDATE events SET lines = 'x' WHERE job = (SELECT n FROM jobs WHERE id = ?1) AND first BETWEEN 2000 AND 2100";
    assert!(file.execute(sql, [id]).unwrap() > 0);
}

/// By one who knows nothing of it yet.
async fn status(server: &Server, id: &str) -> JobStatus {
    let reader = JobReader::open(Arc::new(server.watched.clone()), 1).unwrap();
    Arc::unwrap_or_clone(reader.status(id).await.expect("it is readable"))
}

#[tokio::test]
async fn status_and_logs_of_a_long_job_do_not_read_its_early_events() {
    let server = Server::start().await;
    let (id, log) = long(&server, "").await;
    let mut attempts = Attempts::default();
    for record in &log {
        attempts.add(record);
    }
    let whole = JobStatus::new(&replay(&log).unwrap(), &attempts);
    let mut reader = server.folder.storage().reader().unwrap();
    let projection = reader.projection(&id).unwrap().expect("it has one");
    let snapshot = reader.get(&id).unwrap().and_then(|stored| stored.snapshot);
    let stored = projection.seq.min(snapshot.expect("it has one").seq);
    server.watched.asked();
    assert_eq!(status(&server, &id).await, whole);
    // The plan is in the first event.
    let early = |asked: &Asked| asked.after + 1 < stored && (asked.after, asked.limit) != (0, 1);
    assert_eq!(server.watched.asked().into_iter().find(early), None);
    damage(&server, &id);
    assert_eq!(status(&server, &id).await, whole);
    let logs = server.get(&format!("/v1/jobs/{id}/logs")).await;
    assert_eq!((logs.status, logs.json["logs"].as_array().map(Vec::len)), (200, Some(100)));
    let log = server.get(&format!("/v1/jobs/{id}/logs/a/a_0_attempt_1")).await;
    assert_eq!((log.status, log.text.as_str()), (200, "attempt 1 of a\n"));
    assert_ne!(server.get(&format!("/v1/jobs/{id}/explain")).await.status, 200);
}

#[tokio::test]
async fn an_explanation_reads_a_long_log_in_pages_and_keeps_what_it_shows() {
    let server = Server::start().await;
    let (id, log) = long(&server, "").await;
    server.watched.asked();
    let explained = server.get(&format!("/v1/jobs/{id}/explain")).await;
    assert_eq!(explained.status, 200);
    let verdicts = explained.json["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 1000);
    assert_eq!(explained.json["left_out"]["verdicts"], Value::from(ITEMS - 1000));
    let asked = server.watched.asked();
    assert!(asked.len() > log.len() / PAGE && asked.iter().all(|asked| asked.limit <= PAGE));
}

#[tokio::test]
async fn a_page_of_attempts_does_not_look_for_the_end_of_what_is_under_way() {
    let server = Server::start().await;
    let (id, log) = long(&server, "  h: { run: hold }\n").await;
    server.watched.asked();
    let page = server.get(&format!("/v1/jobs/{id}/attempts?limit=1")).await;
    let held = &page.json["attempts"][0];
    assert_eq!((&held["step"], &held["state"]), (&"h".into(), &"running".into()));
    assert!(page.json["next"].is_string());
    // Of what was asked for there is the beginning, and what the state needs: that and what came after it was stored.
    let stored = server.folder.storage().reader().unwrap().get(&id).unwrap().unwrap();
    let snapshot = stored.snapshot.expect("it is long").seq;
    let asked = server.watched.asked();
    let between = |asked: &&Asked| asked.after >= PAGE as u64 && asked.after < snapshot;
    assert_eq!(asked.iter().find(between), None, "of {} events", log.len());
}
