//! The one place of the program that asks what time it is.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use steadfast_core::time::Timestamp;
use steadfast_engine::Clock;

#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemClock;

#[allow(clippy::disallowed_methods, reason = "somebody has to ask")]
pub(crate) fn system_time() -> SystemTime {
    SystemTime::now()
}

/// Before looking again at something that tells nobody when it changes: a file, a lock.
#[allow(clippy::disallowed_methods, reason = "there is nothing to wait for")]
pub(crate) fn wait_a_little() {
    std::thread::sleep(std::time::Duration::from_millis(200));
}

pub(crate) fn now() -> Timestamp {
    let since = system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as u64)
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        now()
    }

    #[allow(clippy::disallowed_methods, reason = "somebody has to ask")]
    fn monotonic_ms(&self) -> u64 {
        static BEGAN: OnceLock<Instant> = OnceLock::new();
        BEGAN.get_or_init(Instant::now).elapsed().as_millis() as u64
    }
}
