//! The server's REST, typed: requests out, answers or a [`CliError`] back.
//!
//! Prints nothing and decides nothing. Whatever answers is taken for what it may be, a proxy's page
//! included; what a server says is made inert before it becomes part of a message.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use steadfast_api::{
    AttemptsPage, JobStatus, JobsPage, LogTimes, LogsPage, WorkerInfo, WorkersPage,
};
use steadfast_worker::remote::LocalToken;

use super::shapes::{Created, EventsPage};
use super::token::Token;
use crate::error::{CliError, Refused, causes, excerpt, unsafe_because};
use crate::input::Mistake;
use crate::logs::Times;
use crate::style::inert;

const CONNECT: Duration = Duration::from_secs(5);
/// A server that streams says something every 15 seconds; one that is silent for `SILENCE` is gone.
const SILENCE: Duration = Duration::from_mins(1);
/// No answer is larger; what is, comes from something else.
const MOST_BYTES: usize = 256 << 20;

/// What a profile says for TLS, in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trust {
    /// Who vouches for the server.
    pub(crate) ca: Option<Vec<u8>>,
    /// Who we are: a certificate and its key.
    pub(crate) identity: Option<Vec<u8>>,
}

/// Where a server is, and what it wants to see.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) url: Url,
    pub(crate) token: Option<Token>,
    pub(crate) trust: Trust,
    /// What to type to come here again, ` --server URL` as an example; empty if nothing.
    pub(crate) flags: String,
    /// It was found at the default address, which no flag named.
    pub(crate) is_default: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    token: Option<HeaderValue>,
    flags: String,
    is_default: bool,
}

/// An answer, and the very text of it.
#[derive(Clone, Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    pub(crate) text: String,
}

/// The body of a submission.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) content_type: &'static str,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) type Query<'a> = &'a [(&'a str, &'a str)];

impl Client {
    pub(crate) fn new(address: Address) -> Result<Self, CliError> {
        let Address { url, token, trust, flags, is_default } = address;
        steadfast_server::tls::use_ring();
        let mut builder = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            // A Steadfast server does not redirect; what does is another, and gets no token.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&url) {
            builder = builder.no_proxy();
        }
        if let Some(pem) = trust.ca {
            let certificates = reqwest::Certificate::from_pem_bundle(&pem).ok();
            let certificates = certificates.filter(|some| !some.is_empty()).ok_or_else(|| {
                CliError::wrong("what --ca or `ca` names is no PEM file of certificates".to_owned())
            })?;
            builder = builder.tls_certs_only(certificates);
        }
        if let Some(pem) = trust.identity {
            let identity = reqwest::Identity::from_pem(&pem).map_err(|_| {
                let why =
                    "the profile's `cert` and `key` are no PEM files of a certificate and a key";
                CliError::wrong(why)
            })?;
            builder = builder.identity(identity);
        }
        let http = builder.build().map_err(|error| {
            CliError::wrong(format!("cannot speak to a server: {}", deepest(&error)))
        })?;
        let token = token.as_ref().map(Token::header).transpose().map_err(CliError::wrong)?;
        Ok(Self { http, base: url, token, flags, is_default })
    }

    pub(crate) fn address(&self) -> String {
        self.base.as_str().trim_end_matches('/').to_owned()
    }

    /// A command to paste, that comes to this server too.
    pub(crate) fn hint(&self, command: &str) -> String {
        format!("steadfast {command}{}", self.flags)
    }

    /// How to go on with a job of `run` that is interrupted: where it ran, not at the server.
    pub(crate) fn resume_hint(&self, id: &str) -> String {
        if self.is_default {
            return format!("steadfast resume {id}");
        }
        format!(
            "steadfast resume {id} --data DIR, or --store URL: the data folder or the database that it was run with"
        )
    }

    pub(crate) async fn submit(&self, body: &Body, key: &str) -> Result<Answer<Created>, CliError> {
        let request = self
            .request(Method::POST, &["jobs"], &[])
            .header(CONTENT_TYPE, body.content_type)
            .header("idempotency-key", key)
            .body(body.bytes.clone());
        self.ask(request).await
    }

    /// Many jobs, a line for each; a line is answered for each, in order.
    pub(crate) async fn submit_many(&self, lines: String) -> Result<String, CliError> {
        let request = self.request(Method::POST, &["jobs", "bulk"], &[]);
        self.answer(request.header(CONTENT_TYPE, "application/x-ndjson").body(lines)).await
    }

    pub(crate) async fn jobs(&self, query: Query<'_>) -> Result<JobsPage, CliError> {
        Ok(self.get(&["jobs"], query).await?.value)
    }

    pub(crate) async fn status(&self, id: &str) -> Result<Answer<JobStatus>, CliError> {
        self.get(&["jobs", id], &[]).await
    }

    /// `cancel`, `pause` or `resume`.
    pub(crate) async fn command(
        &self,
        id: &str,
        command: &str,
        reason: Option<&str>,
    ) -> Result<Answer<JobStatus>, CliError> {
        let request = self.request(Method::POST, &["jobs", id, command], &[]);
        self.ask(request.json(&serde_json::json!({ "reason": reason }))).await
    }

    pub(crate) async fn what_if(
        &self,
        id: &str,
        step: Option<&str>,
        with: &serde_json::Value,
    ) -> Result<String, CliError> {
        let request = self.request(Method::POST, &["jobs", id, "what-if"], &[]);
        self.answer(request.json(&serde_json::json!({ "step": step, "with": with }))).await
    }

    pub(crate) async fn retry(
        &self,
        id: &str,
        from: Option<&str>,
        grant: Option<u32>,
        reason: Option<&str>,
        key: &str,
    ) -> Result<Answer<Created>, CliError> {
        let how = serde_json::json!({ "from": from, "grant": grant, "reason": reason });
        let request = self.request(Method::POST, &["jobs", id, "retry"], &[]);
        self.ask(request.header("idempotency-key", key).json(&how)).await
    }

    pub(crate) async fn events(&self, id: &str, query: Query<'_>) -> Result<EventsPage, CliError> {
        Ok(self.get(&["jobs", id, "events"], query).await?.value)
    }

    /// Events after that one, as they come.
    pub(crate) async fn follow(&self, id: &str, after: u64) -> Result<Response, CliError> {
        let request = self
            .request(Method::GET, &["jobs", id, "events"], &[])
            .header("accept", "text/event-stream")
            .header("last-event-id", after);
        let response = self.send(request).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        if kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            return Ok(response);
        }
        let kind = inert(kind.unwrap_or("something without a content type")).into_owned();
        Err(self.odd(format!("it sends {kind} instead of events")))
    }

    /// What is answered, as it was written.
    pub(crate) async fn text(&self, path: &[&str], query: Query<'_>) -> Result<String, CliError> {
        self.answer(self.request(Method::GET, path, query)).await
    }

    pub(crate) async fn attempts(
        &self,
        id: &str,
        query: Query<'_>,
    ) -> Result<AttemptsPage, CliError> {
        Ok(self.get(&["jobs", id, "attempts"], query).await?.value)
    }

    pub(crate) async fn logs(&self, id: &str, query: Query<'_>) -> Result<LogsPage, CliError> {
        Ok(self.get(&["jobs", id, "logs"], query).await?.value)
    }

    /// One log from a byte on, to be read in pieces.
    pub(crate) async fn log(
        &self,
        id: &str,
        step: &str,
        name: &str,
        offset: u64,
    ) -> Result<Response, CliError> {
        let offset = offset.to_string();
        let path = ["jobs", id, "logs", step, name];
        self.send(self.request(Method::GET, &path, &[("offset", &offset)])).await
    }

    /// When what was printed.
    pub(crate) async fn log_times(
        &self,
        id: &str,
        step: &str,
        name: &str,
    ) -> Result<Times, CliError> {
        let path = ["jobs", id, "logs", step, name, "times"];
        let answer: LogTimes = self.get(&path, &[]).await?.value;
        Ok(Times::new(answer.times.iter().map(|time| (time.offset, time.at_ms)).collect()))
    }

    pub(crate) async fn workers(&self) -> Result<Answer<WorkersPage>, CliError> {
        self.get(&["workers"], &[]).await
    }

    pub(crate) async fn undrain(&self, name: &str) -> Result<Answer<WorkerInfo>, CliError> {
        self.ask(self.request(Method::POST, &["workers", name, "undrain"], &[])).await
    }

    pub(crate) async fn drain(&self, name: &str) -> Result<Answer<WorkerInfo>, CliError> {
        self.ask(self.request(Method::POST, &["workers", name, "drain"], &[])).await
    }

    async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: Query<'_>,
    ) -> Result<Answer<T>, CliError> {
        self.ask(self.request(Method::GET, path, query)).await
    }

    /// `path`: below `/v1`, in segments, so that none of them becomes two.
    fn request(&self, method: Method, path: &[&str], query: Query<'_>) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        match self.authorization() {
            Some(token) => request.header(AUTHORIZATION, token),
            None => request,
        }
    }

    /// Without a token, what an `up` of this user has left; looked for each time, because one that is started
    /// again has another.
    fn authorization(&self) -> Option<HeaderValue> {
        self.token.clone().or_else(|| {
            let left = LocalToken::Client.find(self.base.as_str())?;
            Token::from(left.0).header().ok()
        })
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Answer<T>, CliError> {
        let text = self.answer(request).await?;
        match serde_json::from_str(&text) {
            Ok(value) => Ok(Answer { value, text }),
            Err(error) => Err(CliError::unreadable_answer(self.address(), &error, &text)),
        }
    }

    async fn answer(&self, request: RequestBuilder) -> Result<String, CliError> {
        let response = self.send(request).await?;
        let bytes = self.body(response).await?;
        String::from_utf8(bytes).map_err(|_| self.odd("it sends bytes, not JSON"))
    }

    /// Answers that are no errors.
    async fn send(&self, request: RequestBuilder) -> Result<Response, CliError> {
        let sent = self.authorization();
        let response = request.send().await.map_err(|error| self.unreached(&error))?;
        let status = response.status();
        // 202: the server's store has not confirmed it, which is no answer yet.
        if status.is_success() && status != StatusCode::ACCEPTED {
            return Ok(response);
        }
        if status == StatusCode::UNAUTHORIZED && self.authorization() != sent {
            return Err(self.no_server("it has been started again, with another token".to_owned()));
        }
        let kind = response.headers().get(CONTENT_TYPE);
        let is_problem = status == StatusCode::ACCEPTED
            || kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/problem+json"));
        let body = self.body(response).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&body);
        match serde_json::from_str::<ProblemBody>(&text) {
            Ok(problem) if is_problem => Err(CliError::Refused(problem.refused(self, status))),
            _ => Err(self.not_ours(status, &text)),
        }
    }

    async fn body(&self, mut response: Response) -> Result<Vec<u8>, CliError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreached(&error))? {
            if bytes.len() + chunk.len() > MOST_BYTES {
                return Err(self.odd(format!("its answer has more than {MOST_BYTES} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// An error of something between us and the server, or of none of ours.
    fn not_ours(&self, status: StatusCode, text: &str) -> CliError {
        let passing = matches!(
            status,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        );
        if passing {
            return self.no_server(format!("something before it answers {status}"));
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            let detail = excerpt(text);
            let code = "unauthorized".to_owned();
            return CliError::Refused(Refused {
                address: self.address(),
                with_token: self.token.is_some(),
                status: status.as_u16(),
                code,
                detail,
                errors: vec![],
            });
        }
        self.odd(format!("it answers {status} with {}", excerpt(text)))
    }

    pub(crate) fn odd(&self, what: impl Into<String>) -> CliError {
        CliError::Odd { address: self.address(), what: what.into() }
    }

    /// A stream stopped before its end: the server is going away, or something cut it off.
    pub(crate) fn ended(&self) -> CliError {
        self.no_server("the connection was cut".to_owned())
    }

    pub(crate) fn unreached(&self, error: &reqwest::Error) -> CliError {
        if let Some(why) = unsafe_because(error) {
            return CliError::Tls { address: self.address(), why };
        }
        self.no_server(if error.is_timeout() {
            "it took too long to answer".to_owned()
        } else if error.is_body() || error.is_decode() {
            "the connection was cut".to_owned()
        } else if self.base.scheme() == "http" && is_no_http(error) {
            "what answers there speaks no HTTP; is it https:// instead of http://?".to_owned()
        } else {
            deepest(error)
        })
    }

    fn no_server(&self, why: String) -> CliError {
        CliError::NoServer { address: self.address(), why, is_default: self.is_default }
    }
}

/// This machine: no proxy is between, and no network to listen on.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// As when TLS is answered to a plain question.
fn is_no_http(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = causes(error);
    causes.any(|cause| cause.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_parse))
}

/// The cause of causes: the others only say that something went wrong.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    let io = deepest.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    match io {
        Some(std::io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(std::io::ErrorKind::ConnectionReset) => "the connection was cut".to_owned(),
        _ => inert(&deepest.to_string()).into_owned(),
    }
}

#[derive(Debug, Deserialize)]
struct ProblemBody {
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    errors: Vec<Mistake>,
}

impl ProblemBody {
    fn refused(self, client: &Client, status: StatusCode) -> Refused {
        let Self { code, title, detail, errors } = self;
        let detail = detail.or(title).unwrap_or_else(|| format!("the server answers {status}"));
        Refused {
            address: client.address(),
            with_token: client.token.is_some(),
            status: status.as_u16(),
            code: inert(code.as_deref().unwrap_or("refused")).into_owned(),
            detail: inert(&detail).into_owned(),
            errors: errors.into_iter().map(Mistake::made_inert).collect(),
        }
    }
}
