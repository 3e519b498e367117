//! JSON with places. YAML's parser takes most JSON, but neither tabs nor `\ud83d\ude00`.

use crate::builder::Builder;
use crate::node::Span;
use crate::problem::{Problem, quote};

pub(crate) fn read(text: &str, builder: &mut Builder) -> Result<(), Problem> {
    let mut reader = Reader { rest: text, line: 1, column: 1 };
    reader.value(builder)?;
    reader.space();
    if reader.rest.is_empty() { Ok(()) } else { Err(reader.wrong("expected the end of the file")) }
}

struct Reader<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
}

impl Reader<'_> {
    fn here(&self) -> Span {
        Span { line: self.line, column: self.column, length: 1 }
    }

    fn wrong(&self, message: &str) -> Problem {
        let found = match self.rest.chars().next() {
            Some(c) => quote(&c.to_string()),
            None => "the end".into(),
        };
        let message = format!("not valid JSON: {message}, found {found}");
        Problem::new("syntax", "", self.here(), message)
    }

    fn space(&mut self) {
        for c in self.rest.chars() {
            match c {
                '\n' => (self.line, self.column) = (self.line + 1, 1),
                ' ' | '\t' | '\r' => self.column += 1,
                _ => break,
            }
            self.rest = &self.rest[1..];
        }
    }

    fn take(&mut self, c: char) -> bool {
        let Some(rest) = self.rest.strip_prefix(c) else {
            return false;
        };
        self.rest = rest;
        self.column += 1;
        true
    }

    /// The builder's limit on depth is this function's limit on recursion.
    fn value(&mut self, builder: &mut Builder) -> Result<(), Problem> {
        self.space();
        let here = self.here();
        match self.rest.bytes().next() {
            Some(b'{') => {
                builder.open(true, here, 0)?;
                self.members('{', '}', builder)
            }
            Some(b'[') => {
                builder.open(false, here, 0)?;
                self.members('[', ']', builder)
            }
            Some(b'"') => self.string(builder),
            _ => {
                let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
                let end = self.rest.find(|c| !word(c)).unwrap_or(self.rest.len());
                let text = &self.rest[..end];
                if !matches!(text, "true" | "false" | "null") && !is_number(text) {
                    return Err(self.wrong("expected a value"));
                }
                let length = text.len() as u32;
                self.rest = &self.rest[end..];
                self.column += length;
                builder.scalar(text, false, Span { length, ..here }, 0)
            }
        }
    }

    fn members(&mut self, open: char, close: char, builder: &mut Builder) -> Result<(), Problem> {
        self.take(open);
        self.space();
        let mut more = !self.take(close);
        while more {
            self.space();
            if close == '}' {
                if !self.rest.starts_with('"') {
                    return Err(self.wrong("expected a key in double quotes"));
                }
                self.string(builder)?;
                self.space();
                if !self.take(':') {
                    return Err(self.wrong("expected `:`"));
                }
            }
            self.value(builder)?;
            self.space();
            more = self.take(',');
            if !more && !self.take(close) {
                return Err(self.wrong(&format!("expected `,` or `{close}`")));
            }
        }
        builder.close();
        Ok(())
    }

    fn string(&mut self, builder: &mut Builder) -> Result<(), Problem> {
        let here = self.here();
        self.take('"');
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        let plain = self.rest.bytes().position(|byte| !is_plain(byte)).unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(plain);
        (self.rest, self.column) = (rest, self.column + plain as u32);
        // Nearly every string is that, and needs no copy.
        if self.take('"') {
            let length = self.column - here.column;
            return builder.scalar(text, true, Span { length, ..here }, 0);
        }
        let mut text = text.to_owned();
        loop {
            let Some(c) = self.rest.chars().next() else {
                return Err(self.wrong("expected `\"`"));
            };
            if c < ' ' {
                return Err(self.wrong("expected an escape such as `\\n`"));
            }
            self.take(c);
            match c {
                '"' => break,
                '\\' => text.push(self.escape()?),
                c => text.push(c),
            }
        }
        let length = self.column - here.column;
        builder.scalar(&text, true, Span { length, ..here }, 0)
    }

    fn escape(&mut self) -> Result<char, Problem> {
        let Some(c) = self.rest.chars().next() else {
            return Err(self.wrong("expected an escape"));
        };
        let plain = match c {
            '"' | '\\' | '/' => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                self.take('u');
                return self.unicode();
            }
            _ => return Err(self.wrong("expected an escape")),
        };
        self.take(c);
        Ok(plain)
    }

    fn unicode(&mut self) -> Result<char, Problem> {
        let mut unit = self.four_digits()?;
        if (0xd800..0xdc00).contains(&unit) && self.take('\\') && self.take('u') {
            let low = self.four_digits()?;
            unit = match low {
                0xdc00..0xe000 => 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00),
                _ => unit,
            };
        }
        char::from_u32(unit).ok_or_else(|| self.wrong("half of a surrogate pair"))
    }

    fn four_digits(&mut self) -> Result<u32, Problem> {
        let digits =
            self.rest.get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(unit) = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) else {
            return Err(self.wrong("expected four hexadecimal digits"));
        };
        self.rest = &self.rest[4..];
        self.column += 4;
        Ok(unit)
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<serde_json::Number>().is_ok() || {
        // Integers of any length are numbers; whether they fit is asked where one is used.
        let digits = text.strip_prefix('-').unwrap_or(text);
        !digits.is_empty() && !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())
    }
}
