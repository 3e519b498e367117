//! Where services say later how an attempt ended.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde_json::json;

use super::query::Names;
use super::{App, body};
use crate::callbacks::{CallbackHandler, Taken};
use crate::config::ServerSettings;
use crate::error::ApiError;
use crate::guard::protect_callbacks;
use crate::listen::{ListenOptions, serve};

/// Beside the output: the rest of a callback's JSON, and an error's text.
const WRAPPING: usize = 64 << 10;

pub(super) async fn callback(
    State(app): State<App>,
    token: Names<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    taken(State(app.callbacks), token, headers, body).await
}

async fn taken(
    State(callbacks): State<CallbackHandler>,
    Names(token): Names<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let callback_token = callbacks.admit(&token)?;
    let said = body::content_type(&headers);
    let is_json = |said: &String| said == "application/json" || said.ends_with("+json");
    if !said.as_ref().is_some_and(is_json) {
        return Err(ApiError::UnsupportedMedia("a callback is application/json".to_owned()));
    }
    let body = body::read(&headers, body, callbacks.output_cap + WRAPPING).await?;
    let counted = callbacks.take(&callback_token, &headers, &body).await? == Taken::Counted;
    super::json(StatusCode::OK, &json!({ "counted": counted }))
}

/// Callbacks and nothing else, until it is to close: whoever is being answered then is answered. Bounded like a
/// server's. The listener does not block.
pub async fn serve_callbacks(
    listener: std::net::TcpListener,
    callbacks: CallbackHandler,
    closing: impl Future<Output = ()> + Send + 'static,
) {
    let router = Router::new()
        .route("/v1/callbacks/{token}", axum::routing::post(taken))
        .fallback(super::nothing_here)
        .with_state(callbacks);
    let settings = ServerSettings::default();
    let router = protect_callbacks(router, &settings);
    match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => serve(listener, router, ListenOptions::new(&settings, None), closing).await,
        Err(error) => tracing::error!(%error, "callbacks cannot be taken"),
    }
}
