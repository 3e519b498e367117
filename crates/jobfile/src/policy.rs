//! Blocks of retry rules laid over each other, and where each effective value came from.
//!
//! What is valid is core's to say: here things are only chosen.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use steadfast_core::backoff::{Backoff, Jitter};
use steadfast_core::policy::{Policy, PolicyDraft, RuleDraft};

/// The keys of a policy, in the order in which they are shown.
pub const KEYS: [&str; 15] = [
    "max_attempts",
    "retryable",
    "backoff",
    "initial_delay",
    "max_delay",
    "multiplier",
    "increment",
    "jitter",
    "max_retry_after",
    "delay_budget",
    "window",
    "max_preemptions",
    "max_deferrals",
    "exit_codes",
    "rules",
];

/// Who gave a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    #[default]
    Default,
    Operator,
    Job,
    Step,
    /// The operator's limit on what was asked for.
    Ceiling,
    Tasker,
    Prodigy,
    Argyll,
    Fluster,
    Ad44,
}

impl Source {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Operator => "operator",
            Self::Job => "job",
            Self::Step => "step",
            Self::Ceiling => "ceiling",
            Self::Tasker => "tasker",
            Self::Prodigy => "prodigy",
            Self::Argyll => "argyll",
            Self::Fluster => "fluster",
            Self::Ad44 => "ad44",
        }
    }
}

/// The source of each key, in the order of [`KEYS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources([Source; KEYS.len()]);

impl Sources {
    pub fn get(&self, key: &str) -> Source {
        place(key).map_or(Source::Default, |place| self.0[place])
    }

    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Source)> {
        KEYS.into_iter().zip(self.0)
    }

    /// Of the keys that are not left to their default, as a plan keeps them.
    pub(crate) fn given(&self) -> BTreeMap<String, String> {
        let given = self.iter().filter(|(_, source)| *source != Source::Default);
        given.map(|(key, source)| (key.to_owned(), source.name().to_owned())).collect()
    }
}

fn place(key: &str) -> Option<usize> {
    KEYS.iter().position(|known| *known == key)
}

/// How delays grow, without the numbers that say how fast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Growth {
    Fixed,
    Linear,
    Exponential,
    Fibonacci,
    List(Vec<u64>),
}

/// A count, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Count(u32),
    Unlimited,
}

impl Limit {
    /// As core says it: none is unlimited.
    pub const fn count(self) -> Option<u32> {
        match self {
            Self::Count(count) => Some(count),
            Self::Unlimited => None,
        }
    }
}

/// The keys that one block writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyOverrides {
    pub max_attempts: Option<Limit>,
    pub retryable: Option<bool>,
    pub backoff: Option<Growth>,
    pub initial_delay_ms: Option<u64>,
    pub max_delay_ms: Option<u64>,
    pub multiplier: Option<f64>,
    pub increment_ms: Option<u64>,
    pub jitter: Option<Jitter>,
    pub max_retry_after_ms: Option<u64>,
    pub delay_budget_ms: Option<u64>,
    pub window_ms: Option<u64>,
    pub max_preemptions: Option<Limit>,
    pub max_deferrals: Option<Limit>,
    /// Those that are retried, and those that are not.
    pub exit_codes: Option<(Vec<i64>, Vec<i64>)>,
    pub rules: Option<Vec<RuleDraft>>,
}

impl PolicyOverrides {
    pub fn writes(&self, key: &str) -> bool {
        match key {
            "max_attempts" => self.max_attempts.is_some(),
            "retryable" => self.retryable.is_some(),
            "backoff" => self.backoff.is_some(),
            "initial_delay" => self.initial_delay_ms.is_some(),
            "max_delay" => self.max_delay_ms.is_some(),
            "multiplier" => self.multiplier.is_some(),
            "increment" => self.increment_ms.is_some(),
            "jitter" => self.jitter.is_some(),
            "max_retry_after" => self.max_retry_after_ms.is_some(),
            "delay_budget" => self.delay_budget_ms.is_some(),
            "window" => self.window_ms.is_some(),
            "max_preemptions" => self.max_preemptions.is_some(),
            "max_deferrals" => self.max_deferrals.is_some(),
            "exit_codes" => self.exit_codes.is_some(),
            "rules" => self.rules.is_some(),
            _ => false,
        }
    }
}

/// A block as it stands in a file.
#[derive(Clone, Debug)]
pub(crate) struct PolicyBlock {
    pub(crate) source: Source,
    /// `steps.fetch.retry`
    pub(crate) path: String,
    pub(crate) overrides: PolicyOverrides,
    /// Something in it could not be read, so that what is missing may have been written.
    pub(crate) broken: bool,
    /// Keys that this block writes under another name, perhaps deeper inside.
    pub(crate) spellings: Vec<(&'static str, &'static str)>,
}

impl PolicyBlock {
    /// Native blocks lie over others; a dialect's block is all there is.
    pub(crate) fn inherits(&self) -> bool {
        matches!(self.source, Source::Job | Source::Step)
    }

    pub(crate) fn writes(&self, key: &str) -> bool {
        self.overrides.writes(key)
    }

    /// Where this block writes a key of the policy, in its own spelling.
    pub(crate) fn path_of(&self, key: &str) -> String {
        format!("{}.{}", self.path, self.spelling(key))
    }

    /// Core's words about a policy, with this block's names for its keys.
    pub(crate) fn spell(&self, text: &str) -> String {
        let others = KEYS.into_iter().filter(|key| *key != "jitter");
        others.fold(text.to_owned(), |text, key| {
            let spelling = self.spelling(key);
            let last = spelling.rsplit('.').next().unwrap_or(key);
            if last == key { text } else { text.replace(key, last) }
        })
    }

    pub(crate) fn spelling<'k>(&self, key: &'k str) -> &'k str {
        let spelled = self.spellings.iter().find(|(known, _)| *known == key);
        spelled.map_or(key, |(_, spelling)| spelling)
    }
}

/// The blocks that hold for a step, or for the job, the nearest first.
pub(crate) fn layers<'a>(
    step: Option<&'a PolicyBlock>,
    job: Option<&'a PolicyBlock>,
    operator: &'a PolicyOverrides,
) -> Vec<(Source, &'a PolicyOverrides)> {
    let mut layers = Vec::with_capacity(3);
    for block in step.into_iter().chain(job) {
        layers.push((block.source, &block.overrides));
        if !block.inherits() {
            return layers;
        }
    }
    layers.push((Source::Operator, operator));
    layers
}

/// Key by key the nearest value, and the default where there is none.
pub(crate) fn merge(layers: &[(Source, &PolicyOverrides)]) -> (PolicyDraft, Sources) {
    let mut sources = Sources::default();
    for (place, key) in KEYS.into_iter().enumerate() {
        if let Some((source, _)) = layers.iter().find(|(_, block)| block.writes(key)) {
            sources.0[place] = *source;
        }
    }
    let base = PolicyDraft::default();
    let initial_delay_ms = nearest(layers, |b| &b.initial_delay_ms, base.initial_delay_ms);
    let backoff = match nearest(layers, |b| &b.backoff, Growth::Exponential) {
        Growth::Fixed => Backoff::Fixed,
        Growth::Fibonacci => Backoff::Fibonacci,
        Growth::List(delays) => Backoff::List(delays),
        Growth::Linear => {
            Backoff::Linear { increment_ms: nearest(layers, |b| &b.increment_ms, initial_delay_ms) }
        }
        Growth::Exponential => {
            Backoff::Exponential { multiplier: nearest(layers, |b| &b.multiplier, 2.0) }
        }
    };
    let mut max_delay_ms = layers.iter().find_map(|(_, block)| block.max_delay_ms);
    if sources.get("max_delay") == Source::Operator {
        // Like the built-in default it yields to a longer first delay: a file's author cannot
        // know it.
        max_delay_ms = max_delay_ms.map(|max| max.max(longest_first(&backoff, initial_delay_ms)));
    }
    let (exit_retry, exit_stop) = nearest(layers, |b| &b.exit_codes, (vec![], vec![]));
    let in_file = !matches!(sources.get("max_preemptions"), Source::Default | Source::Operator);
    let limit = |of: fn(&PolicyOverrides) -> Option<Limit>, default| {
        let written = layers.iter().find_map(|(_, block)| of(block));
        written.map_or(default, Limit::count)
    };
    let draft = PolicyDraft {
        max_attempts: limit(|b| b.max_attempts, base.max_attempts),
        retryable: nearest(layers, |b| &b.retryable, base.retryable),
        backoff,
        initial_delay_ms,
        max_delay_ms,
        jitter: nearest(layers, |b| &b.jitter, base.jitter),
        max_retry_after_ms: nearest(layers, |b| &b.max_retry_after_ms, base.max_retry_after_ms),
        delay_budget_ms: layers.iter().find_map(|(_, b)| b.delay_budget_ms),
        window_ms: layers.iter().find_map(|(_, b)| b.window_ms),
        max_preemptions: limit(|b| b.max_preemptions, base.max_preemptions),
        max_preemptions_written: in_file,
        max_deferrals: limit(|b| b.max_deferrals, base.max_deferrals),
        exit_retry,
        exit_stop,
        rules: nearest(layers, |b| &b.rules, base.rules),
    };
    (draft, sources)
}

fn nearest<T: Clone>(
    layers: &[(Source, &PolicyOverrides)],
    of: impl Fn(&PolicyOverrides) -> &Option<T>,
    default: T,
) -> T {
    layers.iter().find_map(|(_, block)| of(block).clone()).unwrap_or(default)
}

pub(crate) fn longest_first(backoff: &Backoff, initial_delay_ms: u64) -> u64 {
    match backoff {
        Backoff::List(delays) => delays.iter().copied().max().unwrap_or(0),
        _ => initial_delay_ms,
    }
}

/// Why a policy never looks at a key, if so.
pub(crate) fn unused(draft: &PolicyDraft, key: &str) -> Option<&'static str> {
    let decorrelated = draft.jitter == Jitter::Decorrelated;
    match (key, &draft.backoff) {
        ("backoff" | "multiplier" | "increment", _) if decorrelated => {
            Some("decorrelated jitter computes its delays from `initial_delay` alone")
        }
        ("multiplier", Backoff::Exponential { .. }) | ("increment", Backoff::Linear { .. }) => None,
        ("multiplier", _) => Some("only exponential backoff multiplies"),
        ("increment", _) => Some("only linear backoff has an increment"),
        ("initial_delay", Backoff::List(_)) if !decorrelated => Some("`backoff` lists every delay"),
        _ => None,
    }
}

/// What `plan` shows of a policy: each key, its effective value and where that came from.
/// Durations are milliseconds; null is unlimited, none, or not used by this backoff.
pub fn policy_view(policy: &Policy, sources: &Sources) -> Vec<(&'static str, Value, Source)> {
    let draft = policy.draft();
    let view = |(key, source)| {
        let value = match key {
            "max_attempts" => json!(draft.max_attempts),
            "retryable" => json!(draft.retryable),
            "backoff" => match &draft.backoff {
                Backoff::Fixed => json!("fixed"),
                Backoff::Linear { .. } => json!("linear"),
                Backoff::Exponential { .. } => json!("exponential"),
                Backoff::Fibonacci => json!("fibonacci"),
                Backoff::List(delays) => json!(delays),
            },
            "initial_delay" => json!(draft.initial_delay_ms),
            "max_delay" => json!(policy.delays().max_ms()),
            "multiplier" => match draft.backoff {
                Backoff::Exponential { multiplier } => json!(multiplier),
                _ => return (key, Value::Null, Source::Default),
            },
            "increment" => match draft.backoff {
                Backoff::Linear { increment_ms } => json!(increment_ms),
                _ => return (key, Value::Null, Source::Default),
            },
            "jitter" => match draft.jitter {
                Jitter::None => json!("none"),
                Jitter::Full => json!("full"),
                Jitter::Equal => json!("equal"),
                Jitter::Decorrelated => json!("decorrelated"),
                Jitter::Factor(factor) => json!(factor),
            },
            "max_retry_after" => json!(draft.max_retry_after_ms),
            "delay_budget" => json!(draft.delay_budget_ms),
            "window" => json!(draft.window_ms),
            "max_preemptions" => json!(draft.max_preemptions),
            "max_deferrals" => json!(draft.max_deferrals),
            "exit_codes" => json!({ "retry": draft.exit_retry, "stop": draft.exit_stop }),
            _ => Value::Array(draft.rules.iter().map(rule_view).collect()),
        };
        (key, value, source)
    };
    sources.iter().map(view).collect()
}

/// A rule as the file spells it.
fn rule_view(rule: &RuleDraft) -> Value {
    let mut view = serde_json::Map::new();
    for (key, codes) in
        [("exit", &rule.exit), ("signal", &rule.signal), ("http_status", &rule.http_status)]
    {
        if let Some(codes) = codes {
            view.insert(key.into(), json!(codes));
        }
    }
    if let Some(error) = &rule.error {
        view.insert("error".into(), json!(error));
    }
    if rule.timeout {
        view.insert("timeout".into(), json!(true));
    }
    view.insert("then".into(), json!(rule.then));
    if let Some(delay_ms) = rule.delay_ms {
        view.insert("delay".into(), json!(delay_ms));
    }
    Value::Object(view)
}
