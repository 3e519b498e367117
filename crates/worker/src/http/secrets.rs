//! Secrets in a request: put in at the last moment, and taken out of everything that is said of it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use steadfast_core::outcome::{ErrorText, Failure, Outcome};
use steadfast_core::template::{SECRET_MARK as MARK, has_mark, percent_encode};

use super::trouble::Trouble;

/// The values by name. Never printed.
#[derive(Clone, Copy)]
pub(super) struct Secrets<'a>(pub(super) &'a BTreeMap<String, String>);

impl<'a> Secrets<'a> {
    pub(super) fn text(self, text: &str) -> Result<Cow<'_, str>, Trouble> {
        self.fill(text, |value, filled| filled.push_str(value))
    }

    /// In an address: what stands inside it is one part of it, what it begins with may be all of it.
    pub(super) fn url(self, text: &str) -> Result<Cow<'_, str>, Trouble> {
        self.fill(text, |value, filled| {
            if filled.is_empty() { filled.push_str(value) } else { percent_encode(value, filled) }
        })
    }

    fn fill(self, text: &str, put: impl Fn(&str, &mut String)) -> Result<Cow<'_, str>, Trouble> {
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
    pub(super) fn json(self, value: &Value) -> Result<Cow<'_, Value>, Trouble> {
        if has_mark(value) { self.filled(value).map(Cow::Owned) } else { Ok(Cow::Borrowed(value)) }
    }

    fn filled(self, value: &Value) -> Result<Value, Trouble> {
        Ok(match value {
            Value::String(text) => Value::String(self.text(text)?.into_owned()),
            Value::Array(list) => {
                Value::Array(list.iter().map(|value| self.filled(value)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => {
                let entry = |(key, value): (&String, &Value)| {
                    Ok((self.text(key)?.into_owned(), self.filled(value)?))
                };
                Value::Object(map.iter().map(entry).collect::<Result<_, Trouble>>()?)
            }
            other => other.clone(),
        })
    }

    fn value(self, name: &str) -> Result<&'a str, Trouble> {
        self.0.get(name).map(String::as_str).ok_or_else(|| {
            let message =
                format!("the secret {name:?} is not at hand; `secrets` of the step names it");
            Trouble::passing("secret_missing", message)
        })
    }

    /// The same outcome, without what is nobody's to read. Services repeat what they are sent.
    pub(super) fn redact(self, mut outcome: Outcome) -> Outcome {
        for secret in self.0.values().filter(|value| !value.is_empty()) {
            match &mut outcome {
                Outcome::Failed(Failure { error: Some(ErrorText { kind, message }), .. }) => {
                    for written in spellings(secret) {
                        for text in kind.iter_mut().chain([&mut *message]) {
                            *text = without(text, &written);
                        }
                    }
                }
                Outcome::Succeeded { output: Some(output) } if secret.len() >= LEAST => {
                    let spellings = spellings(secret);
                    each_text(output, &|text| {
                        for written in &spellings {
                            if text.contains(written) {
                                *text = text.replace(written, LEFT_OUT);
                            }
                        }
                    });
                }
                _ => {}
            }
        }
        outcome
    }
}

/// Shorter ones occur by chance in what a service gives, which is data, and must not be mangled.
const LEAST: usize = 6;

fn each_text(value: &mut Value, change: &impl Fn(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(list) => list.iter_mut().for_each(|value| each_text(value, change)),
        Value::Object(map) => {
            for (mut key, mut value) in std::mem::take(map) {
                change(&mut key);
                each_text(&mut value, change);
                map.insert(key, value);
            }
        }
        _ => {}
    }
}

/// What stands where something was left out: a secret here, or the rest of a text that is too long.
const LEFT_OUT: &str = "…";

/// As it is, as an address has it, and as JSON does.
fn spellings(value: &String) -> BTreeSet<String> {
    let in_address = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
    let in_json = Value::from(value.as_str()).to_string();
    let in_json = in_json.trim_start_matches('"').strip_suffix('"').unwrap_or_default().to_owned();
    [value.clone(), in_address, in_json].into_iter().filter(|text| !text.is_empty()).collect()
}

/// Also without what is left of it where the text was cut.
fn without(text: &str, secret: &str) -> String {
    let text = text.replace(secret, LEFT_OUT);
    let parts: Vec<&str> = text.split(LEFT_OUT).collect();
    let last = parts.len() - 1;
    let begun = |part: &str| {
        let ends = secret.char_indices().map(|(end, _)| end).rev();
        ends.map(|end| &secret[..end]).find(|begin| part.ends_with(begin)).map_or(0, str::len)
    };
    let kept = parts.iter().enumerate().map(|(i, part)| match i {
        i if i == last => *part,
        _ => &part[..part.len() - begun(part)],
    });
    kept.collect::<Vec<_>>().join(LEFT_OUT)
}

#[cfg(test)]
mod tests {
    use steadfast_core::outcome::FailureKind;

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

    #[test]
    fn nothing_of_a_secret_is_left_in_an_output() {
        let map = BTreeMap::from([
            ("T".to_owned(), "s3\"cret".to_owned()),
            ("SHORT".to_owned(), "ab".to_owned()),
        ]);
        let echo = serde_json::json!({ "a": ["Bearer s3\"cret", 1], "s3\"cret": "q=s3%22cret ab" });
        let output = Secrets(&map).redact(Outcome::Succeeded { output: Some(echo) });
        let left = serde_json::json!({ "a": ["Bearer …", 1], "…": "q=… ab" });
        assert_eq!(output, Outcome::Succeeded { output: Some(left) });
    }

    #[test]
    fn nothing_of_a_secret_is_left_in_a_message() {
        for (text, left) in [
            ("no", "no"),
            ("a s3\"cret b", "a … b"),
            ("q=s3%22cret&", "q=…&"),
            (r#"{"k":"s3\"cret"}"#, r#"{"k":"…"}"#),
            ("cut s3\"cr…", "cut …"),
            ("cut s… (ignored: x)", "cut … (ignored: x)"),
            ("s3\"crets3\"cret", "……"),
        ] {
            let map = BTreeMap::from([("T".to_owned(), "s3\"cret".to_owned())]);
            let error = Some(ErrorText { kind: None, message: text.to_owned() });
            let failure = Failure { error, ..Failure::new(FailureKind::NotCompleted) };
            let Outcome::Failed(failure) = Secrets(&map).redact(Outcome::Failed(failure)) else {
                panic!("it has failed");
            };
            assert_eq!(failure.error.expect("an error").message, left, "{text}");
        }
    }
}
