//! Secrets in a request: put in at the last moment. What takes them out of everything that is said of it is
//! [`Mask`](crate::Mask).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use steadfast_core::template::{SECRET_MARK as MARK, has_mark, percent_encode};

use super::error::HttpError;

/// The values by name. Never printed.
#[derive(Clone, Copy)]
pub(super) struct Secrets<'a>(pub(super) &'a BTreeMap<String, String>);

impl<'a> Secrets<'a> {
    pub(super) fn text(self, text: &str) -> Result<Cow<'_, str>, HttpError> {
        self.fill(text, |value, filled| filled.push_str(value))
    }

    /// In an address: what stands inside it is one part of it, what it begins with may be all of it.
    pub(super) fn url(self, text: &str) -> Result<Cow<'_, str>, HttpError> {
        self.fill(text, |value, filled| {
            if filled.is_empty() { filled.push_str(value) } else { percent_encode(value, filled) }
        })
    }

    fn fill(self, text: &str, put: impl Fn(&str, &mut String)) -> Result<Cow<'_, str>, HttpError> {
        let mut parts = text.split(MARK);
        let Some(first) = parts.next().filter(|first| first.len() < text.len()) else {
            return Ok(Cow::Borrowed(text));
        };
        let mut filled = first.to_owned();
        while let Some(name) = parts.next() {
            let Some(after) = parts.next() else {
                // A single one is nobody's mark.
                filled.push(MARK);
                filled.push_str(name);
                break;
            };
            put(self.value(name)?, &mut filled);
            filled.push_str(after);
        }
        Ok(Cow::Owned(filled))
    }

    /// Borrowed: there is none in it.
    pub(super) fn json(self, value: &Value) -> Result<Cow<'_, Value>, HttpError> {
        if has_mark(value) { self.filled(value).map(Cow::Owned) } else { Ok(Cow::Borrowed(value)) }
    }

    fn filled(self, value: &Value) -> Result<Value, HttpError> {
        Ok(match value {
            Value::String(text) => Value::String(self.text(text)?.into_owned()),
            Value::Array(list) => {
                Value::Array(list.iter().map(|value| self.filled(value)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let entry = |(key, value): (&String, &Value)| {
                    Ok((self.text(key)?.into_owned(), self.filled(value)?))
                };
                Value::Object(map.iter().map(entry).collect::<Result<_, HttpError>>()?)
            }
            other => other.clone(),
        })
    }

    fn value(self, name: &str) -> Result<&'a str, HttpError> {
        self.0.get(name).map(String::as_str).ok_or_else(|| {
            let message =
                format!("the secret {name:?} is not at hand; `secrets` of the step names it");
            HttpError::passing("secret_missing", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_become_values_and_nothing_else_does() {
        let map = BTreeMap::from([("T".to_owned(), "s3cret".to_owned())]);
        let secrets = Secrets(&map);
        for (text, filled) in [
            ("", ""),
            ("T", "T"),
            ("\u{1}T\u{1}", "s3cret"),
            ("Bearer \u{1}T\u{1}, \u{1}T\u{1}!", "Bearer s3cret, s3cret!"),
            ("odd \u{1}T", "odd \u{1}T"),
        ] {
            assert_eq!(secrets.text(text).expect(text), filled);
        }
        let body = serde_json::json!({ "\u{1}T\u{1}": ["\u{1}T\u{1}", 1, null] });
        let filled = serde_json::json!({ "s3cret": ["s3cret", 1, null] });
        assert_eq!(*secrets.json(&body).expect("filled"), filled);
        assert!(matches!(secrets.json(&filled), Ok(Cow::Borrowed(_))));
        assert!(secrets.text("\u{1}U\u{1}").is_err());
    }

    #[test]
    fn in_an_address_a_secret_is_one_part_unless_it_begins_it() {
        let map = BTreeMap::from([
            ("T".to_owned(), "a+b&c=d#e/é".to_owned()),
            ("B".to_owned(), "https://x.example/v1".to_owned()),
        ]);
        for (text, filled) in [
            ("http://h/?k=\u{1}T\u{1}&z=1", "http://h/?k=a%2Bb%26c%3Dd%23e%2F%C3%A9&z=1"),
            ("\u{1}B\u{1}/p", "https://x.example/v1/p"),
        ] {
            assert_eq!(Secrets(&map).url(text).expect(text), filled);
        }
    }
}
