//! Errors as RFC 9457 has them.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::ApiError;

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        self.log();
        self.response()
    }
}

impl ApiError {
    /// Logs nothing.
    pub(crate) fn response(&self) -> Response {
        if let Self::Unconfirmed { job } = self {
            let body = json!({ "id": job, "code": self.code(), "detail": self.to_string() });
            let location = format!("/v1/jobs/{job}");
            let headers = [("content-type", "application/json"), ("location", &location)];
            return (StatusCode::ACCEPTED, headers, body.to_string()).into_response();
        }
        let status = StatusCode::from_u16(self.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = self.problem();
        let mut response =
            (status, [("content-type", "application/problem+json")], body.to_string())
                .into_response();
        if matches!(self, Self::Overloaded(_) | Self::TooOften(_) | Self::Unread) {
            response.headers_mut().insert("retry-after", axum::http::HeaderValue::from_static("1"));
        }
        response
    }

    /// What is told of it.
    pub(super) fn problem(&self) -> Value {
        let mut body = json!({
            "type": format!("urn:steadfast:problem:{}", self.code()),
            "title": self.title(),
            "status": self.http(),
            "code": self.code(),
            "detail": self.to_string(),
        });
        if let Self::InvalidJob(problems) | Self::InvalidPolicy(problems) = self {
            body["errors"] = json!(problems);
        }
        // So that a client that cannot read job files knows what to attach.
        if let Self::FilesMissing(missing) = self {
            body["missing"] = json!(missing);
        }
        if let Self::Unconfirmed { job } = self {
            body["id"] = json!(job);
        }
        body
    }
}
