//! All that a server keeps, in one database.

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tokio_postgres::types::Type;

use steadfast_core::event::Requester;
use steadfast_core::time::Timestamp;

use super::PostgresStore;
use super::blobs::PostgresBlobs;
use super::claim::PostgresClaim;
use super::connection::{Connection, Database};
use super::exchange::PostgresExchange;
use super::fault::Fault;
use super::param::Text;
use super::pool::Pool;
use super::reservation::PostgresReservation;
use super::run_claim::{self, PostgresRunClaim};
use super::settings::PostgresSettings;
use super::{doctor, schema, weeks};
use crate::folder::Folder;
use crate::run_claim::{RunClaim, RunClaimError};
use crate::storage::{Claim, ClaimError, Exchange, Space, Storage};
use crate::transfer::{Movable, MovableBlobs, MoveSide, Reservation, ReserveError, Transfer};
use crate::{Blobs, Finding, Journal, Reader, Settings, StoreError};

const MOST_SHARDS: RangeInclusive<u16> = 1..=1024;

#[derive(Clone, Debug)]
pub struct PostgresStorage {
    database: Arc<Database>,
    pool: Arc<Pool>,
    settings: Arc<PostgresSettings>,
}

impl PostgresStorage {
    /// Nothing is connected to yet. The schema is made with the first connection, if there is none.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        Self::with_shards(url, None)
    }

    /// With so many shards if it is made, and refused if it has another number of them. None: whatever it has.
    pub fn with_shards(url: &str, shards: Option<u16>) -> Result<Self, StoreError> {
        if shards.is_some_and(|shards| !MOST_SHARDS.contains(&shards)) {
            let (store, why) = ("the store".to_owned(), "it has 1 to 1,024 shards".to_owned());
            return Err(StoreError::Unsuitable { store, why });
        }
        let database = Database::with_shards(url, shards)?;
        let pool = Arc::new(Pool::new(&database));
        let settings = Arc::new(PostgresSettings::new(pool.clone()));
        Ok(Self { database, pool, settings })
    }

    /// Makes the schema if there is none, and lets a user work with it. Whether it was made now, and how many shards it has.
    pub fn migrate(&self, grant: Option<&str>) -> Result<(bool, u16), StoreError> {
        let failed = |fault: Fault| fault.at(self.database.place(), "making the schema");
        let mut connection = Connection::unprepared(&self.database);
        let (found, shards) =
            schema::prepare(&mut connection, self.database.wanted()).map_err(failed)?;
        if let Some(user) = grant {
            schema::grant(&mut connection, user).map_err(failed)?;
        }
        Ok((found == schema::Found::Nothing, shards))
    }

    pub fn store(&self) -> Result<PostgresStore, StoreError> {
        PostgresStore::of(&self.database)
    }
}

impl Storage for PostgresStorage {
    fn claim(&self) -> Result<Box<dyn Claim>, ClaimError> {
        Ok(Box::new(PostgresClaim::join(&self.database)?))
    }

    fn journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        Ok(Box::new(self.store()?))
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(self.store()?))
    }

    fn blobs(&self) -> Arc<dyn Blobs> {
        Arc::new(PostgresBlobs::new(self.pool.clone()))
    }

    fn settings(&self) -> Arc<dyn Settings> {
        self.settings.clone()
    }

    fn space(&self) -> Arc<dyn Space> {
        Arc::new(PostgresSpace(self.database.clone()))
    }

    fn exchange(&self) -> Option<Arc<dyn Exchange>> {
        Some(Arc::new(PostgresExchange(self.pool.clone())))
    }

    fn claim_run(&self, job: &str, place: &Folder) -> Result<Box<dyn RunClaim>, RunClaimError> {
        Ok(Box::new(PostgresRunClaim::take(&self.database, job, place)?))
    }

    fn ask_to_cancel(&self, job: &str, requested: &Requester) -> io::Result<()> {
        let requested = serde_json::to_string(requested)?;
        self.pool.with("asking for a cancel", |connection| {
            run_claim::ask_to_cancel(connection, job, &requested)
        })
    }

    fn is_run(&self, job: &str) -> bool {
        let found = self.pool.with("reading", |connection| {
            connection.read(
                "SELECT 1 FROM steadfast.owners WHERE id = $1 AND until > clock_timestamp()",
                &[(&Text(job), Type::TEXT)],
            )
        });
        found.is_ok_and(|found| !found.is_empty())
    }

    fn is_served(&self) -> bool {
        let found = self.pool.with("reading", |connection| {
            connection.read(
                "SELECT 1 FROM steadfast.owners WHERE serves AND until > clock_timestamp() LIMIT 1",
                &[],
            )
        });
        found.is_ok_and(|found| !found.is_empty())
    }

    fn maintain(&self) -> Result<(), StoreError> {
        let maintained =
            Connection::new(&self.database).and_then(|mut it| weeks::maintain(&mut it));
        maintained.map_err(|fault| fault.at(self.database.place(), "maintaining it"))
    }

    fn examine(&self, now: Timestamp, _reserve: u64) -> Vec<Finding> {
        doctor::examine(&self.database, now)
    }

    fn place(&self) -> String {
        self.database.place().to_owned()
    }
}

impl Movable for PostgresStorage {
    fn reserve(&self, side: MoveSide) -> Result<Box<dyn Reservation>, ReserveError> {
        Ok(Box::new(PostgresReservation::new(&self.database, side)?))
    }

    fn transfer(&self) -> Result<Box<dyn Transfer>, StoreError> {
        Ok(Box::new(self.store()?))
    }

    fn own_blobs(&self) -> Arc<dyn MovableBlobs> {
        Arc::new(PostgresBlobs::new(self.pool.clone()))
    }
}

/// The disk is the database's, and says that it is full when it is.
#[derive(Debug)]
struct PostgresSpace(Arc<Database>);

impl Space for PostgresSpace {
    fn is_in_place(&self) -> bool {
        true
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn lay_ballast(&self, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn has_ballast(&self) -> bool {
        false
    }

    fn release_ballast(&self) -> bool {
        false
    }

    fn place(&self) -> String {
        self.0.place().to_owned()
    }
}
