//! What Prometheus reads. Everything here is counted in memory; nothing waits, nothing is looked up
//! in the store: how many jobs that has is handed in.
//!
//! Every label is of a set that the program knows: states, reasons, routes. What a job's author or a
//! caller writes is never a label; `job_id` is bounded (see `per_job`).

use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use steadfast_core::event::{CompletionReason, JobState};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::{Cause, StopReason};
use steadfast_store::JobCounts;

use super::per_job::{BudgetCollector, Budgets};
use super::text::classic;

/// One label with values that are known here.
type One = [(&'static str, &'static str); 1];
type Route = [(&'static str, String); 2];
type Request = [(&'static str, String); 3];
type Histograms<S> = Family<S, Histogram, fn() -> Histogram>;

/// How attempts end, as `status` names it.
pub(super) const OUTCOMES: [&str; 6] =
    ["succeeded", "failed", "not_completed", "timed_out", "worker_lost", "killed"];
pub(super) const QUEUE_FULL: &str = "queue_full";
pub(super) const EXPORT_FAILED: &str = "export_failed";
const ENDS: [JobState; 4] =
    [JobState::Succeeded, JobState::Partial, JobState::Failed, JobState::Cancelled];
/// A job that is cancelled does not complete, and no failed run fails a best-effort job.
const BEST_EFFORT_REASONS: [CompletionReason; 4] = [
    CompletionReason::AllReported,
    CompletionReason::MinDatacentersReached,
    CompletionReason::DeadlineExpired,
    CompletionReason::TimedOut,
];

/// Facts of the process that do not change.
#[derive(Clone, Debug)]
pub struct ProcessFacts {
    pub version: &'static str,
    pub started_at: Timestamp,
    /// Series with `job_id` for so many jobs at most, usually [`super::PER_JOB_MOST`]; 0: none.
    pub per_job_max: usize,
}

/// Cheap to clone; all clones count together.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<All>);

#[derive(Debug)]
struct All {
    registry: Registry,
    counted: Counters,
}

#[derive(Debug)]
pub(super) struct Counters {
    pub(super) budgets: Arc<Budgets>,
    best_effort_completions: Family<One, Counter>,
    jobs_accepted: Counter,
    jobs_ended: Family<One, Counter>,
    pub(super) jobs_live: Gauge,
    jobs_stuck: Gauge,
    jobs: Family<One, Gauge>,
    pub(super) late_results: Counter,
    pub(super) attempts_started: Counter,
    attempts_ended: Family<One, Counter>,
    retries: Family<One, Counter>,
    stops: Family<One, Counter>,
    attempt_seconds: Histogram,
    queue_seconds: Histogram,
    lateness_seconds: Histogram,
    pub(super) items_running: Gauge,
    pub(super) reports_rejected: Counter,
    workers: Family<One, Gauge>,
    heartbeats: Counter,
    pub(super) leases_lost: Counter,
    sessions_ended: Family<One, Counter>,
    requests: Family<Request, Counter>,
    request_seconds: Histograms<Route>,
    commit_seconds: Histogram,
    commit_jobs: Histogram,
    pub(super) lines_dropped: Counter,
    pub(super) spans_exported: Counter,
    spans_dropped: Family<One, Counter>,
}

impl Metrics {
    pub fn new(about: &ProcessFacts) -> Self {
        let mut registry = Registry::default();
        let counted = Counters::register(&mut registry, about);
        Self(Arc::new(All { registry, counted }))
    }

    /// The whole page, of type [`super::CONTENT_TYPE`].
    pub fn render(&self) -> String {
        let mut page = String::new();
        // Writing into a string does not fail, and half a page is of more use than none.
        let _ = encode_registry(&mut page, &self.0.registry);
        classic(&page)
    }

    /// How many jobs the store has, by their state.
    pub fn set_jobs(&self, counts: &JobCounts) {
        let by_state = counts.by_state.iter().map(|(state, jobs)| (state.name(), *jobs));
        for (state, jobs) in by_state.chain([(JobCounts::STUCK, counts.stuck)]) {
            self.0.counted.jobs.get_or_create(&[("state", state)]).set(jobs as i64);
        }
        self.0.counted.jobs_stuck.set(counts.stuck as i64);
    }

    /// How many workers are in a state, which is of a small fixed set.
    pub fn set_workers(&self, state: &'static str, count: usize) {
        self.0.counted.workers.get_or_create(&[("state", state)]).set(count as i64);
    }

    pub fn session_ended(&self, why: &'static str) {
        self.0.counted.sessions_ended.get_or_create(&[("reason", why)]).inc();
    }

    pub fn heartbeat(&self) {
        self.0.counted.heartbeats.inc();
    }

    /// One transaction of the store: how long, with the events of how many jobs.
    pub fn committed(&self, seconds: f64, jobs: usize) {
        self.0.counted.commit_seconds.observe(seconds);
        self.0.counted.commit_jobs.observe(jobs as f64);
    }

    /// `route` is the template that matched, never the path that was asked for.
    pub fn answered(&self, route: &str, method: &'static str, status: u16, seconds: f64) {
        let place = [("method", method.to_owned()), ("route", route.to_owned())];
        self.0.counted.request_seconds.get_or_create(&place).observe(seconds);
        let [method, route] = place;
        let request = [method, route, ("status", status.to_string())];
        self.0.counted.requests.get_or_create(&request).inc();
    }

    pub(super) fn counted(&self) -> &Counters {
        &self.0.counted
    }
}

impl Counters {
    fn register(registry: &mut Registry, about: &ProcessFacts) -> Self {
        let budgets = Arc::new(Budgets::new(about.per_job_max));
        registry.register_collector(Box::new(BudgetCollector(budgets.clone())));
        registry.register_collector(Box::new(ResidentMemory));
        let version = [("version", about.version)];
        registry.register("steadfast_build", "The program that runs", Info::new(version));
        let started: Gauge<f64, std::sync::atomic::AtomicU64> = Gauge::default();
        started.set(about.started_at.0 as f64 / 1000.0);
        registry.register(
            "steadfast_process_start_time_seconds",
            "When the process started, since the Unix epoch",
            started,
        );
        let mut add = Add(registry);
        let reasons = BEST_EFFORT_REASONS.map(CompletionReason::name);
        let causes = [Cause::Failure, Cause::Preemption, Cause::Deferral].map(cause_name);
        Self {
            budgets,
            best_effort_completions: add.by(
                "best_effort_completions",
                "Best-effort jobs that completed, by what made them",
                "reason",
                &reasons,
            ),
            jobs_accepted: add.one("steadfast_jobs_accepted", "Jobs accepted"),
            jobs_ended: add.by(
                "steadfast_jobs_ended",
                "Jobs that ended, by their state",
                "state",
                &ENDS.map(JobState::name),
            ),
            jobs_live: add.one(
                "steadfast_jobs_live",
                "Jobs that have not ended and that this server has in memory",
            ),
            jobs_stuck: add
                .one("steadfast_jobs_stuck", "Jobs of the store that cannot be read or continued"),
            jobs: add.one("steadfast_jobs", "Jobs of the store, whichever server has them, by state"),
            late_results: add.one(
                "steadfast_late_datacenter_results",
                "Datacenters that reported after their job had completed",
            ),
            attempts_started: add.one("steadfast_attempts_started", "Attempts started"),
            attempts_ended: add.by(
                "steadfast_attempts_ended",
                "Attempts that ended, by how",
                "outcome",
                &OUTCOMES,
            ),
            retries: add.by(
                "steadfast_retries",
                "Retries decided, by the account they are charged to",
                "cause",
                &causes,
            ),
            stops: add.by(
                "steadfast_stops",
                "Items given up, by the reason",
                "reason",
                &StopReason::ALL.map(StopReason::name),
            ),
            attempt_seconds: add.histogram(
                "steadfast_attempt_duration_seconds",
                "How long attempts took that reported an outcome",
                &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0],
            ),
            queue_seconds: add.histogram(
                "steadfast_queue_seconds",
                "How long items were ready before an attempt of them started",
                &[0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3600.0],
            ),
            lateness_seconds: add.histogram(
                "steadfast_retry_lateness_seconds",
                "How long after they were due retries became ready",
                &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0, 60.0, 3600.0],
            ),
            items_running: add.one("steadfast_items_running", "Items with an attempt under way"),
            reports_rejected: add.one(
                "steadfast_reports_rejected",
                "Reports of attempts that are not the current ones (stale fence), or not the worker's",
            ),
            workers: add.one("steadfast_workers", "Workers, by their state"),
            heartbeats: add.one("steadfast_heartbeats", "Heartbeats of workers"),
            leases_lost: add.one("steadfast_leases_lost", "Workers whose lease ran out"),
            sessions_ended: add.one(
                "steadfast_worker_sessions_ended",
                "Sessions of workers that the server ended, by why",
            ),
            requests: add.one("steadfast_http_requests", "HTTP requests answered"),
            request_seconds: add.put(
                "steadfast_http_request_duration_seconds",
                "How long it took until HTTP requests were answered, streams until they began",
                Family::new_with_constructor(request_histogram as fn() -> Histogram),
            ),
            commit_seconds: add.histogram(
                "steadfast_store_commit_duration_seconds",
                "How long the store took to make a group durable",
                &[0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0],
            ),
            commit_jobs: add.histogram(
                "steadfast_store_commit_group_size",
                "Writes that were made durable together",
                &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0],
            ),
            lines_dropped: add.one(
                "steadfast_log_lines_dropped",
                "Log lines dropped because they could not be written as fast",
            ),
            spans_exported: add.one("steadfast_spans_exported", "Spans that the collector took"),
            spans_dropped: add.by(
                "steadfast_spans_dropped",
                "Spans dropped because the collector was too slow, or refused them or was away",
                "cause",
                &[QUEUE_FULL, EXPORT_FAILED],
            ),
        }
    }

    pub(super) fn job_accepted(&self) {
        self.jobs_accepted.inc();
        self.jobs_live.inc();
    }

    pub(super) fn job_ended(&self, state: JobState) {
        self.jobs_ended.get_or_create(&[("state", state.name())]).inc();
        self.jobs_live.dec();
    }

    pub(super) fn best_effort_completed(&self, reason: CompletionReason, succeeded: u32, of: u32) {
        if BEST_EFFORT_REASONS.contains(&reason) {
            self.best_effort_completions.get_or_create(&[("reason", reason.name())]).inc();
            self.budgets.completed(succeeded, of);
        }
    }

    pub(super) fn attempt_ended(&self, outcome: &'static str, took_ms: Option<u64>) {
        self.attempts_ended.get_or_create(&[("outcome", outcome)]).inc();
        if let Some(ms) = took_ms {
            self.attempt_seconds.observe(seconds(ms));
        }
    }

    pub(super) fn retry(&self, cause: Cause) {
        self.retries.get_or_create(&[("cause", cause_name(cause))]).inc();
    }

    pub(super) fn stop(&self, reason: StopReason) {
        self.stops.get_or_create(&[("reason", reason.name())]).inc();
    }

    pub(super) fn spans_dropped(&self, cause: &'static str, spans: usize) {
        self.spans_dropped.get_or_create(&[("cause", cause)]).inc_by(spans as u64);
    }

    pub(super) fn queued(&self, ms: u64) {
        self.queue_seconds.observe(seconds(ms));
    }

    pub(super) fn late(&self, ms: u64) {
        self.lateness_seconds.observe(seconds(ms));
    }
}

pub(super) const fn cause_name(cause: Cause) -> &'static str {
    match cause {
        Cause::Failure => "failure",
        Cause::Preemption => "preemption",
        Cause::Deferral => "deferral",
    }
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

fn request_histogram() -> Histogram {
    Histogram::new([0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0])
}

struct Add<'a>(&'a mut Registry);

impl Add<'_> {
    fn put<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn one<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.put(name, help, M::default())
    }

    /// All values are there from the start: a rate needs its zero, and counting needs no lock.
    fn by(
        &mut self,
        name: &str,
        help: &str,
        label: &'static str,
        values: &[&'static str],
    ) -> Family<One, Counter> {
        let family: Family<One, Counter> = self.one(name, help);
        for value in values {
            drop(family.get_or_create(&[(label, value)]));
        }
        family
    }

    fn histogram(&mut self, name: &str, help: &str, bounds: &[f64]) -> Histogram {
        self.put(name, help, Histogram::new(bounds.iter().copied()))
    }
}

/// Asked of the system at each scrape; where it has no `/proc` there is no such series.
#[derive(Debug)]
struct ResidentMemory;

impl Collector for ResidentMemory {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let Some(kib) = resident_kib(&status) else { return Ok(()) };
        let (name, help) =
            ("steadfast_process_resident_memory_bytes", "Memory of the process that is resident");
        let mut gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        gauge.encode_gauge(&(kib * 1024))
    }
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_as_the_kernel_writes_it() {
        assert_eq!(resident_kib("VmPeak:\t  9 kB\nVmRSS:\t    5120 kB\n"), Some(5120));
        assert_eq!(resident_kib("nothing of the kind"), None);
    }
}
