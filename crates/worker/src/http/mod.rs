//! One attempt that somebody's web service has: one request, what came back, and what that means.
//!
//! | | |
//! |---|---|
//! | [`Caller`] | the connections of a process, and [`Caller::call`] |
//! | `request` | the step's words as a request, and what a redirect makes of it |
//! | `secrets` | put in at the last moment, and kept out of messages |
//! | `connect` | looked up once, checked, connected to what was checked; TLS |
//! | [`Allowed`] | which addresses may be called |
//! | `trouble` | why there is no usable answer |
//!
//! What an answer means is core's [`answer`](steadfast_core::answer). Tries nothing twice: whether there
//! is another attempt is decided elsewhere. Uses no proxy, no cookies and no compression, so that what a
//! job does follows from its file and not from the machine's environment.

mod address;
mod connect;
mod error;
mod request;
mod secrets;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{CONTENT_ENCODING, DATE, HeaderMap, RETRY_AFTER};
use hyper::{Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use steadfast_core::answer::{ServiceAnswer, answered};
use steadfast_core::event::ItemId;
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_core::plan::{Http, HttpMode};
use steadfast_core::time::human_ms;

pub use address::{Allowed, NotAllowable};
use connect::{Connector, Resolver, system_resolver};
use error::HttpError;
use request::{Draft, LastAddress, points_to};

use crate::Mask;

/// The largest answer, unless the operator says otherwise; as large as an output may be.
pub const RESPONSE_CAP: u64 = 1 << 20;
/// How long a handler that calls back may take to say that it will.
pub const ACCEPTED_WITHIN: Duration = Duration::from_secs(30);
/// How long a connection is kept unused. Shorter than the five seconds of common servers, so that no
/// request is written to a connection that is just being closed.
const KEPT_IDLE: Duration = Duration::from_secs(4);
/// HTTP/2 shares one connection; without asking, one that died silently would cost every attempt its timeout.
const PING_EVERY: Duration = Duration::from_secs(10);

/// What the operator says about calls to the outside.
#[derive(Clone, Debug)]
pub struct Outbound {
    /// Addresses that are called although they are not the internet's.
    pub allow: Vec<Allowed>,
    /// The largest answer, in bytes.
    pub response_cap: u64,
    /// Certificates, in PEM, of those who vouch for services besides whom the system trusts.
    pub more_roots: Vec<PathBuf>,
}

impl Default for Outbound {
    fn default() -> Self {
        Self { allow: vec![], response_cap: RESPONSE_CAP, more_roots: vec![] }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("there is no certificate to trust in {}: {why}", path.display())]
    Roots { path: PathBuf, why: String },
}

/// One attempt, its templates filled. Texts may have `\u{1}NAME\u{1}` where a secret belongs.
#[derive(Clone, Copy)]
pub struct HttpOrder<'a> {
    pub http: &'a Http,
    pub job_id: &'a str,
    /// The name of the item's step.
    pub step: &'a str,
    pub item: ItemId,
    pub datacenter: Option<&'a str>,
    /// From 1.
    pub attempt: u32,
    /// For `mode: async`.
    pub callback_url: Option<&'a str>,
    /// For everything, from the lookup of the name to the last byte. `None`: as long as the mode's default.
    pub timeout: Option<Duration>,
    pub secrets: &'a BTreeMap<String, String>,
}

impl fmt::Debug for HttpOrder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOrder")
            .field("http", self.http)
            .field("job_id", &self.job_id)
            .field("step", &self.step)
            .field("item", &self.item)
            .field("attempt", &self.attempt)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Called {
    Ended(Outcome),
    /// The handler has it, and will call back.
    AwaitsCallback,
}

/// Calls web services over connections that it keeps. Clones share them; all live in the runtime that
/// the first call is made in.
#[derive(Clone, Debug)]
pub struct Caller {
    client: Client<Connector, Full<Bytes>>,
    response_cap: u64,
    last: Arc<LastAddress>,
}

impl Caller {
    pub fn new(outbound: &Outbound) -> Result<Self, OutboundError> {
        Self::with_resolver(outbound, system_resolver())
    }

    fn with_resolver(outbound: &Outbound, resolver: Resolver) -> Result<Self, OutboundError> {
        let mut roots = Vec::new();
        for path in &outbound.more_roots {
            let wrong = |why: String| OutboundError::Roots { path: path.clone(), why };
            let before = roots.len();
            for root in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))? {
                roots.push(root.map_err(|error| wrong(error.to_string()))?);
            }
            if roots.len() == before {
                return Err(wrong("it must have `-----BEGIN CERTIFICATE-----`".to_owned()));
            }
        }
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(KEPT_IDLE)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_while_idle(false)
            .build(Connector::new(outbound.allow.clone(), roots, resolver));
        Ok(Self { client, response_cap: outbound.response_cap, last: Arc::default() })
    }

    /// Makes the attempt. Dropping the future ends it, and its connection.
    pub async fn call(&self, order: &HttpOrder<'_>) -> Called {
        let mode = order.http.mode;
        let default = Duration::from_millis(mode.default_timeout_ms());
        let longest = match (order.timeout.unwrap_or(default), mode) {
            (longest, HttpMode::Sync) => longest,
            (longest, HttpMode::Async) => longest.min(ACCEPTED_WITHIN),
        };
        let heard = AtomicU64::new(0);
        // Boxed, because it is large, and everything around it would move it about.
        let exchange = Box::pin(self.exchange(order, &heard));
        let called = match tokio::time::timeout(longest, exchange).await {
            Ok(Ok(called)) => called,
            Ok(Err(trouble)) => Called::Ended(trouble.into_outcome()),
            Err(_) => Called::Ended(too_late(longest, heard.into_inner())),
        };
        match called {
            Called::Ended(outcome) => {
                Called::Ended(Mask::new(order.secrets.values()).redact(outcome))
            }
            Called::AwaitsCallback => Called::AwaitsCallback,
        }
    }

    async fn exchange(
        &self,
        order: &HttpOrder<'_>,
        heard: &AtomicU64,
    ) -> Result<Called, HttpError> {
        let mut draft = Draft::new(order, &self.last)?;
        let mut followed = 0;
        let response = loop {
            let again = followed < order.http.redirects;
            let response = self.client.request(draft.request(again)).await?;
            match points_to(&response) {
                Some(location) if again => {
                    followed += 1;
                    draft.follow(response.status(), location)?;
                }
                _ => break response,
            }
        };
        let status = response.status();
        let retry_after = retry_after_of(response.headers());
        let encoded = encoding_of(response.headers());
        let body = self.read(response, heard).await?;
        let answer = match encoded {
            Some(how) if !body.is_empty() => ServiceAnswer::Encoded(how),
            _ => ServiceAnswer::read(&body),
        };
        let unread = matches!(answer, ServiceAnswer::Encoded(_) | ServiceAnswer::TooDeep);
        let accepted = order.http.mode == HttpMode::Async && status == StatusCode::ACCEPTED;
        if accepted && !unread && answer.said().is_none() {
            return Ok(Called::AwaitsCallback);
        }
        let outcome = answered(status.as_u16(), answer, order.http.expect, retry_after);
        Ok(Called::Ended(tell_redirect(outcome, followed, order.http.redirects)))
    }

    /// The whole body, or as little of it as shows that it is too large.
    async fn read(
        &self,
        response: Response<Incoming>,
        heard: &AtomicU64,
    ) -> Result<Vec<u8>, HttpError> {
        let mut body = response.into_body();
        let announced = body.size_hint();
        if announced.lower() > self.response_cap {
            return Err(HttpError::too_large(self.response_cap));
        }
        let mut bytes = Vec::with_capacity(announced.lower() as usize);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| HttpError::of_body(&error))?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            if (bytes.len() + data.len()) as u64 > self.response_cap {
                return Err(HttpError::too_large(self.response_cap));
            }
            bytes.extend_from_slice(data);
            heard.store(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(bytes)
    }
}

fn too_late(longest: Duration, heard: u64) -> Outcome {
    let longest = human_ms(u64::try_from(longest.as_millis()).unwrap_or(u64::MAX));
    let message = match heard {
        0 => format!("no answer within {longest}"),
        heard => format!("only {heard} bytes of the answer within {longest}"),
    };
    let error = Some(ErrorText { kind: Some("timeout".to_owned()), message });
    Outcome::Failed(Failure { error, ..Failure::new(FailureKind::TimedOut) })
}

/// A redirect is a status like others, once no more are followed. That is worth a word.
fn tell_redirect(outcome: Outcome, followed: u8, most: u8) -> Outcome {
    match outcome {
        Outcome::Failed(failure) if matches!(failure.http_status, Some(300..400)) => {
            let message = match followed {
                followed if followed < most => {
                    "a redirect that does not say where to, or to no address".to_owned()
                }
                0 => {
                    "a redirect, which the step does not follow (`redirects` says how many it does)"
                        .to_owned()
                }
                many => format!("yet another redirect, after the {many} that the step follows"),
            };
            let error = failure.error.or(Some(ErrorText { kind: None, message }));
            Outcome::Failed(Failure { error, ..failure })
        }
        outcome => outcome,
    }
}

/// What the body is wrapped in, although nothing was asked for.
fn encoding_of(headers: &HeaderMap) -> Option<String> {
    let how = headers.get(CONTENT_ENCODING)?;
    let how = String::from_utf8_lossy(how.as_bytes()).trim().to_ascii_lowercase();
    (!how.is_empty() && how != "identity").then(|| steadfast_core::text::quote(&how))
}

fn retry_after_of(headers: &HeaderMap) -> Option<u64> {
    let mut asked = headers.get_all(RETRY_AFTER).iter().filter_map(|value| value.to_str().ok());
    // Measured with the service's own clock, where it says what that shows.
    let shown = || headers.get(DATE).and_then(|date| unix_ms_of(date.to_str().ok()?));
    asked.find_map(|text| retry_after_ms(text, shown().unwrap_or_else(unix_ms)))
}

/// `Retry-After`: seconds, or a moment in any of the three ways to write one. What has passed is 0.
pub fn retry_after_ms(value: &str, now_unix_ms: u64) -> Option<u64> {
    let value = value.trim();
    if !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit()) {
        return Some(value.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1000));
    }
    unix_ms_of(value).map(|then| then.saturating_sub(now_unix_ms))
}

fn unix_ms_of(date: &str) -> Option<u64> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH);
    // Before 1970: long past.
    Some(since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
}

#[allow(
    clippy::disallowed_methods,
    reason = "a service that says when to come back says so in the time of calendars"
)]
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
