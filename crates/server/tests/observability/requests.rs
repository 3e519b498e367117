use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use steadfast_server::observability::requests;
use tower::ServiceExt;

use crate::page::{Page, promtool};
use crate::world::metrics;

#[tokio::test]
async fn a_caller_cannot_make_series_by_inventing_paths_or_methods() {
    let metrics = metrics(true);
    let app = Router::new()
        .route("/v1/jobs/{id}", get(async || StatusCode::OK))
        .nest("/nested", Router::new().route("/{x}", get(async || StatusCode::CREATED)))
        .layer(from_fn_with_state(metrics.clone(), requests));
    let ask = async |method: &str, path: String| {
        let request = Request::builder().method(method).uri(path).body(Body::empty());
        app.clone().oneshot(request.expect("a request")).await.expect("an answer").status()
    };
    for i in 0..100 {
        assert_eq!(ask("GET", format!("/v1/jobs/{i}")).await, StatusCode::OK);
        assert_eq!(ask("GET", format!("/nested/{i}")).await, StatusCode::CREATED);
        assert_eq!(ask("GET", format!("/else/{i}")).await, StatusCode::NOT_FOUND);
        let refused = ask(&format!("M{i}"), format!("/v1/jobs/{i}")).await;
        assert_eq!(refused, StatusCode::METHOD_NOT_ALLOWED);
    }
    let text = metrics.render();
    let page = Page::read(&text);
    assert_eq!(page.named("steadfast_http_requests_total").count(), 4, "{text}");
    let one =
        "steadfast_http_requests_total{method=\"GET\",route=\"/v1/jobs/{id}\",status=\"200\"}";
    assert_eq!(page.get(one), 100.0);
    let nested =
        "steadfast_http_requests_total{method=\"GET\",route=\"/nested/{x}\",status=\"201\"}";
    assert_eq!(page.get(nested), 100.0);
    assert_eq!(page.sum("steadfast_http_requests_total"), 400.0);
    promtool(&text);
}
