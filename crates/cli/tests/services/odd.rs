//! Services that answer badly, or not at all.

use serde_json::{Value, json};

use crate::helpers::{Place, Ran};
use crate::named;
use crate::service::{Answer, Service};

/// A step for each, all in one job, so that what takes its time does so at once. `on`: further keys of the
/// request; `retry`: of the policy.
struct Case {
    name: &'static str,
    on: &'static str,
    retry: &'static str,
    /// To the first attempt; the second succeeds.
    answer: Answer,
    means: &'static str,
}

fn case(name: &'static str, on: &'static str, answer: Answer, means: &'static str) -> Case {
    Case { name, on, retry: "", answer, means }
}

fn run(place: &Place, cases: Vec<Case>) -> (Ran, Service) {
    let mut lines = Vec::new();
    for Case { name, on, retry, .. } in &cases {
        lines.push(format!(
            "  {name}:\n    http: {{ url: 'URL/{name}', body: {{ a: 1 }}, {on} }}\n    \
             retry: {{ max_attempts: 2, initial_delay: 1ms, {retry} }}\n    on_failure: continue\n"
        ));
    }
    let answers: Vec<(String, Answer)> =
        cases.into_iter().map(|case| (format!("/{}", case.name), case.answer)).collect();
    let service = Service::new(move |seen| {
        let (_, answer) =
            answers.iter().find(|(path, _)| *path == seen.path).expect("one of the steps");
        if seen.attempt() == 1 { answer.clone() } else { Answer::output("at last") }
    });
    let steps = lines.concat().replace("URL", &service.url(""));
    let ran = place.run(&format!("name: odd\nsteps:\n{steps}"));
    (ran, service)
}

/// A reference costs nothing in the file; what it stands for is kept within bounds before it is sent.
#[test]
fn too_much_to_fill_in_is_an_error_that_lasts() {
    let place = Place::new("filled");
    let service = Service::always(Answer::output(1));
    let text = "x".repeat(1 << 20);
    let references = vec!["{{ item }}"; 40];
    let step =
        json!({ "for_each": [text], "http": { "url": service.url("/"), "body": references } });
    let ran = place.run(&json!({ "name": "t", "steps": { "s": step } }).to_string());
    let item = ran.item("s");
    assert_eq!((&item["reason"], service.calls()), (&json!("permanent_error"), 0), "{item}");
    let error = item["last_error"].as_str().expect("an error");
    assert!(error.contains("more than 16 MiB would be filled in"), "{error}");
}

#[test]
fn whatever_is_no_answer_is_not_completed_and_tried_again() {
    let place = Place::new("odd-no-answer");
    let say = |text: &str| Answer::text(200, text);
    let cases = || {
        let envelope = "expect: envelope";
        let missed = "the answer has no boolean `success`";
        vec![
            case("hangs", "timeout: 300ms", Answer::Hang, "no answer within 300ms"),
            case("drips", "timeout: 300ms", Answer::Drip, "bytes of the answer within 300ms"),
            case("resets", "timeout: 5s", Answer::Reset, "the connection was lost"),
            case("hangs-up", "timeout: 5s", Answer::Nothing, "the connection was lost"),
            case("half", "timeout: 5s", Answer::Half, "the answer broke off"),
            case("endless", "timeout: 20s", Answer::Endless, "larger than 1048576 bytes"),
            case("garbage", "timeout: 5s", Answer::Garbage, "what came back is not HTTP"),
            case("s500", "", Answer::text(500, "boom"), "boom"),
            case("s503", "", Answer::status(503), "503"),
            case("s408", "", Answer::status(408), "408"),
            case("s429", "", Answer::status(429), "429"),
            case("plain", envelope, say("fine"), missed),
            case("broken", envelope, say(r#"{"success": tru"#), missed),
            case("texts", envelope, say(r#"{"success": "true"}"#), missed),
            case("empty", envelope, say(""), missed),
            case("packed", "", say("x").with("Content-Encoding", "gzip"), "encoded as"),
            case("deep", "", say(&"[".repeat(200)), "nested deeper"),
            case("false", "", say(r#"{"success": false, "error": "nope"}"#), "nope"),
            case("f500", "", Answer::text(500, r#"{"success": false, "error": "no"}"#), "no"),
        ]
    };
    let (ran, service) = run(&place, cases());
    assert_eq!((ran.exit, ran.state()), (Some(0), "succeeded"), "{:#}", ran.status);
    for case in cases() {
        let item = ran.item(case.name);
        let first = &item["attempts"][0];
        let error = first["error"].as_str().unwrap_or_default();
        assert!(error.contains(case.means), "{}: {error}", case.name);
        let timed_out = ["hangs", "drips"].contains(&case.name);
        let failed = ["false", "f500"].contains(&case.name);
        let state = if timed_out {
            "timed_out"
        } else if failed {
            "failed"
        } else {
            "not_completed"
        };
        assert_eq!(first["state"], state, "{}: {first}", case.name);
        assert_eq!((&item["failures"], &item["output"]), (&json!(1), &json!("at last")), "{item}");
        let seen = service.of(&format!("/{}", case.name));
        assert_eq!(seen.len(), 2, "{}: {seen:?}", case.name);
        assert_eq!(seen[0].key(), seen[1].key());
    }
    place.replays();
}

#[test]
fn what_is_permanent_is_called_once_unless_a_rule_says_otherwise() {
    let place = Place::new("odd-permanent");
    let permanent = r#"{"success": false, "permanent": true, "error": "no such order"}"#;
    let statuses = [("s301", 301), ("s304", 304), ("s400", 400), ("s401", 401), ("s404", 404)];
    let mut cases: Vec<Case> =
        statuses.iter().map(|&(name, status)| case(name, "", Answer::status(status), "")).collect();
    cases.push(case("said", "", Answer::text(200, permanent), "no such order"));
    cases.push(case("said503", "", Answer::text(503, permanent), "no such order"));
    let rule = |name, status, retry| Case { retry, ..case(name, "", Answer::status(status), "") };
    cases.push(rule("retried", 404, "rules: [{ http_status: [404, 409], then: retry }]"));
    cases.push(rule("stopped", 503, "rules: [{ http_status: 503, then: stop }]"));
    cases.push(rule("deferred", 423, "rules: [{ http_status: 423, then: defer, delay: 5ms }]"));
    let (ran, service) = run(&place, cases);
    let end = |name: &str| {
        let item = ran.item(name);
        let reason = item["reason"].as_str().unwrap_or_default().to_owned();
        (service.of(&format!("/{name}")).len(), reason, item["failures"].as_u64().expect("so many"))
    };
    for name in ["s301", "s304", "s400", "s401", "s404", "said", "said503"] {
        assert_eq!(end(name), (1, "permanent_error".to_owned(), 1), "{name}");
        assert_eq!(ran.step(name)["state"], "failed", "{name}");
    }
    assert_eq!(ran.item("said")["last_error"], "the handler reported failure: no such order");
    assert_eq!(end("retried"), (2, String::new(), 1));
    assert_eq!(end("stopped"), (1, "rule_stop".to_owned(), 1));
    assert_eq!(end("deferred"), (2, String::new(), 0), "a deferral is no failure");
    place.replays();
}

#[test]
fn a_wait_that_is_asked_for_is_kept_charged_and_capped() {
    let place = Place::new("odd-retry-after");
    let after = |name: &'static str, value: &str| Answer::status(429).with(name, value);
    let dated = after("retry-after", "Sun, 06 Nov 1994 08:49:38 GMT")
        .with("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    let defer = Answer::json(&json!({ "success": false, "defer": "70ms" }));
    let said = Answer::json(&json!({ "success": false })).with("Retry-After", "0");
    let mut cases = vec![
        case("lower", "", after("retry-after", "1"), ""),
        case("title", "", after("Retry-After", "1"), ""),
        case("upper", "", after("RETRY-AFTER", "1"), ""),
        case("dated", "", dated, ""),
        case("s503", "", Answer::status(503).with("Retry-After", "1"), ""),
        case("at-once", "", said, ""),
        case("odd", "", after("Retry-After", "soon"), ""),
        case("defer", "", defer, ""),
    ];
    let capped = case("capped", "", after("Retry-After", "99999999999999999999999"), "");
    cases.push(Case { retry: "max_retry_after: 90ms", ..capped });
    let (ran, _service) = run(&place, cases);
    assert_eq!(ran.exit, Some(0), "{:#}", ran.status);
    let history = place.history();
    let steps: Vec<&String> =
        ran.status["runs"][0]["steps"].as_object().expect("steps").keys().collect();
    let planned: Vec<&str> = history[0]["plan"]["steps"]
        .as_array()
        .expect("the plan")
        .iter()
        .map(|step| step["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(steps.len(), planned.len());
    for (name, delay, cause) in [
        ("lower", 1000, "failure"),
        ("title", 1000, "failure"),
        ("upper", 1000, "failure"),
        ("dated", 1000, "failure"),
        ("s503", 1000, "failure"),
        ("at-once", 0, "failure"),
        ("odd", 1, "failure"),
        ("capped", 90, "failure"),
        ("defer", 70, "deferral"),
    ] {
        let step = planned.iter().position(|it| *it == name).expect("a step");
        let retries = named(&history, "RetryScheduled");
        let retries: Vec<&Value> =
            retries.into_iter().filter(|event| event["item"]["step"] == step).collect();
        let [retry] = retries[..] else { panic!("{name}: {retries:?}") };
        assert_eq!((&retry["delay_ms"], &retry["cause"]), (&json!(delay), &json!(cause)), "{name}");
        let spent = if cause == "failure" { delay } else { 0 };
        let accounts = &retry["accounts"];
        assert_eq!(accounts["delay_spent_ms"], spent, "{name}: {retry}");
        let (failures, deferrals) = if cause == "failure" { (1, 0) } else { (0, 1) };
        assert_eq!(
            (&accounts["failures"], &accounts["deferrals"]),
            (&json!(failures), &json!(deferrals)),
            "{name}: {retry}"
        );
        let (ended, started) =
            (retry["at"].as_u64(), ran.item(name)["attempts"][1]["started_at_ms"].as_u64());
        assert!(started >= ended.map(|at| at + delay), "{name}: it began too early");
    }
    place.replays();
}
