//! What is stored of jobs, for whoever asks. Everything shown comes from the store, so nothing is
//! shown before it is durable; the engine is never asked, and never waited for.

mod attempts;
mod cache;
mod folded;
mod judged;
mod list;
mod outputs;
mod projections;
mod readers;
mod readiness;

use std::sync::Arc;

use steadfast_api::{
    AttemptsPage, ItemState, ItemsPage, JobStatus, JobsPage, OutputsPage, ReadinessPage, ShownState,
};
use steadfast_core::event::{Event, ItemId, JobId, RecordedEvent};
use steadfast_core::explain::{BudgetUse, Explainer, Explanation};
use steadfast_core::job::Job;
use steadfast_core::plan::Plan;
use steadfast_core::select::{ItemSelector, NoSuchPart};
use steadfast_core::time::Timestamp;
use steadfast_engine::Unreadable;
use steadfast_jobfile::Operator;
use steadfast_store::{JobCounts, Reader, Row, Storage, StoreError, is_postgres};
use tokio::sync::Semaphore;

use crate::error::ApiError;
use cache::Cache;
use readers::Readers;

pub use attempts::{AttemptEnd, HowEnded};
pub use folded::FoldedJob;
pub use judged::{NoAnswer, WhatIfAnswer, what_if};
pub use list::{JobFilter, LOOKED_INTO, LOOKED_THROUGH, interrupted, list, shown_state};
pub use projections::{PROJECT_EVERY, Projector};
pub use readiness::readiness;

/// Events read at once while a log is walked.
const CHUNK: usize = 1000;

#[derive(Clone, Debug)]
pub struct JobReader {
    readers: Readers,
    storage: Arc<dyn Storage>,
    cache: Cache,
    /// An explanation reads a whole log: one at a time.
    explaining: Arc<Semaphore>,
}

impl JobReader {
    /// `readers`: how many read at the same moment.
    pub fn open(storage: Arc<dyn Storage>, readers: usize) -> Result<Self, StoreError> {
        Ok(Self {
            readers: Readers::open(storage.clone(), readers)?,
            storage,
            cache: Cache::default(),
            explaining: Arc::new(Semaphore::new(1)),
        })
    }

    /// How many jobs of servers are in which state.
    pub async fn counts(&self) -> Result<JobCounts, ApiError> {
        self.readers.read(|reader| Ok(reader.counts()?)).await
    }

    pub async fn row(&self, id: &str) -> Result<Row, ApiError> {
        Ok(self.end(id).await?.0)
    }

    /// The row, and the number of the last event that there is.
    pub async fn end(&self, id: &str) -> Result<(Row, u64), ApiError> {
        let id = job_id(id)?;
        self.readers.read(move |reader| reader.row(&id)?.ok_or_else(|| ApiError::no_job(&id))).await
    }

    pub async fn list(
        &self,
        filter: JobFilter,
        cursor: Option<String>,
        limit: usize,
    ) -> Result<JobsPage, ApiError> {
        let storage = self.storage.clone();
        self.readers
            .read(move |reader| {
                let is_run = |job: &str| storage.is_run(job);
                Ok(list(reader, &is_run, &filter, cursor.as_deref(), limit)?)
            })
            .await
    }

    /// A job of `run` that no process has.
    pub async fn is_interrupted(&self, row: &Row) -> bool {
        let (row, storage) = (row.clone(), self.storage.clone());
        let asking = tokio::task::spawn_blocking(move || {
            shown_state(&row, &|job| storage.is_run(job)) == ShownState::Interrupted
        });
        asking.await.unwrap_or(false)
    }

    /// What is wrong with what is stored of a job.
    pub async fn damage(&self, id: &str) -> Result<Option<String>, ApiError> {
        let id = job_id(id)?;
        self.readers.read(move |reader| Ok(reader.damage(&id)?)).await
    }

    /// The events after `after`; none once there are no more yet.
    pub async fn events(
        &self,
        id: &str,
        after: u64,
        limit: usize,
    ) -> Result<Vec<RecordedEvent>, ApiError> {
        let id = job_id(id)?;
        self.readers
            .read(move |reader| {
                let events = reader.events(&id, after, limit)?;
                if events.is_empty() && reader.row(&id)?.is_none() {
                    return Err(ApiError::no_job(&id));
                }
                Ok(events)
            })
            .await
    }

    pub async fn plan(&self, id: &str) -> Result<Arc<Plan>, ApiError> {
        let id = job_id(id)?;
        self.readers
            .read(move |reader| {
                let first = reader.events(&id, 0, 1)?;
                plan_of(&first).cloned().ok_or_else(|| ApiError::no_job(&id))
            })
            .await
    }

    pub async fn job(&self, id: &str) -> Result<Arc<Job>, ApiError> {
        let id = job_id(id)?;
        self.readers.read(move |reader| state(reader, &id).map(Arc::new)).await
    }

    pub async fn status(&self, id: &str) -> Result<Arc<JobStatus>, ApiError> {
        let id = job_id(id)?;
        let mut folded = self.cache.of(&id).lock_owned().await;
        let (cache, known, storage) = (self.cache.clone(), id.clone(), self.storage.clone());
        self.readers
            .read(move |reader| {
                let status = folded.status(reader, &known).inspect_err(|_| cache.forget(&known))?;
                cache.holds(&known, folded.bytes());
                let alone = status.local && !status.state.is_terminal() && !storage.is_run(&known);
                if alone { Ok(Arc::new((*status).clone().without_a_process())) } else { Ok(status) }
            })
            .await
    }

    /// All outputs of a job, or of a part of it, in the order of its runs, steps and items.
    pub async fn outputs(
        &self,
        id: &str,
        part: Option<&str>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<OutputsPage, ApiError> {
        let id = job_id(id)?;
        let after = outputs::read_cursor(cursor)?;
        let part = part.map(str::to_owned);
        let mut folded = self.cache.of(&id).lock_owned().await;
        let cache = self.cache.clone();
        self.readers
            .read(move |reader| {
                let job = folded.job(reader, &id).inspect_err(|_| cache.forget(&id))?;
                let only = match part {
                    None => ItemSelector::default(),
                    Some(name) => job.plan.select(&name).map_err(|why| no_part(&id, &why))?,
                };
                let page = outputs::page(job, only, after, limit);
                cache.holds(&id, folded.bytes());
                Ok(page)
            })
            .await
    }

    /// Which items of a job may start, in the order of its runs, steps and items.
    pub async fn readiness(
        &self,
        id: &str,
        cursor: Option<&str>,
        limit: usize,
        now: Timestamp,
    ) -> Result<ReadinessPage, ApiError> {
        let id = job_id(id)?;
        let cursor = cursor.map(str::to_owned);
        let mut folded = self.cache.of(&id).lock_owned().await;
        let (cache, storage) = (self.cache.clone(), self.storage.clone());
        self.readers
            .read(move |reader| {
                let job = folded.job(reader, &id).inspect_err(|_| cache.forget(&id))?;
                let page = readiness(job, cursor.as_deref(), limit, now)?;
                let is_alone = job.source.is_some() && !job.is_over() && !storage.is_run(&id);
                cache.holds(&id, folded.bytes());
                Ok(if is_alone { page.without_a_process() } else { page })
            })
            .await
    }

    /// Why the job, or a step of it, is where it is.
    pub async fn explain(
        &self,
        id: &str,
        step: Option<&str>,
        now: Timestamp,
    ) -> Result<Explanation, ApiError> {
        let id = job_id(id)?;
        let step = step.map(str::to_owned);
        let turn = self.explaining.clone().acquire_owned().await.map_err(ApiError::internal)?;
        self.readers
            .read(move |reader| {
                let _turn = turn;
                let first = reader.events(&id, 0, 1)?;
                let plan = plan_of(&first).ok_or_else(|| ApiError::no_job(&id))?;
                let only = match step {
                    None => ItemSelector::default(),
                    Some(name) => plan.select(&name).map_err(|why| no_part(&id, &why))?,
                };
                let mut explainer = Explainer::new(only);
                each_event(reader, &id, (0, u64::MAX), |record| {
                    explainer.see(&record).map_err(ApiError::internal)
                })?;
                explainer.explanation(now).map_err(ApiError::internal)
            })
            .await
    }

    /// What another policy would have decided about the recorded outcomes of the job, or of a step.
    pub async fn what_if(
        &self,
        id: &str,
        step: Option<String>,
        with: Vec<u8>,
        operator: Arc<Operator>,
    ) -> Result<WhatIfAnswer, ApiError> {
        let id = job_id(id)?;
        let turn = self.explaining.clone().acquire_owned().await.map_err(ApiError::internal)?;
        self.readers
            .read(move |reader| {
                let _turn = turn;
                Ok(what_if(reader, &id, step.as_deref(), &with, &operator)?)
            })
            .await
    }

    /// Who drew on the accounts that the items of a job share.
    pub async fn budget_use(&self, id: &str) -> Result<BudgetUse, ApiError> {
        let id = job_id(id)?;
        let turn = self.explaining.clone().acquire_owned().await.map_err(ApiError::internal)?;
        self.readers
            .read(move |reader| {
                let _turn = turn;
                judged::budget_use(reader, &id)
            })
            .await
    }

    /// Items of a step, by index.
    pub async fn items(
        &self,
        id: &str,
        place: (String, Option<String>),
        state: Option<ItemState>,
        from: u32,
        limit: usize,
    ) -> Result<ItemsPage, ApiError> {
        let id = job_id(id)?;
        let mut folded = self.cache.of(&id).lock_owned().await;
        let cache = self.cache.clone();
        self.readers
            .read(move |reader| {
                let (step, datacenter) = (place.0.as_str(), place.1.as_deref());
                let page = folded
                    .with_attempts(reader, &id)
                    .inspect_err(|_| cache.forget(&id))
                    .map(|(job, attempts)| {
                        ItemsPage::new(job, attempts, (step, datacenter), state, from, limit)
                    })?;
                cache.holds(&id, folded.bytes());
                page.map_err(|why| ApiError::NotFound(format!("job {id}: {}", why.0)))
            })
            .await
    }

    /// `sqlite` or `postgres`.
    pub fn store(&self) -> &'static str {
        if is_postgres(&self.storage.place()) { "postgres" } else { "sqlite" }
    }

    /// Other servers may write here too.
    pub fn is_shared(&self) -> bool {
        self.storage.exchange().is_some()
    }

    /// All attempts of a job, in the order in which they began.
    pub async fn attempts(
        &self,
        id: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<AttemptsPage, ApiError> {
        let id = job_id(id)?;
        let after = attempts::read_cursor(cursor)?;
        self.readers.read(move |reader| attempts::page(reader, &id, after, limit)).await
    }

    /// How an attempt ended, as far as somebody asks who comes too late.
    pub async fn attempt_end(
        &self,
        id: &str,
        item: ItemId,
        attempt: u32,
    ) -> Result<AttemptEnd, ApiError> {
        let id = job_id(id)?;
        self.readers.read(move |reader| attempts::end(reader, &id, item, attempt)).await
    }

    /// The job that was submitted with a key, and the digest of its body.
    pub async fn find_key(&self, key: &str) -> Result<Option<(JobId, String)>, ApiError> {
        let key = key.to_owned();
        self.readers.read(move |reader| Ok(reader.key(&key)?)).await
    }
}

/// As REST tells it.
pub(crate) fn wire_counts(counts: &JobCounts) -> steadfast_api::JobCounts {
    let by_state = counts.by_state.iter().map(|(state, jobs)| (state.name(), *jobs));
    let by_state = by_state.chain([(ShownState::Stuck.name(), counts.stuck)]);
    let by_state = by_state.map(|(state, jobs)| (state.to_owned(), jobs)).collect();
    steadfast_api::JobCounts { by_state, open: counts.open() }
}

/// A step or item that the job does not have.
pub fn no_part(id: &str, why: &NoSuchPart) -> ApiError {
    ApiError::NotFound(format!("job {id}: {why}"))
}

fn state(reader: &mut dyn Reader, id: &str) -> Result<Job, ApiError> {
    steadfast_engine::state(reader, id).map_err(|error| match error {
        Unreadable::Store(error) => error.into(),
        Unreadable::Missing(id) => ApiError::no_job(&id),
        Unreadable::Parked(why) => ApiError::Stuck { job: id.into(), why },
        Unreadable::State { job, why } => ApiError::Stuck { job, why },
        elsewhere @ Unreadable::Elsewhere { .. } => ApiError::Overloaded(elsewhere.to_string()),
    })
}

/// An id as jobs have them. Anything else is no job, and never becomes part of a path.
pub fn job_id(text: &str) -> Result<JobId, ApiError> {
    let fits = text.len() == ulid::ULID_LEN
        && text.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
    if fits { Ok(text.into()) } else { Err(ApiError::no_job(text)) }
}

fn plan_of(log: &[RecordedEvent]) -> Option<&Arc<Plan>> {
    match &log.first()?.event {
        Event::JobAccepted(accepted) => Some(&accepted.plan),
        _ => None,
    }
}

/// The events after one up to another, in order.
fn each_event(
    reader: &mut dyn Reader,
    job: &str,
    numbers: (u64, u64),
    mut see: impl FnMut(RecordedEvent) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let (mut after, last) = numbers;
    loop {
        let limit = usize::try_from(last.saturating_sub(after)).unwrap_or(CHUNK).min(CHUNK);
        let page = reader.events(job, after, limit)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq;
        for record in page {
            see(record)?;
        }
    }
}
