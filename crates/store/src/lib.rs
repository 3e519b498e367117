//! Where jobs are kept: their events, the latest snapshot of each, and a row for lists and timers.
//!
//! A store keeps what it is given and gives it back. It folds no events, decides nothing about
//! retries, and does not ask what time it is. Everything it promises is in [`Journal`], for the owner of jobs that
//! writes them and goes on with them, and in [`Reader`], for those who ask about them; the same conformance suite
//! holds every implementation to it.
//!
//! | | |
//! |---|---|
//! | [`Write`], [`Row`], [`Stored`] | what goes in and comes out |
//! | [`SqliteStore`] | one file, shared by several processes |
//! | [`PostgresStore`] | a schema of a database, shared by several machines |
//! | [`MemoryStore`] | for tests and rehearsals |
//! | [`ObjectBlobs`] | files and logs in a bucket or a folder, for any of them |
//! | [`Folder`] | where the file is, and what lies beside it |
//! | [`Storage`] | all that a server keeps: journal and reader, [`Blobs`], [`Settings`], from one factory |
//! | [`transfer`] | moves all of it from one place to another |

pub mod backup;
mod blobs;
mod cursor;
mod doctor;
mod error;
mod events;
mod folder;
mod journal;
mod lock;
mod lz4;
pub mod members;
mod memory;
mod model;
mod objects;
mod packed;
mod plans;
mod postgres;
mod reader;
mod run_claim;
mod settings;
mod shards;
mod sqlite;
mod storage;
pub mod transfer;
mod waiting;

pub use blobs::{
    AttachedFile, AttachedFiles, Blobs, FolderBlobs, LogChunk, LogName, LogProgress, LogReader,
    LogState,
};
pub use doctor::{Finding, Severity};
pub use error::StoreError;
pub use folder::{Folder, is_plain_name};
pub use journal::{Journal, Whose};
pub use memory::MemoryStore;
pub use model::{
    Filter, Gap, IdempotencyKey, JobCounts, Owner, Page, QueueEntry, Refused, Row, Snapshot,
    Stored, Write,
};
pub use objects::{ObjectBlobs, check_blobs_url};
pub use plans::Plans;
#[cfg(feature = "testing")]
pub use postgres::testing;
pub use postgres::{PostgresStorage, PostgresStore};
pub use reader::Reader;
pub use run_claim::{RunClaim, RunClaimError, RunRenewal};
pub use settings::{Change, FolderSettings, Settings, Version};
pub use shards::OwnedShards;
pub use sqlite::SqliteStore;
pub use storage::{
    AskedInput, Claim, ClaimError, Exchange, FolderStorage, Renewal, Space, Storage, is_postgres,
    movable_at, storage_at, storage_with_shards, with_blobs_at,
};
