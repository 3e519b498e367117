//! AD-44's metrics: over all jobs, and by job for a bounded number of jobs.
//!
//! The series without `job_id` is the sum over all jobs since the process started and never goes
//! back. Beside it, while the operator wants them, stand series with `job_id`: absolute numbers of
//! the job itself, also after a restart. When it has ended they are shown once more, with what they came to, and
//! are gone after that; a job that is under way takes the place of one that has ended. So
//! `rate(retry_budget_consumed_total{job_id=""}[5m])` is right whatever jobs come and go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use steadfast_core::event::JobId;

/// Jobs with series of their own, unless the operator says otherwise: three series each must not swamp a Prometheus.
pub const PER_JOB_MOST: usize = 1000;

#[derive(Debug)]
pub(super) struct Budgets {
    /// Jobs with series of their own, at most; 0: none.
    most: usize,
    consumed: AtomicU64,
    exhausted: AtomicU64,
    /// Datacenters that had succeeded when best-effort jobs completed, of how many.
    succeeded: Mutex<(u64, u64)>,
    shown: Mutex<SeriesSlots>,
}

/// Those who have series, at most `most` together.
#[derive(Debug, Default)]
struct SeriesSlots {
    live: BTreeMap<JobId, Shown>,
    /// Not seen by anybody since their end; ids sort by time, so the first has waited longest.
    ended: BTreeMap<JobId, Shown>,
}

impl SeriesSlots {
    fn taken(&self) -> usize {
        self.live.len() + self.ended.len()
    }
}

/// What a job's own series say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shown {
    /// Retries taken from the budget, and items stopped because it was spent; none: no budget.
    pub(super) budget: Option<(u64, u64)>,
    /// Datacenters that have succeeded so far, of how many; none: not a best-effort job.
    pub(super) succeeded: Option<(u32, u32)>,
}

impl Budgets {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            consumed: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
            succeeded: Mutex::default(),
            shown: Mutex::default(),
        }
    }

    pub(super) fn consumed(&self, retries: u32) {
        self.consumed.fetch_add(u64::from(retries), Ordering::Relaxed);
    }

    pub(super) fn exhausted(&self) {
        self.exhausted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn completed(&self, succeeded: u32, of: u32) {
        let mut all = lock(&self.succeeded);
        *all = (all.0 + u64::from(succeeded), all.1 + u64::from(of));
    }

    /// The job's numbers as they are now. With too many jobs shown already it waits for a place.
    pub(super) fn show(&self, job: &JobId, now: Shown) {
        if self.most == 0 || now == Shown::default() {
            return;
        }
        let mut places = lock(&self.shown);
        if let Some(before) = places.live.get_mut(job) {
            *before = now;
            return;
        }
        if places.taken() >= self.most {
            places.ended.pop_first();
        }
        if places.taken() < self.most {
            places.live.insert(job.clone(), now);
        }
    }

    /// The job has ended, and this is what it came to: to be seen once.
    pub(super) fn end(&self, job: &JobId, now: Shown) {
        if self.most == 0 || now == Shown::default() {
            return;
        }
        let mut places = lock(&self.shown);
        places.live.remove(job);
        if places.taken() < self.most {
            places.ended.insert(job.clone(), now);
        }
    }

    /// The job is another process's now.
    pub(super) fn hide(&self, job: &JobId) {
        lock(&self.shown).live.remove(job);
    }

    /// What is shown this time. Those that have ended are let go.
    fn see(&self) -> Vec<(JobId, Shown)> {
        let mut places = lock(&self.shown);
        let mut all = std::mem::take(&mut places.ended);
        all.extend(places.live.iter().map(|(job, shown)| (job.clone(), *shown)));
        all.into_iter().collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
pub(super) struct BudgetCollector(pub(super) std::sync::Arc<Budgets>);

impl Collector for BudgetCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        // Copied, so that nobody who counts waits for a scrape.
        let shown = self.0.see();
        let counter = |encoder: &mut DescriptorEncoder,
                       name: &str,
                       help: &str,
                       total: &AtomicU64,
                       of: fn((u64, u64)) -> u64|
         -> std::fmt::Result {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            let total = total.load(Ordering::Relaxed);
            family.encode_counter::<[(&str, &str); 0], _, u64>(&total, None)?;
            for (job, shown) in &shown {
                if let Some(budget) = shown.budget {
                    family
                        .encode_family(&[("job_id", &**job)])?
                        .encode_counter::<[(&str, &str); 0], _, u64>(&of(budget), None)?;
                }
            }
            Ok(())
        };
        counter(
            &mut encoder,
            "retry_budget_consumed",
            "Retries taken from jobs' retry budgets; without job_id: of all jobs since the start",
            &self.0.consumed,
            |(consumed, _)| consumed,
        )?;
        counter(
            &mut encoder,
            "retry_budget_exhausted",
            "Items given up because the retry budget of their job or step was spent; without \
             job_id: of all jobs since the start",
            &self.0.exhausted,
            |(_, exhausted)| exhausted,
        )?;
        let mut ratio = encoder.encode_descriptor(
            "best_effort_completion_ratio",
            "Datacenters that have succeeded, of all; with job_id: of a best-effort job so far, \
             without: of all best-effort jobs that completed since the start",
            None,
            MetricType::Gauge,
        )?;
        let (succeeded, of) = *lock(&self.0.succeeded);
        if of > 0 {
            ratio.encode_gauge(&(succeeded as f64 / of as f64))?;
        }
        for (job, shown) in &shown {
            if let Some((succeeded, of)) = shown.succeeded {
                let so_far = f64::from(succeeded) / f64::from(of.max(1));
                ratio.encode_family(&[("job_id", &**job)])?.encode_gauge(&so_far)?;
            }
        }
        Ok(())
    }
}
