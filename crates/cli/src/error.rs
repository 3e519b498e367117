//! Why a command could not do what it was asked to, and what to do about it.

use std::error::Error;
use std::{fmt, io};

use crate::args::Output;
use crate::input::{self, Mistake, Wrong};
use crate::style::inert;
use crate::{Done, Exit};

#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("no server answers at {address}: {why}. {}", what_to_try(*.is_default))]
    NoServer { address: String, why: String, is_default: bool },
    #[error("lost the server at {address} ({why}); the job goes on without us, {hint} looks again")]
    Lost { address: String, why: String, hint: String },
    /// No connection that could be trusted came about.
    #[error("no safe connection to {address}: {why}")]
    Tls { address: String, why: String },
    #[error(
        "{address} does not answer as a Steadfast server does: {what}. Is it the right address?"
    )]
    Odd { address: String, what: String },
    #[error("{0}")]
    Refused(Refused),
    /// The caller's mistake, or what a data folder cannot do.
    #[error("{}", .0.message)]
    Wrong(Wrong),
    /// Standard output cannot be written; a reader that has seen enough is no mistake.
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
}

impl From<Wrong> for CliError {
    fn from(wrong: Wrong) -> Self {
        Self::Wrong(wrong)
    }
}

impl From<String> for CliError {
    fn from(message: String) -> Self {
        Self::Wrong(message.into())
    }
}

/// What a server said no with.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) address: String,
    pub(crate) with_token: bool,
    pub(crate) status: u16,
    /// Stable, for programs.
    pub(crate) code: String,
    pub(crate) detail: String,
    pub(crate) errors: Vec<Mistake>,
}

/// Characters that are shown of an answer that is none of a Steadfast server.
const SHOWN_CHARS: usize = 120;

pub(crate) fn excerpt(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() {
        return "nothing".to_owned();
    }
    let line: String = text.chars().take(SHOWN_CHARS).collect();
    let more = if line.len() < text.len() { "…" } else { "" };
    format!("`{}{more}`", inert(&line))
}

fn what_to_try(is_default: bool) -> &'static str {
    if is_default {
        "Start one with `steadfast up`, or name another with --server, STEADFAST_SERVER or a profile"
    } else {
        "Is it running, and is the address right?"
    }
}

/// Servers speak to programs of headers; people at a terminal have flags.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, detail, .. } = self;
        match self.status {
            401 if !self.with_token => write!(
                f,
                "the server at {address} wants a token: give it with --token, STEADFAST_TOKEN or a \
                 profile; `steadfast token create`, where the server is, makes one"
            ),
            401 => write!(
                f,
                "the server at {address} does not take this token: it is wrong, expired or revoked; \
                 `steadfast token create`, where the server is, makes a new one"
            ),
            403 if self.code == "forbidden" => {
                write!(
                    f,
                    "{detail}; `steadfast token create --scope`, where the server is, makes one"
                )
            }
            _ => f.write_str(detail),
        }
    }
}

/// An error, and what it came from, inwards.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// What is wrong with a connection that should have been safe, and what to do about it. None: it is not
/// about that.
pub(crate) fn unsafe_because(error: &(dyn Error + 'static)) -> Option<String> {
    use rustls::{CertificateError as Wrong, Error as Tls};

    let found = causes(error).find_map(|cause| {
        let within = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let within = within.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        within.or_else(|| cause.downcast_ref::<rustls::Error>())
    })?;
    let text = match found {
        Tls::InvalidCertificate(Wrong::UnknownIssuer) => {
            "this system does not trust who vouches for its certificate; name them with --ca FILE, \
             STEADFAST_CA or the `ca` of a profile"
        }
        Tls::InvalidCertificate(Wrong::Expired | Wrong::ExpiredContext { .. }) => {
            "its certificate has expired; the server needs a new one"
        }
        Tls::InvalidCertificate(Wrong::NotValidYet | Wrong::NotValidYetContext { .. }) => {
            "its certificate is not valid yet; is the clock of this machine right?"
        }
        Tls::InvalidCertificate(Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
            "its certificate is for another name; write the address as the certificate has it"
        }
        Tls::InvalidMessage(_) => "it does not speak TLS there; is it http:// instead of https://?",
        Tls::AlertReceived(
            rustls::AlertDescription::CertificateRequired
            | rustls::AlertDescription::HandshakeFailure
            | rustls::AlertDescription::BadCertificate
            | rustls::AlertDescription::UnknownCA,
        ) => "it wants to know who connects; give a profile with `cert` and `key` that it trusts",
        other => return Some(inert(&other.to_string()).into_owned()),
    };
    Some(text.to_owned())
}

impl CliError {
    pub(crate) fn wrong(message: impl Into<String>) -> Self {
        Self::Wrong(Wrong { code: "wrong", message: message.into() })
    }

    /// JSON, but not of the shape that this program knows.
    pub(crate) fn unreadable_answer(
        address: String,
        error: &serde_json::Error,
        text: &str,
    ) -> Self {
        Self::Odd { address, what: format!("{error} in {}", excerpt(text)) }
    }

    pub(crate) fn no_job(message: String) -> Self {
        Self::Wrong(Wrong::no_job(message))
    }

    /// It may be gone by itself in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NoServer { .. } | Self::Lost { .. } => true,
            Self::Refused(refused) => matches!(refused.status, 202 | 429 | 502 | 503 | 504),
            Self::Tls { .. } | Self::Odd { .. } | Self::Wrong(_) | Self::Output(_) => false,
        }
    }

    /// There is no such job, which may be elsewhere.
    pub(crate) fn is_no_job(&self) -> bool {
        match self {
            Self::Wrong(wrong) => wrong.code == input::NOT_FOUND,
            Self::Refused(refused) => refused.status == 404,
            _ => false,
        }
    }

    /// What happened, without what to do about it.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::NoServer { why, .. } | Self::Lost { why, .. } => why.clone(),
            Self::Refused(refused) => refused.detail.clone(),
            other => other.to_string(),
        }
    }

    fn exit(&self) -> Exit {
        match self {
            Self::NoServer { .. } | Self::Lost { .. } | Self::Tls { .. } | Self::Odd { .. } => {
                Exit::NoServer
            }
            Self::Refused(refused) if refused.status == 202 || refused.status >= 500 => {
                Exit::NoServer
            }
            Self::Wrong(wrong) => wrong.exit(),
            Self::Refused(_) | Self::Output(_) => Exit::Wrong,
        }
    }

    fn code(&self) -> &str {
        match self {
            Self::NoServer { .. } => "no_server",
            Self::Lost { .. } => "lost_server",
            Self::Tls { .. } => "tls",
            Self::Odd { .. } => "odd_answer",
            Self::Refused(refused) => &refused.code,
            Self::Wrong(wrong) => wrong.code,
            Self::Output(_) => "wrong",
        }
    }
}

/// Says what went wrong, if anything did.
pub(crate) fn conclude(done: Result<Exit, CliError>, output: Output) -> Done {
    match done {
        Ok(exit) => Ok(exit),
        Err(CliError::Output(error)) => Err(error),
        Err(trouble) => {
            input::refuse(trouble.code(), &trouble.to_string(), output).map(|()| trouble.exit())
        }
    }
}
