//! What is wrong with a file, and what is merely odd: where, what, and what to write instead.
//!
//! Nothing here prints; whoever renders a problem has the place and the length of the text.

use serde::Serialize;

use crate::node::{Node, Span};

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
    if problems.len() > SHOWN {
        let more = problems.len() - SHOWN;
        problems.truncate(SHOWN);
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

/// Where a path leads in a document: the value it names, or as near to it as the document goes.
pub(crate) fn locate(root: &Node, path: &str) -> Span {
    let (mut node, mut span) = (root, Span::START);
    for part in path.split('.') {
        let (key, indices) = part.split_once('[').unwrap_or((part, ""));
        let Some(entry) = node.entry(key) else { break };
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

/// Text from a file, fit for a message: short, and with nothing that moves a cursor.
pub(crate) fn quote(text: &str) -> String {
    const LONGEST: usize = 40;
    let mut short: String = text
        .chars()
        .take(LONGEST)
        .flat_map(|c| {
            let plain = c == '\'' || c == '"' || c == '\\';
            let escaped = (!plain).then(|| c.escape_debug());
            plain.then_some(c).into_iter().chain(escaped.into_iter().flatten())
        })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        short.push('…');
    }
    format!("`{short}`")
}
