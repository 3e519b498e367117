//! What the outside sees: shapes on the wire, converted from and to core's words once.
//!
//! Nothing here decides anything. The `.proto` files are the published ones; the code made of them is
//! checked in, so that no compiler for them is needed, and held against them by a test.

mod jobs;
mod outcome;
mod pages;
pub mod proto;
mod shown_state;
mod status;

pub use jobs::wire_state;
pub use outcome::{
    LONGEST_PROGRESS, Malformed, WorkerReport, awaiting_report, from_report, progress, to_report,
};
pub use pages::{
    AttemptName, AttemptRow, AttemptsPage, JobCounts, JobRow, JobsPage, LogRow, LogTime, LogTimes,
    LogsPage, OutputRow, OutputsPage, ReadinessPage, ReadinessRow, WorkerInfo, WorkersPage,
};
pub use shown_state::{InvalidState, ShownState};
pub use status::{
    AttemptState, AttemptStatus, Attempts, BestEffortStatus, CompletionStatus, ItemProgress,
    ItemRow, ItemState, ItemStatus, ItemsPage, JobStatus, MinDatacenters, NoSuchPlace, RequestInfo,
    RetryBudgetStatus, RetryLimits, RunStatus, StepStatus, Totals, is_process,
};
