//! Many jobs in one request: a line of JSON for each, or an array of them. Each is taken or refused by itself, and answered
//! in order, with a line or in an array.

use std::convert::Infallible;
use std::str::FromStr;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt as _, stream};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{App, body};
use crate::commands::{AT_ONCE, Submitted};
use crate::error::ApiError;

pub(super) const LINES: &str = "application/x-ndjson";
/// Answers to one request are kept until they are read: many a client sends all before it reads anything.
const MOST: usize = 100_000;
/// An array is read to its end before anything of it is taken; lines are taken as they come, and have no such limit.
const ARRAY_BYTES: usize = 16 << 20;
/// Beside the job itself.
const WRAPPING: usize = 1024;

/// A line of a request, or an element of its array.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    job: Box<RawValue>,
    #[serde(default)]
    idempotency_key: Option<String>,
}
const LINE: &str = r#"{"job": {…}, "idempotency_key": "…"}"#;

impl FromStr for Line {
    type Err = ApiError;

    fn from_str(text: &str) -> Result<Self, ApiError> {
        let wrong = |why: &str| ApiError::BadRequest(format!("a job here is {LINE}: {why}"));
        // An array of its values would be read as one, too.
        if !text.trim_ascii_start().starts_with('{') {
            return Err(wrong("it does not begin with {"));
        }
        serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))
    }
}

pub(super) async fn submit_many(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    match body::content_type(&headers).as_deref() {
        Some(LINES) => Ok(submit_lines(app, body)),
        Some("application/json") => submit_array(&app, &headers, body).await,
        _ => Err(ApiError::UnsupportedMedia(format!(
            "many jobs are {LINES}, one in each line, or application/json, an array of them"
        ))),
    }
}

async fn submit_array(app: &App, headers: &HeaderMap, body: Body) -> Result<Response, ApiError> {
    let bytes = body::read(headers, body, ARRAY_BYTES).await?;
    let jobs: Vec<&RawValue> = serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::BadRequest(format!("the body is not [{LINE}, …]: {error}")))?;
    if jobs.len() > MOST {
        return Err(too_many());
    }
    let jobs: Vec<Line> = jobs.iter().map(|job| job.get().parse()).collect::<Result<_, _>>()?;
    let answers = stream::iter(jobs).map(|job| async { answer(&submit(app, job).await) });
    let answers: Vec<Value> = answers.buffered(AT_ONCE).collect().await;
    Ok(Json(answers).into_response())
}

fn submit_lines(app: App, body: Body) -> Response {
    let longest = app.operator.max_file_bytes.saturating_add(WRAPPING);
    let commands = app.commands.clone();
    let held = lines(body, longest).then(move |line| {
        let (commands, bytes) = (commands.clone(), line.as_ref().map_or(0, Vec::len));
        async move { (line, commands.room_for_many(bytes).await) }
    });
    let answers = held.map(move |(line, room)| {
        let app = app.clone();
        async move {
            let (line, _until_it_is_answered) = match room {
                Ok(room) => (line, Some(room)),
                Err(why) => (Err(why), None),
            };
            format!("{}\n", answer(&submit_line(&app, line).await))
        }
    });
    let mut answers = Box::pin(answers.buffered(AT_ONCE).ready_chunks(AT_ONCE));
    let (tell, told) = mpsc::unbounded_channel();
    // Its own task: it goes on while nobody reads.
    tokio::spawn(async move {
        while let Some(some) = answers.next().await {
            if tell.send(Bytes::from(some.concat())).is_err() {
                return;
            }
        }
    });
    let told = stream::unfold(told, |mut told| async {
        let some = told.recv().await?;
        Some((Ok::<_, Infallible>(some), told))
    });
    ([("content-type", LINES)], Body::from_stream(told)).into_response()
}

async fn submit_line(app: &App, line: Result<Vec<u8>, ApiError>) -> Result<Submitted, ApiError> {
    let line = String::from_utf8(line?)
        .map_err(|_| ApiError::BadRequest("the line is not UTF-8".to_owned()))?;
    submit(app, line.parse()?).await
}

async fn submit(app: &App, line: Line) -> Result<Submitted, ApiError> {
    let text = line.job.get().as_bytes().to_vec();
    app.commands
        .submit_file(app.commands.new_id()?, text, "job.json", vec![], line.idempotency_key)
        .await
}

fn answer(submitted: &Result<Submitted, ApiError>) -> Value {
    match submitted {
        Ok(Submitted { id, existing, warnings }) => {
            json!({ "id": id, "existing": existing, "warnings": warnings })
        }
        Err(why) => {
            why.log();
            why.problem()
        }
    }
}

fn too_many() -> ApiError {
    ApiError::TooLarge(format!("at most {MOST} jobs come in one request; send the rest in another"))
}

/// What is left of a body, and how many lines were read of it.
struct Unread {
    chunks: BoxStream<'static, Result<Bytes, axum::Error>>,
    rest: Vec<u8>,
    /// Where the next line begins in `rest`.
    from: usize,
    lines: usize,
    longest: usize,
    is_over: bool,
}

/// The lines that have something in them. One that cannot be taken is the last.
fn lines(body: Body, longest: usize) -> impl Stream<Item = Result<Vec<u8>, ApiError>> + Send {
    let chunks = body.into_data_stream().boxed();
    let unread = Unread { chunks, rest: vec![], from: 0, lines: 0, longest, is_over: false };
    stream::unfold(unread, |mut unread| async {
        let line = unread.line().await?;
        if line.is_err() {
            (unread.is_over, unread.from) = (true, 0);
            unread.rest.clear();
        }
        Some((line, unread))
    })
}

impl Unread {
    async fn line(&mut self) -> Option<Result<Vec<u8>, ApiError>> {
        loop {
            let found = self.rest[self.from..].iter().position(|byte| *byte == b'\n');
            let end = found.map(|at| self.from + at);
            if end.is_none() && !self.is_over {
                if self.rest.len() - self.from > self.longest {
                    return Some(Err(self.too_long()));
                }
                self.rest.drain(..self.from);
                self.from = 0;
                match self.chunks.next().await {
                    Some(Ok(chunk)) => self.rest.extend_from_slice(&chunk),
                    None => self.is_over = true,
                    Some(Err(error)) => {
                        let why = format!("the body could not be read to its end: {error}");
                        return Some(Err(ApiError::BadRequest(why)));
                    }
                }
                continue;
            }
            if self.is_over && self.from >= self.rest.len() {
                return None;
            }
            let line = self.rest[self.from..end.unwrap_or(self.rest.len())].trim_ascii().to_vec();
            self.from = end.map_or(self.rest.len(), |end| end + 1);
            if line.is_empty() {
                continue;
            }
            self.lines += 1;
            if line.len() > self.longest {
                return Some(Err(self.too_long()));
            }
            if self.lines > MOST {
                return Some(Err(too_many()));
            }
            return Some(Ok(line));
        }
    }

    /// What comes after it is not read.
    fn too_long(&self) -> ApiError {
        let (line, longest) = (self.lines.max(1), self.longest);
        ApiError::TooLarge(format!(
            "job {line} takes more than {longest} bytes; it and what follows is not taken"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: &[&str], longest: usize) -> Vec<String> {
        let chunks: Vec<_> = chunks.iter().map(|it| Ok::<_, Infallible>(it.to_string())).collect();
        let lines = lines(Body::from_stream(stream::iter(chunks)), longest);
        let text = |line: Result<Vec<u8>, ApiError>| match line {
            Ok(line) => String::from_utf8(line).expect("text"),
            Err(why) => why.code().to_owned(),
        };
        lines.map(text).collect().await
    }

    #[tokio::test]
    async fn lines_are_found_wherever_the_body_is_cut() {
        let text = "{1}\n\n {2}\r\n{3}";
        assert_eq!(read(&[text], 9).await, ["{1}", "{2}", "{3}"]);
        let bytes: Vec<&str> = (0..text.len()).map(|at| &text[at..=at]).collect();
        assert_eq!(read(&bytes, 9).await, ["{1}", "{2}", "{3}"]);
        assert!(read(&[], 9).await.is_empty());
        assert!(read(&["\n", "\n"], 9).await.is_empty());
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_the_last() {
        for chunks in [&["{1}\n{234567890}\n{2}\n"][..], &["{1}\n{2345678", "90", "}\n{2}\n"]] {
            assert_eq!(read(chunks, 9).await, ["{1}", "too_large"], "{chunks:?}");
        }
    }

    #[tokio::test]
    async fn there_are_only_so_many() {
        let text = "1\n".repeat(MOST + 5);
        let all = read(&[&text], 9).await;
        assert_eq!((all.len(), all.last().map(String::as_str)), (MOST + 1, Some("too_large")));
    }
}
