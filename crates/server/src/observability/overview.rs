//! The recent activity, as it is shown.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use steadfast_core::event::JobId;
use steadfast_core::time::Timestamp;

use super::recent::{
    Activity, AttemptResult, BUCKET_MS, BUCKETS, Bucket, FailingStep, LATENESS, RecentActivity,
};

/// Steps, budgets, and rows and columns of the grid that are shown.
const SHOWN: usize = 50;

/// Of this server alone, and since it started.
#[derive(Clone, Debug, Serialize)]
pub struct ActivityOverview {
    pub from_ms: Timestamp,
    pub bucket_ms: u64,
    /// The oldest first; the last one is not over.
    pub throughput: Vec<ThroughputBucket>,
    pub top_failing_steps: Vec<FailingStepRow>,
    pub budgets_near_end: Vec<BudgetRow>,
    pub grid: FailureGrid,
}

#[derive(Clone, Debug, Serialize)]
pub struct ThroughputBucket {
    pub at_ms: Timestamp,
    pub submitted: u32,
    pub succeeded: u32,
    /// Partial ones included.
    pub failed: u32,
    /// That ended.
    pub attempts: u32,
    pub failures: u32,
    pub retries: RetryCounts,
    /// How late retries came; to the next power of two. None: there were none.
    pub lateness_p50_ms: Option<u64>,
    pub lateness_p99_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct RetryCounts {
    pub failure: u32,
    pub preemption: u32,
    pub deferral: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct FailingStepRow {
    pub job_name: String,
    pub step: String,
    pub failures: u64,
    pub last_error: String,
    pub last_job: JobId,
}

#[derive(Clone, Debug, Serialize)]
pub struct BudgetRow {
    pub job: JobId,
    pub name: String,
    /// `job_budget` or `step_budget`.
    pub account: &'static str,
    pub used: u32,
    pub limit: u32,
}

/// Which items failed on which workers: a row that is red all over is an item that nobody can run, a column a worker that runs nothing.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FailureGrid {
    pub workers: Vec<String>,
    pub items: Vec<GridRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct GridRow {
    pub job: JobId,
    pub step: String,
    pub item: String,
    pub cells: Vec<GridCell>,
}

#[derive(Clone, Debug, Serialize)]
pub struct GridCell {
    pub worker: String,
    pub failures: u32,
    pub successes: u32,
}

impl RecentActivity {
    /// Of the last minutes, an hour at most.
    pub fn overview(&self, minutes: u64, now: Timestamp) -> ActivityOverview {
        let count = (minutes * 60_000).div_ceil(BUCKET_MS).clamp(1, BUCKETS as u64);
        let last = now.0 / BUCKET_MS;
        let first = (last + 1).saturating_sub(count);
        let from_ms = Timestamp(first * BUCKET_MS);
        let activity = self.read();
        let throughput = (first..=last).map(|number| {
            let bucket = activity.buckets[(number % BUCKETS as u64) as usize];
            shown(if bucket.number == number {
                bucket
            } else {
                Bucket { number, ..Bucket::default() }
            })
        });
        let mut budgets: Vec<BudgetRow> = activity
            .budgets
            .iter()
            .map(|((job, account), near)| BudgetRow {
                job: job.clone(),
                name: near.name.clone(),
                account,
                used: near.used,
                limit: near.limit,
            })
            .collect();
        budgets.sort_by_key(|row| row.limit.saturating_sub(row.used));
        budgets.truncate(SHOWN);
        ActivityOverview {
            from_ms,
            bucket_ms: BUCKET_MS,
            throughput: throughput.collect(),
            top_failing_steps: top_failing(&activity),
            budgets_near_end: budgets,
            grid: grid(activity.results.iter().filter(|result| result.at >= from_ms)),
        }
    }
}

fn shown(bucket: Bucket) -> ThroughputBucket {
    let [failure, preemption, deferral] = bucket.retries;
    ThroughputBucket {
        at_ms: Timestamp(bucket.number * BUCKET_MS),
        submitted: bucket.submitted,
        succeeded: bucket.succeeded,
        failed: bucket.failed,
        attempts: bucket.attempts,
        failures: bucket.failures,
        retries: RetryCounts { failure, preemption, deferral },
        lateness_p50_ms: percentile(&bucket.lateness, 50),
        lateness_p99_ms: percentile(&bucket.lateness, 99),
    }
}

fn percentile(lateness: &[u32; LATENESS], percent: u64) -> Option<u64> {
    let all: u64 = lateness.iter().map(|count| u64::from(*count)).sum();
    let wanted = (all * percent).div_ceil(100);
    let mut seen = 0;
    let place = lateness.iter().position(|count| {
        seen += u64::from(*count);
        seen >= wanted
    });
    place.filter(|_| all > 0).map(|place| if place == 0 { 0 } else { 1 << place })
}

fn top_failing(activity: &Activity) -> Vec<FailingStepRow> {
    let mut all: BTreeMap<&(String, String), FailingStep> = BTreeMap::new();
    // The half hour before first, so that the later error stays.
    for (key, failing) in activity.failing.iter().rev().flatten() {
        let before = all.get(key).map_or(0, |known| known.failures);
        all.insert(key, FailingStep { failures: before + failing.failures, ..failing.clone() });
    }
    let mut rows: Vec<FailingStepRow> = all
        .into_iter()
        .map(|((job_name, step), failing)| FailingStepRow {
            job_name: job_name.clone(),
            step: step.clone(),
            failures: failing.failures,
            last_error: failing.last_error,
            last_job: failing.last_job,
        })
        .collect();
    rows.sort_by_key(|row| Reverse(row.failures));
    rows.truncate(SHOWN);
    rows
}

fn grid<'a>(results: impl Iterator<Item = &'a AttemptResult>) -> FailureGrid {
    type Cells<'a> = BTreeMap<&'a str, (u32, u32)>;
    let mut rows: BTreeMap<(&JobId, &str), (&AttemptResult, Cells<'_>)> = BTreeMap::new();
    for result in results {
        let row = rows.entry((&result.job, &result.item));
        let (latest, cells) = row.or_insert_with(|| (result, Cells::new()));
        *latest = result;
        let (failures, successes) = cells.entry(&result.worker).or_default();
        *(if result.failed { failures } else { successes }) += 1;
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    let failures = |cells: &Cells<'_>| cells.values().map(|(failures, _)| *failures).sum::<u32>();
    rows.sort_by_key(|(latest, cells)| Reverse((failures(cells), latest.at)));
    rows.retain(|(_, cells)| failures(cells) > 0);
    rows.truncate(SHOWN);
    let mut workers: BTreeMap<&str, u32> = BTreeMap::new();
    for (worker, (failures, _)) in rows.iter().flat_map(|(_, cells)| cells) {
        *workers.entry(worker).or_default() += failures;
    }
    let mut most: Vec<(&str, u32)> = workers.into_iter().collect();
    most.sort_by_key(|(_, failures)| Reverse(*failures));
    let workers: BTreeSet<&str> = most.into_iter().take(SHOWN).map(|(worker, _)| worker).collect();
    let items = rows.into_iter().map(|(latest, cells)| {
        let cells = cells.into_iter().filter(|(worker, _)| workers.contains(worker));
        let cells = cells.map(|(worker, (failures, successes))| GridCell {
            worker: worker.to_owned(),
            failures,
            successes,
        });
        GridRow {
            job: latest.job.clone(),
            step: latest.step.clone(),
            item: latest.item.clone(),
            cells: cells.collect(),
        }
    });
    let items = items.collect();
    FailureGrid { workers: workers.into_iter().map(str::to_owned).collect(), items }
}
