//! Fallbacks and compensations that are services.

use serde_json::{Value, json};

use crate::helpers::Place;
use crate::named;
use crate::service::{Answer, Service};

#[test]
fn a_fallback_is_called_once_with_a_key_of_its_own_and_what_follows_goes_on() {
    let service = Service::new(|seen| match seen.path.as_str() {
        "/main" => Answer::text(503, "down"),
        "/fallback" => Answer::output("from the cache"),
        _ => Answer::output(seen.json()),
    });
    let text = format!(
        "name: fallback\nsteps:\n  main:\n    http: {{ url: '{0}/main', body: {{ a: 1 }} }}\n    \
         retry: {{ max_attempts: 2, initial_delay: 1ms }}\n    \
         on_failure: {{ http: {{ url: '{0}/fallback', body: {{ b: 2 }} }}, then: continue }}\n  next:\n    \
         needs: [main]\n    http: {{ url: '{0}/next', body: {{ c: 3 }} }}\n",
        service.url("")
    );
    let place = Place::new("undone-fallback");
    let ran = place.run(&text);
    assert_eq!((ran.exit, ran.state()), (Some(0), "succeeded"), "{:#}", ran.status);
    let (main, fallback) = (service.of("/main"), service.of("/fallback"));
    assert_eq!((main.len(), fallback.len(), service.of("/next").len()), (2, 1, 1));
    assert_eq!(main[0].key(), main[1].key());
    assert_ne!(main[0].key(), fallback[0].key());
    assert_eq!((fallback[0].json(), fallback[0].attempt()), (json!({ "b": 2 }), 1));
    let step = ran.step("main");
    assert_eq!(
        (&step["state"], &step["fallback"]["state"]),
        (&json!("failed"), &json!("succeeded"))
    );
    let history = place.history();
    let by_fallback = |event: &&Value| event["item"]["role"] == "fallback";
    let told: Vec<&str> = history
        .iter()
        .filter(by_fallback)
        .map(|event| event["event"].as_str().expect("a name"))
        .collect();
    assert_eq!(told, ["AttemptStarted", "AttemptEnded", "ItemSucceeded"]);
    place.replays();
}

#[test]
fn what_succeeded_is_undone_in_reverse_order_and_retried_by_policy() {
    let service = Service::new(|seen| match (seen.path.as_str(), seen.attempt()) {
        ("/bad", _) => Answer::status(400),
        ("/undo-b", 1) => Answer::status(503),
        _ => Answer::status(200),
    });
    let step = |name: &str, needs: &str| {
        format!(
            "  {name}:\n    needs: [{needs}]\n    http: {{ url: '{0}/{name}' }}\n    \
             retry: {{ max_attempts: 2, initial_delay: 1ms }}\n    \
             compensate: {{ http: {{ url: '{0}/undo-{name}', body: {{ undo: '{{{{ job.id }}}}' }} }} }}\n",
            service.url("")
        )
    };
    let steps = [step("a", ""), step("b", "a"), step("c", "b"), step("bad", "c")].concat();
    let place = Place::new("undone-compensated");
    let ran = place.run(&format!("name: undone\nsteps:\n{steps}"));
    assert_eq!((ran.exit, ran.state()), (Some(1), "failed"), "{:#}", ran.status);
    let paths: Vec<String> = service.seen().into_iter().map(|seen| seen.path).collect();
    let undone = ["/undo-c", "/undo-b", "/undo-b", "/undo-a"];
    assert_eq!(paths, [&["/a", "/b", "/c", "/bad"], &undone[..]].concat());
    let seen = service.seen();
    assert_eq!(seen[5].key(), seen[6].key());
    assert_eq!((seen[5].attempt(), seen[6].attempt()), (1, 2));
    let keys: std::collections::BTreeSet<&str> =
        seen.iter().map(super::service::Seen::key).collect();
    assert_eq!(keys.len(), 7, "a compensation is not the step's own item: {keys:?}");
    assert_eq!(seen[4].json(), json!({ "undo": ran.id() }));
    for name in ["a", "b", "c"] {
        let step = ran.step(name);
        assert_eq!(step["state"], "succeeded");
        assert_eq!(step["compensation"]["state"], "succeeded", "{step}");
    }
    assert!(ran.step("bad")["compensation"].is_null());
    assert_eq!(ran.step("b")["compensation"]["failures"], 1);
    let history = place.history();
    let undoing = named(&history, "AttemptStarted");
    let undoing = undoing.iter().filter(|event| event["item"]["role"] == "compensation").count();
    assert_eq!(undoing, 4);
    place.replays();
}

#[test]
fn a_fallback_may_call_back_too() {
    let service = Service::new(|seen| match seen.path.as_str() {
        "/main" => Answer::status(400),
        _ => {
            let reply = seen.callback().done("undone");
            assert_eq!(reply.status, 200, "{reply:?}");
            Answer::status(202)
        }
    });
    let text = format!(
        "name: fallback\nsteps:\n  main:\n    http: {{ url: '{0}/main' }}\n    \
         on_failure: {{ http: {{ url: '{0}/fallback', mode: async }} }}\n",
        service.url("")
    );
    let place = Place::new("undone-later");
    let ran = place.run(&text);
    assert_eq!((ran.exit, service.calls()), (Some(1), 2), "{:#}", ran.status);
    assert_eq!(ran.step("main")["fallback"]["state"], "succeeded");
    place.replays();
}
