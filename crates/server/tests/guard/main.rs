//! Settings, tokens, the guard and the listener, over real sockets and files.

mod config;
mod connections;
mod door;
mod streams;
mod support;
mod tls;
mod tokens;
