//! What a function knows about the attempt that it is.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_api::LONGEST_PROGRESS;
use steadfast_api::proto::{Assignment, AttemptRef};
use steadfast_worker::remote::TaskControl;

use crate::Error;

/// One attempt of a function. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Context(Arc<About>);

#[derive(Debug)]
struct About {
    assignment: Assignment,
    attempt: AttemptRef,
    control: TaskControl,
    deadline: Option<Instant>,
}

#[allow(clippy::disallowed_methods, reason = "deadlines of functions need the monotonic clock")]
fn now() -> Instant {
    Instant::now()
}

impl Context {
    pub(crate) fn new(mut assignment: Assignment, control: TaskControl) -> Self {
        let deadline = match assignment.timeout_ms {
            0 => None,
            ms => now().checked_add(Duration::from_millis(ms)),
        };
        let attempt = assignment.attempt.take().unwrap_or_default();
        Self(Arc::new(About { assignment, attempt, control, deadline }))
    }

    /// From 1.
    pub fn attempt(&self) -> u32 {
        self.0.attempt.attempt
    }

    pub fn job_id(&self) -> &str {
        &self.0.attempt.job_id
    }

    pub fn step(&self) -> &str {
        &self.0.attempt.step_name
    }

    /// Where the run is, if the job has datacenters.
    pub fn datacenter(&self) -> Option<&str> {
        Some(self.0.assignment.datacenter.as_str()).filter(|name| !name.is_empty())
    }

    /// The element of `for_each` that this is about; `None` if the step has none.
    pub fn item<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        match self.0.assignment.item_json.as_str() {
            "" => Ok(None),
            json => Ok(Some(serde_json::from_str(json)?)),
        }
    }

    /// From 0.
    pub fn item_index(&self) -> u32 {
        self.0.attempt.index
    }

    /// The same for every attempt of this item, and of no other: for others, to know that they were asked
    /// before. That of `http` steps is made likewise.
    pub fn idempotency_key(&self) -> String {
        let attempt = &self.0.attempt;
        attempt.item().idempotency_key(&attempt.job_id, self.step())
    }

    /// When the step's `timeout` is over for this attempt.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Until then.
    pub fn time_left(&self) -> Option<Duration> {
        self.0.deadline.map(|deadline| deadline.saturating_duration_since(now()))
    }

    /// The attempt should end: it was cancelled, has taken too long, or the worker has to go. See
    /// [`cancelled`](Self::cancelled).
    pub fn is_cancelled(&self) -> bool {
        self.0.control.is_cancelled()
    }

    /// Returns when the attempt should end. A function that has asked here before has a grace to end in an
    /// orderly way; one that has not is dropped where it waits.
    pub async fn cancelled(&self) {
        self.0.control.cancelled().await;
    }

    /// A line of the attempt's log, which `steadfast logs` and [`Client::logs`](crate::Client::logs) show:
    /// `ctx.log("half of it is done")`, or with `format_args!`. Sent about once a second, and at the end. At most
    /// 4 MiB for each attempt; the rest is left out. No heartbeat.
    pub fn log(&self, line: impl fmt::Display) {
        self.0.control.write(&format!("{line}\n"));
    }

    /// It is not stuck, and so far it is. Resets the step's `heartbeat`. The latest progress is stored, about
    /// once a second, and at the end; the next attempt [reads it](Self::previous_progress).
    ///
    /// Fails if the progress is no JSON, or longer than 64 KiB of it.
    pub fn heartbeat(&self, progress: impl Serialize) -> Result<(), Error> {
        let json = serde_json::to_string(&progress)?;
        if json.len() > LONGEST_PROGRESS {
            return Err(Error::permanent(format!(
                "progress of {} bytes is longer than {LONGEST_PROGRESS}: store it elsewhere, and \
                 say where",
                json.len()
            )));
        }
        self.0.control.say(Some(json));
        Ok(())
    }

    /// It is not stuck. Resets the step's `heartbeat`, and leaves its progress as it is.
    pub fn alive(&self) {
        self.0.control.say(None);
    }

    /// What an earlier attempt of this item said last with [`heartbeat`](Self::heartbeat).
    pub fn previous_progress<T: DeserializeOwned>(&self) -> Result<Option<T>, Error> {
        match self.0.assignment.progress_json.as_str() {
            "" => Ok(None),
            json => Ok(Some(serde_json::from_str(json)?)),
        }
    }
}
