//! Whatever stops an item, the change that is offered makes it a retry, and less would not.

use crate::what_if::what_if;
use crate::{Driven, budget, defaults, step};

use proptest::prelude::*;
use steadfast_core::apply::replay;
use steadfast_core::backoff::{Backoff, Jitter};
use steadfast_core::event::{Event, RecordedEvent};
use steadfast_core::explain::{Change, DecisionSummary, PolicyChange, VerdictExplanation};
use steadfast_core::job::Phase;
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{ForEach, MaxFailed, PlanDraft, Ratio};
use steadfast_core::policy::{Policy, PolicyDraft, RuleAction, RuleDraft};
use steadfast_core::verdict::{Cause, Decision, verdict};

fn policies() -> impl Strategy<Value = PolicyDraft> {
    let counts = (
        prop_oneof![3 => (1u32..4).prop_map(Some), 1 => Just(None)],
        0u32..3,
        0u32..3,
        any::<bool>(),
        prop::bool::weighted(0.8),
    );
    let times = (0u64..3000, prop::option::of(0u64..8000), prop::option::of(0u64..15_000));
    let jitter = prop_oneof![Just(Jitter::None), Just(Jitter::Full), Just(Jitter::Decorrelated)];
    let lists = (any::<bool>(), any::<bool>(), any::<bool>());
    (counts, times, jitter, lists).prop_map(|(counts, times, jitter, (stop, retry, ruled))| {
        let rule = |code, then| RuleDraft { exit: Some(vec![code]), then, ..RuleDraft::default() };
        PolicyDraft {
            max_attempts: counts.0,
            max_preemptions: Some(counts.1),
            max_deferrals: Some(counts.2),
            max_preemptions_written: counts.3,
            retryable: counts.4,
            initial_delay_ms: times.0,
            delay_budget_ms: times.1,
            window_ms: times.2,
            backoff: Backoff::Exponential { multiplier: 2.0 },
            jitter,
            exit_stop: if stop { vec![2] } else { vec![] },
            exit_retry: if retry { vec![1, 2] } else { vec![] },
            rules: if ruled {
                vec![rule(75, RuleAction::Defer), rule(76, RuleAction::Stop)]
            } else {
                vec![]
            },
            ..defaults()
        }
    })
}

fn outcome(choice: u8) -> Outcome {
    match choice % 12 {
        0 => Outcome::OK,
        1..4 => FailureKind::Exited(1).into(),
        4 => FailureKind::Exited(2).into(),
        5 => FailureKind::Exited(75).into(),
        6 => FailureKind::Exited(76).into(),
        7 => FailureKind::TimedOut.into(),
        8 => Outcome::from_http_status(404),
        9 => Outcome::NOT_BEGUN,
        _ => Outcome::LOST,
    }
}

/// The change with its number one smaller: it must not be enough.
fn one_less(change: &Change) -> Option<Change> {
    let mut less = change.clone();
    match &mut less {
        Change::MaxAttempts { to, .. }
        | Change::MaxPreemptions { from: Some(_), to }
        | Change::MaxDeferrals { to, .. }
        | Change::JobBudget { to, .. }
        | Change::StepBudget { to, .. } => *to -= 1,
        Change::DelayBudget { to_ms, .. }
        | Change::Window { to_ms, .. }
        | Change::Timeout { to_ms, .. } => *to_ms -= 1,
        _ => return None,
    }
    Some(less)
}

/// What `verdict` says where `explained` was given, with the changes made.
fn asked_again(
    log: &[RecordedEvent],
    explained: &VerdictExplanation,
    changes: &[Change],
) -> Decision {
    let ended = explained.seq as usize - 2;
    let job = replay(&log[..ended]).expect("holds");
    let Event::AttemptEnded { item, attempt, outcome, .. } = &log[ended].event else {
        panic!("a verdict follows an attempt")
    };
    let history = job.live(*item).expect("it ran").history;
    let mut shared = job.shared(*item, *attempt);
    let mut draft = job.plan.step(item.step).policy.draft().clone();
    for change in changes {
        change.apply(&mut draft, &mut shared);
    }
    let policy = Policy::new(draft).expect("valid");
    verdict(&policy, &history, &shared, outcome, explained.at).decision
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn whatever_stops_is_retried_with_what_would_have_changed_it(
        policy in policies(),
        limits in (prop::option::of(0u32..6), prop::option::of(0u32..4), prop::option::of(0u32..6)),
        timeout_ms in prop::option::of(1u64..20_000),
        happens in proptest::collection::vec((0u32..4, any::<u8>(), 0u64..500), 1..40),
    ) {
        let mut fan = step("s", &[], policy);
        fan.for_each = ForEach::Range(4);
        fan.max_failed = MaxFailed::Count(4);
        let (total, per_step, floor) = limits;
        let ratio = floor.map(|floor| Ratio { ratio: 0.5, floor });
        let mut job = Driven::new(PlanDraft {
            budget: Some(budget(total, per_step, ratio)),
            timeout_ms,
            ..PlanDraft::new("j", vec![fan])
        });
        // All have started, so that any of them can be next.
        let ids: Vec<_> = (0..4).map(|index| job.item("s", index)).collect();
        for &item in &ids {
            job.start(item);
        }
        for (index, choice, ms) in happens {
            let item = ids[index as usize];
            let Some(live) = job.job.live(item) else { continue };
            if live.phase != Phase::Running {
                job.start(item);
            }
            job.now = job.now.plus(ms);
            job.report(item, outcome(choice));
        }
        // The same policy decides the same.
        let same = what_if(&job.log, PolicyChange::default());
        prop_assert_eq!(same.differs, 0, "{}", same.summary);
        let explanation = job.explain();
        prop_assert_eq!(same.verdicts.len(), explanation.verdicts.len());
        for explained in &explanation.verdicts {
            let DecisionSummary::Stop { reason } = explained.decision else { continue };
            let Some(would) = &explained.would_change else {
                panic!("{reason}: nothing, although {:?}", explained.nothing_would);
            };
            let again = asked_again(&job.log, explained, &would.changes);
            let Decision::Retry { cause, delay_ms, .. } = again else {
                panic!("{}: {again:?}", would.text);
            };
            prop_assert_eq!(delay_ms, would.delay_ms);
            prop_assert!(would.changes.len() <= 6);
            for (i, change) in would.changes.iter().enumerate() {
                // A job's timeout is told so that the retry comes before it, whatever the cause.
                let exact = cause == Cause::Failure || !matches!(change, Change::Timeout { .. });
                let Some(less) = one_less(change).filter(|_| exact) else { continue };
                let mut changes = would.changes.clone();
                changes[i] = less;
                let not_enough = matches!(
                    asked_again(&job.log, explained, &changes), Decision::Stop { .. }
                );
                prop_assert!(not_enough, "less than `{:?}` is enough", change);
            }
        }
        serde_json::to_string(&explanation).expect("serializes");
    }
}
