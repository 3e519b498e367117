//! Failed attempts that are all to be retried, to decide about: a workload, and a probe of how fast the machine is.

use std::hint::black_box;

use steadfast_core::account::{History, SharedAccounts};
use steadfast_core::backoff::{Jitter, JitterSeed};
use steadfast_core::outcome::{ErrorText, Failure, FailureKind, Outcome};
use steadfast_core::plan::BudgetCounts;
use steadfast_core::policy::{Policy, PolicyDraft, RuleAction, RuleDraft};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::{Decision, Verdict, verdict};

/// A thousand items under one policy.
#[derive(Debug)]
pub(crate) struct Retries {
    policy: Policy,
    items: Vec<(History, Outcome, u32)>,
    seed: JitterSeed,
}

impl Retries {
    /// `texts`: the outcomes carry error texts, which five of the rules search.
    pub(crate) fn new(texts: bool) -> Self {
        let seed = JitterSeed::new("01890000-job", Some("eu-west"), "fetch");
        let it = Self { policy: busy_policy(), items: different_items(texts), seed };
        let is_retry = |item| matches!(it.verdict_on(item).decision, Decision::Retry { .. });
        assert!(it.items.iter().all(is_retry), "the benchmark is about retries");
        it
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// One verdict for each item.
    pub(crate) fn decide(&self) {
        for item in &self.items {
            black_box(self.verdict_on(black_box(item)));
        }
    }

    fn verdict_on(&self, (history, outcome, item): &(History, Outcome, u32)) -> Verdict {
        let shared = SharedAccounts {
            job_retries: 10,
            job_budget: Some(1000),
            step_retries: 5,
            step_budget: Some(1000),
            budgeted: Some(BudgetCounts::Failures),
            timeout_at: Some(Timestamp(u64::MAX)),
            ..SharedAccounts::alone(self.seed.draw(*item, history.attempts))
        };
        verdict(&self.policy, history, &shared, outcome, Timestamp(2_000_000))
    }
}

/// Jitter, both budgets, a window, exit lists and twenty rules of all kinds, none of which matches.
fn busy_policy() -> Policy {
    let mut rules = vec![];
    for i in 0..5 {
        let base = RuleDraft { then: RuleAction::Stop, ..RuleDraft::default() };
        rules.push(RuleDraft { exit: Some(vec![100 + i, 110 + i]), ..base.clone() });
        rules.push(RuleDraft { signal: Some(vec![20 + i]), ..base.clone() });
        rules.push(RuleDraft { http_status: Some(vec![410 + i, 420 + i]), ..base.clone() });
        rules.push(RuleDraft { error: Some(format!("quota {i} (exceeded|spent)")), ..base });
    }
    Policy::new(PolicyDraft {
        max_attempts: None,
        jitter: Jitter::Full,
        delay_budget_ms: Some(u64::from(u32::MAX)),
        window_ms: Some(u64::from(u32::MAX)),
        exit_retry: (1..100).collect(),
        exit_stop: vec![200, 201],
        rules,
        ..PolicyDraft::default()
    })
    .expect("valid")
}

/// A thousand items, each with another history and another outcome.
fn different_items(texts: bool) -> Vec<(History, Outcome, u32)> {
    let item = |i: u32| {
        let history = History {
            attempts: i % 90,
            failures: i % 90,
            preemptions: i % 7,
            delay_spent_ms: u64::from(i) * 1000,
            last_delay_ms: Some(u64::from(i)),
            first_failure_at: Some(Timestamp(u64::from(i))),
            ..History::default()
        };
        let message = format!("worker {i}: connection reset by peer after {i} bytes");
        let failure = Failure {
            error: texts.then_some(ErrorText { kind: None, message }),
            ..Failure::new(FailureKind::Exited((i % 99) as u8 + 1))
        };
        (history, Outcome::Failed(failure), i)
    };
    (0..1000).map(item).collect()
}
