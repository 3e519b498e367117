//! Points in time, as integers. Nothing in this crate asks what time it is: `now` is handed in.

use serde::{Deserialize, Serialize};

/// Unix milliseconds, or milliseconds since the start of a rehearsal.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// The moment `ms` later; the end of time rather than an overflow.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// How long after `earlier` this is; 0 if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// `1h30m`, `2.5s` for the eye: at most two units, the way a person would say it. Exact below a minute,
/// and from there rounded to the nearest of what is shown: 1m59.9s reads `2m`, not `1m59s`.
#[must_use]
pub fn human_ms(ms: u64) -> String {
    let pair = |big: u64, big_name: &str, small: u64, small_name: &str| {
        let rounded = ms.saturating_add(small / 2) / small * small;
        match (rounded / big, rounded % big / small) {
            (whole, 0) => format!("{whole}{big_name}"),
            (whole, rest) => format!("{whole}{big_name}{rest}{small_name}"),
        }
    };
    // What rounds up to the next larger unit is told in that.
    match ms {
        ..MINUTE => seconds(ms),
        _ if ms < HOUR - SECOND / 2 => pair(MINUTE, "m", SECOND, "s"),
        _ if ms < DAY - MINUTE / 2 => pair(HOUR, "h", MINUTE, "m"),
        _ => pair(DAY, "d", HOUR, "h"),
    }
}

/// The same to the millisecond, however long: for numbers that are held against each other.
#[must_use]
pub fn exact_ms(ms: u64) -> String {
    let mut text = String::new();
    let mut rest = ms;
    for (unit, name) in [(DAY, "d"), (HOUR, "h"), (MINUTE, "m")] {
        if rest >= unit {
            text.push_str(&format!("{}{name}", rest / unit));
            rest %= unit;
        }
    }
    if rest > 0 || text.is_empty() {
        text.push_str(&seconds(rest));
    }
    text
}

/// What is left of a wait, for a display that is drawn again and again: tenths below ten seconds, whole
/// seconds above. Never less than there is, so that it does not end before its time.
#[must_use]
pub fn countdown_ms(ms: u64) -> String {
    match ms {
        ..10_000 => seconds(ms.next_multiple_of(100)),
        _ => human_ms(ms.next_multiple_of(SECOND)),
    }
}

/// Below a minute.
fn seconds(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        1..SECOND => format!("{ms}ms"),
        _ if ms.is_multiple_of(SECOND) => format!("{}s", ms / SECOND),
        _ => {
            let text = format!("{}.{:03}", ms / SECOND, ms % SECOND);
            format!("{}s", text.trim_end_matches('0'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_the_way_people_say_them() {
        for (ms, text) in [
            (0, "0s"),
            (999, "999ms"),
            (1000, "1s"),
            (2500, "2.5s"),
            (1050, "1.05s"),
            (90_000, "1m30s"),
            (3_600_000, "1h"),
            (5_400_000, "1h30m"),
            (90_000_000, "1d1h"),
            (1400, "1.4s"),
            (59_999, "59.999s"),
            (60_400, "1m"),
            (119_900, "2m"),
            (3_599_900, "1h"),
            (3_659_000, "1h1m"),
            (7_199_000, "2h"),
            (86_399_000, "1d"),
            (u64::MAX, "213503982334d14h"),
        ] {
            assert_eq!(human_ms(ms), text, "{ms}");
        }
    }

    #[test]
    fn what_is_compared_is_exact_and_what_counts_down_never_too_short() {
        for (ms, text) in [
            (0, "0s"),
            (999, "999ms"),
            (60_000, "1m"),
            (60_300, "1m300ms"),
            (62_345, "1m2.345s"),
            (90_061_001, "1d1h1m1.001s"),
        ] {
            assert_eq!(exact_ms(ms), text);
        }
        for (ms, text) in [
            (0, "0s"),
            (1, "100ms"),
            (400, "400ms"),
            (999, "1s"),
            (1400, "1.4s"),
            (1401, "1.5s"),
            (10_001, "11s"),
            (61_500, "1m2s"),
        ] {
            assert_eq!(countdown_ms(ms), text, "{ms}");
        }
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        assert_eq!(Timestamp(u64::MAX).plus(1), Timestamp(u64::MAX));
        assert_eq!(Timestamp(1).since(Timestamp(5)), 0);
    }
}
