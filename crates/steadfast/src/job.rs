//! A job, as the job file has it: written here, read and checked by the server like any other.

use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value};
use steadfast_api::proto::AttachedFile;

use crate::retry::duration;
use crate::step::{Cwd, list, put};
use crate::{Retry, Step};

/// Steps, and what holds for all of them. Serialized it is a job file.
///
/// ```
/// use std::time::Duration;
/// use steadfast::{Job, Retry, Step};
///
/// # fn main() -> Result<(), serde_json::Error> {
/// let job = Job::new("nightly")
///     .step(
///         Step::run("fetch", "curl -fsS \"$SOURCE\" > \"$STEADFAST_OUTPUT\"")
///             .retry(Retry::new().max_attempts(4).initial_delay(Duration::from_millis(500))),
///     )
///     .step(
///         Step::call("index", "index_shard")
///             .for_each(["a", "b", "c"])
///             .input(&serde_json::json!({ "shard": "{{ item }}" }))?
///             .needs(["fetch"]),
///     );
/// assert!(serde_json::to_string(&job)?.starts_with(r#"{"name":"nightly","steps":{"fetch":"#));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Job {
    keys: Map<String, Value>,
    steps: Vec<Step>,
    attached: Vec<AttachedFile>,
}

/// A step that is there twice is written twice: whoever reads it says so.
impl Serialize for Job {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Steps<'a>(&'a [Step]);
        impl Serialize for Steps<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|step| (&step.name, &step.keys)))
            }
        }
        let mut map = serializer.serialize_map(Some(self.keys.len() + 1))?;
        for (key, value) in &self.keys {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry("steps", &Steps(&self.steps))?;
        map.end()
    }
}

impl Job {
    pub fn new(name: impl Into<String>) -> Self {
        let keys = Map::from_iter([("name".to_owned(), name.into().into())]);
        Self { keys, steps: Vec::new(), attached: Vec::new() }
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.keys.insert(key.to_owned(), value.into());
        self
    }

    pub fn step(mut self, step: Step) -> Self {
        self.steps.push(step);
        self
    }

    /// The policy of all steps, key by key.
    pub fn retry(self, retry: Retry) -> Self {
        self.set("retry", retry.0)
    }

    /// Retries shared by the whole job.
    pub fn retry_budget(self, budget: RetryBudget) -> Self {
        self.set("retry_budget", budget.0)
    }

    /// The longest time of the whole job.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set("timeout", duration(timeout))
    }

    /// Steps that decide whether the job succeeds. Otherwise those that nothing else needs.
    pub fn goals<T: Into<String>>(self, steps: impl IntoIterator<Item = T>) -> Self {
        self.set("goals", list(steps))
    }

    /// Where it runs, once in each.
    pub fn datacenters<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        self.set("datacenters", list(names))
    }

    /// Some of the datacenters are enough.
    pub fn best_effort(self, best_effort: BestEffort) -> Self {
        self.set("best_effort", best_effort.0)
    }

    /// Files of all steps' processes: [attached](Self::attach).
    pub fn files<T: Into<String>>(self, paths: impl IntoIterator<Item = T>) -> Self {
        self.set("files", list(paths))
    }

    /// What a file that `files` names holds.
    pub fn attach(
        mut self,
        path: impl Into<String>,
        content: impl Into<Vec<u8>>,
        executable: bool,
    ) -> Self {
        let (path, content) = (path.into(), content.into());
        self.attached.push(AttachedFile { path, content, executable });
        self
    }

    /// Of all processes.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.keys, "env", name.into(), value.into().into());
        self
    }

    /// Of all processes.
    pub fn cwd(self, cwd: Cwd) -> Self {
        self.set("cwd", cwd)
    }

    /// Names of variables that workers have the values of.
    pub fn secrets<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        self.set("secrets", list(names))
    }

    /// The earliest start, from acceptance.
    pub fn start_in(self, delay: Duration) -> Self {
        let Value::String(delay) = duration(delay) else { return self };
        self.set("not_before", format!("in {delay}"))
    }

    /// The earliest start: `2030-01-31T08:00:00Z`.
    pub fn not_before(self, time: impl Into<String>) -> Self {
        self.set("not_before", time.into())
    }

    /// Higher goes first.
    pub fn priority(self, priority: i32) -> Self {
        self.set("priority", priority)
    }

    /// A word to find the job by.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.keys, "labels", name.into(), value.into().into());
        self
    }

    pub(crate) fn attached(&self) -> Vec<AttachedFile> {
        self.attached.clone()
    }
}

/// Retries shared by the whole job, whatever the step.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct RetryBudget(Map<String, Value>);

impl RetryBudget {
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    pub fn total(self, retries: u32) -> Self {
        self.set("total", retries)
    }

    pub fn per_step(self, retries: u32) -> Self {
        self.set("per_step", retries)
    }

    /// In proportion to the items started.
    pub fn ratio(self, ratio: f64) -> Self {
        self.set("ratio", ratio)
    }

    /// With `ratio`: never fewer than this.
    pub fn floor(self, retries: u32) -> Self {
        self.set("floor", retries)
    }

    /// Retries after losses and failed dispatches spend it too, not only those after failures.
    pub fn counts_all(self) -> Self {
        self.set("counts", "all")
    }
}

/// Some of the datacenters are enough.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct BestEffort(Map<String, Value>);

/// What becomes of results after the job's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LateResults {
    LogOnly,
    UpdateResult,
}

impl BestEffort {
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// How many must succeed.
    pub fn min_datacenters(self, count: u32) -> Self {
        self.set("min_datacenters", count)
    }

    /// From acceptance.
    pub fn deadline(self, deadline: Duration) -> Self {
        self.set("deadline", duration(deadline))
    }

    /// How long to wait for more once there are enough.
    pub fn grace(self, grace: Duration) -> Self {
        self.set("grace", duration(grace))
    }

    pub fn late_results(self, late: LateResults) -> Self {
        let word = match late {
            LateResults::LogOnly => "log_only",
            LateResults::UpdateResult => "update_result",
        };
        self.set("late_results", word)
    }
}
