//! The states of jobs and steps, and why jobs end, each with the name that files and answers have for it.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($variant),+ }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

states! {
    /// Of a job; a run is never `partial`.
    JobState {
        Pending = "pending", Running = "running", Paused = "paused", Succeeded = "succeeded",
        Partial = "partial", Failed = "failed", Cancelled = "cancelled",
    }
}

states! {
    StepState {
        Waiting = "waiting", Running = "running", Succeeded = "succeeded", Failed = "failed",
        Skipped = "skipped", Cancelled = "cancelled",
    }
}

states! {
    /// Why a job ended.
    CompletionReason {
        AllReported = "all_reported", MinDatacentersReached = "min_datacenters_reached",
        DeadlineExpired = "deadline_expired", RunFailed = "run_failed", TimedOut = "timed_out",
        Cancelled = "cancelled",
    }
}

impl JobState {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Partial | Self::Failed | Self::Cancelled)
    }
}

impl StepState {
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Waiting | Self::Running)
    }
}

impl CompletionReason {
    /// The other datacenters go on after it.
    pub const fn leaves_runs(self) -> bool {
        matches!(self, Self::MinDatacentersReached | Self::DeadlineExpired)
    }
}
