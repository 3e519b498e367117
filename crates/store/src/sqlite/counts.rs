//! How many jobs of servers are in which state: kept, not counted. A group changes it once, by what it comes to.

use rusqlite::{Connection, params};

use super::fault::Fault;
use crate::JobCounts;

/// What a transaction changes of it.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<(&'static str, i64)>);

impl Changes {
    /// A job is counted as another one, from now on or no more. Each is a state's name or [`JobCounts::STUCK`].
    pub(super) fn add(&mut self, before: Option<&'static str>, after: Option<&'static str>) {
        if before != after {
            for (state, change) in [(before, -1), (after, 1)] {
                let Some(state) = state else { continue };
                match self.0.iter_mut().find(|(known, _)| *known == state) {
                    Some((_, jobs)) => *jobs += change,
                    None => self.0.push((state, change)),
                }
            }
        }
    }

    pub(super) fn keep(&self, connection: &Connection) -> Result<(), Fault> {
        for (state, change) in self.0.iter().filter(|(_, change)| *change != 0) {
            connection
                .prepare_cached(
                    "INSERT INTO counts (state, jobs) VALUES (?1, ?2) \
                     ON CONFLICT (state) DO UPDATE SET jobs = jobs + ?2",
                )?
                .execute(params![state, change])?;
        }
        Ok(())
    }
}

/// What a stored job is counted as, if it is one of a server: a job of `run` is its own owner.
pub(super) fn counted(job: &str, owner: &str, state: &str, is_stuck: bool) -> Option<&'static str> {
    let known = steadfast_core::event::JobState::ALL.iter().map(|state| state.name());
    match is_stuck {
        _ if job == owner => None,
        true => Some(JobCounts::STUCK),
        false => known.into_iter().find(|known| *known == state),
    }
}

pub(super) fn read(connection: &Connection) -> Result<JobCounts, Fault> {
    let mut statement = connection.prepare_cached("SELECT state, jobs FROM counts")?;
    let kept =
        statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let kept = kept.collect::<Result<Vec<_>, _>>()?;
    Ok(JobCounts::of(kept.iter().map(|(state, jobs)| (&**state, *jobs))))
}
