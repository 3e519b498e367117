//! Short attempts are handed out before their slots are free. Nobody is to notice.

mod common;

use std::collections::BTreeSet;

use common::{Place, Process, check, is, number, wait_for};
use rustix::process::Signal;
use serde_json::{Value, json};

/// From the job's events, how many attempts were under way at once at most.
fn most_under_way(events: &[Value]) -> usize {
    let mut under_way = BTreeSet::new();
    let mut most = 0;
    for event in events {
        let token = || number(&event["token"]);
        if is(event, "AttemptStarted") {
            under_way.insert(token());
        } else if is(event, "AttemptEnded") {
            under_way.remove(&token());
        }
        most = most.max(under_way.len());
    }
    most
}

fn run(place: &Place, slots: &str) -> Process {
    let file = place.path("job.yaml");
    let args = ["run", file.to_str().expect("plain"), "--slots", slots];
    Process::start(place.command(&args))
}

#[test]
fn a_steps_parallelism_bounds_what_is_handed_out_ahead() {
    let place = Place::new(
        "name: t\nsteps:\n  s: { argv: [/bin/true], parallelism: 3, for_each: { range: 300 } }\n",
    );
    let ended = run(&place, "8").end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(most_under_way(&place.events(ended.id().expect("an id"))) <= 3);
}

/// A process that finds too many beside it leaves a file behind.
#[test]
fn no_more_processes_run_than_there_are_slots() {
    let place = Place::new(
        "name: t\nsteps:\n  s:\n    for_each: { range: 400 }\n    run: |\n      \
         if mkdir one || mkdir two; then :; else echo >> too-many; exit 1; fi 2> /dev/null\n      \
         rmdir one || rmdir two\n",
    );
    let ended = run(&place, "2").end();
    assert!(!place.path("too-many").exists());
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

/// A hundred short ones, and then long ones: some of those wait at the worker when it is interrupted.
#[test]
fn an_interrupt_loses_only_what_had_begun() {
    let place = Place::new(
        "name: t\nretry: { max_attempts: 1 }\nsteps:\n  s:\n    for_each: { range: 300 }\n    \
         run: |\n      echo $STEADFAST_ATTEMPT_TOKEN >> tokens\n      \
         test $STEADFAST_ITEM_INDEX -lt 100 || test -e go || exec sleep 60\n",
    );
    let mut process = run(&place, "4");
    let job = process.id();
    let begun = || place.read("tokens").lines().count();
    wait_for("long ones in all slots", || (begun() >= 104).then_some(()));
    process.signal(Signal::INT);
    let first = process.end();
    assert_eq!(first.status.code(), Some(130), "{first:?}");
    let events = place.events(&job);
    let lost = |started: bool| {
        let outcome = json!({"lost": {"started": started}});
        events.iter().filter(move |event| event["outcome"] == outcome).count()
    };
    assert_eq!(lost(true), 4, "only what ran in a slot");
    let count = |name| events.iter().filter(|event| is(event, name)).count();
    assert_eq!(count("AttemptStarted"), count("AttemptEnded"));
    std::fs::write(place.path("go"), "").expect("writes");
    let last = place.finish(&job);
    assert_eq!(check(&place, &job, &[first, last]).state, "succeeded");
}

/// What waits behind long ones is handed back, costs nothing, and runs when there is room.
#[test]
fn what_waited_too_long_is_started_again_and_costs_nothing() {
    let place = Place::new(
        "name: t\nretry: { max_attempts: 1 }\nsteps:\n  s:\n    for_each: { range: 150 }\n    \
         run: |\n      echo $STEADFAST_ATTEMPT_TOKEN >> tokens\n      \
         test $STEADFAST_ITEM_INDEX -lt 100 -o $STEADFAST_ITEM_INDEX -gt 103 || sleep 3\n",
    );
    let ended = run(&place, "4").end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let job = ended.id().expect("an id").to_owned();
    let checked = check(&place, &job, &[ended]);
    assert_eq!(checked.state, "succeeded");
    assert!(checked.of(0).all(|item| (item.losses, item.failures) == (0, 0)));
}
