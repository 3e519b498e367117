//! What attempts have printed, byte for byte from its files.
//!
//! Names in requests are held against how names are made; none of them becomes a path by itself.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{Stream, unfold};
use steadfast_api::{AttemptName, LogRow, LogTime, LogTimes, LogsPage};
use steadfast_core::event::{ItemId, JobId};
use steadfast_core::job::Job;
use steadfast_core::select::ItemSelector;
use steadfast_store::{Blobs, LogName, LogReader, LogState};
use tokio::sync::watch;

use super::App;
use super::query::{Names, Params};
use crate::arriving::runs;
use crate::error::ApiError;
use crate::notifications::Durable;
use crate::queries::{JobReader, job_id, no_part};

/// Bytes sent at once.
const CHUNK: usize = 64 << 10;
/// Printing is not an event, so a followed file is looked at so often.
const LOOK: Duration = Duration::from_millis(250);
/// How often, and how long apart, it is looked whether the rest of the logs of a job that is over has come.
const REST_LOOKS: u32 = 40;
const REST_LOOK: Duration = Duration::from_millis(50);

pub(super) async fn list(
    State(app): State<App>,
    Names(id): Names<String>,
    params: Params,
) -> Result<Response, ApiError> {
    let id = job_id(&id)?;
    let limit = params.limit(app.limits.items)?;
    let only = params.text("step")?.map(str::to_owned);
    let cursor = match params.text("cursor")? {
        None => None,
        Some(text) => {
            let wrong = || ApiError::BadCursor(text.to_owned());
            let (step, name) = text.split_once('/').ok_or_else(wrong)?;
            Some((step.to_owned(), name.to_owned()))
        }
    };
    let job = app.reader.job(&id).await?;
    let only = match only {
        None => ItemSelector::default(),
        Some(name) => job.plan.select(&name).map_err(|why| no_part(&id, &why))?,
    };
    let (over, cursor) = (job.is_over(), Arc::new(cursor));
    let mut looks = 0;
    loop {
        let (blobs, job, cursor) = (app.blobs.clone(), job.clone(), cursor.clone());
        let listing = tokio::task::spawn_blocking(move || {
            listed(&*blobs, &job, only, cursor.as_ref().as_ref(), limit)
        });
        let page = listing.await?.map_err(ApiError::internal)?;
        looks += 1;
        if !over || looks == REST_LOOKS || !page.logs.iter().any(|log| log.arriving) {
            return super::json(StatusCode::OK, &page);
        }
        // Who waited for the end of a job wants all that it printed: that is a moment behind.
        tokio::time::sleep(REST_LOOK).await;
    }
}

/// The first names after the cursor, at most one more than `limit` of which are held. Only the folders of steps that the
/// page is about are read: pages of a job with many steps do not read all of them each time.
fn listed(
    blobs: &dyn Blobs,
    job: &Job,
    only: ItemSelector,
    cursor: Option<&(String, String)>,
    limit: usize,
) -> io::Result<LogsPage> {
    let mut first: BTreeSet<(String, String)> = BTreeSet::new();
    let mut steps: Vec<(&String, u32)> =
        job.plan.steps().iter().map(|step| &step.name).zip(0..).collect();
    steps.sort_unstable();
    for (step, index) in steps {
        let is_before = cursor.is_some_and(|(at, _)| step < at);
        if is_before || only.step.is_some_and(|only| only != index) {
            continue;
        }
        if first.len() > limit {
            break;
        }
        blobs.each_log(&job.id, step, &mut |name| {
            let of = ItemId::read_attempt_name(index, step, name);
            let key = (step.clone(), name.to_owned());
            if of.is_some_and(|(item, _)| only.has(item))
                && cursor.is_none_or(|cursor| key > *cursor)
            {
                first.insert(key);
                if first.len() > limit + 1 {
                    first.pop_last();
                }
            }
        })?;
    }
    let more = first.len() > limit;
    if more {
        first.pop_last();
    }
    let next = first.last().filter(|_| more).map(|(step, name)| format!("{step}/{name}"));
    let named = first.into_iter().map(|(step, name)| LogName { job: job.id.clone(), step, name });
    let named: Vec<_> = named.collect();
    let states = blobs.log_states(&named)?;
    let logs = named.into_iter().zip(states).filter_map(|(log, state)| {
        let LogState { length: size, partial } = state?;
        let (item, attempt) =
            ItemId::read_attempt_name(job.plan.find(&log.step)?, &log.step, &log.name)?;
        let datacenter = job.plan.datacenters().get(item.run as usize).cloned();
        let arriving = partial && !runs(job, item, attempt);
        let LogName { step, name, .. } = log;
        let of = AttemptName { datacenter, step, role: item.role, item: item.index, attempt };
        Some(LogRow { of, name, size, arriving })
    });
    Ok(LogsPage { logs: logs.collect(), next })
}

pub(super) async fn log(
    State(app): State<App>,
    Names((id, step, name)): Names<(String, String, String)>,
    params: Params,
) -> Result<Response, ApiError> {
    let id = job_id(&id)?;
    let offset = params.number("offset", "a number of bytes, 0 or more")?.unwrap_or(0);
    let follow = params.flag("follow")?;
    let log = log_name(&app, &id, &step, &name).await?;
    let (blobs, name_of_log) = (app.blobs.clone(), log.clone());
    let opening = tokio::task::spawn_blocking(move || blobs.open_log(&log));
    let file = match opening.await? {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(no_log(&id, &step, &name));
        }
        Err(error) => return Err(ApiError::internal(error)),
    };
    let told = follow.then(|| {
        let mut told = app.notifications.follow(&id);
        // The job may be over already.
        told.mark_changed();
        told
    });
    let reader = LogFile {
        file,
        offset,
        reader: app.reader,
        id,
        told,
        blobs: app.blobs,
        log: name_of_log,
        over: false,
        rest_looks: REST_LOOKS,
        last_look: false,
    };
    let headers = [
        ("content-type", "text/plain; charset=utf-8"),
        // A job can print anything, also what a browser would take for a page.
        ("x-content-type-options", "nosniff"),
    ];
    Ok((headers, Body::from_stream(reader.stream())).into_response())
}

pub(super) async fn times(
    State(app): State<App>,
    Names((id, step, name)): Names<(String, String, String)>,
) -> Result<Response, ApiError> {
    let log = log_name(&app, &id, &step, &name).await?;
    let reading = tokio::task::spawn_blocking(move || app.blobs.log_times(&log));
    match reading.await? {
        Ok(times) => {
            let times = times.into_iter().map(|(offset, at_ms)| LogTime { offset, at_ms });
            super::json(StatusCode::OK, &LogTimes { times: times.collect() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_log(&id, &step, &name)),
        Err(error) => Err(ApiError::internal(error)),
    }
}

fn no_log(id: &str, step: &str, name: &str) -> ApiError {
    ApiError::NotFound(format!("step {step:?} of job {id} has no log {name:?}"))
}

/// The step is one of the plan, and the name is made of it and of numbers: neither leads elsewhere.
async fn log_name(app: &App, id: &str, step: &str, name: &str) -> Result<LogName, ApiError> {
    let id = job_id(id)?;
    let plan = app.reader.plan(&id).await?;
    if plan.find(step).is_none() || ItemId::read_attempt_name(0, step, name).is_none() {
        return Err(no_log(&id, step, name));
    }
    Ok(LogName { job: id, step: step.to_owned(), name: name.to_owned() })
}

struct LogFile {
    file: Arc<dyn LogReader>,
    offset: u64,
    reader: JobReader,
    id: JobId,
    /// Of a log that is followed.
    told: Option<watch::Receiver<Durable>>,
    blobs: Arc<dyn Blobs>,
    log: LogName,
    over: bool,
    /// How often the rest of it is still looked for once the job is over.
    rest_looks: u32,
    /// What is there now is all there will be.
    last_look: bool,
}

impl LogFile {
    fn stream(self) -> impl Stream<Item = io::Result<Vec<u8>>> {
        unfold(self, |mut reader| async move {
            let chunk = reader.next().await.transpose()?;
            Some((chunk, reader))
        })
    }

    async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let chunk = self.read().await?;
            if !chunk.is_empty() {
                self.offset += chunk.len() as u64;
                return Ok(Some(chunk));
            }
            let Some(told) = &mut self.told else { return Ok(None) };
            if self.last_look {
                return Ok(None);
            }
            if self.over {
                self.rest_looks -= 1;
                self.last_look = self.rest_looks == 0 || !self.is_partial().await;
                if !self.last_look {
                    tokio::time::sleep(REST_LOOK).await;
                }
                continue;
            }
            match tokio::time::timeout(LOOK, told.changed()).await {
                Err(_) => {}
                // The server ends.
                Ok(Err(_)) => self.last_look = true,
                Ok(Ok(())) => {
                    let row = self.reader.row(&self.id).await.map_err(io::Error::other)?;
                    self.over = row.over;
                }
            }
        }
    }

    async fn is_partial(&self) -> bool {
        let (blobs, log) = (self.blobs.clone(), self.log.clone());
        tokio::task::spawn_blocking(move || blobs.is_partial(&log)).await.unwrap_or(false)
    }

    async fn read(&self) -> io::Result<Vec<u8>> {
        let (file, offset) = (self.file.clone(), self.offset);
        let reading = tokio::task::spawn_blocking(move || file.read(offset, CHUNK));
        reading.await.map_err(io::Error::other)?
    }
}
