//! A rehearsal script: for each step, item or datacenter the outcomes that its attempts meet in turn.

use std::collections::BTreeMap;

use steadfast_core::event::{ItemId, Role};
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::Plan;
use steadfast_core::select::{ItemSelector, NoSuchPart};
use steadfast_jobfile::{Limits, Node, Problem, Span, document};

use crate::outcome::Entry;

/// Resolved against the plan it is for.
#[derive(Clone, Debug, Default)]
pub struct Script {
    lists: BTreeMap<(u32, u32), Lists>,
}

#[derive(Clone, Debug, Default)]
struct Lists {
    step: List,
    items: BTreeMap<u32, List>,
    fallback: List,
    compensation: List,
}

/// The attempts of an item in turn; the last one repeats, an empty list is `ok`.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    attempts: Vec<Attempt>,
}

#[derive(Clone, Debug)]
struct Attempt {
    outcome: Option<Outcome>,
    takes_ms: u64,
    /// How long the engine is down after the decision on it.
    down_after_ms: u64,
}

impl List {
    fn new(entries: Vec<Entry>) -> Self {
        let mut attempts: Vec<Attempt> = Vec::new();
        for entry in entries {
            match entry {
                Entry::Attempt { outcome, takes_ms } => {
                    attempts.push(Attempt { outcome, takes_ms, down_after_ms: 0 });
                }
                Entry::Down { ms } => {
                    if let Some(last) = attempts.last_mut() {
                        last.down_after_ms = last.down_after_ms.saturating_add(ms);
                    }
                }
            }
        }
        Self { attempts }
    }

    /// How the n-th attempt (from 1) ends, and after how long. No outcome: it never reports.
    pub(crate) fn attempt(&self, n: u32) -> (Option<&Outcome>, u64) {
        match self.attempts.get(n as usize - 1).or(self.attempts.last()) {
            Some(attempt) => (attempt.outcome.as_ref(), attempt.takes_ms),
            None => (Some(&Outcome::OK), 0),
        }
    }

    pub(crate) fn down_after_ms(&self, n: u32) -> u64 {
        let attempt = (n as usize).checked_sub(1).and_then(|n| self.attempts.get(n));
        attempt.map_or(0, |attempt| attempt.down_after_ms)
    }
}

static EMPTY: List = List { attempts: vec![] };

impl Script {
    pub(crate) fn of(&self, item: ItemId) -> &List {
        let Some(lists) = self.lists.get(&(item.run, item.step)) else { return &EMPTY };
        match item.role {
            Role::Item => lists.items.get(&item.index).unwrap_or(&lists.step),
            Role::Fallback => &lists.fallback,
            Role::Compensation => &lists.compensation,
        }
    }
}

/// Reads a script for a plan, with every mistake in it at once.
pub fn load_script(name: &str, text: &[u8], plan: &Plan) -> Result<Script, Vec<Problem>> {
    if text.iter().all(u8::is_ascii_whitespace) {
        return Ok(Script::default());
    }
    let root = document(name, text, Limits::default())?;
    let mut reader = Reader { plan, keys: vec![], problems: vec![] };
    match root.as_map() {
        Some(entries) => {
            for entry in entries {
                reader.entry(&entry.key, entry.key_span, &entry.value);
            }
        }
        None if root.is_null() => {}
        None => reader.bad(
            root.span(),
            "",
            "a script is a map from step to outcomes".into(),
            Some("write `fetch: [exit:1, ok]`".into()),
        ),
    }
    let Reader { mut keys, problems, .. } = reader;
    if !problems.is_empty() {
        return Err(problems);
    }
    // Less exact first, so that what is more exact overwrites it.
    keys.sort_by_key(|(key, _)| (key.run.is_some(), key.index.is_some()));
    let mut script = Script::default();
    for (key, list) in keys {
        let runs = key.run.map_or(0..plan.runs() as u32, |run| run..run + 1);
        for run in runs {
            let lists = script.lists.entry((run, key.step)).or_default();
            match (key.role, key.index) {
                (Role::Item, Some(index)) => drop(lists.items.insert(index, list.clone())),
                (Role::Item, None) => {
                    // `DC/STEP` is more exact than `STEP[2]`.
                    lists.items.clear();
                    lists.step.clone_from(&list);
                }
                (Role::Fallback, _) => lists.fallback.clone_from(&list),
                (Role::Compensation, _) => lists.compensation.clone_from(&list),
            }
        }
    }
    Ok(script)
}

#[derive(Clone, Copy, Debug)]
struct Key {
    run: Option<u32>,
    step: u32,
    role: Role,
    index: Option<u32>,
}

struct Reader<'a> {
    plan: &'a Plan,
    keys: Vec<(Key, List)>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn bad(&mut self, span: Span, path: &str, message: String, help: Option<String>) {
        self.problems.push(Problem {
            code: "invalid_script",
            path: path.to_owned(),
            line: span.line,
            column: span.column,
            length: span.length.max(1),
            message,
            help,
        });
    }

    fn entry(&mut self, text: &str, span: Span, value: &Node) {
        let key = match self.key(text) {
            Ok(key) => Some(key),
            Err(NoSuchPart { message, help }) => {
                self.bad(span, text, message, help);
                None
            }
        };
        let list = self.list(text, value);
        if let (Some(key), Some(list)) = (key, list) {
            self.keys.push((key, list));
        }
    }

    /// `STEP`, `STEP[2]`, `STEP!`, `STEP~`, each with `DC/` before it or not: as items are printed. A step by
    /// itself is its work, not its fallback.
    fn key(&self, text: &str) -> Result<Key, NoSuchPart> {
        let ItemSelector { run, step, role, item } = self.plan.select(text)?;
        Ok(Key { run, step: step.unwrap_or(0), role: role.unwrap_or_default(), index: item })
    }

    fn list(&mut self, path: &str, value: &Node) -> Option<List> {
        let before = self.problems.len();
        let nodes = match value.as_list() {
            Some(nodes) => nodes,
            None => std::slice::from_ref(value),
        };
        if nodes.is_empty() {
            let help = Some("write `[ok]`, or leave the step out".to_owned());
            self.bad(value.span(), path, "the list of outcomes is empty".into(), help);
        }
        let mut list = Vec::with_capacity(nodes.len());
        for (i, node) in nodes.iter().enumerate() {
            let parsed = match node.text() {
                Some(text) => Entry::parse(text),
                None => Err(format!("an outcome is a word, not {}", node.describe())),
            };
            let parsed = parsed.and_then(|entry| match entry {
                Entry::Down { .. } if i == 0 || i + 1 == nodes.len() => {
                    Err("`down` stands between two attempts: not first, not last".to_owned())
                }
                entry => Ok(entry),
            });
            match parsed {
                Ok(entry) => list.push(entry),
                Err(message) => self.bad(node.span(), &format!("{path}[{i}]"), message, None),
            }
        }
        (self.problems.len() == before).then(|| List::new(list))
    }
}
