//! What a server has: jobs, their logs of events, explanations, workers; and wishes about them.

use steadfast_core::event::Recorded;

use super::api::Client;
use super::shapes::Worker;
use super::standing;
use super::trouble::Trouble;
use crate::args::{ExplainArgs, ListArgs, Output};
use crate::explain::{self, Explained};
use crate::paint::{Align, BAD, BOLD, DIM, GOOD, Table, WAIT, inert, paint, state_style};
use crate::{Exit, clock, input, jobs};

/// As long as ids are.
const ID_CHARS: usize = 26;
/// Jobs, and events, that are asked for at once.
const PAGE: &str = "1000";
/// A beginning is looked for among so many of the newest jobs.
const MOST_PAGES: usize = 20;

/// A job that is named by its id, by a beginning of it that fits no other, or `last`.
pub(super) async fn find(client: &Client, name: &str) -> Result<String, Trouble> {
    let fits = |c: char| c.is_ascii_digit() || c.is_ascii_lowercase();
    let none = || {
        let (name, list) = (inert(name), client.hint("list"));
        Trouble::Wrong(format!("there is no job {name}; `{list}` shows those there are"))
    };
    if name != "last" && (name.is_empty() || !name.chars().all(fits)) {
        return Err(none());
    }
    if name.len() == ID_CHARS {
        return Ok(name.to_owned());
    }
    if name == "last" {
        let page = client.jobs(&[("limit", "1")]).await?.value;
        return page.jobs.first().map(|job| job.id.to_string()).ok_or_else(none);
    }
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
    match found.as_slice() {
        [id] => Ok(id.clone()),
        [] => Err(none()),
        _ => Err(Trouble::Wrong(format!("{name} fits more than one job; give more of the id"))),
    }
}

pub(super) async fn list(client: &Client, args: &ListArgs) -> Result<Exit, Trouble> {
    if let Some(state) = &args.state {
        jobs::state_named(state).map_err(Trouble::Wrong)?;
    }
    let limit = args.limit.to_string();
    let label = args.label.as_ref().map(|(name, value)| format!("{name}={value}"));
    let given = [
        ("state", args.state.as_deref()),
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
    let anything = [&args.state, &args.name, &args.cursor].into_iter().any(Option::is_some);
    if page.jobs.is_empty() && !anything && label.is_none() {
        jobs::print("no jobs yet; hand one over with `steadfast submit job.yaml`\n")?;
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
        let ago = jobs::coarse(now.saturating_sub(job.submitted_at_ms));
        table.row(vec![
            (job.id.to_string(), BOLD),
            (job.name.to_string(), anstyle::Style::new()),
            (
                job.state.to_string(),
                jobs::state_named(&job.state.to_string()).map_or(BAD, state_style),
            ),
            (format!("{ago} ago"), DIM),
            (jobs::coarse(until.saturating_sub(job.submitted_at_ms)), DIM),
        ]);
    }
    jobs::print(&table.render(""))?;
    if let Some(next) = page.next {
        jobs::print(&paint(DIM, format!("more with --cursor {next}\n")))?;
    }
    Ok(Exit::Ok)
}

pub(super) async fn status(client: &Client, name: &str, output: Output) -> Result<Exit, Trouble> {
    let id = find(client, name).await?;
    let status = client.status(&id).await?;
    match output {
        Output::Json => input::print_text(&status.text)?,
        Output::Human => {
            let (now, status) = (clock::now().0, &status.value);
            let stands = if status.state.is_terminal() {
                standing::summary(client, status, now).await
            } else {
                standing::standing(client, status, now).await
            };
            jobs::print(&(standing::heading(status) + &stands))?;
        }
    }
    Ok(Exit::Ok)
}

/// `cancel`, `pause`, `resume`.
pub(super) async fn wish(
    client: &Client,
    name: &str,
    wish: &str,
    output: Output,
) -> Result<Exit, Trouble> {
    let id = find(client, name).await?;
    let status = client.wish(&id, wish).await?;
    match output {
        Output::Json => input::print_text(&status.text)?,
        Output::Human => {
            let state = status.value.state;
            jobs::print(&format!("{id} {}\n", paint(state_style(state), state)))?;
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn history(client: &Client, name: &str, output: Output) -> Result<Exit, Trouble> {
    let id = find(client, name).await?;
    let mut history = jobs::History::new();
    let mut after = 0;
    loop {
        let from = after.to_string();
        let page = client.events(&id, &[("after", &from), ("limit", PAGE)]).await?;
        for event in page.events {
            if output == Output::Json {
                history.write(&event)?;
                continue;
            }
            let unreadable = |why: &dyn std::fmt::Display| {
                client.odd(format!("its events cannot be read ({why}); `-o json` shows them"))
            };
            let record: Recorded =
                serde_json::from_value(event).map_err(|error| unreadable(&error))?;
            history.tell(&record).map_err(|trouble| match trouble {
                jobs::Trouble::Found(why) => unreadable(&why),
                jobs::Trouble::Told(error) => error.into(),
            })?;
        }
        match page.next {
            Some(next) if next > after => after = next,
            _ => break,
        }
    }
    history.end()?;
    Ok(Exit::Ok)
}

pub(super) async fn explain(client: &Client, args: &ExplainArgs) -> Result<Exit, Trouble> {
    let id = find(client, &args.job).await?;
    let step = args.step.as_deref();
    if args.common.output == Output::Json {
        let answer = client.explain::<serde_json::Value>(&id, step).await?;
        input::print_text(&answer.text)?;
        return Ok(Exit::Ok);
    }
    let explained = client.explain::<Explained>(&id, step).await?.value;
    let first = client.events(&id, &[("limit", "1")]).await?.events;
    let accepted_ms = first.first().and_then(|event| event["at"].as_u64()).unwrap_or(0);
    jobs::print(&explain::to_text(&explained, accepted_ms))?;
    Ok(Exit::Ok)
}

pub(super) async fn workers(client: &Client, output: Output) -> Result<Exit, Trouble> {
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
    let text = |text: &Option<crate::paint::Inert>| text.as_ref().map(ToString::to_string);
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

pub(super) async fn drain(client: &Client, name: &str, output: Output) -> Result<Exit, Trouble> {
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
