//! What servers ask of each other, through rows: about jobs in shards that another one has.

use std::io;
use std::sync::Arc;

use steadfast_core::event::JobId;
use tokio_postgres::types::Type;

use super::param::{Text, count};
use super::pool::Pool;
use crate::shards::shard_of;
use crate::storage::{AskedInput, Exchange};

/// An answer that nobody has fetched for so long is of no use to anybody.
const KEPT: &str = "10 minutes";

#[derive(Debug)]
pub(super) struct PostgresExchange(pub(super) Arc<Pool>);

impl Exchange for PostgresExchange {
    fn ask(&self, job: &str, body: &[u8]) -> io::Result<i64> {
        let rows = self.0.with("asking another server", |connection| {
            let shard = shard_of(job, connection.database().clone().shards()?) as i16;
            connection.query(
                "INSERT INTO steadfast.inputs (shard, job, body) VALUES ($1, $2, $3) RETURNING id",
                &[(&shard, Type::INT2), (&Text(job), Type::TEXT), (&body, Type::BYTEA)],
            )
        })?;
        Ok(rows[0].get(0))
    }

    fn answered(&self, input: i64) -> io::Result<Option<Vec<u8>>> {
        let rows = self.0.with("asking another server", |connection| {
            connection.query(
                "DELETE FROM steadfast.inputs WHERE id = $1 AND answer IS NOT NULL RETURNING answer",
                &[(&input, Type::INT8)],
            )
        })?;
        Ok(rows.first().map(|row| row.get(0)))
    }

    fn asked(&self, owner: &str, limit: usize) -> io::Result<Vec<AskedInput>> {
        let rows = self.0.with("reading what other servers ask", |connection| {
            connection.read(
                "SELECT i.id, i.job, i.body FROM steadfast.inputs i \
                 JOIN steadfast.shards s ON s.shard = i.shard \
                 WHERE i.answer IS NULL AND s.owner = $1 ORDER BY i.id LIMIT $2",
                &[(&owner, Type::TEXT), (&count(limit), Type::INT8)],
            )
        })?;
        let input = |row: &tokio_postgres::Row| AskedInput {
            id: row.get(0),
            job: row.get::<_, &str>(1).into(),
            body: row.get(2),
        };
        Ok(rows.iter().map(input).collect())
    }

    fn answer(&self, input: i64, answer: &[u8]) -> io::Result<()> {
        self.0.with("answering another server", |connection| {
            connection.query(
                &format!(
                    "WITH old AS (DELETE FROM steadfast.inputs \
                                  WHERE answer IS NOT NULL AND made_at < clock_timestamp() - interval '{KEPT}') \
                     UPDATE steadfast.inputs SET answer = $2 WHERE id = $1"
                ),
                &[(&input, Type::INT8), (&answer, Type::BYTEA)],
            )
        })?;
        Ok(())
    }

    fn ends(&self, jobs: &[JobId]) -> io::Result<Vec<(JobId, u64, bool)>> {
        let ids: Vec<&str> = jobs.iter().map(|job| &**job).collect();
        let rows = self.0.with("reading", |connection| {
            connection.read(
                "SELECT id, seq, finished_at IS NOT NULL FROM steadfast.jobs WHERE id = ANY ($1)",
                &[(&ids, Type::TEXT_ARRAY)],
            )
        })?;
        let end = |row: &tokio_postgres::Row| {
            (row.get::<_, &str>(0).into(), row.get::<_, i64>(1) as u64, row.get(2))
        };
        Ok(rows.iter().map(end).collect())
    }
}
