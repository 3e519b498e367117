//! Workloads for `cargo bench`; see benches/README.md. Comparison dependencies stay in this room.
