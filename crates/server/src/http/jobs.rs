//! Jobs: submitted, listed, looked at, and told to cancel, pause, resume or run again.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::json;
use steadfast_api::{JobStatus, ShownState};
use steadfast_core::event::{CompletionReason, Requester};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;
use tokio::time::timeout;

use super::query::{Names, Params};
use super::{App, body};
use crate::caller::Caller;
use crate::commands::{AttachedFile, RetryRequest, Submitted};
use crate::end_of_job::EndOfJob;
use crate::error::ApiError;
use crate::job_changes::AsOf;
use crate::queries::{JobFilter, wire_counts};

pub(super) const SUBMISSION: &str = "application/vnd.steadfast.submission+json";
/// Beside the job file and the files: the rest of a submission's JSON.
const WRAPPING: usize = 1 << 20;
/// How long a submission waits for its job's end, if it is asked to: less than the 10 s after which many a client gives up.
const WAITS: Duration = Duration::from_secs(8);
/// What `cancel`, `retry` and the like are told.
const COMMAND_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubmissionBody {
    file: String,
    #[serde(default)]
    files: Vec<FileBody>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileBody {
    path: String,
    content_base64: String,
    #[serde(default)]
    executable: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RetryBody {
    #[serde(default)]
    from: Option<String>,
    #[serde(default)]
    grant: Option<Whole>,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CommandBody {
    #[serde(default)]
    reason: Option<String>,
}

/// JSON knows no whole numbers: 2.0 is 2.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "f64")]
pub(super) struct Whole(pub(super) u32);

impl TryFrom<f64> for Whole {
    type Error = String;

    fn try_from(number: f64) -> Result<Self, String> {
        let fits = number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&number);
        let most = u32::MAX;
        if fits { Ok(Self(number as u32)) } else { Err(format!("{number} is not 0 to {most}")) }
    }
}

pub(super) async fn submit(
    State(app): State<App>,
    params: Params,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let key = idempotency_key(&headers)?;
    let waits = params.flag("wait")?;
    let most = app.operator.max_file_bytes;
    let content_type = body::content_type(&headers);
    let (name, text, files) = match content_type.as_deref() {
        Some("application/json") => ("job.json", body::read(&headers, body, most).await?, vec![]),
        Some("application/yaml" | "application/x-yaml" | "text/yaml" | "text/x-yaml") => {
            ("job.yaml", body::read(&headers, body, most).await?, vec![])
        }
        Some(SUBMISSION) => {
            // Text may take twice its bytes as a JSON string, base64 a third more.
            let most = most.saturating_mul(2) + app.commands.attached().bytes / 3 * 4 + WRAPPING;
            let bytes = body::read(&headers, body, most).await?;
            let (text, files) = tokio::task::spawn_blocking(move || submission(&bytes))
                .await
                .map_err(ApiError::internal)??;
            ("job.yaml", text, files)
        }
        other => {
            return Err(ApiError::UnsupportedMedia(format!(
                "a job file is application/yaml or application/json, with files {SUBMISSION}; not {}",
                other.unwrap_or("without a content type")
            )));
        }
    };
    if !waits {
        return created(
            &app.commands.submit_file(app.commands.new_id()?, text, name, files, key).await?,
            None,
        );
    }
    let App { commands, reader, notifications, .. } = &app;
    let submit = |id| commands.submit_file(id, text, name, files, key);
    let (submitted, end) =
        EndOfJob::submit(reader, notifications, commands.new_id()?, submit).await?;
    let ended = timeout(WAITS, end.status()).await.ok().transpose()?;
    created(&submitted, ended.as_deref())
}

fn submission(bytes: &[u8]) -> Result<(Vec<u8>, Vec<AttachedFile>), ApiError> {
    let body: SubmissionBody = read_json(bytes)?;
    let files = body.files.into_iter().map(|file| {
        let content = STANDARD.decode(&file.content_base64).map_err(|error| {
            ApiError::BadRequest(format!("the content of {:?} is not base64: {error}", file.path))
        })?;
        Ok(AttachedFile { path: file.path, content, executable: file.executable })
    });
    Ok((body.file.into_bytes(), files.collect::<Result<_, ApiError>>()?))
}

pub(super) fn read_json<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, ApiError> {
    // An array of its values would be read as one, too.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(ApiError::BadRequest("a body here is a JSON object, {…}".to_owned()));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        ApiError::BadRequest(format!("the body is not what it should be: {error}"))
    })
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut given = headers.get_all("idempotency-key").iter();
    let (key, more) = (given.next(), given.next());
    if more.is_some() {
        return Err(ApiError::BadRequest("`Idempotency-Key` is given more than once".to_owned()));
    }
    let unreadable =
        |_| ApiError::BadRequest("an idempotency key has visible ASCII characters only".to_owned());
    key.map(|key| key.to_str().map(str::to_owned).map_err(unreadable)).transpose()
}

/// 201 of a new job, 200 of one that this very submission has made before.
fn created(submitted: &Submitted, ended: Option<&JobStatus>) -> Result<Response, ApiError> {
    let Submitted { id, existing, warnings } = submitted;
    let status = if *existing { StatusCode::OK } else { StatusCode::CREATED };
    let mut body = json!({ "id": id, "warnings": warnings });
    if let Some(ended) = ended {
        body["job"] = serde_json::to_value(ended).map_err(ApiError::internal)?;
    }
    let mut response = super::json(status, &body)?;
    let location = HeaderValue::from_str(&format!("/v1/jobs/{id}")).map_err(ApiError::internal)?;
    response.headers_mut().insert("location", location);
    Ok(response)
}

pub(super) async fn counts(State(app): State<App>) -> Response {
    let counts = async { Ok(wire_counts(&app.reader.counts().await?)) };
    let question = ("/v1/jobs/counts", String::new());
    app.shared.answer(app.notifications.changes(), question, None, counts).await
}

pub(super) async fn list(State(app): State<App>, params: Params) -> Result<Response, ApiError> {
    let states = params.all("state").map(read_state).collect::<Result<_, _>>()?;
    let text = |name| Ok::<_, ApiError>(params.text(name)?.map(str::to_owned));
    let at = |name| Ok::<_, ApiError>(params.number(name, A_TIME)?.map(Timestamp));
    let filter = JobFilter {
        states,
        name: text("name")?,
        label: params.text("label")?.map(read_label).transpose()?,
        text: text("text")?,
        since: at("since_ms")?,
        until: at("until_ms")?,
        reason: params.text("reason")?.map(read_reason).transpose()?,
    };
    let (cursor, limit) = (text("cursor")?, params.limit(app.limits.jobs)?);
    let changes = app.notifications.changes();
    let as_of = match params.text("as_of")? {
        None => None,
        Some(text) => read_as_of(text)?.message_of(changes),
    };
    let question = ("/v1/jobs", format!("{filter:?} {cursor:?} {limit}"));
    let page = app.reader.list(filter, cursor, limit);
    Ok(app.shared.answer(changes, question, as_of, page).await)
}

fn read_as_of(text: &str) -> Result<AsOf, ApiError> {
    let wrong = || ApiError::BadRequest(format!("`as_of` must be that of a message, not {text:?}"));
    text.parse().map_err(|()| wrong())
}

const A_TIME: &str = "a time in Unix milliseconds";

pub(super) fn read_state(text: &str) -> Result<ShownState, ApiError> {
    text.parse().map_err(|why| ApiError::BadRequest(format!("`state`: {why}")))
}

pub(super) fn read_label(text: &str) -> Result<(String, String), ApiError> {
    let wrong = || ApiError::BadRequest(format!("`label` must be NAME=VALUE, not {text:?}"));
    let (name, value) =
        text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(wrong)?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Why a job ended, or an item was given up.
pub(super) fn read_reason(text: &str) -> Result<String, ApiError> {
    let stops = StopReason::ALL.iter().map(|reason| reason.name());
    let mut known = stops.chain(CompletionReason::ALL.iter().map(|reason| reason.name()));
    if known.any(|known| known == text) {
        return Ok(text.to_owned());
    }
    let why = format!("`reason`: {text:?} is none; docs/stop-reasons.md lists them");
    Err(ApiError::BadRequest(why))
}

pub(super) async fn status(
    State(app): State<App>,
    Names(id): Names<String>,
) -> Result<Response, ApiError> {
    super::json(StatusCode::OK, &*app.reader.status(&id).await?)
}

pub(super) async fn explain(
    State(app): State<App>,
    Names(id): Names<String>,
    params: Params,
) -> Result<Response, ApiError> {
    let now = (app.clock)();
    let mut explained = app.reader.explain(&id, params.text("step")?, now).await?;
    // Without the engine's word on its workers the rest is still true.
    if let Ok(reasons) = app.workers.why_not_running(&id).await {
        explained.tell_why_not_running(&reasons);
    }
    super::json(StatusCode::OK, &explained)
}

pub(super) async fn attempts(
    State(app): State<App>,
    Names(id): Names<String>,
    params: Params,
) -> Result<Response, ApiError> {
    let (cursor, limit) = (params.text("cursor")?, params.limit(app.limits.items)?);
    super::json(StatusCode::OK, &app.reader.attempts(&id, cursor, limit).await?)
}

pub(super) async fn outputs(
    State(app): State<App>,
    Names(id): Names<String>,
    params: Params,
) -> Result<Response, ApiError> {
    let (step, cursor) = (params.text("step")?, params.text("cursor")?);
    let limit = params.limit(app.limits.items)?;
    super::json(StatusCode::OK, &app.reader.outputs(&id, step, cursor, limit).await?)
}

pub(super) async fn readiness(
    State(app): State<App>,
    Names(id): Names<String>,
    params: Params,
) -> Result<Response, ApiError> {
    let (cursor, limit) = (params.text("cursor")?, params.limit(app.limits.items)?);
    super::json(StatusCode::OK, &app.reader.readiness(&id, cursor, limit, (app.clock)()).await?)
}

pub(super) async fn cancel(
    State(app): State<App>,
    Names(id): Names<String>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let requested = command(&caller, &headers, body).await?;
    app.commands.cancel(&id, requested).await?;
    super::json(StatusCode::OK, &*app.reader.status(&id).await?)
}

pub(super) async fn pause(
    State(app): State<App>,
    Names(id): Names<String>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let requested = command(&caller, &headers, body).await?;
    app.commands.pause(&id, requested).await?;
    super::json(StatusCode::OK, &*app.reader.status(&id).await?)
}

pub(super) async fn resume(
    State(app): State<App>,
    Names(id): Names<String>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let requested = command(&caller, &headers, body).await?;
    app.commands.resume(&id, requested).await?;
    super::json(StatusCode::OK, &*app.reader.status(&id).await?)
}

/// Who asks for something, and why.
async fn command(caller: &Caller, headers: &HeaderMap, body: Body) -> Result<Requester, ApiError> {
    let CommandBody { reason } = optional_json(headers, body).await?;
    caller.requests(reason.as_deref())
}

/// Nothing, or JSON.
pub(super) async fn optional_json<T>(headers: &HeaderMap, body: Body) -> Result<T, ApiError>
where
    T: Default + for<'de> Deserialize<'de>,
{
    body::refuse_forms(headers)?;
    let bytes = body::read(headers, body, COMMAND_BYTES).await?;
    let said = body::content_type(headers);
    match said.as_deref() {
        _ if bytes.is_empty() => Ok(T::default()),
        Some("application/json") => read_json(&bytes),
        _ => Err(ApiError::UnsupportedMedia("a body here is application/json".to_owned())),
    }
}

pub(super) async fn retry(
    State(app): State<App>,
    Names(id): Names<String>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let key = idempotency_key(&headers)?;
    let RetryBody { from, grant, reason } = optional_json(&headers, body).await?;
    let requested = caller.requests(reason.as_deref())?;
    let grant = grant.map(|Whole(grant)| grant);
    created(&app.commands.retry(&id, RetryRequest { from, grant, requested, key }).await?, None)
}
