//! A rehearsal script: for each step, item or datacenter the outcomes that its attempts meet in turn.

use std::collections::BTreeMap;

use steadfast_core::event::{ItemId, Role};
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::{ForEach, Plan, nearest};
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
            Err((message, help)) => {
                self.bad(span, text, message, help);
                None
            }
        };
        let list = self.list(text, value);
        if let (Some(key), Some(list)) = (key, list) {
            self.keys.push((key, list));
        }
    }

    /// `STEP`, `STEP[2]`, `STEP!`, `STEP~`, each with `DC/` before it or not.
    fn key(&self, text: &str) -> Result<Key, (String, Option<String>)> {
        let plain = |message: String| (message, None);
        let (run, rest) = match text.split_once('/') {
            None => (None, text),
            Some((datacenter, rest)) => {
                let known = self.plan.datacenters();
                let Some(run) = known.iter().position(|name| name == datacenter) else {
                    let help = nearest(datacenter, known.iter().map(String::as_str));
                    return Err((format!("the job has no datacenter `{datacenter}`"), help));
                };
                (Some(run as u32), rest)
            }
        };
        let (name, role, index) = match rest.strip_suffix(']').and_then(|rest| rest.split_once('['))
        {
            Some((name, index)) => {
                let index = index.parse::<u32>();
                let index =
                    index.map_err(|_| plain(format!("`{text}`: an item is a number, from 0")))?;
                (name, Role::Item, Some(index))
            }
            None => match (rest.strip_suffix('!'), rest.strip_suffix('~')) {
                (Some(name), _) => (name, Role::Fallback, None),
                (_, Some(name)) => (name, Role::Compensation, None),
                (None, None) => (rest, Role::Item, None),
            },
        };
        let Some(step) = self.plan.find(name) else {
            let help = nearest(name, self.plan.steps().iter().map(|step| step.name.as_str()));
            return Err((format!("the job has no step `{name}`"), help));
        };
        let draft = self.plan.step(step);
        let items = match &draft.for_each {
            ForEach::Once => Some(1),
            ForEach::List(list) => Some(list.len()),
            ForEach::Range(count) => Some(*count as usize),
            ForEach::Output { .. } => None,
        };
        if let (Some(index), Some(items)) = (index, items)
            && index as usize >= items
        {
            let last = items.saturating_sub(1);
            return Err(plain(format!(
                "`{name}` has {items} items, 0 to {last}; there is no [{index}]"
            )));
        }
        let fallback =
            draft.on_failure.as_ref().is_some_and(|on_failure| on_failure.action.is_some());
        if role == Role::Fallback && !fallback {
            return Err(plain(format!("`{name}` has no `on_failure` to run")));
        }
        if role == Role::Compensation && draft.compensate.is_none() {
            return Err(plain(format!("`{name}` has no `compensate`")));
        }
        Ok(Key { run, step, role, index })
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
