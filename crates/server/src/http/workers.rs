//! Workers, as far as people see and tell them.

use std::collections::BTreeMap;
use std::fmt;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;
use serde_json::json;
use steadfast_core::time::Timestamp;

use super::{App, body};
use crate::trouble::Trouble;

/// Who knows the workers. Answers at once.
pub trait WorkersView: fmt::Debug + Send + Sync {
    /// By name.
    fn list(&self) -> Vec<WorkerView>;

    /// Nothing new goes to it from now on. Of an unknown worker, [`Trouble::NotFound`].
    fn drain(&self, name: &str) -> Result<(), Trouble>;
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerView {
    pub name: String,
    pub datacenter: Option<String>,
    /// `connected`, `draining`, `quarantined` or `away`.
    pub state: &'static str,
    /// Why it is not simply connected, for people.
    pub why: Option<String>,
    pub slots: u32,
    pub busy: u32,
    pub labels: BTreeMap<String, String>,
    /// Names of functions that it has registered.
    pub functions: Vec<String>,
    pub last_seen_ms: Option<Timestamp>,
}

pub(super) async fn list(State(app): State<App>) -> Result<Response, Trouble> {
    super::json(StatusCode::OK, &json!({ "workers": app.workers.list() }))
}

pub(super) async fn drain(
    State(app): State<App>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    body::refuse_forms(&headers)?;
    app.workers.drain(&name)?;
    let workers = app.workers.list();
    match workers.iter().find(|worker| worker.name == name) {
        Some(worker) => super::json(StatusCode::OK, worker),
        None => Err(Trouble::NotFound(format!("worker {name:?} has gone meanwhile"))),
    }
}
