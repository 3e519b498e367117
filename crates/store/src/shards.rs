//! Jobs are in shards, which servers of one store share out among themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Which of `shards` a job is in: for ever the same, and evenly spread whatever ids look like.
pub(crate) fn shard_of(job: &str, shards: u16) -> u16 {
    (crc32fast::hash(job.as_bytes()) % u32::from(shards.max(1))) as u16
}

/// The most that a store may have.
const MOST: usize = 1024;

/// The shards that a server has, as far as it knows. Cheap to ask, for every request.
#[derive(Debug)]
pub struct OwnedShards {
    /// 0: there are none, and it has every job.
    shards: u16,
    has: [AtomicU64; MOST / 64],
    /// Of each; 0: it is another one's.
    terms: Box<[AtomicU64]>,
}

impl OwnedShards {
    /// Of a store that only one server has.
    pub fn all() -> Self {
        Self::of(0)
    }

    /// Of a store with so many, none of which it has yet.
    pub fn of(shards: u16) -> Self {
        let terms = (0..shards).map(|_| AtomicU64::new(0)).collect();
        Self { shards, has: Default::default(), terms }
    }

    /// `giving`: those of them that are to be another one's: nothing new is taken for them.
    pub fn set(&self, shards: &BTreeMap<u16, u64>, giving: &BTreeSet<u16>) {
        for (shard, term) in (0..).zip(&self.terms) {
            term.store(shards.get(&shard).copied().unwrap_or(0), Ordering::Release);
        }
        let mut has = [0; MOST / 64];
        for shard in shards.keys().filter(|shard| !giving.contains(shard)) {
            has[usize::from(shard / 64)] |= 1 << (shard % 64);
        }
        for (now, then) in self.has.iter().zip(has) {
            now.store(then, Ordering::Release);
        }
    }

    /// There are other servers, or may be.
    pub fn are_shared(&self) -> bool {
        self.shards > 0
    }

    /// Others have some.
    pub fn others_have_some(&self) -> bool {
        let had = self.has.iter().map(|some| some.load(Ordering::Acquire).count_ones());
        had.sum::<u32>() < u32::from(self.shards)
    }

    /// It has none at all.
    pub fn is_empty(&self) -> bool {
        self.are_shared() && self.has.iter().all(|some| some.load(Ordering::Acquire) == 0)
    }

    pub fn shard_of(&self, job: &str) -> u16 {
        shard_of(job, self.shards)
    }

    /// Whether the job is in one of them.
    pub fn has(&self, job: &str) -> bool {
        !self.are_shared() || self.has_shard(self.shard_of(job))
    }

    fn has_shard(&self, shard: u16) -> bool {
        self.has[usize::from(shard / 64)].load(Ordering::Acquire) & (1 << (shard % 64)) != 0
    }

    /// Those that it has.
    pub fn all_had(&self) -> BTreeSet<u16> {
        (0..self.shards).filter(|shard| self.has_shard(*shard)).collect()
    }

    /// In which term the server has a shard, as long as it may still say something about its jobs: also while it gives it away. None: it
    /// has not.
    pub fn term(&self, shard: u16) -> Option<u64> {
        let term = self.terms.get(usize::from(shard))?.load(Ordering::Acquire);
        Some(term).filter(|term| *term > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_the_jobs_of_its_shards() {
        let shards = OwnedShards::of(64);
        assert!(shards.is_empty() && !shards.has("a"));
        let (of_a, none) = (shards.shard_of("a"), BTreeSet::new());
        shards.set(&[(of_a, 7), (63, 8)].into(), &none);
        assert!(!shards.is_empty() && shards.has("a"));
        assert_eq!((shards.term(of_a), shards.term(63), shards.term(62)), (Some(7), Some(8), None));
        let is_its = |job: &String| shards.has(job);
        let ids = (0..6400).map(|n| format!("job-{n}"));
        assert!((100..300).contains(&ids.filter(is_its).count()), "two of 64");
        shards.set(&[(of_a, 7)].into(), &[of_a].into());
        assert!(!shards.has("a") && shards.all_had().is_empty());
        assert_eq!(shards.term(of_a), Some(7), "what was decided about its jobs is still said");
        shards.set(&BTreeMap::new(), &none);
        assert_eq!((shards.has("a"), shards.term(of_a)), (false, None));
        assert!(shards.others_have_some());
        shards.set(&(0..64).map(|shard| (shard, 1)).collect(), &none);
        assert!(!shards.others_have_some() && !OwnedShards::all().others_have_some());
        assert!(OwnedShards::all().has("a") && !OwnedShards::all().is_empty());
    }
}
