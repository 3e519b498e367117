//! The library against a real server and a real worker, over loopback and within the process.

mod ahead;
mod axum;
mod builder;
mod client;
mod embedded;
mod errors;
mod features;
mod functions;
mod sends;
mod server;
mod up;
mod wishes;
