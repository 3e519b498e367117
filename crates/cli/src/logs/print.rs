//! Logs as they are printed: byte for byte for people, in lines of JSON for programs, each line with its
//! time if that is asked for.

use std::io::{self, IsTerminal as _, Write as _};

use crate::args::{LogsArgs, Output};
use crate::style::inert;

/// When the bytes of a log were printed, by where they begin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<(u64, u64)>);

impl Times {
    /// In rising order of place.
    pub(crate) fn new(marks: Vec<(u64, u64)>) -> Self {
        Self(marks)
    }

    fn at(&self, offset: u64) -> Option<u64> {
        let after = self.0.partition_point(|(from, _)| *from <= offset);
        self.0.get(after.checked_sub(1)?).map(|(_, ms)| *ms)
    }

    /// Where what was printed from a moment on begins. None: nothing was.
    pub(crate) fn since(&self, ms: u64) -> Option<u64> {
        self.0.iter().find(|(_, at)| *at >= ms).map(|(from, _)| *from)
    }
}

/// Looks for the beginning of the last lines, from the end of a log backwards.
pub(crate) struct LastLines {
    /// Line breaks still to be passed.
    left: u64,
    begin: u64,
    is_end: bool,
}

impl LastLines {
    pub(crate) fn new(lines: u64) -> Self {
        Self { left: lines, begin: u64::MAX, is_end: true }
    }

    /// The chunk before those that were seen, and where it begins. True: that was enough.
    pub(crate) fn before(&mut self, start: u64, chunk: &[u8]) -> bool {
        for (at, byte) in chunk.iter().enumerate().rev() {
            // The break at the very end is of the last line.
            let at_end = std::mem::take(&mut self.is_end);
            if self.left == 0 {
                self.begin = self.begin.min(start + at as u64 + 1);
                return true;
            }
            if *byte == b'\n' && !at_end {
                self.left -= 1;
                if self.left == 0 {
                    self.begin = start + at as u64 + 1;
                    return true;
                }
            }
        }
        self.begin = start;
        false
    }

    pub(crate) fn begin(&self) -> u64 {
        if self.begin == u64::MAX { 0 } else { self.begin }
    }
}

#[allow(clippy::struct_excessive_bools, reason = "each is asked for, or remembered, by itself")]
pub(crate) struct Printer {
    output: Output,
    timestamps: bool,
    /// Of the log that is printed now.
    pub(crate) times: Times,
    /// There is more than one log, so each needs its name.
    pub(crate) headed: bool,
    last: String,
    in_line: bool,
    /// A terminal obeys what it is sent, and a job's output is not its reader's word.
    escapes: bool,
    out: io::StdoutLock<'static>,
}

impl Printer {
    pub(crate) fn new(args: &LogsArgs) -> Self {
        let (output, timestamps) = (args.common.output, args.timestamps);
        let escapes = !args.raw && io::stdout().is_terminal();
        Self {
            escapes,
            output,
            timestamps,
            times: Times::default(),
            headed: false,
            last: String::new(),
            in_line: false,
            out: io::stdout().lock(),
        }
    }

    pub(crate) fn wants_times(&self) -> bool {
        self.timestamps
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// What is printed after logs begins on a line of its own, at a terminal.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        if self.in_line && self.output == Output::Human && self.out.is_terminal() {
            writeln!(self.out)?;
        }
        self.out.flush()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.escapes {
            self.out.write_all(escaped(bytes).as_bytes())
        } else {
            self.out.write_all(bytes)
        }
    }

    /// How much of it was taken: of text for programs and terminals, no half characters.
    pub(crate) fn piece(
        &mut self,
        step: &str,
        name: &str,
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<usize> {
        if self.output == Output::Json {
            return self.json(step, name, offset, bytes);
        }
        if self.headed && self.last != name {
            let gap = if self.in_line { "\n" } else { "" };
            writeln!(self.out, "{gap}== {} ==", inert(name))?;
            name.clone_into(&mut self.last);
            self.in_line = false;
        }
        let bytes = if self.escapes { &bytes[..whole(bytes)] } else { bytes };
        if !self.timestamps {
            self.in_line = bytes.last().is_some_and(|last| *last != b'\n');
            self.put(bytes)?;
            return Ok(bytes.len());
        }
        let mut at = offset;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.in_line {
                write!(self.out, "{} ", self.times.at(at).map_or_else(no_time, time))?;
            }
            self.put(line)?;
            self.in_line = line.last() != Some(&b'\n');
            at += line.len() as u64;
        }
        Ok(bytes.len())
    }

    fn json(&mut self, step: &str, name: &str, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let bytes = &bytes[..whole(bytes)];
        if !self.timestamps {
            let text = String::from_utf8_lossy(bytes);
            let line =
                serde_json::json!({"step": step, "log": name, "offset": offset, "text": text});
            writeln!(self.out, "{line}")?;
            return Ok(bytes.len());
        }
        let mut at = offset;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = String::from_utf8_lossy(line);
            let line_of = serde_json::json!({
                "step": step, "log": name, "offset": at, "at_ms": self.times.at(at), "text": text,
            });
            writeln!(self.out, "{line_of}")?;
            at += line.len() as u64;
        }
        Ok(bytes.len())
    }
}

/// In UTC, to the millisecond: as wide for every line.
fn time(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(no_time, |at| format!("{at:.3}"))
}

fn no_time() -> String {
    " ".repeat("2026-01-01T00:00:00.000Z".len())
}

/// For a terminal: lines and tabs as they are, other control characters, and what is no text, written out.
fn escaped(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for piece in chunk.valid().split_inclusive(['\n', '\t']) {
            let text = piece.trim_end_matches(['\n', '\t']);
            let end = &piece[text.len()..];
            // As some programs end their lines.
            let text = if end == "\n" { text.strip_suffix('\r').unwrap_or(text) } else { text };
            shown.push_str(&inert(text));
            shown.push_str(end);
        }
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// Without the beginning of a character at the end, unless there is nothing else.
fn whole(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let cut = (tail..bytes.len()).find(|&at| {
        let cut_off =
            |error: std::str::Utf8Error| error.valid_up_to() == 0 && error.error_len().is_none();
        std::str::from_utf8(&bytes[at..]).is_err_and(cut_off)
    });
    cut.filter(|at| *at > 0).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_not_cut_in_half() {
        let text = "aé漢😀".as_bytes();
        let whole: Vec<usize> = (1..=text.len()).map(|end| whole(&text[..end])).collect();
        assert_eq!(whole, [1, 1, 3, 3, 3, 6, 6, 6, 6, 10]);
        assert_eq!(super::whole(b"\xff\xfe"), 2, "what is no text at all is not waited for");
        assert_eq!(super::whole(b"\xf0\x9f"), 2, "and an end that never comes neither");
    }

    #[test]
    fn a_terminal_is_sent_nothing_that_it_obeys() {
        let shown = escaped(
            b"a\tb\r\n\x1b]0;title\x07\x1b[2J\rc \xff\xc2\x9b31m \xe2\x80\xae \xc3\xa9\n\n",
        );
        let expected = "a\tb\n\\u{1b}]0;title\\u{7}\\u{1b}[2J\\rc \\xff\\u{9b}31m \\u{202e} é\n\n";
        assert_eq!(shown, expected);
    }

    #[track_caller]
    fn last(text: &str, lines: u64, expected: &str) {
        // However it is cut in chunks.
        for size in 1..=text.len() + 1 {
            let mut last = LastLines::new(lines);
            let mut end = text.len();
            while end > 0 {
                let start = end.saturating_sub(size);
                if last.before(start as u64, &text.as_bytes()[start..end]) {
                    break;
                }
                end = start;
            }
            let from = (last.begin() as usize).min(text.len());
            assert_eq!(&text[from..], expected, "{text:?} in chunks of {size}");
        }
    }

    #[test]
    fn the_last_lines_are_whole_lines() {
        last("", 3, "");
        last("a\nb\nc\n", 1, "c\n");
        last("a\nb\nc", 1, "c");
        last("a\nb\nc\n", 2, "b\nc\n");
        last("a\n\n\n", 2, "\n\n");
        last("a\nb\n", 2, "a\nb\n");
        last("a\nb\n", 9, "a\nb\n");
        last("a\nb\n", 0, "");
    }

    #[test]
    fn a_byte_has_the_time_of_what_it_was_printed_with() {
        let times = Times::new(vec![(0, 1000), (10, 2000), (30, 3000)]);
        assert_eq!(
            [0, 9, 10, 29, 30, 99].map(|at| times.at(at).unwrap_or(0) / 1000),
            [1, 1, 2, 2, 3, 3]
        );
        assert_eq!(times.since(0), Some(0));
        assert_eq!(times.since(1001), Some(10));
        assert_eq!(times.since(3001), None);
        assert_eq!(time(1_763_200_000_123), "2025-11-15T09:46:40.123Z");
    }
}
