//! What the answer of a web service means, once: for the worker that called it, and for a callback
//! that comes later.
//!
//! Where the answer is JSON with a boolean `success`, that decides, whatever the status; otherwise the
//! status does. Knows no sockets: status and bytes are handed in.

use serde_json::{Map, Value};

use crate::duration::parse_duration;
use crate::outcome::{
    ErrorText, Failure, FailureKind, MOST_NESTED, Outcome, Permanence, RequestedDelay, nesting,
};
use crate::plan::HttpExpect;
use crate::text::shorten;

/// Characters of an error that are kept: it goes into the log, and answers may be a megabyte.
const LONGEST_ERROR: usize = 2000;
/// The same of a body that is shown because nothing better is known.
const LONGEST_EXCERPT: usize = 300;
/// Whatever says what kind of error it is, in the order in which it is believed.
const KIND_KEYS: [&str; 3] = ["type", "kind", "code"];

/// The body of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum ServiceAnswer {
    Nothing,
    Json(Value),
    Text(String),
    /// Not text, so that it can neither be an envelope nor an output.
    Binary,
    /// Compressed, or in some other way that was not asked for: it may hide an envelope.
    Encoded(String),
    /// JSON that is nested too deep to be read.
    TooDeep,
}

impl ServiceAnswer {
    /// What kind of text it says it is does not matter: too many services say nothing, or the wrong thing.
    pub fn read(body: &[u8]) -> Self {
        let body = body.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(body);
        if body.trim_ascii().is_empty() {
            return Self::Nothing;
        }
        match serde_json::from_slice::<Value>(body) {
            Ok(value) => Self::Json(value),
            // The one error that says nothing about whether it is JSON; there is no other way to tell.
            Err(error) if error.to_string().starts_with("recursion limit") => Self::TooDeep,
            Err(_) => str::from_utf8(body).map_or(Self::Binary, |text| Self::Text(text.to_owned())),
        }
    }

    /// What its `success` says, if it has one.
    pub fn said(&self) -> Option<Outcome> {
        match self {
            Self::Json(body) => said(body),
            _ => None,
        }
    }

    fn into_output(self) -> Result<Option<Value>, Failure> {
        match self {
            Self::Nothing | Self::Binary => Ok(None),
            Self::Json(value) if nesting(&value) > MOST_NESTED => Err(too_deep()),
            Self::Json(value) => Ok(Some(value)),
            Self::Text(text) => Ok(Some(Value::String(text))),
            Self::TooDeep => Err(too_deep()),
            Self::Encoded(how) => Err(not_completed(
                "unreadable_answer",
                format!("the answer is encoded as {how}, which was not asked for"),
            )),
        }
    }

    /// What is known of an error, where no envelope says it.
    fn error(&self) -> Option<ErrorText> {
        match self {
            Self::Json(Value::Object(body)) if body.contains_key("error") => error_of(body),
            Self::Json(Value::Object(body))
                if body.get("message").is_some_and(Value::is_string) =>
            {
                error_text(&Value::Object(body.clone()))
            }
            Self::Json(body) => Some(unnamed(&shorten(&body.to_string(), LONGEST_EXCERPT))),
            Self::Text(text) => Some(unnamed(&shorten(text.trim(), LONGEST_EXCERPT))),
            Self::Nothing | Self::Binary | Self::Encoded(_) | Self::TooDeep => None,
        }
    }
}

/// What an answer says of the work: `None` if it is not an object with a boolean `success`.
pub fn said(body: &Value) -> Option<Outcome> {
    let body = body.as_object()?;
    if body.get("success")?.as_bool()? {
        return Some(match body.get("output") {
            None | Some(Value::Null) => Outcome::OK,
            Some(output) if nesting(output) > MOST_NESTED => Outcome::Failed(too_deep()),
            Some(output) => Outcome::Succeeded { output: Some(output.clone()) },
        });
    }
    let mut failure = Failure { error: error_of(body), ..Failure::new(FailureKind::HandlerFailed) };
    let mut ignored = Vec::new();
    match body.get("permanent") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::Bool(true)) => failure.permanence = Permanence::Said,
        Some(_) => ignored.push("`permanent` is neither true nor false".to_owned()),
    }
    match body.get("defer") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => match parse_duration(text) {
            Ok(ms) => failure.asked = Some(RequestedDelay::DeferMs(ms)),
            Err(error) => ignored.push(format!("`defer`: {error}")),
        },
        Some(_) => ignored.push("`defer` is not a text as \"30s\"".to_owned()),
    }
    if !ignored.is_empty() {
        let error = failure.error.get_or_insert_with(|| unnamed("failed"));
        error.message.push_str(&format!(" (ignored: {})", ignored.join("; ")));
    }
    Some(Outcome::Failed(failure))
}

/// What an attempt has come to that was answered with this status and body. `retry_after_ms`: the wait
/// that the service asked for, which a `defer` in the body overrides.
pub fn answered(
    status: u16,
    answer: ServiceAnswer,
    expect: HttpExpect,
    retry_after_ms: Option<u64>,
) -> Outcome {
    let outcome = answer.said().map_or_else(
        || by_status(status, answer, expect),
        |said| match said {
            // A 200 beside `success: false` says nothing; any other status may, to people and to rules.
            Outcome::Failed(failure) if !(200..300).contains(&status) => {
                Outcome::Failed(Failure { http_status: Some(status), ..failure })
            }
            said => said,
        },
    );
    match outcome {
        Outcome::Failed(mut failure) => {
            failure.asked = failure.asked.or(retry_after_ms.map(RequestedDelay::RetryAfterMs));
            Outcome::Failed(failure)
        }
        outcome => outcome,
    }
}

fn by_status(status: u16, answer: ServiceAnswer, expect: HttpExpect) -> Outcome {
    match (Outcome::from_http_status(status), expect) {
        (Outcome::Failed(failure), _) => {
            Outcome::Failed(Failure { error: answer.error(), ..failure })
        }
        (_, HttpExpect::Any) => match answer.into_output() {
            Ok(output) => Outcome::Succeeded { output },
            Err(failure) => Outcome::Failed(failure),
        },
        (_, HttpExpect::Envelope) => {
            let message = "the answer has no boolean `success`, which `expect: envelope` wants";
            let failure = match answer.into_output() {
                Ok(_) => not_completed("no_envelope", message.to_owned()),
                Err(failure) => failure,
            };
            Outcome::Failed(Failure { http_status: Some(status), ..failure })
        }
    }
}

fn error_of(body: &Map<String, Value>) -> Option<ErrorText> {
    body.get("error").and_then(error_text)
}

/// An error as services write it: a text, or what kind it is and a text.
fn error_text(error: &Value) -> Option<ErrorText> {
    let plain = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    match error {
        Value::Null => None,
        Value::Object(parts) => {
            let kind = KIND_KEYS.iter().find_map(|key| parts.get(*key).and_then(plain));
            let message = parts.get("message").and_then(plain);
            let message = message.unwrap_or_else(|| error.to_string());
            let kind = kind.map(|kind| shorten(&kind, LONGEST_ERROR));
            Some(ErrorText { kind, message: shorten(&message, LONGEST_ERROR) })
        }
        _ => {
            let message = plain(error).unwrap_or_else(|| error.to_string());
            Some(unnamed(&shorten(&message, LONGEST_ERROR)))
        }
    }
}

fn unnamed(message: &str) -> ErrorText {
    ErrorText { kind: None, message: message.to_owned() }
}

fn not_completed(kind: &str, message: String) -> Failure {
    let error = Some(ErrorText { kind: Some(kind.to_owned()), message });
    Failure { error, ..Failure::new(FailureKind::NotCompleted) }
}

fn too_deep() -> Failure {
    let message = format!("the answer is nested deeper than {MOST_NESTED} levels");
    not_completed("output_too_deep", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The short form of what it means, its error, and what is asked.
    fn check(status: u16, body: &str, expect: HttpExpect, retry_after: Option<u64>) -> String {
        match answered(status, ServiceAnswer::read(body.as_bytes()), expect, retry_after) {
            Outcome::Succeeded { output } => match output {
                None => "ok".to_owned(),
                Some(output) => format!("ok {output}"),
            },
            Outcome::Failed(failure) => {
                let Failure { kind, permanence, asked, http_status, error } = failure;
                let mut text = format!("{kind:?}");
                if permanence != Permanence::Open {
                    text += &format!(" {permanence:?}");
                }
                if let Some(status) = http_status {
                    text += &format!(" {status}");
                }
                match asked {
                    None => {}
                    Some(RequestedDelay::DeferMs(ms)) => text += &format!(" defer {ms}"),
                    Some(RequestedDelay::RetryAfterMs(ms)) => text += &format!(" after {ms}"),
                }
                match error {
                    None => text,
                    Some(ErrorText { kind: None, message }) => format!("{text}: {message}"),
                    Some(ErrorText { kind: Some(kind), message }) => {
                        format!("{text}: [{kind}] {message}")
                    }
                }
            }
            lost @ Outcome::Lost { .. } => unreachable!("{lost:?}"),
        }
    }

    #[test]
    fn the_body_decides_whatever_the_status() {
        for (status, body, means) in [
            (200, r#"{"success": true}"#, "ok"),
            (200, r#"{"success": true, "output": null, "error": "x"}"#, "ok"),
            (200, r#"{"success": true, "output": {"a": [1]}}"#, r#"ok {"a":[1]}"#),
            (500, r#"{"success": true, "output": 7}"#, "ok 7"),
            (404, r#"{"success": true}"#, "ok"),
            (200, r#"{"success": false}"#, "HandlerFailed"),
            (200, r#"{"success": false, "error": "quota"}"#, "HandlerFailed: quota"),
            (400, r#"{"success": false, "error": "quota"}"#, "HandlerFailed 400: quota"),
            (
                200,
                r#"{"success": false, "error": {"type": "Q", "code": 7, "message": "full"}}"#,
                "HandlerFailed: [Q] full",
            ),
            (
                200,
                r#"{"success": false, "error": {"code": 7}}"#,
                r#"HandlerFailed: [7] {"code":7}"#,
            ),
            (200, r#"{"success": false, "error": 5}"#, "HandlerFailed: 5"),
            (200, r#"{"success": false, "permanent": true}"#, "HandlerFailed Said"),
            (503, r#"{"success": false, "permanent": true}"#, "HandlerFailed Said 503"),
            (200, r#"{"success": false, "permanent": false}"#, "HandlerFailed"),
            (
                200,
                r#"{"success": false, "permanent": "yes"}"#,
                "HandlerFailed: failed (ignored: `permanent` is neither true nor false)",
            ),
            (200, r#"{"success": false, "defer": "1m30s"}"#, "HandlerFailed defer 90000"),
            (
                200,
                r#"{"success": false, "defer": "-1s", "error": "later"}"#,
                "HandlerFailed: later (ignored: `defer`: `-1s` is negative; a duration is 0 or \
                 more, as `30s`)",
            ),
            (
                200,
                r#"{"success": false, "defer": 30}"#,
                "HandlerFailed: failed (ignored: `defer` is not a text as \"30s\")",
            ),
            (200, "\u{feff}{\"success\": false}\n", "HandlerFailed"),
        ] {
            for expect in [HttpExpect::Any, HttpExpect::Envelope] {
                assert_eq!(check(status, body, expect, None), means, "{status} {body}");
            }
        }
    }

    #[test]
    fn without_an_envelope_the_status_decides() {
        for (status, body, means) in [
            (200, "", "ok"),
            (204, " \n", "ok"),
            (200, r#"{"a": 1}"#, r#"ok {"a":1}"#),
            (200, "[true]", "ok [true]"),
            (201, "done", r#"ok "done""#),
            (202, "17", "ok 17"),
            // Not a boolean, or not at the top: no envelope.
            (200, r#"{"success": "false"}"#, r#"ok {"success":"false"}"#),
            (200, r#"[{"success": false}]"#, r#"ok [{"success":false}]"#),
            (200, r#"{"success": false"#, r#"ok "{\"success\": false""#),
            (500, "", "NotCompleted 500"),
            (503, "no room\n", "NotCompleted 503: no room"),
            (408, "", "NotCompleted 408"),
            (429, r#"{"error": {"kind": "rate"}}"#, r#"NotCompleted 429: [rate] {"kind":"rate"}"#),
            (599, r#"{"message": "x", "code": "E1"}"#, "NotCompleted 599: [E1] x"),
            (999, r#"{"a": 1}"#, r#"NotCompleted 999: {"a":1}"#),
            (400, "", "NotCompleted ByStatus 400"),
            (404, r#"{"error": "gone"}"#, "NotCompleted ByStatus 404: gone"),
            (302, "", "NotCompleted ByStatus 302"),
            (101, "", "NotCompleted ByStatus 101"),
        ] {
            assert_eq!(check(status, body, HttpExpect::Any, None), means, "{status} {body}");
        }
    }

    #[test]
    fn an_expected_envelope_is_missed() {
        let missed = "NotCompleted 200: [no_envelope] the answer has no boolean `success`, which \
                      `expect: envelope` wants";
        for body in ["", "ok", "{}", r#"{"success": 1}"#, r#"{"success": tru"#] {
            assert_eq!(check(200, body, HttpExpect::Envelope, None), missed, "{body}");
        }
        let status = check(404, "", HttpExpect::Envelope, None);
        assert_eq!(status, "NotCompleted ByStatus 404");
    }

    #[test]
    fn a_wait_that_was_asked_for_is_kept_with_every_failure() {
        for (status, body, means) in [
            (429, "", "NotCompleted 429 after 7000"),
            (503, "", "NotCompleted 503 after 7000"),
            (403, "", "NotCompleted ByStatus 403 after 7000"),
            (200, r#"{"success": false}"#, "HandlerFailed after 7000"),
            (200, r#"{"success": false, "defer": "1s"}"#, "HandlerFailed defer 1000"),
            (200, r#"{"success": true}"#, "ok"),
        ] {
            let said = check(status, body, HttpExpect::Any, Some(7000));
            assert_eq!(said, means, "{status} {body}");
        }
    }

    #[test]
    fn what_is_nested_too_deep_is_not_stored() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        let deep = "NotCompleted: [output_too_deep] the answer is nested deeper than 100 levels";
        for levels in [101, 127, 128, 100_000] {
            let body = nested(levels);
            assert_eq!(check(200, &body, HttpExpect::Any, None), deep, "{levels}");
            assert!(check(500, &body, HttpExpect::Any, None).len() < 400, "{levels}");
        }
        let output = format!(r#"{{"success": true, "output": {}}}"#, nested(101));
        assert_eq!(check(200, &output, HttpExpect::Any, None), deep);
        let most = format!(r#"{{"success": true, "output": {}}}"#, nested(100));
        assert!(check(200, &most, HttpExpect::Any, None).starts_with("ok ["));
    }

    #[test]
    fn what_cannot_be_read_is_no_output_and_hides_no_failure() {
        assert_eq!(ServiceAnswer::read(b"\xff\xfe\x00"), ServiceAnswer::Binary);
        assert_eq!(answered(200, ServiceAnswer::Binary, HttpExpect::Any, None), Outcome::OK);
        let gzip = || ServiceAnswer::Encoded("gzip".to_owned());
        for expect in [HttpExpect::Any, HttpExpect::Envelope] {
            let outcome = answered(200, gzip(), expect, None);
            assert!(outcome.error().is_some_and(|e| e.contains("encoded as gzip")), "{outcome:?}");
        }
        let status = answered(404, gzip(), HttpExpect::Any, None);
        assert_eq!(status, Outcome::from_http_status(404));
    }

    #[test]
    fn a_long_error_is_cut() {
        let long = "é".repeat(5000);
        let body = format!(r#"{{"success": false, "error": "{long}"}}"#);
        let said = check(200, &body, HttpExpect::Any, None);
        assert_eq!(said.chars().count(), "HandlerFailed: …".chars().count() + LONGEST_ERROR);
        let excerpt = check(500, &long, HttpExpect::Any, None);
        assert!(excerpt.chars().count() < 350, "{excerpt}");
    }
}
