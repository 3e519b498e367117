//! What people are told while nothing moves, and of workers that are put aside.

use serde_json::json;

use super::harness::{Place, item, step};

#[test]
fn a_job_that_waits_for_a_worker_says_for_which() {
    let place = Place::new();
    let server = place.server().start();
    let explained = |job: &str| server.get(&format!("/v1/jobs/{job}/explain")).body;
    let submit = |more: serde_json::Value| {
        let mut step = json!({ "run": "true" });
        step.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        server.submit(&json!({ "name": "j", "steps": { "s": step } }).to_string())
    };
    let any = submit(json!({}));
    assert!(explained(&any).contains("no worker is connected"), "{}", explained(&any));
    assert_eq!(item(&server.status(&any))["state"], "ready");
    let _worker =
        place.worker(&server.url(), "w1").arg("--label", "disk=ssd").arg("--cpu", "2").start();
    server.end(&any);
    let big = submit(json!({ "resources": { "cpu": 8 } }));
    let labelled = submit(json!({ "labels": { "gpu": "yes" } }));
    let says = |job: &str, words: &str| {
        super::harness::wait_for(words, || explained(job).contains(words).then_some(()));
    };
    says(&big, "no worker has 8 cpus; the largest has 2");
    says(&labelled, "no worker has the label gpu=yes");
    for job in [&big, &labelled] {
        let status = server.status(job);
        assert_eq!(status["state"], "running");
        assert_eq!(item(&status)["state"], "ready");
        assert_eq!(item(&status)["attempts"], json!([]));
    }
}

#[test]
fn a_worker_on_which_everything_fails_is_put_aside_and_says_why() {
    let place = Place::new();
    let server = place.server().lease(2000).set("STEADFAST_WORKERS__QUARANTINE_AFTER", "3").start();
    let _bad = place
        .worker(&server.url(), "bad")
        .slots(1)
        .arg("--pass-env", "BROKEN")
        .env("BROKEN", "yes")
        .start();
    server.until_worker("bad", "connected");
    let job = server.submit(
        &json!({ "name": "j", "steps": { "s": {
            "run": "[ -z \"$BROKEN\" ]", "for_each": { "range": 12 },
            "retry": { "max_attempts": 50, "backoff": "fixed", "initial_delay": "50ms" },
        } } })
        .to_string(),
    );
    server.until(&job, |status| {
        let items = step(status, 0)["items"].as_array().expect("items");
        items.iter().filter(|item| item["failures"] != 0).count() >= 3
    });
    let _good = place.worker(&server.url(), "good").slots(1).start();
    let bad = server.until_worker("bad", "quarantined");
    let why = bad["why"].as_str().expect("a reason");
    assert!(why.contains("failed there, of steps that succeed elsewhere"), "{why}");
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    assert_eq!(server.until_worker("good", "connected")["why"], json!(null));
}
