//! Typed values from a tree: each question answers with a value, or notes the problem at its place
//! and answers nothing. It knows shapes, not jobs.

use steadfast_core::plan::nearest;

use crate::keys::Table;
use crate::node::{Entry, Node, Scalar, Span};
use crate::operator::Operator;
use crate::problem::{Problem, Warning, quote};
use crate::references::Use;
use crate::units::{parse_duration, parse_size};

/// More known keys than this are no help in a message.
const LISTED_KEYS: usize = 10;

#[derive(Debug)]
pub(crate) struct Reader<'a> {
    pub(crate) operator: &'a Operator,
    pub(crate) problems: Vec<Problem>,
    pub(crate) warnings: Vec<Warning>,
    /// What templates name, to be checked once the whole plan is known.
    pub(crate) uses: Vec<Use>,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct At<'a> {
    pub(crate) node: &'a Node,
    pub(crate) path: String,
}

impl<'a> At<'a> {
    pub(crate) fn item(&self, index: usize, node: &'a Node) -> Self {
        Self {
            node,
            path: format!("{}[{index}]", self.path),
        }
    }

    pub(crate) fn entry(&self, entry: &'a Entry) -> Self {
        Self {
            node: &entry.value,
            path: join(&self.path, &entry.key),
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
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
        self.entry(key)
            .map_or(self.at.node.span(), |entry| entry.key_span)
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
        self.problems.push(Problem::new(code, path, span, message));
        let last = self.problems.len() - 1;
        &mut self.problems[last]
    }

    pub(crate) fn warn(&mut self, code: &'static str, path: String, line: u32, message: String) {
        self.warnings.push(Warning {
            code,
            path,
            line,
            message,
        });
    }

    fn wrong_type(&mut self, at: &At, wanted: &str) {
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
        let block = Block {
            at: at.clone(),
            entries,
            table,
        };
        let place = owner.unwrap_or(at.node.span());
        let missing = |key: &&&str| !block.has(key) && !meant(key);
        for key in table.required.iter().filter(missing) {
            let message = format!("{} needs `{key}`", table.title);
            self.bad_at("missing_value", &at.path, place, message).help =
                Some(format!("add `{key}: …`"));
        }
        let written: Vec<_> = table
            .exactly_one
            .iter()
            .filter(|key| block.has(key))
            .collect();
        let list = || format!("`{}`", table.exactly_one.join("`, `"));
        if let [first, second, ..] = written[..] {
            let message = format!(
                "both `{first}` and `{second}`: only one of {} is allowed",
                list()
            );
            self.bad_at(
                "conflicting_keys",
                &block.path(second),
                block.key_span(second),
                message,
            )
            .help = Some("remove one".into());
        }
        let hinted = table.exactly_one.iter().any(|key| meant(key));
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
        let (first, second) = if block.key_span(a).line <= block.key_span(b).line {
            (a, b)
        } else {
            (b, a)
        };
        let message = format!("`{second}` says what `{first}` says already");
        let help = format!("keep one of `{first}` and `{second}`");
        self.bad_at(
            "conflicting_keys",
            &block.path(second),
            block.key_span(second),
            message,
        )
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
            self.bad_at("renamed_key", &path, entry.key_span, message.into())
                .help = Some(help);
            return None;
        }
        let message = format!("{} is not a key of {}", quote(key), table.title);
        let names: Vec<_> = table.names().collect();
        let guess = nearest(key, names.iter().copied());
        self.bad_at("unknown_key", &path, entry.key_span, message)
            .help = guess.clone().or_else(|| {
            (names.len() <= LISTED_KEYS).then(|| format!("known keys: `{}`", names.join("`, `")))
        });
        guess
    }

    pub(crate) fn list<'n>(&mut self, at: &At<'n>, example: &str) -> Option<Vec<At<'n>>> {
        let Some(items) = at.node.as_list() else {
            self.wrong_type(at, &format!("a list, as `{example}`"));
            return None;
        };
        Some(
            items
                .iter()
                .enumerate()
                .map(|(index, item)| at.item(index, item))
                .collect(),
        )
    }

    /// A map whose keys are the author's own.
    pub(crate) fn entries<'n>(&mut self, at: &At<'n>, example: &str) -> Option<&'n [Entry]> {
        let entries = at.node.as_map();
        if entries.is_none() {
            self.wrong_type(at, &format!("a map, as `{example}`"));
        }
        entries
    }

    pub(crate) fn text<'n>(&mut self, at: &At<'n>) -> Option<&'n str> {
        match at.node.scalar() {
            Some(Scalar::Str(text)) => Some(text),
            Some(Scalar::Null) | None => {
                self.wrong_type(at, "text");
                None
            }
            Some(_) => {
                let shown = quote(at.node.text().unwrap_or_default());
                self.wrong_type(at, "text");
                let quoted = format!("put it in quotes: \"{}\"", shown.trim_matches('`'));
                if let Some(problem) = self.problems.last_mut() {
                    problem.help = Some(quoted);
                }
                None
            }
        }
    }

    /// Text, a number, true or false, as it was written.
    pub(crate) fn written(&mut self, at: &At) -> Option<String> {
        match at.node.scalar() {
            Some(Scalar::Null) | None => {
                self.wrong_type(at, "text, a number, true or false");
                None
            }
            Some(_) => at.node.text().map(str::to_owned),
        }
    }

    pub(crate) fn flag(&mut self, at: &At) -> Option<bool> {
        if let Some(Scalar::Bool(value)) = at.node.scalar() {
            return Some(value);
        }
        self.wrong_type(at, "true or false");
        None
    }

    pub(crate) fn int(&mut self, at: &At, least: i64, most: i64) -> Option<i64> {
        let wanted = if most >= i64::from(u32::MAX) - 1 {
            format!("a whole number, {least} or more")
        } else {
            format!("a whole number from {least} to {most}")
        };
        match at.node.scalar() {
            Some(Scalar::Int(value)) if (least..=most).contains(&value) => Some(value),
            Some(Scalar::Int(value)) if value > most => {
                let message = format!("{value} is too large; at most {most} is allowed");
                self.bad("invalid_value", at, message);
                None
            }
            Some(Scalar::Huge) => {
                let message = format!("{} is too large", quote(at.node.text().unwrap_or_default()));
                self.bad("invalid_value", at, message);
                None
            }
            Some(Scalar::Int(value)) => {
                self.bad(
                    "invalid_value",
                    at,
                    format!("expected {wanted}, not {value}"),
                );
                None
            }
            _ => {
                self.wrong_type(at, &wanted);
                None
            }
        }
    }

    pub(crate) fn count(&mut self, at: &At, least: u32) -> Option<u32> {
        self.int(at, i64::from(least), i64::from(u32::MAX))
            .map(|value| value as u32)
    }

    /// A count, or `unlimited`. 0 is left to core, which knows what it would mean.
    pub(crate) fn limit(&mut self, at: &At) -> Option<Option<u32>> {
        if at.node.as_str() == Some("unlimited") {
            return Some(None);
        }
        if !matches!(at.node.scalar(), Some(Scalar::Int(0..) | Scalar::Huge)) {
            self.wrong_type(at, "a whole number or `unlimited`");
            return None;
        }
        self.count(at, 0).map(Some)
    }

    pub(crate) fn number(&mut self, at: &At) -> Option<f64> {
        match at.node.scalar() {
            Some(Scalar::Int(value)) => Some(value as f64),
            Some(Scalar::Float(value)) => Some(value),
            Some(Scalar::Huge) => at.node.text().and_then(|text| text.parse().ok()),
            _ => {
                self.wrong_type(at, "a number");
                None
            }
        }
    }

    pub(crate) fn duration(&mut self, at: &At) -> Option<u64> {
        let scalar = at.node.scalar();
        if !matches!(
            scalar,
            Some(Scalar::Str(_) | Scalar::Int(_) | Scalar::Huge | Scalar::Float(_))
        ) {
            self.wrong_type(at, "a duration, as `30s`");
            return None;
        }
        match parse_duration(at.node.text().unwrap_or_default()) {
            Ok(ms) => Some(ms),
            Err(message) => {
                self.bad("invalid_duration", at, message);
                None
            }
        }
    }

    /// A duration that would mean something else if it were 0.
    pub(crate) fn positive_duration(&mut self, at: &At, help: &str) -> Option<u64> {
        let ms = self.duration(at)?;
        if ms == 0 {
            let message = "this cannot be 0".to_owned();
            self.bad("invalid_value", at, message).help = Some(help.to_owned());
            return None;
        }
        Some(ms)
    }

    /// Whole milliseconds, as the dialects write them.
    pub(crate) fn milliseconds(&mut self, at: &At) -> Option<u64> {
        if let Some(text) = at.node.as_str()
            && parse_duration(text).is_ok()
        {
            self.wrong_type(at, "a whole number of milliseconds");
            return None;
        }
        self.int(at, 0, i64::MAX).map(|ms| ms as u64)
    }

    pub(crate) fn size(&mut self, at: &At) -> Option<u64> {
        let Some(text) = at.node.text().filter(|_| !at.node.is_null()) else {
            self.wrong_type(at, "a size, as `512m`");
            return None;
        };
        match parse_size(text) {
            Ok(bytes) => Some(bytes),
            Err(message) => {
                self.bad("invalid_size", at, message);
                None
            }
        }
    }

    pub(crate) fn word<T: Copy>(&mut self, at: &At, words: &[(&str, T)]) -> Option<T> {
        let known = words.iter().map(|(word, _)| *word);
        let list = known.clone().collect::<Vec<_>>().join("`, `");
        let Some(text) = at.node.text().filter(|_| !at.node.is_null()) else {
            self.wrong_type(at, &format!("one of `{list}`"));
            return None;
        };
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let message = format!("expected one of `{list}`, not {}", quote(text));
            self.bad("invalid_value", at, message).help = nearest(text, known);
        }
        found.map(|(_, value)| *value)
    }

    /// One number or a list of them.
    pub(crate) fn codes(&mut self, at: &At) -> Option<Vec<i64>> {
        // Core knows which codes exist; this only keeps them numbers.
        const MOST: i64 = u32::MAX as i64;
        if at.node.as_list().is_none() {
            return self.int(at, -MOST, MOST).map(|code| vec![code]);
        }
        let items = self.list(at, "[1, 2]")?;
        items
            .iter()
            .map(|item| self.int(item, -MOST, MOST))
            .collect()
    }

    /// Letters, digits, `_` and `-`, or what `also` allows.
    pub(crate) fn name(&mut self, at: &At, what: &str, also: &str) -> Option<String> {
        let text = self.text(at)?;
        self.check_name(text, what, also, &at.path, at.node.span())
            .then(|| text.to_owned())
    }

    pub(crate) fn check_name(
        &mut self,
        text: &str,
        what: &str,
        also: &str,
        path: &str,
        span: Span,
    ) -> bool {
        const LONGEST: usize = 100;
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-' || also.contains(c);
        let message = if text.is_empty() {
            format!("{what} cannot be empty")
        } else if text.chars().count() > LONGEST {
            format!("{what} has at most {LONGEST} characters")
        } else if let Some(c) = text.chars().find(|c| !fits(*c)) {
            let c = quote(&c.to_string());
            format!(
                "{what} consists of letters, digits, `_` and `-`, so {} cannot contain {c}",
                quote(text)
            )
        } else {
            return true;
        };
        self.bad_at("invalid_name", path, span, message);
        false
    }

    /// What is not a name keeps its place in the list, so that those after it keep theirs.
    pub(crate) fn names(&mut self, at: &At, what: &str) -> Vec<String> {
        let example = format!("[{}]", at.node.text().unwrap_or("name"));
        let example = if example.len() > 40 {
            "[name]"
        } else {
            &example
        };
        let items = self.list(at, example).unwrap_or_default();
        items
            .iter()
            .map(|item| {
                let written = item.node.text().unwrap_or_default();
                self.name(item, what, "")
                    .unwrap_or_else(|| written.to_owned())
            })
            .collect()
    }
}
