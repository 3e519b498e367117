//! What `SQLite` says went wrong, in our words.

use std::ops::RangeInclusive;
use std::path::Path;

use rusqlite::{Error, ErrorCode, ffi};

use super::{BUSY_S, schema};
use crate::StoreError;

/// An error that does not know its file yet.
#[derive(Debug)]
pub(super) enum Fault {
    Sqlite(Error),
    /// `SQLite` found nothing wrong, we did.
    Damaged {
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
    pub(super) fn damaged(place: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Damaged { place: place.into(), why: why.into() }
    }

    /// Some that are kept together.
    pub(super) fn events(job: &str, seqs: RangeInclusive<u64>, why: impl Into<String>) -> Self {
        let place = match (seqs.start(), seqs.end()) {
            (first, last) if first == last => format!("event {first} of job {job}"),
            (first, last) => format!("events {first} to {last} of job {job}"),
        };
        Self::damaged(place, why)
    }

    pub(super) fn at(self, path: &Path, doing: &'static str) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Damaged { place, why } => StoreError::Corrupt { path, place, why },
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
                        StoreError::Busy { path, waited_s: BUSY_S }
                    }
                    Some(ErrorCode::CannotOpen) => StoreError::CannotOpen { path, why },
                    Some(ErrorCode::ReadOnly) => StoreError::ReadOnly { path },
                    Some(ErrorCode::NotADatabase) => StoreError::NotOurs { path, why },
                    Some(ErrorCode::DatabaseCorrupt) => {
                        let place = "the structure of the file".to_owned();
                        StoreError::Corrupt { path, place, why }
                    }
                    // A column that cannot hold what it holds.
                    None => StoreError::Corrupt { path, place: "a row".to_owned(), why },
                    Some(_) => StoreError::Io { path, doing, why },
                }
            }
        }
    }
}
