//! Files of older formats: 1 had a row for each event, 2 did not say in a job's row who began it, 3 had an epoch for
//! each job, 4 had the plan in each job's first event.

use rusqlite::{Transaction, params};

use super::events::{Lines, Shapes, crc, with_plan_apart};
use super::fault::Fault;
use super::read::at;
use super::schema::{ENDED_BADLY, EVENTS, OWNERS, PLANS};
use crate::Owner;

fn crc_of_1(seq: u64, at_ms: i64, text: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&seq.to_le_bytes());
    crc.update(&at_ms.to_le_bytes());
    crc.update(text);
    crc.finalize()
}

/// What does not fit its checksum stops it, and the file stays as it is.
pub(super) fn from_1(file: &Transaction<'_>) -> Result<(), Fault> {
    file.execute_batch("ALTER TABLE events RENAME TO events_1")?;
    file.execute_batch(EVENTS)?;
    events(file)?;
    snapshots(file)?;
    file.execute_batch("DROP TABLE events_1")?;
    Ok(())
}

/// A job of `run` has a source: the job file that its first event names. What cannot be read is damaged
/// anyway, and found to be so when it is used.
pub(super) fn from_2(file: &Transaction<'_>) -> Result<(), Fault> {
    file.execute_batch(
        "ALTER TABLE jobs ADD COLUMN local INTEGER NOT NULL DEFAULT 0;
         UPDATE jobs SET local = 1 WHERE EXISTS (
             SELECT 1 FROM events WHERE events.job = jobs.id AND first = 1
             AND json_valid('[' || lines || ']')
             AND ('[' || lines || ']') ->> '$[0][1].source' IS NOT NULL);",
    )?;
    Ok(())
}

/// Owners have epochs instead of jobs, and jobs that cannot go on are marked. Every job that is not over is
/// looked at once by the owner that goes on with it.
pub(super) fn from_3(file: &Transaction<'_>) -> Result<(), Fault> {
    file.execute_batch(&format!(
        "DROP INDEX jobs_due;
         ALTER TABLE jobs DROP COLUMN epoch;
         ALTER TABLE jobs DROP COLUMN owner;
         ALTER TABLE jobs RENAME COLUMN due_at TO wake_at;
         ALTER TABLE jobs ADD COLUMN stuck TEXT;
         ALTER TABLE jobs ADD COLUMN owner TEXT NOT NULL DEFAULT '{SHARD}';
         UPDATE jobs SET owner = id WHERE local = 1;
         UPDATE jobs SET wake_at = iif(over, NULL, 0);
         {OWNERS}",
        SHARD = Owner::SHARD,
    ))?;
    Ok(())
}

/// Plans move out of the first events. What cannot be read stays as it is, and is found to be damaged when it is
/// used. A stored state has its plan too, which is not read any more, and goes with the next state.
pub(super) fn from_4(file: &Transaction<'_>) -> Result<(), Fault> {
    file.execute_batch(&format!(
        "ALTER TABLE jobs ADD COLUMN queued TEXT;
         ALTER TABLE jobs ADD COLUMN plan INTEGER;
         DROP INDEX IF EXISTS jobs_by_state;
         {ENDED_BADLY}
         {PLANS}"
    ))?;
    let mut old = file.prepare("SELECT job, last FROM events WHERE first = 1")?;
    let mut line =
        file.prepare("UPDATE events SET lines = ?3, crc = ?4 WHERE job = ?1 AND last = ?2")?;
    let mut row = file.prepare("UPDATE jobs SET plan = ?2 WHERE id = ?1")?;
    // What is changed is not what is read: all jobs first.
    let jobs = old.query_map([], |from| Ok((from.get::<_, String>(0)?, from.get::<_, i64>(1)?)))?;
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    let mut one = file.prepare("SELECT lines, crc FROM events WHERE job = ?1 AND last = ?2")?;
    let mut shapes = Shapes::default();
    for (job, last) in jobs {
        let (text, sum): (Vec<u8>, i64) = one.query_row(params![job, last], |from| {
            Ok((from.get_ref(0)?.as_bytes()?.to_vec(), from.get(1)?))
        })?;
        let fits = sum == i64::from(crc(1, last as u64, &text));
        let Some(text) = str::from_utf8(&text).ok().filter(|_| fits) else { continue };
        let Some((text, shape)) = with_plan_apart(text) else { continue };
        let plan = shapes.keep(file, &shape)?;
        line.execute(params![job, last, text, crc(1, last as u64, text.as_bytes())])?;
        row.execute(params![job, plan])?;
    }
    shapes.count(file)
}

fn events(file: &Transaction<'_>) -> Result<(), Fault> {
    let mut old =
        file.prepare("SELECT job, seq, at_ms, body, crc FROM events_1 ORDER BY job, seq")?;
    let mut put = file
        .prepare("INSERT INTO events (job, last, first, lines, crc) VALUES (?1, ?2, ?3, ?4, ?5)")?;
    let mut of_job = String::new();
    let mut rows: Vec<Lines> = vec![];
    let mut from = old.query([])?;
    loop {
        let next = from.next()?;
        let job = next.map(|row| row.get::<_, String>(0)).transpose()?;
        // The last row may have room for more.
        let done =
            if job.as_ref() == Some(&of_job) { rows.len().saturating_sub(1) } else { rows.len() };
        for row in rows.drain(..done) {
            row.insert(&mut put, &of_job)?;
        }
        let (Some(row), Some(job)) = (next, job) else { return Ok(()) };
        let (seq, at_ms) = (row.get::<_, i64>(1)? as u64, row.get::<_, i64>(2)?);
        let body: String = row.get(3)?;
        if row.get::<_, i64>(4)? != i64::from(crc_of_1(seq, at_ms, body.as_bytes())) {
            return Err(Fault::events(&job, seq..=seq, "its checksum does not fit"));
        }
        Lines::add(&mut rows, seq, &format!("[{},{body}]", at(at_ms).0));
        of_job = job;
    }
}

fn snapshots(file: &Transaction<'_>) -> Result<(), Fault> {
    let mut old = file.prepare("SELECT job, seq, state, crc FROM snapshots")?;
    let mut put = file.prepare("UPDATE snapshots SET crc = ?2 WHERE job = ?1")?;
    let mut from = old.query([])?;
    while let Some(row) = from.next()? {
        let (job, seq): (String, u64) = (row.get(0)?, row.get::<_, i64>(1)? as u64);
        let state: Vec<u8> = row.get(2)?;
        if row.get::<_, i64>(3)? != i64::from(crc_of_1(seq, 0, &state)) {
            let place = format!("the snapshot of job {job}");
            return Err(Fault::damaged(&job, place, "its checksum does not fit"));
        }
        put.execute(params![job, crc(seq, seq, &state)])?;
    }
    Ok(())
}
