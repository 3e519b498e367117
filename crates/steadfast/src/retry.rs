//! Retry rules, as the `retry` block of a job file has them. What is not said has the default.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::error::ms;

pub(crate) fn duration(duration: Duration) -> Value {
    format!("{}ms", ms(duration)).into()
}

/// The policy of a step, or of all steps of a job.
///
/// ```
/// use std::time::Duration;
/// use steadfast::{Jitter, Retry, Rule};
///
/// let retry = Retry::new()
///     .max_attempts(5)
///     .initial_delay(Duration::from_millis(200))
///     .jitter(Jitter::Full)
///     .rule(Rule::stop().error("quota"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use]
pub struct Retry(pub(crate) Map<String, Value>);

/// A count, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    AtMost(u32),
    Unlimited,
}

impl From<u32> for Limit {
    fn from(most: u32) -> Self {
        Self::AtMost(most)
    }
}

impl From<Limit> for Value {
    fn from(limit: Limit) -> Self {
        match limit {
            Limit::AtMost(most) => most.into(),
            Limit::Unlimited => "unlimited".into(),
        }
    }
}

/// How delays grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backoff {
    Fixed,
    Linear,
    Exponential,
    Fibonacci,
    /// These; the last repeats.
    Listed(Vec<Duration>),
}

/// How delays vary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jitter {
    None,
    /// From 0 to the delay.
    Full,
    /// From half of it.
    Equal,
    /// From the initial delay to three times the last one.
    Decorrelated,
    /// By so much of the delay, from 0 to 1, up and down.
    Factor(f64),
}

impl Retry {
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Executions charged to failures, the first included.
    pub fn max_attempts(self, limit: impl Into<Limit>) -> Self {
        self.set("max_attempts", limit.into())
    }

    /// `false`: never again after a failure.
    pub fn retryable(self, retryable: bool) -> Self {
        self.set("retryable", retryable)
    }

    pub fn backoff(self, backoff: Backoff) -> Self {
        let value: Value = match backoff {
            Backoff::Fixed => "fixed".into(),
            Backoff::Linear => "linear".into(),
            Backoff::Exponential => "exponential".into(),
            Backoff::Fibonacci => "fibonacci".into(),
            Backoff::Listed(delays) => delays.into_iter().map(duration).collect(),
        };
        self.set("backoff", value)
    }

    pub fn initial_delay(self, delay: Duration) -> Self {
        self.set("initial_delay", duration(delay))
    }

    pub fn max_delay(self, delay: Duration) -> Self {
        self.set("max_delay", duration(delay))
    }

    /// Of exponential backoff.
    pub fn multiplier(self, multiplier: f64) -> Self {
        self.set("multiplier", multiplier)
    }

    /// Of linear backoff.
    pub fn increment(self, increment: Duration) -> Self {
        self.set("increment", duration(increment))
    }

    pub fn jitter(self, jitter: Jitter) -> Self {
        let value: Value = match jitter {
            Jitter::None => "none".into(),
            Jitter::Full => "full".into(),
            Jitter::Equal => "equal".into(),
            Jitter::Decorrelated => "decorrelated".into(),
            Jitter::Factor(factor) => json!(factor),
        };
        self.set("jitter", value)
    }

    /// The cap of a delay that an error or a rule asks for.
    pub fn max_retry_after(self, delay: Duration) -> Self {
        self.set("max_retry_after", duration(delay))
    }

    /// The sum of an item's delays.
    pub fn delay_budget(self, sum: Duration) -> Self {
        self.set("delay_budget", duration(sum))
    }

    /// Wall clock since the first failure.
    pub fn window(self, window: Duration) -> Self {
        self.set("window", duration(window))
    }

    /// Losses of the worker that are survived.
    pub fn max_preemptions(self, limit: impl Into<Limit>) -> Self {
        self.set("max_preemptions", limit.into())
    }

    /// Deferrals that are survived.
    pub fn max_deferrals(self, limit: impl Into<Limit>) -> Self {
        self.set("max_deferrals", limit.into())
    }

    /// Only these exit codes are retried.
    pub fn retry_exit_codes(self, codes: impl IntoIterator<Item = u8>) -> Self {
        self.exit_codes("retry", codes)
    }

    /// Never these; wins.
    pub fn stop_exit_codes(self, codes: impl IntoIterator<Item = u8>) -> Self {
        self.exit_codes("stop", codes)
    }

    fn exit_codes(mut self, which: &str, codes: impl IntoIterator<Item = u8>) -> Self {
        let block = self.0.entry("exit_codes").or_insert_with(|| json!({}));
        block[which] = codes.into_iter().collect();
        self
    }

    /// What certain outcomes lead to. The first rule that matches wins.
    pub fn rule(mut self, rule: Rule) -> Self {
        let rules = self.0.entry("rules").or_insert_with(|| json!([]));
        if let Value::Array(rules) = rules {
            rules.push(Value::Object(rule.0));
        }
        self
    }
}

/// What certain outcomes lead to; one with several conditions wants all of them.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
pub struct Rule(Map<String, Value>);

impl Rule {
    fn then(then: &str) -> Self {
        Self(Map::new()).set("then", then)
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    pub fn retry() -> Self {
        Self::then("retry")
    }

    pub fn stop() -> Self {
        Self::then("stop")
    }

    pub fn defer() -> Self {
        Self::then("defer")
    }

    /// Exit codes.
    pub fn exit(self, codes: impl IntoIterator<Item = u8>) -> Self {
        self.set("exit", codes.into_iter().collect::<Value>())
    }

    pub fn signal(self, signals: impl IntoIterator<Item = u8>) -> Self {
        self.set("signal", signals.into_iter().collect::<Value>())
    }

    pub fn http_status(self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.set("http_status", statuses.into_iter().collect::<Value>())
    }

    /// An error's [kind](crate::Error::kind), or a regular expression on its text.
    pub fn error(self, error: impl Into<String>) -> Self {
        self.set("error", error.into())
    }

    /// An attempt that took too long.
    pub fn timeout(self) -> Self {
        self.set("timeout", true)
    }

    /// Instead of the computed one.
    pub fn delay(self, delay: Duration) -> Self {
        self.set("delay", duration(delay))
    }
}
