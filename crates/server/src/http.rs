//! REST under `/v1`, and the document that describes it.
//!
//! Translates and answers. Who may ask is seen to before a request comes here; what is asked goes to
//! the reader and to the commands, as gRPC's does.

mod actions;
mod body;
mod bulk;
mod callbacks;
mod documented;
mod events;
mod jobs;
mod logs;
mod plan;
mod problem;
mod query;
mod schemas;
mod views;
mod workers;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use steadfast_core::time::Timestamp;
use steadfast_jobfile::Operator;
use steadfast_store::Blobs;

use crate::callbacks::CallbackHandler;
use crate::commands::JobCommands;
use crate::dashboard;
use crate::error::ApiError;
use crate::notifications::Notifications;
use crate::observability::RecentActivity;
use crate::queries::JobReader;
use crate::shared_answers::SharedAnswers;

use query::Names;

pub use callbacks::serve_callbacks;
pub use workers::WorkerQueries;

/// Everything that answers are made of.
#[derive(Clone)]
pub struct App {
    pub reader: JobReader,
    pub commands: JobCommands,
    pub callbacks: CallbackHandler,
    pub notifications: Notifications,
    pub shared: SharedAnswers,
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    pub operator: Arc<Operator>,
    pub workers: Arc<dyn WorkerQueries>,
    pub blobs: Arc<dyn Blobs>,
    pub limits: Limits,
    pub recent: RecentActivity,
    /// Of the server.
    pub started_at: Timestamp,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("blobs", &self.blobs).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub jobs: PageLimit,
    /// Of attempts, events and logs.
    pub items: PageLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit {
    /// On a page whose request does not say.
    pub usual: usize,
    /// On any page.
    pub most: usize,
}

impl Default for PageLimit {
    fn default() -> Self {
        Self { usual: 100, most: 1000 }
    }
}

pub fn router(app: App) -> Router {
    let (router, document) = documented::routes(app.limits).finish();
    let document: Arc<str> = document.to_string().into();
    router
        .route(
            "/openapi.json",
            axum::routing::get(move || std::future::ready(json_text(document.to_string()))),
        )
        .route("/", axum::routing::get(dashboard_page))
        .route("/assets/{*name}", axum::routing::get(dashboard_asset))
        .fallback(elsewhere)
        .method_not_allowed_fallback(not_this_method)
        .with_state(app)
}

/// What `/openapi.json` shows.
pub fn document(limits: Limits) -> serde_json::Value {
    documented::routes(limits).finish().1
}

async fn dashboard_page(headers: HeaderMap) -> Result<Response, ApiError> {
    dashboard::page(&headers)
}

async fn dashboard_asset(
    Names(name): Names<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    dashboard::asset(&name, &headers)
}

/// An address of the page's own, or nothing.
async fn elsewhere(method: Method, uri: Uri, headers: HeaderMap) -> Result<Response, ApiError> {
    let path = uri.path();
    if dashboard::asks_for_page(&method, path, &headers) {
        return dashboard::page(&headers);
    }
    if (method == Method::GET || method == Method::HEAD)
        && let Some(file) = dashboard::file(path, &headers)
    {
        return Ok(file);
    }
    Err(nothing_here(uri).await)
}

async fn nothing_here(uri: Uri) -> ApiError {
    let shown: String = uri.path().chars().take(200).collect();
    ApiError::NotFound(format!("there is nothing at {shown}; /openapi.json lists what there is"))
}

async fn not_this_method(method: Method) -> ApiError {
    let shown: String = method.as_str().chars().take(20).collect();
    ApiError::MethodNotAllowed(format!("{shown} is not for this address; `Allow` lists what is"))
}

fn json_text(text: String) -> Response {
    ([("content-type", "application/json")], text).into_response()
}

fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, ApiError> {
    let text = serde_json::to_string(value).map_err(ApiError::internal)?;
    Ok((status, json_text(text)).into_response())
}
