//! What can go wrong with a request, in the same words over REST and gRPC.
//!
//! The codes are stable: programs act on them. Details are for people.

use steadfast_core::event::{JobId, JobState};
use steadfast_engine::CommandError;
use steadfast_jobfile::Problem;
use steadfast_store::{Refused as NotWritten, StoreError};
use tokio::task::JoinError;

use crate::hand_over::CONFIRM;

/// Over gRPC it is a header, of which clients take 8 KiB, and where a byte can become three.
const GRPC_MESSAGE_BYTES: usize = 2000;

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("{0}")]
    NotFound(String),
    #[error("the job file is not valid: {}", first(.0))]
    InvalidJob(Vec<Problem>),
    #[error("the policy is not valid: {}", first(.0))]
    InvalidPolicy(Vec<Problem>),
    #[error(
        "the idempotency key was used for job {job} with another body; use a new key for a new job"
    )]
    IdempotencyConflict { job: JobId },
    #[error("job {job} has ended: {state}")]
    AlreadyEnded { job: JobId, state: JobState },
    /// What is asked does not fit what the job is now.
    #[error("{0}")]
    NotPossible(String),
    #[error("{0:?} is not a cursor; give the `next` of the page before, or none")]
    BadCursor(String),
    #[error("{0}")]
    BadRequest(String),
    #[error(
        "the job names files that are not attached: {}. Attach them to the submission",
        .0.join(", ")
    )]
    FilesMissing(Vec<String>),
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    UnsupportedMedia(String),
    #[error("{0}")]
    MethodNotAllowed(String),
    /// Its token or signature is not good, or not any more.
    #[error("{0}")]
    CallbackRefused(String),
    #[error("{0}")]
    TooOften(String),
    #[error("too much of earlier answers has not been read; read or close them, then try again")]
    Unread,
    #[error("the server's disk is full, nothing was written; free some space, then try again")]
    DiskFull,
    /// Safe to try again, with the same idempotency key if there is one.
    #[error("{0}")]
    Overloaded(String),
    /// Not an error, and no answer either: what was asked is with the store, and may yet be refused.
    #[error(
        "the server has handed it to its store, which has not confirmed it within {} s: the outcome is open. Look \
         at job {job} in a moment, or send the same again (a submission with the same idempotency key)",
        CONFIRM.as_secs()
    )]
    Unconfirmed { job: JobId },
    /// Something is wrong with the server that the operator must see to.
    #[error("{0}")]
    NotReady(String),
    #[error(
        "job {job} is stuck: what is stored of it cannot be read ({why}). It is not run; restore a \
         backup, or remove it with `steadfast purge {job}`"
    )]
    Stuck { job: JobId, why: String },
    /// What happened is in the server's log; it may name places that are nobody's business.
    #[error("something went wrong in the server; its log says what")]
    Internal(String),
}

fn first(problems: &[Problem]) -> String {
    let more = problems.len().saturating_sub(1);
    let Some(problem) = problems.first() else { return "there is no job in it".to_owned() };
    let Problem { line, column, message, .. } = problem;
    let rest = if more > 0 { format!(" (and {more} more)") } else { String::new() };
    format!("line {line}, column {column}: {message}{rest}")
}

impl ApiError {
    pub fn no_job(id: &str) -> Self {
        let shown: String = id.chars().take(64).collect();
        Self::NotFound(format!("there is no job {shown:?}"))
    }

    #[allow(clippy::needless_pass_by_value, reason = "errors are handed over as they come")]
    pub fn internal(why: impl ToString) -> Self {
        Self::Internal(why.to_string())
    }

    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::InvalidJob(_) => "invalid_job",
            Self::InvalidPolicy(_) => "invalid_policy",
            Self::IdempotencyConflict { .. } => "idempotency_conflict",
            Self::AlreadyEnded { .. } => "already_ended",
            Self::NotPossible(_) => "not_possible",
            Self::BadCursor(_) => "bad_cursor",
            Self::BadRequest(_) | Self::FilesMissing(_) => "bad_request",
            Self::TooLarge(_) => "too_large",
            Self::UnsupportedMedia(_) => "unsupported_media_type",
            Self::MethodNotAllowed(_) => "method_not_allowed",
            Self::CallbackRefused(_) => "callback_refused",
            Self::TooOften(_) => "too_often",
            Self::Unread => "too_much_unread",
            Self::DiskFull => "disk_full",
            Self::Overloaded(_) => "overloaded",
            Self::Unconfirmed { .. } => "unconfirmed",
            Self::NotReady(_) => "not_ready",
            Self::Stuck { .. } => "stuck",
            Self::Internal(_) => "internal",
        }
    }

    pub const fn title(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "There is no such thing",
            Self::InvalidJob(_) => "The job file is not valid",
            Self::InvalidPolicy(_) => "The policy is not valid",
            Self::IdempotencyConflict { .. } => "The idempotency key belongs to another body",
            Self::AlreadyEnded { .. } => "The job has ended",
            Self::NotPossible(_) => "Not possible as the job is now",
            Self::BadCursor(_) => "The cursor is none",
            Self::BadRequest(_) => "The request cannot be understood",
            Self::FilesMissing(_) => "Files that the job names are missing",
            Self::TooLarge(_) => "The request is too large",
            Self::UnsupportedMedia(_) => "The content type is not accepted here",
            Self::MethodNotAllowed(_) => "The method is not allowed here",
            Self::CallbackRefused(_) => "The callback is refused",
            Self::TooOften(_) => "Too often",
            Self::Unread => "Too much is unread",
            Self::DiskFull => "The server's disk is full",
            Self::Overloaded(_) => "The server cannot take it now",
            Self::Unconfirmed { .. } => "Handed to the store, not confirmed yet",
            Self::NotReady(_) => "The server is not ready",
            Self::Stuck { .. } => "The job is stuck",
            Self::Internal(_) => "Something went wrong in the server",
        }
    }

    pub const fn http(&self) -> u16 {
        match self {
            Self::Unconfirmed { .. } => 202,
            Self::NotFound(_) => 404,
            Self::InvalidJob(_)
            | Self::InvalidPolicy(_)
            | Self::BadCursor(_)
            | Self::BadRequest(_)
            | Self::FilesMissing(_) => 400,
            Self::IdempotencyConflict { .. } | Self::AlreadyEnded { .. } | Self::NotPossible(_) => {
                409
            }
            Self::TooLarge(_) => 413,
            Self::UnsupportedMedia(_) => 415,
            Self::MethodNotAllowed(_) => 405,
            Self::CallbackRefused(_) => 401,
            Self::TooOften(_) | Self::Unread => 429,
            Self::DiskFull => 507,
            Self::Overloaded(_) | Self::NotReady(_) => 503,
            Self::Stuck { .. } | Self::Internal(_) => 500,
        }
    }

    pub const fn grpc(&self) -> tonic::Code {
        match self {
            Self::NotFound(_) => tonic::Code::NotFound,
            Self::InvalidJob(_)
            | Self::InvalidPolicy(_)
            | Self::BadCursor(_)
            | Self::BadRequest(_)
            | Self::FilesMissing(_)
            | Self::UnsupportedMedia(_) => tonic::Code::InvalidArgument,
            Self::IdempotencyConflict { .. } => tonic::Code::AlreadyExists,
            Self::AlreadyEnded { .. } | Self::NotPossible(_) => tonic::Code::FailedPrecondition,
            Self::CallbackRefused(_) => tonic::Code::Unauthenticated,
            Self::TooLarge(_) => tonic::Code::OutOfRange,
            Self::TooOften(_) | Self::Unread | Self::DiskFull => tonic::Code::ResourceExhausted,
            Self::MethodNotAllowed(_) => tonic::Code::Unimplemented,
            Self::Overloaded(_) | Self::Unconfirmed { .. } | Self::NotReady(_) => {
                tonic::Code::Unavailable
            }
            Self::Stuck { .. } => tonic::Code::DataLoss,
            Self::Internal(_) => tonic::Code::Internal,
        }
    }

    /// What is wrong with a job file, as far as that is the trouble.
    pub fn problems(&self) -> &[Problem] {
        match self {
            Self::InvalidJob(problems) | Self::InvalidPolicy(problems) => problems,
            _ => &[],
        }
    }

    /// What the client is not told is written down.
    pub(crate) fn log(&self) {
        if let Self::Internal(why) = self {
            tracing::error!(name: "RequestFailed", why, "a request failed");
        }
    }
}

/// Of work on a thread of its own.
impl From<JoinError> for ApiError {
    fn from(error: JoinError) -> Self {
        if error.is_cancelled() {
            return Self::Overloaded(
                "the server is stopping; try again once it is back".to_owned(),
            );
        }
        Self::internal(error)
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::BadCursor { cursor } => Self::BadCursor(cursor),
            StoreError::Full { .. } => Self::DiskFull,
            StoreError::Busy { .. } => {
                Self::Overloaded("the database is locked by another process; try again".to_owned())
            }
            StoreError::Unavailable { why, .. } => {
                Self::Overloaded(format!("the database cannot be used now ({why}); try again"))
            }
            StoreError::Corrupt { job: Some(job), place, why, .. } => {
                Self::Stuck { job, why: format!("{place}: {why}") }
            }
            error => Self::internal(error),
        }
    }
}

impl From<CommandError> for ApiError {
    fn from(why: CommandError) -> Self {
        match why {
            CommandError::Unknown(job) => Self::no_job(&job),
            CommandError::Refused(refusal) => Self::NotPossible(refusal.to_string()),
            CommandError::Taken {
                why: NotWritten::NotOurs { .. } | NotWritten::Fenced { .. },
                ..
            }
            | CommandError::Elsewhere { .. } => {
                Self::Overloaded("the job has gone to another server; try again".to_owned())
            }
            CommandError::Taken { .. } => Self::NotPossible(why.to_string()),
            CommandError::Stuck { job, why } => Self::Stuck { job, why },
            CommandError::Unavailable(why) => Self::Overloaded(why),
            CommandError::Stopped => {
                Self::Overloaded("the engine has stopped; try again once it is back".to_owned())
            }
        }
    }
}

impl From<ApiError> for tonic::Status {
    fn from(trouble: ApiError) -> Self {
        trouble.log();
        let mut message = trouble.to_string();
        for problem in trouble.problems().iter().skip(1) {
            message.push_str(&format!("\nline {}: {}", problem.line, problem.message));
        }
        if message.len() > GRPC_MESSAGE_BYTES {
            message.truncate(message.floor_char_boundary(GRPC_MESSAGE_BYTES));
            message.push('…');
        }
        Self::new(trouble.grpc(), message)
    }
}
