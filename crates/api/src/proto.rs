//! Made of the `.proto` files; see `tests/generated.rs`.

#![allow(clippy::all, clippy::pedantic, missing_debug_implementations, unreachable_pub)]

include!("generated/steadfast.v1.rs");

/// What reflection tells about the services.
pub const DESCRIPTOR: &[u8] = include_bytes!("generated/descriptor.bin");

/// Without secrets, which only the server and the worker may know.
impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello")
            .field("name", &self.name)
            .field("returning", &self.returning)
            .field("datacenter", &self.datacenter)
            .field("labels", &self.labels)
            .field("slots", &self.slots)
            .field("holds", &self.holds.len())
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Welcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Welcome")
            .field("lease_ms", &self.lease_ms)
            .field("beat_ms", &self.beat_ms)
            .finish_non_exhaustive()
    }
}
