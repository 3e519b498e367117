//! What `SQLite` says went wrong, in our words.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Error, ErrorCode, ffi};

use super::schema;
use crate::StoreError;
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

impl Fault {
    /// In what is kept of one job.
    pub(super) fn damaged(job: &str, place: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { job: Some(job.into()), place: place.into(), why: why.into() }
    }

    /// Some that are kept together.
    pub(super) fn events(job: &str, seqs: RangeInclusive<u64>, why: impl Into<String>) -> Self {
        let place = match (seqs.start(), seqs.end()) {
            (first, last) if first == last => format!("event {first} of job {job}"),
            (first, last) => format!("events {first} to {last} of job {job}"),
        };
        Self::damaged(job, place, why)
    }

    /// `busy`: how long a lock was waited for.
    pub(super) fn at(self, path: &Path, doing: &'static str, busy: Duration) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Damaged { job, place, why } => StoreError::Corrupt { path, job, place, why },
            Self::Version(found) => {
                StoreError::OtherVersion { path, found, reads: schema::VERSION }
            }
            Self::Unusable(why) => StoreError::CannotOpen { path, why },
            Self::Foreign(why) => StoreError::NotOurs { path, why },
            Self::Sqlite(error @ (Error::NulError(_) | Error::InvalidPath(_))) => {
                StoreError::CannotOpen { path, why: error.to_string() }
            }
            Self::Sqlite(error) => {
                let why = error.to_string();
                // The index of the write-ahead log found no room to grow: that is a full disk too.
                let extended = error.sqlite_error().map(|error| error.extended_code);
                if extended == Some(ffi::SQLITE_IOERR_SHMSIZE) {
                    return StoreError::Full { path };
                }
                match error.sqlite_error_code() {
                    Some(ErrorCode::DiskFull) => StoreError::Full { path },
                    Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                        StoreError::Busy { path, waited_ms: busy.as_millis() as u64 }
                    }
                    Some(ErrorCode::CannotOpen) => StoreError::CannotOpen { path, why },
                    Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { path },
                    Some(ErrorCode::NotADatabase) => StoreError::NotOurs { path, why },
                    Some(ErrorCode::DatabaseCorrupt) => {
                        let place = "the structure of the file".to_owned();
                        StoreError::Corrupt { path, job: None, place, why }
                    }
                    // A column that cannot hold what it holds.
                    None => {
                        let place = "a row".to_owned();
                        StoreError::Corrupt { path, job: None, place, why }
                    }
                    Some(_) => StoreError::Io { path, doing, why },
                }
            }
        }
    }
}
