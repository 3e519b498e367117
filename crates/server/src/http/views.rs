//! What a page shows beside a job's status: who asks, what changes, items, the plan, other policies, budgets.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use steadfast_api::ItemState;
use steadfast_core::time::Timestamp;
use tokio::time::timeout;

use super::events::KEEP_ALIVE;
use super::query::{Names, Params};
use super::{App, body, jobs, plan};
use crate::error::ApiError;
use crate::observability::ActivityOverview;
use crate::queries::wire_counts;
use crate::tokens::{Granted, Scope};

/// A few keys of a policy.
const QUESTION_BYTES: usize = 64 << 10;

/// Who asks, and what they may do.
pub(super) async fn me(
    State(app): State<App>,
    granted: Option<Extension<Granted>>,
) -> Result<Response, ApiError> {
    let granted = granted.map(|Extension(granted)| granted);
    let may = |scope: Scope| granted.as_ref().is_none_or(|token| token.scope.allows(scope));
    let scopes = [Scope::Read, Scope::Submit, Scope::Admin, Scope::Worker];
    // A server without tokens has workers that need none.
    let scopes = scopes
        .into_iter()
        .filter(|scope| may(*scope) && (granted.is_some() || *scope != Scope::Worker));
    let scopes: Vec<&str> = scopes.map(Scope::name).collect();
    let answer = json!({
        "name": granted.as_ref().and_then(|token| token.name.as_deref()),
        "auth": if granted.is_some() { "required" } else { "none" },
        "scopes": scopes,
        "may": {
            "read": may(Scope::Read),
            "submit": may(Scope::Submit),
            "admin": may(Scope::Admin),
        },
        "server": {
            "version": env!("CARGO_PKG_VERSION"),
            "store": app.reader.store(),
            "now_ms": (app.clock)(),
        },
    });
    super::json(StatusCode::OK, &answer)
}

/// Which jobs have changed, as long as somebody listens. The first message has the counts alone.
pub(super) async fn changes(State(app): State<App>) -> Result<Response, ApiError> {
    let changes = app.notifications.changes();
    let listener = changes.listen(&app.reader);
    let first = changes.first(&wire_counts(&app.reader.counts().await?));
    let messages = unfold((Some(first), listener), |(first, mut listener)| async move {
        let event = match first {
            Some(first) => first,
            None => match timeout(KEEP_ALIVE, listener.next()).await {
                Ok(next) => next?,
                Err(_) => Bytes::from_static(b":\n\n"),
            },
        };
        Some((Ok::<_, Infallible>(event), (None, listener)))
    });
    let headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache")];
    Ok((headers, Body::from_stream(messages)).into_response())
}

pub(super) async fn items(
    State(app): State<App>,
    Names((id, step)): Names<(String, String)>,
    params: Params,
) -> Result<Response, ApiError> {
    let state = params.text("state")?.map(read_item_state).transpose()?;
    let from = params.number("from", "the index of an item, from 0")?.unwrap_or(0);
    let from = u32::try_from(from).unwrap_or(u32::MAX);
    let datacenter = params.text("datacenter")?.map(str::to_owned);
    let limit = params.limit(app.limits.items)?;
    let page = app.reader.items(&id, (step, datacenter), state, from, limit).await?;
    super::json(StatusCode::OK, &page)
}

fn read_item_state(text: &str) -> Result<ItemState, ApiError> {
    let known = ItemState::ALL.into_iter().find(|state| state.name() == text);
    known.ok_or_else(|| {
        let all = ItemState::ALL.map(ItemState::name).join(", ");
        ApiError::BadRequest(format!("`state` must be one of {all}, not {text:?}"))
    })
}

pub(super) async fn stored_plan(
    State(app): State<App>,
    Names(id): Names<String>,
) -> Result<Response, ApiError> {
    super::json(StatusCode::OK, &plan::view(&*app.reader.plan(&id).await?))
}

pub(super) async fn budget(
    State(app): State<App>,
    Names(id): Names<String>,
) -> Result<Response, ApiError> {
    super::json(StatusCode::OK, &app.reader.budget_use(&id).await?)
}

/// What this server has seen lately.
pub(super) async fn overview(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    const MOST: u64 = 60;
    let minutes = params.number("minutes", "a whole number from 1 to 60")?.unwrap_or(MOST);
    if !(1..=MOST).contains(&minutes) {
        let why = format!("`minutes` must be a whole number from 1 to {MOST}, not {minutes}");
        return Err(ApiError::BadRequest(why));
    }
    let overview = async {
        // Without the engine's word on its queue the rest is still true.
        let queue = app.workers.queue_by_reason().await.unwrap_or_default().into_iter();
        let queue = queue.map(|(reason, jobs)| json!({ "reason": reason, "jobs": jobs }));
        Ok(Overview {
            activity: app.recent.overview(minutes, (app.clock)()),
            queue: queue.collect(),
            since_ms: app.started_at,
            scope: "this server",
        })
    };
    let question = ("/v1/overview", minutes.to_string());
    Ok(app.shared.answer(app.notifications.changes(), question, None, overview).await)
}

#[derive(Debug, Serialize)]
struct Overview {
    #[serde(flatten)]
    activity: ActivityOverview,
    queue: Vec<Value>,
    since_ms: Timestamp,
    scope: &'static str,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WhatIfBody {
    #[serde(default)]
    step: Option<String>,
    with: Box<RawValue>,
}

pub(super) async fn what_if(
    State(app): State<App>,
    Names(id): Names<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    if body::content_type(&headers).as_deref() != Some("application/json") {
        return Err(ApiError::UnsupportedMedia("a body here is application/json".to_owned()));
    }
    let bytes = body::read(&headers, body, QUESTION_BYTES).await?;
    let WhatIfBody { step, with } = jobs::read_json(&bytes)?;
    let with = with.get().as_bytes().to_vec();
    super::json(StatusCode::OK, &app.reader.what_if(&id, step, with, app.operator.clone()).await?)
}
