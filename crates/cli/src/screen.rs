//! A picture on a terminal that is drawn over itself.

use std::io::{IsTerminal, Write};

use crate::style::Line;

/// A terminal that does not tell its size.
const UNKNOWN: (usize, usize) = (100, 24);

/// `TERM=dumb`: a terminal that obeys no escape sequence.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// The part of the terminal above the cursor that is ours.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    drawn: Vec<Line>,
    size: (usize, usize),
}

impl Screen {
    /// None: standard output is no terminal, or one that cannot move its cursor.
    pub(crate) fn here() -> Option<Self> {
        (std::io::stdout().is_terminal() && !is_dumb()).then(Self::default)
    }

    /// How many lines can be drawn over again: the cursor rests in the row below them.
    pub(crate) fn rows() -> usize {
        size().1.saturating_sub(1).max(1)
    }

    pub(crate) fn draw(&mut self, mut lines: Vec<Line>) {
        let (width, height) = size();
        lines.truncate(height.saturating_sub(1).max(1));
        if (&lines, (width, height)) == (&self.drawn, self.size) {
            return;
        }
        let mut text = self.gone(width);
        for line in &lines {
            // A line that wraps would be drawn over in the wrong place.
            text.push_str(&line.cut(width).painted());
            text.push('\n');
        }
        write(&text);
        (self.drawn, self.size) = (lines, (width, height));
    }

    pub(crate) fn erase(&mut self) {
        write(&self.gone(size().0));
        self.drawn.clear();
    }

    /// What takes back all that was drawn. The terminal may be narrower by now and have broken lines, and
    /// a `^C` may stand in front of the cursor.
    fn gone(&self, width: usize) -> String {
        let was = self.size.0;
        let rows: usize =
            self.drawn.iter().map(|line| line.width().min(was).div_ceil(width).max(1)).sum();
        // Line by line: some terminals scroll a screen that is cleared at once into their history.
        "\x1b[A\x1b[2K".repeat(rows) + "\r"
    }
}

fn write(text: &str) {
    let mut out = anstream::stdout().lock();
    // The terminal may be what went away.
    let _ = out.write_all(text.as_bytes());
    let _ = out.flush();
}

/// Columns and rows, at least one of each.
fn size() -> (usize, usize) {
    match terminal_size::terminal_size() {
        Some((width, height)) if width.0 > 0 && height.0 > 0 => (width.0.into(), height.0.into()),
        _ => UNKNOWN,
    }
}
