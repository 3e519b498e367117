//! Counts HTTP requests by the route that they matched.

use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use tokio::time::Instant;

use super::Metrics;

/// For `axum::middleware::from_fn_with_state(metrics, requests)`, as a layer around all routes.
pub async fn requests(State(metrics): State<Metrics>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let method = known(request.method());
    let response = next.run(request).await;
    // What matches no route could be anything, and would be as many series.
    let route = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let seconds = began.elapsed().as_secs_f64();
    metrics.answered(route, method, response.status().as_u16(), seconds);
    response
}

/// A caller may invent methods.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "HEAD" => "HEAD",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
