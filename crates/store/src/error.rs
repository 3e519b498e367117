//! What can go wrong with a store, where, and what to do about it.

use steadfast_core::event::JobId;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{store}: the disk is full, nothing was written. Free some space, or purge ended jobs")]
    Full { store: String },
    /// `job`: the damage is in what is kept of this job alone, and the others are not touched by it.
    #[error(
        "{store}: damaged at {place}: {why}. {}",
        if job.is_some() {
            "The job cannot go on; the others do. Restore a backup, or remove it with `steadfast purge`"
        } else {
            "Stop, keep a copy of all of it (of a file, with its -wal), and restore a backup"
        }
    )]
    Corrupt { store: String, job: Option<JobId>, place: String, why: String },
    #[error(
        "{store}: made by {} version of Steadfast (format {found}, this program reads {reads}). Run that \
         one, or give another place",
        if found > reads { "a newer" } else { "an older" }
    )]
    OtherVersion { store: String, found: i64, reads: i64 },
    #[error("{store}: not a Steadfast database ({why}), left as it is. Give another place")]
    NotOurs { store: String, why: String },
    #[error(
        "{store}: another process has kept it locked for {} s, nothing was written. Try again, and see \
         who has it open",
        waited_ms / 1000
    )]
    Busy { store: String, waited_ms: u64 },
    /// What was written since the last check is in a file that a restart will not find here.
    #[error(
        "{store}: the data folder was moved or replaced while it was in use, and what was written last is \
         not in what lies there now. Put the folder back, then start again"
    )]
    Moved { store: String },
    #[error(
        "{store}: cannot be opened: {why}. See that its folder exists, is on a local disk and may be \
         written to"
    )]
    CannotOpen { store: String, why: String },
    /// Of a database elsewhere: it cannot be reached, takes no writes, or has ended the connection. Nothing was written.
    #[error("{store}: cannot be used now, nothing was written: {why}. It is tried again")]
    Unavailable { store: String, why: String },
    /// A setting of a database under which what is acknowledged could be lost.
    #[error("{store}: {why}")]
    Unsuitable { store: String, why: String },
    #[error("{store}: opened for reading only, or may not be written to")]
    ReadOnly { store: String },
    #[error(
        "{store}: {doing} failed: {why}. Whether the last write is kept is known after a restart"
    )]
    Io { store: String, doing: &'static str, why: String },
    /// Of a commit whose answer was lost, as with a connection. `SQLite` has none: an error there is known to have
    /// written nothing, or the disk has failed.
    #[error("{store}: whether the last write is kept is not known: {why}")]
    Unknown { store: String, why: String },
    #[error("{cursor:?} is not a cursor. Give the `next` of the page before, or none")]
    BadCursor { cursor: String },
    /// A mistake of the caller; nothing of the group was written.
    #[error("a write to job {job} is refused: {why}")]
    Unfit { job: JobId, why: &'static str },
}

impl StoreError {
    /// Of a commit, a claim or a purge: nothing may be acknowledged any more, as what the disk holds
    /// is only known after a restart. A sync that failed must not be tried again: the second may
    /// succeed without the first's pages.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Corrupt { .. } | Self::Moved { .. })
    }
}
