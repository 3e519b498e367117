//! Numbers from a seed, the same on every machine.

/// `SplitMix64`.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Of one case of one target: it can be repeated without those before it.
    pub(crate) fn of_case(seed: u64, target: &str, case: u64) -> Self {
        let name = target
            .bytes()
            .fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self(Self(name ^ case.wrapping_mul(0x9e37_79b9_7f4a_7c15)).bits())
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Of 0, 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.bits() % bound.max(1)
    }

    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len() as u64) as usize)
    }

    /// Any bytes, fewer than this.
    pub fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most)).map(|_| self.bits() as u8).collect()
    }

    /// A part of this many, mostly a short one.
    pub(crate) fn span(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length as u64 + 1) as usize;
        let most = if self.one_in(4) { length as u64 + 1 } else { 12 };
        start..(start + self.below(most) as usize).min(length)
    }
}
