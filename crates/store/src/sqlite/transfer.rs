//! A data folder's jobs as a move reads and writes them.

use rusqlite::{OptionalExtension as _, params};
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use super::write::ms;
use super::{SqliteStore, owners};
use crate::transfer::Transfer;
use crate::{Gap, IdempotencyKey, Journal as _, Owner, StoreError};

impl Transfer for SqliteStore {
    fn numbered(&mut self, after: i64, limit: usize) -> Result<Vec<(i64, JobId)>, StoreError> {
        self.attempt("reading", |connection| {
            let mut statement = connection
                .prepare_cached("SELECT n, id FROM jobs WHERE n > ?1 ORDER BY n LIMIT ?2")?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let jobs = statement.query_map([after, limit], |row| {
                Ok((row.get(0)?, row.get::<_, String>(1)?.into()))
            })?;
            Ok(jobs.collect::<Result<_, _>>()?)
        })
    }

    fn count_all(&mut self) -> Result<u64, StoreError> {
        self.attempt("reading", |connection| {
            let count = "SELECT count(*) FROM jobs";
            Ok(connection.query_row(count, [], |row| row.get::<_, i64>(0))? as u64)
        })
    }

    fn key_of(&mut self, job: &str) -> Result<Option<IdempotencyKey>, StoreError> {
        self.attempt("reading", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT key, key_digest FROM jobs WHERE id = ?1 AND key IS NOT NULL",
            )?;
            let key = statement.query_row([job], |row| {
                Ok(IdempotencyKey { key: row.get(0)?, digest: row.get(1)? })
            });
            Ok(key.optional()?)
        })
    }

    fn epoch(&mut self) -> Result<u64, StoreError> {
        self.attempt("reading", |connection| {
            Ok(owners::epoch(connection, &Owner::SHARD.into())?.unwrap_or_default())
        })
    }

    /// There is one server for all of them.
    fn downtime(
        &mut self,
        owner: &str,
        job: &str,
        after: Timestamp,
    ) -> Result<Vec<Gap>, StoreError> {
        self.gaps(owner, job, after)
    }

    fn keep_downtime(&mut self, jobs: &[(JobId, Vec<Gap>)]) -> Result<(), StoreError> {
        self.transact("writing", |connection| {
            let mut delete = connection.prepare_cached("DELETE FROM gaps WHERE owner = ?1")?;
            let mut insert = connection.prepare_cached(
                "INSERT INTO gaps (owner, up_at, down_since) VALUES (?1, ?2, ?3)",
            )?;
            for (job, gaps) in jobs {
                delete.execute([&**job])?;
                for gap in gaps {
                    insert.execute(params![&**job, ms(gap.until), ms(gap.from)])?;
                }
            }
            Ok(())
        })
    }

    fn receive(&mut self, at: Timestamp, above: u64) -> Result<Owner, StoreError> {
        let at = at.max(Timestamp((above + 1).saturating_mul(1000)));
        self.transact("taking over", |connection| {
            connection.execute("DELETE FROM gaps", [])?;
            owners::take(connection, Owner::SHARD, at, None)
        })
    }

    fn is_untouched(&mut self, epoch: u64) -> Result<bool, StoreError> {
        Ok(self.epoch()? == epoch)
    }

    /// There is nobody else to ask.
    fn open_requests(&mut self) -> Result<u64, StoreError> {
        Ok(0)
    }
}
