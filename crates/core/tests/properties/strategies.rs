//! Plans, policies and outcomes at random.

use proptest::prelude::*;
use steadfast_core::backoff::{Backoff, Jitter};
use steadfast_core::outcome::{Failure, FailureKind, Outcome, Permanence, RequestedDelay};
use steadfast_core::plan::{
    Action, AfterFailure, Allowance, BestEffort, Budget, BudgetCounts, ForEach, LateResults,
    MaxFailed, OnFailure, Plan, PlanDraft, Ratio, StepDraft,
};
use steadfast_core::policy::{Policy, PolicyDraft, RuleAction, RuleDraft};

pub(crate) fn action() -> Action {
    Action::Run("true".into())
}

pub(crate) fn backoffs() -> impl Strategy<Value = Backoff> {
    prop_oneof![
        Just(Backoff::Fixed),
        (0u64..5000).prop_map(|increment_ms| Backoff::Linear { increment_ms }),
        (1.0f64..10.0).prop_map(|multiplier| Backoff::Exponential { multiplier }),
        Just(Backoff::Exponential { multiplier: 1e308 }),
        Just(Backoff::Fibonacci),
        proptest::collection::vec(0u64..5000, 1..4).prop_map(Backoff::List),
    ]
}

pub(crate) fn jitters() -> impl Strategy<Value = Jitter> {
    prop_oneof![
        Just(Jitter::None),
        Just(Jitter::Full),
        Just(Jitter::Equal),
        Just(Jitter::Decorrelated),
        (0.0f64..=1.0).prop_map(Jitter::Factor),
    ]
}

pub(crate) fn policies() -> impl Strategy<Value = Policy> {
    let counts = (
        prop_oneof![3 => (1u32..5).prop_map(Some), 1 => Just(None)],
        prop::option::of(0u32..4),
        prop::option::of(0u32..4),
        any::<bool>(),
        prop::bool::weighted(0.9),
    );
    let times = (
        0u64..5000,
        prop::option::of(5000u64..9000),
        prop::option::of(0u64..20_000),
        prop::option::of(0u64..60_000),
    );
    let rule = RuleDraft {
        exit: Some(vec![75]),
        then: RuleAction::Defer,
        delay_ms: Some(3000),
        ..RuleDraft::default()
    };
    (counts, times, backoffs(), jitters(), any::<bool>()).prop_map(
        move |(counts, times, backoff, jitter, with_rules)| {
            let (max_attempts, max_preemptions, max_deferrals, written, retryable) = counts;
            let (initial_delay_ms, max_delay_ms, delay_budget_ms, window_ms) = times;
            Policy::new(PolicyDraft {
                max_attempts,
                retryable,
                backoff,
                initial_delay_ms,
                max_delay_ms,
                jitter,
                delay_budget_ms,
                window_ms,
                max_preemptions: max_preemptions.or(Some(2)),
                max_preemptions_written: written,
                max_deferrals: max_deferrals.or(Some(2)),
                exit_stop: vec![2],
                rules: if with_rules { vec![rule.clone()] } else { vec![] },
                ..PolicyDraft::default()
            })
            .expect("the strategy makes valid policies")
        },
    )
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<StepDraft>> {
    let step = (
        policies(),
        prop_oneof![
            2 => Just(ForEach::Once),
            2 => (0u32..6).prop_map(ForEach::Range),
            1 => Just(ForEach::Output { step: "s0".into(), path: vec![] }),
        ],
        prop::option::of(1u32..3),
        prop_oneof![
            Just(MaxFailed::Count(0)),
            Just(MaxFailed::Count(2)),
            Just(MaxFailed::Percent(50.0))
        ],
        prop::option::of(1u64..10_000),
        prop::option::of((any::<bool>(), any::<bool>())),
        any::<bool>(),
        any::<u8>(),
    );
    proptest::collection::vec(step, 1..5).prop_map(|steps| {
        let mut drafts = Vec::new();
        for (i, (policy, for_each, parallelism, max_failed, timeout, fallback, undo, needs)) in
            steps.into_iter().enumerate()
        {
            let mut step = StepDraft::new(&format!("s{i}"), action(), policy);
            step.needs = (0..i).filter(|j| needs >> j & 1 == 1).map(|j| format!("s{j}")).collect();
            if i > 0
                && matches!(for_each, ForEach::Output { .. })
                && !step.needs.contains(&"s0".into())
            {
                step.needs.push("s0".into());
            }
            if i > 0 || !matches!(for_each, ForEach::Output { .. }) {
                step.for_each = for_each;
            }
            step.parallelism = parallelism;
            step.max_failed = max_failed;
            step.timeout_ms = timeout;
            step.heartbeat_ms = timeout.filter(|_| undo).map(|ms| ms / 2 + 1);
            step.scheduling_timeout_ms = Some(3_600_000);
            step.on_failure = fallback.map(|(acts, goes_on)| OnFailure {
                action: acts.then(action),
                then: if goes_on { AfterFailure::Continue } else { AfterFailure::Fail },
            });
            step.compensate = undo.then(action);
            drafts.push(step);
        }
        drafts
    })
}

pub(crate) fn plans() -> impl Strategy<Value = Plan> {
    let allowance =
        |most| prop::option::of((0..most).prop_map(|n| Allowance { requested: n, effective: n }));
    let ratio = prop::option::of((0.0f64..1.0, 0u32..4));
    let budget = (allowance(12u32), allowance(5u32), ratio, any::<bool>()).prop_map(
        |(total, per_step, ratio, all)| Budget {
            total,
            per_step,
            ratio: ratio.map(|(ratio, floor)| Ratio { ratio, floor }),
            counts: if all { BudgetCounts::All } else { BudgetCounts::Failures },
        },
    );
    let best_effort = (1u32..4, 1u64..60_000, 0u64..5000, any::<bool>());
    (
        steps(),
        0usize..4,
        prop::option::of(best_effort),
        prop::option::of(budget),
        prop::option::of(1u64..120_000),
    )
        .prop_map(|(steps, datacenters, best_effort, budget, timeout_ms)| {
            let mut draft = PlanDraft::new("job", steps);
            draft.datacenters = (0..datacenters).map(|i| format!("dc{i}")).collect();
            draft.best_effort =
                best_effort.map(|(min, deadline_ms, grace_ms, update)| BestEffort {
                    min_datacenters: min.min(datacenters.max(1) as u32),
                    min_requested: None,
                    deadline_ms,
                    grace_ms,
                    late_results: if update {
                        LateResults::UpdateResult
                    } else {
                        LateResults::LogOnly
                    },
                });
            draft.budget = budget;
            draft.timeout_ms = timeout_ms;
            Plan::new(draft).expect("the strategy makes valid plans")
        })
}

pub(crate) fn outcome(choice: u8) -> Outcome {
    let failed = |kind| Failure::new(kind);
    match choice % 17 {
        0..3 => Outcome::OK,
        3 => Outcome::Succeeded { output: Some(serde_json::json!([1, 2])) },
        4..7 => FailureKind::Exited(1).into(),
        7 => FailureKind::Exited(2).into(),
        8 => FailureKind::Exited(75).into(),
        9 => FailureKind::Signalled(9).into(),
        10 => Outcome::Failed(Failure {
            asked: Some(RequestedDelay::RetryAfterMs(4000)),
            ..failed(FailureKind::NotCompleted)
        }),
        11 => Outcome::Failed(Failure {
            permanence: Permanence::Said,
            ..failed(FailureKind::HandlerFailed)
        }),
        12..14 => Outcome::LOST,
        14 => Outcome::NOT_BEGUN,
        15 => Outcome::handed_back(),
        _ => Outcome::Failed(Failure {
            asked: Some(RequestedDelay::DeferMs(1000)),
            ..failed(FailureKind::HandlerFailed)
        }),
    }
}
