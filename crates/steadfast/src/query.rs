//! Which jobs of a server, and what its list says of each.

use steadfast_api::proto;
use steadfast_core::event::JobState;

use crate::status::job_state;

/// The newest ones first. All that is asked for must hold.
#[derive(Clone, Debug)]
pub struct Query {
    state: String,
    name: String,
    label: String,
    at_most: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self::new()
    }
}

impl Query {
    /// The newest hundred of all.
    pub fn new() -> Self {
        Self { state: String::new(), name: String::new(), label: String::new(), at_most: 100 }
    }

    #[must_use]
    pub fn state(mut self, state: JobState) -> Self {
        state.name().clone_into(&mut self.state);
        self
    }

    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.label = format!("{key}={value}");
        self
    }

    #[must_use]
    pub fn at_most(mut self, jobs: usize) -> Self {
        self.at_most = jobs;
        self
    }

    /// The next page, if `known` jobs are known and something may be missing.
    pub(crate) fn page(&self, known: usize, cursor: String) -> Option<proto::ListJobsRequest> {
        let left = self.at_most.checked_sub(known).filter(|left| *left > 0)?;
        Some(proto::ListJobsRequest {
            state: self.state.clone(),
            name: self.name.clone(),
            label: self.label.clone(),
            limit: i32::try_from(left.min(PAGE)).unwrap_or_default(),
            cursor,
        })
    }
}

/// Jobs that are asked for at once.
const PAGE: usize = 500;

/// What [`Client::retry`](crate::Client::retry) does again.
#[derive(Clone, Debug, Default)]
pub struct RetryOptions {
    pub(crate) from: Option<String>,
    pub(crate) grant: Option<u32>,
    pub(crate) key: Option<String>,
}

impl RetryOptions {
    /// What has not succeeded, with the attempts and the budget that are left.
    pub fn new() -> Self {
        Self::default()
    }

    /// This step and all that need it too, also if they have succeeded.
    #[must_use]
    pub fn from_step(mut self, step: impl Into<String>) -> Self {
        self.from = Some(step.into());
        self
    }

    /// `attempts` more, and as many more retries of the budget.
    #[must_use]
    pub fn grant(mut self, attempts: u32) -> Self {
        self.grant = Some(attempts);
        self
    }

    /// The same job retried under the same key is one new job. Otherwise each call makes one.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// A job in a list. Times are Unix milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    pub id: String,
    pub name: String,
    pub state: JobState,
    pub submitted_at_ms: u64,
    pub finished_at_ms: Option<u64>,
}

impl From<proto::JobSummary> for Summary {
    fn from(told: proto::JobSummary) -> Self {
        Self {
            state: job_state(told.state()),
            id: told.job_id,
            name: told.name,
            submitted_at_ms: u64::try_from(told.submitted_at_ms).unwrap_or_default(),
            finished_at_ms: u64::try_from(told.finished_at_ms).ok().filter(|ms| *ms > 0),
        }
    }
}
