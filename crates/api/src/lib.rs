//! What the outside sees of a job. Shapes and their conversion from core's words, once; no logic.

mod status;

pub use status::{AttemptView, Attempts, ItemView, JobStatus, RunView, StepView};
