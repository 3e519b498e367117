//! What retries spend: the item's own history, the job's shared budgets, and what a decision took.

use serde::{Deserialize, Serialize};

use crate::backoff::Draw;
use crate::time::Timestamp;
use crate::verdict::StopReason;

/// What a work item has been through. Only applied verdicts move it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub attempts: u32,
    pub failures: u32,
    pub preemptions: u32,
    pub deferrals: u32,
    /// Losses since the last attempt that reported anything.
    pub losses_in_row: u32,
    /// Attempts lost before they began, since the last one that did begin.
    pub unstarted_in_row: u32,
    /// Planned, jittered backoff delays after failures.
    pub delay_spent_ms: u64,
    /// Time in which the engine was down while the delay budget's clock ran.
    pub downtime_ms: u64,
    pub last_delay_ms: Option<u64>,
    pub first_failure_at: Option<Timestamp>,
}

/// The accounts that an item shares with others, and what else the job knows, at one decision.
#[derive(Clone, Copy, Debug)]
pub struct Shared {
    pub job_retries: u32,
    pub job_budget: Option<u32>,
    pub step_retries: u32,
    pub step_budget: Option<u32>,
    /// The job has a budget: retries are charged to it, not only counted.
    pub budgeted: bool,
    pub timeout_at: Option<Timestamp>,
    /// The job was cancelled, or a sibling has failed the step.
    pub halted: Option<StopReason>,
    pub draw: Draw,
}

impl Shared {
    /// Nothing shared, nothing halted: an item on its own.
    #[must_use]
    pub const fn alone(draw: Draw) -> Self {
        Self {
            job_retries: 0,
            job_budget: None,
            step_retries: 0,
            step_budget: None,
            budgeted: false,
            timeout_at: None,
            halted: None,
            draw,
        }
    }
}

/// All accounts after a decision, with their limits; an unlimited one is null.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    pub failures: u32,
    pub max_attempts: Option<u32>,
    pub preemptions: u32,
    pub max_preemptions: Option<u32>,
    pub deferrals: u32,
    pub max_deferrals: Option<u32>,
    pub delay_spent_ms: u64,
    pub downtime_ms: u64,
    pub delay_budget_ms: Option<u64>,
    pub window_ms: Option<u64>,
    pub job_retries: u32,
    pub job_budget: Option<u32>,
    pub step_retries: u32,
    pub step_budget: Option<u32>,
}

/// What one decision took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Charged {
    #[serde(skip_serializing_if = "is_zero")]
    pub failures: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub preemptions: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub deferrals: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub job_retries: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub step_retries: u32,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
