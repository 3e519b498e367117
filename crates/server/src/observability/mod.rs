//! What is observed: metrics, logs and traces of what has happened.
//!
//! Everything here listens. It is told of durable events and of what workers do, on threads that have
//! better things to do, so nothing waits: counting is in memory, log lines and spans go through
//! bounded queues. It decides nothing and is asked nothing by those who do.
//!
//! | | |
//! |---|---|
//! | [`Observability`] | told of everything; an [`Observer`] of the engine |
//! | [`Metrics`] | what `/metrics` shows |
//! | [`RecentActivity`] | the last hour, for people |
//! | [`init`], [`Log`] | structured logs |
//! | [`Spans`] | OpenTelemetry |
//! | [`requests`] | counts HTTP requests |
//! | [`TimedJournal`] | times commits |

mod job;
mod journal;
mod lines;
mod log;
mod log_events;
mod metrics;
mod overview;
mod per_job;
mod queue;
mod recent;
mod requests;
mod text;
mod trace;
mod workers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_core::event::{Event, JobId, RecordedEvent};
use steadfast_core::job::Job;
use steadfast_engine::{FleetNotification, Observer};
use steadfast_store::Refused;

use job::{ObservedJob, Sinks};

pub use journal::TimedJournal;
pub use log::{Log, LogError, LogFormat, LogOptions, init, init_stderr, subscriber};
pub use metrics::{Metrics, ProcessFacts};
pub use overview::{
    ActivityOverview, BudgetRow, FailingStepRow, FailureGrid, GridCell, GridRow, RetryCounts,
    ThroughputBucket,
};
pub use per_job::PER_JOB_MOST;
pub use recent::RecentActivity;
pub use requests::requests;
pub use text::CONTENT_TYPE;
pub use trace::{Spans, TraceError};
pub use workers::{Rejected, SessionEnd};

/// Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Observability(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    metrics: Metrics,
    spans: Option<Spans>,
    recent: RecentActivity,
    /// Jobs under way.
    jobs: Mutex<HashMap<JobId, ObservedJob>>,
}

impl Observability {
    pub fn new(metrics: Metrics, spans: Option<Spans>) -> Self {
        let recent = RecentActivity::default();
        Self(Arc::new(Inner { metrics, spans, recent, jobs: Mutex::default() }))
    }

    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub fn recent(&self) -> &RecentActivity {
        &self.0.recent
    }

    /// A stored job that the engine will go on with. Before the engine is told, because its events
    /// mean nothing without what went before.
    pub fn adopted(&self, job: &Job) {
        let watched = ObservedJob::adopted(job);
        if watched.is_over() {
            return;
        }
        let counted = self.0.metrics.counted();
        if !watched.has_ended() {
            counted.budgets.show(&job.id, watched.shown());
        }
        counted.jobs_live.inc_by(i64::from(!watched.has_ended()));
        counted.items_running.inc_by(watched.in_flight() as i64);
        let before = self.jobs().insert(job.id.clone(), watched);
        if let Some(before) = before {
            self.let_go(&before);
        }
    }

    /// A stored job that has not ended and cannot be read: nobody goes on with it.
    pub fn stuck(&self, job: &JobId, reason: &str) {
        tracing::error!(event = "JobStuck", job_id = %job, reason);
    }

    /// A job that leaves memory: it has nothing to do for a while, or another process goes on with it.
    pub fn forgotten(&self, job: &JobId) {
        let forgotten = self.jobs().remove(job);
        if let Some(forgotten) = forgotten {
            self.let_go(&forgotten);
            self.0.metrics.counted().budgets.hide(job);
        }
    }

    /// It, and then `next`.
    #[must_use]
    pub fn and(self, next: Box<dyn Observer>) -> Box<dyn Observer> {
        Box::new(ObservedBy { watch: self, next })
    }

    /// Jobs that something is remembered of.
    pub fn jobs_watched(&self) -> usize {
        self.jobs().len()
    }

    fn let_go(&self, job: &ObservedJob) {
        let counted = self.0.metrics.counted();
        counted.jobs_live.dec_by(i64::from(!job.has_ended()));
        counted.items_running.dec_by(job.in_flight() as i64);
    }

    fn jobs(&self) -> MutexGuard<'_, HashMap<JobId, ObservedJob>> {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, id: &JobId, records: &[RecordedEvent]) {
        let counted = self.0.metrics.counted();
        let told = Sinks { counted, spans: self.0.spans.as_ref(), recent: &self.0.recent };
        let mut jobs = self.jobs();
        if let Some(RecordedEvent { at, event: Event::JobAccepted(accepted), .. }) = records.first()
        {
            jobs.insert(id.clone(), ObservedJob::accepted(accepted, *at));
        }
        let Some(job) = jobs.get_mut(id) else { return };
        let was_live = !job.has_ended();
        for record in records {
            job.event(record, told);
        }
        if job.has_ended() {
            if was_live {
                counted.budgets.end(id, job.shown());
            }
        } else {
            counted.budgets.show(id, job.shown());
        }
        if job.is_over() {
            jobs.remove(id);
        }
    }
}

impl Observer for Observability {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>) {
        self.heard(job, &records);
    }

    fn fleet(&mut self, notifications: Vec<FleetNotification>) {
        for notifications in &notifications {
            self.of_worker(notifications);
        }
    }

    fn refused(&mut self, job: &JobId, why: &Refused) {
        self.forgotten(job);
        let event = if why.is_rewound() { "StoreRewound" } else { "JobRefused" };
        tracing::error!(event, job_id = %job, reason = %why);
    }

    fn parked(&mut self, job: &JobId, why: &str) {
        self.forgotten(job);
        self.stuck(job, why);
    }

    fn woken(&mut self, job: &Job) {
        self.adopted(job);
    }

    fn slept(&mut self, job: &JobId) {
        self.forgotten(job);
    }
}

struct ObservedBy {
    watch: Observability,
    next: Box<dyn Observer>,
}

impl Observer for ObservedBy {
    fn committed(&mut self, job: &JobId, records: Vec<RecordedEvent>) {
        self.watch.heard(job, &records);
        self.next.committed(job, records);
    }

    fn fleet(&mut self, notifications: Vec<FleetNotification>) {
        for notifications in &notifications {
            self.watch.of_worker(notifications);
        }
        self.next.fleet(notifications);
    }

    fn refused(&mut self, job: &JobId, why: &Refused) {
        self.watch.refused(job, why);
        self.next.refused(job, why);
    }

    fn parked(&mut self, job: &JobId, why: &str) {
        self.watch.parked(job, why);
        self.next.parked(job, why);
    }

    fn woken(&mut self, job: &Job) {
        self.watch.woken(job);
        self.next.woken(job);
    }

    fn slept(&mut self, job: &JobId) {
        self.watch.slept(job);
        self.next.slept(job);
    }
}
