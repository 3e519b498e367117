//! Small things that a server keeps for itself, a row each.
//!
//! Their versions are asked for with every request, so a task reads them once a second, and a request reads what that found.
//! While the database is away they stay as they were: a token that was good goes on being so.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio_postgres::types::Type;

use super::connection::Connection;
use super::fault::Fault;
use super::pool::Pool;
use crate::settings::{Change, Settings, Version};

/// How old the versions are that requests see, at most.
const LOOK: Duration = Duration::from_secs(1);
const VERSIONS: &str = "SELECT name, version FROM steadfast.settings";

type Versions = HashMap<String, i64>;

#[derive(Clone, Debug)]
pub(super) struct PostgresSettings {
    pool: Arc<Pool>,
    /// None: nobody has asked yet.
    versions: Arc<Mutex<Option<Versions>>>,
}

impl PostgresSettings {
    pub(super) fn new(pool: Arc<Pool>) -> Self {
        Self { pool, versions: Arc::default() }
    }

    fn versions(&self) -> MutexGuard<'_, Option<Versions>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends with the database's thread, or when nobody has these settings any more.
    fn watch(&self) {
        let versions = Arc::downgrade(&self.versions);
        let database = Arc::downgrade(self.pool.database());
        self.pool.database().spawn(async move {
            let mut session = None;
            loop {
                tokio::time::sleep(LOOK).await;
                let (Some(versions), Some(database)) = (versions.upgrade(), database.upgrade())
                else {
                    return;
                };
                let Ok(rows) = database.look(&mut session, VERSIONS).await else { continue };
                let found = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
                *versions.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            }
        });
    }
}

fn version_of(version: Option<i64>) -> Version {
    version.map_or(Version::default(), |version| Version::of_number(version as u64))
}

impl Settings for PostgresSettings {
    fn version(&self, name: &str) -> io::Result<Version> {
        if let Some(versions) = &*self.versions() {
            return Ok(version_of(versions.get(name).copied()));
        }
        let rows = self.pool.with("reading", |connection| connection.read(VERSIONS, &[]))?;
        let found: Versions = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let version = version_of(found.get(name).copied());
        if self.versions().replace(found).is_none() {
            self.watch();
        }
        Ok(version)
    }

    fn get(&self, name: &str) -> io::Result<(Version, Option<Vec<u8>>)> {
        let found = self.pool.with("reading", |connection| get(connection, name))?;
        let (version, bytes) = found.unzip();
        if let Some(versions) = &mut *self.versions() {
            match version {
                Some(version) => versions.insert(name.to_owned(), version),
                None => versions.remove(name),
            };
        }
        Ok((version_of(version), bytes))
    }

    fn change(&self, name: &str, change: Change<'_>) -> io::Result<()> {
        let mut refused = None;
        let changed = self.pool.with("writing", |connection| {
            connection.batch("BEGIN")?;
            let done = change_locked(connection, name, |bytes| {
                change(bytes).map_err(|error| refused = Some(error)).ok()
            });
            match done {
                Ok(true) => connection.batch("COMMIT"),
                Ok(false) => connection.batch("ROLLBACK"),
                Err(fault) => {
                    connection.forget();
                    Err(fault)
                }
            }
        });
        match refused {
            Some(error) => return Err(error),
            None => changed?,
        }
        self.get(name).map(drop)
    }

    fn place(&self, name: &str) -> String {
        format!("{name} in {}", self.pool.database().place())
    }
}

fn get(connection: &mut Connection, name: &str) -> Result<Option<(i64, Vec<u8>)>, Fault> {
    let sql = "SELECT version, bytes FROM steadfast.settings WHERE name = $1";
    let rows = connection.read(sql, &[(&name, Type::TEXT)])?;
    Ok(rows.first().map(|row| (row.get(0), row.get(1))))
}

/// Inside a transaction, with all others who change it waiting. False: it was refused.
fn change_locked(
    connection: &mut Connection,
    name: &str,
    change: impl FnOnce(Option<Vec<u8>>) -> Option<Vec<u8>>,
) -> Result<bool, Fault> {
    let params = [(&name as _, Type::TEXT)];
    connection.query("SELECT pg_advisory_xact_lock(1400136806, hashtext($1))", &params)?;
    let sql = "SELECT bytes FROM steadfast.settings WHERE name = $1";
    let before = connection.query(sql, &params)?;
    let Some(after) = change(before.first().map(|row| row.get(0))) else { return Ok(false) };
    connection.query(
        "INSERT INTO steadfast.settings AS s (name, version, bytes) VALUES ($1, 1, $2) \
         ON CONFLICT (name) DO UPDATE SET version = s.version + 1, bytes = excluded.bytes",
        &[(&name, Type::TEXT), (&after, Type::BYTEA)],
    )?;
    Ok(true)
}
