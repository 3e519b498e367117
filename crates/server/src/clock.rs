//! The machine's clock, for who starts a server. Nothing else here asks it.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use steadfast_core::time::Timestamp;
use steadfast_engine::Clock;

#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "somebody has to ask")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since.as_millis() as u64)
    }

    #[allow(clippy::disallowed_methods, reason = "somebody has to ask")]
    fn monotonic_ms(&self) -> u64 {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64
    }
}
