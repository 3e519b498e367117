//! A world without time: a virtual clock and scripted workers around the real engine.
//!
//! Nothing here decides anything about retries; it hands the engine the outcomes of a [`Script`] at
//! their virtual times, and writes down what the engine decided. Same plan, same script: the same
//! bytes. With the feature `cluster` there is a whole cluster in it, with everything that can go wrong.

#[cfg(feature = "cluster")]
pub mod cluster;
mod outcome;
mod record;
mod report;
mod script;
mod world;

pub use record::{Recording, record};
pub use report::{Decision, Rehearsal, RunReport, StepReport, VerdictName};
pub use script::{Script, load_script};
pub use world::{Options, TooManyDecisions, rehearse, rehearse_into};
