//! What whoever is refused gets to see: a problem for REST, a status for gRPC.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::json;

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
    #[error("forms are not accepted; send `Content-Type: application/yaml` or `application/json`")]
    Form,
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
}

impl Refusal {
    pub(super) const fn code(&self) -> &'static str {
        match self {
            Self::Host(_) => "host_not_allowed",
            Self::Origin => "origin_not_allowed",
            Self::NoToken | Self::WrongToken => "unauthenticated",
            Self::Scope { .. } => "forbidden",
            Self::Form => "unsupported_media_type",
            Self::TooLarge(_) => "too_large",
        }
    }

    const fn status(&self) -> StatusCode {
        match self {
            Self::Host(_) | Self::Origin | Self::Scope { .. } => StatusCode::FORBIDDEN,
            Self::NoToken | Self::WrongToken => StatusCode::UNAUTHORIZED,
            Self::Form => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    pub(super) fn response(&self, grpc: bool) -> Response {
        let status = self.status();
        if grpc {
            let code = match status {
                StatusCode::UNAUTHORIZED => tonic::Code::Unauthenticated,
                StatusCode::PAYLOAD_TOO_LARGE => tonic::Code::ResourceExhausted,
                StatusCode::UNSUPPORTED_MEDIA_TYPE => tonic::Code::InvalidArgument,
                _ => tonic::Code::PermissionDenied,
            };
            return tonic::Status::new(code, self.to_string()).into_http();
        }
        let problem = json!({
            "type": format!("urn:steadfast:problem:{}", self.code()),
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "code": self.code(),
            "detail": self.to_string(),
        });
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
        response
    }
}
