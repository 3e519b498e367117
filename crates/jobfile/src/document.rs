//! Text into a tree with places, within limits. It knows YAML and JSON, and nothing of jobs.
//!
//! A hostile file costs what it weighs and no more: size, depth and the weight of what its aliases
//! stand for are checked before anything is built from them.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use crate::json;
use crate::node::{Entry, Kind, Node, Span};
use crate::problem::{Problem, quote, sorted};

/// Deeper than any person indents, and far from the end of the stack.
const MAX_DEPTH: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the text, and of all scalars together once aliases stand for what they name.
    pub max_bytes: usize,
    /// Scalars, lists and maps together, counted the same way.
    pub max_nodes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 10 << 20,
            max_nodes: 1_200_000,
        }
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
        let message = format!(
            "the file has {} bytes; at most {} are read",
            text.len(),
            limits.max_bytes
        );
        return Err(Problem::new("too_large", "", Span::START, message));
    }
    let text = std::str::from_utf8(text).map_err(|error| {
        let valid = &text[..error.valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count();
        let start = valid
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let column = String::from_utf8_lossy(&valid[start..]).chars().count();
        let message = format!("not UTF-8 text: byte {} is invalid", valid.len());
        let span = Span {
            line: line as u32 + 1,
            column: column as u32 + 1,
            length: 1,
        };
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
    let read = read_yaml(text, &mut builder);
    builder.finish(read)
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
                    builder.tag(&tag.suffix, start);
                }
                let quoted = style != ScalarStyle::Plain;
                let length = if span.start.line() == span.end.line() {
                    span.end.col() - span.start.col()
                } else {
                    value.lines().next().unwrap_or_default().chars().count()
                };
                let span = Span {
                    length: length as u32,
                    ..start
                };
                builder.scalar(&value, quoted, span, anchor)?;
            }
            Event::SequenceStart(anchor, tag) => {
                if let Some(tag) = tag {
                    builder.tag(&tag.suffix, start);
                }
                builder.open(false, start, anchor)?;
            }
            Event::MappingStart(anchor, tag) => {
                if let Some(tag) = tag {
                    builder.tag(&tag.suffix, start);
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
    Span {
        line: (marker.line() as u32).max(1),
        column: marker.col() as u32 + 1,
        length: 1,
    }
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
    (
        format!("not valid YAML: {}", info.trim()),
        help.map(str::to_owned),
    )
}

fn too_deep(span: Span) -> Problem {
    let message = format!("nested more than {MAX_DEPTH} deep");
    Problem::new("too_deep", "", span, message)
}

/// How much a finished node stands for.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    nodes: usize,
    bytes: usize,
    height: usize,
}

impl Weight {
    fn add(&mut self, inner: Self) {
        self.nodes += inner.nodes;
        self.bytes += inner.bytes;
        self.height = self.height.max(inner.height + 1);
    }
}

#[derive(Debug)]
enum Open {
    List(Vec<Node>),
    Map(Vec<Entry>, Option<(Arc<str>, Span)>),
}

#[derive(Debug)]
struct Frame {
    open: Open,
    span: Span,
    anchor: usize,
    weight: Weight,
}

/// Assembles the tree from what either reader meets.
#[derive(Debug)]
pub(crate) struct Builder {
    limits: Limits,
    frames: Vec<Frame>,
    anchors: HashMap<usize, (Node, Weight)>,
    root: Option<Node>,
    nodes: usize,
    bytes: usize,
    problems: Vec<Problem>,
    /// A limit was passed: no other reader would do better.
    pub(crate) gave_up: bool,
}

impl Builder {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            frames: Vec::new(),
            anchors: HashMap::new(),
            root: None,
            nodes: 0,
            bytes: 0,
            problems: Vec::new(),
            gave_up: false,
        }
    }

    fn finish(mut self, read: Result<(), Problem>) -> (Option<Node>, Vec<Problem>) {
        if let Err(problem) = read {
            // What follows a syntax error is guesswork.
            self.problems.push(problem);
            self.root = None;
        } else if self.root.is_none() {
            let problem = Problem::new("empty_file", "", Span::START, "the file is empty".into());
            self.problems
                .push(problem.help("begin with `name: my-job` and `steps:`"));
        }
        (self.root, self.problems)
    }

    /// Where the reader is, as a path.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match &frame.open {
                Open::List(items) => path.push_str(&format!("[{}]", items.len())),
                Open::Map(_, Some((key, _))) if path.is_empty() => path.push_str(key),
                Open::Map(_, Some((key, _))) => path.push_str(&format!(".{key}")),
                Open::Map(_, None) => {}
            }
        }
        path
    }

    fn charge(&mut self, weight: Weight, span: Span, what: &str) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(weight.nodes);
        self.bytes = self.bytes.saturating_add(weight.bytes);
        let Limits {
            max_nodes,
            max_bytes,
        } = self.limits;
        let message = if self.nodes > max_nodes {
            format!("{what} makes this more than {max_nodes} values")
        } else if self.bytes > max_bytes {
            format!("{what} makes this more than {max_bytes} bytes of text")
        } else if self.frames.len() + weight.height > MAX_DEPTH {
            self.gave_up = true;
            return Err(too_deep(span));
        } else {
            return Ok(());
        };
        self.gave_up = true;
        Err(Problem::new("too_large", "", span, message))
    }

    pub(crate) fn open(&mut self, map: bool, span: Span, anchor: usize) -> Result<(), Problem> {
        let weight = Weight {
            nodes: 1,
            bytes: 0,
            height: 1,
        };
        self.charge(weight, span, "this value")?;
        let open = if map {
            Open::Map(Vec::new(), None)
        } else {
            Open::List(Vec::new())
        };
        self.frames.push(Frame {
            open,
            span,
            anchor,
            weight,
        });
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let kind = match frame.open {
            Open::List(items) => Kind::List(items.into()),
            Open::Map(entries, _) => {
                self.refuse_duplicates(&entries);
                Kind::Map(entries.into())
            }
        };
        let node = Node {
            span: frame.span,
            kind,
        };
        self.place(node, frame.weight, frame.anchor);
    }

    pub(crate) fn scalar(
        &mut self,
        text: &str,
        quoted: bool,
        span: Span,
        anchor: usize,
    ) -> Result<(), Problem> {
        let weight = Weight {
            nodes: 1,
            bytes: text.len(),
            height: 0,
        };
        self.charge(weight, span, "this value")?;
        if text.contains('\0') {
            let message = "text cannot contain a NUL character".to_owned();
            self.problems
                .push(Problem::new("invalid_value", &self.path(), span, message));
        }
        let text = text.into();
        let kind = Kind::Scalar { text, quoted };
        self.place(Node { span, kind }, weight, anchor);
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Problem> {
        let Some((node, weight)) = self.anchors.get(&anchor).cloned() else {
            let message = "this alias stands inside the value that it names".to_owned();
            return Err(Problem::new("syntax", "", span, message));
        };
        self.charge(weight, span, "what this alias stands for")?;
        self.place(node, weight, 0);
        Ok(())
    }

    fn tag(&mut self, tag: &str, span: Span) {
        let message = format!(
            "tags such as {} are not supported",
            quote(&format!("!{tag}"))
        );
        let problem = Problem::new("tag", &self.path(), span, message).help("remove it");
        self.problems.push(problem);
    }

    fn place(&mut self, node: Node, weight: Weight, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return;
        };
        frame.weight.add(weight);
        match &mut frame.open {
            Open::List(items) => items.push(node),
            Open::Map(entries, open_key) => match open_key.take() {
                None => *open_key = Some(key(&node, &mut self.problems)),
                Some((key, key_span)) => {
                    let mut value = node;
                    // What was left out has no place of its own.
                    if value.span.length == 0 && value.text() == Some("") {
                        value.span = key_span;
                    }
                    entries.push(Entry {
                        key,
                        key_span,
                        value,
                    });
                }
            },
        }
    }

    fn refuse_duplicates(&mut self, entries: &[Entry]) {
        let mut lines = HashMap::with_capacity(entries.len());
        for entry in entries {
            if let Some(first) = lines.insert(&*entry.key, entry.key_span.line) {
                let message = format!(
                    "{} is already written on line {first}, and again on line {}",
                    quote(&entry.key),
                    entry.key_span.line
                );
                let mut path = self.path();
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(&entry.key);
                let problem = Problem::new("duplicate_key", &path, entry.key_span, message);
                self.problems.push(problem.help("remove one of the two"));
            }
        }
    }
}

/// Keys are text.
fn key(node: &Node, problems: &mut Vec<Problem>) -> (Arc<str>, Span) {
    let Kind::Scalar { text, quoted } = &node.kind else {
        let message = format!("a key must be text, not {}", node.describe());
        problems.push(Problem::new("wrong_type", "", node.span, message));
        return ("".into(), node.span);
    };
    if &**text == "<<" && !quoted {
        let message = "merge keys are not supported".to_owned();
        let help = "write the keys out, or put an alias on the whole value";
        problems.push(Problem::new("merge_key", "<<", node.span, message).help(help));
    }
    (text.clone(), node.span)
}
