//! What is wrong with a file, and what is merely odd: where, what, and what to write instead.
//!
//! Nothing here prints; whoever renders a problem has the place and the length of the text.

use std::collections::HashMap;

use serde::Serialize;

use crate::node::{Entry, Node, Span};

/// A file can be wrong in more ways than anybody reads.
const SHOWN: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// `unknown_key`, `invalid_value`, …: stable, for programs.
    pub code: &'static str,
    /// `steps.fetch.retry.max_attempts`; empty for the file itself.
    pub path: String,
    /// From 1.
    pub line: u32,
    /// From 1, in characters.
    pub column: u32,
    /// Characters of the offending text, at least 1.
    #[serde(skip)]
    pub length: u32,
    pub message: String,
    pub help: Option<String>,
}

impl Problem {
    pub(crate) fn new(code: &'static str, path: &str, span: Span, message: String) -> Self {
        Self {
            code,
            path: path.to_owned(),
            line: span.line,
            column: span.column,
            length: span.length.max(1),
            message,
            help: None,
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub code: &'static str,
    pub path: String,
    pub line: u32,
    pub message: String,
}

/// In the order of the file, and no more than anybody reads.
pub(crate) fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by(|a, b| {
        (a.line, a.column, a.code, &a.message).cmp(&(b.line, b.column, b.code, &b.message))
    });
    problems.dedup();
    let more = problems.len().saturating_sub(SHOWN);
    problems.truncate(SHOWN);
    for problem in &mut problems {
        make_inert(&mut problem.path);
        make_inert(&mut problem.message);
        problem.help.as_mut().map(make_inert);
    }
    if more > 0 {
        let last = problems.last().cloned();
        problems.extend(last.map(|last| Problem {
            code: "more_problems",
            path: String::new(),
            message: format!("and {more} more"),
            help: None,
            ..last
        }));
    }
    problems
}

/// Names reach messages and paths whole, before anybody has checked them.
fn make_inert(text: &mut String) {
    const LONGEST: usize = 500;
    let moves =
        |c: char| c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.len() <= LONGEST && !text.contains(moves) {
        return;
    }
    let mut inert = String::new();
    for c in text.chars() {
        if inert.len() > LONGEST {
            inert.push('…');
            break;
        }
        if moves(c) {
            inert.extend(c.escape_unicode());
        } else {
            inert.push(c);
        }
    }
    *text = inert;
}

/// Where paths lead in a job file. A plan may have ten thousand steps and something to say about
/// each, so they are indexed once.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    root: &'a Node,
    steps: HashMap<&'a str, &'a Entry>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(root: &'a Node) -> Self {
        let steps = root.get("steps").and_then(Node::as_map).unwrap_or_default();
        // Of two with one name the first is the one that is read.
        let steps = steps.iter().rev().map(|entry| (&*entry.key, entry));
        Self {
            root,
            steps: steps.collect(),
        }
    }

    /// The value that a path names, or as near to it as the document goes.
    pub(crate) fn locate(&self, path: &str) -> Span {
        let mut span = Span::START;
        let mut node = self.root;
        for (depth, part) in path.split('.').enumerate() {
            let (key, indices) = part.split_once('[').unwrap_or((part, ""));
            let entry = if depth == 1 && path.starts_with("steps.") {
                self.steps.get(key).copied()
            } else {
                node.entry(key)
            };
            let Some(entry) = entry else { break };
            (node, span) = (&entry.value, entry.value.span());
            if node.as_map().is_some() {
                span = entry.key_span;
            }
            for index in indices.split('[').filter(|index| !index.is_empty()) {
                let item = index.trim_end_matches(']').parse::<usize>().ok();
                match item.and_then(|item| node.as_list()?.get(item)) {
                    Some(item) => (node, span) = (item, item.span()),
                    None => return span,
                }
            }
        }
        span
    }
}

/// Text from a file, fit for a message: short, and with nothing that moves a cursor.
pub(crate) fn quote(text: &str) -> String {
    const LONGEST: usize = 40;
    let mut short: String = text
        .chars()
        .take(LONGEST)
        .flat_map(|c| {
            let plain = c == '\'' || c == '"' || c == '\\';
            let escaped = (!plain).then(|| c.escape_debug());
            plain
                .then_some(c)
                .into_iter()
                .chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}
