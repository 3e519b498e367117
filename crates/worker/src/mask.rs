//! Secrets taken out of everything that is said of an attempt: what it prints, its output, its error. The one
//! masking, of processes and of calls.
//!
//! A secret is found as it is, as an address has it and as JSON does. What a program does to it otherwise
//! (base64, a line break inside it) is not recognized.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;
use steadfast_core::outcome::{ErrorText, Failure, Outcome};

/// What stands where something was left out: a secret here, or the rest of a text that is too long.
const LEFT_OUT: &str = "…";

/// Shorter ones occur by chance in what is printed or given, which is data, and must not be mangled.
const LEAST: usize = 6;

/// The secrets of one attempt. Never printed; clones share them.
#[derive(Clone, Default)]
pub struct Mask(Option<Arc<Spelled>>);

struct Spelled {
    /// Every secret in each of its spellings, the longest first, so that none is left by one that it contains.
    all: Vec<String>,
    /// The same of those that are long enough to be looked for in data.
    long: Vec<String>,
    /// The bytes with which those begin.
    begin: [bool; 256],
}

impl fmt::Debug for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mask(…)")
    }
}

impl Mask {
    pub fn new<'a>(values: impl IntoIterator<Item = &'a String>) -> Self {
        let (mut all, mut long) = (BTreeSet::new(), BTreeSet::new());
        for value in values {
            let spellings = spellings(value);
            if value.len() >= LEAST {
                long.extend(spellings.iter().cloned());
            }
            all.extend(spellings);
        }
        if all.is_empty() {
            return Self(None);
        }
        let mut begin = [false; 256];
        for text in &long {
            begin[usize::from(text.as_bytes()[0])] = true;
        }
        let longest_first = |texts: BTreeSet<String>| {
            let mut texts: Vec<_> = texts.into_iter().collect();
            texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
            texts
        };
        let (all, long) = (longest_first(all), longest_first(long));
        Self(Some(Arc::new(Spelled { all, long, begin })))
    }

    /// The same outcome, without what is nobody's to read.
    pub fn redact(&self, mut outcome: Outcome) -> Outcome {
        let Some(spelled) = &self.0 else { return outcome };
        match &mut outcome {
            Outcome::Failed(Failure { error: Some(ErrorText { kind, message }), .. }) => {
                for written in &spelled.all {
                    for text in kind.iter_mut().chain([&mut *message]) {
                        *text = without(text, written);
                    }
                }
            }
            Outcome::Succeeded { output: Some(output) } => each_text(output, &|text| {
                for written in &spelled.long {
                    if text.contains(written) {
                        *text = text.replace(written, LEFT_OUT);
                    }
                }
            }),
            _ => {}
        }
        outcome
    }

    /// For what comes in pieces. None: there is nothing to look for.
    pub(crate) fn stream(&self) -> Option<MaskedStream> {
        let spelled = self.0.clone().filter(|spelled| !spelled.long.is_empty())?;
        Some(MaskedStream { spelled, held: Vec::new() })
    }
}

/// What a process prints, in pieces that may cut a secret anywhere.
pub(crate) struct MaskedStream {
    spelled: Arc<Spelled>,
    /// The end of what came, which may be the beginning of a secret; shorter than the longest.
    held: Vec<u8>,
}

impl MaskedStream {
    pub(crate) fn write(&mut self, bytes: &[u8], to: impl FnMut(&[u8])) {
        self.held.extend_from_slice(bytes);
        self.pass(false, to);
    }

    /// Nothing more comes, so that nothing is waited for.
    pub(crate) fn finish(&mut self, to: impl FnMut(&[u8])) {
        self.pass(true, to);
    }

    fn pass(&mut self, last: bool, mut to: impl FnMut(&[u8])) {
        let bytes = std::mem::take(&mut self.held);
        let Spelled { long, begin, .. } = &*self.spelled;
        let (mut at, mut from) = (0, 0);
        while let Some(first) = bytes.get(at) {
            if !begin[usize::from(*first)] {
                at += 1;
                continue;
            }
            let rest = &bytes[at..];
            // One that may go on is waited for, also where a shorter one is whole.
            let may_go_on =
                |text: &&String| text.len() > rest.len() && text.as_bytes().starts_with(rest);
            if !last && long.iter().any(|text| may_go_on(&text)) {
                break;
            }
            match long.iter().find(|text| rest.starts_with(text.as_bytes())) {
                None => at += 1,
                Some(text) => {
                    to(&bytes[from..at]);
                    to(LEFT_OUT.as_bytes());
                    at += text.len();
                    from = at;
                }
            }
        }
        if from < at {
            to(&bytes[from..at]);
        }
        self.held = bytes[at..].to_vec();
    }
}

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
    use std::collections::BTreeMap;

    use steadfast_core::outcome::FailureKind;

    use super::*;

    /// However it is cut in pieces.
    #[track_caller]
    fn printed(secrets: &[&str], text: &str, expected: &str) {
        let secrets: Vec<String> = secrets.iter().map(ToString::to_string).collect();
        for size in 1..=text.len() {
            let mut stream = Mask::new(&secrets).stream().expect("there is one to look for");
            let mut left = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                stream.write(piece, |bytes| left.extend_from_slice(bytes));
            }
            stream.finish(|bytes| left.extend_from_slice(bytes));
            assert_eq!(String::from_utf8_lossy(&left), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn nothing_of_a_secret_is_left_in_what_is_printed_in_pieces() {
        printed(&["s3cret-1"], "a s3cret-1 b s3cret-1s3cret-1\n", "a … b ……\n");
        printed(&["s3cret-1"], "s3cret- s3s3cret-1 s3cret-", "s3cret- s3… s3cret-");
        // One that begins like another, and one inside another.
        printed(&["abcdef", "abcdefgh", "cdefgh"], "abcdef abcdefgh cdefgh", "… … …");
        // As an address and JSON have it.
        printed(&["s3\"cret"], r#"q=s3%22cret {"k":"s3\"cret"}"#, r#"q=… {"k":"…"}"#);
    }

    #[test]
    fn what_is_too_short_to_be_told_from_chance_is_left_in_data() {
        assert!(Mask::new(&["short".to_owned()]).stream().is_none());
        assert!(Mask::new(&[String::new()]).stream().is_none());
        assert_eq!(format!("{:?}", Mask::new(&["hunter2".to_owned()])), "Mask(…)");
    }

    #[test]
    fn nothing_of_a_secret_is_left_in_an_output() {
        let map = BTreeMap::from([
            ("T".to_owned(), "s3\"cret".to_owned()),
            ("SHORT".to_owned(), "ab".to_owned()),
        ]);
        let echo = serde_json::json!({ "a": ["Bearer s3\"cret", 1], "s3\"cret": "q=s3%22cret ab" });
        let output = Mask::new(map.values()).redact(Outcome::Succeeded { output: Some(echo) });
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
            let Outcome::Failed(failure) = Mask::new(map.values()).redact(Outcome::Failed(failure))
            else {
                panic!("it has failed");
            };
            assert_eq!(failure.error.expect("an error").message, left, "{text}");
        }
    }
}
