//! The library against a real server and a real worker, over loopback and within the process.

mod ahead;
mod builder;
mod client;
mod embedded;
mod functions;
mod server;
