//! A rehearsal as a picture: one bar per work item, running and waiting, on one scale.

use std::collections::BTreeMap;

use steadfast_core::event::ItemId;
use steadfast_core::time::human_ms;
use steadfast_sim::{Decision, Rehearsal, VerdictName};

use crate::style::{BAD, DIM, GOOD, WAIT, paint};

/// Rows shown; what a person takes in at a glance.
const SHOWN_ITEMS: usize = 24;

/// What one work item did.
#[derive(Default)]
struct Row<'a> {
    decisions: Vec<&'a Decision>,
    /// An attempt that was still under way at the end.
    open_since: Option<u64>,
}

/// `width`: columns for the bars.
pub(crate) fn render(rehearsal: &Rehearsal, width: usize) -> String {
    let mut rows: BTreeMap<ItemId, Row> = BTreeMap::new();
    let mut hidden = 0;
    for decision in &rehearsal.decisions {
        if rows.len() < SHOWN_ITEMS || rows.contains_key(&decision.item) {
            rows.entry(decision.item).or_default().decisions.push(decision);
        } else if decision.attempt == 1 && decision.started_at.is_some() {
            hidden += 1;
        }
    }
    for (item, since) in &rehearsal.unfinished {
        if rows.len() < SHOWN_ITEMS || rows.contains_key(item) {
            rows.entry(*item).or_default().open_since = Some(since.0);
        } else {
            hidden += 1;
        }
    }
    let end = rehearsal.decisions.iter().map(end_of).max().unwrap_or(0);
    let end = end.max(rehearsal.finished_ms.unwrap_or(0));
    let names: BTreeMap<ItemId, String> =
        rows.keys().map(|&item| (item, rehearsal.plan.item_name(item))).collect();
    let label = names.values().map(|name| name.chars().count()).max().unwrap_or(0);
    let mut text = ruler(label, width, end);
    for (item, row) in &rows {
        let name = &names[item];
        let pad = " ".repeat(label - name.chars().count());
        text.push_str(&format!("  {name}{pad}  {}\n", bar(row, end, width)));
    }
    if hidden > 0 {
        text.push_str(&paint(DIM, format!("  … and {hidden} more items\n")));
    }
    let key = [
        (GOOD, "█ runs"),
        (WAIT, "░ waits"),
        (GOOD, "✓ done"),
        (WAIT, "↻ tries again"),
        (BAD, "✗ gives up"),
    ];
    let key: Vec<String> = key.into_iter().map(|(style, text)| paint(style, text)).collect();
    text.push_str(&format!("  {}  {}\n", " ".repeat(label), key.join("  ")));
    text
}

fn end_of(decision: &Decision) -> u64 {
    match decision.verdict {
        VerdictName::Retry { due_at, .. } => due_at.0,
        _ => decision.at.0,
    }
}

/// Marks at round times, as many as have room.
fn ruler(label: usize, width: usize, end: u64) -> String {
    const STEPS: [u64; 25] = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000, 60_000,
        120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000,
        43_200_000,
    ];
    const DAY: u64 = 86_400_000;
    if end == 0 {
        return format!("  {}  {}\n", " ".repeat(label), paint(DIM, "0s"));
    }
    let least = end.div_ceil(6).max(1);
    let step = STEPS.into_iter().find(|&step| step >= least);
    let step = step.unwrap_or_else(|| least.div_ceil(DAY) * DAY);
    let mut marks = String::new();
    let mut at = 0;
    while at <= end {
        let column = (u128::from(at) * width as u128 / u128::from(end)) as usize;
        let gap = column.saturating_sub(marks.chars().count());
        if at == 0 || gap > 0 {
            marks.push_str(&" ".repeat(gap));
            marks.push_str(&human_ms(at));
        }
        at += step;
    }
    format!("  {}  {}\n", " ".repeat(label), paint(DIM, marks))
}

/// Later marks lie over earlier ones, and a verdict over everything: it is what one looks for.
fn bar(row: &Row, end: u64, width: usize) -> String {
    let mut cells = vec![(' ', DIM); width];
    let column = |at: u64| {
        let place = u128::from(at) * width as u128 / u128::from(end.max(1));
        (place as usize).min(width - 1)
    };
    for decision in &row.decisions {
        let from = decision.started_at.map_or(decision.at.0, |at| at.0);
        cells[column(from)..=column(decision.at.0)].fill(('█', GOOD));
        if let VerdictName::Retry { due_at, .. } = decision.verdict {
            let (from, to) = (column(decision.at.0), column(due_at.0));
            cells[from..to.max(from + 1).min(width)].fill(('░', WAIT));
        }
    }
    if let Some(since) = row.open_since {
        cells[column(since)..].fill(('█', GOOD));
        cells[width - 1] = ('…', GOOD);
    }
    for decision in &row.decisions {
        let mark = match decision.verdict {
            VerdictName::Complete => ('✓', GOOD),
            VerdictName::Retry { .. } => ('↻', WAIT),
            VerdictName::Stop { .. } => ('✗', BAD),
        };
        cells[column(decision.at.0)] = mark;
    }
    let mut line = String::new();
    for run in cells.chunk_by(|a, b| a.1 == b.1) {
        let text: String = run.iter().map(|(c, _)| c).collect();
        let blank = text.trim_end().is_empty();
        line.push_str(&if blank { text } else { paint(run[0].1, text) });
    }
    line.trim_end().to_owned()
}
