//! Fluster's `RetryConfig`, which comes by its API and never in a file.

use steadfast_core::backoff::Backoff;
use steadfast_core::policy::{Policy, PolicyDraft, Problem, Problems};

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

/// The policy that it asks for; the problems speak of its own fields.
pub fn policy(retry: &FlusterRetry) -> Result<Policy, Problems> {
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
    let failures =
        natural("max_retries_failure", i64::from(retry.max_retries_failure.unwrap_or(0)));
    let preemptions =
        natural("max_retries_preemption", i64::from(retry.max_retries_preemption.unwrap_or(100)));
    let initial_delay_ms =
        natural("initial_retry_delay_ms", retry.initial_retry_delay_ms.unwrap_or(1000));
    let max_delay_ms = retry.max_retry_delay_ms.map(|ms| natural("max_retry_delay_ms", ms));
    let multiplier = retry.backoff_multiplier.unwrap_or(2.0);
    let codes = |list: &[i32]| list.iter().copied().map(i64::from).collect();
    let draft = PolicyDraft {
        max_attempts: Some(failures as u32 + 1),
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
