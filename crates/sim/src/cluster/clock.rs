//! What time it is for a server or a worker of the simulation: the world's time, with a clock of its own that can be set and drifts.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use steadfast_core::time::Timestamp;
use steadfast_engine::Clock;

/// Where the world's time begins: some day of 2027, so that epochs are seconds as they are outside.
pub(crate) const BEGINNING_MS: u64 = 1_800_000_000_000;

/// Milliseconds since the world began. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct WorldTime(Arc<AtomicU64>);

impl WorldTime {
    pub(crate) fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, now: u64) {
        self.0.store(now, Ordering::Relaxed);
    }

    /// As a clock that is right shows it.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp(BEGINNING_MS + self.now())
    }
}

/// One machine's.
#[derive(Debug)]
pub(crate) struct MachineClock {
    world: WorldTime,
    /// Parts in a million that it is fast.
    drift_ppm: i64,
    /// What it was set by, in milliseconds.
    set_by: AtomicI64,
}

impl MachineClock {
    pub(crate) fn new(world: &WorldTime, drift_ppm: i64) -> Self {
        Self { world: world.clone(), drift_ppm, set_by: AtomicI64::new(0) }
    }

    /// Somebody sets it, by so much.
    pub(crate) fn jump(&self, by_ms: i64) {
        self.set_by.fetch_add(by_ms, Ordering::Relaxed);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_millis(self.monotonic_ms())
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let by = self.set_by.load(Ordering::Relaxed);
        Timestamp((BEGINNING_MS + self.monotonic_ms()).saturating_add_signed(by))
    }

    fn monotonic_ms(&self) -> u64 {
        let now = self.world.now();
        now.saturating_add_signed(now as i64 * self.drift_ppm / 1_000_000)
    }

    /// Time passes between turns only.
    fn pause(&self, _longest: Duration) {}
}
