//! Work items over a service: how many at once, which may fail, and what comes of them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::harness::pass;
use crate::helpers::{Place, Ran};
use crate::job;
use crate::service::{Answer, Seen, Service};

const ONCE: &str = "retry: { max_attempts: 1 }";

fn each(service: &Service, rest: &[&str]) -> String {
    job(&format!("url: '{}', body: {{ of: '{{{{ item }}}}' }}", service.url("/each")), rest)
}

fn outputs(ran: &Ran, step: &str) -> Vec<Value> {
    let items = ran.step(step)["items"].as_array().expect("items");
    items.iter().map(|item| item["output"].clone()).collect()
}

/// What the service was sent, in the order of the items.
fn sent(service: &Service) -> Vec<Value> {
    let mut seen = service.of("/each");
    seen.sort_by_key(Seen::item);
    seen.iter().map(|seen| seen.json()["of"].clone()).collect()
}

fn echo(seen: &Seen) -> Answer {
    Answer::output(seen.json()["of"].clone())
}

#[test]
fn each_element_of_a_list_is_an_item_with_its_own_type() {
    let service = Service::new(echo);
    let ran = Place::new("items-list")
        .run(&each(&service, &["for_each: [a, 2, true, { b: [null] }, 'x y']"]));
    assert_eq!(ran.exit, Some(0), "{:#}", ran.status);
    let elements = [json!("a"), json!(2), json!(true), json!({ "b": [null] }), json!("x y")];
    assert_eq!(sent(&service), elements);
    assert_eq!(outputs(&ran, "call"), elements);
}

#[test]
fn no_more_items_are_at_the_service_at_once_than_the_step_says() {
    let service = Service::new(|seen| {
        pass(Duration::from_millis(15));
        echo(seen)
    });
    let rest = ["for_each: { range: 30 }", "parallelism: 3"];
    let ran = Place::new("items-parallelism").run(&each(&service, &rest));
    assert_eq!((ran.exit, service.calls()), (Some(0), 30));
    assert_eq!(service.most_at_once(), 3);
    assert_eq!(sent(&service), (0..30).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn what_a_service_has_for_later_keeps_its_place_in_the_parallelism() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static AWAITED: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let service = Service::new(|seen| {
        MOST.fetch_max(AWAITED.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let callback = seen.callback();
        std::thread::spawn(move || {
            pass(Duration::from_millis(30));
            AWAITED.fetch_sub(1, Ordering::SeqCst);
            callback.try_say(&json!({ "success": true }))
        });
        Answer::status(202)
    });
    let url = format!("url: '{}', mode: async", service.url("/"));
    let rest = ["for_each: { range: 8 }", "parallelism: 2"];
    let ran = Place::new("items-awaited").run(&job(&url, &rest));
    assert_eq!((ran.exit, service.calls()), (Some(0), 8), "{:#}", ran.status);
    assert_eq!(MOST.load(Ordering::SeqCst), 2);
}

#[test]
fn each_item_is_retried_for_itself() {
    let service =
        Service::new(
            |seen| {
                if seen.attempt() <= seen.item() { Answer::status(500) } else { echo(seen) }
            },
        );
    let rest = ["for_each: { range: 4 }", "retry: { max_attempts: 4, initial_delay: 1ms }"];
    let place = Place::new("items-retries");
    let ran = place.run(&each(&service, &rest));
    assert_eq!((ran.exit, ran.attempts("call")), (Some(0), vec![1, 2, 3, 4]));
    place.replays();
}

#[test]
fn an_earlier_services_output_is_the_list_and_outputs_come_in_order_with_null_for_failures() {
    let service = Service::new(|seen| match seen.path.as_str() {
        "/list" => Answer::output(json!({ "files": [{ "n": 10 }, { "n": 11 }, { "n": 12 }] })),
        "/each" if seen.json()["of"] == 11 => Answer::status(404),
        "/each" => {
            // The first comes back last.
            pass(Duration::from_millis(if seen.item() == 0 { 60 } else { 1 }));
            Answer::output(seen.json()["of"].clone())
        }
        _ => Answer::output(seen.json()),
    });
    let url = |path: &str| service.url(path);
    let text = format!(
        "name: fan\nsteps:\n  list:\n    http: {{ url: '{}', method: GET }}\n  each:\n    needs: [list]\n    \
         for_each: {{ output: list.files }}\n    max_failed: 1\n    \
         http: {{ url: '{}', body: {{ of: '{{{{ item.n }}}}' }} }}\n  sum:\n    needs: [each]\n    \
         http: {{ url: '{}', body: {{ all: '{{{{ steps.each.outputs }}}}' }} }}\n",
        url("/list"),
        url("/each"),
        url("/sum")
    );
    let place = Place::new("items-outputs");
    let ran = place.run(&text);
    assert_eq!(ran.exit, Some(0), "{:#}", ran.status);
    assert_eq!(service.of("/list")[0].method, "GET");
    assert_eq!(service.of("/sum")[0].json(), json!({ "all": [10, null, 12] }));
    assert_eq!(ran.step("each")["counts"], json!({ "succeeded": 2, "failed": 1 }));
    place.replays();
}

#[test]
fn as_many_may_fail_as_max_failed_says_and_not_one_more() {
    // Of 100 items the first `failing` fail.
    let runs = |name: &str, max_failed: &str, failing: usize| {
        let service =
            Service::new(move |seen| Answer::status(if seen.item() < failing { 400 } else { 200 }));
        let max_failed = format!("max_failed: {max_failed}");
        let rest = ["for_each: { range: 100 }", &max_failed, ONCE];
        let ran = Place::new(name).run(&each(&service, &rest));
        (ran.exit, ran.step("call")["counts"]["failed"].as_u64())
    };
    assert_eq!(runs("items-count-within", "5", 5), (Some(0), Some(5)));
    assert_eq!(runs("items-count-beyond", "5", 6), (Some(1), Some(6)));
    assert_eq!(runs("items-share-within", "5%", 5), (Some(0), Some(5)));
    assert_eq!(runs("items-share-beyond", "5%", 6), (Some(1), Some(6)));
}

#[test]
fn a_fan_out_beyond_the_limit_is_refused() {
    let service = Service::new(|seen| match seen.path.as_str() {
        "/list" => Answer::output(json!({ "n": "no list" })),
        _ => echo(seen),
    });
    let place = Place::new("items-limit");
    let file = place.write("job.yaml", each(&service, &["for_each: { range: 1000001 }"]));
    let output = place.steadfast(&["run", file.to_str().expect("plain")]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("1000000") && said.contains("job.yaml:"), "{said}");
    assert_eq!(service.calls(), 0);
    // What only turns out when the service has answered fails the step, and says why.
    let text = format!(
        "name: fan\nsteps:\n  list:\n    http: {{ url: '{}' }}\n  each:\n    needs: [list]\n    \
         for_each: {{ output: list.n }}\n    http: {{ url: '{}' }}\n",
        service.url("/list"),
        service.url("/each")
    );
    let ran = place.run(&text);
    assert_eq!((ran.exit, service.of("/each").len()), (Some(1), 0), "{:#}", ran.status);
    let error = ran.step("each")["error"].as_str().expect("why").to_owned();
    assert!(error.contains("list"), "{error}");
}

#[test]
fn a_servers_own_limit_of_the_fan_out_holds_for_what_a_service_answers() {
    let service = Service::new(|seen| match seen.path.as_str() {
        "/list" => Answer::output((0..11).collect::<Vec<u32>>()),
        _ => Answer::status(200),
    });
    let place = crate::e2e::harness::Place::new();
    let server = place.server().set("STEADFAST_LIMITS__FAN_OUT", "10").start();
    let _worker = crate::served::worker(&place, &server);
    let text = format!(
        "name: fan\nsteps:\n  list:\n    http: {{ url: '{}' }}\n  each:\n    needs: [list]\n    \
         for_each: {{ output: list }}\n    http: {{ url: '{}' }}\n",
        service.url("/list"),
        service.url("/each")
    );
    let id = server.submit(&text);
    let status = server.end(&id);
    assert_eq!((&status["state"], service.of("/each").len()), (&json!("failed"), 0), "{status:#}");
    let error = &status["runs"][0]["steps"]["each"]["error"];
    assert!(error.as_str().expect("why").contains("11 elements, more than 10"), "{error}");
}
