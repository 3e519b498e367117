//! Which scope a route needs. A route that nobody thought of needs the highest.
//!
//! Paths are compared as they were sent, as the router does: an escaped one is another path, and no
//! open one.

use axum::extract::Request;
use axum::http::Method;

use crate::dashboard;
use crate::tokens::Scope;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Anybody may: it says nothing, or has a token of its own.
    Open,
    /// Whatever it is good for.
    AnyToken,
    Scope(Scope),
}

const GRPC: [&str; 2] = ["/steadfast.v1.", "/grpc."];

pub(super) fn is_grpc(path: &str) -> bool {
    GRPC.iter().any(|prefix| path.starts_with(prefix))
}

/// The dashboard's page and files are the same for everybody.
pub(super) fn need_of(request: &Request) -> Need {
    let (method, path) = (request.method(), request.uri().path());
    let is_page = dashboard::asks_for_page(method, path, request.headers());
    if is_page || (is_read(method) && dashboard::is_file(path)) {
        return Need::Open;
    }
    need(method, path)
}

fn is_read(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

pub(super) fn need(method: &Method, path: &str) -> Need {
    let reads = is_read(method);
    if is_grpc(path) {
        return need_of_grpc(path);
    }
    let plain = |file: &str| !file.contains("..") && !file.contains('%');
    let file = path.strip_prefix("/assets/").is_some_and(plain);
    let callback = path.strip_prefix("/v1/callbacks/").is_some_and(|token| !token.contains('/'));
    let open = reads && (file || matches!(path, "/" | "/healthz" | "/readyz"));
    if open || (callback && method == Method::POST) {
        Need::Open
    } else if reads && path == "/v1/me" {
        Need::AnyToken
    } else if reads || (method == Method::POST && asks_only(path)) {
        Need::Scope(Scope::Read)
    } else if method == Method::POST && (path == "/v1/jobs" || path.starts_with("/v1/jobs/")) {
        Need::Scope(Scope::Submit)
    } else {
        Need::Scope(Scope::Admin)
    }
}

/// What is asked with a body, and changes nothing.
fn asks_only(path: &str) -> bool {
    let job = path.strip_prefix("/v1/jobs/").and_then(|rest| rest.strip_suffix("/what-if"));
    job.is_some_and(|job| !job.contains('/'))
}

fn need_of_grpc(path: &str) -> Need {
    let (service, method) = path[1..].split_once('/').unwrap_or((&path[1..], ""));
    match (service, method) {
        ("grpc.health.v1.Health", _) => Need::Open,
        ("steadfast.v1.Workers", _) => Need::Scope(Scope::Worker),
        (
            "steadfast.v1.Jobs",
            "LaunchJob" | "SubmitJob" | "SubmitJobs" | "RunJob" | "TerminateJob",
        ) => Need::Scope(Scope::Submit),
        ("steadfast.v1.Jobs", "GetJobStatus" | "WatchJob" | "ListJobs") => Need::Scope(Scope::Read),
        _ if service.starts_with("grpc.reflection.") => Need::Scope(Scope::Read),
        _ => Need::Scope(Scope::Admin),
    }
}

#[cfg(test)]
mod table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_of_route_has_its_scope_and_the_rest_is_admins() {
        let open = Need::Open;
        let [read, submit, worker, admin] = Scope::ALL.map(Need::Scope);
        for (method, path, wanted) in [
            (Method::GET, "/", open),
            (Method::GET, "/healthz", open),
            (Method::HEAD, "/readyz", open),
            (Method::GET, "/assets/app.js", open),
            (Method::GET, "/assets/../v1/jobs", read),
            (Method::GET, "/assets/%2e%2e/v1/jobs", read),
            (Method::POST, "/assets/app.js", admin),
            (Method::POST, "/", admin),
            (Method::POST, "/v1/callbacks/abc", open),
            (Method::POST, "/v1/callbacks/abc/../../jobs", admin),
            (Method::POST, "/v1/%63allbacks/abc", admin),
            (Method::GET, "/v1/callbacks/abc", read),
            (Method::GET, "/v1/jobs", read),
            (Method::GET, "/metrics", read),
            (Method::GET, "/openapi.json", read),
            (Method::GET, "/nowhere", read),
            (Method::POST, "/v1/jobs", submit),
            (Method::GET, "/v1/me", Need::AnyToken),
            (Method::POST, "/v1/me", admin),
            (Method::POST, "/v1/jobs/1/what-if", read),
            (Method::POST, "/v1/jobs/1/2/what-if", submit),
            (Method::POST, "/v1/jobs/actions", submit),
            (Method::POST, "/v1/jobs/1/cancel", submit),
            (Method::POST, "/v1/jobsx", admin),
            (Method::DELETE, "/v1/jobs/1", admin),
            (Method::POST, "/v1/workers/w1/drain", admin),
            (Method::OPTIONS, "/v1/jobs", admin),
            (Method::POST, "/grpc.health.v1.Health/Check", open),
            (Method::POST, "/grpc.health.v1.HealthX/Check", admin),
            (Method::POST, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", read),
            (Method::POST, "/steadfast.v1.Workers/Session", worker),
            (Method::POST, "/steadfast.v1.Jobs/LaunchJob", submit),
            (Method::POST, "/steadfast.v1.Jobs/ListJobs", read),
            (Method::POST, "/steadfast.v1.Jobs/Purge", admin),
            (Method::GET, "/steadfast.v1.Jobs/Purge", admin),
        ] {
            assert_eq!(need(&method, path), wanted, "{method} {path}");
        }
    }
}
