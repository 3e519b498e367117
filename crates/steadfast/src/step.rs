//! A step, as the job file has it.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::Retry;
use crate::retry::duration;

pub(crate) fn put(map: &mut Map<String, Value>, block: &str, key: String, value: Value) {
    map.entry(block).or_insert_with(|| json!({}))[key] = value;
}

pub(crate) fn list<T: Into<String>>(items: impl IntoIterator<Item = T>) -> Value {
    items.into_iter().map(Into::into).collect()
}

/// What is done: exactly one thing.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Action(Map<String, Value>);

impl Action {
    fn new(key: &str, value: impl Into<Value>) -> Self {
        Self(Map::from_iter([(key.to_owned(), value.into())]))
    }

    /// A command for `/bin/sh -c`.
    pub fn run(command: impl Into<String>) -> Self {
        Self::new("run", command.into())
    }

    /// A program and its arguments, without a shell.
    pub fn argv<T: Into<String>>(argv: impl IntoIterator<Item = T>) -> Self {
        Self::new("argv", list(argv))
    }

    pub fn http(http: Http) -> Self {
        Self::new("http", http.0)
    }

    /// A function that a [worker](crate::Worker) has.
    pub fn call(function: impl Into<String>) -> Self {
        Self::new("call", function.into())
    }

    /// What the function is given. `{{ … }}` in its texts is filled in.
    pub fn input(mut self, input: &impl Serialize) -> Result<Self, serde_json::Error> {
        self.0.insert("input".to_owned(), serde_json::to_value(input)?);
        Ok(self)
    }
}

/// A request to a handler.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Http(Map<String, Value>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
}

impl Http {
    /// With POST, unless said otherwise.
    pub fn new(url: impl Into<String>) -> Self {
        Self(Map::new()).set("url", url.into())
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    pub fn method(self, method: Method) -> Self {
        let name = match method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
        };
        self.set("method", name)
    }

    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.0, "headers", name.into(), value.into().into());
        self
    }

    pub fn query(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.0, "query", name.into(), value.into().into());
        self
    }

    /// Sent as JSON.
    pub fn body(self, body: &impl Serialize) -> Result<Self, serde_json::Error> {
        let body = serde_json::to_value(body)?;
        Ok(self.set("body", body))
    }

    /// The handler answers 202, and a callback brings the result.
    pub fn answers_later(self) -> Self {
        self.set("mode", "async")
    }

    /// The longest attempt.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set("timeout", duration(timeout))
    }

    /// How many are followed.
    pub fn redirects(self, most: u32) -> Self {
        self.set("redirects", most)
    }

    /// A 2xx without `success` in its body is not completed.
    pub fn expect_envelope(self) -> Self {
        self.set("expect", "envelope")
    }
}

/// What becomes of a step that has failed, and of what needs it.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct OnFailure(Value);

impl OnFailure {
    /// This is done; the step has failed all the same.
    pub fn fallback(action: Action) -> Self {
        Self(Value::Object(action.0))
    }

    /// The same, and what needs the step goes on.
    pub fn rescue(action: Action) -> Self {
        let mut block = action.0;
        block.insert("then".to_owned(), "continue".into());
        Self(Value::Object(block))
    }

    /// What needs the step goes on.
    pub fn proceed() -> Self {
        Self("continue".into())
    }
}

/// Where processes start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cwd {
    /// The job file's folder.
    Source,
    /// The attempt's own.
    Attempt,
}

impl From<Cwd> for Value {
    fn from(cwd: Cwd) -> Self {
        match cwd {
            Cwd::Source => "source".into(),
            Cwd::Attempt => "attempt".into(),
        }
    }
}

/// A node of a job's plan.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Step {
    pub(crate) name: String,
    pub(crate) keys: Map<String, Value>,
}

impl Step {
    pub fn new(name: impl Into<String>, action: Action) -> Self {
        Self { name: name.into(), keys: action.0 }
    }

    /// A command for `/bin/sh -c`.
    pub fn run(name: impl Into<String>, command: impl Into<String>) -> Self {
        Self::new(name, Action::run(command))
    }

    /// A program and its arguments, without a shell.
    pub fn argv<T: Into<String>>(
        name: impl Into<String>,
        argv: impl IntoIterator<Item = T>,
    ) -> Self {
        Self::new(name, Action::argv(argv))
    }

    /// A request to a handler.
    pub fn http(name: impl Into<String>, http: Http) -> Self {
        Self::new(name, Action::http(http))
    }

    /// A function that a [worker](crate::Worker) has.
    pub fn call(name: impl Into<String>, function: impl Into<String>) -> Self {
        Self::new(name, Action::call(function))
    }

    /// What the function is given. `{{ … }}` in its texts is filled in: `"{{ item }}"` is the item itself.
    pub fn input(self, input: &impl Serialize) -> Result<Self, serde_json::Error> {
        let input = serde_json::to_value(input)?;
        Ok(self.set("input", input))
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.keys.insert(key.to_owned(), value.into());
        self
    }

    /// Steps that must have succeeded before.
    pub fn needs<T: Into<String>>(self, steps: impl IntoIterator<Item = T>) -> Self {
        self.set("needs", list(steps))
    }

    /// One work item for each.
    pub fn for_each<T: Into<Value>>(self, items: impl IntoIterator<Item = T>) -> Self {
        self.set("for_each", items.into_iter().map(Into::into).collect::<Value>())
    }

    /// One work item for each number from 0.
    pub fn for_each_range(self, count: u32) -> Self {
        self.set("for_each", json!({ "range": count }))
    }

    /// One work item for each element of what an earlier step has given: `STEP.path`.
    pub fn for_each_output(self, path: impl Into<String>) -> Self {
        self.set("for_each", json!({ "output": path.into() }))
    }

    /// Items that run at once.
    pub fn parallelism(self, items: u32) -> Self {
        self.set("parallelism", items)
    }

    /// Items that may fail without failing the step.
    pub fn max_failed(self, items: u32) -> Self {
        self.set("max_failed", items)
    }

    /// The same, of a hundred.
    pub fn max_failed_percent(self, percent: u8) -> Self {
        self.set("max_failed", format!("{percent}%"))
    }

    /// The longest attempt.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set("timeout", duration(timeout))
    }

    /// The longest silence of a handler or function.
    pub fn heartbeat(self, silence: Duration) -> Self {
        self.set("heartbeat", duration(silence))
    }

    /// How long an item may wait for a worker; zero is for ever.
    pub fn scheduling_timeout(self, timeout: Duration) -> Self {
        self.set("scheduling_timeout", duration(timeout))
    }

    /// Cores that its worker must have.
    pub fn cpu(mut self, cores: f64) -> Self {
        put(&mut self.keys, "resources", "cpu".to_owned(), cores.into());
        self
    }

    /// Memory that its worker must have: `512m`, `2GiB`.
    pub fn memory(mut self, size: impl Into<String>) -> Self {
        put(&mut self.keys, "resources", "memory".to_owned(), size.into().into());
        self
    }

    /// What its worker must carry.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.keys, "labels", name.into(), value.into().into());
        self
    }

    /// Allocated for each attempt.
    pub fn ports<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        self.set("ports", list(names))
    }

    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.set("on_failure", on_failure.0)
    }

    /// Undoes the step when the run fails later.
    pub fn compensate(self, action: Action) -> Self {
        self.set("compensate", action.0)
    }

    /// Of its processes.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        put(&mut self.keys, "env", name.into(), value.into().into());
        self
    }

    /// Of its processes.
    pub fn cwd(self, cwd: Cwd) -> Self {
        self.set("cwd", cwd)
    }

    /// In the folder of its processes: [attached](crate::Job::attach) to the job.
    pub fn files<T: Into<String>>(self, paths: impl IntoIterator<Item = T>) -> Self {
        self.set("files", list(paths))
    }

    /// Names of variables that its worker has the values of.
    pub fn secrets<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        self.set("secrets", list(names))
    }

    /// What it leaves out comes from the job's.
    pub fn retry(self, retry: Retry) -> Self {
        self.set("retry", retry.0)
    }
}
