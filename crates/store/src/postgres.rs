//! A store in a schema of a `PostgreSQL` database, which several servers may share.
//!
//! A group of decisions is one call of one function of the database, `commit_v1`: one round trip, one transaction, held against the
//! epoch of its owner inside it. A commit whose answer was lost is [`StoreError::Unknown`]; whoever takes the owner over then waits
//! for that transaction, or fences it for ever. Nothing here decides, and nothing but the database says what time it is.

mod blobs;
mod claim;
mod commit;
mod connection;
mod doctor;
mod events;
mod exchange;
mod fault;
mod members;
mod owners;
mod param;
mod pool;
mod purge;
mod read;
mod reservation;
mod rows;
mod run_claim;
mod schema;
mod settings;
mod storage;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod transfer;
mod weeks;

use std::ops::Range;
use std::sync::Arc;

use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use crate::events::{Written, crc, written};
use crate::journal::is_kept;
use crate::plans::RecentShapes;
use crate::{
    Filter, Gap, JobCounts, Journal, Owner, Page, Plans, QueueEntry, Reader, Refused, Row,
    Snapshot, StoreError, Stored, Whose, Write,
};
use connection::{Connection, Database};
use fault::Fault;
use param::Text;
use purge::Patience;

pub use storage::PostgresStorage;

/// A group that others were in the way of is sent again this often.
const ATTEMPTS: u32 = 5;
/// A message to the database has 1 GiB at most. What is larger than this goes in several transactions: outputs of a megabyte, hundreds at once.
const PART_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub struct PostgresStore {
    connection: Connection,
    plans: Plans,
    shapes: RecentShapes,
    /// The process of `run` that it writes for: what was taken from that one, it does not take back.
    runner: Option<String>,
}

impl PostgresStore {
    /// Makes the schema if there is none.
    pub fn open(url: &str) -> Result<Self, StoreError> {
        Self::of(&Database::new(url)?)
    }

    fn of(database: &Arc<Database>) -> Result<Self, StoreError> {
        let connection = Connection::connected(database)
            .map_err(|fault| fault.at(database.place(), "opening"))?;
        let (plans, shapes) = (Plans::default(), RecentShapes::default());
        Ok(Self { connection, plans, shapes, runner: None })
    }

    fn of_runner(self, incarnation: &str) -> Self {
        Self { runner: Some(incarnation.to_owned()), ..self }
    }

    fn attempt<T>(
        &mut self,
        doing: &'static str,
        act: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        act(&mut self.connection)
            .map_err(|fault| fault.at(self.connection.database().place(), doing))
    }

    /// What is one transaction, and can be done again if others were in its way.
    fn insist<T>(
        &mut self,
        doing: &'static str,
        mut act: impl FnMut(&mut Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        self.attempt(doing, |connection| insist(connection, &mut act))
    }
}

fn insist<T>(
    connection: &mut Connection,
    mut act: impl FnMut(&mut Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    for _ in 1..ATTEMPTS {
        match act(connection) {
            Err(fault) if fault.is_conflict() => {}
            done => return done,
        }
    }
    act(connection)
}

fn size(write: &Write, rows: &Written) -> usize {
    let readiness = write.readiness.as_ref().map_or(0, String::len);
    rows.bytes() + readiness + write.snapshot.as_ref().map_or(0, Vec::len)
}

/// Neighbours that are not too large together.
fn parts(sizes: &[usize]) -> Vec<Range<usize>> {
    let (mut parts, mut begin, mut bytes) = (vec![], 0, 0);
    for (at, size) in sizes.iter().enumerate() {
        if at > begin && bytes + size > PART_BYTES {
            parts.push(begin..at);
            (begin, bytes) = (at, 0);
        }
        bytes += size;
    }
    parts.push(begin..sizes.len());
    parts
}

impl Journal for PostgresStore {
    fn commit(
        &mut self,
        owner: &Owner,
        writes: &[Write],
    ) -> Result<Vec<Result<(), Refused>>, StoreError> {
        writes.iter().try_for_each(Write::check)?;
        if writes.is_empty() {
            return Ok(vec![]);
        }
        let rows = writes.iter().map(|write| written(write, &mut self.shapes));
        let rows = rows.collect::<Result<Vec<_>, _>>()?;
        let sizes: Vec<_> =
            writes.iter().zip(&rows).map(|(write, rows)| size(write, rows)).collect();
        let mut answers = Vec::with_capacity(writes.len());
        for part in parts(&sizes) {
            let (writes, rows) = (&writes[part.clone()], &rows[part]);
            let told = insist(&mut self.connection, |connection| {
                weeks::with(connection, writes.iter().map(|write| &*write.job), |connection| {
                    commit::group(connection, owner, writes, rows)
                })
            });
            let store = self.connection.database().place();
            answers.extend(told.map_err(|fault| match fault {
                Fault::Lost(why) => StoreError::Unknown { store: store.to_owned(), why },
                fault if answers.is_empty() => fault.at(store, "writing"),
                // What came before is written.
                fault => {
                    let why = fault.at(store, "writing").to_string();
                    StoreError::Unknown { store: store.to_owned(), why }
                }
            })?);
        }
        Ok(answers)
    }

    fn keeps_readiness(&self) -> bool {
        true
    }

    fn is_owned(&mut self, owner: &Owner, job: &str) -> Result<bool, StoreError> {
        self.attempt("reading", |connection| owners::is_owned(connection, owner, job))
    }

    fn is_kept(&mut self, write: &Write) -> Result<bool, StoreError> {
        is_kept(self, write)
    }

    fn take(
        &mut self,
        owner: &str,
        at: Timestamp,
        down_since: Option<Timestamp>,
    ) -> Result<Owner, StoreError> {
        let runner = self.runner.clone();
        self.insist("taking over", |connection| {
            owners::take(connection, owner, at, down_since, runner.as_deref())
        })
    }

    fn gaps(&mut self, owner: &str, job: &str, after: Timestamp) -> Result<Vec<Gap>, StoreError> {
        self.attempt("reading", |connection| owners::gaps(connection, owner, job, after))
    }

    fn due(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Timestamp, JobId)>, StoreError> {
        self.attempt("reading", |connection| owners::due(connection, whose, after, until, limit))
    }

    fn queued(
        &mut self,
        whose: Whose<'_>,
        after: Option<(Timestamp, JobId)>,
        limit: usize,
    ) -> Result<Vec<QueueEntry>, StoreError> {
        self.attempt("reading", |connection| owners::queued(connection, whose, after, limit))
    }

    fn hand_over(&mut self, owner: &Owner, shards: &[u16], to: &str) -> Result<(), StoreError> {
        self.insist("handing over", |connection| owners::hand_over(connection, owner, shards, to))
    }

    fn project(&mut self, job: &str, projection: &Snapshot) -> Result<bool, StoreError> {
        let Snapshot { seq, state } = projection;
        let crc = i64::from(crc(*seq, *seq, state));
        self.insist("writing", |connection| {
            // The job stays until this is committed, so that nothing is left of one that goes.
            let put = weeks::with(connection, [job], |connection| connection.query(
                "INSERT INTO steadfast.projections (job, seq, crc, state) \
                 SELECT id, $2, $3, $4 FROM steadfast.jobs WHERE id = $1 AND seq >= $2 FOR KEY SHARE \
                 ON CONFLICT (job) DO UPDATE \
                 SET seq = excluded.seq, crc = excluded.crc, state = excluded.state RETURNING 1",
                &[
                    (&Text(job), Type::TEXT),
                    (&(*seq as i64), Type::INT8),
                    (&crc, Type::INT8),
                    (&&**state, Type::BYTEA),
                ],
            ))?;
            Ok(!put.is_empty())
        })
    }

    fn park(&mut self, job: &str, why: &str) -> Result<bool, StoreError> {
        self.insist("marking a job", |connection| {
            let parked = connection.query(
                "SELECT steadfast.park_v1($1, $2)",
                &[(&Text(job), Type::TEXT), (&Text(why), Type::TEXT)],
            )?;
            Ok(parked[0].get(0))
        })
    }

    fn purge(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.attempt("purging", |connection| {
            purge::purge(connection, finished_before, Patience::None)
        })
    }

    fn expire(&mut self, finished_before: Timestamp) -> Result<Vec<JobId>, StoreError> {
        self.attempt("purging", |connection| {
            purge::purge(connection, finished_before, Patience::AWeek)
        })
    }

    fn remove(&mut self, job: &str) -> Result<bool, StoreError> {
        let gone = self.insist("removing a job", |connection| {
            connection.query(
                "SELECT steadfast.remove_v1(ARRAY[$1::text], true)",
                &[(&Text(job), Type::TEXT)],
            )
        })?;
        Ok(!gone.is_empty())
    }
}

impl Reader for PostgresStore {
    fn get(&mut self, job: &str) -> Result<Option<Stored>, StoreError> {
        self.attempt("reading", |connection| read::get(connection, job))
    }

    fn projection(&mut self, job: &str) -> Result<Option<Snapshot>, StoreError> {
        self.attempt("reading", |connection| read::projection(connection, job))
    }

    fn row(&mut self, job: &str) -> Result<Option<(Row, u64)>, StoreError> {
        self.attempt("reading", |connection| read::end(connection, job))
    }

    fn key(&mut self, key: &str) -> Result<Option<(JobId, String)>, StoreError> {
        self.attempt("reading", |connection| read::key(connection, key))
    }

    fn list(
        &mut self,
        filter: &Filter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let cursor = cursor.map(crate::cursor::Cursor::read).transpose()?;
        self.attempt("listing", |connection| read::list(connection, filter, cursor, limit))
    }

    fn events(
        &mut self,
        job: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, StoreError> {
        let mut plans = std::mem::take(&mut self.plans);
        let events = self.attempt("reading", |connection| {
            events::read(connection, &mut plans, job, after, limit)
        });
        self.plans = plans;
        events
    }

    fn pin(&mut self) -> Result<(), StoreError> {
        self.attempt("reading", Connection::pin)
    }

    fn counts(&mut self) -> Result<JobCounts, StoreError> {
        self.attempt("reading", read::counts)
    }

    fn damage(&mut self, job: &str) -> Result<Option<String>, StoreError> {
        self.attempt("reading", |connection| read::damage(connection, job))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_too_large_for_a_message_goes_in_parts() {
        const LARGE: usize = PART_BYTES / 2 + 1;
        assert_eq!(parts(&[1, 2, LARGE, LARGE]), [0..3, 3..4]);
        assert_eq!(parts(&[LARGE, 1, LARGE, LARGE * 9, 1]), [0..2, 2..3, 3..4, 4..5]);
    }
}
