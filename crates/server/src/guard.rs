//! The one door that every request passes, REST and gRPC alike. Deny by default.
//!
//! | room | duty |
//! |---|---|
//! | `hosts` | whether a request names this server, and comes from a page that may ask |
//! | `routes` | which scope a route needs |
//! | `body` | how large a body may be, and how long it may take |
//! | `refusal` | what whoever is refused gets to see |
//!
//! A token is looked at here, and never logged, kept or handed on: what is behind the door finds
//! [`Granted`] in the request. Nor are paths logged, for a callback's holds a token.

mod body;
mod hosts;
mod refusal;
mod routes;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use steadfast_core::time::Timestamp;

use crate::config::{Auth, ServerSettings};
use crate::tokens::{Granted, Tokens};
use hosts::{Caller, Hosts};
use refusal::Refusal;
use routes::Need;

const FORMS: [&str; 2] = ["application/x-www-form-urlencoded", "multipart/form-data"];

#[derive(Clone)]
pub struct Guard(Arc<Inner>);

struct Inner {
    auth: Auth,
    tokens: Arc<Tokens>,
    hosts: Hosts,
    max_body_bytes: usize,
    body_timeout: Duration,
    now: Box<dyn Fn() -> Timestamp + Send + Sync>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        f.debug_struct("Guard")
            .field("auth", &inner.auth)
            .field("hosts", &inner.hosts)
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// `auth` is what [`crate::config::Config::check_exposure`] said, `listening` where the server does.
    pub fn new(
        settings: &ServerSettings,
        auth: Auth,
        listening: SocketAddr,
        tokens: Arc<Tokens>,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            auth,
            tokens,
            hosts: Hosts::new(settings, listening.ip()),
            max_body_bytes: settings.max_body_bytes,
            body_timeout: Duration::from_millis(settings.body_timeout_ms),
            now: Box::new(now),
        }))
    }

    /// Everything in `app`, what it does not know included, is behind the guard. To be called last.
    pub fn protect(self, app: Router) -> Router {
        app.layer(from_fn_with_state(self, pass))
    }

    fn admit(&self, request: &mut Request) -> Result<Caller, Refusal> {
        let caller = self.0.hosts.check(request)?;
        if caller.is_preflight(request) {
            return Ok(caller);
        }
        let granted = self.authenticate(request)?;
        if let Some(granted) = granted {
            request.extensions_mut().insert(granted);
        }
        // Nobody behind the door needs it, and what nobody has nobody prints.
        request.headers_mut().remove(header::AUTHORIZATION);
        refuse_forms(request.headers())?;
        if !routes::is_grpc(request.uri().path()) {
            body::bound(request, self.0.max_body_bytes, self.0.body_timeout)?;
        }
        Ok(caller)
    }

    /// None: nobody in particular, which is enough here.
    fn authenticate(&self, request: &Request) -> Result<Option<Granted>, Refusal> {
        if self.0.auth == Auth::None {
            return Ok(None);
        }
        let Need::Scope(wanted) = routes::need(request.method(), request.uri().path()) else {
            return Ok(None);
        };
        let granted: Granted = bearer(request.headers())?
            .and_then(|token| self.0.tokens.check(token, (self.0.now)()))
            .ok_or(Refusal::WrongToken)?;
        if !granted.scope.allows(wanted) {
            return Err(Refusal::Scope { wanted, has: granted.scope });
        }
        Ok(Some(granted))
    }
}

async fn pass(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let grpc = is_type(request.headers(), |kind| kind.starts_with("application/grpc"));
    let preflight = request.method() == Method::OPTIONS;
    let mut response = match guard.admit(&mut request) {
        Ok(caller) => {
            let mut response = if preflight && caller.is_preflight(&request) {
                StatusCode::NO_CONTENT.into_response()
            } else {
                next.run(request).await
            };
            caller.tell_browser(response.headers_mut(), preflight);
            response
        }
        Err(refusal) => {
            tracing::info!(code = refusal.code(), why = %refusal, "RequestRefused");
            refusal.response(grpc)
        }
    };
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

/// What is presented, once; `None` for what is not a bearer's.
fn bearer(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let first = all.next().ok_or(Refusal::NoToken)?;
    if all.next().is_some() {
        return Ok(None);
    }
    let parts = first.to_str().ok().and_then(|text| text.split_once(' '));
    Ok(parts.filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim()))
}

/// What a page can send anywhere without being asked about it.
fn refuse_forms(headers: &HeaderMap) -> Result<(), Refusal> {
    let from_page = headers.contains_key(header::ORIGIN);
    let form =
        is_type(headers, |kind| FORMS.contains(&kind) || (from_page && kind == "text/plain"));
    if form { Err(Refusal::Form) } else { Ok(()) }
}

fn is_type(headers: &HeaderMap, fits: impl Fn(&str) -> bool) -> bool {
    headers.get_all(header::CONTENT_TYPE).iter().any(|value| {
        let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
        fits(text.split(';').next().unwrap_or_default().trim())
    })
}
