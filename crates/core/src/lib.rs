//! The decisions of Steadfast.
pub mod account;
pub mod backoff;
pub mod forecast;
pub mod outcome;
pub mod plan;
pub mod policy;
pub mod ranges;
pub mod time;
pub mod verdict;
