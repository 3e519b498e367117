//! The retry rules of a step, constructed only valid.
//!
//! A [`PolicyDraft`] holds what the author wrote; [`Policy::new`] refuses it with every reason at
//! once, or compiles it. Nothing is repaired on the way.

mod draft;
mod rule;

use serde::{Deserialize, Serialize};

use crate::backoff::{Backoff, Delays, Jitter};
use crate::outcome::Failure;
use crate::time::human_ms;
use rule::CodeSet;

pub use draft::{DEFAULT_MAX_DELAY_MS, PolicyDraft, Problem, Problems, RuleAction, RuleDraft};
pub(crate) use rule::Rule;

/// Durations beyond a century are a slip of the pen, and larger numbers lose whole milliseconds.
pub const MAX_DURATION_MS: u64 = 36_525 * 24 * 3600 * 1000;

/// A rule list longer than this would make every decision slow, and every reading of a job.
pub const MAX_RULES: usize = 100;

/// The validated retry rules of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "PolicyDraft", into = "PolicyDraft")]
pub struct Policy {
    pub(crate) delays: Delays,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) retryable: bool,
    pub(crate) survives_loss: bool,
    pub(crate) max_retry_after_ms: u64,
    pub(crate) delay_budget_ms: Option<u64>,
    pub(crate) window_ms: Option<u64>,
    pub(crate) max_preemptions: Option<u32>,
    pub(crate) max_deferrals: Option<u32>,
    exit_retry: CodeSet,
    exit_stop: CodeSet,
    rules: Box<[Rule]>,
    draft: Box<PolicyDraft>,
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        self.draft == other.draft
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::new(PolicyDraft::default()).expect("the defaults are valid, as a test shows")
    }
}

impl From<Policy> for PolicyDraft {
    fn from(policy: Policy) -> Self {
        *policy.draft
    }
}

impl TryFrom<PolicyDraft> for Policy {
    type Error = Problems;

    fn try_from(draft: PolicyDraft) -> Result<Self, Problems> {
        Self::new(draft)
    }
}

impl Policy {
    /// A loss of its worker does not end an item.
    pub const fn survives_loss(&self) -> bool {
        self.survives_loss
    }

    pub fn new(draft: PolicyDraft) -> Result<Self, Problems> {
        let mut wrong = Vec::new();
        let mut bad = |path: &str, message: String, help: &str| {
            wrong.push(Problem {
                code: "invalid_value",
                path: path.to_owned(),
                message,
                help: (!help.is_empty()).then(|| help.to_owned()),
            });
        };

        if draft.max_attempts == Some(0) {
            bad(
                "max_attempts",
                "max_attempts counts the first attempt too, so 0 would never run the step".into(),
                "write `max_attempts: 1` for one attempt and no retry",
            );
        }
        for (key, value) in [
            ("initial_delay", Some(draft.initial_delay_ms)),
            ("max_delay", draft.max_delay_ms),
            ("max_retry_after", Some(draft.max_retry_after_ms)),
            ("delay_budget", draft.delay_budget_ms),
            ("window", draft.window_ms),
        ] {
            if value.is_some_and(|ms| ms > MAX_DURATION_MS) {
                bad(key, format!("{key} is longer than a century"), "");
            }
        }
        let longest_first = match &draft.backoff {
            Backoff::Exponential { multiplier } => {
                if !multiplier.is_finite() || *multiplier < 1.0 {
                    bad(
                        "multiplier",
                        format!("multiplier must be a finite number, 1 or more, not {multiplier}"),
                        "write `multiplier: 2.0`; `backoff: fixed` keeps the delay as it is",
                    );
                }
                draft.initial_delay_ms
            }
            Backoff::Linear { increment_ms } => {
                if *increment_ms > MAX_DURATION_MS {
                    bad("increment", "increment is longer than a century".into(), "");
                }
                draft.initial_delay_ms
            }
            Backoff::List(delays) => {
                if delays.is_empty() {
                    bad(
                        "backoff",
                        "the list of delays is empty".into(),
                        "write `backoff: [1s, 5s]`",
                    );
                }
                if delays.iter().any(|&ms| ms > MAX_DURATION_MS) {
                    bad("backoff", "a listed delay is longer than a century".into(), "");
                }
                delays.iter().copied().max().unwrap_or(0)
            }
            Backoff::Fixed | Backoff::Fibonacci => draft.initial_delay_ms,
        };
        if let Some(max) = draft.max_delay_ms
            && max < longest_first
        {
            bad(
                "max_delay",
                format!(
                    "max_delay ({}) is below the delay it caps ({})",
                    human_ms(max),
                    human_ms(longest_first)
                ),
                "raise max_delay, or lower initial_delay",
            );
        }
        if let Jitter::Factor(f) = draft.jitter
            && !(0.0..=1.0).contains(&f)
        {
            bad(
                "jitter",
                format!("a jitter factor lies between 0 and 1, not {f}"),
                "write `jitter: 0.3`, or `full`, `equal`, `decorrelated`, `none`",
            );
        }
        let mut codes = |path: &str, list: &[i64], least, most: i64, what: &str| {
            let mut set = CodeSet::default();
            for &code in list {
                match u8::try_from(code) {
                    Ok(code) if (least..=most).contains(&i64::from(code)) => set.insert(code),
                    _ => bad(path, format!("{code} is not {what} ({least} to {most})"), ""),
                }
            }
            set
        };
        let failing = "the exit code of a failure";
        let exit_retry = codes("exit_codes.retry", &draft.exit_retry, 1, 255, failing);
        let exit_stop = codes("exit_codes.stop", &draft.exit_stop, 1, 255, failing);
        // What is too many is not looked at one by one: compiling is what costs.
        let too_many = draft.rules.len() > MAX_RULES;
        let drafts = if too_many { &[][..] } else { &draft.rules[..] };
        let mut rules = Vec::with_capacity(drafts.len());
        for (i, rule) in drafts.iter().enumerate() {
            let at = |key: &str| format!("rules[{i}].{key}");
            let mut set = |key: &str, list: &Option<Vec<i64>>, most, what| {
                list.as_ref().map(|list| codes(&at(key), list, 1, most, what))
            };
            let exit = set("exit", &rule.exit, 255, failing);
            let signal = set("signal", &rule.signal, 64, "a signal");
            rules.push((exit, signal));
        }
        let rules = drafts
            .iter()
            .zip(rules)
            .enumerate()
            .filter_map(|(i, (rule, (exit, signal)))| Rule::new(i, rule, exit, signal, &mut wrong))
            .collect();
        if too_many {
            wrong.push(Problem {
                code: "too_large",
                path: "rules".into(),
                message: format!("{} rules; at most {MAX_RULES} are allowed", draft.rules.len()),
                help: None,
            });
        }
        if !wrong.is_empty() {
            return Err(Problems(wrong));
        }
        let max_ms = draft.max_delay_ms.unwrap_or(DEFAULT_MAX_DELAY_MS.max(longest_first));
        Ok(Self {
            delays: Delays {
                backoff: draft.backoff.clone(),
                initial_ms: draft.initial_delay_ms,
                max_ms,
                jitter: draft.jitter,
            },
            max_attempts: draft.max_attempts,
            retryable: draft.retryable,
            survives_loss: draft.retryable || draft.max_preemptions_written,
            max_retry_after_ms: draft.max_retry_after_ms,
            delay_budget_ms: draft.delay_budget_ms,
            window_ms: draft.window_ms,
            max_preemptions: draft.max_preemptions,
            max_deferrals: draft.max_deferrals,
            exit_retry,
            exit_stop,
            rules,
            draft: Box::new(draft),
        })
    }

    /// What it was made of.
    pub fn draft(&self) -> &PolicyDraft {
        &self.draft
    }

    pub fn delays(&self) -> &Delays {
        &self.delays
    }

    pub(crate) fn rule_for(&self, failure: &Failure) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(failure))
    }

    pub(crate) fn stops_exit(&self, code: u8) -> bool {
        self.exit_stop.contains(code)
    }

    pub(crate) fn lists_exit(&self, code: u8) -> bool {
        self.exit_retry.is_empty() || self.exit_retry.contains(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(draft: PolicyDraft) -> Vec<String> {
        let problems = Policy::new(draft).expect_err("refused").0;
        problems.into_iter().map(|p| p.path).collect()
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Policy::default().delays().max_ms(), DEFAULT_MAX_DELAY_MS);
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let rule = RuleDraft { error: Some("(".into()), ..RuleDraft::default() };
        let draft = PolicyDraft {
            max_attempts: Some(0),
            backoff: Backoff::Exponential { multiplier: f64::NAN },
            max_delay_ms: Some(10),
            jitter: Jitter::Factor(f64::INFINITY),
            exit_stop: vec![0, 256],
            rules: vec![rule, RuleDraft::default()],
            ..PolicyDraft::default()
        };
        assert_eq!(
            refused(draft),
            [
                "max_attempts",
                "multiplier",
                "max_delay",
                "jitter",
                "exit_codes.stop",
                "exit_codes.stop",
                "rules[0].error",
                "rules[1]"
            ]
        );
    }

    #[test]
    fn the_cap_grows_with_a_longer_first_delay_that_is_written() {
        let policy = |initial_delay_ms, backoff| {
            Policy::new(PolicyDraft { backoff, initial_delay_ms, ..PolicyDraft::default() })
                .expect("valid")
        };
        assert_eq!(policy(120_000, Backoff::Fixed).delays().max_ms(), 120_000);
        assert_eq!(policy(1, Backoff::List(vec![1, 90_000, 5])).delays().max_ms(), 90_000);
    }

    #[test]
    fn a_regex_that_would_take_the_memory_is_refused() {
        let rule = RuleDraft { error: Some(r"(\w{500}){500}".into()), ..RuleDraft::default() };
        let draft = PolicyDraft { rules: vec![rule], ..PolicyDraft::default() };
        assert_eq!(refused(draft), ["rules[0].error"]);
    }

    #[test]
    fn a_policy_survives_being_stored() {
        let rule =
            RuleDraft { exit: Some(vec![75]), then: RuleAction::Defer, ..RuleDraft::default() };
        let draft = PolicyDraft { rules: vec![rule], ..PolicyDraft::default() };
        let policy = Policy::new(draft).expect("valid");
        let json = serde_json::to_string(&policy).expect("serializes");
        assert_eq!(serde_json::from_str::<Policy>(&json).expect("reads"), policy);
        assert!(serde_json::from_str::<Policy>(&json.replace(":3,", ":0,")).is_err());
    }
}
