//! What whoever is refused gets to see: a problem for REST, a status for gRPC.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::tokens::Scope;

#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("this server is not called {0:?}; if it is, add the name to `server.allowed_hosts`")]
    Host(String),
    #[error(
        "pages of another origin may not ask; if this one may, add it to `server.allowed_origins`"
    )]
    Origin,
    #[error(
        "a token is needed: send `Authorization: Bearer …`; `steadfast token create` makes one"
    )]
    NoToken,
    #[error("the token is wrong, expired or revoked; `steadfast token create` makes a new one")]
    WrongToken,
    #[error("this needs a token with scope `{wanted}`, and this one has `{has}`")]
    Scope { wanted: Scope, has: Scope },
    /// What a web page can send without being asked whether it may, and whatever else nothing here reads.
    #[error("{0:?} is not accepted; send `Content-Type: application/yaml` or `application/json`")]
    ContentType(String),
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the call took longer than {} s; try again", .0.as_secs())]
    TooSlow(Duration),
    #[error("this ends after a while for whoever has no token; ask again")]
    TooLong,
    #[error("too much of earlier answers has not been read; read or close them, then try again")]
    Unread,
}

impl Refusal {
    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Host(_) => "host_not_allowed",
            Self::Origin => "origin_not_allowed",
            Self::NoToken | Self::WrongToken => "unauthenticated",
            Self::Scope { .. } => "forbidden",
            Self::ContentType(_) => "unsupported_media_type",
            Self::TooLarge(_) => "too_large",
            Self::TooSlow(_) | Self::TooLong => "overloaded",
            Self::Unread => "too_much_unread",
        }
    }

    const fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) | Self::Origin | Self::Scope { .. } => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::ContentType(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow(_) | Self::TooLong => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unread => StatusCode::TOO_MANY_REQUESTS,
        }
    }

    pub(super) fn status_of_grpc(&self) -> tonic::Status {
        let code = match self {
            Self::NoToken | Self::WrongToken => tonic::Code::Unauthenticated,
            Self::TooLarge(_) | Self::Unread => tonic::Code::ResourceExhausted,
            Self::ContentType(_) => tonic::Code::InvalidArgument,
            Self::TooSlow(_) | Self::TooLong => tonic::Code::DeadlineExceeded,
            Self::Host(_) | Self::Origin | Self::Scope { .. } => tonic::Code::PermissionDenied,
        };
        tonic::Status::new(code, self.to_string())
    }

    pub(super) fn problem(&self) -> Value {
        let status = self.status();
        json!({
            "type": format!("urn:steadfast:problem:{}", self.code()),
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "code": self.code(),
            "detail": self.to_string(),
        })
    }

    pub(super) fn response(&self, grpc: bool) -> Response {
        if grpc {
            return self.status_of_grpc().into_http();
        }
        let (status, problem) = (self.status(), self.problem());
        let mut response = Response::new(Body::from(problem.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        let problem_type = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, problem_type);
        let challenge = match self {
            Self::NoToken => Some("Bearer realm=\"steadfast\""),
            Self::WrongToken => Some("Bearer realm=\"steadfast\", error=\"invalid_token\""),
            Self::Scope { .. } => Some("Bearer realm=\"steadfast\", error=\"insufficient_scope\""),
            _ => None,
        };
        if let Some(challenge) = challenge {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
        if matches!(self, Self::Unread | Self::TooSlow(_)) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
