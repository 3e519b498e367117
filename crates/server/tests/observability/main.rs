//! What is observed, held against the log of events that it tells of.

mod logs;
mod metrics;
mod page;
mod recent;
mod requests;
mod traces;
mod world;
