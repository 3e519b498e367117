//! Which logs of a job, and what is in one.

use steadfast_api::AttemptName;

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

    pub(crate) fn wants(&self, log: &AttemptName) -> bool {
        self.item.is_none_or(|item| item == log.item)
            && self.attempt.is_none_or(|attempt| attempt == log.attempt)
    }
}

/// What one attempt has printed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Log {
    pub of: AttemptName,
    /// The attempt has ended, and the rest of its log has not arrived from its worker yet.
    pub arriving: bool,
    /// Stdout and stderr together; what is not UTF-8 is replaced.
    pub text: String,
}
