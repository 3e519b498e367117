//! Keys of a `retry` block, laid over the policy that a step has: what a question about another policy is made of.

use serde_json::Value;
use steadfast_core::backoff::Backoff;
use steadfast_core::explain::PolicyChange;
use steadfast_core::plan::Plan;
use steadfast_core::policy::{Policy, PolicyDraft};

use crate::document::{Limits, document};
use crate::node::{Entry, Node};
use crate::operator::Operator;
use crate::policy::{Growth, Limit, PolicyOverrides, Source, Sources, policy_view};
use crate::problem::{Positions, Problem, sorted};
use crate::reader::{At, Reader};

/// A question is a few keys.
const MOST_BYTES: usize = 64 << 10;
const BUDGET: &str = "retry_budget";

/// What was written, checked.
#[derive(Clone, Debug)]
pub struct WrittenPolicyChange {
    pub change: PolicyChange,
    /// Each key that differs: what the first step that it differs in has, and what it would have. As [`policy_view`] shows them.
    pub keys: Vec<(&'static str, Value, Value)>,
}

/// Reads the keys of a `retry` block, and `retry_budget` beside them, as they would change a step of a plan, or all of them.
pub fn policy_change(
    plan: &Plan,
    only: Option<u32>,
    text: &[u8],
    operator: &Operator,
) -> Result<WrittenPolicyChange, Vec<Problem>> {
    let limits = Limits { max_bytes: MOST_BYTES, ..Limits::default() };
    let root = document("with.json", text, limits)?;
    let entries = root.as_map().unwrap_or_default().iter().cloned();
    let (budget, retry): (Vec<Entry>, Vec<Entry>) = entries.partition(|it| &*it.key == BUDGET);
    let block = if root.as_map().is_some() { Node::map(retry, root.span()) } else { root.clone() };
    let mut reader = Reader::new(operator);
    let read = reader.retry(&At { node: &block, path: String::new() }, Source::Step);
    let mut change = PolicyChange::default();
    for Entry { value, .. } in &budget {
        let at = At { node: value, path: BUDGET.to_owned() };
        change.budget = reader.native_budget(&at).and_then(|(budget, _)| budget);
    }
    let Some(read) = read.filter(|_| reader.problems.is_empty()) else {
        return Err(sorted(reader.problems));
    };
    let places = Positions::new(&root);
    let all = 0..plan.steps().len() as u32;
    let mut keys: Vec<(&'static str, Value, Value)> = vec![];
    for step in all.filter(|step| only.is_none_or(|only| only == *step)) {
        let own = &plan.step(step).policy;
        let policy = Policy::new(laid_over(&read.overrides, own.draft())).map_err(|wrong| {
            let problems = wrong.0.into_iter().map(|wrong| {
                let span = places.locate(&wrong.path);
                let mut problem = Problem::new(wrong.code, &wrong.path, span, wrong.message);
                problem.help = wrong.help;
                problem
            });
            sorted(problems.collect())
        })?;
        let views = [own, &policy].map(|policy| policy_view(policy, &Sources::default()));
        let [before, after] = views;
        for ((key, from, _), (_, to, _)) in before.into_iter().zip(after) {
            if from != to && !keys.iter().any(|(known, _, _)| *known == key) {
                keys.push((key, from, to));
            }
        }
        change.policies.insert(step, policy);
    }
    Ok(WrittenPolicyChange { change, keys })
}

fn laid_over(over: &PolicyOverrides, own: &PolicyDraft) -> PolicyDraft {
    let mut draft = own.clone();
    let limit = |limit: Option<Limit>, own| limit.map_or(own, Limit::count);
    draft.max_attempts = limit(over.max_attempts, own.max_attempts);
    draft.max_deferrals = limit(over.max_deferrals, own.max_deferrals);
    draft.max_preemptions = limit(over.max_preemptions, own.max_preemptions);
    draft.max_preemptions_written |= over.max_preemptions.is_some();
    draft.retryable = over.retryable.unwrap_or(own.retryable);
    draft.initial_delay_ms = over.initial_delay_ms.unwrap_or(own.initial_delay_ms);
    draft.max_delay_ms = over.max_delay_ms.or(own.max_delay_ms);
    draft.jitter = over.jitter.unwrap_or(own.jitter);
    draft.max_retry_after_ms = over.max_retry_after_ms.unwrap_or(own.max_retry_after_ms);
    draft.delay_budget_ms = over.delay_budget_ms.or(own.delay_budget_ms);
    draft.window_ms = over.window_ms.or(own.window_ms);
    if let Some((retry, stop)) = &over.exit_codes {
        (draft.exit_retry, draft.exit_stop) = (retry.clone(), stop.clone());
    }
    if let Some(rules) = &over.rules {
        draft.rules.clone_from(rules);
    }
    let own_growth = || match &own.backoff {
        Backoff::Fixed => Growth::Fixed,
        Backoff::Linear { .. } => Growth::Linear,
        Backoff::Exponential { .. } => Growth::Exponential,
        Backoff::Fibonacci => Growth::Fibonacci,
        Backoff::List(delays) => Growth::List(delays.clone()),
    };
    draft.backoff = match over.backoff.clone().unwrap_or_else(own_growth) {
        Growth::Fixed => Backoff::Fixed,
        Growth::Fibonacci => Backoff::Fibonacci,
        Growth::List(delays) => Backoff::List(delays),
        Growth::Linear => {
            let own = match own.backoff {
                Backoff::Linear { increment_ms } => increment_ms,
                _ => draft.initial_delay_ms,
            };
            Backoff::Linear { increment_ms: over.increment_ms.unwrap_or(own) }
        }
        Growth::Exponential => {
            let own = match own.backoff {
                Backoff::Exponential { multiplier } => multiplier,
                _ => 2.0,
            };
            Backoff::Exponential { multiplier: over.multiplier.unwrap_or(own) }
        }
    };
    draft
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan() -> Plan {
        let file = "name: j\nretry: { max_attempts: 4, initial_delay: 100ms, backoff: fixed }\n\
                    steps: { a: { run: x }, b: { run: x, retry: { max_attempts: 2 } } }";
        crate::load("j.yaml", file.as_bytes(), &Operator::default()).expect("valid").plan
    }

    fn changed(only: Option<u32>, with: &str) -> Result<WrittenPolicyChange, Vec<Problem>> {
        policy_change(&plan(), only, with.as_bytes(), &Operator::default())
    }

    #[test]
    fn keys_lie_over_what_each_step_has() {
        let read = changed(None, r#"{"max_attempts": 6, "max_delay": "200ms"}"#).expect("valid");
        assert_eq!(
            read.keys,
            [("max_attempts", json!(4), json!(6)), ("max_delay", json!(60_000), json!(200))]
        );
        for policy in read.change.policies.values() {
            let draft = policy.draft();
            assert_eq!((draft.max_attempts, draft.initial_delay_ms), (Some(6), 100));
            assert_eq!(draft.backoff, Backoff::Fixed);
        }
        let one = changed(Some(1), "max_attempts: unlimited\nbackoff: exponential").expect("valid");
        assert_eq!(one.change.policies.len(), 1);
        assert_eq!(one.keys[0], ("max_attempts", json!(2), Value::Null));
        let nothing = changed(None, "{}").expect("valid");
        assert!(nothing.keys.is_empty() && nothing.change.policies[&0] == plan().step(0).policy);
    }

    #[test]
    fn a_budget_stands_beside_them() {
        let read = changed(None, r#"{"retry_budget": {"total": 5}}"#).expect("valid");
        assert_eq!(read.change.budget.and_then(|it| it.total).map(|it| it.effective), Some(5));
    }

    #[test]
    fn what_is_wrong_is_told_as_in_a_job_file() {
        for (with, code, path) in [
            (r#"{"max_attempts": 0}"#, "invalid_value", "max_attempts"),
            (r#"{"max_atempts": 3}"#, "unknown_key", "max_atempts"),
            (r#"{"max_delay": "10ms"}"#, "invalid_value", "max_delay"),
            (r#"{"initial_delay": "soon"}"#, "invalid_duration", "initial_delay"),
            (r#"{"retry_budget": {"totl": 3}}"#, "unknown_key", "retry_budget.totl"),
            ("[1]", "wrong_type", ""),
            ("{", "syntax", ""),
        ] {
            let problems = changed(None, with).expect_err(with);
            assert_eq!((problems[0].code, &*problems[0].path), (code, path), "{problems:?}");
        }
    }
}
