//! Why a command against a server could not do what it was asked to, and what to do about it.

use std::io;

use crate::args::Output;
use crate::input::{self, Mistake};
use crate::{Done, Exit};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Trouble {
    #[error("no server answers at {address}: {why}. {}", what_to_try(why, *.is_default))]
    NoServer { address: String, why: String, is_default: bool },
    #[error("lost the server at {address} ({why}); the job goes on without us, {hint} looks again")]
    Lost { address: String, why: String, hint: String },
    #[error(
        "{address} does not answer as a Steadfast server does: {what}. Is it the right address?"
    )]
    Odd { address: String, what: String },
    #[error("{}{}", .0.detail, .0.what_to_do())]
    Refused(Refused),
    /// Of the caller.
    #[error("{0}")]
    Wrong(String),
    /// Nobody could be told.
    #[error("cannot write the answer: {0}")]
    Told(#[from] io::Error),
}

/// What a server said no with.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    /// Stable, for programs.
    pub(crate) code: String,
    pub(crate) detail: String,
    pub(crate) errors: Vec<Mistake>,
}

fn what_to_try(why: &str, is_default: bool) -> &'static str {
    if why.contains("certificate") {
        "A profile's `ca` names the authority to trust"
    } else if is_default {
        "Start one with `steadfast up`, or name another with --server, STEADFAST_SERVER or a profile"
    } else {
        "Is it running, and is the address right?"
    }
}

impl Refused {
    fn what_to_do(&self) -> &'static str {
        match self.status {
            401 => {
                ". Give a token with --token, STEADFAST_TOKEN or a profile; `steadfast token create` \
                 makes one"
            }
            403 => ". `steadfast token create --scope` makes a token that may do more",
            _ => "",
        }
    }
}

impl Trouble {
    /// It may be gone by itself in a moment.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            Self::NoServer { .. } | Self::Lost { .. } => true,
            Self::Refused(refused) => matches!(refused.status, 429 | 502 | 503 | 504),
            Self::Odd { .. } | Self::Wrong(_) | Self::Told(_) => false,
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
            Self::NoServer { .. } | Self::Lost { .. } | Self::Odd { .. } => Exit::NoServer,
            Self::Refused(refused) if refused.status >= 500 => Exit::NoServer,
            Self::Refused(_) | Self::Wrong(_) | Self::Told(_) => Exit::Wrong,
        }
    }

    fn code(&self) -> &str {
        match self {
            Self::NoServer { .. } => "no_server",
            Self::Lost { .. } => "lost_server",
            Self::Odd { .. } => "odd_answer",
            Self::Refused(refused) => &refused.code,
            Self::Wrong(_) | Self::Told(_) => "wrong",
        }
    }
}

/// Says what went wrong, if anything did.
pub(crate) fn conclude(done: Result<Exit, Trouble>, output: Output) -> Done {
    match done {
        Ok(exit) => Ok(exit),
        Err(Trouble::Told(error)) => Err(error),
        Err(trouble) => {
            input::refuse(trouble.code(), &trouble.to_string(), output).map(|()| trouble.exit())
        }
    }
}
