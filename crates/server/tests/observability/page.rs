//! The page of metrics, read as strictly as a scraper would.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

/// Samples by name with labels, as written.
#[derive(Debug)]
pub(crate) struct Page {
    samples: BTreeMap<String, f64>,
}

impl Page {
    /// Panics on anything that is not the text format.
    pub(crate) fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has its end");
        let mut samples = BTreeMap::new();
        let mut family = None::<(String, String)>;
        let mut seen = Vec::new();
        let mut help = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, text) = rest.split_once(' ').expect("a help has words");
                assert!(!text.is_empty());
                help = Some(name.to_owned());
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type is named");
                assert_eq!(help.take().as_deref(), Some(name), "its help stands before it");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(!seen.contains(&name.to_owned()), "{name} is one family");
                seen.push(name.to_owned());
                family = Some((name.to_owned(), kind.to_owned()));
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            let name = labels(series);
            let (family, kind) = family.as_ref().expect("a type stands before its samples");
            let parts: &[&str] = match kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(parts.iter().any(|part| format!("{family}{part}") == name), "{line}");
            let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line:?}"));
            assert!(samples.insert(series.to_owned(), value).is_none(), "twice: {series}");
        }
        Self { samples }
    }

    /// 0 where there is no such series.
    pub(crate) fn get(&self, series: &str) -> f64 {
        self.samples.get(series).copied().unwrap_or(0.0)
    }

    pub(crate) fn has(&self, series: &str) -> bool {
        self.samples.contains_key(series)
    }

    /// Over all labels.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.named(name).map(|(_, value)| value).sum()
    }

    pub(crate) fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.samples
            .iter()
            .filter(move |(series, _)| series.split('{').next() == Some(name))
            .map(|(series, value)| (series.as_str(), *value))
    }
}

/// The name, once the labels are seen to be well formed.
fn labels(series: &str) -> &str {
    let plain = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let Some((name, labels)) = series.split_once('{') else {
        assert!(plain(series), "{series}");
        return series;
    };
    assert!(plain(name), "{series}");
    let mut rest = labels.strip_suffix('}').unwrap_or_else(|| panic!("{series}"));
    while !rest.is_empty() {
        let (key, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{series}"));
        assert!(plain(key), "{series}");
        let mut end = None;
        let mut escaped = false;
        for (at, c) in value.char_indices() {
            match c {
                _ if escaped => {
                    assert!(['\\', '"', 'n'].contains(&c), "{series}");
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
        }
        let end = end.unwrap_or_else(|| panic!("{series}: a value without an end"));
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    name
}

/// Prometheus' own judge, where it is installed.
pub(crate) fn promtool(text: &str) {
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut tool) = tool else {
        eprintln!("promtool is not installed: only our own reader has judged");
        return;
    };
    tool.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    let said = tool.wait_with_output().expect("it ends");
    let words = [said.stdout, said.stderr].map(|out| String::from_utf8_lossy(&out).into_owned());
    assert!(said.status.success() && words.concat().trim().is_empty(), "{words:?}\n{text}");
}
