//! What the operator of a Steadfast decides for every job: defaults, ceilings, limits.
//!
//! The environment is handed in; nothing here reads it, or a file.

use steadfast_core::plan::{LateResults, MAX_ITEMS};
use steadfast_core::policy::{MAX_DURATION_MS, Policy};

use crate::keys;
use crate::node::Node;
use crate::policy::{KEYS, PolicyOverrides, Source, merge};
use crate::problem::{Positions, Problem, sorted};
use crate::reader::{At, Reader};

#[derive(Clone, Debug, PartialEq)]
pub struct Operator {
    /// Laid over the built-in defaults, under every job.
    pub retry: PolicyOverrides,
    pub budget_total: Ceiling,
    pub budget_per_step: Ceiling,
    /// Every job has a budget, asked for or not.
    pub budget_required: bool,
    pub best_effort_min_datacenters: u32,
    pub best_effort_deadline_ms: u64,
    pub best_effort_check_interval_ms: u64,
    pub late_results: LateResults,
    pub max_file_bytes: usize,
    /// Fan-out of one step; core allows no more than [`MAX_ITEMS`].
    pub max_items: u32,
}

/// What a job gets that does not say, and the most it can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    pub default: u32,
    pub max: u32,
}

impl Ceiling {
    /// A ceiling below the default lowers it.
    pub fn given(self) -> u32 {
        self.default.min(self.max)
    }
}

impl Default for Operator {
    fn default() -> Self {
        Self {
            retry: PolicyOverrides::default(),
            budget_total: Ceiling { default: 20, max: 50 },
            budget_per_step: Ceiling { default: 3, max: 5 },
            budget_required: false,
            best_effort_min_datacenters: 1,
            best_effort_deadline_ms: 300_000,
            best_effort_check_interval_ms: 5000,
            late_results: LateResults::LogOnly,
            max_file_bytes: 10 << 20,
            max_items: MAX_ITEMS,
        }
    }
}

impl Operator {
    /// The defaults, with AD-44's names where the environment has them.
    pub fn from_env(env: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        Self::default().with_env(env)
    }

    /// These settings, with AD-44's names where the environment has them.
    pub fn with_env(mut self, env: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        for (name, number) in [
            ("RETRY_BUDGET_DEFAULT", &mut self.budget_total.default),
            ("RETRY_BUDGET_MAX", &mut self.budget_total.max),
            ("RETRY_BUDGET_PER_WORKFLOW_DEFAULT", &mut self.budget_per_step.default),
            ("RETRY_BUDGET_PER_WORKFLOW_MAX", &mut self.budget_per_step.max),
            ("BEST_EFFORT_DEFAULT_MIN_DCS", &mut self.best_effort_min_datacenters),
        ] {
            let Some(text) = env(name) else { continue };
            let least = u32::from(name == "BEST_EFFORT_DEFAULT_MIN_DCS");
            match text.trim().parse() {
                Ok(value) if value >= least => *number = value,
                _ => wrong
                    .push(format!("{name} must be a whole number, {least} or more, not {text:?}")),
            }
        }
        for (name, ms) in [
            ("BEST_EFFORT_DEFAULT_DEADLINE_SECONDS", &mut self.best_effort_deadline_ms),
            ("BEST_EFFORT_CHECK_INTERVAL_SECONDS", &mut self.best_effort_check_interval_ms),
        ] {
            let Some(text) = env(name) else { continue };
            match text.trim().parse().ok().and_then(seconds_to_ms) {
                Some(value) => *ms = value,
                None => {
                    wrong.push(format!("{name} must be a number of seconds above 0, not {text:?}"));
                }
            }
        }
        if let Some(text) = env("BEST_EFFORT_LATE_RESULT_POLICY") {
            match text.trim() {
                "log_only" => self.late_results = LateResults::LogOnly,
                "update_result" => self.late_results = LateResults::UpdateResult,
                _ => wrong.push(format!(
                    "BEST_EFFORT_LATE_RESULT_POLICY must be log_only or update_result, not {text:?}"
                )),
            }
        }
        if wrong.is_empty() { Ok(self) } else { Err(wrong) }
    }
}

/// The keys of the operator's own `retry` block, with what they mean.
pub fn retry_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    let native = keys::RETRY.keys.iter().filter(|key| KEYS.contains(&key.name));
    native.map(|key| (key.name, key.doc))
}

/// Reads the operator's `retry` block: the native keys of a job's. The paths of problems are relative
/// to it.
pub fn retry_overrides(block: &Node) -> Result<PolicyOverrides, Vec<Problem>> {
    let operator = Operator::default();
    let mut reader = Reader::new(&operator);
    let read = reader.retry(&At { node: block, path: String::new() }, Source::Operator);
    let Some(read) = read else { return Err(sorted(reader.problems)) };
    for entry in block.as_map().unwrap_or_default() {
        if read.source == Source::Tasker && entry.key.contains("backoff_") {
            let message = format!("`{}` is Tasker's, and belongs into a job file", entry.key);
            let problem = Problem::new("unknown_key", &entry.key, entry.key_span, message);
            let help = "write `initial_delay` and `max_delay`, with units";
            reader.problems.push(problem.help(help));
        }
    }
    if reader.problems.is_empty() {
        let (draft, _) = merge(&[(Source::Operator, &read.overrides)]);
        let places = Positions::new(block);
        for wrong in Policy::new(draft).err().into_iter().flat_map(|problems| problems.0) {
            let span = places.locate(&wrong.path);
            let mut problem = Problem::new(wrong.code, &wrong.path, span, wrong.message);
            problem.help = wrong.help;
            reader.problems.push(problem);
        }
    }
    if reader.problems.is_empty() { Ok(read.overrides) } else { Err(sorted(reader.problems)) }
}

/// Whole milliseconds, at least one; none for what is not a time to wait.
pub(crate) fn seconds_to_ms(seconds: f64) -> Option<u64> {
    let ms = seconds * 1000.0;
    (ms.is_finite() && ms >= 1.0 && ms <= MAX_DURATION_MS as f64).then_some(ms.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_taken_or_refused_by_name() {
        let env = |name: &str| match name {
            "RETRY_BUDGET_MAX" => Some("7".to_owned()),
            "BEST_EFFORT_DEFAULT_DEADLINE_SECONDS" => Some("1.5".to_owned()),
            "BEST_EFFORT_LATE_RESULT_POLICY" => Some("update_result".to_owned()),
            _ => None,
        };
        let operator = Operator::from_env(env).expect("valid");
        assert_eq!(operator.budget_total.given(), 7);
        assert_eq!(operator.best_effort_deadline_ms, 1500);
        assert_eq!(operator.late_results, LateResults::UpdateResult);
        for text in ["-1", "x", "", "1e400", "nan", "99999999999"] {
            let wrong = Operator::from_env(|_| Some(text.to_owned())).expect_err(text);
            assert!(wrong.iter().any(|w| w.contains("RETRY_BUDGET_DEFAULT")), "{wrong:?}");
            assert!(wrong.iter().any(|w| w.contains("LATE_RESULT_POLICY")), "{wrong:?}");
        }
    }
}
