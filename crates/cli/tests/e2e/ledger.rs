//! What clients of a storm were told, held at its end against what is stored and against what really ran.
//!
//! The judge believes nobody: the clients' side of every acknowledgement is written down here, and every
//! process writes a line of its own to a file outside of the product.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::harness::Place;

/// The retries that a job of [`Kind::Budgeted`] may spend.
const BUDGET: u64 = 5;

/// What a job does, and so what must become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// One attempt is enough, and it has no other: a loss must cost it nothing.
    Succeeds,
    /// Fails each time: exactly three failures are charged.
    Fails,
    /// Six items that always fail share a budget of [`BUDGET`] retries.
    Budgeted,
    /// `retryable: false`: its process runs at most once, whatever is killed.
    Once,
    /// Three items, then a step that needs them.
    Chain,
    /// Fails twice, then succeeds.
    Flaky,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Succeeds, Self::Fails, Self::Budgeted, Self::Once, Self::Chain, Self::Flaky];

    /// The job file. Each process writes `start JOB STEP ITEM ATTEMPT TOKEN MILLISECONDS` before it does
    /// anything.
    pub(crate) fn job(self, place: &Place, name: &str) -> String {
        let says = |word: &str| {
            format!(
                "echo {word} $STEADFAST_JOB_ID $STEADFAST_STEP $STEADFAST_ITEM_INDEX $STEADFAST_ATTEMPT \
                 $STEADFAST_ATTEMPT_TOKEN $(date +%s%3N) >> {}",
                place.text("ran")
            )
        };
        let (start, end) = (says("start"), says("end"));
        let count = format!("{}-$STEADFAST_JOB_ID", place.text("count"));
        let fixed = |attempts: u32| json!({ "max_attempts": attempts, "backoff": "fixed", "initial_delay": "50ms" });
        let steps = match self {
            Self::Succeeds => json!({ "s": {
                "run": format!("{start}; sleep 0.1"), "retry": { "max_attempts": 1 },
            } }),
            Self::Fails => json!({ "s": { "run": format!("{start}; exit 1"), "retry": fixed(3) } }),
            Self::Budgeted => json!({ "s": {
                "run": format!("{start}; exit 1"), "for_each": { "range": 6 }, "retry": fixed(4),
            } }),
            Self::Once => json!({ "s": {
                "run": format!("{start}; sleep 0.1"), "retry": { "retryable": false },
            } }),
            Self::Chain => json!({
                "a": { "run": format!("{start}; {end}"), "for_each": { "range": 3 }, "retry": fixed(1) },
                "b": { "needs": ["a"], "run": start, "retry": fixed(1) },
            }),
            Self::Flaky => json!({ "s": {
                "run": format!("{start}; echo >> {count}; [ $(wc -l < {count}) -gt 2 ]"), "retry": fixed(3),
            } }),
        };
        let mut job = json!({ "name": name, "steps": steps });
        if self == Self::Budgeted {
            job["retry_budget"] = json!({ "total": BUDGET, "per_step": BUDGET });
        }
        job.to_string()
    }
}

/// One submission that was acknowledged.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) kind: Kind,
    pub(crate) id: String,
    /// When a cancel was acknowledged, if one was, in Unix milliseconds.
    pub(crate) cancelled_ms: Option<u64>,
}

/// A process that ran, by its own word.
#[derive(Debug)]
struct Ran {
    /// Where in the file its line stands.
    line: usize,
    step: String,
    item: u64,
    attempt: u64,
    token: String,
    at_ms: u64,
}

/// All that really ran, by job.
#[derive(Debug, Default)]
pub(crate) struct Executions {
    started: HashMap<String, Vec<Ran>>,
    ended: HashMap<String, Vec<Ran>>,
}

impl Executions {
    pub(crate) fn read(place: &Place) -> Self {
        let mut read = Self::default();
        for (line, text) in place.lines("ran").iter().enumerate() {
            let words: Vec<&str> = text.split(' ').collect();
            let [word, job, step, item, attempt, token, at_ms] = words[..] else {
                panic!("line {line} of `ran`: {text}");
            };
            let number =
                |text: &str| text.parse().unwrap_or_else(|_| panic!("line {line}: {text}"));
            let ran = Ran {
                line,
                step: step.to_owned(),
                item: number(item),
                attempt: number(attempt),
                token: token.to_owned(),
                at_ms: number(at_ms),
            };
            let lines = if word == "start" { &mut read.started } else { &mut read.ended };
            lines.entry(job.to_owned()).or_default().push(ran);
        }
        read
    }

    pub(crate) fn count(&self) -> usize {
        self.started.values().map(Vec::len).sum()
    }
}

/// Collects what is wrong of one job.
struct Case<'a> {
    entry: &'a Entry,
    status: &'a Value,
    started: &'a [Ran],
    wrong: Vec<String>,
}

/// What is wrong with one acknowledged job; nothing if all that was said is true. A process of a cancelled
/// job may begin until `withdrawn_ms` after the acknowledgement: a worker that was stopped or out of reach
/// hears of it no sooner.
pub(crate) fn judge(
    entry: &Entry,
    status: &Value,
    executions: &Executions,
    withdrawn_ms: u64,
) -> Vec<String> {
    let started = executions.started.get(&entry.id).map_or(&[][..], Vec::as_slice);
    let mut case = Case { entry, status, started, wrong: Vec::new() };
    case.ended_as_it_must();
    case.charged_what_ran();
    case.no_fence_twice();
    case.nothing_after_a_cancel(withdrawn_ms);
    if entry.kind == Kind::Chain {
        let ended = executions.ended.get(&entry.id).map_or(&[][..], Vec::as_slice);
        case.in_order(ended);
    }
    let Case { wrong, .. } = case;
    wrong
        .iter()
        .map(|wrong| format!("{} ({:?}, {}): {wrong}", entry.id, entry.kind, entry.key))
        .collect()
}

/// Whether every attempt that had begun came to an end of its own, or was ended on an order.
pub(crate) fn nothing_was_lost(status: &Value) -> bool {
    let runs = status["runs"].as_array().into_iter().flatten();
    let mut items = runs
        .filter_map(|run| run["steps"].as_object())
        .flat_map(|steps| steps.values())
        .filter_map(|step| step["items"].as_array())
        .flatten();
    items.all(|item| item["preemptions"] == 0)
}

impl Case<'_> {
    fn wrong(&mut self, what: String) {
        self.wrong.push(what);
    }

    /// Every item with its step's name.
    fn items(&self) -> Vec<(String, Value)> {
        let runs = self.status["runs"].as_array().into_iter().flatten();
        let steps = runs.filter_map(|run| run["steps"].as_object()).flatten();
        steps
            .flat_map(|(name, step)| {
                let items = step["items"].as_array().into_iter().flatten();
                items.map(|item| (name.clone(), item.clone()))
            })
            .collect()
    }

    fn ended_as_it_must(&mut self) {
        let state = self.status["state"].as_str().unwrap_or_default().to_owned();
        let expected: &[&str] = match self.entry.kind {
            Kind::Succeeds | Kind::Chain | Kind::Flaky => &["succeeded"],
            Kind::Fails | Kind::Budgeted => &["failed"],
            // Lost once it had begun, it is over.
            Kind::Once => &["succeeded", "failed"],
        };
        let cancelled = self.entry.cancelled_ms.is_some() && state == "cancelled";
        if !cancelled && !expected.contains(&state.as_str()) {
            self.wrong(format!("is {state}, not {expected:?}"));
        }
    }

    /// No failure without a process that failed, none beyond the limits, and no process that is not in the
    /// log.
    fn charged_what_ran(&mut self) {
        let limit = match self.entry.kind {
            Kind::Succeeds | Kind::Chain | Kind::Once => 0,
            Kind::Fails => 3,
            Kind::Flaky => 2,
            Kind::Budgeted => 4,
        };
        let mut recorded = BTreeSet::new();
        let mut retried = 0;
        for (step, item) in self.items() {
            let (index, failures) =
                (item["index"].as_u64(), item["failures"].as_u64().unwrap_or(u64::MAX));
            if failures > limit {
                self.wrong(format!(
                    "{failures} failures are charged to {step}{index:?}, {limit} at most"
                ));
            }
            let over = self.entry.cancelled_ms.is_none();
            if self.entry.kind == Kind::Fails && over && failures != limit {
                self.wrong(format!("{failures} failures are charged, not {limit}"));
            }
            let attempts = item["attempts"].as_array().cloned().unwrap_or_default();
            let failed = attempts.iter().filter(|attempt| attempt["state"] == "failed");
            let failed: Vec<_> = failed.filter_map(|attempt| attempt["attempt"].as_u64()).collect();
            if failed.len() as u64 != failures && item["state"] != "cancelled" {
                self.wrong(format!(
                    "{failures} failures are charged for {} that failed",
                    failed.len()
                ));
            }
            retried += failures.saturating_sub(1);
            for attempt in failed {
                let ran =
                    |ran: &Ran| (&ran.step, Some(ran.item), ran.attempt) == (&step, index, attempt);
                if !self.started.iter().any(ran) {
                    self.wrong(format!(
                        "attempt {attempt} of {step}{index:?} failed and never ran"
                    ));
                }
            }
            let odd = |state: &Value| state == "timed_out" || state == "not_completed";
            if attempts.iter().any(|attempt| odd(&attempt["state"])) {
                self.wrong(format!("an attempt ended as none can: {attempts:?}"));
            }
            let numbers = attempts.iter().filter_map(|attempt| attempt["attempt"].as_u64());
            recorded.extend(numbers.map(|attempt| (step.clone(), index, attempt)));
        }
        for ran in self.started {
            if !recorded.contains(&(ran.step.clone(), Some(ran.item), ran.attempt)) {
                self.wrong.push(format!("{ran:?} is not recorded"));
            }
        }
        let used = self.status["retry_budget"]["used"].as_u64().unwrap_or(0);
        if self.entry.kind == Kind::Budgeted && (used > BUDGET || retried > BUDGET) {
            self.wrong(format!("{used} retries were counted and {retried} made of {BUDGET}"));
        }
        if self.entry.kind == Kind::Once && self.started.len() > 1 {
            self.wrong(format!("ran {} times", self.started.len()));
        }
    }

    fn no_fence_twice(&mut self) {
        let mut by_token = BTreeMap::<&str, u32>::new();
        for ran in self.started {
            *by_token.entry(&ran.token).or_default() += 1;
        }
        let twice: Vec<_> = by_token.into_iter().filter(|(_, times)| *times > 1).collect();
        if !twice.is_empty() {
            self.wrong(format!("attempts ran twice, by token: {twice:?}"));
        }
    }

    fn nothing_after_a_cancel(&mut self, withdrawn_ms: u64) {
        let Some(cancelled_ms) = self.entry.cancelled_ms else { return };
        if let Some(late) = self.started.iter().find(|ran| ran.at_ms > cancelled_ms + withdrawn_ms)
        {
            self.wrong(format!("cancelled at {cancelled_ms}, yet {late:?}"));
        }
    }

    /// What another step needs had ended before it began.
    fn in_order(&mut self, ended: &[Ran]) {
        let Some(first) = self.started.iter().find(|ran| ran.step == "b") else { return };
        let before: BTreeSet<u64> =
            ended.iter().filter(|ran| ran.line < first.line).map(|ran| ran.item).collect();
        if before.len() != 3 {
            self.wrong(format!("b began after {before:?} of a had ended"));
        }
    }
}

/// Each line of the ledger broken in turn: a judge that lets one pass is no judge.
#[test]
fn the_judge_finds_what_is_wrong() {
    let ran = |step: &str, attempt, token: &str, at_ms| Ran {
        line: 0,
        step: step.to_owned(),
        item: 0,
        attempt,
        token: token.to_owned(),
        at_ms,
    };
    let item = |failures: u64, attempts: &[&str]| {
        let attempts: Vec<_> =
            (1..).zip(attempts).map(|(n, state)| json!({ "attempt": n, "state": state })).collect();
        json!({ "index": 0, "state": "failed", "failures": failures, "attempts": attempts })
    };
    let found = |kind, cancelled_ms, state: &str, item: Value, started: Vec<Ran>| {
        let entry = Entry { key: "k".to_owned(), kind, id: "j".to_owned(), cancelled_ms };
        let steps = json!({ "s": { "items": [item] } });
        let status =
            json!({ "state": state, "runs": [{ "steps": steps }], "retry_budget": { "used": 6 } });
        let executions =
            Executions { started: [("j".to_owned(), started)].into(), ..Executions::default() };
        judge(&entry, &status, &executions, 1000).join("\n")
    };
    let once = || vec![ran("s", 1, "7", 0)];
    let good = found(Kind::Succeeds, None, "succeeded", item(0, &["succeeded"]), once());
    assert_eq!(good, "");
    for (wrong, words) in [
        (found(Kind::Succeeds, None, "running", item(0, &["succeeded"]), once()), "is running"),
        (found(Kind::Succeeds, None, "cancelled", item(0, &["killed"]), once()), "is cancelled"),
        (found(Kind::Succeeds, None, "succeeded", item(1, &["failed"]), once()), "0 at most"),
        (found(Kind::Fails, None, "failed", item(1, &["failed"]), once()), "not 3"),
        (found(Kind::Flaky, None, "succeeded", item(2, &["failed"]), once()), "for 1 that failed"),
        (found(Kind::Flaky, None, "succeeded", item(1, &["failed"]), vec![]), "never ran"),
        (found(Kind::Succeeds, None, "succeeded", item(0, &[]), once()), "not recorded"),
        (found(Kind::Succeeds, None, "succeeded", item(0, &["timed_out"]), once()), "as none can"),
        (found(Kind::Budgeted, None, "failed", item(1, &["failed"]), once()), "6 retries"),
        (
            found(
                Kind::Once,
                None,
                "failed",
                item(0, &["worker_lost"; 2]),
                vec![ran("s", 1, "7", 0), ran("s", 2, "8", 0)],
            ),
            "ran 2 times",
        ),
        (
            found(
                Kind::Succeeds,
                None,
                "succeeded",
                item(0, &["succeeded"]),
                vec![ran("s", 1, "7", 0), ran("s", 1, "7", 0)],
            ),
            "ran twice",
        ),
        (
            found(
                Kind::Succeeds,
                Some(1),
                "cancelled",
                item(0, &["killed"]),
                vec![ran("s", 1, "7", 1002)],
            ),
            "cancelled at 1",
        ),
        (
            found(Kind::Chain, None, "succeeded", item(0, &[]), vec![ran("b", 1, "7", 0)]),
            "b began after {}",
        ),
    ] {
        assert!(wrong.contains(words), "{words:?} is not found: {wrong:?}");
    }
}
