//! Durations and sizes as people write them. Whole numbers only; nothing is rounded.

use steadfast_core::policy::MAX_DURATION_MS;

use crate::problem::quote;

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

/// `512m`, `512MiB`, `2g` in bytes; powers of 1024. The error says what to write.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let shown = quote(text);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if unit.is_empty() && digits > 0 {
        let number = if digits < 10 { number } else { "512" };
        return Err(format!(
            "{shown} has no unit; write `{number}m` for MiB or `{number}g` for GiB"
        ));
    }
    let power = match unit.to_ascii_lowercase().as_str() {
        "k" | "kib" => 1,
        "m" | "mib" => 2,
        "g" | "gib" => 3,
        "t" | "tib" => 4,
        _ => 0,
    };
    if digits == 0 || power == 0 {
        return Err(format!("{shown} is not a size; write it as `512m`, `512MiB` or `2g`"));
    }
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << (10 * power)))
        .filter(|bytes| *bytes <= 1 << 60)
        .ok_or_else(|| format!("{shown} is more than any machine has"))
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

/// What [`parse_size`] reads as the same number of bytes. Sizes are written in whole KiB, at least.
pub fn size_text(bytes: u64) -> String {
    let (power, unit) = [(4, "TiB"), (3, "GiB"), (2, "MiB")]
        .into_iter()
        .find(|(power, _)| bytes > 0 && bytes.is_multiple_of(1 << (10 * power)))
        .unwrap_or((1, "KiB"));
    format!("{}{unit}", bytes >> (10 * power))
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
        for bytes in [1024, 1536 << 10, 1 << 20, 10 << 20, 3 << 30, 5 << 40] {
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
        assert_eq!(
            (duration_text(5_400_000), size_text(10 << 20)),
            ("1h30m".into(), "10MiB".into())
        );
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        for (text, bytes) in [
            ("512m", 512 << 20),
            ("512MiB", 512 << 20),
            ("2g", 2 << 30),
            ("2GiB", 2 << 30),
            ("1k", 1024),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["512", "512MB", "-1m", "1.5g", "m", "", "99999999999t"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
