//! What attempts have printed, byte for byte from its files.
//!
//! Names in requests are held against how names are made; none of them becomes a path by itself.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{Stream, unfold};
use serde::Serialize;
use serde_json::json;
use steadfast_core::event::{ItemId, JobId, Role};
use steadfast_core::job::Job;
use steadfast_core::select::ItemSelector;
use tokio::sync::watch;

use super::App;
use super::query::{Names, Params};
use crate::arriving::{is_arriving, part};
use crate::error::ApiError;
use crate::log_times;
use crate::notifications::Durable;
use crate::queries::{JobReader, job_id, no_part};

/// Bytes sent at once.
const CHUNK: usize = 64 << 10;
/// Printing is not an event, so a followed file is looked at so often.
const LOOK: Duration = Duration::from_millis(250);
/// How often, and how long apart, it is looked whether the rest of the logs of a job that is over has come.
const REST_LOOKS: u32 = 40;
const REST_LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Serialize)]
struct LogsPage {
    logs: Vec<LogView>,
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct LogView {
    step: String,
    name: String,
    datacenter: Option<String>,
    role: Role,
    item: u32,
    attempt: u32,
    size: u64,
    /// The attempt has ended, and the rest of its log has not arrived from its worker yet.
    arriving: bool,
}

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
    let folder: Arc<Path> = app.folder.logs(&id).into();
    let cursor = Arc::new(cursor);
    // Who waited for the end of a job wants all that it printed: that is a moment behind.
    for last in (0..REST_LOOKS).map(|look| look + 1 == REST_LOOKS) {
        let (folder, job, cursor) = (folder.clone(), job.clone(), cursor.clone());
        let over = job.is_over();
        let listing = tokio::task::spawn_blocking(move || {
            listed(&folder, &job, only, cursor.as_ref().as_ref(), limit)
        });
        let page = listing.await.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
        if last || !over || !page.logs.iter().any(|log| log.arriving) {
            return super::json(StatusCode::OK, &page);
        }
        tokio::time::sleep(REST_LOOK).await;
    }
    Err(ApiError::internal("no look was the last"))
}

/// The first names after the cursor. However many there are, so many are held.
fn listed(
    folder: &Path,
    job: &Job,
    only: ItemSelector,
    cursor: Option<&(String, String)>,
    limit: usize,
) -> io::Result<LogsPage> {
    let plan = &job.plan;
    let mut first: BTreeSet<(String, String)> = BTreeSet::new();
    for (index, step) in plan.steps().iter().map(|step| &step.name).enumerate() {
        let index = index as u32;
        if only.step.is_some_and(|only| only != index) {
            continue;
        }
        let entries = match fs::read_dir(folder.join(step)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let file = entry?.file_name();
            let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".log")) else {
                continue;
            };
            let is_asked_for = |told: AttemptName| {
                let AttemptName { run, role, item, .. } = told;
                only.has(ItemId { run, step: index, role, index: item })
            };
            if !told(step, name).is_some_and(is_asked_for) {
                continue;
            }
            let key = (step.clone(), name.to_owned());
            if cursor.is_none_or(|cursor| key > *cursor) {
                first.insert(key);
                if first.len() > limit + 1 {
                    first.pop_last();
                }
            }
        }
    }
    let more = first.len() > limit;
    if more {
        first.pop_last();
    }
    let next = first.last().filter(|_| more).map(|(step, name)| format!("{step}/{name}"));
    let logs = first.into_iter().filter_map(|(step, name)| {
        let path = folder.join(&step).join(format!("{name}.log"));
        let about = fs::symlink_metadata(&path).ok()?;
        let AttemptName { run, role, item, attempt } = told(&step, &name)?;
        let datacenter = plan.datacenters().get(run as usize).cloned();
        let id = ItemId { run, step: plan.find(&step)?, role, index: item };
        let arriving = is_arriving(job, id, attempt, &path);
        about.is_file().then_some(LogView {
            step,
            name,
            datacenter,
            role,
            item,
            attempt,
            size: about.len(),
            arriving,
        })
    });
    Ok(LogsPage { logs: logs.collect(), next })
}

struct AttemptName {
    run: u32,
    role: Role,
    item: u32,
    attempt: u32,
}

/// What [`ItemId::attempt_name`] made the name of.
fn told(step: &str, name: &str) -> Option<AttemptName> {
    let (ItemId { run, role, index, .. }, attempt) = ItemId::read_attempt_name(0, step, name)?;
    Some(AttemptName { run, role, item: index, attempt })
}

pub(super) async fn log(
    State(app): State<App>,
    Names((id, step, name)): Names<(String, String, String)>,
    params: Params,
) -> Result<Response, ApiError> {
    let id = job_id(&id)?;
    let offset = params.number("offset", "a number of bytes, 0 or more")?.unwrap_or(0);
    let follow = params.flag("follow")?;
    let path = log_path(&app, &id, &step, &name).await?;
    let part = part(&path);
    let opening = tokio::task::spawn_blocking(move || open(&path));
    let file = match opening.await.map_err(ApiError::internal)? {
        Ok(file) => Arc::new(file),
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
    let (over, last_look, rest_looks) = (false, false, REST_LOOKS);
    let reader =
        LogFile { file, offset, reader: app.reader, id, told, part, over, rest_looks, last_look };
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
    let path = log_path(&app, &id, &step, &name).await?;
    let reading = tokio::task::spawn_blocking(move || log_times::read(&path));
    match reading.await.map_err(ApiError::internal)? {
        Ok(times) => {
            let times = times.into_iter();
            let times: Vec<_> =
                times.map(|(offset, at_ms)| json!({"offset": offset, "at_ms": at_ms})).collect();
            super::json(StatusCode::OK, &json!({ "times": times }))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(no_log(&id, &step, &name)),
        Err(error) => Err(ApiError::internal(error)),
    }
}

fn no_log(id: &str, step: &str, name: &str) -> ApiError {
    ApiError::NotFound(format!("step {step:?} of job {id} has no log {name:?}"))
}

/// The step is one of the plan, and the name is made of it and of numbers: neither leads elsewhere.
async fn log_path(app: &App, id: &str, step: &str, name: &str) -> Result<PathBuf, ApiError> {
    let id = job_id(id)?;
    let job = app.reader.job(&id).await?;
    if job.plan.find(step).is_none() || told(step, name).is_none() {
        return Err(no_log(&id, step, name));
    }
    Ok(app.folder.logs(&id).join(step).join(format!("{name}.log")))
}

fn open(path: &Path) -> io::Result<File> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = fs::OpenOptions::new().read(true).custom_flags(no_follow).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::NotFound.into()) }
}

struct LogFile {
    file: Arc<File>,
    offset: u64,
    reader: JobReader,
    id: JobId,
    /// Of a log that is followed.
    told: Option<watch::Receiver<Durable>>,
    /// Is there while more of the log is to come.
    part: PathBuf,
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
                self.last_look = self.rest_looks == 0 || !self.part.exists();
                tokio::time::sleep(REST_LOOK).await;
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

    async fn read(&self) -> io::Result<Vec<u8>> {
        let (file, offset) = (self.file.clone(), self.offset);
        let reading = tokio::task::spawn_blocking(move || {
            // Beyond the end there is nothing yet, however far.
            if offset >= file.metadata()?.len() {
                return Ok(vec![]);
            }
            let mut chunk = vec![0; CHUNK];
            let count = file.read_at(&mut chunk, offset)?;
            chunk.truncate(count);
            Ok(chunk)
        });
        reading.await.map_err(io::Error::other)?
    }
}
