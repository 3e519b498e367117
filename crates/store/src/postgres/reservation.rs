//! A database while its jobs are moved: a row among the owners, renewed for a term like those of servers, that no server comes in beside.
//!
//! A server makes its row before it looks for this one, and a move makes this one before it looks for servers. So one of them sees the
//! other, and gives way.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use super::connection::{Connection, Database};
use super::fault::Fault;
use super::param::{at, ms};
use super::schema;
use crate::Owner;
use crate::transfer::{MOVE_RECORD, MoveRecord, MoveSide, Reservation, ReserveError};

const TERM: Duration = Duration::from_secs(5);
const RENEWAL: Duration = Duration::from_secs(1);
/// A server that has not renewed its row for so long after the end of its term is dead, or will find out that it was taken for dead.
const SILENCE: Duration = Duration::from_secs(2);
/// Long enough for the rows of a server and of a move that were killed to run out, and too short for one that lives.
const LOOKS: u32 = 32;
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// Why no server may come in now, if there is a reason. A move that was killed is ended.
pub(super) fn closed(connection: &mut Connection) -> Result<io::Result<Option<String>>, Fault> {
    // One that is about to mark the database is waited for.
    connection.read(
        "DELETE FROM steadfast.owners WHERE id = 'move' AND until <= clock_timestamp()",
        &[],
    )?;
    if !connection.read("SELECT 1 FROM steadfast.owners WHERE id = 'move'", &[])?.is_empty() {
        let why = "its jobs are being moved. Start the server where they are when that is over";
        return Ok(Ok(Some(why.to_owned())));
    }
    let place = connection.database().place().to_owned();
    Ok(record(connection)?.map(|record| record.closes(&place)))
}

pub(super) fn record(connection: &mut Connection) -> Result<io::Result<MoveRecord>, Fault> {
    let sql = "SELECT bytes FROM steadfast.settings WHERE name = $1";
    let rows = connection.read(sql, &[(&MOVE_RECORD, Type::TEXT)])?;
    Ok(MoveRecord::read(rows.first().map(|row| row.get(0))))
}

#[derive(Debug)]
pub(super) struct PostgresReservation {
    connection: Connection,
    incarnation: String,
    /// Others have ended it.
    is_lost: Arc<AtomicBool>,
    /// Dropped at the end, with which the thread ends.
    renewing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl PostgresReservation {
    pub(super) fn new(database: &Arc<Database>, side: MoveSide) -> Result<Self, ReserveError> {
        let failed = |fault: Fault| io::Error::other(fault.at(database.place(), "reserving"));
        if side == MoveSide::Source {
            let schema = schema::shards(&mut Connection::unprepared(database)).map_err(failed)?;
            schema.ok_or(ReserveError::Nothing)?;
        }
        let mut connection = Connection::new(database).map_err(failed)?;
        let incarnation = until_some(|| take(&mut connection)).map_err(failed)?;
        let incarnation = incarnation.ok_or(ReserveError::Moving)?;
        let is_lost = Arc::new(AtomicBool::new(false));
        let renewing = renew(database, &incarnation, &is_lost);
        let renewing = Some(renewing.map_err(failed)?);
        // From here on it is given up when it is dropped.
        let mut reservation = Self { connection, incarnation, is_lost, renewing };
        let alone = until_some(|| is_alone(&mut reservation.connection)).map_err(failed)?;
        alone.map(|()| reservation).ok_or(ReserveError::Served)
    }

    fn lost() -> io::Error {
        io::Error::other("a server has come in, because the move was silent for too long")
    }

    fn ask<T>(
        &mut self,
        doing: &'static str,
        ask: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> io::Result<T> {
        let place = self.connection.database().place().to_owned();
        ask(&mut self.connection).map_err(|fault| io::Error::other(fault.at(&place, doing)))
    }
}

#[expect(clippy::disallowed_methods, reason = "who is dead says nothing")]
fn until_some<T>(mut look: impl FnMut() -> Result<Option<T>, Fault>) -> Result<Option<T>, Fault> {
    for _ in 1..LOOKS {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    look()
}

/// None: another move has it.
fn take(connection: &mut Connection) -> Result<Option<String>, Fault> {
    let rows = connection.query(
        "INSERT INTO steadfast.owners AS o (id, epoch, incarnation, until, renewed_at) \
         VALUES ('move', 0, gen_random_uuid()::text, \
                 clock_timestamp() + $1 * interval '1 millisecond', clock_timestamp()) \
         ON CONFLICT (id) DO UPDATE \
         SET incarnation = excluded.incarnation, until = excluded.until, renewed_at = excluded.renewed_at \
         WHERE o.until <= clock_timestamp() RETURNING o.incarnation",
        &[(&(TERM.as_millis() as i64), Type::INT8)],
    )?;
    Ok(rows.first().map(|row| row.get(0)))
}

/// Ends servers that are silent, so that nothing more of theirs is written. None: one is there.
fn is_alone(connection: &mut Connection) -> Result<Option<()>, Fault> {
    connection.read(
        "UPDATE steadfast.owners SET incarnation = NULL, until = NULL, \
         epoch = greatest(epoch + 1, extract(epoch FROM clock_timestamp())::bigint) \
         WHERE serves AND until < clock_timestamp() - $1 * interval '1 millisecond'",
        &[(&(SILENCE.as_millis() as i64), Type::INT8)],
    )?;
    let there = connection
        .read("SELECT 1 FROM steadfast.owners WHERE serves AND incarnation IS NOT NULL", &[])?;
    Ok(there.is_empty().then_some(()))
}

fn renew(
    database: &Arc<Database>,
    incarnation: &str,
    is_lost: &Arc<AtomicBool>,
) -> Result<(Sender<()>, JoinHandle<()>), Fault> {
    let mut connection = Connection::new(database)?;
    let (incarnation, is_lost) = (incarnation.to_owned(), is_lost.clone());
    let (end, ended) = channel();
    let thread = std::thread::spawn(move || {
        while ended.recv_timeout(RENEWAL) == Err(RecvTimeoutError::Timeout) {
            let kept = connection.read(
                "UPDATE steadfast.owners SET renewed_at = clock_timestamp(), \
                 until = clock_timestamp() + $2 * interval '1 millisecond' \
                 WHERE id = 'move' AND incarnation = $1 RETURNING 1",
                &[(&incarnation, Type::TEXT), (&(TERM.as_millis() as i64), Type::INT8)],
            );
            // A database that is away says nothing about who has it.
            if kept.is_ok_and(|kept| kept.is_empty()) {
                is_lost.store(true, Ordering::SeqCst);
                return;
            }
        }
    });
    Ok((end, thread))
}

impl Reservation for PostgresReservation {
    fn check(&mut self) -> io::Result<()> {
        if self.is_lost.load(Ordering::SeqCst) { Err(Self::lost()) } else { Ok(()) }
    }

    /// Of those that had shards: each has kept the time for itself.
    fn alive_at(&mut self) -> io::Result<Option<Timestamp>> {
        let rows = self.ask("reading", |connection| connection.read(ALIVE_AT, &[]))?;
        Ok(rows[0].get::<_, Option<i64>>(0).map(at))
    }

    fn record(&mut self) -> io::Result<MoveRecord> {
        self.ask("reading", record)?
    }

    /// One statement, so that it is not written for a move that was ended.
    fn mark(&mut self, mark: &MoveRecord) -> io::Result<()> {
        let (bytes, incarnation) = (mark.bytes(), self.incarnation.clone());
        let written = self.ask("marking", |connection| {
            connection.read(
                "WITH held AS (UPDATE steadfast.owners SET renewed_at = clock_timestamp() \
                               WHERE id = 'move' AND incarnation = $1 RETURNING 1) \
                 INSERT INTO steadfast.settings AS s (name, version, bytes) \
                 SELECT $2, 1, $3 FROM held \
                 ON CONFLICT (name) DO UPDATE SET version = s.version + 1, bytes = excluded.bytes \
                 RETURNING 1",
                &[(&incarnation, Type::TEXT), (&MOVE_RECORD, Type::TEXT), (&bytes, Type::BYTEA)],
            )
        })?;
        if written.is_empty() { Err(Self::lost()) } else { Ok(()) }
    }

    /// Their owner is a server that has ended: the next one claims what it had, and keeps the time since.
    fn arrive(&mut self, alive_at: Option<Timestamp>) -> io::Result<()> {
        self.ask("writing", |connection| {
            connection.read(
                "UPDATE steadfast.owners SET serves = true, incarnation = NULL, until = NULL, \
                 renewed_at = timestamptz 'epoch' + $2 * interval '1 millisecond' WHERE id = $1",
                &[(&Owner::SHARD, Type::TEXT), (&alive_at.map(ms), Type::INT8)],
            )
        })?;
        Ok(())
    }
}

/// When the last of the owners of all shards was there.
pub(super) const ALIVE_AT: &str = "SELECT (extract(epoch FROM max(o.renewed_at)) * 1000)::bigint \
                                   FROM steadfast.owners o \
                                   WHERE o.id IN (SELECT s.owner FROM steadfast.shards s)";

impl Drop for PostgresReservation {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.renewing.take() {
            drop(end);
            let _ = thread.join();
        }
        let _ = self.connection.query(
            "DELETE FROM steadfast.owners WHERE id = 'move' AND incarnation = $1",
            &[(&self.incarnation, Type::TEXT)],
        );
    }
}
