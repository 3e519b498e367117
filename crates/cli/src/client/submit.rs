//! Jobs handed over: `submit`, and `retry` on a server. Each is one job however often it has to be
//! said, because of its idempotency key.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::api::{Body, Client};
use super::shapes::Warning;
use super::{files, follow};
use crate::args::{Output, RetryArgs, SubmitArgs};
use crate::error::CliError;
use crate::style::{DIM, inert, paint};
use crate::{Exit, input};

const SUBMISSION: &str = "application/vnd.steadfast.submission+json";
/// Before each time that it is said again.
pub(super) const PAUSES_MS: [u64; 4] = [200, 500, 1000, 2000];

pub(super) async fn submit(client: &Client, args: &SubmitArgs) -> Result<Exit, CliError> {
    let Some((job, source)) = input::job(&args.file, args.output)? else {
        return Ok(Exit::Wrong);
    };
    // What is odd about it the server says, by its own settings.
    let folder = match args.file.parent() {
        Some(folder) if args.file != Path::new("-") => folder,
        _ => Path::new(""),
    };
    let attached = files::attached(&job.plan, folder).map_err(CliError::wrong)?;
    let is_json = args.file.extension().is_some_and(|ext| ext.eq_ignore_ascii_case("json"));
    let body = if attached.is_empty() {
        let content_type = if is_json { "application/json" } else { "application/yaml" };
        Body { content_type, bytes: source.text.clone() }
    } else {
        let file = std::str::from_utf8(&source.text)
            .map_err(|_| CliError::wrong(format!("{} is not UTF-8 text", source.name)))?;
        let bytes = json!({ "file": file, "files": attached }).to_string().into_bytes();
        Body { content_type: SUBMISSION, bytes }
    };
    let key = args.idempotency_key.clone().unwrap_or_else(new_key);
    let created = match again(async || client.submit(&body, &key).await).await {
        Err(CliError::Refused(refused)) if !refused.errors.is_empty() => {
            let (code, shape) = (&refused.code, input::Shape::Error);
            input::refuse_file(code, &refused.errors, &source, args.output, shape)?;
            return Ok(Exit::Wrong);
        }
        answer => answer?,
    };
    for warning in &created.value.warnings {
        let Warning { code, path, line, message } = warning;
        // Beside the answer: what a program reads has them too, unless it waits for the status.
        if args.output == Output::Human || args.wait {
            input::warn_one(code.as_str(), path.as_str(), *line, message.as_str(), &source);
        }
    }
    let id = created.value.id.as_str();
    match (args.output, args.wait) {
        // As `run` does it: the final status, alone.
        (Output::Json, true) => {}
        (Output::Json, false) => input::print_text(&created.text)?,
        (Output::Human, _) => tell_id(&inert(id))?,
    }
    match (args.wait, args.output) {
        (false, _) => Ok(Exit::Ok),
        (true, Output::Json) => follow::wait(client, id, None, args.output).await,
        (true, Output::Human) => follow::attend(client, id).await,
    }
}

pub(super) async fn retry(client: &Client, args: &RetryArgs, id: &str) -> Result<Exit, CliError> {
    let key = new_key();
    let (from, reason) = (args.from.as_deref(), args.why.reason.as_deref());
    let answer = again(async || client.retry(id, from, args.grant, reason, &key).await).await?;
    let new = answer.value.id.as_str();
    match args.common.output {
        Output::Json => input::print_text(&answer.text)?,
        Output::Human => tell_id(&inert(new))?,
    }
    Ok(Exit::Ok)
}

/// Alone on its line, for `$(…)`.
fn tell_id(id: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{id}")?;
    out.flush()
}

pub(super) fn new_key() -> String {
    ulid::Ulid::generate().to_string().to_lowercase()
}

/// Asks again after what may be gone in a moment.
pub(super) async fn again<T>(ask: impl AsyncFn() -> Result<T, CliError>) -> Result<T, CliError> {
    for (times, pause) in PAUSES_MS.into_iter().enumerate() {
        match ask().await {
            Err(trouble) if trouble.is_passing() => {
                if times == 0 {
                    anstream::eprintln!("{}", paint(DIM, "no answer; trying again"));
                }
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            answer => return answer,
        }
    }
    ask().await
}
