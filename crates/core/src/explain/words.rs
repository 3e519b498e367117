//! How things are put in words, here only.

use crate::time::{Timestamp, human_ms};

/// `a`, `a and b`, `a, b and c`
pub(super) fn and(parts: impl IntoIterator<Item = String>) -> String {
    let mut parts: Vec<String> = parts.into_iter().collect();
    let last = parts.pop().unwrap_or_default();
    if parts.is_empty() { last } else { format!("{} and {last}", parts.join(", ")) }
}

/// `1 item`, `3 items`
pub(super) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// `1st`, `2nd`, `11th`
pub(super) fn ordinal(n: u32) -> String {
    let ending = match (n % 10, n % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}

/// `in 4s`, `now`
pub(super) fn until(at: Timestamp, now: Timestamp) -> String {
    match at.since(now) {
        0 => "now".to_owned(),
        ms => format!("in {}", human_ms(ms)),
    }
}

/// `for 4s`, of what has been so since then.
pub(super) fn since(at: Timestamp, now: Timestamp) -> String {
    format!("for {}", human_ms(now.since(at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_put_as_people_put_them() {
        let ordinals: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 22, 101].map(ordinal).into();
        assert_eq!(ordinals, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "22nd", "101st"]);
        let list = |n: usize| and(["a", "b", "c"].map(String::from).into_iter().take(n));
        assert_eq!([list(1), list(2), list(3)], ["a", "a and b", "a, b and c"]);
    }
}
