//! Colours and columns. There are none where the output is no terminal, or with `NO_COLOR`.

use std::borrow::Cow;
use std::fmt::{self, Display};

use anstyle::{AnsiColor, Style};
use steadfast_api::ShownState;
use steadfast_core::event::JobState;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const DIM: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const WAIT: Style = AnsiColor::Yellow.on_default();
pub(crate) const NOTE: Style = AnsiColor::Cyan.on_default();

pub(crate) fn paint(style: Style, text: impl Display) -> String {
    let text = text.to_string();
    if text.is_empty() {
        return text;
    }
    let lines: Vec<Cow<str>> = text.split('\n').map(inert).collect();
    format!("{style}{}{style:#}", lines.join("\n"))
}

/// Text that a job, a worker or a server gave, so that a terminal only shows it: what would move the
/// cursor, change colours or turn the direction of writing is written out.
pub(crate) fn inert(text: &str) -> Cow<'_, str> {
    let moves = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
            || matches!(c, '\u{2066}'..='\u{2069}')
    };
    if !text.contains(moves) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if moves(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

pub(crate) fn error_prefix() -> String {
    paint(BAD.bold(), "error: ")
}

pub(crate) fn state_style(state: impl Into<ShownState>) -> Style {
    match state.into() {
        ShownState::Of(JobState::Succeeded) => GOOD.bold(),
        ShownState::Of(JobState::Failed | JobState::Cancelled) | ShownState::Stuck => BAD.bold(),
        _ => WAIT.bold(),
    }
}

/// One line of styled parts, which no part can leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line(Vec<(Style, String)>);

impl Line {
    pub(crate) fn new(parts: &[(Style, String)]) -> Self {
        Self(parts.iter().map(|(style, text)| (*style, inert(text).into_owned())).collect())
    }

    /// Columns of a terminal.
    pub(crate) fn width(&self) -> usize {
        self.0.iter().map(|(_, text)| text.width()).sum()
    }

    pub(crate) fn painted(&self) -> String {
        self.0.iter().map(|(style, text)| paint(*style, text)).collect()
    }

    /// As much of it as `width` columns have room for; `…` where something is missing.
    pub(crate) fn cut(&self, width: usize) -> Self {
        if self.width() <= width {
            return self.clone();
        }
        let mut left = width.saturating_sub(1);
        let mut parts = vec![];
        for (style, text) in &self.0 {
            let mut kept = String::new();
            for c in text.chars() {
                let wide = c.width().unwrap_or(0);
                if wide > left {
                    parts.push((*style, kept + "…"));
                    return Self(parts);
                }
                left -= wide;
                kept.push(c);
            }
            parts.push((*style, kept));
        }
        Self(parts)
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(_, text)| f.write_str(text))
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
        let cell = |(text, style): (String, Style)| (inert(&text).into_owned(), style);
        self.rows.push(cells.into_iter().map(cell).collect());
    }

    pub(crate) fn render(&self, indent: &str) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].0.width());
            cells.chain([self.columns[column].0.width()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: Vec<(&str, Style)>| {
            let mut line = String::new();
            for (i, (text, style)) in cells.into_iter().enumerate() {
                let pad = " ".repeat(widths[i] - text.width());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_move_a_terminal_is_written_out() {
        let hostile = "a\x1b[2J\x07\r\u{9b}31m\u{202e}b\nc é 漢";
        assert_eq!(inert(hostile), "a\\u{1b}[2J\\u{7}\\r\\u{9b}31m\\u{202e}b\\nc é 漢");
        let painted = paint(BAD, hostile);
        assert_eq!(painted.matches('\x1b').count(), 2, "{painted:?}");
        let mut table = Table::new(&[("x", Align::Left)]);
        table.row(vec![(hostile.to_owned(), BOLD)]);
        assert_eq!(table.render("").lines().count(), 2);
    }

    #[test]
    fn a_line_is_cut_by_columns() {
        let line = Line::new(&[(BOLD, "漢字".to_owned()), (DIM, " and more".to_owned())]);
        assert_eq!(line.width(), 13);
        assert_eq!(line.cut(13).to_string(), "漢字 and more");
        assert_eq!(line.cut(8).to_string(), "漢字 an…");
        assert_eq!(line.cut(4).to_string(), "漢…", "half a character is none");
        assert_eq!(line.cut(1).to_string(), "…");
        assert!(line.cut(8).painted().ends_with("an…\x1b[0m"), "a cut line ends its colour");
    }
}
