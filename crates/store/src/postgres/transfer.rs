//! A database's jobs as a move reads and writes them.

use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use super::param::{Text, at, count, ms};
use super::reservation::ALIVE_AT;
use super::{PostgresStore, owners};
use crate::shards::shard_of;
use crate::transfer::Transfer;
use crate::{Gap, IdempotencyKey, Owner, StoreError};

impl Transfer for PostgresStore {
    fn numbered(&mut self, after: i64, limit: usize) -> Result<Vec<(i64, JobId)>, StoreError> {
        let rows = self.attempt("reading", |connection| {
            connection.read(
                "SELECT n, id FROM steadfast.jobs WHERE n > $1 ORDER BY n LIMIT $2",
                &[(&after, Type::INT8), (&count(limit), Type::INT8)],
            )
        })?;
        Ok(rows.iter().map(|row| (row.get(0), row.get::<_, &str>(1).into())).collect())
    }

    fn count_all(&mut self) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM steadfast.jobs";
        let rows = self.attempt("reading", |connection| connection.read(sql, &[]))?;
        Ok(rows[0].get::<_, i64>(0) as u64)
    }

    fn key_of(&mut self, job: &str) -> Result<Option<IdempotencyKey>, StoreError> {
        let rows = self.attempt("reading", |connection| {
            connection.read(
                "SELECT k.key, k.digest FROM steadfast.jobs j JOIN steadfast.keys k ON k.key = j.key \
                 WHERE j.id = $1",
                &[(&Text(job), Type::TEXT)],
            )
        })?;
        Ok(rows.first().map(|row| IdempotencyKey { key: row.get(0), digest: row.get(1) }))
    }

    fn epoch(&mut self) -> Result<u64, StoreError> {
        let rows = self.attempt("reading", |connection| {
            let sql = "SELECT epoch FROM steadfast.owners WHERE id = $1";
            connection.read(sql, &[(&Owner::SHARD, Type::TEXT)])
        })?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>(0) as u64))
    }

    /// One server may have stopped before another: since then nobody decided about its jobs.
    fn downtime(
        &mut self,
        owner: &str,
        job: &str,
        after: Timestamp,
    ) -> Result<Vec<Gap>, StoreError> {
        self.attempt("reading", |connection| {
            let mut gaps = owners::gaps(connection, owner, job, after)?;
            let shard = shard_of(job, connection.database().shards()?) as i16;
            let rows = connection.read(
                &format!(
                    "SELECT (extract(epoch FROM o.renewed_at) * 1000)::bigint, ({ALIVE_AT}) \
                     FROM steadfast.shards s JOIN steadfast.owners o ON o.id = s.owner \
                     WHERE s.shard = $1 AND o.renewed_at IS NOT NULL"
                ),
                &[(&shard, Type::INT2)],
            )?;
            if let Some(row) = rows.first() {
                let gap = Gap { from: at(row.get(0)), until: at(row.get(1)) };
                gaps.extend((gap.from < gap.until && gap.until > after).then_some(gap));
            }
            Ok(gaps)
        })
    }

    fn keep_downtime(&mut self, jobs: &[(JobId, Vec<Gap>)]) -> Result<(), StoreError> {
        let scopes: Vec<Text<'_>> = jobs.iter().map(|(job, _)| Text(job)).collect();
        let gaps = jobs.iter().flat_map(|(job, gaps)| gaps.iter().map(move |gap| (job, gap)));
        let (mut of, mut until, mut from) = (vec![], vec![], vec![]);
        for (job, gap) in gaps {
            of.push(Text(job));
            until.push(ms(gap.until));
            from.push(ms(gap.from));
        }
        self.insist("writing", |connection| {
            // Those that are there were kept before a crash.
            connection.query(
                "DELETE FROM steadfast.gaps WHERE scope = ANY ($1)",
                &[(&scopes, Type::TEXT_ARRAY)],
            )?;
            connection.query(
                "INSERT INTO steadfast.gaps (scope, up_at, down_since) \
                 SELECT g.scope, g.up_at, g.down_since FROM unnest($1, $2, $3) AS g(scope, up_at, down_since)",
                &[
                    (&of, Type::TEXT_ARRAY),
                    (&until, Type::INT8_ARRAY),
                    (&from, Type::INT8_ARRAY),
                ],
            )
        })?;
        Ok(())
    }

    fn receive(&mut self, now: Timestamp, above: u64) -> Result<Owner, StoreError> {
        let now = now.max(Timestamp((above + 1).saturating_mul(1000)));
        self.insist("taking over", |connection| {
            // Of servers that had the database before, and no jobs in it.
            connection
                .batch("UPDATE steadfast.shards SET owner = NULL; DELETE FROM steadfast.gaps")?;
            owners::take(connection, Owner::SHARD, now, None, None)
        })
    }

    fn is_untouched(&mut self, epoch: u64) -> Result<bool, StoreError> {
        let rows = self.attempt("reading", |connection| {
            let sql = "SELECT 1 FROM steadfast.shards WHERE owner IS DISTINCT FROM $1 LIMIT 1";
            connection.read(sql, &[(&Owner::SHARD, Type::TEXT)])
        })?;
        Ok(rows.is_empty() && self.epoch()? == epoch)
    }

    fn open_requests(&mut self) -> Result<u64, StoreError> {
        let sql = "SELECT count(*) FROM steadfast.inputs WHERE answer IS NULL";
        let rows = self.attempt("reading", |connection| connection.read(sql, &[]))?;
        Ok(rows[0].get::<_, i64>(0) as u64)
    }
}
