//! Sizes as people write them. Whole numbers only; nothing is rounded.

use crate::problem::quote;

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
    fn what_is_written_reads_the_same() {
        for bytes in [1024, 1536 << 10, 1 << 20, 10 << 20, 3 << 30, 5 << 40] {
            assert_eq!(parse_size(&size_text(bytes)), Ok(bytes));
        }
        assert_eq!(size_text(10 << 20), "10MiB");
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
