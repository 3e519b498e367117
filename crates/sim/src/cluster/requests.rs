//! What clients and services ask of servers, and are answered.

use steadfast_core::event::{AcceptedJob, JobId, Requester};
use steadfast_core::outcome::Outcome;

use super::messages::AttemptName;

/// Asked of a job, whichever server has it.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Cancel,
    Pause,
    Resume,
    Callback { name: AttemptName, outcome: Outcome },
}

impl Asked {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Callback { .. } => "callback",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// The id is given by the server that takes it. `digest` is of the body.
    Submit {
        accepted: Box<AcceptedJob>,
        key: Option<String>,
        digest: String,
    },
    Job {
        job: JobId,
        asked: Asked,
    },
}

/// A number that no other request has; one that is sent again keeps it.
pub(crate) type RequestId = u64;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    Accepted(JobId),
    /// The key is this job's, with the same body.
    Known(JobId),
    /// The key is another body's.
    Conflict(JobId),
    Done,
    /// It was said after the end, and is noted.
    Late,
    /// It has no effect any more, and that is final.
    Ended,
    Refused(&'static str),
    /// Nothing of it has happened.
    NothingHappened(JobId),
    /// To be asked again.
    Again(&'static str),
}

pub(crate) fn requester() -> Requester {
    Requester::NOBODY
}
