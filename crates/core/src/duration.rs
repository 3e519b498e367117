//! Durations as people write them. Whole numbers only; nothing is rounded.

use crate::policy::MAX_DURATION_MS;
use crate::text::quote;

const DURATION_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// `1h30m` in milliseconds. The error says what to write.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let shown = quote(text);
    let generic =
        || format!("{shown} is not a duration; write it as `500ms`, `30s`, `5m` or `1h30m`");
    if text.starts_with('-') {
        return Err(format!("{shown} is negative; a duration is 0 or more, as `30s`"));
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        let number = if text.len() < 10 { text } else { "30" };
        return Err(format!(
            "{shown} has no unit; write `{number}s` for seconds or `{number}ms` for milliseconds"
        ));
    }
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b.is_ascii_lowercase())
        && text.contains('.')
    {
        return Err(format!("{shown} has a fraction; write whole numbers, as `1s500ms`"));
    }
    let mut rest = text;
    let mut next_unit = 0;
    let mut total = 0u64;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let letters = rest[digits..].bytes().take_while(u8::is_ascii_lowercase).count();
        if digits == 0 || letters == 0 {
            return Err(generic());
        }
        let unit = &rest[digits..digits + letters];
        let Some(place) = DURATION_UNITS.iter().position(|(name, _)| *name == unit) else {
            return Err(generic());
        };
        if place < next_unit {
            return Err(format!(
                "{shown} has its units out of order; write them from large to small, each once, as `1h30m`"
            ));
        }
        next_unit = place + 1;
        let part = rest[..digits].parse::<u64>().unwrap_or(u64::MAX);
        total = total.saturating_add(part.saturating_mul(DURATION_UNITS[place].1));
        rest = &rest[digits + letters..];
    }
    if text.is_empty() {
        return Err(generic());
    }
    if total > MAX_DURATION_MS {
        return Err(format!("{shown} is longer than a century"));
    }
    Ok(total)
}

/// What [`parse_duration`] reads as the same number of milliseconds.
pub fn duration_text(mut ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let mut text = String::new();
    for (unit, size) in DURATION_UNITS {
        if ms >= size {
            text += &format!("{}{unit}", ms / size);
            ms %= size;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact_or_refused() {
        for (text, ms) in [
            ("0s", 0),
            ("500ms", 500),
            ("30s", 30_000),
            ("1h30m", 5_400_000),
            ("2m30s", 150_000),
            ("1d1ms", 86_400_001),
            ("007s", 7000),
        ] {
            assert_eq!(parse_duration(text), Ok(ms), "{text}");
        }
        let huge = format!("1{}s", "0".repeat(400));
        for (text, word) in [
            ("", "not a duration"),
            ("30", "write `30s`"),
            ("-5s", "negative"),
            ("1.5s", "fraction"),
            ("30m1h", "out of order"),
            ("1s1s", "out of order"),
            ("5 m", "not a duration"),
            ("5S", "not a duration"),
            ("s", "not a duration"),
            ("5é", "not a duration"),
            ("36526d", "century"),
            (&huge, "century"),
        ] {
            let error = parse_duration(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for ms in [0, 1, 999, 1000, 61_001, 5_400_000, 86_400_000, 90_061_001] {
            assert_eq!(parse_duration(&duration_text(ms)), Ok(ms));
        }
        assert_eq!(duration_text(5_400_000), "1h30m");
    }
}
