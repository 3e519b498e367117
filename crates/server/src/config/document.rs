//! The settings as a file that documents itself. Prints the table; has no words of its own but the head.

use steadfast_jobfile::{duration_text, retry_keys, size_text};

use super::Config;
use super::table::{RETRY_EXAMPLES, SECTIONS, Setting, Shape};

const HEAD: &str = "\
# Settings of a Steadfast server. Every line shows the default; one that begins with `#` shows
# what could be written where there is no default, or where the default is not to be fixed.
# Each key can also be set in the environment: [server] listen is STEADFAST_SERVER__LISTEN.
# Durations: 500ms, 30s, 5m, 1h30m, 30d. Sizes: 64KiB, 10MiB, 1GiB.
";

pub(super) fn document() -> String {
    let mut defaults = Config::default();
    let mut text = HEAD.to_owned();
    for section in SECTIONS {
        text += &format!("\n# {}\n[{}]\n", section.doc, section.name);
        if section.name == "retry" {
            for (key, doc) in retry_keys() {
                let example = RETRY_EXAMPLES.iter().find(|(known, _)| *known == key);
                let (_, example) = example.copied().unwrap_or((key, "\"\""));
                text += &format!("# {doc}\n# {key} = {example}\n");
            }
        }
        for setting in section.settings {
            for line in setting.doc.lines() {
                text += &format!("# {line}\n");
            }
            text += &line(setting, &mut defaults);
        }
    }
    text
}

fn line(setting: &Setting, defaults: &mut Config) -> String {
    let key = setting.key;
    match value(&setting.shape, defaults) {
        Ok(value) => format!("{key} = {value}\n"),
        Err(example) => format!("# {key} = {example}\n"),
    }
}

/// What is set, or an example of what could be.
fn value(shape: &Shape, defaults: &mut Config) -> Result<String, String> {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    Ok(match shape {
        Shape::Flag(field) => field(defaults).to_string(),
        Shape::Count(_, field) => field(defaults).to_string(),
        Shape::Milliseconds(field) => field(defaults).to_string(),
        Shape::Duration(_, field) => quoted(&duration_text(*field(defaults))),
        Shape::Forever(field) => {
            quoted(&field(defaults).map_or_else(|| "forever".to_owned(), duration_text))
        }
        Shape::Size(_, field) => quoted(&size_text(*field(defaults) as u64)),
        Shape::Word(words, get, _) => match get(defaults) {
            Some(word) => quoted(words[word]),
            None => return Err(quoted(words[0])),
        },
        Shape::Text(_, field) => quoted(field(defaults)),
        Shape::Unset(example, _, field) => match field(defaults) {
            Some(text) => quoted(text),
            None => return Err(quoted(example)),
        },
        Shape::UnsetCount(example, _, field) => match field(defaults) {
            Some(count) => count.to_string(),
            None => return Err(example.to_string()),
        },
        Shape::Texts(example, _, field) => match field(defaults).as_slice() {
            [] => return Err((*example).to_owned()),
            texts => toml::Value::from(texts.to_vec()).to_string(),
        },
    })
}
