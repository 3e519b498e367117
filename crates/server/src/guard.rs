//! The one door that every request passes, REST and gRPC alike. Deny by default.
//!
//! | room | duty |
//! |---|---|
//! | `hosts` | whether a request names this server, and comes from a page that may ask |
//! | `routes` | which scope a route needs |
//! | `body` | how large a body may be, and how long it may take |
//! | `answer` | who may still have an answer while it is under way, and how much of it at once |
//! | `refusal` | what whoever is refused gets to see |
//!
//! A token is looked at here, and never logged, kept or handed on: what is behind the door finds
//! [`Granted`] in the request. Nor are paths logged, for a callback's holds a token.

mod answer;
mod body;
mod hosts;
mod refusal;
mod routes;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use steadfast_core::time::Timestamp;

use crate::config::{Auth, ServerSettings};
use crate::listen::{INSIDE, network};
use crate::tokens::{Granted, Tokens};
use crate::unread::{Client, Unread};
use answer::{IsAllowed, Terms};
use hosts::{Caller, Hosts};
use refusal::Refusal;
use routes::Need;

/// Many jobs, which come one after the other.
const MANY_JOBS: [&str; 2] = ["/steadfast.v1.Jobs/SubmitJobs", "/v1/jobs/bulk"];
/// A worker's session, whose body has no end. Its token is looked at with its beats.
const SESSION: &str = "/steadfast.v1.Workers/Session";
/// Who has no token has so long to say what it wants, and to take the answer.
const STRANGERS_BODY: Duration = Duration::from_secs(10);
const STRANGERS_ANSWER: Duration = Duration::from_mins(1);

#[derive(Clone)]
pub struct Guard(Arc<Inner>);

struct Inner {
    auth: Auth,
    tokens: Arc<Tokens>,
    hosts: Hosts,
    max_body_bytes: usize,
    body_timeout: Duration,
    unread: Unread,
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
            unread: Unread::new(settings.max_unread_bytes),
            now: Box::new(now),
        }))
    }

    /// Everything in `app`, what it does not know included, is behind the guard. To be called last.
    pub fn protect(self, app: Router) -> Router {
        app.layer(from_fn_with_state(self, pass))
    }

    fn admit(&self, request: &mut Request) -> Result<Admitted, Refusal> {
        let caller = self.0.hosts.check(request)?;
        let path = request.uri().path();
        let (is_grpc, is_session) = (routes::is_grpc(path), path == SESSION);
        let is_many = MANY_JOBS.contains(&path);
        let need = routes::need_of(request);
        let is_preflight = caller.is_preflight(request);
        let granted = if is_preflight { None } else { self.authenticate(need, request)? };
        let client = match &granted {
            Some(granted) => Client::Token(granted.id.clone()),
            None => Client::Address(address(request)),
        };
        let is_stranger = need == Need::Open && granted.is_none();
        let body_timeout = self.0.body_timeout;
        if !is_preflight {
            // Nobody behind the door needs it, and what nobody has nobody prints.
            request.headers_mut().remove(header::AUTHORIZATION);
            check_content_type(request.headers(), is_grpc)?;
        }
        if is_many {
            body::keep_coming(request, body_timeout, granted.clone().map(|it| self.is_still(it)));
        } else if !is_session {
            let within = if is_stranger { STRANGERS_BODY.min(body_timeout) } else { body_timeout };
            body::bound(request, self.0.max_body_bytes, within)?;
        }
        let allowance = self.0.unread.allowance(client);
        request.extensions_mut().insert(allowance.clone());
        if let Some(granted) = &granted {
            request.extensions_mut().insert(granted.clone());
        }
        let recheck = granted.filter(|_| !is_session);
        Ok(Admitted {
            caller,
            is_preflight,
            begins_within: if is_stranger {
                Some(STRANGERS_ANSWER.min(body_timeout))
            } else {
                // What a call waits for besides its own body is the engine.
                is_grpc.then_some(body_timeout * 2)
            },
            terms: Terms {
                allowance,
                is_allowed: recheck.map(|granted| self.is_still(granted)),
                within: is_stranger.then_some(STRANGERS_ANSWER.min(body_timeout)),
            },
        })
    }

    /// Whether a token that was good is that yet, whenever it is asked.
    fn is_still(&self, granted: Granted) -> IsAllowed {
        let guard = self.clone();
        Box::new(move || guard.0.tokens.still(&granted.id, (guard.0.now)()).is_ok())
    }

    /// None: nobody in particular, which is enough here.
    fn authenticate(&self, need: Need, request: &Request) -> Result<Option<Granted>, Refusal> {
        if self.0.auth == Auth::None {
            return Ok(None);
        }
        let presented = bearer(request.headers());
        let check = |token| self.0.tokens.check(token, (self.0.now)());
        if need == Need::Open {
            // Who shows a good one is no stranger where none is needed.
            return Ok(presented.ok().flatten().and_then(check));
        }
        let granted: Granted = presented?.and_then(check).ok_or(Refusal::WrongToken)?;
        if let Need::Scope(wanted) = need
            && !granted.scope.allows(wanted)
        {
            return Err(Refusal::Scope { wanted, has: granted.scope });
        }
        Ok(Some(granted))
    }
}

/// A request that may come in, and what holds for its answer.
struct Admitted {
    caller: Caller,
    is_preflight: bool,
    /// The answer must have begun by then; of a call that is no stream, that is all of it.
    begins_within: Option<Duration>,
    terms: Terms,
}

async fn pass(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let grpc = is_type(request.headers(), |kind| kind.starts_with("application/grpc"));
    let refused = |refusal: Refusal| {
        tracing::info!(code = refusal.code(), why = %refusal, "RequestRefused");
        refusal.response(grpc)
    };
    let mut response = match guard.admit(&mut request) {
        Ok(Admitted { caller, is_preflight, begins_within, terms }) => {
            let mut response = if is_preflight {
                StatusCode::NO_CONTENT.into_response()
            } else {
                let answer = answered(next.run(request), begins_within).await;
                answer.and_then(|answer| answer::bound(answer, terms)).unwrap_or_else(refused)
            };
            caller.tell_browser(response.headers_mut(), is_preflight);
            response
        }
        Err(refusal) => refused(refusal),
    };
    let nosniff = HeaderValue::from_static("nosniff");
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

async fn answered(
    answer: impl Future<Output = Response>,
    within: Option<Duration>,
) -> Result<Response, Refusal> {
    match within {
        None => Ok(answer.await),
        Some(within) => {
            tokio::time::timeout(within, answer).await.map_err(|_| Refusal::TooSlow(within))
        }
    }
}

/// Where it comes from; of IPv6 the network.
fn address(request: &Request) -> IpAddr {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    network(peer.map_or(INSIDE, |ConnectInfo(peer)| *peer).ip())
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

/// Everything here is JSON, YAML or gRPC. What else there is, forms and plain text among it, a page can send
/// anywhere without being asked about it.
fn check_content_type(headers: &HeaderMap, is_grpc: bool) -> Result<(), Refusal> {
    let is_taken = |kind: &str| {
        is_grpc && kind.starts_with("application/grpc")
            || ["json", "ndjson", "yaml"].iter().any(|format| {
                let (_, name) = kind.split_once('/').unwrap_or_default();
                name.rsplit(['+', '-']).next() == Some(format)
            })
    };
    match headers
        .get_all(header::CONTENT_TYPE)
        .iter()
        .map(content_type)
        .find(|kind| !is_taken(kind))
    {
        None => Ok(()),
        Some(kind) => Err(Refusal::ContentType(kind.chars().take(100).collect())),
    }
}

fn is_type(headers: &HeaderMap, fits: impl Fn(&str) -> bool) -> bool {
    headers.get_all(header::CONTENT_TYPE).iter().any(|value| fits(&content_type(value)))
}

/// In lower case, without parameters.
fn content_type(value: &HeaderValue) -> String {
    let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    text.split(';').next().unwrap_or_default().trim().to_owned()
}

/// Callbacks alone, as `run` takes them: there is no token but their own, so that all who ask are strangers.
pub fn protect_callbacks(app: Router, settings: &ServerSettings) -> Router {
    let (most, body_timeout) =
        (settings.max_body_bytes, Duration::from_millis(settings.body_timeout_ms));
    let (body, answer) = (STRANGERS_BODY.min(body_timeout), STRANGERS_ANSWER.min(body_timeout));
    app.layer(from_fn(move |mut request: Request, next: Next| async move {
        match body::bound(&mut request, most, body) {
            Ok(()) => answered(next.run(request), Some(answer))
                .await
                .unwrap_or_else(|refusal| refusal.response(false)),
            Err(refusal) => refusal.response(false),
        }
    }))
}
