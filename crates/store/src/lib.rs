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
//! | [`Folder`] | where the file is, and what lies beside it |
//! | [`Storage`] | all that a server keeps: journal and reader, [`Blobs`], [`Settings`], from one factory |

pub mod backup;
mod blobs;
mod cursor;
mod doctor;
mod error;
mod events;
mod folder;
mod journal;
mod lock;
mod memory;
mod model;
mod packed;
mod plans;
mod postgres;
mod reader;
mod settings;
mod shards;
mod sqlite;
mod storage;

pub use blobs::log_times::read as log_times;
pub use blobs::{
    AttachedFile, AttachedFiles, Blobs, FolderBlobs, LogChunk, LogName, LogProgress, LogReader,
};
pub use doctor::{Finding, Severity};
pub use error::StoreError;
pub use folder::{Folder, is_plain_name};
pub use journal::{Journal, Whose};
pub use lock::lock;
pub use memory::MemoryStore;
pub use model::{
    Filter, Gap, IdempotencyKey, JobCounts, Owner, Page, QueueEntry, Refused, Row, Snapshot,
    Stored, Write,
};
pub use plans::Plans;
#[cfg(feature = "testing")]
pub use postgres::testing;
pub use postgres::{PostgresStorage, PostgresStore};
pub use reader::Reader;
pub use settings::{Change, FolderSettings, Settings, Version};
pub use shards::OwnedShards;
pub use sqlite::SqliteStore;
pub use storage::{
    AskedInput, Claim, ClaimError, Exchange, FolderStorage, Renewal, Space, Storage, is_postgres,
    storage_at,
};
