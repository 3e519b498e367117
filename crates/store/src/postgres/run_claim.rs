//! Which process has a job of `run`: the row of its owner, which is the job itself, renewed for a term by the database's clock.
//!
//! A process of the same folder is known to be dead by its lock there, and is taken over at once; of one elsewhere the end of its term is
//! waited for. Either way it is fenced first: the epoch of the row is raised, and its name in the row is another's.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use steadfast_core::event::Requester;
use steadfast_core::time::Timestamp;
use tokio_postgres::types::Type;

use super::connection::{Connection, Database};
use super::fault::Fault;
use super::param::{Text, at};
use super::{PostgresStore, schema};
use crate::folder::Folder;
use crate::members::{LATE, RENEWAL, TERM};
use crate::run_claim::{RunClaim, RunClaimError, RunLock, RunRenewal};
use crate::{Journal, StoreError};

/// How often the row of a process that may be dead is looked at.
const LOOK: Duration = Duration::from_millis(250);

pub(super) struct PostgresRunClaim {
    database: Arc<Database>,
    job: String,
    incarnation: String,
    alive_at: Option<Timestamp>,
    /// Of the folder, so that a second process there is refused, and one after this need not wait for the end of the term.
    lock: RunLock,
    connection: Mutex<Connection>,
    /// The database was there when it was last asked.
    is_kept: AtomicBool,
}

impl fmt::Debug for PostgresRunClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresRunClaim").field("job", &self.job).finish_non_exhaustive()
    }
}

/// The row of a job's process, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Runner {
    incarnation: String,
    /// In microseconds, by the database's clock.
    until: i64,
}

#[derive(Clone, Debug, Default)]
struct Look {
    now: i64,
    /// None: nobody has the job.
    runner: Option<Runner>,
    /// Of what it writes: nobody takes what a newer one has.
    format: i32,
    renewed_at: Option<Timestamp>,
    who: Option<String>,
}

impl Look {
    fn take(connection: &mut Connection, job: &str) -> Result<Self, Fault> {
        let rows = connection.read(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, incarnation, \
             (extract(epoch FROM until) * 1000000)::bigint, coalesce(format, 0), \
             (extract(epoch FROM renewed_at) * 1000)::bigint, address \
             FROM steadfast.owners WHERE id = $1",
            &[(&Text(job), Type::TEXT)],
        )?;
        let Some(row) = rows.first() else { return Ok(Self::default()) };
        let runner = row.get::<_, Option<String>>(1).zip(row.get(2));
        Ok(Self {
            now: row.get(0),
            runner: runner.map(|(incarnation, until)| Runner { incarnation, until }),
            format: row.get(3),
            renewed_at: row.get::<_, Option<i64>>(4).map(at),
            who: row.get(5),
        })
    }
}

/// This machine, as others know it.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "this machine".to_owned() } else { name.to_owned() }
}

impl PostgresRunClaim {
    pub(super) fn take(
        database: &Arc<Database>,
        job: &str,
        place: &Folder,
    ) -> Result<Self, RunClaimError> {
        let io = |why| RunClaimError::Io { job: job.to_owned(), why };
        let failed =
            |fault: Fault| io(io::Error::other(fault.at(database.place(), "taking a job")));
        let mut connection = Connection::new(database).map_err(failed)?;
        place.create().map_err(io)?;
        let Some(lock) = RunLock::take(place, job).map_err(io)? else {
            let by = Look::take(&mut connection, job).map_err(failed)?.who;
            return Err(RunClaimError::Run { job: job.to_owned(), by });
        };
        let prefix = format!("{}@{}.", place.id().map_err(io)?, host());
        loop {
            let look = free(&mut connection, job, &prefix).map_err(failed)?;
            let look = look.map_err(|by| RunClaimError::Run { job: job.to_owned(), by })?;
            if let Some(incarnation) =
                claim(&mut connection, job, &prefix, look.runner.as_ref()).map_err(failed)?
            {
                return Ok(Self {
                    database: database.clone(),
                    job: job.to_owned(),
                    incarnation,
                    alive_at: look.renewed_at,
                    lock,
                    connection: Mutex::new(connection),
                    is_kept: AtomicBool::new(true),
                });
            }
            // Somebody else was faster, or the one that seemed dead is not.
        }
    }

    fn with<T>(
        &self,
        doing: &'static str,
        act: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> io::Result<T> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        act(&mut connection)
            .map_err(|fault| io::Error::other(fault.at(self.database.place(), doing)))
    }
}

/// Waits until it is clear that nobody runs the job: what was seen then. Or who does.
#[expect(clippy::disallowed_methods, reason = "one that is dead says nothing")]
fn free(
    connection: &mut Connection,
    job: &str,
    prefix: &str,
) -> Result<Result<Look, Option<String>>, Fault> {
    let mut seen: Option<(Runner, Instant)> = None;
    let mut looked = Instant::now();
    loop {
        let look = Look::take(connection, job)?;
        let now = Instant::now();
        let is_late = now - looked > LATE;
        looked = now;
        let Some(runner) = look.runner.clone() else { return Ok(Ok(look)) };
        if look.format > schema::VERSION as i32 {
            let who = look.who.map(|who| format!("{who}, with a newer version of Steadfast"));
            return Ok(Err(who));
        }
        // We have the lock of its folder.
        if runner.incarnation.starts_with(prefix) {
            return Ok(Ok(look));
        }
        match &seen {
            // While we were held up, or the database was, it could not be renewed.
            Some(_) if is_late => seen = Some((runner, now)),
            Some((before, since)) if *before == runner => {
                if runner.until < look.now && now - *since >= RENEWAL {
                    return Ok(Ok(look));
                }
            }
            Some(_) => return Ok(Err(look.who)),
            None => seen = Some((runner, now)),
        }
        std::thread::sleep(LOOK);
    }
}

/// By what it has the job now. None: not as it was seen. Waits for a group of the one before that is under way.
fn claim(
    connection: &mut Connection,
    job: &str,
    prefix: &str,
    seen: Option<&Runner>,
) -> Result<Option<String>, Fault> {
    let who = format!("process {} on {}", std::process::id(), host());
    let rows = connection.query(
        "INSERT INTO steadfast.owners AS o (id, epoch, incarnation, until, renewed_at, format, address) \
         VALUES ($1, extract(epoch FROM clock_timestamp())::bigint, $2 || gen_random_uuid()::text, \
                 clock_timestamp() + $3 * interval '1 millisecond', clock_timestamp(), $4, $5) \
         ON CONFLICT (id) DO UPDATE SET epoch = greatest(o.epoch + 1, excluded.epoch), \
             incarnation = excluded.incarnation, until = excluded.until, renewed_at = excluded.renewed_at, \
             format = excluded.format, address = excluded.address, asked = NULL \
         WHERE o.incarnation IS NOT DISTINCT FROM $6 \
           AND (extract(epoch FROM o.until) * 1000000)::bigint IS NOT DISTINCT FROM $7 \
         RETURNING incarnation",
        &[
            (&Text(job), Type::TEXT),
            (&prefix, Type::TEXT),
            (&(TERM.as_millis() as i64), Type::INT8),
            (&(schema::VERSION as i32), Type::INT4),
            (&Text(&who), Type::TEXT),
            (&seen.map(|seen| &*seen.incarnation), Type::TEXT),
            (&seen.map(|seen| seen.until), Type::INT8),
        ],
    )?;
    Ok(rows.first().map(|row| row.get(0)))
}

impl RunClaim for PostgresRunClaim {
    fn alive_at(&self) -> Option<Timestamp> {
        self.alive_at
    }

    fn journal(&self) -> Result<Box<dyn Journal>, StoreError> {
        Ok(Box::new(PostgresStore::of(&self.database)?.of_runner(&self.incarnation)))
    }

    fn renew(&self, _now: Timestamp) -> io::Result<RunRenewal> {
        let renewed = self.with("renewing", |connection| {
            // Also when the term is over: if nobody has taken the job, nothing has happened.
            let kept = connection.read(
                "UPDATE steadfast.owners SET until = clock_timestamp() + $3 * interval '1 millisecond', \
                 renewed_at = clock_timestamp() WHERE id = $1 AND incarnation = $2 RETURNING asked",
                &[
                    (&Text(&self.job), Type::TEXT),
                    (&self.incarnation, Type::TEXT),
                    (&(TERM.as_millis() as i64), Type::INT8),
                ],
            )?;
            match kept.first() {
                Some(row) => {
                    let asked = row.get::<_, Option<&str>>(0);
                    let read = |text| serde_json::from_str(text).unwrap_or(Requester::NOBODY);
                    Ok(RunRenewal::Kept { cancel: asked.map(read) })
                }
                None => Ok(RunRenewal::Taken { by: Look::take(connection, &self.job)?.who }),
            }
        });
        let is_kept = matches!(renewed, Ok(RunRenewal::Kept { .. }));
        self.is_kept.store(is_kept, Ordering::Release);
        renewed
    }

    /// The row stays for as long as the job: it says who had it last.
    fn forget(&self) {
        self.lock.forget();
    }
}

/// Given up at once, so that others need not wait for the end of the term. Of a job that was never stored nothing is left.
impl Drop for PostgresRunClaim {
    fn drop(&mut self) {
        if !self.is_kept.load(Ordering::Acquire) {
            return;
        }
        let _ = self.with("giving up a job", |connection| {
            connection.query(
                "WITH unstored AS (DELETE FROM steadfast.owners WHERE id = $1 AND incarnation = $2 \
                     AND NOT EXISTS (SELECT FROM steadfast.jobs j WHERE j.id = $1)) \
                 UPDATE steadfast.owners SET incarnation = NULL, until = NULL, renewed_at = clock_timestamp() \
                 WHERE id = $1 AND incarnation = $2 AND EXISTS (SELECT FROM steadfast.jobs j WHERE j.id = $1)",
                &[(&Text(&self.job), Type::TEXT), (&self.incarnation, Type::TEXT)],
            )
        });
    }
}

/// Asks the process that runs the job to cancel it.
pub(super) fn ask_to_cancel(
    connection: &mut Connection,
    job: &str,
    requested: &str,
) -> Result<(), Fault> {
    connection.read(
        "UPDATE steadfast.owners SET asked = $2 WHERE id = $1",
        &[(&Text(job), Type::TEXT), (&Text(requested), Type::TEXT)],
    )?;
    Ok(())
}
