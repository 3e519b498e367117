//! What the time in which the program was dead does to delays, budgets and windows.

use serde_json::Value;

use crate::common::{Ended, Place, check, is, number, unix_ms, wait_for};

/// A step that always fails, backing off for `delay` under `limits`.
pub(crate) fn failing(delay: &str, limits: &str) -> Place {
    Place::new(&format!(
        "name: late\nretry: {{ backoff: fixed, initial_delay: {delay}, max_attempts: 3, {limits} }}\n\
         steps: {{ s: {{ run: 'sh work.sh always' }} }}\n"
    ))
}

/// One that was killed in its first backoff, and the decision that it was killed after.
fn killed_while_backing_off(delay: &str, limits: &str) -> (Place, String, Ended, Value) {
    wait_for("a kill within the backoff", || {
        let place = failing(delay, limits);
        let mut process = place.run(None);
        let job = process.id();
        assert!(process.says("s attempt 2 in"));
        let ended = process.kill();
        let retry = place.events(&job).pop().expect("events");
        // On a slow machine the delay may be over by then.
        is(&retry, "RetryScheduled").then_some((place, job, ended, retry))
    })
}

fn wait_until(unix: u64) {
    wait_for("a moment in time", || (unix_ms() > unix).then_some(()));
}

/// The restart that came too late for it stops the item, without another attempt.
fn expires(limits: &str, ms: u64, reason: &str, words: &str) {
    let (place, job, first, retry) = killed_while_backing_off("300ms", limits);
    wait_until(number(&retry["at"]) + ms);
    let last = place.finish(&job);
    assert!(last.stderr.contains(words) || last.lines.concat().contains(words), "{last:?}");
    let checked = check(&place, &job, &[first, last]);
    assert_eq!(checked.state, "failed");
    let events = place.events(&job);
    let failed = events.iter().find(|event| is(event, "ItemFailed")).expect("it fails");
    assert_eq!((failed["on"].as_str(), failed["reason"].as_str()), (Some("restart"), Some(reason)));
    assert_eq!(number(&failed["attempt"]), 1);
    assert_eq!(failed["charged"], serde_json::json!({}), "the failure was charged before");
    let item = checked.of(0).next().expect("an item");
    assert_eq!((item.started, item.failures), (1, 1));
}

#[test]
fn a_delay_budget_that_ran_out_while_the_program_was_dead_stops_the_item() {
    expires("delay_budget: 2s", 2000, "delay_budget_exhausted", "Retry budget exhausted");
}

#[test]
fn a_window_that_closed_while_the_program_was_dead_stops_the_item() {
    expires(
        "window: 1s",
        1000,
        "window_expired",
        "The retry window since the first failure expired",
    );
}

#[test]
fn time_in_which_the_program_was_dead_is_charged_to_the_delay_budget_once() {
    let (place, job, first, retry) = killed_while_backing_off("300ms", "delay_budget: 1m");
    let due_at = number(&retry["due_at"]);
    wait_until(due_at + 500);
    let before = unix_ms();
    let last = place.finish(&job);
    let checked = check(&place, &job, &[first, last]);
    let events = place.events(&job);
    let restart = events.iter().find(|event| is(event, "EngineRestarted")).expect("a restart");
    let at = number(&restart["at"]);
    assert!(at >= before && number(&restart["down_since"]) <= due_at, "{restart}");
    let due = events.iter().find(|event| is(event, "RetryDue")).expect("the timer fires");
    let next = number(&restart["seq"]) + 1;
    assert_eq!(number(&due["seq"]), next, "what fell due meanwhile comes first");
    let failed = events.iter().find(|event| is(event, "ItemFailed")).expect("it fails");
    // The delay itself is charged as a delay, what came after it as downtime, nothing twice.
    assert_eq!(number(&failed["accounts"]["downtime_ms"]), at - due_at);
    assert_eq!(number(&failed["accounts"]["delay_spent_ms"]), 600);
    let item = checked.of(0).next().expect("an item");
    assert_eq!((item.failures, item.reason.as_deref()), (3, Some("attempts_exhausted")));
}

#[test]
fn a_delay_that_fits_no_more_after_the_downtime_is_not_waited_for() {
    let (place, job, first, retry) = killed_while_backing_off("300ms", "delay_budget: 1500ms");
    // 300 ms are spent; after 950 ms more the next 300 ms do not fit.
    wait_until(number(&retry["due_at"]) + 950);
    let last = place.finish(&job);
    let checked = check(&place, &job, &[first, last]);
    let events = place.events(&job);
    let restart = events.iter().find(|event| is(event, "EngineRestarted")).expect("a restart");
    let expired = number(&restart["at"]) > number(&retry["at"]) + 1500;
    let failed = events.iter().find(|event| is(event, "ItemFailed")).expect("it fails");
    let (on, failures) = if expired { ("restart", 1) } else { ("outcome", 2) };
    assert_eq!((&failed["on"], &failed["reason"]), (&on.into(), &"delay_budget_exhausted".into()));
    assert_eq!(checked.of(0).next().expect("an item").failures, failures);
}

#[test]
fn a_restart_before_the_timer_keeps_the_timer_and_charges_nothing() {
    let (place, job, first, retry) = killed_while_backing_off("1500ms", "delay_budget: 1m");
    let last = place.finish(&job);
    check(&place, &job, &[first, last]);
    let events = place.events(&job);
    let at = |name: &str| number(&events.iter().find(|event| is(event, name)).expect(name)["at"]);
    let due_at = number(&retry["due_at"]);
    let failed = events.iter().find(|event| is(event, "ItemFailed")).expect("it fails");
    let accounts = &failed["accounts"];
    assert_eq!(number(&accounts["delay_spent_ms"]), 3000);
    let late = at("EngineRestarted").saturating_sub(due_at);
    assert_eq!(number(&accounts["downtime_ms"]), late, "nothing, on a machine that is not slow");
    assert!(at("RetryDue") >= due_at);
}
