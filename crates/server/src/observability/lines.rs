//! What a log line looks like. JSON: one object with `timestamp`, `level`, `event`, `target` and the
//! event's fields. Text: time, level, event, fields as `name=value`, quoted where they need it.

use std::fmt::{self, Write};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// Bytes of one field: a job's error text can be long, and a line is for reading.
const FIELD: usize = 4096;
/// Bytes of a list: the names of as many datacenters as a job can have.
const LIST: usize = 4 * FIELD;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug)]
pub(super) struct Lines {
    pub(super) format: LogFormat,
    pub(super) colour: bool,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = LogLine::default();
        event.record(&mut said);
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let level = *event.metadata().level();
        // Where a library made the event inside a span, the span says what it is about.
        let within = context.event_scope().and_then(|scope| {
            let spans = scope.from_root().map(|span| {
                let fields = span.extensions();
                let fields = fields.get::<FormattedFields<N>>().map_or("", |f| f.as_str());
                format!("{}{{{fields}}}", span.name())
            });
            let spans: Vec<String> = spans.collect();
            (!spans.is_empty()).then(|| Value::from(spans.join(":")))
        });
        said.fields.extend(within.map(|within| ("within".to_owned(), within)));
        let target = event.metadata().target();
        let line = match self.format {
            LogFormat::Json => json(&time, level, target, said),
            LogFormat::Text => text(&time, level, target, &said, self.colour),
        };
        writer.write_str(&line)?;
        writer.write_char('\n')
    }
}

/// The event's name, and its fields in the order they were written.
#[derive(Default)]
struct LogLine {
    event: String,
    /// By a field of its own.
    named: bool,
    fields: Vec<(String, Value)>,
}

impl LogLine {
    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            // Its name; a sentence beside it is a field like others.
            ("event", Value::String(name)) => {
                let message = std::mem::replace(&mut self.event, name);
                self.named = true;
                if !message.is_empty() {
                    self.fields.push(("message".to_owned(), Value::from(message)));
                }
            }
            ("message", Value::String(text)) if !self.named => self.event = text,
            (name, value) => self.fields.push((name.to_owned(), value)),
        }
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = Clipped::new(LIST);
        // An error is the end of the room; what fits is there.
        let _ = write!(text, "{value:?}");
        let list = Some(&text.text).filter(|text| text.starts_with('['));
        let list = list.and_then(|text| serde_json::from_str::<Vec<Value>>(text).ok());
        match list {
            Some(list) => self.take(field, Value::from(list)),
            None => self.record_str(field, &text.text),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let mut text = Clipped::new(FIELD);
        let _ = text.write_str(value);
        self.take(field, Value::from(text.text));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, Value::from(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, Value::from(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, Value::from(value));
    }
}

/// Takes as much as fits, and says that there was more.
struct Clipped {
    text: String,
    most: usize,
}

impl Clipped {
    fn new(most: usize) -> Self {
        Self { text: String::new(), most }
    }
}

impl Write for Clipped {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.most.saturating_sub(self.text.len());
        if text.len() <= room {
            self.text.push_str(text);
            return Ok(());
        }
        self.text.push_str(&text[..text.floor_char_boundary(room.saturating_sub('…'.len_utf8()))]);
        self.text.push('…');
        Err(fmt::Error)
    }
}

/// A list of texts as JSON has it, which is how a field says that it is one: [`Lines`] writes it as a list.
pub(super) struct JsonList<'a>(pub(super) &'a [&'a str]);

impl fmt::Debug for JsonList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.0).map_err(|_| fmt::Error)?)
    }
}

fn json(time: &str, level: Level, target: &str, said: LogLine) -> String {
    let mut line = Map::new();
    line.insert("timestamp".to_owned(), Value::from(time));
    line.insert("level".to_owned(), Value::from(level.as_str()));
    line.insert("event".to_owned(), Value::from(said.event));
    line.insert("target".to_owned(), Value::from(target));
    for (name, value) in said.fields {
        // A library's field cannot stand in for ours.
        line.entry(name).or_insert(value);
    }
    inert_json(&Value::Object(line))
}

/// Strings are the only place of what is left: JSON itself escapes only the first 32.
fn inert_json(value: &Value) -> String {
    let line = value.to_string();
    line.chars().fold(String::with_capacity(line.len()), |mut inert, c| {
        if is_inert(c) {
            inert.push(c);
        } else {
            inert.push_str(&format!("\\u{:04x}", u32::from(c)));
        }
        inert
    })
}

fn text(time: &str, level: Level, target: &str, said: &LogLine, colour: bool) -> String {
    let paint = |code: &str, text: &str| {
        if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    };
    let code = match level {
        Level::ERROR => "1;31",
        Level::WARN => "33",
        Level::INFO => "32",
        _ => "2",
    };
    let level = paint(code, &format!("{level:5}"));
    // A name of ours stands as it is; a sentence of a library is given with who said it.
    let event = if target.starts_with("steadfast") {
        paint("1", &value_text(&said.event))
    } else {
        format!("{} {}", paint("1", &value_text(&said.event)), paint("2", target))
    };
    let mut line = format!("{} {level} {event}", paint("2", time));
    for (name, value) in &said.fields {
        let value = match value {
            Value::String(text) => value_text(text),
            other => inert_json(other),
        };
        line.push_str(&format!(" {}{value}", paint("2", &format!("{name}="))));
    }
    line
}

/// As it is where nobody can mistake where it ends; else quoted.
fn value_text(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-.:/[]!~@+,…".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if is_inert(c) => quoted.push(c),
            c => quoted.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}

/// It moves no cursor, breaks no line, and turns no direction of writing.
fn is_inert(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{61c}')
        && !matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
