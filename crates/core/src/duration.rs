//! Durations as people write them, also as humantime does. Whole numbers only; nothing is rounded.

use crate::policy::MAX_DURATION_MS;
use crate::text::quote;

/// From large to small, each with all its names; the first is the one that is written. Months and years
/// are what humantime makes of them: 30.44 and 365.25 days.
const UNITS: [(&[&str], u64); 8] = [
    (&["y", "year", "years"], 31_557_600_000),
    (&["M", "month", "months"], 2_630_016_000),
    (&["w", "week", "weeks"], 604_800_000),
    (&["d", "day", "days"], 86_400_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000),
    (&["s", "sec", "secs", "second", "seconds"], 1000),
    (&["ms", "msec", "millis"], 1),
];
const SHORTER: [&str; 6] = ["us", "\u{b5}s", "usec", "ns", "nsec", "nanos"];
/// What [`duration_text`] writes: people count in days rather than in weeks of months.
const WRITTEN: std::ops::Range<usize> = 3..UNITS.len();

/// The names of the units, from large to small.
pub fn unit_names() -> impl Iterator<Item = &'static [&'static str]> {
    UNITS.iter().map(|(names, _)| *names)
}

/// `1h30m`, or as humantime writes it `1h 30m`, `90sec`, `2 minutes`, in milliseconds. The error says
/// what to write.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let shown = quote(text);
    let generic =
        || format!("{shown} is not a duration; write it as `500ms`, `30s`, `5m` or `1h30m`");
    let mut rest = text.trim();
    if rest.starts_with('-') {
        return Err(format!("{shown} is negative; a duration is 0 or more, as `30s`"));
    }
    if !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()) {
        let number = if rest.len() < 10 { rest } else { "30" };
        return Err(format!(
            "{shown} has no unit; write `{number}s` for seconds or `{number}ms` for milliseconds"
        ));
    }
    if rest.contains('.')
        && rest.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b' ')
    {
        return Err(format!("{shown} has a fraction; write whole numbers, as `1s500ms`"));
    }
    if rest.is_empty() {
        return Err(generic());
    }
    let mut next_unit = 0;
    let mut total = 0u64;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.bytes().take_while(u8::is_ascii_digit).count());
        let after = after.trim_start();
        let letters = after.chars().take_while(|c| c.is_alphabetic() || *c == '\u{b5}');
        let (unit, after) = after.split_at(letters.map(char::len_utf8).sum());
        if number.is_empty() || unit.is_empty() {
            return Err(generic());
        }
        if SHORTER.contains(&unit) {
            return Err(format!(
                "{shown} counts in less than a millisecond, which nothing here does; write `1ms` or more"
            ));
        }
        let Some(place) = UNITS.iter().position(|(names, _)| names.contains(&unit)) else {
            return Err(generic());
        };
        if place < next_unit {
            return Err(format!(
                "{shown} has its units out of order; write them from large to small, each once, as `1h30m`"
            ));
        }
        next_unit = place + 1;
        let part = number.parse::<u64>().unwrap_or(u64::MAX);
        total = total.saturating_add(part.saturating_mul(UNITS[place].1));
        rest = after.trim_start();
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
    for (names, size) in &UNITS[WRITTEN] {
        if ms >= *size {
            text += &format!("{}{}", ms / size, names[0]);
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
            // As humantime writes them, and reads them.
            ("5min", 300_000),
            ("1h 30m", 5_400_000),
            ("90sec", 90_000),
            ("2 minutes", 120_000),
            ("1day", 86_400_000),
            ("1day 2h 5m 7s 9ms", 93_907_009),
            ("1year 2months 3days", 31_557_600_000 + 2 * 2_630_016_000 + 259_200_000),
            ("2weeks", 1_209_600_000),
            ("7hrs 12mins", 25_920_000),
            ("31msec", 31),
            ("5 m", 300_000),
            (" 30s ", 30_000),
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
            ("5 ", "write `5s`"),
            ("5us", "less than a millisecond"),
            ("1s 5 ns", "less than a millisecond"),
            ("163\u{b5}s", "less than a millisecond"),
            ("1h 30", "not a duration"),
            ("m 5", "not a duration"),
            ("5 m sec", "not a duration"),
            ("30m 1 hour", "out of order"),
            ("1 .5s", "fraction"),
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
