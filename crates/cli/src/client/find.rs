//! Which job of a server a name means.

use std::sync::Arc;

use steadfast_core::event::{Event, RecordedEvent};
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;

use super::api::{Client, Query};
use crate::data::{JobRef, is_like_an_id};
use crate::error::CliError;
use crate::style::inert;

/// As long as ids are.
const ID_CHARS: usize = 26;
/// Jobs that are asked for at once.
const PAGE: &str = "1000";
/// A beginning of an id is looked for among the newest `PAGE` × `MOST_PAGES` jobs.
const MOST_PAGES: usize = 20;

/// The id of the job of a name: see [`JobRef`].
pub(super) async fn find(client: &Client, name: &str) -> Result<String, CliError> {
    let found = match JobRef::read(name) {
        JobRef::Last => newest(client, &[]).await?,
        JobRef::LastOf(name) => newest(client, &[("name", name)]).await?,
        JobRef::Any(id) if id.len() == ID_CHARS && is_like_an_id(id) => Some(id.to_owned()),
        JobRef::Any(name) => {
            let named = newest(client, &[("name", name)]).await?;
            let begin = if is_like_an_id(name) { begin_with(client, name).await? } else { vec![] };
            JobRef::one(name, named, begin, |id| id).map_err(CliError::wrong)?
        }
    };
    found.ok_or_else(|| {
        let (name, list) = (inert(name), client.hint("list"));
        CliError::no_job(format!("there is no job {name}; `{list}` shows those there are"))
    })
}

async fn newest(client: &Client, query: Query<'_>) -> Result<Option<String>, CliError> {
    let query = [query, &[("limit", "1")]].concat();
    let page = client.jobs(&query).await?;
    Ok(page.jobs.first().map(|job| job.id.clone()))
}

/// Two are enough to know that it fits more than one.
async fn begin_with(client: &Client, name: &str) -> Result<Vec<String>, CliError> {
    let mut found: Vec<String> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MOST_PAGES {
        let mut query = vec![("limit", PAGE)];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = client.jobs(&query).await?;
        let ids = page.jobs.iter().map(|job| job.id.clone());
        found.extend(ids.filter(|id| id.starts_with(name)));
        cursor = page.next;
        if found.len() > 1 || cursor.is_none() {
            break;
        }
    }
    Ok(found)
}

/// When a job was accepted, and what it is to do: its first event. None: that says something else.
pub(super) async fn accepted(
    client: &Client,
    id: &str,
) -> Result<Option<(Timestamp, Arc<Plan>)>, CliError> {
    let first = client.events(id, &[("limit", "1")]).await?.events.into_iter().next();
    let first = first.and_then(|event| serde_json::from_value::<RecordedEvent>(event).ok());
    Ok(first.and_then(|RecordedEvent { at, event, .. }| match event {
        Event::JobAccepted(accepted) => Some((at, accepted.plan)),
        _ => None,
    }))
}
