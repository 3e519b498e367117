//! A service that is gone for a while costs every item its backoff, and nothing else.

use serde_json::Value;

use crate::common::Place;
use crate::e2e::harness::{address_of_its_own, wait_for};
use crate::service::{Answer, Service};
use crate::{job, named};

const ITEMS: usize = 12;

#[test]
fn a_service_that_dies_for_a_while_costs_every_item_its_backoff_and_nothing_else() {
    let mut service = Service::at(&address_of_its_own(), |_| Answer::status(200));
    let range = format!("for_each: {{ range: {ITEMS} }}");
    let retry = "retry: { max_attempts: 50, backoff: fixed, initial_delay: 150ms }";
    let text = job(&format!("url: '{}'", service.url("/")), &[&range, "parallelism: 4", retry]);
    service.close();
    let place = Place::new(&text);
    let mut run = place.run(None);
    let id = run.id();
    let ends = |event: &Value| event["event"] == "AttemptEnded";
    // Every item has met the closed door, some more than once.
    wait_for("refused connections", || {
        let refused = place.events(&id).iter().filter(|event| ends(event)).count();
        (refused > 2 * ITEMS).then_some(())
    });
    service.open_again();
    let ended = run.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert_eq!(service.calls(), ITEMS, "each item succeeds once");
    let (events, status) = (place.events(&id), place.json(&["status", &id]));
    let items = status["runs"][0]["steps"]["call"]["items"].as_array().expect("items");
    assert_eq!(items.len(), ITEMS);
    for item in items {
        let about = |event: &&&Value| event["item"]["index"] == item["index"];
        let ends = named(&events, "AttemptEnded");
        let refused: Vec<&Value> = ends
            .iter()
            .filter(about)
            .map(|event| &event["outcome"]["failed"])
            .filter(|failed| failed.is_object())
            .collect();
        assert!(!refused.is_empty(), "{item}");
        for failed in &refused {
            assert_eq!(
                (&failed["kind"], &failed["error"]["kind"]),
                (&"not_completed".into(), &"connect".into())
            );
        }
        let failures = refused.len() as u64;
        assert_eq!(item["failures"], failures, "{item}");
        assert_eq!(item["delay_spent_ms"], failures * 150, "{item}");
        assert_eq!((&item["preemptions"], &item["state"]), (&0.into(), &"succeeded".into()));
        let retries = named(&events, "RetryScheduled");
        for retry in retries.iter().filter(about) {
            assert_eq!(retry["delay_ms"], 150, "{retry}");
            assert_eq!(
                (&retry["accounts"]["deferrals"], &retry["cause"]),
                (&0.into(), &"failure".into())
            );
        }
        assert_eq!(retries.iter().filter(about).count() as u64, failures);
    }
    assert_eq!(place.call(&["replay", &id]).status.code(), Some(0));
}
