//! The job file: read, checked, and translated into core's words.
//!
//! | room | duty |
//! |---|---|
//! | `document`, `json`, `builder`, `node` | text into a tree with places, within limits |
//! | `keys`, `reader`, `values`, `units` | known keys; typed values, or a problem at its place |
//! | `job`, `step`, `action` | what a job is made of |
//! | `retry`, `budget`, `fluster` | retry rules and budgets, also in the dialects' spellings |
//! | `policy` | blocks laid over each other, with the source of each value |
//! | `altered` | keys laid over the policy of a step that is stored, to ask what if |
//! | `references` | whether what `{{ … }}` names is there |
//! | `warn`, `scripts` | what is valid and will still surprise |
//! | `written` | a plan put back into the words of a file |
//! | `recurring` | files that differ in an input alone, of which the rest is read once |
//! | `schema` | the same keys as a JSON Schema |
//!
//! A file is refused with everything that is wrong with it, or becomes a plan. Nothing here opens a
//! file, prints, or decides a retry; nothing beyond here knows that dialects exist.

mod action;
mod altered;
mod budget;
mod builder;
mod document;
pub mod fluster;
mod job;
mod json;
mod keys;
mod node;
mod operator;
mod policy;
mod problem;
mod reader;
mod recurring;
mod references;
mod retry;
mod schema;
mod scripts;
mod step;
mod units;
mod values;
mod warn;
mod written;

use steadfast_core::plan::Plan;

pub use altered::{WrittenPolicyChange, policy_change};
pub use budget::{BestEffortSources, BudgetSources};
pub use document::{Limits, document};
pub use node::{Entry, Node, Scalar, Span};
pub use operator::{Ceiling, Operator, retry_keys, retry_overrides};
pub use policy::{Growth, KEYS, Limit, PolicyOverrides, Source, Sources, policy_view};
pub use problem::{PROBLEM_CODES, Problem, WARNING_CODES, Warning};
pub use recurring::RecurringFile;
pub use schema::schema;
pub use steadfast_core::duration::{duration_text, parse_duration};
pub use units::{parse_size, size_text};
pub use written::job_text;

/// A job that can run, and where its settings came from.
#[derive(Clone, Debug)]
pub struct JobFile {
    pub plan: Plan,
    /// In the order of the plan's steps.
    pub steps: Vec<StepSources>,
    pub budget: BudgetSources,
    /// None: the job wants all of its datacenters.
    pub best_effort: Option<BestEffortSources>,
    pub warnings: Vec<Warning>,
    /// What `run` does not mind, for those who give the job to workers elsewhere.
    pub worker_warnings: Vec<Warning>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepSources {
    pub step: String,
    pub policy: Sources,
}

/// Reads a job file. `name` is the file's, for messages; `text` is what it holds.
///
/// The problems are all there are, in the order of the file.
pub fn load(name: &str, text: &[u8], operator: &Operator) -> Result<JobFile, Vec<Problem>> {
    let limits = Limits { max_bytes: operator.max_file_bytes, ..Limits::default() };
    let mut reader = reader::Reader::new(operator);
    let (root, problems) = document::read(name, text, limits);
    reader.problems = problems;
    let Some(root) = root else {
        return Err(problem::sorted(reader.problems));
    };
    let places = problem::Positions::new(&root);
    let Some(job) = reader.job(&root, &places) else {
        return Err(problem::sorted(reader.problems));
    };
    let (scripts, on_workers) = scripts::unlisted(&job.plan, &places);
    let mut warnings = reader.warnings;
    warnings.extend(scripts);
    warnings.extend(warn::warnings(&job, &places, operator));
    warnings.sort_by(|a, b| (a.line, a.code, &a.path).cmp(&(b.line, b.code, &b.path)));
    let steps = job.plan.steps().iter().zip(job.sources);
    let steps =
        steps.map(|(step, policy)| StepSources { step: step.name.clone(), policy }).collect();
    let (budget, best_effort) = (job.budget_sources, job.best_effort_sources);
    Ok(JobFile {
        plan: job.plan,
        steps,
        budget,
        best_effort,
        warnings,
        worker_warnings: on_workers,
    })
}
