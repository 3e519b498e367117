//! What `PostgreSQL` says went wrong, in our words.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::schema;
use crate::StoreError;
use crate::events::Damage;

/// An error that does not know its database yet.
#[derive(Debug)]
pub(super) enum Fault {
    /// Nothing was sent.
    NoConnection(String),
    /// The connection went after something was sent: it was done, or not.
    Lost(String),
    /// It cannot be put into a message, and was not sent.
    Unsendable(String),
    /// The database has refused the statement, and everything that its transaction did.
    Database(Box<DbError>),
    Damaged(Damage),
    Version(i64),
    Foreign(String),
    Unsuitable(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        match error.as_db_error() {
            // Whoever ends a connection may do so between a commit and its answer.
            Some(said) if is_final(said) => Self::Lost(said.message().to_owned()),
            Some(said) => Self::Database(Box::new(said.clone())),
            None if is_unsendable(&error) => Self::Unsendable(chain(&error)),
            None => Self::Lost(chain(&error)),
        }
    }
}

impl From<Damage> for Fault {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

fn is_final(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
}

/// The kind of an error is told by its first words alone.
fn is_unsendable(error: &Error) -> bool {
    let text = error.to_string();
    text.starts_with("error serializing parameter") || text.starts_with("error encoding message")
}

/// The error and what caused it: the first alone is "db error".
pub(super) fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text
}

impl Fault {
    /// The same again may be taken: others were in the way.
    pub(super) fn is_conflict(&self) -> bool {
        const CONFLICTS: [SqlState; 3] = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::UNIQUE_VIOLATION,
        ];
        matches!(self, Self::Database(error) if CONFLICTS.contains(error.code()))
    }

    /// There is no week for a job: see `weeks.rs`.
    pub(super) fn is_without_week(&self) -> bool {
        matches!(self, Self::Database(error) if *error.code() == SqlState::CHECK_VIOLATION)
    }

    /// Somebody had what it wanted for itself.
    pub(super) fn is_locked_out(&self) -> bool {
        matches!(self, Self::Database(error) if *error.code() == SqlState::LOCK_NOT_AVAILABLE)
    }

    pub(super) fn at(self, store: &str, doing: &'static str) -> StoreError {
        let store = store.to_owned();
        match self {
            Self::NoConnection(why) | Self::Lost(why) => StoreError::Unavailable { store, why },
            Self::Damaged(Damage { job, place, why }) => {
                StoreError::Corrupt { store, job: Some(job), place, why }
            }
            Self::Version(found) => {
                StoreError::OtherVersion { store, found, reads: schema::VERSION }
            }
            Self::Foreign(why) => StoreError::NotOurs { store, why },
            Self::Unsendable(why) => StoreError::Io { store, doing, why },
            Self::Unsuitable(why) => StoreError::Unsuitable { store, why },
            Self::Database(error) => refused(store, doing, &error),
        }
    }
}

fn refused(store: String, doing: &'static str, error: &DbError) -> StoreError {
    let why = format!("{} ({})", error.message(), error.code().code());
    let code = error.code();
    if *code == SqlState::DISK_FULL {
        return StoreError::Full { store };
    }
    if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        let why = format!(
            "{why}. Give the user of the URL the rights with `steadfast migrate --store URL --grant USER`, or the URL another user"
        );
        return StoreError::Unsuitable { store, why };
    }
    match code.code().get(..2).unwrap_or_default() {
        // A lock, or a group that others were in the way of more than once.
        "40" | "55" => StoreError::Busy { store, waited_ms: 0 },
        "XX" if matches!(*code, SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED) => {
            StoreError::Corrupt { store, job: None, place: "the database".to_owned(), why }
        }
        // Resources, an operator, the system, and a server that is read-only after a failover.
        "53" | "57" | "58" | "08" | "25" | "XX" => StoreError::Unavailable { store, why },
        _ => StoreError::Io { store, doing, why },
    }
}
