use std::io::Write;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use steadfast_core::decide::{Input, accept, advance};
use steadfast_core::event::{AcceptedJob, Event, ItemId, JobId, RecordedEvent, Requester, Role};
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_core::plan::{Action, Plan, PlanDraft, StepDraft};
use steadfast_core::policy::{Policy, PolicyDraft};
use steadfast_core::time::Timestamp;
use steadfast_engine::{FleetNotification, Observer};
use steadfast_server::observability::{LogFormat, LogOptions, Observability, Rejected, subscriber};

use crate::page::{Page, promtool};
use crate::world::{BEST_EFFORT, BUDGET, events, metrics, plan};

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics with it").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is logged meanwhile.
fn logged(
    format: LogFormat,
    filter: &str,
    colour: bool,
    tell: impl FnOnce(&Observability),
) -> String {
    let watch = Observability::new(metrics(true), None);
    let kept = Kept::default();
    let options = LogOptions { format, filter: filter.to_owned(), colour };
    let (subscriber, log) =
        subscriber(&options, Box::new(kept.clone()), watch.metrics()).expect("a valid filter");
    tracing::subscriber::with_default(subscriber, || tell(&watch));
    drop(log);
    let kept = kept.0.lock().expect("nobody panics with it").clone();
    String::from_utf8(kept).expect("UTF-8")
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

fn hear(watch: &Observability, id: &str, records: Vec<RecordedEvent>) {
    watch.clone().committed(&JobId::from(id), records);
}

fn named<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}

#[test]
fn a_spent_budget_is_logged_with_its_accounts() {
    let log = events("j1", &plan(BUDGET), "fetch: [exit:7]");
    let retries: Vec<(u64, u64)> = log
        .iter()
        .filter_map(|record| match &record.event {
            Event::RetryScheduled { delay_ms, due_at, .. } => Some((*delay_ms, due_at.0)),
            _ => None,
        })
        .collect();
    let text = logged(LogFormat::Json, "info", false, |watch| hear(watch, "j1", log));
    let lines = json(&text);
    for line in &lines {
        assert!(line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        assert!(line["target"].as_str().is_some_and(|it| it.starts_with("steadfast::")), "{line}");
        assert_eq!(line["job_id"], "j1");
    }
    let scheduled: Vec<(u64, u64)> = named(&lines, "RetryScheduled")
        .iter()
        .map(|line| {
            assert_eq!((&line["step"], &line["cause"]), (&"fetch".into(), &"failure".into()));
            (line["delay_ms"].as_u64().unwrap_or(0), line["due_at_ms"].as_u64().unwrap_or(0))
        })
        .collect();
    assert_eq!(scheduled, retries);
    let [spent] = named(&lines, "RetryBudgetExhausted")[..] else { panic!("{text}") };
    assert_eq!(spent["level"], "WARN");
    assert_eq!(spent["budget"], "job");
    assert_eq!(spent["reason"], "job_budget_exhausted");
    assert_eq!((&spent["consumed"], &spent["total_budget"]), (&3.into(), &3.into()));
    assert_eq!((&spent["step_consumed"], &spent["per_step_max"]), (&3.into(), &3.into()));
    assert_eq!((&spent["step"], &spent["attempt"]), (&"fetch".into(), &4.into()));
    assert_eq!(spent["error"], "exit code 7");
    assert_eq!(named(&lines, "AttemptEnded").len(), 4, "failures are warnings");
    assert!(named(&lines, "AttemptStarted").is_empty(), "that is for debug");
    assert!(named(&lines, "JobAccepted").is_empty(), "and that");
    let [ended] = named(&lines, "JobEnded")[..] else { panic!("{text}") };
    assert_eq!((&ended["state"], &ended["attempts"]), (&"failed".into(), &4.into()));
}

#[test]
fn a_best_effort_completion_and_its_late_result_are_logged() {
    let plan = plan(BEST_EFFORT);
    let script = "us/index: [\"ok@1s\"]\neu/index: [\"exit:1\"]\nap/index: [\"ok@2s\"]";
    let log = events("j1", &plan, script);
    let text = logged(LogFormat::Json, "info", false, |watch| hear(watch, "j1", log));
    let lines = json(&text);
    let [done] = named(&lines, "BestEffortCompletion")[..] else { panic!("{text}") };
    assert_eq!(done["is_success"], true);
    assert_eq!((&done["datacenters_succeeded"], &done["datacenters"]), (&2.into(), &3.into()));
    assert_eq!(done["completed"], serde_json::json!(["us", "ap"]), "a list, not its text");
    assert_eq!(done["failed"], serde_json::json!(["eu"]));
    assert_eq!(done["ratio"], 0.6667);
    assert!(named(&lines, "LateDatacenterResult").is_empty());

    let script = "us/index: [\"ok@1s\"]\neu/index: [\"ok@9s\"]\nap/index: [\"ok@2s\"]";
    let log = events("j1", &plan, script);
    let text = logged(LogFormat::Json, "info", false, |watch| hear(watch, "j1", log));
    let lines = json(&text);
    let [done] = named(&lines, "BestEffortCompletion")[..] else { panic!("{text}") };
    assert_eq!(done["reason"], "min_datacenters_reached");
    let [late] = named(&lines, "LateDatacenterResult")[..] else { panic!("{text}") };
    assert_eq!((&late["datacenter"], &late["state"]), (&"eu".into(), &"succeeded".into()));
    assert_eq!(late["added"], true);
}

#[test]
fn a_delay_budget_that_ran_out_while_the_engine_was_down_is_logged_as_expired() {
    let job = "
name: down
retry: { max_attempts: 9, initial_delay: 10s, backoff: fixed, delay_budget: 1m }
steps:
  fetch: { run: 'true' }
";
    let log = events("j1", &plan(job), "fetch: [exit:1, \"down:10m\", ok]");
    let text = logged(LogFormat::Json, "debug", false, |watch| hear(watch, "j1", log));
    let lines = json(&text);
    let [spent] = named(&lines, "RetryBudgetExhausted")[..] else { panic!("{text}") };
    assert_eq!((&spent["budget"], &spent["on"]), (&"delay".into(), &"restart".into()));
    let said = spent["explanation"].as_str().unwrap_or_default();
    assert_eq!(said, "Retry budget exhausted: it expired while the engine was down");
    // As Prodigy's document has it.
    let [expired] = named(&lines, "Command fetch retry budget expired")[..] else {
        panic!("{text}")
    };
    assert_eq!((&expired["level"], &expired["job_id"]), (&"DEBUG".into(), &"j1".into()));
    assert_eq!(named(&lines, "EngineRestarted").len(), 1);
}

#[test]
fn a_job_that_goes_well_is_for_debug() {
    let log = || events("j1", &plan(BUDGET), "fetch: [ok]");
    assert_eq!(logged(LogFormat::Json, "info", false, |watch| hear(watch, "j1", log())), "");
    let text = logged(LogFormat::Json, "debug", false, |watch| hear(watch, "j1", log()));
    let lines = json(&text);
    let [accepted] = named(&lines, "JobAccepted")[..] else { panic!("{text}") };
    assert_eq!((&accepted["job"], &accepted["retry_budget"]), (&"budget".into(), &3.into()));
    let [ended] = named(&lines, "JobEnded")[..] else { panic!("{text}") };
    assert_eq!((&ended["state"], &ended["level"]), (&"succeeded".into(), &"DEBUG".into()));
    assert_eq!((named(&lines, "JobStarted").len(), named(&lines, "RunEnded").len()), (1, 1));
}

#[test]
fn a_filter_opens_one_target_alone() {
    let log = || events("j1", &plan(BUDGET), "fetch: [exit:7, ok]");
    let attempts = logged(LogFormat::Json, "warn,steadfast::attempt=debug", false, |watch| {
        hear(watch, "j1", log());
    });
    let lines = json(&attempts);
    assert_eq!(named(&lines, "AttemptStarted").len(), 2);
    assert!(named(&lines, "JobAccepted").is_empty());
    let ended: Vec<&Value> =
        named(&lines, "AttemptEnded").into_iter().map(|line| &line["level"]).collect();
    assert_eq!(ended, ["WARN", "DEBUG"]);
}

#[test]
fn what_workers_do_is_logged_and_counted() {
    let text = logged(LogFormat::Json, "info", false, |watch| {
        let worker: Arc<str> = "w1".into();
        let datacenter = Some("eu".to_owned());
        let why = "five failures in a row".to_owned();
        watch.clone().fleet(vec![
            FleetNotification::Connected { worker: worker.clone(), datacenter, returning: false },
            FleetNotification::Quarantined { worker: worker.clone(), for_ms: 60_000, why },
            FleetNotification::Lost { worker, attempts: 2, why: "its lease ended" },
        ]);
        let job = JobId::from("j1");
        let rejected = Rejected {
            job: &job,
            item: "eu/index[2]",
            attempt: Some(3),
            token: 17,
            worker: "w1",
            reason: "stale fence",
        };
        watch.attempt_rejected(&rejected);
        let page = Page::read(&watch.metrics().render());
        assert_eq!(page.get("steadfast_reports_rejected_total"), 1.0);
        assert_eq!(page.get("steadfast_leases_lost_total"), 1.0);
    });
    let lines = json(&text);
    let names: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(names, ["WorkerConnected", "WorkerQuarantined", "WorkerLost", "AttemptRejected"]);
    assert_eq!((&lines[3]["token"], &lines[3]["attempt"]), (&17.into(), &3.into()));
    assert_eq!((&lines[0]["datacenter"], &lines[2]["attempts"]), (&"eu".into(), &2.into()));
    assert_eq!(lines[1]["reason"], "five failures in a row");
}

/// Everything that somebody may hope to get through with.
const HOSTILE: &str = "a\"b\\c\nevent=JobEnded\r\n{\"event\":\"JobEnded\"}\x1b[2J\x1b]0;x\x07\u{9b}31m\u{202e}\u{2028}\u{7f}\t}# HELP x\nx 1\n";

/// A job of which whatever can be hostile is, through the real decisions.
fn hostile() -> (JobId, Vec<RecordedEvent>) {
    let policy = Policy::new(PolicyDraft::default()).expect("the defaults are valid");
    let step = StepDraft::new("s", Action::Run("true".into()), policy);
    let plan = Arc::new(Plan::new(PlanDraft::new(HOSTILE, vec![step])).expect("names are free"));
    let id = JobId::from(HOSTILE);
    let (mut job, mut log) = accept(AcceptedJob::new(id.clone(), plan), Timestamp(0));
    let item = ItemId { run: 0, step: 0, role: Role::Item, index: 0 };
    let error = ErrorText { kind: Some(HOSTILE.into()), message: HOSTILE.repeat(2000) };
    let failure = Failure { error: Some(error), ..Failure::new(FailureKind::HandlerFailed) };
    let inputs = [
        Input::Start { item, worker: HOSTILE.into(), incarnation: None, least_token: 0 },
        Input::Report { item, token: 1, outcome: Outcome::Failed(failure) },
        Input::Cancel(Requester::new(Some(HOSTILE), Some(HOSTILE)).expect("it is short")),
    ];
    for input in inputs {
        log.extend(advance(&mut job, &input, Timestamp(1)).expect("it fits").log);
    }
    (id, log)
}

#[test]
fn hostile_words_cannot_leave_their_field() {
    let (id, log) = hostile();
    let expected = ["AttemptEnded", "RetryScheduled", "CancelRequested", "JobEnded", "RunEnded"];
    for format in [LogFormat::Json, LogFormat::Text] {
        let (id, log) = (id.clone(), log.clone());
        let text = logged(format, "info", false, |watch| {
            watch.clone().committed(&id, log);
        });
        let bad = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2028}".contains(c);
        assert!(!text.contains(bad), "{text:?}");
        assert_eq!(text.lines().count(), expected.len(), "{text}");
        assert!(text.lines().all(|line| line.len() < 40_000));
        for (line, event) in text.lines().zip(expected) {
            match format {
                LogFormat::Json => {
                    let line: Value = serde_json::from_str(line).expect(line);
                    assert_eq!(line["event"], event);
                    assert_eq!(line["job_id"], HOSTILE, "what was written can be read back");
                }
                LogFormat::Text => assert_eq!(line.split_whitespace().nth(2), Some(event)),
            }
        }
    }
}

#[test]
fn hostile_words_cannot_break_the_page_of_metrics() {
    let (id, log) = hostile();
    let watch = Observability::new(metrics(true), None);
    watch.clone().committed(&id, log);
    let text = watch.metrics().render();
    assert_eq!(Page::read(&text).get("steadfast_jobs_accepted_total"), 1.0);
    // Ids are made by the server; if one were hostile all the same, it would stay a label.
    let log = events("x", &plan(BUDGET), "fetch: [exit:1]");
    hear(&watch, HOSTILE, log[..log.len() - 2].to_vec());
    let text = watch.metrics().render();
    assert_eq!(Page::read(&text).named("retry_budget_consumed_total").count(), 2, "{text}");
    promtool(&text);
}

#[test]
fn an_event_named_in_a_field_goes_by_that_name() {
    let text = logged(LogFormat::Json, "info", false, |_| {
        tracing::info!(event = "LogNotWritten", worker = "w1");
        tracing::info!(event = "LogNotWritten", "it is full");
    });
    let lines = json(&text);
    assert_eq!(named(&lines, "LogNotWritten").len(), 2, "{text}");
    assert_eq!(lines[1]["message"], "it is full");
}

#[test]
fn only_a_terminal_sees_colours() {
    let tell = |watch: &Observability| watch.worker_refused("w 1", "expired");
    let plain = logged(LogFormat::Text, "info", false, tell);
    assert!(plain.ends_with(" WARN  WorkerRefused worker=\"w 1\" reason=expired\n"), "{plain}");
    assert!(!plain.contains('\x1b'));
    assert!(logged(LogFormat::Text, "info", true, tell).contains("\x1b[33mWARN"));
    assert!(!logged(LogFormat::Json, "info", true, tell).contains('\x1b'));
}
