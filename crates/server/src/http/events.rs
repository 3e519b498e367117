//! The log of a job: a page of it, or all of it as it grows.
//!
//! A follower is told that there is more, and reads it when it can. What it has not read waits in the
//! store, not in memory.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{Stream, unfold};
use serde_json::json;
use steadfast_api::ShownState;
use steadfast_core::event::{JobId, RecordedEvent};
use tokio::sync::watch;
use tokio::time::timeout;

use super::query::{Names, Params, number};
use super::{App, json_text};
use crate::error::ApiError;
use crate::notifications::Durable;
use crate::queries::{JobReader, job_id};
use crate::unread::{Allowance, COUNTED_FROM, Hold};

/// Events read at once, or fewer if they are large.
const CHUNK: usize = 50;
/// A page ends after so many bytes, however many events were asked for.
const PAGE_BYTES: usize = 8 << 20;
/// The process of a `run` tells nobody of its events, so they are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Shorter than what proxies take for silence.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

const A_NUMBER: &str = "the number of an event, 0 or more";

pub(super) async fn events(
    State(app): State<App>,
    Names(id): Names<String>,
    headers: HeaderMap,
    params: Params,
    allowance: Option<Extension<Allowance>>,
) -> Result<Response, ApiError> {
    let id = job_id(&id)?;
    let after = params.number("after", A_NUMBER)?.unwrap_or(0);
    let limit = params.limit(app.limits.items)?;
    let last = match headers.get("last-event-id") {
        None => None,
        Some(last) => {
            let wrong = || ApiError::BadRequest(format!("`Last-Event-ID` must be {A_NUMBER}"));
            Some(last.to_str().ok().and_then(number).ok_or_else(wrong)?)
        }
    };
    let streams = (headers.get_all(ACCEPT).iter())
        .filter_map(|accept| accept.to_str().ok())
        .flat_map(|accept| accept.split(','))
        .any(|range| range.split(';').next().unwrap_or_default().trim() == "text/event-stream");
    let allowance = allowance.map(|Extension(allowance)| allowance);
    if !streams {
        return page(&app.reader, &id, after, limit, allowance.as_ref()).await;
    }
    let after = last.unwrap_or(after);
    // Following begins before the first reading, so that nothing falls between the two.
    let told = app.notifications.follow(&id);
    let local = app.reader.row(&id).await?.local;
    let follower = Follower {
        reader: app.reader,
        id,
        after,
        told,
        local,
        alone: false,
        waiting: VecDeque::new(),
        allowance,
        hold: None,
        ended: false,
    };
    let stream = Sse::new(follower.stream());
    Ok(stream.keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

/// Of a client that has an allowance, what is read counts as unread from here on: many pages that are made at the
/// same time are as much memory as many that wait for their reader. A page ends where the allowance does.
async fn page(
    reader: &JobReader,
    id: &str,
    after: u64,
    limit: usize,
    allowance: Option<&Allowance>,
) -> Result<Response, ApiError> {
    let (_, end) = reader.end(id).await?;
    let mut events: Vec<String> = Vec::new();
    let mut held: Vec<Hold> = Vec::new();
    let (mut last, mut bytes) = (after, 0);
    while events.len() < limit && bytes < PAGE_BYTES {
        let some = reader.events(id, last, CHUNK.min(limit - events.len())).await?;
        let Some(newest) = some.last() else { break };
        let texts = some.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
        let texts = texts.map_err(ApiError::internal)?;
        let read = texts.iter().map(String::len).sum::<usize>();
        if let Some(allowance) = allowance.filter(|_| read >= COUNTED_FROM) {
            match allowance.hold(read) {
                Some(hold) => held.push(hold),
                None if events.is_empty() => return Err(ApiError::Unread),
                None => break,
            }
        }
        last = newest.seq;
        bytes += read;
        events.extend(texts);
    }
    // The whole answer counts instead.
    drop(held);
    let next = if last < end { last.to_string() } else { "null".to_owned() };
    Ok(json_text(format!("{{\"events\":[{}],\"next\":{next}}}", events.join(","))))
}

struct Follower {
    reader: JobReader,
    id: JobId,
    after: u64,
    told: watch::Receiver<Durable>,
    /// A job of `run`.
    local: bool,
    /// And its process was gone before the last reading.
    alone: bool,
    waiting: VecDeque<Waiting>,
    /// What waits counts as unread, as it is not asked for while the follower does not read.
    allowance: Option<Allowance>,
    hold: Option<Hold>,
    ended: bool,
}

/// An event as it is sent.
struct Waiting {
    seq: u64,
    name: &'static str,
    data: String,
}

impl Waiting {
    fn new(record: &RecordedEvent) -> Result<Self, ApiError> {
        let data = serde_json::to_string(record).map_err(ApiError::internal)?;
        Ok(Self { seq: record.seq, name: record.event.name(), data })
    }
}

impl Follower {
    fn stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        unfold(self, |mut follower| async move {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    /// None: the stream ends here, and whoever wants more comes back with what it saw last.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(Waiting { seq, name, data }) = self.waiting.pop_front() {
                self.after = seq;
                let event = Event::default().id(seq.to_string());
                return Some(event.event(name).data(data));
            }
            match self.read().await {
                Err(trouble) => {
                    trouble.log();
                    return None;
                }
                Ok(Some(end)) => {
                    self.ended = true;
                    return Some(end);
                }
                Ok(None) if self.waiting.is_empty() && self.local => self.recheck().await?,
                Ok(None) if self.waiting.is_empty() => {
                    let more = self.told.changed().await;
                    // The job is over, or the server ends: the store knows which.
                    if more.is_err() && self.reader.row(&self.id).await.is_ok_and(|row| !row.over) {
                        return None;
                    }
                }
                Ok(None) => {}
            }
        }
    }

    /// None: the server ends.
    async fn recheck(&mut self) -> Option<()> {
        if let Ok(Err(_)) = timeout(LOOK, self.told.changed()).await {
            return None;
        }
        // Asked before the log is read: what its process wrote last is not missed.
        let row = self.reader.row(&self.id).await.ok()?;
        self.alone = self.reader.is_interrupted(&row).await;
        Some(())
    }

    /// What there is now; the last word, if the job is over or interrupted, and all was said.
    async fn read(&mut self) -> Result<Option<Event>, ApiError> {
        self.told.borrow_and_update();
        self.hold = None;
        let events = self.reader.events(&self.id, self.after, CHUNK).await?;
        self.waiting = events.iter().map(Waiting::new).collect::<Result<_, _>>()?;
        let bytes = self.waiting.iter().map(|waiting| waiting.data.len()).sum();
        if let Some(allowance) = self.allowance.as_ref().filter(|_| bytes >= COUNTED_FROM) {
            self.hold = Some(allowance.hold(bytes).ok_or(ApiError::Unread)?);
        }
        if !self.waiting.is_empty() {
            return Ok(None);
        }
        let (row, end) = self.reader.end(&self.id).await?;
        let over = row.over && self.after >= end;
        if !over && self.alone {
            let data = json!({ "state": ShownState::Interrupted }).to_string();
            return Ok(Some(Event::default().event("interrupted").data(data)));
        }
        let data = json!({ "state": row.state }).to_string();
        Ok(over.then(|| Event::default().event("end").data(data)))
    }
}
