//! What a server is told to do: to a job, or to one of its workers; and its workers.

use steadfast_api::WorkerInfo;

use super::api::Client;
use crate::args::{Output, ReasonArg};
use crate::error::CliError;
use crate::style::{Align, BAD, BOLD, DIM, GOOD, Table, WAIT, inert, paint, state_style};
use crate::{Exit, input, jobs};

/// `cancel`, `pause`, `resume`.
pub(super) async fn command(
    client: &Client,
    id: &str,
    command: &str,
    why: &ReasonArg,
    output: Output,
) -> Result<Exit, CliError> {
    let status = client.command(id, command, why.reason.as_deref()).await?;
    match output {
        Output::Json => input::print_text(&status.text)?,
        Output::Human => {
            let state = status.value.state;
            jobs::print(&format!("{} {}\n", inert(id), paint(state_style(state), state)))?;
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn workers(client: &Client, output: Output) -> Result<Exit, CliError> {
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

fn worker_row(worker: &WorkerInfo) -> Vec<(String, anstyle::Style)> {
    let plain = anstyle::Style::new();
    let state = match worker.state.as_str() {
        "connected" => GOOD,
        "draining" => WAIT,
        _ => BAD,
    };
    let cpu = worker.cpu.map(|cpu| format!("{}/{cpu}", worker.cpu_used));
    let memory = worker
        .memory_bytes
        .map(|bytes| format!("{}/{}", human_bytes(worker.memory_used), human_bytes(bytes)));
    let labels: Vec<String> =
        worker.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    vec![
        (worker.name.clone(), BOLD),
        (worker.datacenter.clone().unwrap_or_else(|| "-".to_owned()), plain),
        (worker.state.clone(), state),
        (slots(worker), plain),
        (cpu.unwrap_or_else(|| "-".to_owned()), plain),
        (memory.unwrap_or_else(|| "-".to_owned()), plain),
        (labels.join(" "), plain),
        (worker.why.clone().unwrap_or_default(), DIM),
    ]
}

/// In use, of those for this server; and of how many, if others have some.
fn slots(worker: &WorkerInfo) -> String {
    let WorkerInfo { busy, credits, slots, .. } = worker;
    if credits < slots { format!("{busy}/{credits} of {slots}") } else { format!("{busy}/{slots}") }
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

pub(super) async fn drain(client: &Client, name: &str, output: Output) -> Result<Exit, CliError> {
    let answer = client.drain(name).await?;
    match output {
        Output::Json => input::print_text(&answer.text)?,
        Output::Human => {
            let WorkerInfo { name, state, busy, .. } = answer.value;
            let still = match busy {
                0 => "it has nothing to finish".to_owned(),
                1 => "it finishes 1 attempt".to_owned(),
                busy => format!("it finishes {busy} attempts"),
            };
            jobs::print(&format!("{} {}; {still}\n", paint(BOLD, name), inert(&state)))?;
        }
    }
    Ok(Exit::Ok)
}

pub(super) async fn undrain(client: &Client, name: &str, output: Output) -> Result<Exit, CliError> {
    let answer = client.undrain(name).await?;
    match output {
        Output::Json => input::print_text(&answer.text)?,
        Output::Human => {
            let WorkerInfo { name, state, .. } = answer.value;
            let soon = match state.as_str() {
                "away" => "; it hears of it when it is back",
                _ => "",
            };
            jobs::print(&format!("{} {}{soon}\n", paint(BOLD, name), inert(&state)))?;
        }
    }
    Ok(Exit::Ok)
}
