//! What a status shows of a job's attempts, stored from time to time, so that a status of a long job reads no long log.
//! It is made of what is stored, beside the one who writes, and is a help only: the log stays the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use steadfast_api::Attempts;
use steadfast_core::event::{JobId, RecordedEvent};
use steadfast_store::{Journal, Reader, Snapshot, Storage, StoreError};
use tokio::time::Instant;

use super::{each_event, plan_of};
use crate::error::ApiError;

/// A job that has this many events more gets a new projection. So a status reads about twice as many events at most, or as
/// many as the projection has attempts; more only while the projector is behind. Of a shorter job it reads all.
pub const PROJECT_EVERY: u64 = 5_000;

/// After each projection the projector rests this many times as long as that took: events are read for it a second time,
/// which may cost those who run jobs no more than this part of one processor.
const RESTS: u32 = 20;

/// Jobs that wait for their projection. One that finds no room gets it `PROJECT_EVERY` events later.
const WAITING: usize = 64;

/// Makes projections on a thread of its own, which ends with it.
#[derive(Debug)]
pub struct Projector {
    jobs: Option<SyncSender<JobId>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Projector {
    pub fn start(storage: Arc<dyn Storage>) -> Self {
        let (jobs, due) = sync_channel(WAITING);
        let thread = std::thread::Builder::new().name("project".to_owned());
        let ends = Arc::new(AtomicBool::new(false));
        let ending = ends.clone();
        let thread = thread.spawn(move || run(&*storage, &due, &ending));
        Self { jobs: Some(jobs), ends, thread: thread.ok() }
    }

    /// These events of a job are durable.
    pub fn committed(&self, job: &JobId, records: &[RecordedEvent]) {
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return };
        let is_due = (first.seq - 1) / PROJECT_EVERY < last.seq / PROJECT_EVERY;
        if let Some(jobs) = self.jobs.as_ref().filter(|_| is_due) {
            let _ = jobs.try_send(job.clone());
        }
    }
}

/// Those that wait get theirs.
impl Drop for Projector {
    fn drop(&mut self) {
        self.jobs = None;
        self.ends.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn run(storage: &dyn Storage, due: &Receiver<JobId>, ends: &AtomicBool) {
    // Opened for the first job that is long enough: most servers and runs have none.
    let mut open = None;
    for job in due {
        let began = Instant::now();
        let mut make = || -> Result<(), ApiError> {
            let (journal, reader) = match &mut open {
                Some(open) => open,
                none => none.insert((storage.journal()?, storage.reader()?)),
            };
            project(&mut **journal, &mut **reader, &job)
        };
        if let Err(error) = make() {
            tracing::warn!(event = "StatusNotStored", job_id = %job, %error);
        }
        let rested = Instant::now() + began.elapsed() * RESTS;
        while !ends.load(Ordering::SeqCst) && Instant::now() < rested {
            std::thread::park_timeout(rested - Instant::now());
        }
    }
}

/// Seldom enough that what is written is no more than a few times the events, however many attempts are shown.
fn project(
    journal: &mut dyn Journal,
    reader: &mut dyn Reader,
    job: &JobId,
) -> Result<(), ApiError> {
    let (mut attempts, mut seq) = stored(reader, job)?.unwrap_or_default();
    let end = reader.row(job)?.map_or(0, |(_, end)| end);
    if end.saturating_sub(seq) < PROJECT_EVERY / 2 + attempts.count() as u64 {
        return Ok(());
    }
    each_event(reader, job, (seq, end), |record| {
        seq = record.seq;
        attempts.add(&record);
        Ok(())
    })?;
    let state = serde_json::to_vec(&attempts).map_err(ApiError::internal)?;
    journal.project(job, &Snapshot { seq, state })?;
    Ok(())
}

/// The stored projection of a job, and its last event. None, if this version cannot read it: the log has it all.
pub(super) fn stored(
    reader: &mut dyn Reader,
    job: &str,
) -> Result<Option<(Attempts, u64)>, StoreError> {
    let Some(Snapshot { seq, state }) = reader.projection(job)? else { return Ok(None) };
    let Ok(attempts) = serde_json::from_slice::<Attempts>(&state) else { return Ok(None) };
    let first = reader.events(job, 0, 1)?;
    Ok(plan_of(&first).map(|plan| (attempts.with_plan(plan.clone()), seq)))
}
