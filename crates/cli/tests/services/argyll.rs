//! Argyll's own cases, in its own words.

use serde_json::json;

use crate::helpers::Place;
use crate::service::{Answer, Service};
use crate::{job, named};

fn with_retries(service: &Service, max_retries: i32) -> String {
    let retries = format!(
        "work_config: {{ max_retries: {max_retries}, backoff: 1, max_backoff: 2, backoff_type: fixed }}"
    );
    job(&format!("url: '{}'", service.url("/")), &[&retries])
}

#[test]
fn two_503_and_a_200_are_three_calls_with_one_key() {
    let service = Service::new(|seen| Answer::status([503, 503, 200][seen.number]));
    let place = Place::new("argyll-three-calls");
    let ran = place.run(&with_retries(&service, 3));
    assert_eq!((ran.exit, ran.state()), (Some(0), "succeeded"));
    let seen = service.seen();
    let attempts: Vec<usize> = seen.iter().map(super::service::Seen::attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert!(seen.iter().all(|it| it.key() == seen[0].key()), "{seen:?}");
    for it in &seen {
        assert_eq!(it.header("steadfast-job-id"), Some(ran.id()));
        assert_eq!((it.header("steadfast-step"), it.item()), (Some("call"), 0));
        assert_eq!(it.method, "POST");
    }
    assert_eq!(service.connections(), 1, "a connection is used again");
    place.replays();
}

#[test]
fn three_retries_are_four_calls_and_a_failure() {
    let service = Service::always(Answer::json(&json!({ "success": false, "error": "busy" })));
    let place = Place::new("argyll-four-calls");
    let ran = place.run(&with_retries(&service, 3));
    assert_eq!((ran.exit, ran.state(), service.calls()), (Some(1), "failed", 4));
    let item = ran.item("call");
    assert_eq!((&item["reason"], &item["failures"]), (&json!("attempts_exhausted"), &json!(4)));
    assert_eq!(item["last_error"], "the handler reported failure: busy");
    place.replays();
}

#[test]
fn no_retries_are_one_call() {
    let service = Service::always(Answer::status(503));
    let ran = Place::new("argyll-one-call").run(&with_retries(&service, 0));
    assert_eq!((ran.exit, service.calls()), (Some(1), 1));
}

#[test]
fn minus_one_goes_on_past_a_hundred() {
    let service = Service::new(|seen| Answer::status(if seen.number < 105 { 503 } else { 200 }));
    let place = Place::new("argyll-past-a-hundred");
    let ran = place.run(&with_retries(&service, -1));
    assert_eq!((ran.exit, service.calls()), (Some(0), 106));
    assert_eq!(ran.item("call")["failures"], 105);
    let keys: std::collections::BTreeSet<String> =
        service.seen().iter().map(|seen| seen.key().to_owned()).collect();
    assert_eq!(keys.len(), 1);
    place.replays();
}

#[test]
fn what_needs_a_failed_step_is_never_invoked() {
    let service = Service::new(|seen| match seen.path.as_str() {
        "/b" => Answer::status(503),
        _ => Answer::status(200),
    });
    let step = |name: &str, needs: &str| {
        format!(
            "  {name}:\n    needs: [{needs}]\n    http: {{ url: '{}' }}\n    \
             work_config: {{ max_retries: 1, backoff: 1, backoff_type: fixed }}\n",
            service.url(&format!("/{name}"))
        )
    };
    let steps = [step("a", ""), step("b", "a"), step("c", "a"), step("d", "b, c")].concat();
    let place = Place::new("argyll-diamond");
    let ran = place.run(&format!("name: diamond\nsteps:\n{steps}"));
    assert_eq!((ran.exit, ran.state()), (Some(1), "failed"));
    let calls = |path: &str| service.of(path).len();
    assert_eq!((calls("/a"), calls("/b"), calls("/d")), (1, 2, 0));
    assert_eq!(ran.step("d")["state"], "skipped");
    assert_eq!(ran.step("b")["state"], "failed");
    let history = place.history();
    assert_eq!(named(&history, "StepSkipped").len(), 1, "{history:#?}");
    place.replays();
}

#[test]
fn every_item_has_a_key_of_its_own_over_all_its_attempts() {
    let service = Service::new(|seen| Answer::status(if seen.attempt() < 3 { 503 } else { 200 }));
    let retries = "work_config: { max_retries: 2, backoff: 1, backoff_type: linear }";
    let url = format!("url: '{}'", service.url("/"));
    let ran = Place::new("argyll-keys").run(&job(&url, &["for_each: { range: 4 }", retries]));
    assert_eq!((ran.exit, service.calls()), (Some(0), 12));
    let mut keys = std::collections::BTreeMap::<String, Vec<usize>>::new();
    for seen in service.seen() {
        keys.entry(seen.key().to_owned()).or_default().push(seen.item());
    }
    let mut items: Vec<Vec<usize>> = keys.into_values().collect();
    items.sort();
    assert_eq!(items, [[0; 3], [1; 3], [2; 3], [3; 3]]);
}
