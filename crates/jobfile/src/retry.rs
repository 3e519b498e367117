//! Blocks of retry rules, native and in the dialects, into one set of overrides.
//!
//! This is the only place that knows Tasker's, Prodigy's and Argyll's words for a policy.

use steadfast_core::backoff::Jitter;
use steadfast_core::policy::{MAX_RULES, RuleAction, RuleDraft};
use steadfast_core::spelling::{Spelling, Unit};

use crate::keys;
use crate::node::Scalar;
use crate::policy::{Growth, Limit, PolicyBlock, PolicyOverrides, Source};
use crate::reader::{At, Block, Reader};

const GROWTHS: &[(&str, &Growth)] = &[
    ("fixed", &Growth::Fixed),
    ("linear", &Growth::Linear),
    ("exponential", &Growth::Exponential),
    ("fibonacci", &Growth::Fibonacci),
];

/// The policy's keys in the dialects' words, with the way to them.
const TASKER: [(&str, &str); 2] =
    [("initial_delay", "backoff_base_ms"), ("max_delay", "max_backoff_ms")];
const PRODIGY: [(&str, &str); 5] = [
    ("max_attempts", "attempts"),
    ("delay_budget", "retry_budget"),
    ("multiplier", "backoff.exponential.base"),
    ("increment", "backoff.linear.increment"),
    ("jitter", "jitter_factor"),
];
const ARGYLL: [(&str, &str); 4] = [
    ("max_attempts", "max_retries"),
    ("initial_delay", "backoff"),
    ("max_delay", "max_backoff"),
    ("backoff", "backoff_type"),
];

/// What the author of a block calls the keys of a policy, for explanations.
pub(crate) fn spelling(source: Source) -> Spelling {
    const MS: Unit = Unit::Milliseconds;
    const SAME: Unit = Unit::Native;
    match source {
        Source::Tasker => {
            let keys =
                [("initial_delay", "backoff_base_ms", MS), ("max_delay", "max_backoff_ms", MS)];
            Spelling::new(None, &keys)
        }
        Source::Prodigy => Spelling::new(
            Some("retry_config"),
            &[
                ("max_attempts", "attempts", SAME),
                ("delay_budget", "retry_budget", SAME),
                ("backoff", "backoff", SAME),
                ("initial_delay", "initial_delay", SAME),
                ("max_delay", "max_delay", SAME),
                ("multiplier", "base", SAME),
                ("increment", "increment", SAME),
                ("jitter", "jitter_factor", SAME),
            ],
        ),
        Source::Argyll => Spelling::new(
            Some("work_config"),
            &[
                ("max_attempts", "max_retries", Unit::Retries),
                ("initial_delay", "backoff", MS),
                ("max_delay", "max_backoff", MS),
                ("backoff", "backoff_type", SAME),
                ("rules", "rules", SAME),
            ],
        ),
        _ => Spelling::default(),
    }
}

impl Reader<'_> {
    /// `retry`, of the job or of a step. With one of Tasker's own keys in it, it is Tasker's.
    pub(crate) fn retry(&mut self, at: &At, native: Source) -> Option<PolicyBlock> {
        let before = self.problems.len();
        let block = self.block(at, None, &keys::RETRY)?;
        let tasker = block.has("backoff_base_ms") || block.has("max_backoff_ms");
        let mut to = PolicyOverrides::default();
        if let Some(at) = block.get("max_attempts") {
            to.max_attempts = self.limit(&at);
        }
        if let Some(at) = block.get("retryable") {
            to.retryable = self.flag(&at);
        }
        if let Some(at) = block.get("backoff") {
            to.backoff = self.backoff(&at);
        }
        to.initial_delay_ms = self.duration_of(&block, "initial_delay");
        to.max_delay_ms = self.duration_of(&block, "max_delay");
        to.increment_ms = self.duration_of(&block, "increment");
        to.max_retry_after_ms = self.duration_of(&block, "max_retry_after");
        to.delay_budget_ms = self.duration_of(&block, "delay_budget");
        to.window_ms = self.duration_of(&block, "window");
        if let Some(at) = block.get("multiplier") {
            to.multiplier = self.multiplier(&at);
        }
        if let Some(at) = block.get("jitter") {
            to.jitter = self.jitter(&at);
        }
        if let Some(at) = block.get("max_preemptions") {
            to.max_preemptions = self.limit(&at);
        }
        if let Some(at) = block.get("max_deferrals") {
            to.max_deferrals = self.limit(&at);
        }
        if let Some(at) = block.get("exit_codes") {
            to.exit_codes = self.exit_codes(&at);
        }
        to.rules = self.rules(&block);
        if let Some(at) = block.get("backoff_base_ms") {
            to.initial_delay_ms = self.milliseconds(&at);
        }
        if let Some(at) = block.get("max_backoff_ms") {
            to.max_delay_ms = self.milliseconds(&at);
        }
        Some(PolicyBlock {
            source: if tasker { Source::Tasker } else { native },
            path: at.path.clone(),
            overrides: to,
            broken: self.problems.len() > before,
            spellings: (TASKER.into_iter()).filter(|(_, spelling)| block.has(spelling)).collect(),
        })
    }

    /// Prodigy's `retry_config`.
    pub(crate) fn retry_config(&mut self, at: &At) -> Option<PolicyBlock> {
        let before = self.problems.len();
        let block = self.block(at, None, &keys::PRODIGY)?;
        let mut to = PolicyOverrides::default();
        if let Some(at) = block.get("attempts") {
            to.max_attempts = self.limit(&at);
        }
        if let Some(at) = block.get("backoff") {
            self.prodigy_backoff(&at, &mut to);
        }
        to.initial_delay_ms = self.duration_of(&block, "initial_delay");
        to.max_delay_ms = self.duration_of(&block, "max_delay");
        to.delay_budget_ms = self.duration_of(&block, "retry_budget");
        let factor = block.get("jitter_factor").map(|at| self.number(&at));
        let jitter = block.get("jitter").and_then(|at| self.flag(&at));
        if jitter == Some(true) {
            to.jitter = Some(Jitter::Factor(factor.flatten().unwrap_or(0.3)));
        } else {
            to.jitter = jitter.map(|_| Jitter::None);
            if factor.is_some() {
                let line = block.key_span("jitter_factor").line;
                let message = "jitter_factor has no effect without `jitter: true`".to_owned();
                self.warn("unused_key", block.path("jitter_factor"), line, message);
            }
        }
        Some(PolicyBlock {
            source: Source::Prodigy,
            path: at.path.clone(),
            overrides: to,
            broken: self.problems.len() > before,
            spellings: PRODIGY.to_vec(),
        })
    }

    fn prodigy_backoff(&mut self, at: &At, to: &mut PolicyOverrides) {
        if at.node.as_map().is_none() {
            to.backoff = self.growth(at);
            return;
        }
        let Some(block) = self.block(at, None, &keys::PRODIGY_BACKOFF) else {
            return;
        };
        if let Some(at) = block.get("linear") {
            to.backoff = Some(Growth::Linear);
            if let Some(linear) = self.block(&at, None, &keys::PRODIGY_LINEAR) {
                to.increment_ms = self.duration_of(&linear, "increment");
            }
        }
        if let Some(at) = block.get("exponential") {
            to.backoff = Some(Growth::Exponential);
            if let Some(exponential) = self.block(&at, None, &keys::PRODIGY_EXPONENTIAL) {
                to.multiplier = exponential.get("base").and_then(|at| self.number(&at));
            }
        }
    }

    /// Argyll's `work_config`, and the parallelism of the step that it also holds.
    pub(crate) fn work_config<'n>(&mut self, at: &At<'n>) -> Option<(PolicyBlock, Option<At<'n>>)> {
        let before = self.problems.len();
        let block = self.block(at, None, &keys::ARGYLL)?;
        let mut to = PolicyOverrides::default();
        if let Some(at) = block.get("max_retries") {
            let most = i64::from(u32::MAX) - 1;
            to.max_attempts = match at.node.scalar() {
                Some(Scalar::Int(-1)) => Some(Limit::Unlimited),
                Some(Scalar::Int(..-1)) => {
                    let message = "max_retries is 0 or more, or -1 for unlimited".to_owned();
                    self.bad("invalid_value", &at, message);
                    None
                }
                _ => self.int(&at, 0, most).map(|n| Limit::Count(n as u32 + 1)),
            };
        }
        if let Some(at) = block.get("backoff") {
            to.initial_delay_ms = self.milliseconds(&at);
        }
        if let Some(at) = block.get("max_backoff") {
            to.max_delay_ms = self.milliseconds(&at);
        }
        if let Some(at) = block.get("backoff_type") {
            let growth = self.word(&at, &GROWTHS[..3]);
            to.backoff = growth.cloned();
        }
        to.rules = self.rules(&block);
        let policy = PolicyBlock {
            source: Source::Argyll,
            path: at.path.clone(),
            overrides: to,
            broken: self.problems.len() > before,
            spellings: ARGYLL.to_vec(),
        };
        Some((policy, block.get("parallelism")))
    }

    /// Core checks it where it is used; here it is wrong even where it is not.
    fn multiplier(&mut self, at: &At) -> Option<f64> {
        let multiplier = self.number(at)?;
        if multiplier.is_finite() && multiplier >= 1.0 {
            return Some(multiplier);
        }
        let message = format!("multiplier must be a finite number, 1 or more, not {multiplier}");
        self.bad("invalid_value", at, message).help =
            Some("write `multiplier: 2.0`; `backoff: fixed` keeps the delay as it is".into());
        None
    }

    fn duration_of(&mut self, block: &Block, key: &str) -> Option<u64> {
        self.duration(&block.get(key)?)
    }

    fn growth(&mut self, at: &At) -> Option<Growth> {
        self.word(at, GROWTHS).cloned()
    }

    fn backoff(&mut self, at: &At) -> Option<Growth> {
        // As many as a person writes; a longer one would only slow every decision.
        const MOST: usize = 1000;
        if at.node.as_list().is_none() {
            return self.growth(at);
        }
        let items = self.list(at, "[1s, 5s]")?;
        if items.len() > MOST {
            let message = format!("{} delays; at most {MOST} are allowed", items.len());
            self.bad("too_large", at, message);
            return None;
        }
        let delays: Vec<_> = items.iter().map(|item| self.duration(item)).collect();
        delays.into_iter().collect::<Option<_>>().map(Growth::List)
    }

    fn jitter(&mut self, at: &At) -> Option<Jitter> {
        match at.node.scalar() {
            Some(Scalar::Int(_) | Scalar::Float(_)) => self.number(at).map(Jitter::Factor),
            Some(Scalar::Bool(written)) => {
                let message = format!("jitter is a kind of jitter, not {written}");
                let help = if written { "write `jitter: full`" } else { "write `jitter: none`" };
                self.bad("wrong_type", at, message).help = Some(help.into());
                None
            }
            _ => self.word(
                at,
                &[
                    ("none", Jitter::None),
                    ("full", Jitter::Full),
                    ("equal", Jitter::Equal),
                    ("decorrelated", Jitter::Decorrelated),
                ],
            ),
        }
    }

    fn exit_codes(&mut self, at: &At) -> Option<(Vec<i64>, Vec<i64>)> {
        let block = self.block(at, None, &keys::EXIT_CODES)?;
        let mut codes = |key| block.get(key).map_or(Some(vec![]), |at| self.codes(&at));
        codes("retry").zip(codes("stop"))
    }

    fn rules(&mut self, block: &Block) -> Option<Vec<RuleDraft>> {
        let example = "[{ exit: 75, then: defer }]";
        let rules = self.short_list(&block.get("rules")?, example, MAX_RULES, "rules")?;
        Some(rules.iter().map(|at| self.rule(at)).collect())
    }

    /// A regular expression. Those beyond what a file may have are not compiled.
    fn pattern(&mut self, at: &At) -> Option<String> {
        const MOST: usize = 1000;
        let text = self.text(at)?;
        if !self.patterns.contains(text) {
            if self.patterns.len() == MOST {
                let message = format!("at most {MOST} different regular expressions are allowed");
                self.bad("too_large", at, message);
                return None;
            }
            self.patterns.insert(text.to_owned());
        }
        Some(text.to_owned())
    }

    /// What could not be read still has its place in the list, so that those after it keep theirs.
    fn rule(&mut self, at: &At) -> RuleDraft {
        let mut rule = RuleDraft::default();
        let Some(block) = self.block(at, None, &keys::RULE) else {
            rule.timeout = true;
            return rule;
        };
        let mut whole = true;
        for (key, codes) in [
            ("exit", &mut rule.exit),
            ("signal", &mut rule.signal),
            ("http_status", &mut rule.http_status),
        ] {
            if let Some(at) = block.get(key) {
                *codes = self.codes(&at);
                whole &= codes.is_some();
            }
        }
        if let Some(at) = block.get("error") {
            rule.error = self.pattern(&at);
            whole &= rule.error.is_some();
        }
        if let Some(at) = block.get("timeout") {
            rule.timeout = self.flag(&at) == Some(true);
            if at.node.scalar() == Some(Scalar::Bool(false)) {
                let message = "a rule cannot match what did not happen".to_owned();
                self.bad("invalid_value", &at, message).help =
                    Some("write `timeout: true`, or remove it".into());
            }
            whole &= rule.timeout;
        }
        if let Some(at) = block.get("then") {
            let words = [
                ("retry", RuleAction::Retry),
                ("stop", RuleAction::Stop),
                ("defer", RuleAction::Defer),
            ];
            rule.then = self.word(&at, &words).unwrap_or_default();
        }
        rule.delay_ms = self.duration_of(&block, "delay");
        if !whole {
            // What matches nothing any more would be refused a second time.
            rule.timeout = true;
        }
        rule
    }
}
