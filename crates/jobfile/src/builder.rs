//! The tree, assembled from what either reader meets, and weighed as it grows.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use saphyr_parser::Tag;

use crate::document::Limits;
use crate::node::{Entry, Kind, Node, Span};
use crate::problem::{Problem, quote};

/// Deeper than any person indents, and far from the end of the stack.
const MAX_DEPTH: usize = 64;
/// Keys that are sooner compared with each other than put into a table.
const FEW: usize = 12;

pub(crate) fn too_deep(span: Span) -> Problem {
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
enum OpenNode {
    List(Vec<Node>),
    Map(Vec<Entry>, Option<(Arc<str>, Span)>),
}

#[derive(Debug)]
struct Frame {
    open: OpenNode,
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
    pub(crate) fn new(limits: Limits) -> Self {
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

    pub(crate) fn finish(mut self, read: Result<(), Problem>) -> (Option<Node>, Vec<Problem>) {
        if let Err(problem) = read {
            // What follows a syntax error is guesswork.
            self.problems.push(problem);
            self.root = None;
        } else if self.root.is_none() {
            let problem = Problem::new("empty_file", "", Span::START, "the file is empty".into());
            self.problems.push(problem.help("begin with `name: my-job` and `steps:`"));
        }
        (self.root, self.problems)
    }

    /// Where the reader is, as a path.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match &frame.open {
                OpenNode::List(items) => {
                    let _ = write!(path, "[{}]", items.len());
                }
                OpenNode::Map(_, Some((key, _))) if path.is_empty() => path.push_str(key),
                OpenNode::Map(_, Some((key, _))) => {
                    let _ = write!(path, ".{key}");
                }
                OpenNode::Map(_, None) => {}
            }
        }
        path
    }

    fn charge(&mut self, weight: Weight, span: Span, what: &str) -> Result<(), Problem> {
        self.nodes = self.nodes.saturating_add(weight.nodes);
        self.bytes = self.bytes.saturating_add(weight.bytes);
        let Limits { max_nodes, max_bytes } = self.limits;
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
        let weight = Weight { nodes: 1, bytes: 0, height: 1 };
        self.charge(weight, span, "this value")?;
        let open = if map { OpenNode::Map(Vec::new(), None) } else { OpenNode::List(Vec::new()) };
        self.frames.push(Frame { open, span, anchor, weight });
        Ok(())
    }

    pub(crate) fn close(&mut self) {
        let Some(frame) = self.frames.pop() else {
            return;
        };
        let kind = match frame.open {
            OpenNode::List(items) => Kind::List(items.into()),
            OpenNode::Map(entries, _) => {
                self.refuse_duplicates(&entries);
                Kind::Map(entries.into())
            }
        };
        let node = Node { span: frame.span, kind };
        self.place(node, frame.weight, frame.anchor);
    }

    pub(crate) fn scalar(
        &mut self,
        text: &str,
        quoted: bool,
        span: Span,
        anchor: usize,
    ) -> Result<(), Problem> {
        let weight = Weight { nodes: 1, bytes: text.len(), height: 0 };
        self.charge(weight, span, "this value")?;
        if text.contains('\0') {
            let message = "text cannot contain a NUL character".to_owned();
            self.problems.push(Problem::new("invalid_value", &self.path(), span, message));
        }
        let text = text.into();
        let kind = Kind::Scalar { text, quoted };
        self.place(Node { span, kind }, weight, anchor);
        Ok(())
    }

    pub(crate) fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Problem> {
        let Some((node, weight)) = self.anchors.get(&anchor).cloned() else {
            let message = "this alias stands inside the value that it names".to_owned();
            return Err(Problem::new("syntax", "", span, message));
        };
        self.charge(weight, span, "what this alias stands for")?;
        self.place(node, weight, 0);
        Ok(())
    }

    pub(crate) fn tag(&mut self, tag: &Tag, span: Span) {
        let handle = if tag.is_yaml_core_schema() { "!!" } else { &tag.handle };
        let message =
            format!("tags such as {} are not supported", quote(&format!("{handle}{}", tag.suffix)));
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
            OpenNode::List(items) => items.push(node),
            OpenNode::Map(entries, open_key) => match open_key.take() {
                None => *open_key = Some(key(&node, &mut self.problems)),
                Some((key, key_span)) => {
                    let mut value = node;
                    // What was left out has no place of its own.
                    if value.span.length == 0 && value.text() == Some("") {
                        value.span = key_span;
                    }
                    entries.push(Entry { key, key_span, value });
                }
            },
        }
    }

    fn refuse_duplicates(&mut self, entries: &[Entry]) {
        let is_first =
            |(at, entry): (usize, &Entry)| entries[..at].iter().all(|it| it.key != entry.key);
        if entries.len() <= FEW && entries.iter().enumerate().all(is_first) {
            return;
        }
        let mut lines = HashMap::with_capacity(entries.len());
        for entry in entries {
            if let Some(first) = lines.insert(&*entry.key, entry.key_span.line) {
                // Past these nobody reads on.
                if self.problems.len() >= 1000 {
                    return;
                }
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
