//! Typed values: text, numbers, durations, names. The other half of [`Reader`].

use steadfast_core::duration::parse_duration;
use steadfast_core::plan::nearest;

use crate::node::{Entry, Node, Scalar, Span};
use crate::policy::Limit;
use crate::problem::quote;
use crate::reader::{At, Reader};
use crate::units::parse_size;

impl Reader<'_> {
    pub(crate) fn list<'n>(&mut self, at: &At<'n>, example: &str) -> Option<Vec<At<'n>>> {
        let Some(items) = at.node.as_list() else {
            self.wrong_type(at, &format!("a list, as `{example}`"));
            return None;
        };
        Some(items.iter().enumerate().map(|(index, item)| at.item(index, item)).collect())
    }

    /// The same of a list that has at most `most` of `what`: more than that are not looked at one by one.
    pub(crate) fn short_list<'n>(
        &mut self,
        at: &At<'n>,
        example: &str,
        most: usize,
        what: &str,
    ) -> Option<Vec<At<'n>>> {
        let count = at.node.as_list().map_or(0, <[Node]>::len);
        if count > most {
            let message = format!("{count} {what}; at most {most} are allowed");
            self.bad("too_large", at, message);
            return None;
        }
        self.list(at, example)
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
        let wanted = if least == -most {
            "a whole number".to_owned()
        } else if most >= i64::from(u32::MAX) - 1 {
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
                self.bad("invalid_value", at, format!("expected {wanted}, not {value}"));
                None
            }
            _ => {
                self.wrong_type(at, &wanted);
                None
            }
        }
    }

    pub(crate) fn count(&mut self, at: &At, least: u32) -> Option<u32> {
        self.int(at, i64::from(least), i64::from(u32::MAX)).map(|value| value as u32)
    }

    /// A count, or `unlimited`. 0 is left to core, which knows what it would mean.
    pub(crate) fn limit(&mut self, at: &At) -> Option<Limit> {
        if at.node.as_str() == Some("unlimited") {
            return Some(Limit::Unlimited);
        }
        if !matches!(at.node.scalar(), Some(Scalar::Int(0..) | Scalar::Huge)) {
            let message =
                format!("expected a whole number or `unlimited`, not {}", at.node.describe());
            let negative = matches!(at.node.scalar(), Some(Scalar::Int(..0)));
            self.bad("wrong_type", at, message).help =
                negative.then(|| "write `unlimited` for no limit".into());
            return None;
        }
        self.count(at, 0).map(Limit::Count)
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
        items.iter().map(|item| self.int(item, -MOST, MOST)).collect()
    }

    /// Letters, digits, `_` and `-`, or what `also` allows.
    pub(crate) fn name(&mut self, at: &At, what: &str, also: &str) -> Option<String> {
        let text = self.text(at)?;
        self.check_name(text, what, also, &at.path, at.node.span()).then(|| text.to_owned())
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
            let also: String = also.chars().flat_map(|c| [' ', '`', c, '`']).collect();
            let text = quote(text);
            format!(
                "{what} consists of letters, digits, `_` `-`{also}, so {text} cannot contain {c}"
            )
        } else {
            return true;
        };
        self.bad_at("invalid_name", path, span, message);
        false
    }

    /// What is not a name keeps its place in the list, so that those after it keep theirs.
    pub(crate) fn names(&mut self, at: &At, what: &str, most: usize, all: &str) -> Vec<String> {
        let example = format!("[{}]", at.node.text().unwrap_or("name"));
        let example = if example.len() > 40 { "[name]" } else { &example };
        let items = self.short_list(at, example, most, all).unwrap_or_default();
        items
            .iter()
            .map(|item| {
                let written = item.node.text().unwrap_or_default();
                self.name(item, what, "").unwrap_or_else(|| written.to_owned())
            })
            .collect()
    }
}
