//! Named points at which a test can end the program as if the power went. Not in release builds.

/// Ends the process here if `STEADFAST_CRASH=point` or `point:3` (the third time) says so.
#[cfg(debug_assertions)]
pub fn crash_point(point: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static WANTED: OnceLock<Option<(String, u64)>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);

    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("STEADFAST_CRASH").ok()?;
        let (point, count) = text.split_once(':').unwrap_or((&text, "1"));
        Some((point.to_owned(), count.parse().ok()?))
    });
    if let Some((name, count)) = wanted
        && name == point
        && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *count
    {
        std::process::abort();
    }
}

#[cfg(not(debug_assertions))]
#[inline]
pub fn crash_point(_point: &str) {}
