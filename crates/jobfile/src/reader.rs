//! The walk over a tree: blocks with known keys, and every problem noted at its place, so that one
//! mistake does not hide the next. It knows shapes, not jobs.

use std::collections::HashSet;

use steadfast_core::plan::nearest;

use crate::keys::{self, Table};
use crate::node::{Entry, Node, Span};
use crate::operator::Operator;
use crate::problem::{Problem, Warning, quote};
use crate::references::TemplateUse;

/// More known keys than this are no help in a message.
const LISTED_KEYS: usize = 10;
/// Far more than are shown; a file can have a million.
const MOST_PROBLEMS: usize = 10_000;
/// Characters of a key that are part of the paths below it: each value below has the whole path.
const LONGEST_IN_PATH: usize = 200;

#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) operator: &'a Operator,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Warning>,
    /// What templates name, to be checked once the whole plan is known.
    pub(crate) uses: Vec<TemplateUse>,
    /// The regular expressions of its rules.
    pub(crate) patterns: HashSet<String>,
    /// Of the rules of the steps that were read.
    pub(crate) rules_weight: usize,
    /// Where a problem goes that nobody would read any more.
    unread: Problem,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct At<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: String,
}

impl<'a> At<'a> {
    pub(crate) fn item(&self, index: usize, node: &'a Node) -> Self {
        Self { node, path: format!("{}[{index}]", self.path) }
    }

    pub(crate) fn entry(&self, entry: &'a Entry) -> Self {
        Self { node: &entry.value, path: join(&self.path, &entry.key) }
    }
}

/// Made for every value of a file, so not by `format!`.
fn join(path: &str, key: &str) -> String {
    let is_long = key.len() > LONGEST_IN_PATH;
    let end = is_long.then(|| key.char_indices().nth(LONGEST_IN_PATH)).flatten();
    let (key, rest) = end.map_or((key, ""), |(end, _)| (&key[..end], "…"));
    let dot = if path.is_empty() { "" } else { "." };
    [path, dot, key, rest].concat()
}

/// Where a key belongs that is right but in the wrong place.
fn elsewhere(key: &str, table: &'static Table) -> Option<String> {
    let knows = |other: &'static Table| {
        !std::ptr::eq(other, table) && other.names().any(|name| name == key)
    };
    if knows(&keys::STEP) {
        Some(format!("`{key}` belongs to a step"))
    } else {
        knows(&keys::JOB).then(|| format!("`{key}` belongs to the job, beside `steps`"))
    }
}

/// What other systems call things: GitHub Actions, GitLab, Argo, Airflow, Nomad, Compose.
fn foreign(key: &str, table: &'static Table) -> Option<&'static str> {
    const ATTEMPTS: &str = "write `max_attempts`; it counts the first attempt too, so 3 retries are \
                            `max_attempts: 4`";
    let of = |other: &'static Table| std::ptr::eq(other, table);
    if of(&keys::RETRY) {
        return match key {
            "retries" | "max_retries" | "limit" | "count" | "attempts" => Some(ATTEMPTS),
            "delay" | "interval" | "retry_delay" => Some("write `initial_delay: 5s`"),
            _ => None,
        };
    }
    let of_step = match key {
        "depends_on" | "dependsOn" | "depends-on" | "dependencies" | "depends" | "after"
        | "upstream" | "requires" => Some("write `needs: [STEP]`"),
        "command" | "script" | "bash_command" | "cmd" | "exec" | "entrypoint" => {
            Some("write it as `run` for the shell, or as a list in `argv` without one")
        }
        "uses" | "image" => Some("a step does one thing: `run`, `argv`, `http` or `call`"),
        "matrix" | "strategy" | "withItems" | "withParam" | "expand" => {
            Some("write `for_each: [a, b]`; an item is `{{ item }}` in `argv`")
        }
        "max-parallel" | "max_parallel" | "concurrency" => Some("write `parallelism: 4`"),
        "continue-on-error" | "continue_on_error" | "allow_failure" => {
            Some("write `on_failure: continue`")
        }
        _ => None,
    };
    let of_job = match key {
        "jobs" | "tasks" | "templates" | "stages" => Some("did you mean `steps`?"),
        "workflow" | "job" | "id" | "title" | "dag_id" => Some("did you mean `name`?"),
        _ => None,
    };
    let of_both = match key {
        "retries" | "max_retries" | "retry_count" | "retryStrategy" => Some(
            "write `retry: { max_attempts: 4 }` for 3 retries: it counts the first attempt too",
        ),
        "retry_delay" => Some("write `retry: { initial_delay: 5s }`"),
        "timeout-minutes" | "timeout_minutes" | "execution_timeout" | "activeDeadlineSeconds" => {
            Some("write `timeout: 10m`")
        }
        "environment" | "variables" => Some("write `env: { NAME: value }`"),
        "working-directory" | "working_directory" | "workdir" | "workingDir" => {
            Some("write `cwd: source` or `cwd: attempt`, and `cd` in the command")
        }
        _ => None,
    };
    if of(&keys::STEP) {
        of_step.or(of_both)
    } else if of(&keys::JOB) {
        of_job.or(of_both)
    } else {
        None
    }
}

/// A map whose keys are all known.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) at: At<'a>,
    entries: &'a [Entry],
    table: &'static Table,
}

impl<'a> Block<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<At<'a>> {
        debug_assert!(
            self.table.names().any(|name| name == key),
            "{key} is not in the table of {}",
            self.table.title
        );
        Some(self.at.entry(self.entry(key)?))
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    pub(crate) fn key_span(&self, key: &str) -> Span {
        self.entry(key).map_or(self.at.node.span(), |entry| entry.key_span)
    }

    pub(crate) fn path(&self, key: &str) -> String {
        join(&self.at.path, key)
    }

    fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|entry| &*entry.key == key)
    }
}

impl<'a> Reader<'a> {
    pub(crate) fn new(operator: &'a Operator) -> Self {
        Self {
            operator,
            problems: Vec::new(),
            warnings: Vec::new(),
            uses: Vec::new(),
            patterns: HashSet::new(),
            rules_weight: 0,
            unread: Problem::new("more_problems", "", Span::START, String::new()),
        }
    }

    pub(crate) fn bad(&mut self, code: &'static str, at: &At, message: String) -> &mut Problem {
        self.bad_at(code, &at.path, at.node.span(), message)
    }

    pub(crate) fn bad_at(
        &mut self,
        code: &'static str,
        path: &str,
        span: Span,
        message: String,
    ) -> &mut Problem {
        let problem = Problem::new(code, path, span, message);
        if self.problems.len() >= MOST_PROBLEMS {
            self.unread = problem;
            return &mut self.unread;
        }
        self.problems.push(problem);
        let last = self.problems.len() - 1;
        &mut self.problems[last]
    }

    pub(crate) fn warn(&mut self, code: &'static str, path: String, line: u32, message: String) {
        self.warnings.push(Warning { code, path, line, message });
    }

    pub(crate) fn wrong_type(&mut self, at: &At, wanted: &str) {
        let message = format!("expected {wanted}, not {}", at.node.describe());
        self.bad("wrong_type", at, message);
    }

    /// A map with the keys of `table`. `owner` is the key that holds it, to point at when
    /// something is missing.
    pub(crate) fn block<'n>(
        &mut self,
        at: &At<'n>,
        owner: Option<Span>,
        table: &'static Table,
    ) -> Option<Block<'n>> {
        let Some(entries) = at.node.as_map() else {
            let first = table.keys[0].name;
            self.wrong_type(at, &format!("a map, as `{{ {first}: … }}`"));
            return None;
        };
        // A key that was misspelled is not missing too.
        let mut meant = Vec::new();
        for entry in entries {
            if !table.names().any(|name| name == &*entry.key) {
                meant.extend(self.unknown_key(at, entry, table));
            }
        }
        let meant = |key: &str| meant.iter().any(|help| help.contains(&format!("`{key}`")));
        let block = Block { at: at.clone(), entries, table };
        let place = owner.unwrap_or(at.node.span());
        let merged = block.has("<<");
        for (key, example) in table.required {
            if !block.has(key) && !meant(key) && !merged {
                let message = format!("{} needs `{key}`", table.title);
                self.bad_at("missing_value", &at.path, place, message).help =
                    Some(format!("add `{example}`"));
            }
        }
        let written: Vec<_> = table.exactly_one.iter().filter(|key| block.has(key)).collect();
        let list = || format!("`{}`", table.exactly_one.join("`, `"));
        if let [first, second, ..] = written[..] {
            let message =
                format!("both `{first}` and `{second}`: only one of {} is allowed", list());
            self.bad_at("conflicting_keys", &block.path(second), block.key_span(second), message)
                .help = Some("remove one".into());
        }
        let hinted = merged || table.exactly_one.iter().any(|key| meant(key));
        if written.is_empty() && !hinted && !table.exactly_one.is_empty() {
            let message = format!("{} needs one of {}", table.title, list());
            self.bad_at("missing_value", &at.path, place, message);
        }
        for (a, b) in table.exclusive {
            if block.has(a) && block.has(b) {
                self.conflict(&block, a, b);
            }
        }
        Some(block)
    }

    pub(crate) fn conflict(&mut self, block: &Block, a: &str, b: &str) {
        let place = |key| (block.key_span(key).line, block.key_span(key).column);
        let (first, second) = if place(a) <= place(b) { (a, b) } else { (b, a) };
        let message = format!("`{second}` cannot stand beside `{first}`");
        let help = format!("keep one of `{first}` and `{second}`");
        self.bad_at("conflicting_keys", &block.path(second), block.key_span(second), message)
            .help = Some(help);
    }

    /// The guess, if there is one.
    fn unknown_key(&mut self, at: &At, entry: &Entry, table: &'static Table) -> Option<String> {
        let path = join(&at.path, &entry.key);
        let key = &*entry.key;
        // The document's reader has said so already.
        if key == "<<" || key.is_empty() {
            return None;
        }
        if key == "retry_limit" && table.title == "`retry`" {
            let message = "`retry_limit` was renamed: `max_attempts` counts the first attempt too";
            let number = entry.value.text().and_then(|text| text.parse::<u32>().ok());
            let help = format!("write `max_attempts: {}`", number.unwrap_or(3).max(1));
            self.bad_at("renamed_key", &path, entry.key_span, message.into()).help = Some(help);
            return None;
        }
        let message = format!("{} is not a key of {}", quote(key), table.title);
        if let Some(help) = foreign(key, table) {
            self.bad_at("unknown_key", &path, entry.key_span, message).help = Some(help.to_owned());
            // What was meant is there, so it is not missing too.
            return Some(help.to_owned());
        }
        let names: Vec<_> = table.names().collect();
        // Past these nobody reads on, and guessing is the slow part.
        let guessing = self.problems.len() < 1000;
        let guess = nearest(key, names.iter().copied().filter(|_| guessing));
        self.bad_at("unknown_key", &path, entry.key_span, message).help =
            guess.clone().or_else(|| {
                elsewhere(key, table).or_else(|| {
                    let few = names.len() <= LISTED_KEYS;
                    few.then(|| format!("known keys: `{}`", names.join("`, `")))
                })
            });
        guess
    }
}
