//! `{{ … }}` in argv, env, http and input: what it may name, and what it stands for.

use std::cell::Cell;

use serde_json::Value;

use crate::event::ItemId;
use crate::job::Job;
use crate::plan::nearest;

/// A piece of templated text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplatePart<'a> {
    Text(&'a str),
    Reference(Reference<'a>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference<'a> {
    Item {
        path: Vec<&'a str>,
    },
    ItemIndex,
    /// The output of a step that has one item.
    Output {
        step: &'a str,
        path: Vec<&'a str>,
    },
    /// The outputs of a step that has many.
    Outputs {
        step: &'a str,
        path: Vec<&'a str>,
    },
    JobId,
    Attempt,
    /// Known at the worker alone: a mark stands for it until then. In `http` only.
    Secret {
        name: &'a str,
    },
}

/// Before and after the name of a secret in a text that is filled in otherwise.
pub const SECRET_MARK: char = '\u{1}';

/// What is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    pub message: String,
    pub help: Option<String>,
}

const KNOWN: [&str; 7] = [
    "item",
    "item_index",
    "steps.NAME.output",
    "steps.NAME.outputs",
    "job.id",
    "attempt",
    "secrets.NAME",
];

/// Text without braces is one part; no text is none.
pub fn parse(text: &str) -> Result<Vec<TemplatePart<'_>>, TemplateError> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once("{{").map_or((rest, None), |(a, b)| (a, Some(b)));
        if before.contains("}}") && (after.is_some() || !parts.is_empty()) {
            return Err(unbalanced("`}}` without `{{` before it"));
        }
        if !before.is_empty() {
            parts.push(TemplatePart::Text(before));
        }
        let Some(after) = after else {
            return Ok(parts);
        };
        let Some((inner, after)) = after.split_once("}}") else {
            return Err(unbalanced("`{{` without `}}` after it"));
        };
        parts.push(TemplatePart::Reference(reference(inner.trim())?));
        rest = after;
    }
}

fn unbalanced(message: &str) -> TemplateError {
    TemplateError {
        message: message.to_owned(),
        help: Some("write a reference as `{{ item }}`".into()),
    }
}

fn reference(text: &str) -> Result<Reference<'_>, TemplateError> {
    let unknown = || {
        let first = text.split('.').next().unwrap_or_default();
        let known = KNOWN.map(|known| known.split('.').next().unwrap_or_default());
        let guess = nearest(first, known.into_iter()).filter(|_| !known.contains(&first));
        let all = format!(
            "known are `{}`; text that must keep its braces goes into `run`, which is never templated",
            KNOWN.join("`, `")
        );
        TemplateError {
            message: format!("`{}` names nothing", shortened(text)),
            help: Some(guess.unwrap_or(all)),
        }
    };
    let parts: Vec<&str> = text.split('.').collect();
    let proper = |part: &&str| {
        !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "{}[]|()\"'".contains(c))
    };
    if !parts.iter().all(proper) {
        return Err(unknown());
    }
    Ok(match parts[..] {
        ["item", ref path @ ..] => Reference::Item { path: path.to_vec() },
        ["item_index"] => Reference::ItemIndex,
        ["steps", step, "output", ref path @ ..] => Reference::Output { step, path: path.to_vec() },
        ["steps", step, "outputs", ref path @ ..] => {
            Reference::Outputs { step, path: path.to_vec() }
        }
        ["job", "id"] => Reference::JobId,
        ["attempt"] => Reference::Attempt,
        ["secrets", name] => Reference::Secret { name },
        _ => return Err(unknown()),
    })
}

/// Short, and with nothing that moves a cursor.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).flat_map(char::escape_debug).collect();
    if text.chars().nth(40).is_some() {
        short.push('…');
    }
    short
}

/// Bytes of JSON that are filled in for one attempt: it is sent to its worker in one message.
const MOST_FILLED: usize = 16 << 20;

/// What references stand for, at one attempt of an item.
#[derive(Debug)]
pub struct Scope<'a> {
    job: &'a Job,
    item: ItemId,
    attempt: u32,
    /// The texts may name secrets, so nothing else may look like one.
    secrets: bool,
    room: Cell<usize>,
}

impl<'a> Scope<'a> {
    /// For all texts of one attempt. `secrets`: they may name some.
    pub fn new(job: &'a Job, item: ItemId, attempt: u32, secrets: bool) -> Self {
        Self { job, item, attempt, secrets, room: Cell::new(MOST_FILLED) }
    }

    fn value(&self, reference: &Reference) -> Result<Value, String> {
        if let Reference::Secret { name } = reference {
            return Ok(Value::from(format!("{SECRET_MARK}{name}{SECRET_MARK}")));
        }
        let value = self.known(reference)?;
        let left = self.room.get().checked_sub(size(&value));
        self.room.set(left.ok_or_else(|| {
            let most = MOST_FILLED >> 20;
            format!(
                "more than {most} MiB would be filled in; hand over where it is, not what it is"
            )
        })?);
        if self.secrets && has_mark(&value) {
            return Err("a value holds the control character U+0001".to_owned());
        }
        Ok(value)
    }

    fn known(&self, reference: &Reference) -> Result<Value, String> {
        let (root, path, name) = match reference {
            Reference::JobId => return Ok(Value::from(self.job.id.as_ref())),
            Reference::Attempt => return Ok(Value::from(self.attempt)),
            Reference::Secret { .. } => return Ok(Value::Null),
            Reference::ItemIndex => return Ok(Value::from(self.item.index)),
            Reference::Item { path } => (self.job.item_value(self.item), path, "item".to_owned()),
            Reference::Output { step, path } | Reference::Outputs { step, path } => {
                let found = self.job.plan.find(step);
                let output = found.and_then(|step| self.job.output(self.item.run, step));
                (output, path, format!("the output of `{step}`"))
            }
        };
        let mut value = root.unwrap_or(Value::Null);
        for (depth, key) in path.iter().enumerate() {
            let inner = match &mut value {
                Value::Object(map) => map.get_mut(*key),
                Value::Array(list) => key.parse().ok().and_then(|i: usize| list.get_mut(i)),
                _ => None,
            };
            value = match inner {
                Some(inner) => inner.take(),
                None => return Err(format!("{name} has no `{}`", path[..=depth].join("."))),
            };
        }
        Ok(value)
    }

    /// The text with every reference filled in; what is not a string is written as JSON.
    pub fn text(&self, text: &str) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        for part in parse(text).map_err(|error| error.message)? {
            match part {
                TemplatePart::Text(text) if self.secrets && text.contains(SECRET_MARK) => {
                    return Err("the text holds the control character U+0001".to_owned());
                }
                TemplatePart::Text(text) => filled.push_str(text),
                TemplatePart::Reference(reference) => filled.push_str(&self.plain(&reference)?),
            }
        }
        Ok(filled)
    }

    fn plain(&self, reference: &Reference) -> Result<String, String> {
        Ok(match self.value(reference)? {
            Value::String(text) => text,
            value => value.to_string(),
        })
    }

    /// An address with every reference filled in. What stands inside it is one part of it, so that no
    /// value leads elsewhere; what it begins with may be all of it.
    pub fn url(&self, text: &str) -> Result<String, String> {
        let mut filled = String::with_capacity(text.len());
        for (index, part) in parse(text).map_err(|error| error.message)?.iter().enumerate() {
            match part {
                TemplatePart::Text(text) => filled.push_str(text),
                TemplatePart::Reference(reference) => {
                    let value = self.plain(reference)?;
                    let is_secret = matches!(reference, Reference::Secret { .. });
                    match value.as_str() {
                        _ if index == 0 || is_secret => filled.push_str(&value),
                        "." | ".." => return Err(format!("`{value}` would change the address")),
                        _ => percent_encode(&value, &mut filled),
                    }
                }
            }
        }
        Ok(filled)
    }

    /// The value with the references in its texts filled in. A text that is one reference and
    /// nothing else becomes what it stands for, whatever that is.
    pub fn json(&self, value: &Value) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) => match parse(text).map_err(|error| error.message)?.as_slice() {
                [TemplatePart::Reference(reference)] => self.value(reference)?,
                _ => Value::String(self.text(text)?),
            },
            Value::Array(list) => {
                Value::Array(list.iter().map(|value| self.json(value)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let entries = map.iter().map(|(key, value)| Ok((key.clone(), self.json(value)?)));
                Value::Object(entries.collect::<Result<_, String>>()?)
            }
            other => other.clone(),
        })
    }
}

/// As JSON, more or less.
fn size(value: &Value) -> usize {
    let text = |text: &str| -> usize {
        let of = |byte: u8| match byte {
            0..0x20 => 6,
            b'"' | b'\\' => 2,
            _ => 1,
        };
        text.bytes().map(of).sum::<usize>() + 2
    };
    match value {
        Value::String(string) => text(string),
        Value::Array(list) => list.iter().map(|value| size(value) + 1).sum::<usize>() + 2,
        Value::Object(map) => {
            map.iter().map(|(key, value)| text(key) + size(value) + 2).sum::<usize>() + 2
        }
        _ => 8,
    }
}

/// There is a place for a secret in one of its texts.
pub fn has_mark(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains(SECRET_MARK),
        Value::Array(list) => list.iter().any(has_mark),
        Value::Object(map) => {
            map.iter().any(|(key, value)| key.contains(SECRET_MARK) || has_mark(value))
        }
        _ => false,
    }
}

/// As one part of an address: all but what it never gives a meaning to.
pub fn percent_encode(value: &str, into: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                into.push(byte.into());
            }
            _ => into.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// The first reference in text that is never filled in, as its author may have expected.
pub fn looks_templated(text: &str) -> Option<Reference<'_>> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("{{") {
        let (inner, after) = after.split_once("}}")?;
        if let Ok(reference) = reference(inner.trim()) {
            return Some(reference);
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_and_everything_else_is_text() {
        let path = vec!["a", "0"];
        let step = "fetch";
        assert_eq!(
            parse("x {{ item.a.0 }}{{steps.fetch.outputs}} y").expect("valid"),
            [
                TemplatePart::Text("x "),
                TemplatePart::Reference(Reference::Item { path }),
                TemplatePart::Reference(Reference::Outputs { step, path: vec![] }),
                TemplatePart::Text(" y"),
            ]
        );
        assert_eq!(parse("{ a: {b: 1}}"), Ok(vec![TemplatePart::Text("{ a: {b: 1}}")]));
        assert_eq!(parse(""), Ok(vec![]));
    }

    #[test]
    fn what_names_nothing_is_refused_with_a_guess() {
        for (text, word) in [
            ("{{ itm }}", "did you mean `item`?"),
            ("{{ item", "{{ item }}"),
            ("{{ item }} }}", "{{ item }}"),
            ("{{}}", "known are"),
            ("{{ .State }}", "goes into `run`"),
            ("{{ steps.a }}", "known are"),
            ("{{ item | upper }}", "known are"),
            ("{{ item..a }}", "known are"),
        ] {
            let help = parse(text).expect_err(text).help.unwrap_or_default();
            assert!(help.contains(word), "{text}: {help}");
        }
    }
}
