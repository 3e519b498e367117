//! Colours and columns. Colour goes away by itself when nobody looks, or with `NO_COLOR`.

use std::fmt::Display;

use anstyle::{AnsiColor, Style};
use steadfast_core::event::JobState;

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const WAIT: Style = AnsiColor::Yellow.on_default();
pub(crate) const NOTE: Style = AnsiColor::Cyan.on_default();

pub(crate) fn paint(style: Style, text: impl Display) -> String {
    let text = text.to_string();
    if text.is_empty() { text } else { format!("{style}{text}{style:#}") }
}

pub(crate) fn error_prefix() -> String {
    paint(BAD.bold(), "error: ")
}

pub(crate) fn state_style(state: JobState) -> Style {
    match state {
        JobState::Succeeded => GOOD.bold(),
        JobState::Failed | JobState::Cancelled => BAD.bold(),
        _ => WAIT.bold(),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows under a dim heading, each column as wide as its widest cell.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&'static str, Align)]) -> Self {
        Self { columns: columns.to_vec(), rows: vec![] }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    pub(crate) fn render(&self, indent: &str) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].0.chars().count());
            cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: Vec<(&str, Style)>| {
            let mut line = String::new();
            for (i, (text, style)) in cells.into_iter().enumerate() {
                let pad = " ".repeat(widths[i] - text.chars().count());
                let gap = if i == 0 { indent } else { "  " };
                line.push_str(gap);
                let painted = paint(style, text);
                let last = i + 1 == widths.len();
                match self.columns[i].1 {
                    Align::Left if last => line.push_str(&painted),
                    Align::Left => line.extend([painted, pad]),
                    Align::Right => line.extend([pad, painted]),
                }
            }
            format!("{}\n", line.trim_end())
        };
        let heading = line(self.columns.iter().map(|(name, _)| (*name, DIM)).collect());
        let rows = self
            .rows
            .iter()
            .map(|row| line(row.iter().map(|(text, style)| (text.as_str(), *style)).collect()));
        [heading].into_iter().chain(rows).collect()
    }
}
