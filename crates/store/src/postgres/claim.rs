//! A server's place among those of its database: the row of its owner, renewed for a term by the database's clock, and the shards that it
//! has.
//!
//! A lock of the session would end with a connection that a `PgBouncer` gives to somebody else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use super::connection::{Connection, Database};
use super::fault::Fault;
use super::members::{Look, fence};
use super::{reservation, schema};
use crate::shards::OwnedShards;
use crate::storage::{Claim, ClaimError, Renewal};

pub(super) const TERM: Duration = Duration::from_secs(3);
/// How often a holder renews it, at least.
pub(super) const RENEWAL: Duration = Duration::from_secs(1);
/// One that has looked this long ago was held up: who has not renewed since may have been, too.
pub(super) const LATE: Duration = Duration::from_secs(2);
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
    incarnation: String,
    /// The shards that the server knows it has, with their terms, and those of them that it is giving away.
    has: BTreeMap<u16, u64>,
    giving: BTreeSet<u16>,
    /// Servers that have ended, as the server knows.
    ended: BTreeMap<Arc<str>, u64>,
    /// What it saw, and when: one look for every renewal.
    seen: Option<(Look, Instant)>,
    looked: Option<Instant>,
}

impl fmt::Debug for PostgresClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresClaim").field("id", &self.id).finish_non_exhaustive()
    }
}

impl PostgresClaim {
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
        let (has, giving) = (BTreeMap::new(), BTreeSet::new());
        let ended = BTreeMap::new();
        let inner = Inner { connection, incarnation, has, giving, ended, seen: None, looked: None };
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

impl Inner {
    /// Also when the term is over: if nobody has ended it, nothing has happened. False: somebody has.
    fn keep(&mut self, id: &str) -> Result<bool, Fault> {
        let kept = self.connection.read(
            "UPDATE steadfast.owners SET until = clock_timestamp() + $3 * interval '1 millisecond', \
             renewed_at = clock_timestamp() WHERE id = $1 AND incarnation = $2 RETURNING 1",
            &[
                (&id, Type::TEXT),
                (&self.incarnation, Type::TEXT),
                (&(TERM.as_millis() as i64), Type::INT8),
            ],
        )?;
        Ok(!kept.is_empty())
    }

    /// Comes back after it was ended, with nothing.
    fn rejoin(&mut self, id: &str) -> Result<(), Fault> {
        let closed = reservation::closed(&mut self.connection)?;
        if let Some(why) = closed.map_err(|error| Fault::Foreign(error.to_string()))? {
            return Err(Fault::Unsuitable(why));
        }
        let rows = self.connection.query(
            "UPDATE steadfast.owners SET incarnation = gen_random_uuid()::text, renewed_at = clock_timestamp(), \
             until = clock_timestamp() + $2 * interval '1 millisecond' \
             WHERE id = $1 AND incarnation IS NULL RETURNING incarnation",
            &[(&id, Type::TEXT), (&(TERM.as_millis() as i64), Type::INT8)],
        )?;
        let gone = || Fault::Foreign(format!("the row of {id} is gone"));
        self.incarnation = rows.first().ok_or_else(gone)?.get(0);
        (self.seen, self.has, self.giving) = (None, BTreeMap::new(), BTreeSet::new());
        Ok(())
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "how long it was held up, no clock that can be set says"
    )]
    fn renew(&mut self, id: &str, now: Timestamp) -> Result<Renewal, Fault> {
        if !self.keep(id)? {
            self.rejoin(id)?;
            return Ok(Renewal { is_ended: true, ..Renewal::default() });
        }
        let at = Instant::now();
        let is_late = self.looked.replace(at).is_some_and(|last| at - last > LATE);
        let look = Look::take(&mut self.connection)?;
        let before = self.seen.as_ref().filter(|(_, seen)| !is_late && at - *seen >= RENEWAL);
        let moves = look.moves(before.map(|(look, _)| look), id);
        if self.seen.is_none() || is_late || before.is_some() {
            self.seen = Some((look.clone(), at));
        }
        let mut its = look.shards_of(id);
        // What it gave away, and has again with this renewal, is gained.
        self.has.retain(|shard, term| its.get(shard) == Some(term));
        self.giving.retain(|shard| self.has.contains_key(shard));
        let mut ended = look.ended;
        let mut lost = Vec::new();
        for (dead, member) in moves.dead {
            if let Some(epoch) = fence(&mut self.connection, &dead, &member)? {
                let dead: Arc<str> = dead.into();
                ended.insert(dead.clone(), epoch);
                lost.push(dead);
            }
        }
        let is_news = |(id, epoch): &(&Arc<str>, &u64)| self.ended.get(*id) != Some(*epoch);
        let news = ended.iter().filter(is_news).map(|(id, epoch)| (id.clone(), *epoch)).collect();
        self.ended = ended;
        if !moves.claim.is_empty() {
            let wanted: Vec<i16> = moves.claim.iter().map(|shard| *shard as i16).collect();
            let claimed = self.connection.query(
                "SELECT claimed, its_term FROM steadfast.claim_v1($1, $2, $3, $4)",
                &[
                    (&id, Type::TEXT),
                    (&self.incarnation, Type::TEXT),
                    (&wanted, Type::INT2_ARRAY),
                    (&(now.0 as i64), Type::INT8),
                ],
            )?;
            let claimed = claimed.iter();
            its.extend(
                claimed.map(|row| (row.get::<_, i16>(0) as u16, row.get::<_, i64>(1) as u64)),
            );
        }
        let gained = its.keys().filter(|shard| !self.has.contains_key(shard)).copied().collect();
        self.has = its;
        let mut give = BTreeMap::<Arc<str>, Vec<u16>>::new();
        for (shard, to) in moves.give {
            if self.giving.insert(shard) {
                give.entry(to.into()).or_default().push(shard);
            }
        }
        Ok(Renewal { gained, give, lost, ended: news, is_ended: false })
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
        let renewed = inner.renew(&self.id, now);
        if renewed.is_ok() {
            self.owned.set(&inner.has, &inner.giving);
        }
        let place = inner.connection.database().place();
        renewed.map_err(|fault| io::Error::other(fault.at(place, "renewing")))
    }

    #[expect(clippy::disallowed_methods, reason = "a holder that is dead says nothing")]
    fn begin(&self, now: Timestamp) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            // All that it has is read when it begins.
            self.renew(now)?;
            if !self.inner().has.is_empty() || begun.elapsed() > FIRST {
                // Told with the next renewal.
                self.inner().ended.clear();
                return Ok(());
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
                &[(&&*id, Type::TEXT), (&inner.incarnation, Type::TEXT)],
            );
        }
    }
}
