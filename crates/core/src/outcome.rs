//! What a worker reports: facts, never decisions.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::text::shorten;
use crate::time::human_ms;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Succeeded {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Value>,
    },
    Failed(Failure),
    /// The worker went away or was preempted. `started`: the attempt had begun to run.
    Lost {
        started: bool,
        /// For people.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Arc<str>>,
    },
}

/// Bytes of an error: it is kept with the attempt for ever, and shown in one line.
const LONGEST_ERROR: usize = 16 << 10;

const WAITED: &str = "it waited too long for a slot";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    #[serde(default, skip_serializing_if = "Permanence::is_open")]
    pub permanence: Permanence,
    /// A wait that the other side asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<RequestedDelay>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    Exited(u8),
    Signalled(u8),
    TimedOut,
    /// The handler answered, and said that it did not succeed.
    HandlerFailed,
    /// No usable answer: no connection, a 5xx, a program that could not be started.
    NotCompleted,
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permanence {
    #[default]
    Open,
    /// The handler said so: nothing overrides that.
    Said,
    /// An HTTP status says so: a rule of the policy can say otherwise.
    ByStatus,
}

impl Permanence {
    #[allow(clippy::trivially_copy_pass_by_ref)] // the shape serde wants
    fn is_open(&self) -> bool {
        *self == Self::Open
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedDelay {
    /// `Retry-After`: replaces the computed delay, charged like it.
    RetryAfterMs(u64),
    /// `"defer"`: charged to deferrals alone.
    DeferMs(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorText {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub message: String,
}

impl Outcome {
    pub const OK: Self = Self::Succeeded { output: None };
    pub const LOST: Self = Self::Lost { started: true, why: None };
    pub const NOT_BEGUN: Self = Self::Lost { started: false, why: None };

    /// A worker gives it back: it has waited there for a slot for too long.
    pub fn handed_back() -> Self {
        Self::Lost { started: false, why: Some(WAITED.into()) }
    }

    pub fn is_handed_back(&self) -> bool {
        matches!(self, Self::Lost { started: false, why: Some(why) } if **why == *WAITED)
    }

    /// Nothing was heard of the attempt for longer than its `heartbeat`.
    pub fn silent(heartbeat_ms: u64) -> Self {
        let heartbeat = human_ms(heartbeat_ms);
        Self::timed_out(
            "heartbeat",
            format!("it was silent for longer than its heartbeat of {heartbeat}"),
        )
    }

    /// The service has it, and did not call back.
    pub fn no_callback(timeout_ms: u64) -> Self {
        Self::timed_out("timeout", format!("no callback within {}", human_ms(timeout_ms)))
    }

    fn timed_out(kind: &str, message: String) -> Self {
        let error = Some(ErrorText { kind: Some(kind.to_owned()), message });
        Self::Failed(Failure { error, ..Failure::new(FailureKind::TimedOut) })
    }

    /// Outputs have at most `most` bytes; a larger one is a failure. An error that is too long is cut.
    #[must_use]
    pub fn within(mut self, most: usize) -> Self {
        match &mut self {
            Self::Succeeded { output: Some(output) } if is_larger(output, most) => {
                let message = format!("the output is larger than {most} bytes");
                let error = Some(ErrorText { kind: Some("output_too_large".to_owned()), message });
                Self::Failed(Failure { error, ..Failure::new(FailureKind::NotCompleted) })
            }
            Self::Failed(Failure { error: Some(ErrorText { kind, message }), .. }) => {
                for text in kind.iter_mut().chain([message]) {
                    if text.len() > LONGEST_ERROR {
                        *text = shorten(text, LONGEST_ERROR / 4);
                    }
                }
                self
            }
            _ => self,
        }
    }

    /// What went wrong, if something did.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Succeeded { .. } => None,
            Self::Failed(failure) => Some(failure.describe()),
            Self::Lost { why: None, .. } => Some("the worker was lost".to_owned()),
            Self::Lost { why: Some(why), .. } => Some(format!("the worker was lost: {why}")),
        }
    }

    /// What an HTTP status means where the body of the answer does not decide.
    pub fn from_http_status(status: u16) -> Self {
        match status {
            200..300 => Self::OK,
            408 | 429 | 500.. => Self::Failed(Failure {
                http_status: Some(status),
                ..Failure::new(FailureKind::NotCompleted)
            }),
            _ => Self::Failed(Failure {
                http_status: Some(status),
                permanence: Permanence::ByStatus,
                ..Failure::new(FailureKind::NotCompleted)
            }),
        }
    }
}

fn is_larger(output: &Value, most: usize) -> bool {
    // Others are small, and need not be written to know that.
    let has_parts = matches!(output, Value::String(_) | Value::Array(_) | Value::Object(_));
    has_parts && output.to_string().len() > most
}

/// Outputs are nested no deeper: what is written into the log must be read back from it.
pub const MOST_NESTED: usize = 100;

/// How deep lists and maps lie in each other.
pub fn nesting(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(nesting).max().unwrap_or(0),
        Value::Object(values) => 1 + values.values().map(nesting).max().unwrap_or(0),
        _ => 0,
    }
}

impl From<FailureKind> for Outcome {
    fn from(kind: FailureKind) -> Self {
        Self::Failed(Failure::new(kind))
    }
}

impl Failure {
    pub const fn new(kind: FailureKind) -> Self {
        Self { kind, permanence: Permanence::Open, asked: None, http_status: None, error: None }
    }

    /// The exit code as `exit_codes` counts it: death by signal N is 128+N.
    pub(crate) const fn shell_code(&self) -> Option<u8> {
        match self.kind {
            FailureKind::Exited(code) => Some(code),
            FailureKind::Signalled(signal) => Some(128u8.saturating_add(signal)),
            _ => None,
        }
    }

    /// What is worth remembering of it.
    pub(crate) fn gist(&self) -> FailureSummary {
        let error = self.error.as_ref().map(|error| error.message.as_str().into());
        FailureSummary { kind: self.kind, http_status: self.http_status, error }
    }

    pub fn describe(&self) -> String {
        self.gist().describe()
    }
}

/// A failure in short: small, because every item that failed keeps one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureSummary {
    kind: FailureKind,
    http_status: Option<u16>,
    error: Option<Box<str>>,
}

impl FailureSummary {
    /// One line for a person: what went wrong, in the worker's words where it has any.
    pub fn describe(&self) -> String {
        let fact = match (self.kind, self.http_status) {
            (FailureKind::Exited(code), _) => format!("exit code {code}"),
            (FailureKind::Signalled(signal), _) => format!("killed by signal {signal}"),
            (FailureKind::TimedOut, _) => "timed out".to_owned(),
            (_, Some(status)) => format!("HTTP status {status}"),
            (FailureKind::HandlerFailed, None) => "the handler reported failure".to_owned(),
            (FailureKind::NotCompleted, None) => "not completed".to_owned(),
        };
        match &self.error {
            Some(error) => format!("{fact}: {error}"),
            None => fact,
        }
    }
}

/// The short form of an outcome, as a rehearsal script writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutcomeLabel {
    Word(&'static str),
    Numbered(&'static str, u16),
}

impl Outcome {
    pub fn label(&self) -> OutcomeLabel {
        let failure = match self {
            Self::Succeeded { .. } => return OutcomeLabel::Word("ok"),
            Self::Lost { started: true, .. } => return OutcomeLabel::Word("lost"),
            Self::Lost { started: false, .. } => return OutcomeLabel::Word("not_started"),
            Self::Failed(failure) => failure,
        };
        match (failure.kind, failure.permanence, failure.asked, failure.http_status) {
            (FailureKind::Exited(code), ..) => OutcomeLabel::Numbered("exit", u16::from(code)),
            (FailureKind::Signalled(signal), ..) => {
                OutcomeLabel::Numbered("signal", u16::from(signal))
            }
            (FailureKind::TimedOut, ..) => OutcomeLabel::Word("timeout"),
            (_, Permanence::Said, ..) => OutcomeLabel::Word("permanent"),
            (_, _, Some(RequestedDelay::DeferMs(_)), _) => OutcomeLabel::Word("defer"),
            (_, _, _, Some(status)) => OutcomeLabel::Numbered("http", status),
            (FailureKind::HandlerFailed, ..) => OutcomeLabel::Word("fail"),
            (FailureKind::NotCompleted, ..) => OutcomeLabel::Word("not_completed"),
        }
    }
}

impl fmt::Display for OutcomeLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(word) => f.write_str(word),
            Self::Numbered(word, number) => write!(f, "{word}:{number}"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.label().fmt(f)
    }
}
