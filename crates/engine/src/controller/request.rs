//! What a controller is asked.

use steadfast_core::decide::Input;
use steadfast_core::event::{AcceptedJob, JobId};
use steadfast_core::job::Job;
use steadfast_store::IdempotencyKey;

use crate::inbox::Adopted;
use crate::load::Unreadable;

/// What must become durable before it is answered.
#[derive(Debug)]
pub enum Request {
    Submit {
        accepted: Box<AcceptedJob>,
        key: Option<IdempotencyKey>,
    },
    /// Goes on with a stored job.
    Adopt(Box<Adopted>),
    /// A command of a person, or a report of a worker.
    Input {
        job: JobId,
        input: Input,
    },
    /// A word about a job that is over, as it is stored.
    Note {
        job: Box<Job>,
        input: Input,
    },
}

/// What was found of a job that is not in memory. None: no such job, or one that is over or another's.
pub type Loaded = Result<Option<Box<Adopted>>, Unreadable>;
