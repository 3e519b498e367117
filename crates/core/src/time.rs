//! Points in time, as integers. Nobody in this crate asks what time it is: `now` is handed in.

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

/// `1h30m`, `2.5s` for the eye: at most two units, the way a person would say it.
#[must_use]
pub fn human_ms(ms: u64) -> String {
    const SECOND: u64 = 1000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    let pair = |big: u64, big_name: &str, small: u64, small_name: &str| {
        let (whole, rest) = (ms / big, ms % big / small);
        if rest == 0 {
            format!("{whole}{big_name}")
        } else {
            format!("{whole}{big_name}{rest}{small_name}")
        }
    };
    match ms {
        0 => "0s".to_owned(),
        1..SECOND => format!("{ms}ms"),
        SECOND..MINUTE if ms.is_multiple_of(SECOND) => format!("{}s", ms / SECOND),
        SECOND..MINUTE => {
            let text = format!("{:.3}", ms as f64 / 1000.0);
            format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
        }
        MINUTE..HOUR => pair(MINUTE, "m", SECOND, "s"),
        HOUR..DAY => pair(HOUR, "h", MINUTE, "m"),
        _ => pair(DAY, "d", HOUR, "h"),
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
        ] {
            assert_eq!(human_ms(ms), text);
        }
    }

    #[test]
    fn the_end_of_time_does_not_overflow() {
        assert_eq!(Timestamp(u64::MAX).plus(1), Timestamp(u64::MAX));
        assert_eq!(Timestamp(1).since(Timestamp(5)), 0);
    }
}
