//! How long to wait: the base delay of the n-th failure, its cap, and its jitter.
//!
//! Base and jitter are apart, and the draw is handed in, so that each is a plain function to test.
//! All arithmetic saturates at the cap; nothing here can give 0 by overflow.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backoff {
    Fixed,
    Linear { increment_ms: u64 },
    Exponential { multiplier: f64 },
    Fibonacci,
    List(Vec<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Jitter {
    None,
    /// [0, d]
    Full,
    /// [d/2, d]
    Equal,
    /// [`initial_delay`, 3 × the last delay]
    Decorrelated,
    /// [d(1−f), d(1+f)]
    Factor(f64),
}

/// A uniform draw, a pure function of what is being decided: see [`JitterSeed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw(u64);

impl Draw {
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// In [0, 1).
    fn unit(self) -> f64 {
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The part of the jitter's source that all items of a step in a run share, hashed once.
///
/// The hash is written out here, and must never change: a replayed decision has to give the delay
/// that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitterSeed(u64);

impl JitterSeed {
    #[must_use]
    pub fn new(job: &str, datacenter: Option<&str>, step: &str) -> Self {
        // FNV-1a, with a byte between the parts that UTF-8 never contains.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for part in [job, datacenter.unwrap_or(""), step] {
            for byte in part.bytes().chain([0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        Self(hash)
    }

    #[must_use]
    pub const fn draw(self, item: u32, attempt: u32) -> Draw {
        // SplitMix64's finalizer spreads neighbouring items and attempts over the whole range.
        let mut z = self.0 ^ ((item as u64) << 32 | attempt as u64);
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Draw(z ^ (z >> 31))
    }
}

/// A policy's delays. Valid by construction: see [`crate::policy::Policy`].
#[derive(Clone, Debug, PartialEq)]
pub struct Delays {
    pub(crate) backoff: Backoff,
    pub(crate) initial_ms: u64,
    pub(crate) max_ms: u64,
    pub(crate) jitter: Jitter,
}

/// F(1) = F(2) = 1; the entries past which every longer wait is at any cap anyway.
const FIBONACCI: [u64; 92] = {
    let mut table = [1u64; 92];
    let mut i = 2;
    while i < table.len() {
        table[i] = table[i - 1] + table[i - 2];
        i += 1;
    }
    table
};

impl Delays {
    pub fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    pub fn initial_ms(&self) -> u64 {
        self.initial_ms
    }

    pub fn max_ms(&self) -> u64 {
        self.max_ms
    }

    pub fn jitter(&self) -> Jitter {
        self.jitter
    }

    /// The delay after the n-th failure, capped, before jitter. n counts from 1.
    pub fn base_ms(&self, n: u32) -> u64 {
        whole(self.base(n))
    }

    /// The delay after the n-th failure, as it will be waited. `last_ms` is the delay before it,
    /// which only decorrelated jitter looks at.
    pub fn delay_ms(&self, n: u32, last_ms: Option<u64>, draw: Draw) -> u64 {
        if self.jitter == Jitter::None {
            return whole(self.base(n));
        }
        let (low, high) = self.range(n, last_ms);
        whole((low + draw.unit() * (high - low)).min(self.max_ms as f64))
    }

    /// The shortest and the longest delay that jitter can make of the n-th, both capped.
    pub fn bounds_ms(&self, n: u32, last_ms: Option<u64>) -> (u64, u64) {
        let (low, high) = self.range(n, last_ms);
        let cap = self.max_ms as f64;
        (whole(low.min(cap)), whole(high.min(cap)))
    }

    fn range(&self, n: u32, last_ms: Option<u64>) -> (f64, f64) {
        let base = self.base(n);
        match self.jitter {
            Jitter::None => (base, base),
            Jitter::Full => (0.0, base),
            Jitter::Equal => (base / 2.0, base),
            Jitter::Factor(f) => (base * (1.0 - f), base * (1.0 + f)),
            Jitter::Decorrelated => {
                let low = self.initial_ms as f64;
                (low, (last_ms.unwrap_or(self.initial_ms) as f64 * 3.0).max(low))
            }
        }
    }

    fn base(&self, n: u32) -> f64 {
        let steps = n.max(1) - 1;
        let initial = self.initial_ms as f64;
        let raw = match &self.backoff {
            Backoff::Fixed => initial,
            Backoff::Linear { increment_ms } => initial + *increment_ms as f64 * f64::from(steps),
            // 0 × inf is not a number; a first delay of 0 stays 0.
            Backoff::Exponential { .. } | Backoff::Fibonacci if self.initial_ms == 0 => 0.0,
            Backoff::Exponential { multiplier } => {
                initial * multiplier.powi(i32::try_from(steps).unwrap_or(i32::MAX))
            }
            Backoff::Fibonacci => {
                initial * FIBONACCI[(steps as usize).min(FIBONACCI.len() - 1)] as f64
            }
            Backoff::List(delays) => delays[(steps as usize).min(delays.len() - 1)] as f64,
        };
        // An infinite product is at the cap too.
        raw.min(self.max_ms as f64)
    }
}

/// Floored to whole milliseconds. 1000 × 1.7² is 2889.9999999999995 in binary and 2890 for the
/// person who wrote it, so what lies within a millionth of a whole number is that number.
pub(crate) fn whole(ms: f64) -> u64 {
    let nearest = ms.round();
    if (ms - nearest).abs() < 1e-6 { nearest as u64 } else { ms.floor() as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(backoff: Backoff, initial_ms: u64, max_ms: u64) -> Delays {
        Delays { backoff, initial_ms, max_ms, jitter: Jitter::None }
    }

    fn first(delays: &Delays, count: u32) -> Vec<u64> {
        (1..=count).map(|n| delays.base_ms(n)).collect()
    }

    #[test]
    fn each_backoff_gives_its_own_sequence() {
        let check = |backoff, initial, max, expect: &[u64]| {
            assert_eq!(first(&delays(backoff, initial, max), expect.len() as u32), expect);
        };
        check(Backoff::Fixed, 5, 60, &[5, 5, 5]);
        check(Backoff::Linear { increment_ms: 3 }, 5, 12, &[5, 8, 11, 12, 12]);
        check(Backoff::Exponential { multiplier: 2.0 }, 1000, 60_000, &[1000, 2000, 4000, 8000]);
        check(Backoff::Exponential { multiplier: 1.5 }, 1, 60_000, &[1, 1, 2, 3, 5]);
        check(Backoff::Exponential { multiplier: 1.7 }, 1000, 60_000, &[1000, 1700, 2890, 4913]);
        check(Backoff::Fibonacci, 1000, 6000, &[1000, 1000, 2000, 3000, 5000, 6000, 6000]);
        check(Backoff::Fibonacci, 1, 1000, &[1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144]);
        check(Backoff::List(vec![1, 10, 4]), 1, 10, &[1, 10, 4, 4, 4]);
    }

    #[test]
    fn each_jitter_has_its_own_range() {
        let of = |jitter| Delays { jitter, ..delays(Backoff::Fixed, 1000, 5000) };
        let check = |jitter, last_ms, low, high| {
            let delays = of(jitter);
            assert_eq!(delays.bounds_ms(1, last_ms), (low, high), "{jitter:?}");
            assert_eq!(delays.delay_ms(1, last_ms, Draw::from_bits(0)), low, "{jitter:?}");
            // The last draw below 1.
            let longest = delays.delay_ms(1, last_ms, Draw::from_bits(u64::MAX));
            assert!((high.saturating_sub(1)..=high).contains(&longest), "{jitter:?}: {longest}");
        };
        check(Jitter::None, None, 1000, 1000);
        check(Jitter::Full, None, 0, 1000);
        check(Jitter::Equal, None, 500, 1000);
        check(Jitter::Factor(0.2), None, 800, 1200);
        check(Jitter::Decorrelated, None, 1000, 3000);
        check(Jitter::Decorrelated, Some(1500), 1000, 4500);
        check(Jitter::Decorrelated, Some(4000), 1000, 5000);
        check(Jitter::Decorrelated, Some(100), 1000, 1000);
        assert_eq!((of(Jitter::None).initial_ms(), of(Jitter::None).max_ms()), (1000, 5000));
    }

    #[test]
    fn a_far_attempt_waits_the_cap_and_not_zero() {
        for backoff in [
            Backoff::Exponential { multiplier: 2.0 },
            Backoff::Exponential { multiplier: 1e308 },
            Backoff::Fibonacci,
            Backoff::Linear { increment_ms: u64::MAX },
        ] {
            let delays = delays(backoff, 1000, 60_000);
            for n in [1_000_000, u32::MAX] {
                assert_eq!(delays.base_ms(n), 60_000, "{delays:?}");
            }
        }
    }

    #[test]
    fn a_first_delay_of_zero_stays_zero() {
        let delays = delays(Backoff::Exponential { multiplier: 1e308 }, 0, 60_000);
        assert_eq!(delays.base_ms(1_000_000), 0);
    }

    #[test]
    fn neighbouring_draws_are_spread_evenly() {
        let seed = JitterSeed::new("job", None, "step");
        let mut buckets = [0u32; 10];
        for item in 0..1000 {
            for attempt in 1..=10 {
                buckets[(seed.draw(item, attempt).unit() * 10.0) as usize] += 1;
            }
        }
        assert!(buckets.iter().all(|&n| (900..1100).contains(&n)), "{buckets:?}");
    }

    #[test]
    fn the_draw_of_a_decision_never_changes() {
        // Recorded delays depend on these bits: a change here breaks every replay.
        let seed = JitterSeed::new("rehearsal", Some("eu-west"), "fetch");
        assert_eq!(seed.draw(0, 1), Draw(DRAW_0_1));
        assert_ne!(seed, JitterSeed::new("rehearsal", None, "eu-westfetch"));
    }

    const DRAW_0_1: u64 = 12_171_107_193_584_943_670;
}
