//! What is wrong with a file, and what is merely odd: where, what, and what to write instead.
//!
//! Nothing here prints; whoever renders a problem has the place and the length of the text.

use std::collections::HashMap;

use serde::Serialize;
pub(crate) use steadfast_core::text::quote;

use crate::node::{Entry, Node, Span};

/// A file can be wrong in more ways than anybody reads.
const SHOWN: usize = 100;

/// The codes of problems, for the reference and for programs; none ever changes its meaning.
pub const PROBLEM_CODES: &[(&str, &str)] = &[
    ("too_large", "the file, or a list in it, is larger than is allowed"),
    ("too_deep", "nested deeper than is allowed"),
    ("not_utf8", "the file is not text"),
    ("empty_file", "there is nothing in the file"),
    ("syntax", "neither YAML nor JSON"),
    ("multiple_documents", "a file holds one document"),
    ("merge_key", "`<<` is not supported"),
    ("tag", "tags such as `!!str` are not supported"),
    ("duplicate_key", "a key is written twice"),
    ("unknown_key", "a key that does not exist, or not there"),
    ("renamed_key", "a key that has another name now"),
    ("conflicting_keys", "two keys that cannot stand beside each other"),
    ("missing_value", "something that must be there is not"),
    ("wrong_type", "a list where text is expected, and the like"),
    ("invalid_value", "of the right kind, but not possible"),
    ("invalid_duration", "not a duration such as `30s`"),
    ("invalid_size", "not a size such as `512m`"),
    ("invalid_name", "a name with characters that names cannot have"),
    ("invalid_template", "`{{ … }}` that names nothing that is there"),
    ("duplicate_value", "something is listed twice"),
    ("unknown_step", "a step that does not exist"),
    ("not_needed", "the output of a step that is not waited for"),
    ("cycle", "steps that need each other"),
    ("more_problems", "how many more there are than are shown"),
];

/// The codes of warnings, likewise.
pub const WARNING_CODES: &[(&str, &str)] = &[
    ("attempts_unreachable", "another limit binds before `max_attempts`"),
    ("unlimited_attempts", "`max_attempts` is unlimited"),
    ("not_retryable_with_attempts", "`retryable: false` beside more than one attempt"),
    ("budget_below_first_delay", "the delay budget allows no retry"),
    ("delay_capped", "a rule's delay is longer than `max_retry_after`"),
    ("budget_clamped", "more retries were asked for than the operator allows"),
    ("budget_unreachable", "a share of the budget that `max_attempts` does not allow to spend"),
    ("excessive_attempts", "so many attempts that they are as good as no limit"),
    ("best_effort_without_datacenters", "best effort of a job that names no datacenters"),
    ("unused_key", "a key that has no effect"),
    ("script_not_in_files", "`./script` that would not be there on a worker"),
    ("template_in_run", "`{{ … }}` in `run`, which is never templated"),
];

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// One of [`PROBLEM_CODES`].
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
    /// One of [`WARNING_CODES`].
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
pub(crate) struct Positions<'a> {
    root: &'a Node,
    steps: HashMap<&'a str, &'a Entry>,
}

impl<'a> Positions<'a> {
    pub(crate) fn new(root: &'a Node) -> Self {
        let steps = root.get("steps").and_then(Node::as_map).unwrap_or_default();
        // Of two with one name the first is the one that is read.
        let steps = steps.iter().rev().map(|entry| (&*entry.key, entry));
        Self { root, steps: steps.collect() }
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
