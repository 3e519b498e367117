//! Which logs of a job, and what is in one.

use serde::Deserialize;

/// All that is asked for must hold.
#[derive(Clone, Debug, Default)]
pub struct LogQuery {
    pub(crate) step: Option<String>,
    item: Option<u32>,
    pub(crate) attempt: Option<u32>,
}

impl LogQuery {
    /// All logs of the job.
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn step(mut self, name: impl Into<String>) -> Self {
        self.step = Some(name.into());
        self
    }

    /// From 0.
    #[must_use]
    pub fn item(mut self, index: u32) -> Self {
        self.item = Some(index);
        self
    }

    /// From 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = Some(attempt);
        self
    }

    pub(crate) fn wants(&self, log: &Log) -> bool {
        self.item.is_none_or(|item| item == log.item)
            && self.attempt.is_none_or(|attempt| attempt == log.attempt)
    }
}

/// What one attempt has printed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Log {
    pub step: String,
    /// If the job has datacenters.
    pub datacenter: Option<String>,
    /// `item`, or the step's `fallback` or `compensation`.
    pub role: String,
    /// From 0.
    pub item: u32,
    /// From 1.
    pub attempt: u32,
    /// The attempt has ended, and the rest of its log has not arrived from its worker yet.
    #[serde(default)]
    pub arriving: bool,
    /// Stdout and stderr together; what is not UTF-8 is replaced.
    #[serde(skip)]
    pub text: String,
}

impl Log {
    pub(crate) fn place(&self) -> (&str, &str, Option<&str>, u32, u32) {
        (&self.step, &self.role, self.datacenter.as_deref(), self.item, self.attempt)
    }
}
