//! A server's place among those of its database: the row of its owner, renewed for a term by the database's clock, and the shards that it
//! has.
//!
//! A lock of the session would end with a connection that a `PgBouncer` gives to somebody else.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use super::connection::{Connection, Database};
use super::fault::Fault;
use super::{reservation, schema};
use crate::members::{Membership, TERM};
use crate::shards::OwnedShards;
use crate::storage::{Claim, ClaimError, Renewal};

/// A server that comes waits so long for its first shards: for a dead one's term to end, or for another one to give it some.
const FIRST: Duration = Duration::from_secs(12);
/// A server that has ended so long ago is known to no worker any more. A job of `run` that is not stored by then never was.
const FORGOTTEN: Duration = Duration::from_hours(24 * 7);
const FIRST_LOOK: Duration = Duration::from_millis(250);

pub(super) struct PostgresClaim {
    /// Its row, made anew with every start of the server.
    id: Arc<str>,
    owned: Arc<OwnedShards>,
    inner: Mutex<Inner>,
}

struct Inner {
    connection: Connection,
    membership: Membership,
    /// When it joined.
    begun: Instant,
}

impl fmt::Debug for PostgresClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresClaim").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PostgresClaim {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long it was held up, no clock that can be set says"
    )]
    pub(super) fn join(database: &Arc<Database>) -> Result<Self, ClaimError> {
        let failed = |fault: Fault| io::Error::other(fault.at(database.place(), "joining"));
        let mut connection = Connection::new(database).map_err(failed)?;
        let forget = connection.query(
            "DELETE FROM steadfast.owners o WHERE (o.incarnation IS NULL OR NOT o.serves) \
             AND o.renewed_at < clock_timestamp() - $1 * interval '1 second' \
             AND NOT EXISTS (SELECT FROM steadfast.shards s WHERE s.owner = o.id) \
             AND NOT EXISTS (SELECT FROM steadfast.jobs j WHERE j.id = o.id)",
            &[(&(FORGOTTEN.as_secs() as i64), Type::INT8)],
        );
        forget.map_err(failed)?;
        let made = connection.query(
            "INSERT INTO steadfast.owners (id, epoch, incarnation, until, renewed_at, format, serves) \
             VALUES ('server-' || gen_random_uuid()::text, 0, gen_random_uuid()::text, \
                     clock_timestamp() + $1 * interval '1 millisecond', clock_timestamp(), $2, true) \
             RETURNING id, incarnation",
            &[
                (&(TERM.as_millis() as i64), Type::INT8),
                (&(schema::VERSION as i32), Type::INT4),
            ],
        );
        let made = made.map_err(failed)?;
        let (id, incarnation): (&str, String) = (made[0].get(0), made[0].get(1));
        let membership = Membership::new(id.into(), incarnation, schema::VERSION as i32);
        let inner = Inner { connection, membership, begun: Instant::now() };
        let owned = Arc::new(OwnedShards::of(database.shards().map_err(failed)?));
        // Given up again if there is a move, which has seen this row or is seen here.
        let claim = Self { id: id.into(), owned, inner: Mutex::new(inner) };
        let closed = reservation::closed(&mut claim.inner().connection).map_err(failed)?;
        match closed? {
            Some(why) => Err(ClaimError::Moved(why)),
            None => Ok(claim),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim for PostgresClaim {
    fn owner(&self) -> Arc<str> {
        self.id.clone()
    }

    fn alive_at(&self) -> Option<Timestamp> {
        None
    }

    fn renew(&self, now: Timestamp) -> io::Result<Renewal> {
        let mut inner = self.inner();
        let Inner { connection, membership, begun } = &mut *inner;
        let renewed = membership.renew(connection, begun.elapsed(), now);
        if renewed.is_ok() {
            self.owned.set(&membership.has, &membership.giving);
        }
        let place = inner.connection.database().place();
        renewed.map_err(|fault| io::Error::other(fault.at(place, "renewing")))
    }

    #[expect(clippy::disallowed_methods, reason = "a holder that is dead says nothing")]
    fn begin(&self, now: Timestamp) -> io::Result<bool> {
        let begun = Instant::now();
        let mut was_ended = false;
        loop {
            // All that it has is read when it begins.
            was_ended |= self.renew(now)?.is_ended;
            if !self.inner().membership.has.is_empty() || begun.elapsed() > FIRST {
                let mut inner = self.inner();
                inner.membership.begun();
                self.owned.set(&inner.membership.has, &inner.membership.giving);
                return Ok(was_ended);
            }
            std::thread::sleep(FIRST_LOOK);
        }
    }

    fn shards(&self) -> Arc<OwnedShards> {
        self.owned.clone()
    }
}

/// Given up at once, so that others need not wait for the end of the term.
impl Drop for PostgresClaim {
    fn drop(&mut self) {
        let id = self.id.clone();
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if inner.connection.is_open() {
            let _ = inner.connection.query(
                "UPDATE steadfast.owners SET incarnation = NULL, until = NULL, \
                 renewed_at = clock_timestamp() WHERE id = $1 AND incarnation = $2",
                &[(&&*id, Type::TEXT), (&inner.membership.incarnation(), Type::TEXT)],
            );
        }
    }
}
