//! Why there is no usable answer: in words for people, and in kinds that a policy's rules can match.
//!
//! | kind | |
//! |---|---|
//! | `bad_url`, `bad_header`, `bad_request`, `bad_redirect` | it cannot be sent; for good |
//! | `refused_address` | the operator does not allow it; for good |
//! | `secret_missing`, `no_callback` | not here; elsewhere perhaps |
//! | `dns`, `connect`, `tls` | no connection |
//! | `connection_lost`, `bad_answer`, `response_too_large` | no answer that can be used |
//!
//! A timeout is an outcome of its own, with the kind `timeout`; `unreadable_answer`, `no_envelope` and
//! `output_too_deep` are core's, which reads the answer.

use std::error::Error;

use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome, Permanence};

use super::connect::ConnectError;

#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct HttpError {
    kind: &'static str,
    message: String,
    permanence: Permanence,
}

impl HttpError {
    /// Another attempt may fare better.
    pub(super) fn passing(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), permanence: Permanence::Open }
    }

    /// The same request can only fail again.
    pub(super) fn lasting(kind: &'static str, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), permanence: Permanence::Said }
    }

    pub(super) fn too_large(cap: u64) -> Self {
        Self::passing("response_too_large", format!("the answer is larger than {cap} bytes"))
    }

    pub(super) fn of_body(error: &hyper::Error) -> Self {
        let message = format!("the answer broke off: {}", causes(error));
        Self::passing(if error.is_parse() { "bad_answer" } else { "connection_lost" }, message)
    }

    pub(super) fn into_outcome(self) -> Outcome {
        let error = Some(ErrorText { kind: Some(self.kind.to_owned()), message: self.message });
        let permanence = self.permanence;
        Outcome::Failed(Failure { error, permanence, ..Failure::new(FailureKind::NotCompleted) })
    }
}

impl From<hyper_util::client::legacy::Error> for HttpError {
    fn from(error: hyper_util::client::legacy::Error) -> Self {
        if let Some(error) = find::<ConnectError>(&error) {
            return error.into();
        }
        if error.is_connect() {
            return Self::passing("connect", causes(&error));
        }
        match find::<hyper::Error>(&error) {
            Some(wrong) if wrong.is_parse_too_large() => {
                let message = "the headers of the answer are larger than is taken".to_owned();
                Self::passing("response_too_large", message)
            }
            Some(wrong) if wrong.is_parse() => {
                let message = format!("what came back is not HTTP: {}", causes(wrong));
                Self::passing("bad_answer", message)
            }
            Some(wrong) if wrong.is_user() => Self::lasting("bad_request", causes(wrong)),
            Some(wrong) => {
                let message = format!("the connection was lost: {}", causes(wrong));
                Self::passing("connection_lost", message)
            }
            None => Self::passing("connection_lost", causes(&error)),
        }
    }
}

impl From<&ConnectError> for HttpError {
    fn from(error: &ConnectError) -> Self {
        let message = error.to_string();
        match error {
            ConnectError::Refused { .. } => Self::lasting("refused_address", message),
            ConnectError::Unresolved { .. } | ConnectError::NoAddress { .. } => {
                Self::passing("dns", message)
            }
            ConnectError::Unreachable { .. } => Self::passing("connect", message),
            ConnectError::Tls { .. } => Self::passing("tls", message),
        }
    }
}

fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// All that it says of itself. Causes that their effect already spells out are not said twice.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in chain(error).map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}
