//! One outcome of a rehearsal script: `exit:1@30s`, `ok={"a":1}`, `down:10m`.

use serde_json::Value;
use steadfast_core::outcome::{
    ErrorText, Failure, FailureKind, Outcome, Permanence, RequestedDelay,
};
use steadfast_jobfile::parse_duration;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Entry {
    /// An attempt that ends so, after this long. None: it never reports.
    Attempt { outcome: Option<Outcome>, takes_ms: u64 },
    /// The engine stops, and starts again so much later.
    Down { ms: u64 },
}

pub(crate) const OUTCOMES: &str = "`ok`, `ok=JSON`, `exit:N`, `signal:N`, `fail`, `permanent`, \
    `not_completed`, `timeout`, `lost`, `not_started`, `http:STATUS`, `defer:DUR`, `never` or \
    `down:DUR`, each with `@DUR` for how long it takes";

impl Entry {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (word, takes_ms) = split_duration(text)?;
        let (name, argument) = match word.find([':', '=']) {
            Some(at) => (&word[..at], Some((&word[at..=at], &word[at + 1..]))),
            None => (word, None),
        };
        let failed = |kind| Failure::new(kind);
        let colon = || match argument {
            Some((":", argument)) => {
                Ok(argument.split_once('=').map_or(argument, |(value, _)| value))
            }
            _ => Err(format!("`{name}` needs a value, as in `{name}:1`")),
        };
        // What it said beside that, which rules can match: `exit:75=quota exceeded`, `timeout=silent`.
        let said = match argument {
            Some((":", argument)) => argument.split_once('=').map(|(_, text)| text),
            Some((_, text)) => Some(text),
            None => None,
        };
        let error = |text: &str| ErrorText { kind: None, message: text.to_owned() };
        let saying = |outcome: Outcome| match (outcome, said) {
            (Outcome::Failed(failure), Some(text)) => {
                Outcome::Failed(Failure { error: Some(error(text)), ..failure })
            }
            (outcome, _) => outcome,
        };
        let number = |least: u8, most: u8, what: &str| {
            let text = colon()?;
            match text.parse::<u8>() {
                Ok(number) if (least..=most).contains(&number) => Ok(number),
                _ => Err(format!("{what} is a number from {least} to {most}, not `{text}`")),
            }
        };
        let outcome = match name {
            "ok" => match argument {
                None => Outcome::OK,
                Some(("=", json)) => {
                    let output: Value = serde_json::from_str(json)
                        .map_err(|error| format!("the output is not JSON: {error}"))?;
                    Outcome::Succeeded { output: Some(output) }
                }
                Some(_) => return Err("an output is written `ok={\"a\":1}`".into()),
            },
            "exit" => match colon()? {
                "0" => return Err("exit code 0 is success: write `ok`".into()),
                _ => {
                    saying(FailureKind::Exited(number(1, 255, "an exit code of a failure")?).into())
                }
            },
            "signal" => saying(FailureKind::Signalled(number(1, 64, "a signal")?).into()),
            "http" => {
                let text = colon()?;
                let status = text.parse().ok().filter(|status| (100..600).contains(status));
                let status =
                    status.ok_or_else(|| format!("`{text}` is not an HTTP status (100 to 599)"))?;
                saying(Outcome::from_http_status(status))
            }
            "defer" => {
                let asked = Some(RequestedDelay::DeferMs(parse_duration(colon()?)?));
                Outcome::Failed(Failure { asked, ..failed(FailureKind::HandlerFailed) })
            }
            "down" => {
                let ms = parse_duration(colon()?)?;
                return match takes_ms {
                    None => Ok(Self::Down { ms }),
                    Some(_) => Err("`down:DUR` says how long already, without `@`".into()),
                };
            }
            "fail" | "not_completed" | "permanent" => {
                let kind = match name {
                    "not_completed" => FailureKind::NotCompleted,
                    _ => FailureKind::HandlerFailed,
                };
                let permanence = match name {
                    "permanent" => Permanence::Said,
                    _ => Permanence::Open,
                };
                let text = match argument {
                    None => None,
                    Some(("=", text)) => Some(error(text)),
                    Some(_) => return Err(format!("an error text is written `{name}=TEXT`")),
                };
                Outcome::Failed(Failure { permanence, error: text, ..failed(kind) })
            }
            "timeout" if !matches!(argument, Some((":", _))) => {
                saying(FailureKind::TimedOut.into())
            }
            "timeout" | "lost" | "not_started" | "never" if argument.is_some() => {
                return Err(format!("`{name}` takes no value"));
            }
            "lost" => Outcome::LOST,
            "not_started" => Outcome::NOT_BEGUN,
            "never" => {
                return Ok(Self::Attempt { outcome: None, takes_ms: takes_ms.unwrap_or(0) });
            }
            _ => return Err(format!("`{text}` is not an outcome; write {OUTCOMES}")),
        };
        Ok(Self::Attempt { outcome: Some(outcome), takes_ms: takes_ms.unwrap_or(0) })
    }
}

/// `exit:1@30s` → `exit:1` and 30 s. An `@` inside a JSON output or a text is left alone unless a
/// duration follows it to the end.
fn split_duration(text: &str) -> Result<(&str, Option<u64>), String> {
    let Some((word, duration)) = text.rsplit_once('@') else { return Ok((text, None)) };
    match parse_duration(duration) {
        Ok(ms) => Ok((word, Some(ms))),
        Err(_) if word.contains('=') => Ok((text, None)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_reads_back_as_it_is_written() {
        for text in [
            "ok",
            "exit:1",
            "exit:255",
            "signal:9",
            "fail",
            "permanent",
            "not_completed",
            "timeout",
            "lost",
            "not_started",
            "http:503",
            "http:404",
        ] {
            let entry = Entry::parse(&format!("{text}@1m30s")).expect(text);
            let Entry::Attempt { outcome: Some(outcome), takes_ms: 90_000 } = entry else {
                panic!("{text}: {entry:?}")
            };
            assert_eq!(outcome.to_string(), text);
        }
        assert_eq!(Entry::parse("down:10m"), Ok(Entry::Down { ms: 600_000 }));
        assert_eq!(Entry::parse("never"), Ok(Entry::Attempt { outcome: None, takes_ms: 0 }));
    }

    #[test]
    fn an_output_may_hold_anything_json_can() {
        let entry = Entry::parse(r#"ok={"mail":"a@b","n":[1]}@5s"#).expect("parses");
        let output = Some(serde_json::json!({"mail": "a@b", "n": [1]}));
        let outcome = Some(Outcome::Succeeded { output });
        assert_eq!(entry, Entry::Attempt { outcome, takes_ms: 5000 });
        assert!(Entry::parse(r#"ok={"mail":"a@b"}"#).is_ok());
    }

    #[test]
    fn what_an_attempt_said_stands_beside_how_it_ended() {
        for (text, label) in [
            ("exit:75=quota exceeded", "exit:75"),
            ("signal:9=oom=yes", "signal:9"),
            ("http:503=busy", "http:503"),
            ("timeout=silent", "timeout"),
        ] {
            let Ok(Entry::Attempt { outcome: Some(outcome), takes_ms: 1000 }) =
                Entry::parse(&format!("{text}@1s"))
            else {
                panic!("{text}")
            };
            assert_eq!(outcome.to_string(), label);
            let Outcome::Failed(Failure { error: Some(error), .. }) = outcome else {
                panic!("{text}")
            };
            assert_eq!(Some(error.message.as_str()), text.split_once('=').map(|(_, said)| said));
        }
    }

    #[test]
    fn what_cannot_happen_is_refused() {
        for text in [
            "",
            "okay",
            "exit",
            "exit:0",
            "exit:256",
            "exit:-1",
            "signal:0",
            "signal:65",
            "ok={",
            "ok:1",
            "lost:1",
            "down",
            "down:1s@1s",
            "exit:1@",
            "exit:1@5",
            "http:99",
            "fail:1",
        ] {
            assert!(Entry::parse(text).is_err(), "{text} was accepted");
        }
    }
}
