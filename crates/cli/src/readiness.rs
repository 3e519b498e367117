//! `steadfast readiness`: which items of a job may start now, and what keeps the others.

use anstyle::Style;
use steadfast_api::{ReadinessPage, ReadinessRow};
use steadfast_core::time::Timestamp;

use crate::Exit;
use crate::args::{Output, ReadinessArgs};
use crate::error::CliError;
use crate::jobs::{coarse, print};
use crate::source::JobSource;
use crate::style::{Align, BAD, BOLD, DIM, GOOD, Table, WAIT, paint};

pub(crate) fn run(
    source: &mut dyn JobSource,
    id: &str,
    args: &ReadinessArgs,
) -> Result<Exit, CliError> {
    let page = source.readiness(id, args.cursor.as_deref(), args.limit)?;
    match args.of.common.output {
        Output::Json => page.print_json()?,
        Output::Human => print(&to_text(&page.read()?))?,
    }
    Ok(Exit::Ok)
}

fn to_text(page: &ReadinessPage) -> String {
    let mut table = Table::new(&[
        ("item", Align::Left),
        ("needs", Align::Left),
        ("attempts", Align::Right),
        ("failures", Align::Right),
        ("eligible", Align::Left),
        ("retry", Align::Right),
        ("ready", Align::Left),
    ]);
    for row in &page.readiness {
        let needs = if row.dependencies_satisfied { "met" } else { "not met" };
        let eligible = if row.eligible { ("yes", DIM) } else { ("no", BAD) };
        table.row(vec![
            (name(row), BOLD),
            (needs.to_owned(), DIM),
            (row.attempts.map(|count| count.to_string()).unwrap_or_default(), DIM),
            (failures(row), DIM),
            (eligible.0.to_owned(), eligible.1),
            (row.next_retry_at_ms.map(|at| until(at, page.at_ms)).unwrap_or_default(), DIM),
            readiness(row),
        ]);
    }
    let more = page.next.as_ref().map(|next| paint(DIM, format!("more with --cursor {next}\n")));
    table.render("") + &more.unwrap_or_default()
}

/// `fetch`, `eu-west/index[2]`, `index[3-99]`
fn name(row: &ReadinessRow) -> String {
    match row.items {
        Some(count @ 2..) => {
            let last = row.item.saturating_add(count - 1);
            format!("{}[{}-{last}]", row.name, row.item)
        }
        _ => row.name.clone(),
    }
}

/// `1 of 3`
fn failures(row: &ReadinessRow) -> String {
    match (row.failures, row.max_attempts) {
        (None, _) => String::new(),
        (Some(failures), Some(most)) => format!("{failures} of {most}"),
        (Some(failures), None) => failures.to_string(),
    }
}

fn until(at: Timestamp, now: Timestamp) -> String {
    match at.since(now) {
        0 => "now".to_owned(),
        ms => format!("in {}", coarse(ms)),
    }
}

fn readiness(row: &ReadinessRow) -> (String, Style) {
    match &row.reason {
        _ if row.ready => ("ready".to_owned(), GOOD.bold()),
        Some(reason) => (reason.replace('_', " "), style(reason)),
        None => ("no".to_owned(), WAIT),
    }
}

fn style(reason: &str) -> Style {
    match reason {
        "succeeded" => GOOD,
        "skipped" | "cancelled" => DIM,
        "waiting" | "pending" | "paused" | "interrupted" | "backing_off" | "parallelism"
        | "running" | "awaiting_callback" => WAIT,
        _ => BAD,
    }
}
