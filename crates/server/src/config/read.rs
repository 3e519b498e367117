//! Settings as they are written, in a file or in the environment, into a [`Config`].
//!
//! Both become the job file's kind of tree, so that `[retry]` is read by the job file's own reader and
//! the words of errors are the same.

use std::ops::{Range, RangeInclusive};
use std::path::Path;

use steadfast_core::plan::nearest;
use steadfast_jobfile::{
    Entry, Limits, Node, Scalar, Span, document, parse_duration, parse_size, retry_keys,
    retry_overrides,
};
use toml::de::{DeTable, DeValue};

use super::Config;
use super::table::{SECTIONS, Section, Setting, Shape};

const PREFIX: &str = "STEADFAST_";
/// A process of a step has its ports in the environment, under names that its author chose.
const PORT_PREFIX: &str = "STEADFAST_PORT_";

/// What was written, in the order in which it counts: later over earlier.
#[derive(Debug, Default)]
pub(super) struct Settings {
    file: String,
    written: Vec<Written>,
    errors: Vec<String>,
}

#[derive(Debug)]
struct Written {
    section: &'static Section,
    /// None: a key of `[retry]`.
    setting: Option<&'static Setting>,
    key: String,
    key_span: Span,
    value: Node,
    /// None: the file.
    variable: Option<String>,
}

impl Settings {
    pub(super) fn read_file(&mut self, path: &Path) {
        self.file = path.display().to_string();
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                self.errors.push(format!("cannot read {}: {error}", self.file));
                return;
            }
        };
        let (table, errors) = DeTable::parse_recoverable(&text);
        for error in &errors {
            let span = place(&text, error.span().unwrap_or(0..0));
            self.wrong_in_file(span, error.message());
        }
        // After a slip of syntax the rest may be read into the wrong section.
        if !errors.is_empty() {
            return;
        }
        let root = table_node(&text, table.get_ref(), Span { line: 1, column: 1, length: 1 });
        for section in root.as_map().unwrap_or_default() {
            self.read_section(section);
        }
    }

    fn read_section(&mut self, entry: &Entry) {
        let Some(section) = SECTIONS.iter().find(|section| section.name == &*entry.key) else {
            let names = SECTIONS.iter().map(|section| section.name);
            let message = if entry.value.as_map().is_some() {
                format!("[{}] is not a section{}", entry.key, hint(&entry.key, names))
            } else {
                format!("`{}` stands outside of all sections{}", entry.key, belongs(&entry.key))
            };
            return self.wrong_in_file(entry.key_span, &message);
        };
        let Some(entries) = entry.value.as_map() else {
            let message = format!(
                "[{0}] is a section, not {1}; write `[{0}]` and its keys below",
                section.name,
                entry.value.describe()
            );
            return self.wrong_in_file(entry.key_span, &message);
        };
        for entry in entries {
            match known(section, &entry.key) {
                Ok(setting) => self.written.push(Written {
                    section,
                    setting,
                    key: entry.key.to_string(),
                    key_span: entry.key_span,
                    value: entry.value.clone(),
                    variable: None,
                }),
                Err(message) => self.wrong_in_file(entry.key_span, &message),
            }
        }
    }

    pub(super) fn read_env(
        &mut self,
        env: impl Fn(&str) -> Option<String>,
        names: impl IntoIterator<Item = String>,
    ) {
        let mut names: Vec<String> = names
            .into_iter()
            .filter(|name| name.starts_with(PREFIX) && !name.starts_with(PORT_PREFIX))
            .collect();
        names.sort();
        for variable in names {
            let Some((section, key)) = variable[PREFIX.len()..].split_once("__") else { continue };
            let (section, key) = (section.to_ascii_lowercase(), key.to_ascii_lowercase());
            let found = SECTIONS.iter().find(|known| known.name == section);
            let found = found.ok_or_else(|| {
                let names = SECTIONS.iter().map(|section| section.name);
                format!("[{section}] is not a section{}", hint(&section, names))
            });
            let found = found.and_then(|section| Ok((section, known(section, &key)?)));
            let (section, setting) = match found {
                Ok(found) => found,
                Err(message) => {
                    self.errors.push(format!("{variable}: {message}"));
                    continue;
                }
            };
            let Some(text) = env(&variable) else { continue };
            match env_node(setting, &text) {
                Ok(value) => self.written.push(Written {
                    section,
                    setting,
                    key,
                    key_span: Span::default(),
                    value,
                    variable: Some(variable),
                }),
                Err(message) => self.errors.push(format!("{variable}: {message}")),
            }
        }
    }

    pub(super) fn apply(mut self) -> (Config, Vec<String>) {
        let mut config = Config::default();
        let mut retry: Vec<&Written> = Vec::new();
        for written in &self.written {
            let Some(setting) = written.setting else {
                retry.retain(|earlier| earlier.key != written.key);
                retry.push(written);
                continue;
            };
            if let Err(message) = set(&mut config, &setting.shape, &written.value) {
                self.errors.push(self.at(written, written.value.span(), &message));
            }
        }
        let entries = retry.iter().map(|written| Entry {
            key: written.key.as_str().into(),
            key_span: written.key_span,
            value: written.value.clone(),
        });
        match retry_overrides(&Node::map(entries.collect(), Span::default())) {
            Ok(overrides) => config.operator.retry = overrides,
            Err(problems) => {
                for problem in problems {
                    let key = problem.path.split(['.', '[']).next().unwrap_or_default();
                    let help = problem.help.map_or(String::new(), |help| format!("; {help}"));
                    let message = format!("{}{help}", problem.message);
                    let span = Span { line: problem.line, column: problem.column, length: 1 };
                    let written = retry.iter().find(|written| written.key == key);
                    self.errors.push(match written {
                        Some(written) => self.at(written, span, &message),
                        None => format!("[retry]: {message}"),
                    });
                }
            }
        }
        (config, self.errors)
    }

    fn at(&self, written: &Written, span: Span, message: &str) -> String {
        match &written.variable {
            Some(variable) => format!("{variable}: {message}"),
            None => {
                let (section, key) = (written.section.name, &written.key);
                let Span { line, column, .. } = span;
                format!("{}:{line}:{column}: {section}.{key}: {message}", self.file)
            }
        }
    }

    fn wrong_in_file(&mut self, span: Span, message: &str) {
        self.errors.push(format!("{}:{}:{}: {message}", self.file, span.line, span.column));
    }
}

/// The setting, or none for a key of `[retry]`; or what is wrong with the name.
fn known(section: &'static Section, key: &str) -> Result<Option<&'static Setting>, String> {
    let names: Vec<&str> = if section.name == "retry" {
        retry_keys().map(|(name, _)| name).collect()
    } else {
        section.settings.iter().map(|setting| setting.key).collect()
    };
    if names.contains(&key) {
        return Ok(section.settings.iter().find(|setting| setting.key == key));
    }
    let guess = hint(key, names.iter().copied());
    let help = if guess.is_empty() { belongs(key) } else { guess };
    Err(format!("`{}` is not a key of [{}]{help}", key.escape_debug(), section.name))
}

fn hint<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> String {
    nearest(written, known).map_or(String::new(), |guess| format!("; {guess}"))
}

/// The section that has the key, for one that stands elsewhere.
fn belongs(key: &str) -> String {
    let has = |section: &&Section| section.settings.iter().any(|setting| setting.key == key);
    let found = SECTIONS.iter().find(has);
    found.map_or(String::new(), |section| format!("; it belongs to [{}]", section.name))
}

fn set(config: &mut Config, shape: &Shape, node: &Node) -> Result<(), String> {
    let expected = |what: &str| format!("expected {what}, not {}", node.describe());
    let duration = || match node.scalar() {
        Some(Scalar::Str(text)) => parse_duration(text),
        Some(Scalar::Int(_)) => parse_duration(node.text().unwrap_or_default()),
        _ => Err(expected("a duration, as \"30s\"")),
    };
    let count = |range: &RangeInclusive<u32>| {
        let what = if *range.end() == u32::MAX {
            format!("a whole number, {} or more", range.start())
        } else {
            format!("a whole number from {} to {}", range.start(), range.end())
        };
        let Some(Scalar::Int(value)) = node.scalar() else { return Err(expected(&what)) };
        let value = u32::try_from(value).ok().filter(|value| range.contains(value));
        value.ok_or_else(|| expected(&what))
    };
    match shape {
        Shape::Flag(field) => match node.scalar() {
            Some(Scalar::Bool(value)) => *field(config) = value,
            _ => return Err(expected("true or false")),
        },
        Shape::Count(range, field) => *field(config) = count(range)?,
        Shape::UnsetCount(_, range, field) => *field(config) = Some(count(range)?),
        Shape::Milliseconds(field) => {
            let what = "a whole number of milliseconds";
            let Some(Scalar::Int(value)) = node.scalar() else { return Err(expected(what)) };
            *field(config) = u64::try_from(value).map_err(|_| expected(what))?;
        }
        Shape::Duration(range, field) => {
            let ms = duration()?;
            if ms < *range.start() {
                return Err(format!("it must be {}ms at least", range.start()));
            }
            *field(config) = ms;
        }
        Shape::Forever(field) => {
            *field(config) =
                if node.as_str() == Some("forever") { None } else { Some(duration()?) };
        }
        Shape::Size(range, field) => {
            let text = match node.scalar() {
                Some(Scalar::Str(_) | Scalar::Int(_)) => node.text().unwrap_or_default(),
                _ => return Err(expected("a size, as \"10MiB\"")),
            };
            let bytes = usize::try_from(parse_size(text)?).unwrap_or(usize::MAX);
            if !range.contains(&bytes) {
                let (least, most) = (*range.start() as u64, *range.end() as u64);
                let [least, most] = [least, most].map(steadfast_jobfile::size_text);
                return Err(format!("it must be from {least} to {most}, not {text}"));
            }
            *field(config) = bytes;
        }
        Shape::Word(words, _, write) => {
            let text = node.as_str();
            let found = text.and_then(|text| words.iter().position(|word| *word == text));
            let Some(word) = found else {
                let guess = hint(text.unwrap_or_default(), words.iter().copied());
                let list = format!("one of \"{}\"", words.join("\", \""));
                return Err(expected(&list) + &guess);
            };
            write(config, word);
        }
        Shape::Text(check, field) => {
            let text = node.as_str().ok_or_else(|| expected("text"))?;
            check(text)?;
            text.clone_into(field(config));
        }
        Shape::Unset(_, check, field) => {
            let text = node.as_str().ok_or_else(|| expected("text"))?;
            check(text)?;
            *field(config) = Some(text.to_owned());
        }
        Shape::Texts(example, check, field) => {
            let what = format!("a list, as {example}");
            let items = node.as_list().ok_or_else(|| expected(&what))?;
            let mut texts = Vec::with_capacity(items.len());
            for item in items {
                let text = item.as_str().ok_or_else(|| expected(&what))?;
                check(text)?;
                texts.push(text.to_owned());
            }
            *field(config) = texts;
        }
    }
    Ok(())
}

/// A variable is only text; what it means depends on what it is for. Lists are written with commas, and
/// the maps and lists of `[retry]` as in a job file.
fn env_node(setting: Option<&Setting>, text: &str) -> Result<Node, String> {
    let span = Span::default();
    let Some(setting) = setting else {
        if !text.starts_with(['[', '{']) {
            return Ok(Node::plain(text, span));
        }
        return document("", text.as_bytes(), Limits::default()).map_err(|problems| {
            let messages = problems.into_iter().map(|problem| problem.message);
            messages.collect::<Vec<_>>().join("; ")
        });
    };
    Ok(match setting.shape {
        Shape::Flag(_) | Shape::Count(..) | Shape::UnsetCount(..) | Shape::Milliseconds(_) => {
            Node::plain(text, span)
        }
        Shape::Texts(..) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Node::list(items.map(|item| Node::quoted(item, span)).collect(), span)
        }
        _ => Node::quoted(text, span),
    })
}

fn table_node(text: &str, table: &DeTable, span: Span) -> Node {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries = entries.into_iter().map(|(key, value)| Entry {
        key: key.get_ref().as_ref().into(),
        key_span: place(text, key.span()),
        value: value_node(text, value.get_ref(), place(text, value.span())),
    });
    Node::map(entries.collect(), span)
}

fn value_node(text: &str, value: &DeValue, span: Span) -> Node {
    match value {
        DeValue::String(value) => Node::quoted(value, span),
        DeValue::Integer(value) => {
            let number = i128::from_str_radix(value.as_str(), value.radix());
            // What does not fit is still a number, and as such too large.
            let number = number.map_or_else(|_| value.as_str().to_owned(), |n| n.to_string());
            Node::plain(&number, span)
        }
        DeValue::Float(value) => {
            let value = value.as_str();
            let named = value.contains("inf") || value.contains("nan");
            let sign = if value.starts_with('-') { "-" } else { "" };
            let number = value.trim_start_matches(['+', '-']);
            let dot = if named { "." } else { "" };
            Node::plain(&format!("{sign}{dot}{number}").replace("-.nan", ".nan"), span)
        }
        DeValue::Boolean(value) => Node::plain(&value.to_string(), span),
        DeValue::Datetime(value) => Node::quoted(&value.to_string(), span),
        DeValue::Array(items) => {
            let items = items.iter();
            let items = items.map(|i| value_node(text, i.get_ref(), place(text, i.span())));
            Node::list(items.collect(), span)
        }
        DeValue::Table(table) => table_node(text, table, span),
    }
}

fn place(text: &str, bytes: Range<usize>) -> Span {
    let before = text.get(..bytes.start).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.matches('\n').count() + 1;
    let column = before[line_start..].chars().count() + 1;
    let length = text.get(bytes).map_or(1, |part| part.chars().count().max(1));
    Span { line: line as u32, column: column as u32, length: length as u32 }
}
