//! The `OpenAPI` document against the routes that there are.

use crate::server::{Answer, Server};

#[tokio::test]
async fn the_document_describes_every_route_and_resolves_every_name() {
    let server = Server::start().await;
    let document = server.get("/openapi.json").await.json;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"").skip(1) {
        let name = reference.split('"').next().unwrap();
        let name = name.strip_prefix("#/components/schemas/").expect(name);
        assert!(schemas.contains_key(name), "{name}");
    }
    let paths = document["paths"].as_object().unwrap();
    let mut described: Vec<String> = (paths.iter())
        .flat_map(|(path, item)| {
            item.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
        })
        .collect();
    described.sort();
    assert_eq!(
        described,
        [
            "get /v1/jobs",
            "get /v1/jobs/changes",
            "get /v1/jobs/counts",
            "get /v1/jobs/{id}",
            "get /v1/jobs/{id}/attempts",
            "get /v1/jobs/{id}/budget",
            "get /v1/jobs/{id}/events",
            "get /v1/jobs/{id}/explain",
            "get /v1/jobs/{id}/logs",
            "get /v1/jobs/{id}/logs/{step}/{name}",
            "get /v1/jobs/{id}/logs/{step}/{name}/times",
            "get /v1/jobs/{id}/outputs",
            "get /v1/jobs/{id}/plan",
            "get /v1/jobs/{id}/readiness",
            "get /v1/jobs/{id}/steps/{step}/items",
            "get /v1/me",
            "get /v1/overview",
            "get /v1/workers",
            "post /v1/callbacks/{token}",
            "post /v1/jobs",
            "post /v1/jobs/actions",
            "post /v1/jobs/bulk",
            "post /v1/jobs/{id}/cancel",
            "post /v1/jobs/{id}/pause",
            "post /v1/jobs/{id}/resume",
            "post /v1/jobs/{id}/retry",
            "post /v1/jobs/{id}/what-if",
            "post /v1/workers/{name}/drain",
            "post /v1/workers/{name}/undrain",
        ]
    );
    // Each is there: what is not would answer with the fallback's words.
    for route in described {
        let (method, path) = route.split_once(' ').unwrap();
        let url = format!("{}{}", server.url, path.replace(['{', '}'], ""));
        let method = method.to_uppercase().parse().unwrap();
        // One that has no end.
        if path == "/v1/jobs/changes" {
            assert_eq!(server.client.get(url).send().await.unwrap().status(), 200);
            continue;
        }
        let answer = Answer::of(server.client.request(method, url)).await;
        let detail = answer.json["detail"].as_str().unwrap_or_default();
        assert!(!detail.contains("/openapi.json"), "{route}: {answer:?}");
        assert_ne!(answer.status, 405, "{route}");
    }
}
