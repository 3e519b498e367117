//! One rule of a policy, checked: what it matches, and what follows.

use std::sync::Arc;

use regex::Regex;

use super::{MAX_DURATION_MS, Problem, RuleAction, RuleDraft};
use crate::outcome::{Failure, FailureKind};
use crate::pattern;

/// Characters of a regular expression: far more than a person writes for an error.
const REGEX_LONGEST: usize = 1000;

#[derive(Clone, Debug)]
pub(crate) struct Rule {
    exit: Option<CodeSet>,
    signal: Option<CodeSet>,
    http_status: Option<Box<[u16]>>,
    error: Option<ErrorMatch>,
    timeout: bool,
    pub(crate) then: RuleAction,
    pub(crate) delay_ms: Option<u64>,
}

impl Rule {
    pub(super) fn new(
        index: usize,
        draft: &RuleDraft,
        exit: Option<CodeSet>,
        signal: Option<CodeSet>,
        wrong: &mut Vec<Problem>,
    ) -> Option<Self> {
        let before = wrong.len();
        let mut bad = |key: &str, message: String, help: &str| {
            wrong.push(Problem {
                code: "invalid_value",
                path: format!("rules[{index}]{key}"),
                message,
                help: (!help.is_empty()).then(|| help.to_owned()),
            });
        };
        if exit.is_none()
            && signal.is_none()
            && draft.http_status.is_none()
            && draft.error.is_none()
            && !draft.timeout
        {
            bad(
                "",
                "a rule must say what it matches".into(),
                "add one of `exit`, `signal`, `http_status`, `error`, `timeout: true`",
            );
        }
        if draft.then == RuleAction::Stop && draft.delay_ms.is_some() {
            bad(".delay", "a rule that stops has no delay".into(), "remove `delay`");
        }
        if draft.delay_ms.is_some_and(|ms| ms > MAX_DURATION_MS) {
            bad(".delay", "delay is longer than a century".into(), "");
        }
        let http_status = draft.http_status.as_ref().map(|list| {
            let valid = |code: &&i64| (100..600).contains(*code);
            for code in list.iter().filter(|code| !valid(code)) {
                bad(".http_status", format!("{code} is not an HTTP status (100 to 599)"), "");
            }
            list.iter().filter(valid).map(|&code| code as u16).collect()
        });
        let error = draft.error.as_ref().and_then(|pattern| {
            if pattern.chars().count() > REGEX_LONGEST {
                let message =
                    format!("a regular expression has at most {REGEX_LONGEST} characters");
                bad(".error", message, "make it shorter");
                return None;
            }
            match pattern::compiled(pattern) {
                Ok(regex) => Some(ErrorMatch { kind: pattern.clone(), regex }),
                Err(regex::Error::CompiledTooBig(_)) => {
                    bad(".error", "the regular expression is too large".into(), "make it shorter");
                    None
                }
                Err(error) => {
                    // The crate draws the pattern with a caret; its last line says what is wrong.
                    let text = error.to_string();
                    let reason = text.lines().last().unwrap_or_default();
                    let reason = reason.trim_start_matches("error: ");
                    bad(
                        ".error",
                        format!("not a regular expression: {reason}"),
                        r"put a backslash before characters meant literally, as in `\(`",
                    );
                    None
                }
            }
        });
        (wrong.len() == before).then(|| Self {
            exit,
            signal,
            http_status,
            error,
            timeout: draft.timeout,
            then: draft.then,
            delay_ms: draft.delay_ms,
        })
    }

    /// Everything the rule names must hold. A signal is not an exit here: rules tell them apart.
    pub(super) fn matches(&self, failure: &Failure) -> bool {
        let kind = failure.kind;
        if let Some(codes) = &self.exit
            && !matches!(kind, FailureKind::Exited(code) if codes.contains(code))
        {
            return false;
        }
        if let Some(signals) = &self.signal
            && !matches!(kind, FailureKind::Signalled(signal) if signals.contains(signal))
        {
            return false;
        }
        if self.timeout && kind != FailureKind::TimedOut {
            return false;
        }
        if let Some(statuses) = &self.http_status
            && !failure.http_status.is_some_and(|status| statuses.contains(&status))
        {
            return false;
        }
        let Some(matcher) = &self.error else {
            return true;
        };
        failure.error.as_ref().is_some_and(|error| {
            error.kind.as_deref() == Some(&matcher.kind) || matcher.regex.is_match(&error.message)
        })
    }
}

#[derive(Clone, Debug)]
struct ErrorMatch {
    kind: String,
    regex: Arc<Regex>,
}

/// A set of exit codes or signals, looked up without a search.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CodeSet([u64; 4]);

impl CodeSet {
    pub(super) fn insert(&mut self, code: u8) {
        self.0[usize::from(code >> 6)] |= 1 << (code & 63);
    }

    pub(super) fn contains(&self, code: u8) -> bool {
        self.0[usize::from(code >> 6)] & (1 << (code & 63)) != 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }
}
