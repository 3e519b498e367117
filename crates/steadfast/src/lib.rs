//! Durable jobs from Rust.
//!
//! A job is made of steps that may fail. Steadfast retries what should be retried, never loses what it
//! accepted, and can say why for every decision. Here a program submits jobs and follows them ([`Client`]),
//! writes them ([`Job`]), and runs their steps as async functions ([`Worker`]): against a server, or with
//! the engine inside itself ([`Embedded`]).
//!
//! ```
//! use std::time::Duration;
//! use serde::{Deserialize, Serialize};
//! use steadfast::{Context, Embedded, Error, Job, Retry, Step, Worker};
//!
//! #[derive(Deserialize)]
//! struct Shard { number: u32, of: u32 }
//!
//! #[derive(Serialize, Deserialize, Debug, PartialEq)]
//! struct Indexed { shard: u32, documents: u64 }
//!
//! async fn index_shard(ctx: Context, shard: Shard) -> Result<Indexed, Error> {
//!     if shard.number >= shard.of {
//!         return Err(Error::permanent("there is no such shard"));
//!     }
//!     ctx.heartbeat("halfway")?;
//!     Ok(Indexed { shard: shard.number, documents: 1000 })
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! #   let folder = tempfile::tempdir()?;
//! #   let data = folder.path().join("data");
//!     let worker = Worker::builder().function("index_shard", index_shard).build();
//!     // Against a server it is `worker.run("http://127.0.0.1:7117")`, with the same functions.
//!     let steadfast = Embedded::open(data).worker(worker).start().await?;
//!
//!     let job = Job::new("nightly").step(
//!         Step::call("index", "index_shard")
//!             .for_each_range(3)
//!             .input(&serde_json::json!({ "number": "{{ item }}", "of": 3 }))?
//!             .heartbeat(Duration::from_secs(30))
//!             .retry(Retry::new().max_attempts(4)),
//!     );
//!     let id = steadfast.client().submit(&job).await?;
//!     let status = steadfast.client().wait(&id).await?;
//!     let indexed = status.outputs::<Indexed>("index")?;
//!     assert_eq!(indexed[2], Some(Indexed { shard: 2, documents: 1000 }));
//!     steadfast.stop().await?;
//!     Ok(())
//! }
//! ```
//!
//! # What a function can rely on
//!
//! - An attempt that ends is reported once, and its outcome is durable before anything follows from it. A
//!   function whose worker dies is run again elsewhere, charged to preemptions: so it may run more than once,
//!   and [`Context::idempotency_key`] is the same each time.
//! - What it says with [`Context::heartbeat`] the next attempt reads with [`Context::previous_progress`].
//! - Its future is dropped when its attempt is cancelled, has timed out, or its worker has lost the server
//!   for as long as its lease. [`Context::cancelled`] tells it before, if it asks.
//! - A panic is a failure, of the kind `panic`.

mod client;
mod context;
#[cfg(feature = "embedded")]
mod embedded;
mod error;
mod job;
mod logs;
mod query;
mod retry;
#[cfg(feature = "embedded")]
pub mod run;
mod server;
mod status;
mod step;
mod temporary;
mod worker;

pub use client::{Client, ClientError};
pub use context::Context;
#[cfg(feature = "embedded")]
pub use embedded::{Embedded, EmbeddedBuilder, EmbeddedError};
pub use error::{ByConversion, ByUnboxing, Error, FunctionError};
pub use job::{BestEffort, Job, LateResults, RetryBudget};
pub use logs::{Log, LogQuery};
pub use query::{Query, RetryOptions, Summary};
pub use retry::{Backoff, Jitter, Limit, Retry, Rule};
pub use server::Server;
pub use status::Status;
pub use steadfast_api::{
    AttemptName, AttemptState, AttemptStatus, ItemProgress, ItemState, ItemStatus, OutputRow,
    RunStatus, StepStatus,
};
pub use steadfast_core::event::{JobState, Role, StepState};
pub use steadfast_core::explain::{
    DecisionSummary, Explanation, JobExplanation, StepExplanation, VerdictExplanation, Waiting,
};
pub use steadfast_core::time::Timestamp;
pub use steadfast_core::verdict::StopReason;
pub use steadfast_worker::http::Allowed;
pub use step::{Action, Cwd, Http, Method, OnFailure, Step};
pub use worker::{Worker, WorkerBuilder, WorkerError};

/// The examples of the guide are executed.
#[cfg(all(doctest, feature = "embedded"))]
#[allow(
    rustdoc::invalid_codeblock_attributes,
    reason = "titles of files, for those who execute them"
)]
#[doc = include_str!("../../../docs/rust.md")]
struct Guide;
