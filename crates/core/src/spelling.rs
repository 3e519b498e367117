//! What the author of a job calls the keys of its policies and budgets, and in which units.
//!
//! Data for those who explain a decision to that author. Nothing that decides looks at it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::duration::duration_text;

/// The words of one block, or of a job's own keys. Empty: the native ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spelling {
    /// The block, if it has no keys but those below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// By their native names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub keys: BTreeMap<String, KeySpelling>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeySpelling {
    pub name: String,
    #[serde(default)]
    pub unit: Unit,
}

/// What a number means where it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// The same as natively.
    #[default]
    Native,
    /// Retries: one less than attempts; −1 is unlimited.
    Retries,
    Milliseconds,
    Seconds,
}

impl Spelling {
    /// From `(native, theirs, unit)`.
    pub fn new(block: Option<&str>, keys: &[(&str, &str, Unit)]) -> Self {
        let spelled = |&(native, name, unit): &(&str, &str, Unit)| {
            (native.to_owned(), KeySpelling { name: name.to_owned(), unit })
        };
        Self { block: block.map(str::to_owned), keys: keys.iter().map(spelled).collect() }
    }

    pub fn is_native(&self) -> bool {
        *self == Self::default()
    }

    /// Its name for a key: `max_retries` for `max_attempts`.
    pub fn key<'a>(&'a self, native: &'a str) -> &'a str {
        self.keys.get(native).map_or(native, |spelled| &spelled.name)
    }

    /// Whether this spelling has a name for the key.
    pub fn has(&self, native: &str) -> bool {
        self.block.is_none() || self.keys.contains_key(native)
    }

    fn unit(&self, native: &str) -> Unit {
        self.keys.get(native).map(|spelled| spelled.unit).unwrap_or_default()
    }

    /// A count as it would be written for this key; none is unlimited.
    pub fn count(&self, native: &str, count: Option<u32>) -> Value {
        match (self.unit(native), count) {
            (Unit::Retries, Some(count)) => json!(count.saturating_sub(1)),
            (Unit::Retries, None) => json!(-1),
            (_, Some(count)) => json!(count),
            (_, None) => json!("unlimited"),
        }
    }

    /// A duration as it would be written for this key, to the millisecond.
    pub fn duration(&self, native: &str, ms: u64) -> Value {
        match self.unit(native) {
            Unit::Milliseconds => json!(ms),
            Unit::Seconds if ms.is_multiple_of(1000) => json!(ms / 1000),
            Unit::Seconds => json!(ms as f64 / 1000.0),
            Unit::Native | Unit::Retries => json!(duration_text(ms)),
        }
    }

    /// A text about keys without their values, in these words.
    pub fn respell(&self, text: &str) -> String {
        self.keys.iter().fold(text.to_owned(), |text, (native, spelled)| {
            text.replace(native.as_str(), &spelled.name)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_in_the_units_they_were_written_in() {
        let theirs = Spelling::new(
            Some("work_config"),
            &[
                ("max_attempts", "max_retries", Unit::Retries),
                ("initial_delay", "backoff", Unit::Milliseconds),
                ("max_delay", "max_seconds", Unit::Seconds),
            ],
        );
        assert_eq!(theirs.key("max_attempts"), "max_retries");
        assert_eq!(theirs.count("max_attempts", Some(4)), json!(3));
        assert_eq!(theirs.count("max_attempts", None), json!(-1));
        assert_eq!(theirs.duration("initial_delay", 1500), json!(1500));
        assert_eq!(theirs.duration("max_delay", 1500), json!(1.5));
        assert_eq!(theirs.duration("max_delay", 2000), json!(2));
        assert!(theirs.has("max_attempts") && !theirs.has("window"));
        assert_eq!(theirs.respell("over max_attempts"), "over max_retries");
        let native = Spelling::default();
        assert!(native.is_native() && native.has("window"));
        assert_eq!(native.duration("window", 5_400_000), json!("1h30m"));
        assert_eq!(native.count("max_attempts", None), json!("unlimited"));
    }
}
