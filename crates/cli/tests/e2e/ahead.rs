//! Short processes are handed out to workers before their slots are free. Nobody is to notice.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::harness::{Place, number, step, wait_for};

fn free_of_charge(status: &Value) {
    assert_eq!(status["state"], "succeeded", "{status:#}");
    // The first hundred are shown.
    for item in step(status, 0)["items"].as_array().expect("items") {
        assert_eq!((number(&item["failures"]), number(&item["preemptions"])), (0, 0), "{item:#}");
    }
}

/// From the job's events, how many attempts were under way at once at most.
fn most_under_way(events: &[Value]) -> usize {
    let mut under_way = BTreeSet::new();
    let mut most = 0;
    for event in events {
        let token = || number(&event["token"]);
        match event["event"].as_str() {
            Some("AttemptStarted") => drop(under_way.insert(token())),
            Some("AttemptEnded") => drop(under_way.remove(&token())),
            _ => {}
        }
        most = most.max(under_way.len());
    }
    most
}

/// A process that finds too many beside it leaves a line behind.
#[test]
fn no_more_processes_run_than_a_worker_has_slots_and_long_ones_after_short_ones_lose_nothing() {
    const ITEMS: usize = 400;
    let place = Place::new();
    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w1").slots(2).start();
    let (ran, one, two) = (place.text("ran"), place.text("one"), place.text("two"));
    let script = format!(
        "echo $STEADFAST_ITEM_INDEX >> {ran}\n\
         if mkdir {one} 2> /dev/null; then mine={one}; else mkdir {two} && mine={two} || exit 1; fi\n\
         case $STEADFAST_ITEM_INDEX in 3?) sleep 1.3;; esac\n\
         rmdir $mine\n"
    );
    let job = server.submit(
        &json!({ "name": "many", "retry": { "max_attempts": 1 }, "steps": { "s": {
            "run": script, "for_each": { "range": ITEMS },
        } } })
        .to_string(),
    );
    free_of_charge(&server.end(&job));
    let ran = place.lines("ran");
    let items: BTreeSet<&String> = ran.iter().collect();
    assert_eq!((ran.len(), items.len()), (ITEMS, ITEMS), "each ran once");
}

#[test]
fn a_steps_parallelism_bounds_what_is_handed_out_ahead() {
    let place = Place::new();
    let server = place.server().start();
    let _worker = place.worker(&server.url(), "w1").slots(8).start();
    let job = server.submit(
        &json!({ "name": "many", "steps": { "s": {
            "argv": ["/bin/true"], "parallelism": 3, "for_each": { "range": 250 },
        } } })
        .to_string(),
    );
    free_of_charge(&server.end(&job));
    let most = most_under_way(&server.events(&job));
    assert!((1..=3).contains(&most), "{most}");
}

/// It wakes with a free slot and with what waited for one, and all of that is somebody else's by now.
#[test]
fn a_worker_that_wakes_past_its_lease_begins_nothing_of_what_waited_there() {
    let place = Place::new();
    let server = place.server().lease(1000).start();
    let first = place.worker(&server.url(), "w1").slots(2).start();
    let (ran, gate) = (place.text("ran"), place.text("gate"));
    let script = format!(
        "echo $STEADFAST_ATTEMPT_TOKEN $STEADFAST_ITEM_INDEX >> {ran}; \
         [ $STEADFAST_ITEM_INDEX -lt 150 ] || while [ ! -e {gate} ]; do sleep 0.01; done"
    );
    let job = server.submit(
        &json!({ "name": "many", "steps": { "s": {
            "run": script, "for_each": { "range": 250 },
        } } })
        .to_string(),
    );
    let long = || {
        let lines = place.lines("ran");
        let index = |line: &String| line.split(' ').nth(1).and_then(|it| it.parse::<u32>().ok());
        lines.iter().filter_map(index).filter(|index| *index >= 150).count()
    };
    wait_for("long ones in all slots", || (long() == 2).then_some(()));
    first.signal(Signal::STOP);
    place.open("gate");
    let _second = place.worker(&server.url(), "w2").start();
    let status = server.end(&job);
    assert_eq!(status["state"], "succeeded", "{status:#}");
    let before = place.lines("ran");
    first.signal(Signal::CONT);
    server.until_worker("w1", "connected");
    wait_for("it to have nothing", || {
        (server.worker("w1").is_some_and(|it| it["busy"] == 0)).then_some(())
    });
    assert_eq!(place.lines("ran"), before);
}
