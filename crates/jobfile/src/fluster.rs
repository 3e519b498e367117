//! Fluster's requests, which come by its API and never in a file: `RetryConfig`, and the job around it.

mod launch;
mod warn;

use steadfast_core::backoff::Backoff;
use steadfast_core::policy::{Policy, PolicyDraft, Problem, Problems};
use steadfast_core::spelling::{Spelling, Unit};

pub use launch::{Entrypoint, FlusterJob, plan};
pub use warn::warnings;

/// Its fields, none of which has to be there: unset is not 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlusterRetry {
    pub max_retries_failure: Option<i32>,
    pub max_retries_preemption: Option<i32>,
    pub initial_retry_delay_ms: Option<i64>,
    pub max_retry_delay_ms: Option<i64>,
    pub backoff_multiplier: Option<f64>,
    pub retry_on_exit_codes: Vec<i32>,
    pub no_retry_on_exit_codes: Vec<i32>,
}

/// What the operator gives to what comes by this API and does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlusterDefaults {
    pub max_retries_failure: u32,
    pub max_retries_preemption: u32,
    pub retry_delay_ms: u64,
}

impl Default for FlusterDefaults {
    fn default() -> Self {
        Self { max_retries_failure: 0, max_retries_preemption: 100, retry_delay_ms: 1000 }
    }
}

/// What it calls the keys of a policy: as its Python client does, in seconds.
pub fn spelling() -> Spelling {
    Spelling::new(
        Some("RetryConfig"),
        &[
            ("max_attempts", "max_retries_failure", Unit::Retries),
            ("max_preemptions", "max_retries_preemption", Unit::Native),
            ("initial_delay", "initial_delay", Unit::Seconds),
            ("max_delay", "max_delay", Unit::Seconds),
            ("multiplier", "backoff_multiplier", Unit::Native),
            ("exit_codes.retry", "retry_on_exit_codes", Unit::Native),
            ("exit_codes.stop", "no_retry_on_exit_codes", Unit::Native),
        ],
    )
}

/// The policy that it asks for; the problems speak of its own fields.
pub fn policy(retry: &FlusterRetry) -> Result<Policy, Problems> {
    policy_with(retry, FlusterDefaults::default())
}

/// The same, with the operator's defaults.
pub fn policy_with(retry: &FlusterRetry, defaults: FlusterDefaults) -> Result<Policy, Problems> {
    let mut wrong = Vec::new();
    let mut natural = |field: &str, value: i64| {
        u64::try_from(value).unwrap_or_else(|_| {
            wrong.push(Problem {
                code: "invalid_value",
                path: field.to_owned(),
                message: format!("{field} is 0 or more, not {value}"),
                help: None,
            });
            0
        })
    };
    let failures = retry.max_retries_failure.map(i64::from);
    let failures = failures.map(|count| natural("max_retries_failure", count));
    let failures = failures.unwrap_or(defaults.max_retries_failure.into());
    let preemptions = retry.max_retries_preemption.map(i64::from);
    let preemptions = preemptions.map(|count| natural("max_retries_preemption", count));
    let preemptions = preemptions.unwrap_or(defaults.max_retries_preemption.into());
    let delay = retry.initial_retry_delay_ms.map(|ms| natural("initial_retry_delay_ms", ms));
    let initial_delay_ms = delay.unwrap_or(defaults.retry_delay_ms);
    let max_delay_ms = retry.max_retry_delay_ms.map(|ms| natural("max_retry_delay_ms", ms));
    let multiplier = retry.backoff_multiplier.unwrap_or(2.0);
    let codes = |list: &[i32]| list.iter().copied().map(i64::from).collect();
    let draft = PolicyDraft {
        max_attempts: Some((failures as u32).saturating_add(1)),
        max_preemptions: Some(preemptions as u32),
        max_preemptions_written: retry.max_retries_preemption.is_some(),
        initial_delay_ms,
        max_delay_ms,
        backoff: Backoff::Exponential { multiplier },
        exit_retry: codes(&retry.retry_on_exit_codes),
        exit_stop: codes(&retry.no_retry_on_exit_codes),
        ..PolicyDraft::default()
    };
    let made = Policy::new(draft).map_err(|problems| {
        for mut problem in problems.0 {
            let field = match problem.path.as_str() {
                "initial_delay" => "initial_retry_delay_ms",
                "max_delay" => "max_retry_delay_ms",
                "multiplier" => "backoff_multiplier",
                "exit_codes.retry" => "retry_on_exit_codes",
                "exit_codes.stop" => "no_retry_on_exit_codes",
                path => path,
            };
            problem.path = String::from(field);
            if !wrong.iter().any(|known: &Problem| known.path == problem.path) {
                wrong.push(problem);
            }
        }
    });
    match made {
        Ok(policy) if wrong.is_empty() => Ok(policy),
        _ => Err(Problems(wrong)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unset_is_not_zero() {
        let made = policy(&FlusterRetry::default()).expect("valid");
        let draft = made.draft();
        assert_eq!((draft.max_attempts, draft.max_preemptions), (Some(1), Some(100)));
        assert_eq!((draft.initial_delay_ms, made.delays().max_ms()), (1000, 60_000));
        let zero = FlusterRetry {
            max_retries_preemption: Some(0),
            initial_retry_delay_ms: Some(0),
            max_retries_failure: Some(i32::MAX),
            ..FlusterRetry::default()
        };
        let made = policy(&zero).expect("valid");
        assert_eq!(made.draft().max_preemptions, Some(0));
        assert_eq!(made.draft().initial_delay_ms, 0);
        assert_eq!(made.draft().max_attempts, Some(1 << 31));
    }

    #[test]
    fn the_operator_fills_in_what_is_unset_and_nothing_else() {
        let defaults = FlusterDefaults {
            max_retries_failure: 4,
            max_retries_preemption: 7,
            retry_delay_ms: 90_000,
        };
        let made = policy_with(&FlusterRetry::default(), defaults).expect("valid");
        assert_eq!((made.draft().max_attempts, made.draft().max_preemptions), (Some(5), Some(7)));
        assert_eq!((made.draft().initial_delay_ms, made.delays().max_ms()), (90_000, 90_000));
        let said = FlusterRetry { max_retries_failure: Some(0), ..FlusterRetry::default() };
        let made = policy_with(&said, defaults).expect("valid");
        assert_eq!(made.draft().max_attempts, Some(1));
    }

    #[test]
    fn problems_speak_of_its_own_fields() {
        let odd = FlusterRetry {
            max_retries_failure: Some(-1),
            max_retry_delay_ms: Some(10),
            backoff_multiplier: Some(f64::NAN),
            retry_on_exit_codes: vec![0],
            ..FlusterRetry::default()
        };
        let Problems(wrong) = policy(&odd).expect_err("refused");
        let paths: Vec<&str> = wrong.iter().map(|problem| problem.path.as_str()).collect();
        let fields = [
            "max_retries_failure",
            "backoff_multiplier",
            "max_retry_delay_ms",
            "retry_on_exit_codes",
        ];
        assert_eq!(paths, fields);
    }
}
