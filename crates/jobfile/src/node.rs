//! A document as a tree in which everything knows its place. It has no meaning yet.
//!
//! Scalars keep the text that was written; what a plain one stands for is decided here once, by
//! YAML 1.2's core schema. Cloning is cheap, so that an alias costs nothing until it is read.

use std::sync::Arc;

use serde_json::{Map, Number, Value};

use crate::problem::quote;

/// Lines and columns count from 1, columns and lengths in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    pub line: u32,
    pub column: u32,
    pub length: u32,
}

impl Span {
    pub(crate) const START: Self = Self { line: 1, column: 1, length: 1 };
}

#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Scalar { text: Arc<str>, quoted: bool },
    List(Arc<[Node]>),
    Map(Arc<[Entry]>),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: Arc<str>,
    pub key_span: Span,
    pub value: Node,
}

/// What a scalar stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that does not fit.
    Huge,
    Float(f64),
    Str(&'a str),
}

impl Node {
    /// A scalar as a file has it without quotes: `5` is a number, `true` is a flag.
    pub fn plain(text: &str, span: Span) -> Self {
        Self { span, kind: Kind::Scalar { text: text.into(), quoted: false } }
    }

    /// Text, whatever it looks like.
    pub fn quoted(text: &str, span: Span) -> Self {
        Self { span, kind: Kind::Scalar { text: text.into(), quoted: true } }
    }

    pub fn list(items: Vec<Self>, span: Span) -> Self {
        Self { span, kind: Kind::List(items.into()) }
    }

    pub fn map(entries: Vec<Entry>, span: Span) -> Self {
        Self { span, kind: Kind::Map(entries.into()) }
    }

    pub fn span(&self) -> Span {
        self.span
    }

    pub fn as_map(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Map(entries) => Some(entries),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::List(items) => Some(items),
            _ => None,
        }
    }

    /// A scalar that is a string: quoted, or plain and nothing else.
    pub fn as_str(&self) -> Option<&str> {
        match self.scalar() {
            Some(Scalar::Str(text)) => Some(text),
            _ => None,
        }
    }

    /// Any scalar, as it was written.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    pub fn scalar(&self) -> Option<Scalar<'_>> {
        match &self.kind {
            Kind::Scalar { text, quoted: true } => Some(Scalar::Str(text)),
            Kind::Scalar { text, .. } => Some(resolve(text)),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        self.scalar() == Some(Scalar::Null)
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.as_map()?.iter().find(|entry| &*entry.key == key)
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        Some(&self.entry(key)?.value)
    }

    /// `a list`, `the number 5`: for messages.
    pub fn describe(&self) -> String {
        let text = self.text().unwrap_or_default();
        match self.scalar() {
            None if self.as_list().is_some() => "a list".into(),
            None => "a map".into(),
            Some(Scalar::Null) if text.is_empty() => "nothing".into(),
            Some(Scalar::Null) => "null".into(),
            Some(Scalar::Bool(value)) => value.to_string(),
            Some(Scalar::Int(_) | Scalar::Huge | Scalar::Float(_)) => {
                format!("the number {}", quote(text))
            }
            Some(Scalar::Str(text)) => format!("the text {}", quote(text)),
        }
    }

    /// The same value as JSON, or the node in it that JSON cannot say.
    pub fn to_json(&self) -> Result<Value, &Self> {
        Ok(match &self.kind {
            Kind::List(items) => {
                Value::Array(items.iter().map(Self::to_json).collect::<Result<_, _>>()?)
            }
            Kind::Map(entries) => {
                let pairs =
                    entries.iter().map(|entry| Ok((entry.key.to_string(), entry.value.to_json()?)));
                Value::Object(pairs.collect::<Result<Map<_, _>, _>>()?)
            }
            Kind::Scalar { text, quoted } => {
                match if *quoted { Scalar::Str(text) } else { resolve(text) } {
                    Scalar::Null => Value::Null,
                    Scalar::Bool(value) => Value::Bool(value),
                    Scalar::Int(value) => value.into(),
                    Scalar::Huge => text.parse::<u64>().map(Value::from).map_err(|_| self)?,
                    Scalar::Float(value) => {
                        Number::from_f64(value).map(Value::Number).ok_or(self)?
                    }
                    Scalar::Str(text) => Value::String(text.to_owned()),
                }
            }
        })
    }
}

/// YAML 1.2, chapter 10.3.2.
fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    // Nearly all text begins like no number, and a long list is mostly text.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Scalar::Str(text);
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return i64::from_str_radix(digits, radix).map_or(Scalar::Huge, Scalar::Int);
        }
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(digits, ".inf" | ".Inf" | ".INF") {
        let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
        return Scalar::Float(sign * f64::INFINITY);
    }
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (digits, None),
    };
    let all_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if exponent.is_none() && all_digits(mantissa) && !mantissa.is_empty() {
        return text.parse().map_or(Scalar::Huge, Scalar::Int);
    }
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    let some_digit = !(whole.is_empty() && fraction.is_empty());
    if some_digit && exponent_fits && all_digits(whole) && all_digits(fraction) {
        return text.parse().map_or(Scalar::Str(text), Scalar::Float);
    }
    Scalar::Str(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for (text, value) in [
            ("~", Scalar::Null),
            ("True", Scalar::Bool(true)),
            ("yes", Scalar::Str("yes")),
            ("010", Scalar::Int(10)),
            ("0o17", Scalar::Int(15)),
            ("0xff", Scalar::Int(255)),
            ("0x", Scalar::Str("0x")),
            ("+5", Scalar::Int(5)),
            ("-9223372036854775808", Scalar::Int(i64::MIN)),
            ("9223372036854775808", Scalar::Huge),
            ("0xffffffffffffffffff", Scalar::Huge),
            ("1e3", Scalar::Float(1000.0)),
            ("1.", Scalar::Float(1.0)),
            (".5", Scalar::Float(0.5)),
            ("-.inf", Scalar::Float(f64::NEG_INFINITY)),
            (".", Scalar::Str(".")),
            ("-", Scalar::Str("-")),
            ("1e", Scalar::Str("1e")),
            ("1_000", Scalar::Str("1_000")),
            ("30s", Scalar::Str("30s")),
            ("1.2.3", Scalar::Str("1.2.3")),
        ] {
            assert_eq!(resolve(text), value, "{text}");
        }
        assert!(matches!(resolve(".nan"), Scalar::Float(f) if f.is_nan()));
    }
}
