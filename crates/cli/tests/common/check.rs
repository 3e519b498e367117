//! What must hold of a job's log, of what its attempts did, and of what it shows, however often its program died.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Ended, Place, is, number, processes_of};

/// What an account of a decision says; that of a success leaves out what is zero.
fn spent(event: &Value, account: &str) -> u64 {
    match &event["accounts"][account] {
        Value::Null if is(event, "ItemSucceeded") => 0,
        count => number(count),
    }
}

/// What the log adds up to for one item; counted here anew, not read from its accounts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) failures: u64,
    pub(crate) losses: u64,
    pub(crate) never_began: u64,
    pub(crate) delay_ms: u64,
    pub(crate) downtime_ms: u64,
    token: u64,
    running: bool,
    /// Queued or backing off after a failure, from then on downtime counts.
    clock_from: Option<u64>,
    due_at: Option<u64>,
    failed_before: bool,
    pub(crate) over: bool,
    pub(crate) reason: Option<String>,
    /// As its last decision has it.
    preemptions: u64,
}

impl Tally {
    #[track_caller]
    fn agrees(&mut self, event: &Value) {
        let spent = |name: &str| spent(event, name);
        assert_eq!(spent("failures"), self.failures, "failures: {event}");
        let preemptions = spent("preemptions");
        // Ten that never began are free in a row, not more.
        let charged = self.losses..=self.losses + self.never_began / 10;
        assert!(charged.contains(&preemptions), "{charged:?}: {event}");
        assert_eq!(spent("delay_spent_ms"), self.delay_ms, "delays: {event}");
        assert_eq!(spent("downtime_ms"), self.downtime_ms, "downtime: {event}");
        self.preemptions = preemptions;
    }
}

/// A log that was found in order.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) items: BTreeMap<String, Tally>,
    pub(crate) retries: u64,
    pub(crate) restarts: u64,
    pub(crate) state: String,
}

impl Checked {
    pub(crate) fn of(&self, step: u64) -> impl Iterator<Item = &Tally> {
        let prefix = format!("{step}/item/");
        self.items.iter().filter(move |(key, _)| key.starts_with(&prefix)).map(|(_, it)| it)
    }
}

fn key(item: &Value) -> String {
    format!("{}/{}/{}", item["step"], item["role"].as_str().unwrap_or("item"), item["index"])
}

/// Everything that must hold of a job that has ended, whatever befell it on the way. `dead`: the
/// processes that worked on it, in order.
#[track_caller]
pub(crate) fn check(place: &Place, job: &str, dead: &[Ended]) -> Checked {
    let events = place.events(job);
    let checked = check_log(&events);
    check_side_effects(place, job, &events);
    check_told(place, job, dead);
    check_status(place, job, &checked);
    let replay = place.call(&["replay", job, "-o", "json"]);
    let answer: Value = serde_json::from_slice(&replay.stdout).expect("JSON");
    assert_eq!(replay.status.code(), Some(0), "{answer}");
    assert_eq!((&answer["equal"], number(&answer["events"])), (&true.into(), events.len() as u64));
    assert_eq!(answer["state"], checked.state.as_str());
    assert_eq!(processes_of(job), [] as [u32; 0], "processes are left");
    checked
}

#[track_caller]
fn check_log(events: &[Value]) -> Checked {
    let mut items: BTreeMap<String, Tally> = BTreeMap::new();
    let (mut retries, mut step_retries) = (0, BTreeMap::<u64, u64>::new());
    let (mut last_token, mut last_at, mut restarts) = (0, 0, 0);
    let mut state = None;
    for (place, event) in events.iter().enumerate() {
        assert_eq!(number(&event["seq"]), place as u64 + 1, "a gap: {event}");
        let at = number(&event["at"]);
        assert!(at >= last_at, "time went back: {event}");
        last_at = at;
        assert!(state.is_none(), "after the end: {event}");
        if is(event, "EngineRestarted") {
            restarts += 1;
            let down_since = number(&event["down_since"]);
            for item in items.values_mut().filter(|item| !item.over) {
                let from = item.clock_from.map(|from| from.max(down_since));
                item.downtime_ms += from.map_or(0, |from| at.saturating_sub(from));
            }
        }
        if is(event, "JobEnded") {
            state = event["state"].as_str().map(str::to_owned);
        }
        if event["item"].is_null() {
            continue;
        }
        let item = items.entry(key(&event["item"])).or_default();
        assert!(!item.over, "its item is over: {event}");
        match event["event"].as_str().expect("a name") {
            "AttemptStarted" => {
                assert!(!item.running, "two at once: {event}");
                assert!(item.due_at.is_none(), "it backs off: {event}");
                item.started += 1;
                assert_eq!(number(&event["attempt"]), item.started, "{event}");
                let token = number(&event["token"]);
                assert!(token > last_token, "the fence fell from {last_token}: {event}");
                last_token = token;
                item.token = token;
                item.running = true;
                item.clock_from = None;
            }
            "AttemptEnded" => {
                assert!(item.running, "it does not run: {event}");
                assert_eq!(number(&event["attempt"]), item.started, "{event}");
                assert_eq!(number(&event["token"]), item.token, "{event}");
                item.running = false;
                item.ended += 1;
                match &event["outcome"] {
                    outcome if outcome["lost"]["started"] == true => item.losses += 1,
                    outcome if outcome["lost"]["started"] == false => item.never_began += 1,
                    outcome if outcome["failed"].is_object() => {
                        item.failures += 1;
                        item.failed_before = true;
                    }
                    _ => {}
                }
            }
            "ItemSucceeded" => {
                item.agrees(event);
                item.over = true;
            }
            "RetryScheduled" => {
                let delay = number(&event["delay_ms"]);
                let due_at = number(&event["due_at"]);
                assert_eq!(due_at, at + delay, "{event}");
                if delay > 0 {
                    item.due_at = Some(due_at);
                }
                item.clock_from = (item.failed_before && delay == 0).then_some(at);
                let charged = &event["charged"];
                if event["cause"] == "failure" {
                    item.clock_from = Some(due_at);
                    item.delay_ms += delay;
                }
                // A budget that counts all is spent by losses too.
                if event["cause"] == "failure" || charged["job_retries"] == 1 {
                    retries += 1;
                    let step = step_retries.entry(number(&event["item"]["step"])).or_default();
                    *step += 1;
                    let accounts = &event["accounts"];
                    assert_eq!(spent(event, "job_retries"), retries, "{event}");
                    assert_eq!(spent(event, "step_retries"), *step, "{event}");
                    for (spent, budget) in [(retries, "job_budget"), (*step, "step_budget")] {
                        let budget = accounts[budget].as_u64();
                        assert!(budget.is_none_or(|budget| spent <= budget), "{event}");
                    }
                    let budget = accounts["delay_budget_ms"].as_u64().unwrap_or(u64::MAX);
                    assert!(item.delay_ms + item.downtime_ms <= budget, "{event}");
                }
                item.agrees(event);
            }
            "RetryDue" => {
                let due_at = item.due_at.take().unwrap_or_else(|| panic!("due twice: {event}"));
                assert!(at >= due_at, "too early: {event}");
                item.clock_from = item.failed_before.then_some(at);
            }
            "ItemFailed" => {
                item.agrees(event);
                item.over = true;
                item.reason = event["reason"].as_str().map(str::to_owned);
            }
            other => panic!("{other}?"),
        }
    }
    for (key, item) in &items {
        assert_eq!(item.started, item.ended, "{key} has an attempt without an end");
    }
    Checked { items, retries, restarts, state: state.expect("the job has ended") }
}

/// What really ran against what the log says.
#[track_caller]
fn check_side_effects(place: &Place, job: &str, events: &[Value]) {
    let mut ran: BTreeMap<String, u32> = BTreeMap::new();
    for token in place.read("tokens").lines() {
        *ran.entry(token.to_owned()).or_default() += 1;
    }
    for event in events.iter().filter(|event| is(event, "AttemptEnded")) {
        let times = ran.remove(&format!("{job}.{}", event["token"])).unwrap_or_default();
        let outcome = &event["outcome"];
        match () {
            () if outcome["lost"]["started"] == false => assert_eq!(times, 0, "it ran: {event}"),
            () if outcome["lost"].is_object() => assert!(times <= 1, "{times} times: {event}"),
            () => assert_eq!(times, 1, "it ran so often: {event}"),
        }
    }
    assert!(ran.is_empty(), "these ran, and the log knows nothing of them: {ran:?}");
}

/// What was said to have happened has happened, in that order.
#[track_caller]
fn check_told(place: &Place, job: &str, dead: &[Ended]) {
    let told = place.told(job);
    let mut rest = told.iter();
    for line in dead.iter().flat_map(Ended::acknowledged) {
        assert!(rest.any(|event| event == line), "{line:?} is lost; there is {told:#?}");
    }
}

#[track_caller]
fn check_status(place: &Place, job: &str, checked: &Checked) {
    let status = place.json(&["status", job]);
    assert_eq!(status["state"], checked.state.as_str());
    if !status["retry_budget"].is_null() {
        assert_eq!(number(&status["retry_budget"]["used"]), checked.retries, "{status}");
    }
    let steps = status["runs"][0]["steps"].as_object().expect("steps");
    for (number_of, step) in steps.values().enumerate() {
        let items = step["items"].as_array().expect("items").iter().map(|item| ("item", item));
        let fallback = Some(("fallback", &step["fallback"])).filter(|(_, it)| !it.is_null());
        for (role, item) in items.chain(fallback) {
            let tally = checked.items.get(&format!("{number_of}/{role}/{}", item["index"]));
            let Some(tally) = tally else { continue };
            assert_eq!(number(&item["failures"]), tally.failures, "{item}");
            assert_eq!(number(&item["preemptions"]), tally.preemptions, "{item}");
            assert_eq!(number(&item["delay_spent_ms"]), tally.delay_ms, "{item}");
            let attempts = item["attempts"].as_array().expect("attempts").len() as u64;
            assert_eq!(attempts, tally.started.min(100), "{item}");
        }
    }
}
