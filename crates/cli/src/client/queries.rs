//! What a server has: jobs, their logs of events, explanations, workers; and commands about them.

use steadfast_api::ShownState;
use steadfast_core::event::RecordedEvent;

use super::api::{Client, Query};
use super::error::ClientError;
use super::shapes::Worker;
use super::summary;
use crate::args::{ExplainArgs, ListArgs, Output, Why};
use crate::data::{Named, is_like_an_id};
use crate::explain::{self, Explained};
use crate::style::{Align, BAD, BOLD, DIM, GOOD, Table, WAIT, inert, paint, state_style};
use crate::{Exit, clock, input, jobs};

/// As long as ids are.
const ID_CHARS: usize = 26;
/// Jobs, and events, that are asked for at once.
const PAGE: &str = "1000";
/// A beginning is looked for among so many of the newest jobs.
const MOST_PAGES: usize = 20;

/// The id of the job that somebody names: see [`Named`].
pub(super) async fn find(client: &Client, name: &str) -> Result<String, ClientError> {
    let found = match Named::read(name) {
        Named::Last => newest(client, &[]).await?,
        Named::LastOf(name) => newest(client, &[("name", name)]).await?,
        Named::Any(id) if id.len() == ID_CHARS && is_like_an_id(id) => Some(id.to_owned()),
        Named::Any(name) => {
            let named = newest(client, &[("name", name)]).await?;
            let begin = if is_like_an_id(name) { begin_with(client, name).await? } else { vec![] };
            Named::one(name, named, begin, |id| id).map_err(ClientError::Wrong)?
        }
    };
    found.ok_or_else(|| {
        let (name, list) = (inert(name), client.hint("list"));
        ClientError::NoJob(format!("there is no job {name}; `{list}` shows those there are"))
    })
}

async fn newest(client: &Client, query: Query<'_>) -> Result<Option<String>, ClientError> {
    let query = [query, &[("limit", "1")]].concat();
    let page = client.jobs(&query).await?.value;
    Ok(page.jobs.first().map(|job| job.id.to_string()))
}

/// Two are enough to know that it fits more than one.
async fn begin_with(client: &Client, name: &str) -> Result<Vec<String>, ClientError> {
    let mut found: Vec<String> = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MOST_PAGES {
        let mut query = vec![("limit", PAGE)];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let page = client.jobs(&query).await?.value;
        let ids = page.jobs.iter().map(|job| job.id.to_string());
        found.extend(ids.filter(|id| id.starts_with(name)));
        cursor = page.next;
        if found.len() > 1 || cursor.is_none() {
            break;
        }
    }
    Ok(found)
}

pub(super) async fn list(client: &Client, args: &ListArgs) -> Result<Exit, ClientError> {
    let limit = args.limit.to_string();
    let label = args.label.as_ref().map(|(name, value)| format!("{name}={value}"));
    let given = [
        ("state", args.state.map(ShownState::name)),
        ("name", args.name.as_deref()),
        ("label", label.as_deref()),
        ("cursor", args.cursor.as_deref()),
        ("limit", Some(limit.as_str())),
    ];
    let query: Vec<(&str, &str)> =
        given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    let page = client.jobs(&query).await?;
    if args.common.output == Output::Json {
        input::print_text(&page.text)?;
        return Ok(Exit::Ok);
    }
    let page = page.value;
    let anything = args.state.is_some() || args.name.is_some() || args.cursor.is_some();
    if page.jobs.is_empty() {
        jobs::print(if anything || label.is_some() {
            jobs::NO_MATCH
        } else {
            "no jobs yet; hand one over with `steadfast submit job.yaml`\n"
        })?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&[
        ("job", Align::Left),
        ("name", Align::Left),
        ("state", Align::Left),
        ("submitted", Align::Right),
        ("took", Align::Right),
    ]);
    let now = clock::now().0;
    for job in &page.jobs {
        let until = job.finished_at_ms.unwrap_or(now);
        let took = match job.state {
            // Nobody knows here when it stopped.
            ShownState::Interrupted | ShownState::Stuck => String::new(),
            ShownState::Of(_) => jobs::coarse(until.saturating_sub(job.submitted_at_ms)),
        };
        let ago = jobs::coarse(now.saturating_sub(job.submitted_at_ms));
        table.row(vec![
            (job.id.to_string(), BOLD),
            (job.name.to_string(), anstyle::Style::new()),
            (job.state.to_string(), state_style(job.state)),
            (format!("{ago} ago"), DIM),
            (took, DIM),
        ]);
    }
    jobs::print(&table.render(""))?;
    if let Some(next) = page.next {
        jobs::print(&paint(DIM, format!("more with --cursor {next}\n")))?;
    }
    Ok(Exit::Ok)
}

pub(super) async fn status(
    client: &Client,
    name: &str,
    output: Output,
) -> Result<Exit, ClientError> {
    let id = find(client, name).await?;
    let status = client.status(&id).await?;
    match output {
        Output::Json => input::print_text(&status.text)?,
        Output::Human => {
            let (now, status) = (clock::now().0, &status.value);
            let stands = if status.state.is_terminal() {
                summary::summary(client, status, now).await
            } else {
                summary::standing(client, status, now).await
            };
            jobs::print(&(summary::heading(status) + &stands))?;
        }
    }
    Ok(Exit::Ok)
}

/// `cancel`, `pause`, `resume`.
pub(super) async fn command(
    client: &Client,
    name: &str,
    command: &str,
    why: &Why,
    output: Output,
) -> Result<Exit, ClientError> {
    let id = find(client, name).await?;
    let status = client.command(&id, command, why.reason.as_deref()).await?;
    match output {
        Output::Json => input::print_text(&status.text)?,
        Output::Human => {
            let state = status.value.state;
            jobs::print(&format!("{id} {}\n", paint(state_style(state), state)))?;
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn history(
    client: &Client,
    name: &str,
    step: Option<&str>,
    output: Output,
) -> Result<Exit, ClientError> {
    let id = find(client, name).await?;
    let mut history = jobs::History::new(output, step);
    each_event(client, &id, 0, |event| {
        // Whatever a newer server says is handed on as it is.
        if output == Output::Json && step.is_none() {
            return Ok(history.write(&event)?);
        }
        history.tell(&readable(client, event)?).map_err(|trouble| match trouble {
            jobs::CliError::Found(why) if why.code == jobs::NO_PART => {
                ClientError::Wrong(why.message)
            }
            jobs::CliError::Found(why) => unreadable(client, &why.message),
            jobs::CliError::Output(error) => error.into(),
        })
    })
    .await?;
    history.end()?;
    Ok(Exit::Ok)
}

/// The whole log of a job.
pub(super) async fn log(client: &Client, id: &str) -> Result<Vec<RecordedEvent>, ClientError> {
    let mut log = Vec::new();
    each_event(client, id, 0, |event| {
        log.push(readable(client, event)?);
        Ok(())
    })
    .await?;
    Ok(log)
}

/// Every event after one that the server has now; the number of the last.
pub(super) async fn each_event(
    client: &Client,
    id: &str,
    mut after: u64,
    mut see: impl FnMut(serde_json::Value) -> Result<(), ClientError>,
) -> Result<u64, ClientError> {
    loop {
        let from = after.to_string();
        let page = client.events(id, &[("after", &from), ("limit", PAGE)]).await?;
        for event in page.events {
            after = after.max(event["seq"].as_u64().unwrap_or(0));
            see(event)?;
        }
        match page.next {
            Some(next) if next >= after && next > from.parse().unwrap_or(0) => after = next,
            _ => return Ok(after),
        }
    }
}

pub(super) fn readable(
    client: &Client,
    event: serde_json::Value,
) -> Result<RecordedEvent, ClientError> {
    serde_json::from_value(event).map_err(|error| unreadable(client, &error))
}

pub(super) fn unreadable(client: &Client, why: &dyn std::fmt::Display) -> ClientError {
    client.odd(format!("its events cannot be read ({why}); `history -o json` shows them"))
}

pub(super) async fn explain(
    client: &Client,
    args: &ExplainArgs,
    id: &str,
) -> Result<Exit, ClientError> {
    let step = args.step.as_deref();
    if args.common.output == Output::Json {
        let answer = client.explain::<serde_json::Value>(id, step).await?;
        input::print_text(&answer.text)?;
        return Ok(Exit::Ok);
    }
    let explained = client.explain::<Explained>(id, step).await?.value;
    let first = client.events(id, &[("limit", "1")]).await?.events;
    let accepted_ms = first.first().and_then(|event| event["at"].as_u64()).unwrap_or(0);
    jobs::print(&explain::to_text(&explained, accepted_ms))?;
    Ok(Exit::Ok)
}

pub(super) async fn workers(client: &Client, output: Output) -> Result<Exit, ClientError> {
    let answer = client.workers().await?;
    if output == Output::Json {
        input::print_text(&answer.text)?;
        return Ok(Exit::Ok);
    }
    let workers = answer.value.workers;
    if workers.is_empty() {
        let address = client.address();
        jobs::print(&format!(
            "no workers; start one with `steadfast worker --server {address}`\n"
        ))?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&[
        ("worker", Align::Left),
        ("datacenter", Align::Left),
        ("state", Align::Left),
        ("slots", Align::Right),
        ("cpu", Align::Right),
        ("memory", Align::Right),
        ("labels", Align::Left),
        ("why", Align::Left),
    ]);
    for worker in &workers {
        table.row(worker_row(worker));
    }
    jobs::print(&table.render(""))?;
    Ok(Exit::Ok)
}

fn worker_row(worker: &Worker) -> Vec<(String, anstyle::Style)> {
    let plain = anstyle::Style::new();
    let state = match worker.state.as_str() {
        "connected" => GOOD,
        "draining" => WAIT,
        _ => BAD,
    };
    let text = |text: &Option<crate::style::Inert>| text.as_ref().map(ToString::to_string);
    let cpu = worker.cpu.map(|cpu| format!("{}/{cpu}", worker.cpu_used));
    let memory = worker
        .memory_bytes
        .map(|bytes| format!("{}/{}", human_bytes(worker.memory_used), human_bytes(bytes)));
    let labels: Vec<String> =
        worker.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    vec![
        (worker.name.to_string(), BOLD),
        (text(&worker.datacenter).unwrap_or_else(|| "-".to_owned()), plain),
        (worker.state.to_string(), state),
        (format!("{}/{}", worker.busy, worker.slots), plain),
        (cpu.unwrap_or_else(|| "-".to_owned()), plain),
        (memory.unwrap_or_else(|| "-".to_owned()), plain),
        (labels.join(" "), plain),
        (text(&worker.why).unwrap_or_default(), DIM),
    ]
}

/// As sizes are written in a job file.
fn human_bytes(bytes: u64) -> String {
    let tenths = |shift: u32| (u128::from(bytes) * 10) >> shift;
    let (tenths, unit) = match bytes {
        0x4000_0000.. => (tenths(30), "GiB"),
        0x10_0000.. => (tenths(20), "MiB"),
        _ => return format!("{bytes}B"),
    };
    if tenths.is_multiple_of(10) {
        format!("{}{unit}", tenths / 10)
    } else {
        format!("{}.{}{unit}", tenths / 10, tenths % 10)
    }
}

pub(super) async fn drain(
    client: &Client,
    name: &str,
    output: Output,
) -> Result<Exit, ClientError> {
    let answer = client.drain(name).await?;
    match output {
        Output::Json => input::print_text(&answer.text)?,
        Output::Human => {
            let Worker { name, state, busy, .. } = answer.value;
            let still = match busy {
                0 => "it has nothing to finish".to_owned(),
                1 => "it finishes 1 attempt".to_owned(),
                busy => format!("it finishes {busy} attempts"),
            };
            jobs::print(&format!("{} {state}; {still}\n", paint(BOLD, name)))?;
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn undrain(
    client: &Client,
    name: &str,
    output: Output,
) -> Result<Exit, ClientError> {
    let answer = client.undrain(name).await?;
    match output {
        Output::Json => input::print_text(&answer.text)?,
        Output::Human => {
            let Worker { name, state, .. } = answer.value;
            let soon = match state.as_str() {
                "away" => "; it hears of it when it is back",
                _ => "",
            };
            jobs::print(&format!("{} {state}{soon}\n", paint(BOLD, name)))?;
        }
    }
    Ok(Exit::Ok)
}
