//! What `SQLite` says went wrong, in our words.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Error, ErrorCode, ffi};

use super::schema;
use crate::StoreError;
use crate::events::Damage;
use steadfast_core::event::JobId;

/// An error that does not know its file yet.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(Error),
    /// `SQLite` found nothing wrong, we did.
    Damaged {
        job: Option<JobId>,
        place: String,
        why: String,
    },
    Version(i64),
    Foreign(String),
    Unusable(String),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Damage> for Fault {
    fn from(Damage { job, place, why }: Damage) -> Self {
        Self::Damaged { job: Some(job), place, why }
    }
}

impl Fault {
    /// `busy`: how long a lock was waited for.
    pub(super) fn at(self, path: &Path, doing: &'static str, busy: Duration) -> StoreError {
        let store = path.display().to_string();
        match self {
            Self::Damaged { job, place, why } => StoreError::Corrupt { store, job, place, why },
            Self::Version(found) => {
                StoreError::OtherVersion { store, found, reads: schema::VERSION }
            }
            Self::Unusable(why) => StoreError::CannotOpen { store, why },
            Self::Foreign(why) => StoreError::NotOurs { store, why },
            Self::Sqlite(error @ (Error::NulError(_) | Error::InvalidPath(_))) => {
                StoreError::CannotOpen { store, why: error.to_string() }
            }
            Self::Sqlite(error) => {
                let why = error.to_string();
                // The index of the write-ahead log found no room to grow: that is a full disk too.
                let extended = error.sqlite_error().map(|error| error.extended_code);
                if extended == Some(ffi::SQLITE_IOERR_SHMSIZE) {
                    return StoreError::Full { store };
                }
                match error.sqlite_error_code() {
                    Some(ErrorCode::DiskFull) => StoreError::Full { store },
                    Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                        StoreError::Busy { store, waited_ms: busy.as_millis() as u64 }
                    }
                    Some(ErrorCode::CannotOpen) => StoreError::CannotOpen { store, why },
                    Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { store },
                    Some(ErrorCode::NotADatabase) => StoreError::NotOurs { store, why },
                    Some(ErrorCode::DatabaseCorrupt) => {
                        let place = "the structure of the file".to_owned();
                        StoreError::Corrupt { store, job: None, place, why }
                    }
                    // A column that cannot hold what it holds.
                    None => {
                        let place = "a row".to_owned();
                        StoreError::Corrupt { store, job: None, place, why }
                    }
                    Some(_) => StoreError::Io { store, doing, why },
                }
            }
        }
    }
}
