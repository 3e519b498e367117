//! A retry policy as its author wrote it, and what can be wrong with one.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::backoff::{Backoff, Jitter};

/// What the author wrote, with defaults where nothing was written. `None` in a limit is unlimited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyDraft {
    pub max_attempts: Option<u32>,
    pub retryable: bool,
    pub backoff: Backoff,
    pub initial_delay_ms: u64,
    /// Not written: one minute, or the longest first delay if that is longer.
    pub max_delay_ms: Option<u64>,
    pub jitter: Jitter,
    pub max_retry_after_ms: u64,
    pub delay_budget_ms: Option<u64>,
    pub window_ms: Option<u64>,
    pub max_preemptions: Option<u32>,
    /// The author wrote `max_preemptions`, so that even what is not retryable survives a loss.
    pub max_preemptions_written: bool,
    pub max_deferrals: Option<u32>,
    pub exit_retry: Vec<i64>,
    pub exit_stop: Vec<i64>,
    pub rules: Vec<RuleDraft>,
}

pub const DEFAULT_MAX_DELAY_MS: u64 = 60_000;

impl Default for PolicyDraft {
    fn default() -> Self {
        Self {
            max_attempts: Some(3),
            retryable: true,
            backoff: Backoff::Exponential { multiplier: 2.0 },
            initial_delay_ms: 1000,
            max_delay_ms: None,
            jitter: Jitter::None,
            max_retry_after_ms: 3_600_000,
            delay_budget_ms: None,
            window_ms: None,
            max_preemptions: Some(100),
            max_preemptions_written: false,
            max_deferrals: Some(100),
            exit_retry: vec![],
            exit_stop: vec![],
            rules: vec![],
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuleDraft {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<Vec<i64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub timeout: bool,
    pub then: RuleAction,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    #[default]
    Retry,
    Stop,
    Defer,
}

/// One thing wrong with a draft: where, what, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// `invalid_value`, `cycle`, …: stable, for programs.
    pub code: &'static str,
    /// `max_attempts`, `rules[2].error`: relative to the draft.
    pub path: String,
    pub message: String,
    pub help: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)?;
        self.help.as_ref().map_or(Ok(()), |help| write!(f, " ({help})"))
    }
}

#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub struct Problems(pub Vec<Problem>);
