//! A worker's report: core's outcome and the attempt it is about, to the wire and back.

use std::sync::Arc;

use serde_json::Value;
use steadfast_core::event::{AttemptId, ItemId, Role};
use steadfast_core::outcome::{
    ErrorText, Failure, FailureKind, MOST_NESTED, Outcome, Permanence, RequestedDelay, nesting,
};

use crate::proto;
use proto::failed::Kind;
use proto::report::Outcome as Wire;

/// Characters kept of why an attempt was lost: it is written into the job's log.
const LONGEST_WHY: usize = 200;

/// A message that says nothing that can be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl proto::AttemptRef {
    pub fn new(job: &str, item: ItemId, attempt: u32, token: u64) -> Self {
        let role = match item.role {
            Role::Item => proto::Role::Item,
            Role::Fallback => proto::Role::Fallback,
            Role::Compensation => proto::Role::Compensation,
        };
        Self {
            job_id: job.to_owned(),
            token,
            run: item.run,
            step: item.step,
            role: role.into(),
            index: item.index,
            attempt,
            ..Self::default()
        }
    }

    pub fn id(&self) -> AttemptId {
        AttemptId::new(self.job_id.as_str(), self.token)
    }

    pub fn item(&self) -> ItemId {
        let role = match self.role() {
            proto::Role::Item => Role::Item,
            proto::Role::Fallback => Role::Fallback,
            proto::Role::Compensation => Role::Compensation,
        };
        ItemId { run: self.run, step: self.step, role, index: self.index }
    }
}

impl proto::Assignment {
    /// Empty: it does not say what it is about.
    pub fn step_name(&self) -> &str {
        self.attempt.as_ref().map_or("", |attempt| attempt.step_name.as_str())
    }
}

/// `why` is for people, of an attempt that was lost.
pub fn to_report(attempt: proto::AttemptRef, outcome: &Outcome, why: &str) -> proto::Report {
    let outcome = match outcome {
        Outcome::Succeeded { output } => Wire::Succeeded(proto::Succeeded {
            output_json: output.as_ref().map(ToString::to_string).unwrap_or_default(),
        }),
        Outcome::Lost { started, why: said } => Wire::Lost(proto::Lost {
            started: *started,
            why: said.as_deref().unwrap_or(why).to_owned(),
        }),
        Outcome::Failed(failure) => Wire::Failed(failed(failure)),
    };
    proto::Report { attempt: Some(attempt), outcome: Some(outcome), log_follows: false }
}

fn failed(failure: &Failure) -> proto::Failed {
    let (kind, code) = match failure.kind {
        FailureKind::NotCompleted => (Kind::NotCompleted, 0),
        FailureKind::Exited(code) => (Kind::Exited, code),
        FailureKind::Signalled(signal) => (Kind::Signalled, signal),
        FailureKind::TimedOut => (Kind::TimedOut, 0),
        FailureKind::HandlerFailed => (Kind::HandlerFailed, 0),
    };
    let error = failure.error.as_ref();
    proto::Failed {
        kind: kind.into(),
        code: code.into(),
        permanent: failure.permanence == Permanence::Said,
        permanent_by_status: failure.permanence == Permanence::ByStatus,
        retry_after_ms: match failure.asked {
            Some(RequestedDelay::RetryAfterMs(ms)) => Some(ms),
            _ => None,
        },
        defer_ms: match failure.asked {
            Some(RequestedDelay::DeferMs(ms)) => Some(ms),
            _ => None,
        },
        http_status: failure.http_status.unwrap_or_default().into(),
        error_kind: error.and_then(|error| error.kind.clone()).unwrap_or_default(),
        error_message: error.map(|error| error.message.clone()).unwrap_or_default(),
    }
}

/// The longest word about how far an attempt is.
pub const LONGEST_PROGRESS: usize = 64 << 10;

/// How far an attempt is, if that can be kept.
pub fn progress(json: &[u8]) -> Option<Arc<Value>> {
    let progress = (json.len() <= LONGEST_PROGRESS).then(|| serde_json::from_slice(json))?.ok()?;
    (nesting(&progress) <= MOST_NESTED).then(|| Arc::new(progress))
}

/// What a report says of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkerReport {
    Ended(Outcome),
    /// A service has taken it, and says later how it ended.
    AwaitsCallback,
}

/// A service has taken the attempt.
pub fn awaiting_report(attempt: proto::AttemptRef) -> proto::Report {
    let outcome = Wire::AwaitingCallback(proto::AwaitingCallback {});
    proto::Report { attempt: Some(attempt), outcome: Some(outcome), log_follows: false }
}

/// The attempt and what is said of it.
pub fn from_report(report: proto::Report) -> Result<(proto::AttemptRef, WorkerReport), Malformed> {
    let attempt = report.attempt.ok_or_else(|| Malformed("a report names no attempt".into()))?;
    let outcome = match report.outcome {
        Some(Wire::AwaitingCallback(_)) => return Ok((attempt, WorkerReport::AwaitsCallback)),
        Some(Wire::Succeeded(proto::Succeeded { output_json })) if output_json.is_empty() => {
            Outcome::OK
        }
        Some(Wire::Succeeded(proto::Succeeded { output_json })) => {
            let output = serde_json::from_str(&output_json)
                .map_err(|error| Malformed(format!("the output is not JSON: {error}")))?;
            if nesting(&output) > MOST_NESTED {
                let why = format!("the output is nested deeper than {MOST_NESTED} levels");
                return Err(Malformed(why));
            }
            Outcome::Succeeded { output: Some(output) }
        }
        Some(Wire::Lost(proto::Lost { started, why })) => {
            let shown: String = why.chars().take(LONGEST_WHY).collect();
            let why = (!shown.is_empty()).then(|| shown.into());
            Outcome::Lost { started, why }
        }
        Some(Wire::Failed(failed)) => Outcome::Failed(failure(failed)?),
        None => return Err(Malformed("a report has no outcome".into())),
    };
    Ok((attempt, WorkerReport::Ended(outcome)))
}

fn failure(failed: proto::Failed) -> Result<Failure, Malformed> {
    let byte = |what: &str| {
        u8::try_from(failed.code).map_err(|_| Malformed(format!("{} is no {what}", failed.code)))
    };
    let kind = match Kind::try_from(failed.kind) {
        Ok(Kind::NotCompleted) => FailureKind::NotCompleted,
        Ok(Kind::Exited) => FailureKind::Exited(byte("exit code")?),
        Ok(Kind::Signalled) => FailureKind::Signalled(byte("signal")?),
        Ok(Kind::TimedOut) => FailureKind::TimedOut,
        Ok(Kind::HandlerFailed) => FailureKind::HandlerFailed,
        Err(_) => return Err(Malformed(format!("{} is no kind of failure", failed.kind))),
    };
    let permanence = match (failed.permanent, failed.permanent_by_status) {
        (true, _) => Permanence::Said,
        (false, true) => Permanence::ByStatus,
        (false, false) => Permanence::Open,
    };
    let asked = match (failed.defer_ms, failed.retry_after_ms) {
        (Some(ms), _) => Some(RequestedDelay::DeferMs(ms)),
        (None, Some(ms)) => Some(RequestedDelay::RetryAfterMs(ms)),
        (None, None) => None,
    };
    let some = |text: String| (!text.is_empty()).then_some(text);
    let error = match (some(failed.error_kind), some(failed.error_message)) {
        (None, None) => None,
        (kind, message) => Some(ErrorText { kind, message: message.unwrap_or_default() }),
    };
    let http_status = u16::try_from(failed.http_status).ok().filter(|status| *status > 0);
    Ok(Failure { kind, permanence, asked, http_status, error })
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use steadfast_fuzz::{Fuzz, Shape};

    use super::*;

    fn there_and_back(outcome: Outcome) {
        let item = ItemId { run: 1, step: 2, role: Role::Fallback, index: 3 };
        let named = proto::AttemptRef::new("job", item, 4, 5);
        let report = to_report(named.clone(), &outcome, "");
        assert_eq!(from_report(report), Ok((named.clone(), WorkerReport::Ended(outcome))));
        assert_eq!((named.item(), named.attempt, named.token), (item, 4, 5));
    }

    #[test]
    fn every_outcome_arrives_as_it_was_sent() {
        there_and_back(Outcome::OK);
        there_and_back(Outcome::Succeeded {
            output: Some(serde_json::json!({"a": [1, 2.5, null]})),
        });
        there_and_back(Outcome::LOST);
        there_and_back(Outcome::NOT_BEGUN);
        there_and_back(Outcome::Lost { started: true, why: Some("preempted".into()) });
        let error = |kind: Option<&str>, message: &str| {
            let kind = kind.map(str::to_owned);
            Some(ErrorText { kind, message: message.to_owned() })
        };
        for kind in [
            FailureKind::NotCompleted,
            FailureKind::Exited(255),
            FailureKind::Signalled(9),
            FailureKind::TimedOut,
            FailureKind::HandlerFailed,
        ] {
            for permanence in [Permanence::Open, Permanence::Said, Permanence::ByStatus] {
                for asked in
                    [None, Some(RequestedDelay::RetryAfterMs(0)), Some(RequestedDelay::DeferMs(7))]
                {
                    let error = error(Some("not_found"), "no such program");
                    let http_status = Some(503);
                    there_and_back(Outcome::Failed(Failure {
                        kind,
                        permanence,
                        asked,
                        http_status,
                        error,
                    }));
                }
            }
        }
        there_and_back(Outcome::Failed(Failure {
            error: error(None, "só\n\u{1b}[31m"),
            ..Failure::new(FailureKind::NotCompleted)
        }));
    }

    #[test]
    fn what_cannot_be_meant_is_malformed() {
        let named = || Some(proto::AttemptRef::default());
        let succeeded = |json: String| proto::Report {
            attempt: named(),
            outcome: Some(Wire::Succeeded(proto::Succeeded { output_json: json })),
            log_follows: false,
        };
        let exited = proto::Failed { kind: Kind::Exited.into(), code: 256, ..Default::default() };
        let unknown = proto::Failed { kind: 99, ..Default::default() };
        let failed = |failed| proto::Report {
            attempt: named(),
            outcome: Some(Wire::Failed(failed)),
            log_follows: false,
        };
        for report in [
            proto::Report {
                outcome: Some(Wire::Lost(proto::Lost::default())),
                ..Default::default()
            },
            proto::Report { attempt: named(), ..Default::default() },
            succeeded("{".to_owned()),
            succeeded(format!("{}{}", "[".repeat(101), "]".repeat(101))),
            failed(exited),
            failed(unknown),
        ] {
            from_report(report.clone()).expect_err(&format!("{report:?}"));
        }
    }

    /// Whatever a worker sends.
    #[test]
    fn a_report_that_can_be_read_says_the_same_when_it_is_sent_again() {
        let item = ItemId { run: 1, step: 2, role: Role::Fallback, index: 3 };
        let named = || proto::AttemptRef::new("job", item, 4, 5);
        let error = ErrorText { kind: Some("E".to_owned()), message: "m".to_owned() };
        let failure = Failure {
            error: Some(error),
            asked: Some(RequestedDelay::RetryAfterMs(7)),
            http_status: Some(503),
            ..Failure::new(FailureKind::HandlerFailed)
        };
        let output = Some(serde_json::json!({ "a": [1, 2.5, null] }));
        let outcomes = [
            Outcome::Succeeded { output },
            Outcome::NOT_BEGUN,
            Outcome::Failed(failure),
            Outcome::from(FailureKind::Exited(1)),
        ];
        let reports = outcomes.iter().map(|outcome| to_report(named(), outcome, "why"));
        let reports = reports.chain([awaiting_report(named())]);
        let corpus = reports.map(|report| report.encode_to_vec());
        Fuzz::new(Shape::Message, 20_000).corpus(corpus).run(|input| {
            let Ok(report) = proto::Report::decode(input) else { return };
            match from_report(report) {
                Ok((attempt, WorkerReport::Ended(outcome))) => {
                    let again = from_report(to_report(attempt.clone(), &outcome, ""));
                    assert_eq!(again, Ok((attempt, WorkerReport::Ended(outcome))));
                }
                Ok((_, WorkerReport::AwaitsCallback)) => {}
                Err(Malformed(why)) => assert!(!why.is_empty()),
            }
        });
    }
}
