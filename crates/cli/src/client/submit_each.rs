//! `submit --each`: a file with a job in each line. Each line is one job however often it has to be sent, because of
//! its idempotency key, and is accepted or refused by itself.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::api::Client;
use super::submit::{PAUSES_MS, again, new_key};
use crate::args::{Output, SubmitArgs};
use crate::error::CliError;
use crate::style::{BAD, DIM, inert, paint};
use crate::{Exit, input};

/// Of one request: so many lines, and not many more bytes.
const LINES: usize = 5000;
const BYTES: usize = 8 << 20;

/// A line of the file, counted from 1.
struct Line {
    number: usize,
    key: String,
    job: Box<RawValue>,
}

/// What became of one.
enum LineResult {
    Accepted(Value),
    Refused(Value),
    /// It may be taken in a moment.
    Retryable(Value),
}

pub(super) async fn submit_each(client: &Client, args: &SubmitArgs) -> Result<Exit, CliError> {
    let mut reader = open(&args.file)?;
    let key = args.idempotency_key.clone().unwrap_or_else(new_key);
    let (mut number, mut accepted, mut refused) = (0, 0_usize, 0_usize);
    loop {
        let (lines, wrong) = read_some(&mut *reader, &mut number, &key)?;
        if lines.is_empty() && wrong.is_empty() {
            break;
        }
        for (number, why) in wrong {
            refused += 1;
            tell(number, &LineResult::Refused(json!({ "detail": why })), args.output)?;
        }
        for (number, told) in send(client, lines).await? {
            match told {
                LineResult::Accepted(_) => accepted += 1,
                LineResult::Refused(_) | LineResult::Retryable(_) => refused += 1,
            }
            tell(number, &told, args.output)?;
        }
    }
    if args.output == Output::Human {
        let rest = if refused > 0 { format!(", {refused} refused") } else { String::new() };
        anstream::eprintln!("{}", paint(DIM, format!("{accepted} accepted{rest}")));
    }
    Ok(if refused > 0 { Exit::Wrong } else { Exit::Ok })
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, CliError> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path)
        .map_err(|error| CliError::wrong(format!("cannot read {}: {error}", path.display())))?;
    Ok(Box::new(BufReader::new(file)))
}

/// The next lines, and what is wrong with those that are no JSON. Both empty: there are no more.
#[expect(clippy::type_complexity, reason = "two lists")]
fn read_some(
    reader: &mut dyn BufRead,
    number: &mut usize,
    key: &str,
) -> Result<(Vec<Line>, Vec<(usize, String)>), CliError> {
    let (mut lines, mut wrong, mut bytes) = (vec![], vec![], 0);
    let mut text = Vec::new();
    while lines.len() + wrong.len() < LINES && bytes < BYTES {
        text.clear();
        let unreadable = |error| CliError::wrong(format!("line {}: {error}", *number + 1));
        if reader.read_until(b'\n', &mut text).map_err(unreadable)? == 0 {
            break;
        }
        *number += 1;
        if text.trim_ascii().is_empty() {
            continue;
        }
        bytes += text.len();
        match serde_json::from_slice(&text) {
            Ok(job) => lines.push(Line { number: *number, key: format!("{key}-{number}"), job }),
            Err(error) => wrong.push((*number, format!("it is no JSON: {error}"))),
        }
    }
    Ok((lines, wrong))
}

/// Sends what can be taken in a moment again, for as long as a submission alone is.
async fn send(client: &Client, mut lines: Vec<Line>) -> Result<Vec<(usize, LineResult)>, CliError> {
    let mut all = Vec::with_capacity(lines.len());
    for pause in PAUSES_MS.into_iter().map(Some).chain([None]) {
        if lines.is_empty() {
            break;
        }
        let text: String = lines.iter().map(body).collect();
        let answer = again(async || client.submit_many(text.clone()).await).await?;
        let mut answers = answer.lines().map(read);
        let mut not_now = vec![];
        for line in std::mem::take(&mut lines) {
            match (answers.next().transpose()?, pause) {
                // What follows on a line that is too long is not read.
                (None | Some(LineResult::Retryable(_)), Some(_)) => not_now.push(line),
                (Some(told), _) => all.push((line.number, told)),
                (None, None) => return Err(client.odd("it does not answer every line")),
            }
        }
        lines = not_now;
        if let (false, Some(pause)) = (lines.is_empty(), pause) {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }
    all.sort_by_key(|(number, _)| *number);
    Ok(all)
}

fn body(line: &Line) -> String {
    // A job that is written over several lines is one line here: its JSON has no line breaks of its own.
    let job = line.job.get().replace(['\n', '\r'], " ");
    format!("{{\"job\":{job},\"idempotency_key\":{}}}\n", json!(line.key))
}

fn read(line: &str) -> Result<LineResult, CliError> {
    let told: Value = serde_json::from_str(line)
        .map_err(|error| CliError::wrong(format!("the server's answer is no JSON: {error}")))?;
    Ok(match told["status"].as_u64() {
        None => LineResult::Accepted(told),
        // Its outcome is open, or there is no room now.
        Some(202 | 429 | 503) => LineResult::Retryable(told),
        Some(_) => LineResult::Refused(told),
    })
}

fn tell(number: usize, told: &LineResult, output: Output) -> Result<(), CliError> {
    let (LineResult::Accepted(answer)
    | LineResult::Refused(answer)
    | LineResult::Retryable(answer)) = told;
    match (output, told) {
        (Output::Json, _) => {
            let mut answer = answer.clone();
            answer["line"] = json!(number);
            input::print_text(&answer.to_string())?;
        }
        (Output::Human, LineResult::Accepted(answer)) => {
            let id = inert(answer["id"].as_str().unwrap_or_default()).into_owned();
            writeln!(io::stdout().lock(), "{id}")?;
        }
        (Output::Human, _) => {
            let why = answer["errors"][0]["message"].as_str().or(answer["detail"].as_str());
            let why = inert(why.unwrap_or("refused")).into_owned();
            anstream::eprintln!("{}: {why}", paint(BAD, format!("line {number}")));
        }
    }
    Ok(())
}
