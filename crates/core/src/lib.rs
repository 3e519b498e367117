//! The decisions of Steadfast, and nothing else.
//!
//! No clock, no randomness, no I/O, no threads, no logging: time, ids and draws are handed in, and
//! the same input gives the same answer forever. That is what makes a replay a proof.
//!
//! | module | what |
//! |---|---|
//! | [`policy`], [`plan`] | what was asked for, constructed only valid |
//! | [`backoff`] | how long to wait: base delay, cap, jitter |
//! | [`outcome`], [`answer`] | what a worker reports, and what a web service says |
//! | [`account`], [`verdict`] | what retries spend, and the one decision on an outcome |
//! | [`event`], [`job`] | facts, and the state they add up to |
//! | [`decide`] → [`follow`](mod@follow) → [`apply`](mod@apply) | an input, what it entails, and the fold |
//! | [`duration`], [`text`] | `1h30m`, and what others wrote in our messages |
//! | [`template`] | what `{{ … }}` stands for |
//! | [`result`], [`select`] | what a job gave; a part of it by its printed name |
//! | [`again`](mod@again) | retrying a whole job by hand |
//! | [`spelling`] | what the author of a job calls its keys; only explanations look at it |
//! | [`explain`](mod@explain) | why a job is where it is, and what would have changed that |
//! | [`readiness`](mod@readiness) | which items may start now, and what keeps the others |
//! | [`forecast`](mod@forecast) | what a policy will do, before anything runs |
//!
//! The walk of an attempt: [`decide::advance`] takes a report to [`verdict::verdict`], turns the
//! verdict into events, follows their consequences and folds each as it comes.

pub mod account;
pub mod answer;
pub mod apply;
pub mod backoff;
pub mod decide;
pub mod defects;
pub mod duration;
pub mod event;
pub mod explain;
pub mod follow;
pub mod forecast;
pub mod hex;
pub mod job;
pub mod outcome;
mod pattern;
pub mod plan;
pub mod policy;
pub mod ranges;
pub mod readiness;
pub mod result;
pub mod retry_job;
pub mod select;
pub mod spelling;
pub mod template;
pub mod text;
pub mod time;
pub mod verdict;
