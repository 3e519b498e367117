//! Made of the `.proto` files; see `tests/generated.rs`.

#![allow(clippy::all, clippy::pedantic, missing_debug_implementations, unreachable_pub)]

include!("generated/steadfast.v1.rs");

/// What reflection tells about the services.
pub const DESCRIPTOR: &[u8] = include_bytes!("generated/descriptor.bin");
