//! Jobs are in shards, which servers of one store share out among themselves.

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
}

impl OwnedShards {
    /// Of a store that only one server has.
    pub fn all() -> Self {
        Self::of(0)
    }

    pub(crate) fn of(shards: u16) -> Self {
        Self { shards, has: Default::default() }
    }

    pub(crate) fn set(&self, shards: impl Iterator<Item = u16>) {
        let mut has = [0; MOST / 64];
        for shard in shards {
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

    /// It has none at all.
    pub fn is_empty(&self) -> bool {
        self.are_shared() && self.has.iter().all(|some| some.load(Ordering::Acquire) == 0)
    }

    pub fn shard_of(&self, job: &str) -> u16 {
        shard_of(job, self.shards)
    }

    /// Whether the job is in one of them.
    pub fn has(&self, job: &str) -> bool {
        if !self.are_shared() {
            return true;
        }
        let shard = self.shard_of(job);
        self.has[usize::from(shard / 64)].load(Ordering::Acquire) & (1 << (shard % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_the_jobs_of_its_shards() {
        let shards = OwnedShards::of(64);
        assert!(shards.is_empty() && !shards.has("a"));
        shards.set([shards.shard_of("a"), 63].into_iter());
        assert!(!shards.is_empty() && shards.has("a"));
        let is_its = |job: &String| shards.has(job);
        let ids = (0..6400).map(|n| format!("job-{n}"));
        assert!((100..300).contains(&ids.filter(is_its).count()), "two of 64");
        shards.set(std::iter::empty());
        assert!(!shards.has("a"));
        assert!(OwnedShards::all().has("a") && !OwnedShards::all().is_empty());
    }
}
