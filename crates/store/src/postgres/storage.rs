//! All that a server keeps, in one database.

use std::io;
use std::sync::Arc;

use tokio_postgres::types::Type;

use steadfast_core::time::Timestamp;

use super::PostgresStore;
use super::blobs::PostgresBlobs;
use super::claim::PostgresClaim;
use super::connection::{Connection, Database};
use super::exchange::PostgresExchange;
use super::fault::Fault;
use super::param::Text;
use super::pool::Pool;
use super::settings::PostgresSettings;
use super::{doctor, schema, weeks};
use crate::storage::{Claim, ClaimError, Exchange, Space, Storage};
use crate::{Blobs, Finding, Journal, Reader, Settings, StoreError};

#[derive(Clone, Debug)]
pub struct PostgresStorage {
    database: Arc<Database>,
    pool: Arc<Pool>,
    settings: Arc<PostgresSettings>,
}

impl PostgresStorage {
    /// Nothing is connected to yet. The schema is made with the first connection, if there is none.
    pub fn new(url: &str) -> Result<Self, StoreError> {
        let database = Database::new(url)?;
        let pool = Arc::new(Pool::new(&database));
        let settings = Arc::new(PostgresSettings::new(pool.clone()));
        Ok(Self { database, pool, settings })
    }

    /// Makes the schema if there is none, and lets a user work with it. Whether it was made now, and how many shards it has.
    pub fn migrate(&self, grant: Option<&str>) -> Result<(bool, u16), StoreError> {
        let failed = |fault: Fault| fault.at(self.database.place(), "making the schema");
        let mut connection = Connection::unprepared(&self.database);
        let (found, shards) = schema::prepare(&mut connection).map_err(failed)?;
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

    fn is_run(&self, job: &str) -> bool {
        let found = self.pool.with("reading", |connection| {
            connection.read(
                "SELECT 1 FROM steadfast.owners WHERE id = $1 AND until > clock_timestamp()",
                &[(&Text(job), Type::TEXT)],
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
