//! History in weeks, by the time that a job's id begins with: see `weeks.sql`.

use std::collections::BTreeSet;

use tokio_postgres::types::Type;

use super::connection::Connection;
use super::fault::Fault;

const DAY_MS: i64 = 24 * 60 * 60 * 1000;
pub(super) const WEEK_MS: i64 = 7 * DAY_MS;
/// The first day of all was a Thursday.
const FIRST_MONDAY_MS: i64 = 4 * DAY_MS;

/// A purge may drop a week again that was made for a job of long ago.
const TRIES: u32 = 3;
/// As many as there are: one is analyzed with each call.
const TABLES: u32 = 8;

/// What writes into the history of jobs, in one transaction. Weeks are made ahead, so that there is one for every new job, unless no server was
/// there to do it or the job is one of long ago that was moved here: then it is made, and the same is done again.
pub(super) fn with<'a, T>(
    connection: &mut Connection,
    jobs: impl IntoIterator<Item = &'a str>,
    mut act: impl FnMut(&mut Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let (mut jobs, mut weeks) = (Some(jobs), BTreeSet::new());
    for _ in 1..TRIES {
        match act(connection) {
            Err(fault) if fault.is_without_week() => {
                let jobs = jobs.take().into_iter().flatten();
                weeks.extend(jobs.filter_map(made_at).map(starts));
                for starts in &weeks {
                    let made = "SELECT steadfast.make_week_v1($1)";
                    connection.query(made, &[(starts, Type::INT8)])?;
                }
            }
            done => return done,
        }
    }
    act(connection)
}

/// Makes the weeks of the next fortnight, and does what the database does not do by itself.
pub(super) fn maintain(connection: &mut Connection) -> Result<(), Fault> {
    for _ in 0..=TABLES {
        let analyzed = connection.query("SELECT steadfast.maintain_v1()", &[])?;
        if analyzed[0].get::<_, Option<&str>>(0).is_none() {
            break;
        }
    }
    Ok(())
}

/// Of the week that a moment is in.
fn starts(ms: i64) -> i64 {
    (ms - FIRST_MONDAY_MS).div_euclid(WEEK_MS) * WEEK_MS + FIRST_MONDAY_MS
}

/// In Unix milliseconds, if the id is one that is made of a time.
fn made_at(id: &str) -> Option<i64> {
    const DIGITS: &[u8] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let time = id.as_bytes().get(..10)?;
    time.iter().try_fold(0, |ms: i64, byte| {
        let digit = DIGITS.iter().position(|digit| digit == byte)?;
        Some(ms << 5 | digit as i64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_in_the_week_of_its_time() {
        // The 16th of November 2026 is a Monday.
        const MONDAY: i64 = 1_794_787_200_000;
        assert_eq!(made_at("01m7gtek00"), Some(MONDAY));
        assert_eq!(made_at("01m7gtek01zzzzzzzzzzzzzzzz"), Some(MONDAY + 1));
        for (moment, week) in [
            (MONDAY - 1, MONDAY - WEEK_MS),
            (MONDAY, MONDAY),
            (MONDAY + WEEK_MS - 1, MONDAY),
            (MONDAY + WEEK_MS, MONDAY + WEEK_MS),
        ] {
            assert_eq!(starts(moment), week);
        }
        for odd in ["a", "", "01M7GTEK00", "nightly-jobs", "01m7gteké"] {
            assert_eq!(made_at(odd), None, "{odd}");
        }
    }
}
