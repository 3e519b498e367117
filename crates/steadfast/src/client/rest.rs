//! What only the server's REST routes have: logs, explanations, and further commands. Asked over the connection
//! that gRPC has, so that a server within the process is asked in the same way.

use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use steadfast_api::{LogRow, LogsPage, OutputRow, OutputsPage};
use steadfast_core::event::Role;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::http::{Method, Request, StatusCode, header};

use super::{Client, ClientError, new_key};
use crate::{Explanation, Log, LogQuery, RetryOptions};

/// One request, which can be sent again.
struct RestRequest<'a> {
    method: Method,
    path: String,
    body: Option<String>,
    key: Option<&'a str>,
}

impl RestRequest<'_> {
    fn get(path: String) -> Self {
        Self { method: Method::GET, path, body: None, key: None }
    }

    fn post(path: String) -> Self {
        Self { method: Method::POST, path, body: None, key: None }
    }

    fn request(&self) -> Result<Request<Body>, ClientError> {
        let mut request = Request::builder().method(&self.method).uri(&self.path);
        if let Some(key) = self.key {
            request = request.header("idempotency-key", key);
        }
        let body = match &self.body {
            None => Body::empty(),
            Some(json) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::new(http_body_util::Full::from(json.clone()))
            }
        };
        request.body(body).map_err(|error| ClientError::Invalid(error.to_string()))
    }
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

impl Client {
    /// What attempts have printed, by step, item and attempt: processes all of it, functions with
    /// [`Context::log`](crate::Context::log). One that has printed nothing has none.
    ///
    /// ```no_run
    /// # async fn example(client: steadfast::Client, id: &str) -> Result<(), steadfast::ClientError> {
    /// use steadfast::LogQuery;
    ///
    /// for log in client.logs(id, &LogQuery::new().step("fetch").attempt(2)).await? {
    ///     print!("{}", log.text);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn logs(&self, job: &str, query: &LogQuery) -> Result<Vec<Log>, ClientError> {
        if query.attempt == Some(0) {
            let why = "there is no attempt 0: attempts are counted from 1".to_owned();
            return Err(ClientError::Invalid(why));
        }
        let mut files: Vec<LogRow> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let given = [("step", &query.step), ("cursor", &cursor)];
            let given = given.iter().filter_map(|(key, value)| Some((*key, value.as_deref()?)));
            let path = format!("{}{}", path(&["jobs", job, "logs"]), with_query(given));
            let page: LogsPage = self.read(&RestRequest::get(path)).await?;
            files.extend(page.logs.into_iter().filter(|file| query.wants(&file.of)));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        files.sort_by(|one, other| order(one).cmp(&order(other)));
        let mut logs = Vec::new();
        for LogRow { of, name, arriving, .. } in files {
            let bytes = self
                .fetch(&RestRequest::get(path(&["jobs", job, "logs", &of.step, &name])))
                .await?;
            logs.push(Log { of, arriving, text: String::from_utf8_lossy(&bytes).into_owned() });
        }
        Ok(logs)
    }

    /// What all items have given, or those of one step, in the order of datacenters, steps and items. A [status](crate::Status)
    /// has the first megabyte.
    ///
    /// ```no_run
    /// # async fn example(client: steadfast::Client, id: &str) -> Result<(), steadfast::ClientError> {
    /// for output in client.outputs(id, Some("index")).await? {
    ///     println!("{}: {}", output.item, output.output);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn outputs(
        &self,
        job: &str,
        step: Option<&str>,
    ) -> Result<Vec<OutputRow>, ClientError> {
        let mut outputs = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let given = [("step", step), ("cursor", cursor.as_deref())];
            let given = given.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
            let path = format!("{}{}", path(&["jobs", job, "outputs"]), with_query(given));
            let page: OutputsPage = self.read(&RestRequest::get(path)).await?;
            outputs.extend(page.outputs);
            cursor = page.next;
            if cursor.is_none() {
                return Ok(outputs);
            }
        }
    }

    /// Why the job is where it is: each decision, and what would have changed it.
    pub async fn explain(&self, job: &str) -> Result<Explanation, ClientError> {
        let path = path(&["jobs", job, "explain"]);
        self.read(&RestRequest::get(path)).await
    }

    /// Nothing new of it starts; what runs goes on. Pausing it again changes nothing.
    pub async fn pause(&self, job: &str) -> Result<(), ClientError> {
        self.fetch(&RestRequest::post(path(&["jobs", job, "pause"]))).await.map(drop)
    }

    /// A job that was paused goes on.
    pub async fn resume(&self, job: &str) -> Result<(), ClientError> {
        self.fetch(&RestRequest::post(path(&["jobs", job, "resume"]))).await.map(drop)
    }

    /// A new job that keeps what succeeded of one that has ended, and does the rest again. Its id.
    ///
    /// ```no_run
    /// # async fn example(client: steadfast::Client, id: &str) -> Result<(), steadfast::ClientError> {
    /// use steadfast::RetryOptions;
    ///
    /// let again = client.retry(id, &RetryOptions::new().grant(2)).await?;
    /// assert!(client.wait(&again).await?.is_success());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retry(&self, job: &str, options: &RetryOptions) -> Result<String, ClientError> {
        let mut body = Map::new();
        if let Some(step) = &options.from {
            body.insert("from".to_owned(), json!(step));
        }
        if let Some(grant) = options.grant {
            body.insert("grant".to_owned(), json!(grant));
        }
        let key = match &options.key {
            Some(key) => key.clone(),
            None => new_key()?,
        };
        let request = RestRequest {
            body: Some(Value::Object(body).to_string()),
            key: Some(&key),
            ..RestRequest::post(path(&["jobs", job, "retry"]))
        };
        let created: Created = self.read(&request).await?;
        Ok(created.id)
    }

    async fn read<T: DeserializeOwned>(&self, request: &RestRequest<'_>) -> Result<T, ClientError> {
        let bytes = self.fetch(request).await?;
        serde_json::from_slice(&bytes).map_err(ClientError::unintelligible)
    }

    async fn fetch(&self, request: &RestRequest<'_>) -> Result<Vec<u8>, ClientError> {
        let mut pauses = self.pauses();
        loop {
            match self.fetch_once(request.request()?).await {
                Ok(body) => return Ok(body),
                Err(status) => pauses.after(status).await?,
            }
        }
    }

    async fn fetch_once(&self, request: Request<Body>) -> Result<Vec<u8>, tonic::Status> {
        let away = |error: &dyn std::error::Error| tonic::Status::unavailable(error.to_string());
        let mut connected = self.connected.clone();
        let ready = std::future::poll_fn(|context| connected.poll_ready(context)).await;
        ready.map_err(|error| away(&error))?;
        let answer = connected.call(request).await.map_err(|error| away(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| away(&error))?;
        let body = body.to_bytes();
        // 202: the server's store has not confirmed it yet, so the same is said again, with the same key.
        if status.is_success() && status != StatusCode::ACCEPTED {
            return Ok(body.into());
        }
        Err(tonic::Status::new(code(status), problem(status, &body)))
    }
}

/// By step; its items before its fallback and its compensation.
fn order(log: &LogRow) -> (&str, Role, Option<&str>, u32, u32) {
    let of = &log.of;
    (&of.step, of.role, of.datacenter.as_deref(), of.item, of.attempt)
}

/// The code that gRPC has for it.
fn code(status: StatusCode) -> tonic::Code {
    match status.as_u16() {
        400 | 405 | 415 => tonic::Code::InvalidArgument,
        401 | 403 => tonic::Code::PermissionDenied,
        404 => tonic::Code::NotFound,
        409 => tonic::Code::FailedPrecondition,
        413 => tonic::Code::OutOfRange,
        429 | 507 => tonic::Code::ResourceExhausted,
        202 | 502..=504 => tonic::Code::Unavailable,
        _ => tonic::Code::Internal,
    }
}

/// What the server says is wrong.
fn problem(status: StatusCode, body: &[u8]) -> String {
    let said = serde_json::from_slice::<Value>(body).ok();
    let detail = said.as_ref().and_then(|said| said.get("detail")?.as_str());
    detail.map_or_else(|| format!("HTTP status {status}"), str::to_owned)
}

fn path(parts: &[&str]) -> String {
    parts.iter().fold("/v1".to_owned(), |path, part| format!("{path}/{}", escaped(part)))
}

fn with_query<'a>(given: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let given: Vec<String> =
        given.map(|(key, value)| format!("{key}={}", escaped(value))).collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

/// One part of a path, or a value of a query, whatever is in it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(byte as char);
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}
