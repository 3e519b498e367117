//! Text into a tree with places, within limits. It knows YAML and JSON, and nothing of jobs.
//!
//! A hostile file costs what it weighs and no more: size, depth and the weight of what its aliases
//! stand for are checked before anything is built from them.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use crate::builder::{Builder, too_deep};
use crate::json;
use crate::node::{Node, Span};
use crate::problem::{Problem, sorted};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the text, and of all scalars together once aliases stand for what they name.
    pub max_bytes: usize,
    /// Scalars, lists and maps together, counted the same way.
    pub max_nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_bytes: 10 << 20, max_nodes: 1_200_000 }
    }
}

/// Reads one YAML document, or JSON. The name is the file's, if it has one: of a `.json` file the
/// errors speak JSON.
pub fn document(name: &str, text: &[u8], limits: Limits) -> Result<Node, Vec<Problem>> {
    match read(name, text, limits) {
        (Some(root), problems) if problems.is_empty() => Ok(root),
        (_, problems) => Err(sorted(problems)),
    }
}

/// A tree may come with problems that do not hide the rest of the file, such as a key that is
/// written twice.
pub(crate) fn read(name: &str, text: &[u8], limits: Limits) -> (Option<Node>, Vec<Problem>) {
    match checked_text(text, limits) {
        Ok(text) => read_text(name, text, limits),
        Err(problem) => (None, vec![problem]),
    }
}

fn checked_text(text: &[u8], limits: Limits) -> Result<&str, Problem> {
    if text.len() > limits.max_bytes {
        let message =
            format!("the file has {} bytes; at most {} are read", text.len(), limits.max_bytes);
        return Err(Problem::new("too_large", "", Span::START, message));
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        let valid = &text[..error.valid_up_to()];
        let line = valid.split(|byte| *byte == b'\n').count();
        let start = valid.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&valid[start..]).chars().count();
        let message = format!("not UTF-8 text: byte {} is invalid", valid.len());
        let span = Span { line: line as u32, column: column as u32 + 1, length: 1 };
        Problem::new("not_utf8", "", span, message)
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn read_text(name: &str, text: &str, limits: Limits) -> (Option<Node>, Vec<Problem>) {
    if text.trim_start().starts_with(['{', '[']) {
        let mut builder = Builder::new(limits);
        let read = json::read(text, &mut builder);
        // YAML has braces too, so that what is not JSON may still be YAML.
        let is_json = std::path::Path::new(name)
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("json"));
        if read.is_ok() || is_json || builder.gave_up {
            return builder.finish(read);
        }
    }
    let mut builder = Builder::new(limits);
    let read = too_many_marks(text, limits).map_or_else(|| read_yaml(text, &mut builder), Err);
    builder.finish(read)
}

/// Inside brackets the scanner holds every token until they close, a hundred bytes for each, before
/// anything is built that could be counted. So what makes tokens is counted first, wherever it
/// stands: a file within the limit on values has about one mark for each.
fn too_many_marks(text: &str, limits: Limits) -> Option<Problem> {
    let (mut marks, mut quotes) = (0, 0);
    for pair in text.as_bytes().windows(2) {
        match pair[0] {
            b',' | b'?' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' => marks += 1,
            b':' => marks += usize::from(matches!(pair[1], b' ' | b'\n' | b':')),
            b'"' | b'\'' => quotes += 1,
            _ => {}
        }
    }
    let most = 2 * limits.max_nodes;
    (marks + quotes / 2 > most).then(|| {
        let message = format!("more than {most} commas, brackets and quotes");
        Problem::new("too_large", "", Span::START, message).help("split the work over several jobs")
    })
}

fn read_yaml(text: &str, builder: &mut Builder) -> Result<(), Problem> {
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            // The scanner looks ahead, and has a limit of its own on that.
            if error.info().contains("recursion limit") {
                return too_deep(at(*error.marker()));
            }
            let (message, help) = plain_words(error.info());
            let problem = Problem::new("syntax", "", at(*error.marker()), message);
            help.into_iter().fold(problem, Problem::help)
        })?;
        let start = at(span.start);
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    let message = "a second document begins here; a file holds one".to_owned();
                    let help = "put it into a file of its own";
                    return Err(Problem::new("multiple_documents", "", start, message).help(help));
                }
            }
            Event::Scalar(value, style, anchor, tag) => {
                if let Some(tag) = tag {
                    builder.tag(&tag, start);
                }
                let quoted = style != ScalarStyle::Plain;
                let length = if span.start.line() == span.end.line() {
                    span.end.col() - span.start.col()
                } else {
                    value.lines().next().unwrap_or_default().chars().count()
                };
                let span = Span { length: length as u32, ..start };
                builder.scalar(&value, quoted, span, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                if let Some(tag) = tag {
                    builder.tag(&tag, start);
                }
                builder.open(false, start, anchor)?;
            }
            Event::MappingStart(anchor, tag) => {
                if let Some(tag) = tag {
                    builder.tag(&tag, start);
                }
                builder.open(true, start, anchor)?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close(),
            Event::Alias(anchor) => {
                let length = span.len() as u32;
                builder.alias(anchor, Span { length, ..start })?;
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    Ok(())
}

fn at(marker: Marker) -> Span {
    Span { line: (marker.line() as u32).max(1), column: marker.col() as u32 + 1, length: 1 }
}

/// The parser's words, and for the slips that everybody makes, ours.
fn plain_words(info: &str) -> (String, Option<String>) {
    let help = if info.contains("tab") {
        Some("indent with spaces")
    } else if info.contains("unknown anchor") {
        Some(
            "an `&anchor` must stand before the `*alias` that uses it; put quotes around text that begins with `*`",
        )
    } else if info.contains("mapping values are not allowed") {
        Some("put quotes around text that contains `: `, and check the indentation")
    } else {
        None
    };
    (format!("not valid YAML: {}", info.trim()), help.map(str::to_owned))
}
