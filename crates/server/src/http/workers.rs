//! Workers, as far as people see and tell them.

use std::fmt;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use steadfast_api::{WorkerInfo, WorkersPage};

use super::query::Names;
use super::{App, body};
use crate::error::ApiError;

/// Who knows the workers.
#[tonic::async_trait]
pub trait WorkerQueries: fmt::Debug + Send + Sync {
    /// By name.
    async fn list(&self) -> Result<Vec<WorkerInfo>, ApiError>;

    /// Nothing new goes to it from now on. Of an unknown worker, [`ApiError::NotFound`].
    async fn drain(&self, name: &str) -> Result<(), ApiError>;

    /// New work goes to it again. Of an unknown worker, [`ApiError::NotFound`].
    async fn undrain(&self, name: &str) -> Result<(), ApiError>;

    /// Of every step of the job that has something to start: why it has not.
    async fn why_not_running(&self, job: &str) -> Result<Vec<((u32, u32), String)>, ApiError>;

    /// How many jobs wait for a worker, by why none takes them.
    async fn queue_by_reason(&self) -> Result<Vec<(String, u64)>, ApiError>;
}

pub(super) async fn list(State(app): State<App>) -> Response {
    let page = async { Ok(WorkersPage { workers: app.workers.list().await? }) };
    let question = ("/v1/workers", String::new());
    app.shared.answer(app.notifications.changes(), question, None, page).await
}

pub(super) async fn drain(
    State(app): State<App>,
    Names(name): Names<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    body::refuse_forms(&headers)?;
    let find = |workers: Vec<WorkerInfo>| workers.into_iter().find(|worker| worker.name == name);
    let before = find(app.workers.list().await?);
    app.workers.drain(&name).await?;
    // One that had nothing to do may be gone by now, as it was told.
    let gone =
        before.map(|worker| WorkerInfo { state: "draining".to_owned(), why: None, ..worker });
    match find(app.workers.list().await?).or(gone) {
        Some(worker) => super::json(StatusCode::OK, &worker),
        None => Err(ApiError::NotFound(format!("worker {name:?} has gone meanwhile"))),
    }
}

pub(super) async fn undrain(
    State(app): State<App>,
    Names(name): Names<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    body::refuse_forms(&headers)?;
    app.workers.undrain(&name).await?;
    let worker = app.workers.list().await?.into_iter().find(|worker| worker.name == name);
    match worker {
        Some(worker) => super::json(StatusCode::OK, &worker),
        None => Err(ApiError::NotFound(format!("worker {name:?} has gone meanwhile"))),
    }
}
