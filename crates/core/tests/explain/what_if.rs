//! Recorded outcomes judged anew: as the same job with the other policy would have judged them.

use std::collections::BTreeMap;

use steadfast_core::event::RecordedEvent;
use steadfast_core::explain::{BudgetAuditor, DecisionSummary, PolicyChange, WhatIf, WhatIfJudge};
use steadfast_core::plan::{ForEach, MaxFailed, Plan, PlanDraft};
use steadfast_core::policy::{Policy, PolicyDraft};
use steadfast_core::select::ItemSelector;
use steadfast_core::verdict::StopReason;

use crate::{Driven, Happens, budget, defaults, exits, lost, one, play, step};

pub(crate) fn what_if(log: &[RecordedEvent], change: PolicyChange) -> WhatIf {
    let mut judge = WhatIfJudge::new(change, ItemSelector::default());
    log.iter().try_for_each(|record| judge.see(record)).expect("the log holds");
    judge.what_if().expect("the log holds")
}

fn with(policy: PolicyDraft) -> PolicyChange {
    let policies = BTreeMap::from([(0, Policy::new(policy).expect("valid"))]);
    PolicyChange { policies, budget: None }
}

fn short(judged: &WhatIf) -> Vec<String> {
    let judged = judged.verdicts.iter();
    judged
        .map(|it| match it.judged {
            None => format!("{} → -", it.recorded),
            Some(judged) => format!("{} → {judged}", it.recorded),
        })
        .collect()
}

#[test]
fn a_later_limit_is_a_retry_after_which_nothing_is_known() {
    let job = play(Plan::new(one(defaults())).expect("valid"), &[exits(1), exits(1), exits(1)]);
    let judged = what_if(&job.log, with(PolicyDraft { max_attempts: Some(4), ..defaults() }));
    assert_eq!(
        short(&judged),
        [
            "retry in 1s → retry in 1s",
            "retry in 2s → retry in 2s",
            "stop, attempts_exhausted → retry in 4s"
        ]
    );
    let last = judged.verdicts.last().expect("three");
    assert!(last.differs && last.note.as_deref().is_some_and(|note| note.contains("not known")));
    assert_eq!((judged.differs, judged.left_out), (1, 0));
    assert_eq!(
        judged.summary,
        "1 of 3 decisions differs: s attempt 3 retry in 4s instead of stop, attempts_exhausted"
    );
    let accounts = last.judged_accounts.expect("judged");
    assert_eq!(
        (accounts.failures, accounts.max_attempts, accounts.delay_spent_ms),
        (3, Some(4), 7000)
    );
}

#[test]
fn an_earlier_limit_makes_the_later_attempts_unreal() {
    let job = play(Plan::new(one(defaults())).expect("valid"), &[exits(1), exits(1), exits(1)]);
    let judged = what_if(&job.log, with(PolicyDraft { max_attempts: Some(1), ..defaults() }));
    assert_eq!(
        short(&judged),
        [
            "retry in 1s → stop, attempts_exhausted",
            "retry in 2s → -",
            "stop, attempts_exhausted → -"
        ]
    );
    assert_eq!(judged.differs, 3);
    let note = judged.verdicts[1].note.as_deref().expect("a note");
    assert!(note.starts_with("would not have been") && note.ends_with("attempt 1"), "{note}");
    assert!(judged.verdicts[1].judged_accounts.is_none());
}

#[test]
fn earlier_judged_charges_count_in_later_ones() {
    let draft = PolicyDraft { delay_budget_ms: Some(60_000), max_attempts: None, ..defaults() };
    let job = play(Plan::new(one(draft.clone())).expect("valid"), &vec![exits(1); 4]);
    let slower = PolicyDraft { initial_delay_ms: 10_000, ..draft };
    let judged = what_if(&job.log, with(slower));
    // 10 s and 20 s are spent, and 40 s more are too much.
    assert_eq!(
        short(&judged),
        [
            "retry in 1s → retry in 10s",
            "retry in 2s → retry in 20s",
            "retry in 4s → stop, delay_budget_exhausted",
            "retry in 8s → -"
        ]
    );
}

#[test]
fn another_budget_moves_what_others_share() {
    let mut fan = step("s", &[], PolicyDraft { max_attempts: Some(9), ..defaults() });
    fan.for_each = ForEach::Range(2);
    fan.max_failed = MaxFailed::Count(2);
    let mut job = Driven::new(PlanDraft {
        budget: Some(budget(Some(3), None, None)),
        ..PlanDraft::new("j", vec![fan])
    });
    let [a, b] = [0, 1].map(|index| job.item("s", index));
    for item in [a, b, a, b] {
        job.run(item, steadfast_core::outcome::FailureKind::Exited(1).into());
    }
    let change =
        PolicyChange { budget: Some(budget(Some(1), None, None)), ..PolicyChange::default() };
    let judged = what_if(&job.log, change);
    assert_eq!(
        short(&judged),
        [
            "retry in 1s → retry in 1s",
            "retry in 1s → stop, job_budget_exhausted",
            "retry in 2s → stop, job_budget_exhausted",
            "stop, job_budget_exhausted → -"
        ]
    );
    let mut auditor = BudgetAuditor::default();
    job.log.iter().try_for_each(|record| auditor.see(record)).expect("holds");
    let used = auditor.budget_use().expect("holds");
    assert_eq!((used.total.used, used.total.limit, used.left_out), (3, Some(3), 0));
    let drawn: Vec<_> = used
        .draws
        .iter()
        .map(|draw| (draw.item.name.as_str(), draw.job_retries_before, draw.job_retries_after))
        .collect();
    assert_eq!(drawn, [("s[0]", 0, 1), ("s[1]", 1, 2), ("s[0]", 2, 3)]);
    assert_eq!((used.per_step[0].step.as_str(), used.per_step[0].account.used), ("s", 3));
}

#[test]
fn a_loss_and_a_restart_are_judged_as_they_were() {
    let draft = PolicyDraft { delay_budget_ms: Some(5000), ..defaults() };
    let script = [lost(), lost(), lost(), exits(1), Happens::Down(20_000)];
    let job = play(Plan::new(one(draft.clone())).expect("valid"), &script);
    let same = what_if(&job.log, PolicyChange::default());
    assert_eq!((same.differs, same.verdicts.len()), (0, 5), "{:?}", short(&same));
    assert_eq!(same.summary, "none of 5 decisions differs");
    let last = same.verdicts.last().expect("five").judged;
    let reason = StopReason::DelayBudgetExhausted;
    assert_eq!(last, Some(DecisionSummary::Stop { reason }));
    let longer = what_if(&job.log, with(PolicyDraft { delay_budget_ms: Some(90_000), ..draft }));
    assert_eq!(longer.differs, 1, "{:?}", short(&longer));
}

#[test]
fn the_limit_that_binds_next_is_told_with_what_is_left() {
    let draft = PolicyDraft { max_attempts: Some(5), delay_budget_ms: Some(100_000), ..defaults() };
    let job = play(Plan::new(one(draft.clone())).expect("valid"), &[exits(1), exits(1)]);
    let binding = |job: &Driven| job.explain().waiting[0].binding.clone().expect("of an item");
    let by_count = binding(&job);
    assert_eq!(by_count.limit, "max_attempts");
    assert_eq!(by_count.sentence, "3 attempts or 1m37s of delay, whichever first");
    let job = play(
        Plan::new(one(PolicyDraft { delay_budget_ms: Some(9000), ..draft })).expect("valid"),
        &[exits(1), exits(1)],
    );
    assert_eq!(binding(&job).limit, "delay_budget");
    let endless = PolicyDraft { max_attempts: None, ..defaults() };
    let job = play(Plan::new(one(endless)).expect("valid"), &[exits(1)]);
    assert_eq!(
        (binding(&job).limit.as_str(), binding(&job).sentence.as_str()),
        ("none", "no limit")
    );
}
