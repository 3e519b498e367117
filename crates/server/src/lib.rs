//! The engine behind REST and gRPC, with workers that come and go.
//!
//! Translates, asks, answers. What to do about a job is decided in core, and made durable by the engine,
//! before anything here shows or acknowledges it.

pub mod archive;
pub mod backup;
pub mod callbacks;
pub mod caller;
pub mod clock;
pub mod config;
pub mod grpc;
pub mod guard;
pub mod health;
pub mod http;
pub mod hub;
pub mod listen;
pub mod log_times;
pub mod news;
pub mod orders;
pub mod purge;
pub mod serve;
pub mod tls;
pub mod tokens;
pub mod trouble;
pub mod unread;
pub mod watch;
