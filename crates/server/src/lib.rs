//! The engine behind REST and gRPC, with workers that come and go.
//!
//! Translates, asks, answers. What to do about a job is decided in core, and made durable by the engine,
//! before anything here shows or acknowledges it.

pub mod arriving;
pub mod callbacks;
pub mod caller;
pub mod clock;
pub mod commands;
pub mod config;
mod dashboard;
pub mod end_of_job;
pub mod error;
pub mod grpc;
pub mod guard;
mod hand_over;
pub mod health;
pub mod http;
pub mod job_changes;
pub mod listen;
pub mod notifications;
pub mod observability;
mod peers;
pub mod purge;
pub mod queries;
pub mod serve;
pub mod sessions;
pub mod shared_answers;
pub mod tls;
pub mod tokens;
pub mod unread;

/// What a server keeps as [`Settings`](steadfast_store::Settings), by their names. The key is also what workers know an installation by.
pub const SETTINGS: [&str; 2] = [tokens::FILE, callbacks::KEY];
