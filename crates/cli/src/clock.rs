//! The one place of the program that asks what time it is.

use std::time::{SystemTime, UNIX_EPOCH};

use steadfast_core::time::Timestamp;

pub(crate) use steadfast_server::clock::SystemClock;

#[allow(clippy::disallowed_methods, reason = "the program has to ask")]
pub(crate) fn system_time() -> SystemTime {
    SystemTime::now()
}

/// Before looking again at something that sends no notification when it changes: a file, a lock.
#[allow(clippy::disallowed_methods, reason = "there is nothing to wait for")]
pub(crate) fn wait_a_little() {
    std::thread::sleep(std::time::Duration::from_millis(200));
}

pub(crate) fn now() -> Timestamp {
    let since = system_time().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_millis() as u64)
}
