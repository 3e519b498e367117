//! The last hour of this server in numbers, for people who look at it: how much came and went, what fails where, which budgets are
//! nearly spent. Of fixed size, whatever jobs come; each event costs the same, and only failures cost a text.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_core::account::Accounts;
use steadfast_core::event::{ItemId, JobId, JobState};
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::Cause;

pub(super) const BUCKET_MS: u64 = 10_000;
pub(super) const BUCKETS: usize = 360;
/// Powers of two of milliseconds: up to an hour.
pub(super) const LATENESS: usize = 23;
/// Failed attempts, and later ones of the same items, that the grid is made of.
const RESULTS: usize = 2000;
/// Steps that fail, in each half of the hour.
const STEPS: usize = 200;
const HALF_MS: u64 = 30 * 60 * 1000;
/// Budgets that are nearly spent.
const BUDGETS: usize = 100;
const LONGEST_ERROR: usize = 300;

/// Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct RecentActivity(Arc<Mutex<Activity>>);

impl Default for RecentActivity {
    fn default() -> Self {
        let buckets = vec![Bucket::default(); BUCKETS].into_boxed_slice();
        Self(Arc::new(Mutex::new(Activity { buckets, ..Activity::default() })))
    }
}

#[derive(Debug, Default)]
pub(super) struct Activity {
    pub(super) buckets: Box<[Bucket]>,
    /// This half hour and the one before.
    pub(super) failing: [BTreeMap<(String, String), FailingStep>; 2],
    half_began: Timestamp,
    pub(super) results: VecDeque<AttemptResult>,
    pub(super) budgets: BTreeMap<(JobId, &'static str), NearEnd>,
}

/// What happened in ten seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    /// Which ten seconds.
    pub(super) number: u64,
    pub(super) submitted: u32,
    pub(super) succeeded: u32,
    pub(super) failed: u32,
    pub(super) attempts: u32,
    pub(super) failures: u32,
    /// After failures, preemptions and deferrals.
    pub(super) retries: [u32; 3],
    pub(super) lateness: [u32; LATENESS],
}

#[derive(Clone, Debug)]
pub(super) struct FailingStep {
    pub(super) failures: u64,
    pub(super) last_error: String,
    pub(super) last_job: JobId,
}

/// Of an item that has failed, or did before.
#[derive(Clone, Debug)]
pub(super) struct AttemptResult {
    pub(super) at: Timestamp,
    pub(super) job: JobId,
    pub(super) step: String,
    /// `index[2]`
    pub(super) item: String,
    pub(super) worker: Arc<str>,
    pub(super) failed: bool,
}

#[derive(Clone, Debug)]
pub(super) struct NearEnd {
    pub(super) at: Timestamp,
    pub(super) name: String,
    pub(super) used: u32,
    pub(super) limit: u32,
}

/// An attempt that ended.
#[derive(Clone, Copy)]
pub(super) struct EndedAttempt<'a> {
    pub(super) job: &'a JobId,
    pub(super) plan: &'a Plan,
    pub(super) item: ItemId,
    pub(super) attempt: u32,
    pub(super) worker: &'a Arc<str>,
    pub(super) outcome: &'a Outcome,
}

impl RecentActivity {
    pub(super) fn read(&self) -> MutexGuard<'_, Activity> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, at: Timestamp, count: impl FnOnce(&mut Bucket)) {
        self.read().count(at, count);
    }

    pub(super) fn submitted(&self, at: Timestamp) {
        self.count(at, |bucket| bucket.submitted += 1);
    }

    pub(super) fn job_ended(&self, job: &JobId, state: JobState, at: Timestamp) {
        let mut activity = self.read();
        if !activity.budgets.is_empty() {
            for account in ["job_budget", "step_budget"] {
                activity.budgets.remove(&(job.clone(), account));
            }
        }
        activity.count(at, |bucket| match state {
            JobState::Succeeded => bucket.succeeded += 1,
            JobState::Failed | JobState::Partial => bucket.failed += 1,
            _ => {}
        });
    }

    pub(super) fn late(&self, at: Timestamp, ms: u64) {
        let place = (u64::BITS - ms.leading_zeros()) as usize;
        self.count(at, |bucket| bucket.lateness[place.min(LATENESS - 1)] += 1);
    }

    /// With what the accounts hold after it.
    pub(super) fn retry(
        &self,
        of: (&JobId, &str),
        cause: Cause,
        accounts: &Accounts,
        at: Timestamp,
    ) {
        let mut activity = self.read();
        activity.count(at, |bucket| bucket.retries[cause as usize] += 1);
        let shared = [
            ("job_budget", accounts.job_retries, accounts.job_budget),
            ("step_budget", accounts.step_retries, accounts.step_budget),
        ];
        for (account, used, limit) in shared {
            // Four fifths of it.
            let Some(limit) = limit.filter(|limit| u64::from(used) * 5 >= u64::from(*limit) * 4)
            else {
                continue;
            };
            activity.nearly_spent(of, account, used, limit, at);
        }
    }

    pub(super) fn attempt_ended(&self, ended: EndedAttempt<'_>, at: Timestamp) {
        let is_failure = matches!(ended.outcome, Outcome::Failed(_));
        let mut activity = self.read();
        activity.count(at, |bucket| {
            bucket.attempts += 1;
            bucket.failures += u32::from(is_failure);
        });
        // What succeeds at once is in no grid.
        let succeeded_later =
            matches!(ended.outcome, Outcome::Succeeded { .. }) && ended.attempt > 1;
        if is_failure {
            activity.step_failed(ended, at);
        }
        if is_failure || succeeded_later {
            if activity.results.len() == RESULTS {
                activity.results.pop_front();
            }
            activity.results.push_back(AttemptResult {
                at,
                job: ended.job.clone(),
                step: ended.plan.step(ended.item.step).name.clone(),
                item: ended.plan.item_name(ended.item),
                worker: ended.worker.clone(),
                failed: is_failure,
            });
        }
    }
}

impl Activity {
    fn count(&mut self, at: Timestamp, count: impl FnOnce(&mut Bucket)) {
        let number = at.0 / BUCKET_MS;
        let bucket = &mut self.buckets[(number % BUCKETS as u64) as usize];
        if bucket.number < number {
            *bucket = Bucket { number, ..Bucket::default() };
        }
        // What is told of more than an hour ago has no place any more.
        if bucket.number == number {
            count(bucket);
        }
    }

    fn step_failed(&mut self, ended: EndedAttempt<'_>, at: Timestamp) {
        if at.since(self.half_began) >= HALF_MS {
            let [now, _] = std::mem::take(&mut self.failing);
            let is_recent = at.since(self.half_began) < 2 * HALF_MS;
            self.failing = [BTreeMap::new(), if is_recent { now } else { BTreeMap::new() }];
            self.half_began = at;
        }
        let failing = &mut self.failing[0];
        let step = ended.plan.step(ended.item.step).name.clone();
        let key = (ended.plan.name().to_owned(), step);
        if failing.len() == STEPS && !failing.contains_key(&key) {
            return;
        }
        let mut last_error = ended.outcome.error().unwrap_or_default();
        last_error.truncate(last_error.floor_char_boundary(LONGEST_ERROR));
        let last_job = ended.job.clone();
        let entry = failing.entry(key);
        let entry = entry.or_insert_with(|| FailingStep {
            failures: 0,
            last_error: String::new(),
            last_job: last_job.clone(),
        });
        *entry = FailingStep { failures: entry.failures + 1, last_error, last_job };
    }

    fn nearly_spent(
        &mut self,
        (job, name): (&JobId, &str),
        account: &'static str,
        used: u32,
        limit: u32,
        at: Timestamp,
    ) {
        let key = (job.clone(), account);
        if self.budgets.len() == BUDGETS && !self.budgets.contains_key(&key) {
            let oldest = self.budgets.iter().min_by_key(|(_, near)| near.at);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|oldest| self.budgets.remove(&oldest));
        }
        self.budgets.insert(key, NearEnd { at, name: name.to_owned(), used, limit });
    }
}
