//! The one who watches a job of `run` until it has ended, and what it knows of the job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

use steadfast_api::Attempts;
use steadfast_core::apply::fold;
use steadfast_core::decide::Input;
use steadfast_core::event::{JobId, RecordedEvent, Requester};
use steadfast_core::job::Job;
use steadfast_engine::{Live, Observer};
use steadfast_server::queries::Projector;
use steadfast_store::Refused;

use super::keeper::{Heard, KeptClaim};
use super::transport::LocalWorkers;
use super::{RunEnd, RunView, now};

/// How often the view is drawn anew, and how soon an interrupt is noticed.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// How soon it is noticed that the last process of a job that has ended is gone.
const LAST_TICK: Duration = Duration::from_millis(20);
/// How often it is looked at what the claim has heard, in ticks.
const CLAIM_TICKS: u32 = 10;
/// How long a database that is away is waited for once somebody wants the end, in milliseconds.
const HURRY_MS: u64 = 3000;

/// Tells the one who watches of every durable event.
pub(super) struct EventSender {
    pub(super) watch: SyncSender<Progress>,
    pub(super) projector: Projector,
}

pub(super) enum Progress {
    Events(Vec<RecordedEvent>),
    /// The store takes nothing more of the job from here.
    Refused(String),
    /// The job cannot go on here.
    Gone(String),
}

impl Progress {
    pub(super) fn into_events(self) -> Vec<RecordedEvent> {
        match self {
            Self::Events(records) => records,
            Self::Refused(_) | Self::Gone(_) => vec![],
        }
    }
}

impl Observer for EventSender {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>) {
        self.projector.committed(job, &records);
        let _ = self.watch.send(Progress::Events(records));
    }

    fn refused(&mut self, job: &JobId, why: &Refused) {
        let why = format!("job {job} belongs to another process now: {why}");
        let _ = self.watch.send(Progress::Refused(why));
    }

    fn parked(&mut self, job: &JobId, why: &str) {
        let _ = self.watch.send(Progress::Gone(format!("job {job} is stuck: {why}")));
    }
}

/// What is looked at until the job has ended.
pub(super) struct Watch<'a> {
    pub(super) id: &'a JobId,
    pub(super) live: &'a Live,
    pub(super) told: &'a Receiver<Progress>,
    pub(super) workers: &'a LocalWorkers,
    pub(super) claim: &'a KeptClaim,
    /// How long a database that is away is waited for. None: there is none.
    pub(super) tolerance_ms: Option<Arc<AtomicU64>>,
    pub(super) seen: Seen,
}

impl Watch<'_> {
    pub(super) fn until_end(&mut self, view: &mut dyn RunView) -> RunEnd {
        let (mut asked, mut ticks, mut over, mut is_away) = (0, 0u32, false, false);
        loop {
            match self.told.recv_timeout(if over { LAST_TICK } else { TICK }) {
                Ok(first) => {
                    // A burst is shown once.
                    for progress in std::iter::once(first).chain(self.told.try_iter()) {
                        let records = match progress {
                            Progress::Events(records) => records,
                            Progress::Gone(why) => return RunEnd::Failed(why),
                            Progress::Refused(why) => {
                                return match self.claim.taken_by() {
                                    Some(by) => self.taken_over(&by),
                                    None => RunEnd::Failed(why),
                                };
                            }
                        };
                        if self.seen.show(records, view).is_err() {
                            return RunEnd::Interrupted;
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return RunEnd::Interrupted,
            }
            ticks += 1;
            if ticks.is_multiple_of(CLAIM_TICKS) {
                let Heard { cancel, taken_by, away } = self.claim.heard();
                if let Some(by) = taken_by {
                    return self.taken_over(&by);
                }
                match away {
                    Some(why) if !is_away => {
                        view.warn(&format!(
                            "{why}\nnothing new starts until it is back; what runs goes on"
                        ));
                        is_away = true;
                    }
                    None if is_away => {
                        view.warn("the database is back");
                        is_away = false;
                    }
                    _ => {}
                }
                if let Some(requested) = cancel {
                    let _ = self.live.inbox().command(self.id, Input::Cancel(requested));
                }
            }
            if let Some(job) = &self.seen.job {
                view.draw(job, now());
                over = job.is_over();
                // What the end of the job cut off has its grace.
                if over && self.workers.is_idle() {
                    return RunEnd::Over;
                }
                if !over && job.state().is_terminal() {
                    // Enough datacenters are done, and nobody stays to wait for the others.
                    let _ = self.live.inbox().command(self.id, Input::Cancel(no_late_results()));
                }
            }
            let interrupts = view.interrupts();
            if interrupts > asked {
                if asked == 0 {
                    view.interrupting();
                    self.live.inbox().drain();
                    if let Some(tolerance_ms) = &self.tolerance_ms {
                        tolerance_ms.fetch_min(HURRY_MS, Ordering::Relaxed);
                    }
                }
                if interrupts > 1 {
                    self.workers.kill_all();
                } else {
                    self.workers.stop_all();
                }
                asked = interrupts;
            }
            if asked > 0 && self.workers.is_idle() {
                return RunEnd::Interrupted;
            }
        }
    }

    fn taken_over(&self, by: &str) -> RunEnd {
        RunEnd::TakenOver(format!(
            "job {} was taken over by {by}, because this process had not been heard of for some seconds; what it ran is \
             ended, and nothing more of it is written",
            self.id
        ))
    }
}

/// `run` ends with its job, and cancels what is left of it.
fn no_late_results() -> Requester {
    let reason = "`run` does not wait for late results";
    Requester { by: Some("run".into()), reason: Some(reason.into()) }
}

/// What the one who watches knows.
pub(super) struct Seen {
    pub(super) job: Option<Job>,
    /// None: the job was there before us, and the log knows more.
    pub(super) attempts: Option<Attempts>,
}

impl Seen {
    pub(super) fn show(
        &mut self,
        records: impl IntoIterator<Item = RecordedEvent>,
        view: &mut dyn RunView,
    ) -> Result<(), String> {
        for record in records {
            view.event(self.job.as_ref(), &record);
            self.take(&record)?;
        }
        Ok(())
    }

    /// A resumed job's state was read before its events are told: it may know one already.
    fn take(&mut self, record: &RecordedEvent) -> Result<(), String> {
        if self.job.as_ref().is_some_and(|job| record.seq <= job.seq) {
            return Ok(());
        }
        if let Some(attempts) = &mut self.attempts {
            attempts.add(record);
        }
        fold(&mut self.job, record).map_err(|error| error.to_string())
    }
}
