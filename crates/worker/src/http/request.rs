//! One request, from what the step says: address, headers, body, and what a redirect makes of them.
//!
//! Whatever cannot be sent is a failure that says why; nothing is repaired, and nothing is connected yet.

use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};
use std::{fmt, mem};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONNECTION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH,
    CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, TE, TRAILER, TRANSFER_ENCODING,
    UPGRADE, USER_AGENT,
};
use hyper::{Method, Request, Response, StatusCode, Uri};
use serde_json::Value;
use steadfast_core::plan::HttpMode;
use steadfast_core::text::quote;
use url::Url;

use super::HttpOrder;
use super::error::HttpError;
use super::secrets::Secrets;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const CALLBACK_URL: HeaderName = HeaderName::from_static("steadfast-callback-url");
/// Sent to another origin too, besides ours. Anything else may be a key to the first one.
const HARMLESS: [HeaderName; 5] =
    [ACCEPT, ACCEPT_LANGUAGE, CONTENT_TYPE, USER_AGENT, IDEMPOTENCY_KEY];
/// What [`add_ours`] and the client add at most.
const OUR_HEADERS: usize = 12;
/// What [`add_ours`] says of the attempt, whatever the step says.
const OURS_SAY: [&str; 5] = [
    "steadfast-job-id",
    "steadfast-step",
    "steadfast-item",
    "steadfast-attempt",
    "steadfast-datacenter",
];
/// What belongs to the connection, which is not the step's. A wrong length would be somebody else's request.
const OURS: [HeaderName; 6] = [CONNECTION, CONTENT_LENGTH, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

pub(super) struct Draft {
    method: Method,
    url: Url,
    /// The url, as it is sent.
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    /// With a secret in them, which is for one origin alone.
    secret_headers: Vec<HeaderName>,
    secret_body: bool,
    /// The handler must know where to call back.
    calls_back: bool,
}

impl Draft {
    pub(super) fn new(order: &HttpOrder<'_>, last: &LastAddress) -> Result<Self, HttpError> {
        let http = order.http;
        let secrets = Secrets(order.secrets);
        let method = Method::from_bytes(http.method.as_bytes())
            .ok()
            .filter(|method| *method != Method::CONNECT)
            .ok_or_else(|| {
                HttpError::lasting("bad_request", format!("{} is no method", quote(&http.method)))
            })?;
        let (mut url, mut uri) = last.or_read(&secrets.url(&http.url)?)?;
        if !http.query.is_empty() {
            let mut pairs = url.query_pairs_mut();
            for (name, value) in &http.query {
                pairs.append_pair(&secrets.text(name)?, &secrets.text(value)?);
            }
            drop(pairs);
            uri = sendable(&url)?;
        }
        let mut secret_headers = Vec::new();
        let mut headers = HeaderMap::with_capacity(http.headers.len() + OUR_HEADERS);
        for (name, value) in &http.headers {
            let filled = secrets.text(value)?;
            let (name, mut value) = (header_name(name)?, header_value(name, &filled)?);
            if matches!(filled, Cow::Owned(_)) {
                secret_headers.push(name.clone());
            }
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let body = http.body.as_ref().map(|body| secrets.json(body)).transpose()?;
        let secret_body = matches!(body, Some(Cow::Owned(_)));
        let body = body.map_or_else(Bytes::new, |body| encode(&body, &mut headers));
        add_ours(&mut headers, order)?;
        secret_headers.retain(|name: &HeaderName| !OURS_SAY.contains(&name.as_str()));
        let calls_back = http.mode == HttpMode::Async;
        Ok(Self { method, url, uri, headers, body, secret_headers, secret_body, calls_back })
    }

    /// `again`: it may have to be sent elsewhere too. If not, nothing is copied.
    pub(super) fn request(&mut self, again: bool) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() =
            if again { self.headers.clone() } else { mem::take(&mut self.headers) };
        request
    }

    /// Turns to where an answer points, as other clients do: after a 303, and after a 301 or 302 to a POST,
    /// it is a GET without body. Another origin gets no key that was meant for the first.
    pub(super) fn follow(&mut self, status: StatusCode, location: &str) -> Result<(), HttpError> {
        let next = self.url.join(location).map_err(|error| bad_url(&error.to_string()));
        let next = next.and_then(checked).map_err(|trouble| {
            HttpError::lasting("bad_redirect", format!("it redirects to no address: {trouble}"))
        })?;
        let becomes_get = match status {
            StatusCode::SEE_OTHER => self.method != Method::HEAD,
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => self.method == Method::POST,
            _ => false,
        };
        if becomes_get {
            self.method = Method::GET;
            self.body = Bytes::new();
            self.secret_body = false;
            for name in [CONTENT_TYPE, CONTENT_ENCODING, CONTENT_LANGUAGE] {
                self.headers.remove(name);
            }
        }
        if next.origin() != self.url.origin() {
            if self.calls_back {
                return Err(refused("the address for its callback is not told to others"));
            }
            if self.secret_body {
                return Err(refused("there is a secret in its body"));
            }
            let leave = |name: &HeaderName| {
                !(HARMLESS.contains(name) || OURS_SAY.contains(&name.as_str()))
                    || self.secret_headers.contains(name)
            };
            let left: Vec<HeaderName> = self.headers.keys().filter(|n| leave(n)).cloned().collect();
            for name in left {
                self.headers.remove(name);
            }
        }
        self.uri = sendable(&next)?;
        self.url = next;
        Ok(())
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("method", &self.method).finish_non_exhaustive()
    }
}

/// Where an answer points to, if it is one that can be followed.
pub(super) fn points_to<B>(response: &Response<B>) -> Option<&str> {
    match response.status().as_u16() {
        301 | 302 | 303 | 307 | 308 => response.headers().get(LOCATION)?.to_str().ok(),
        _ => None,
    }
}

fn refused(why: &str) -> HttpError {
    let message = format!("it redirects to another origin, which is not followed: {why}");
    HttpError::lasting("bad_redirect", message)
}

fn bad_url(why: &str) -> HttpError {
    HttpError::lasting("bad_url", format!("the address cannot be called: {why}"))
}

fn address(text: &str) -> Result<Url, HttpError> {
    let has_breaks = text.contains(|c: char| c.is_control());
    if has_breaks {
        // Other clients leave them out, and call what nobody wrote.
        return Err(bad_url("there is a line break or another control character in it"));
    }
    Url::parse(text.trim()).map_err(|error| bad_url(&error.to_string())).and_then(checked)
}

fn sendable(url: &Url) -> Result<Uri, HttpError> {
    Uri::try_from(url.as_str()).map_err(|error| bad_url(&format!("it cannot be sent: {error}")))
}

/// The last one that was read: mostly, it is that of the next call too.
#[derive(Default)]
pub(super) struct LastAddress(Mutex<Option<(String, Url, Uri)>>);

impl LastAddress {
    fn or_read(&self, text: &str) -> Result<(Url, Uri), HttpError> {
        let held = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, url, uri)) = &*held()
            && known == text
        {
            return Ok((url.clone(), uri.clone()));
        }
        let url = address(text)?;
        let uri = sendable(&url)?;
        *held() = Some((text.to_owned(), url.clone(), uri.clone()));
        Ok((url, uri))
    }
}

/// There may be a secret in it.
impl fmt::Debug for LastAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastAddress").finish_non_exhaustive()
    }
}

fn checked(mut url: Url) -> Result<Url, HttpError> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad_url("it is neither http nor https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad_url("there are credentials in it; put them into the header Authorization"));
    }
    url.set_fragment(None);
    Ok(url)
}

fn header_name(name: &str) -> Result<HeaderName, HttpError> {
    let bad =
        |why: &str| HttpError::lasting("bad_header", format!("the header {} {why}", quote(name)));
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad("has no proper name"))?;
    if OURS.contains(&name) {
        return Err(bad("cannot be set: it belongs to the connection"));
    }
    Ok(name)
}

fn header_value(name: &str, value: &str) -> Result<HeaderValue, HttpError> {
    if let (true, Ok(value)) = (value.is_ascii(), HeaderValue::from_str(value)) {
        return Ok(value);
    }
    let why = if value.contains(['\r', '\n']) {
        "a line break"
    } else if !value.is_ascii() {
        "characters beyond ASCII"
    } else {
        "control characters"
    };
    let message = format!("the header {} would hold {why}", quote(name));
    Err(HttpError::lasting("bad_header", message))
}

/// JSON, unless it is a text that the step says is something else.
fn encode(body: &Value, headers: &mut HeaderMap) -> Bytes {
    let json = headers.get(CONTENT_TYPE).is_none_or(|kind| {
        let kind = kind.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        let kind = kind.trim().to_ascii_lowercase();
        kind == "application/json" || kind.ends_with("+json")
    });
    match body {
        Value::String(text) if !json => Bytes::copy_from_slice(text.as_bytes()),
        body => {
            headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
            Bytes::from(serde_json::to_vec(body).expect("a value is JSON"))
        }
    }
}

/// What every request says of itself. The step may say otherwise, except in the names that are ours.
fn add_ours(headers: &mut HeaderMap, order: &HttpOrder<'_>) -> Result<(), HttpError> {
    let item = order.item;
    let key = item.idempotency_key(order.job_id, order.step);
    let key = header_value("Idempotency-Key", &key)?;
    headers.entry(IDEMPOTENCY_KEY).or_insert(key);
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    let agent = concat!("steadfast/", env!("CARGO_PKG_VERSION"));
    headers.entry(USER_AGENT).or_insert(HeaderValue::from_static(agent));
    let [job_id, step, item_index, attempt, datacenter_name] = OURS_SAY;
    let mut ours = |name, value| drop(headers.insert(HeaderName::from_static(name), value));
    let text = |name, value| Ok::<_, HttpError>((name, header_value(name, value)?));
    let texts = [text(job_id, order.job_id)?, text(step, order.step)?];
    let datacenter = order.datacenter.map(|value| text(datacenter_name, value)).transpose()?;
    texts.into_iter().chain(datacenter).for_each(|(name, value)| ours(name, value));
    ours(item_index, item.index.into());
    ours(attempt, order.attempt.into());
    headers.remove(CALLBACK_URL);
    if order.http.mode == HttpMode::Async {
        let url = order.callback_url.ok_or_else(|| {
            let message = "nobody can be called back here, and the step is `mode: async`";
            HttpError::passing("no_callback", message)
        })?;
        headers.insert(CALLBACK_URL, header_value("Steadfast-Callback-Url", url)?);
    }
    Ok(())
}
