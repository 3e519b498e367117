//! Logs that cannot have happened: refused at the event that cannot, without a panic and without endless work.

use std::sync::Arc;

use steadfast_core::apply::fold;
use steadfast_core::decide::{Input, accept, advance};
use steadfast_core::event::{AcceptedJob, RecordedEvent, Requester};
use steadfast_core::job::{Job, Timer};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{
    Action, AfterFailure, Allowance, Budget, BudgetCounts, ForEach, OnFailure, Plan, PlanDraft,
    StepDraft,
};
use steadfast_core::policy::{Policy, PolicyDraft};
use steadfast_core::time::Timestamp;
use steadfast_fuzz::{Fuzz, Random, Shape};

/// With items, a fallback, something to undo, a budget, and two datacenters.
fn plan() -> Plan {
    let run = || Action::Run("true".into());
    let policy = PolicyDraft { delay_budget_ms: Some(60_000), ..PolicyDraft::default() };
    let policy = Policy::new(policy).expect("valid");
    let step = |name: &str, needs: &[&str]| {
        let mut step = StepDraft::new(name, run(), policy.clone());
        step.needs = needs.iter().map(ToString::to_string).collect();
        step
    };
    let mut items = step("items", &[]);
    items.for_each = ForEach::Range(4);
    items.parallelism = Some(2);
    items.compensate = Some(run());
    let mut falls = step("falls", &["items"]);
    falls.on_failure = Some(OnFailure { action: Some(run()), then: AfterFailure::Fail });
    let mut draft = PlanDraft::new("p", vec![items, falls, step("last", &["falls"])]);
    draft.datacenters = vec!["eu".to_owned(), "us".to_owned()];
    let allowance = |count| Some(Allowance { requested: count, effective: count });
    draft.budget = Some(Budget {
        total: allowance(20),
        per_step: allowance(10),
        ratio: None,
        counts: BudgetCounts::All,
    });
    Plan::new(draft).expect("valid")
}

fn outcome(random: &mut Random) -> Outcome {
    match random.below(12) {
        0 => Outcome::LOST,
        1 => Outcome::NOT_BEGUN,
        2 | 3 => FailureKind::Exited(1).into(),
        4 => FailureKind::TimedOut.into(),
        _ => Outcome::Succeeded { output: Some(random.below(9).into()) },
    }
}

fn input(job: &Job, random: &mut Random) -> Option<Input> {
    let runs = job.runs.len() as u64;
    let next = job.next_startable(random.below(runs) as u32);
    let live: Vec<_> = job.all_live().filter(|(_, item)| item.is_under_way()).collect();
    let under_way = random.pick(&live).map(|(item, live)| (*item, live.token));
    Some(match random.below(20) {
        0..8 => Input::Start {
            item: next?,
            worker: "w".into(),
            incarnation: Some("i".into()),
            least_token: 0,
        },
        8..14 => {
            let (item, token) = under_way?;
            Input::Report { item, token, outcome: outcome(random) }
        }
        14 => {
            let (item, token) = under_way?;
            Input::Awaits { item, token }
        }
        15 => {
            let (item, token) = under_way?;
            Input::Callback { item, token, outcome: outcome(random) }
        }
        16 => Input::Restarted { down_since: job.last_at },
        17 => Input::Pause(Requester::NOBODY),
        18 => Input::Resume(Requester::NOBODY),
        _ => {
            let (item, token) = under_way?;
            let progress = Arc::new(random.below(100).into());
            Input::Progress { item, token, progress, by_callback: false }
        }
    })
}

/// What a job goes through, as a log has it.
fn log(seed: u64) -> String {
    let (random, now) = (&mut Random::new(seed), Timestamp(1000));
    let (mut job, mut log) = accept(AcceptedJob::new("j".into(), Arc::new(plan())), now);
    for _ in 0..150 {
        let due = job.timers().first().copied();
        // A timeout ends it, so it is rare.
        let due = due.filter(|(_, timer)| match timer {
            Timer::Retry(_) => random.one_in(2),
            _ => random.one_in(200),
        });
        let (input, at) = match due {
            Some((at, timer)) => (Some(Input::Fired(timer)), at),
            None => (input(&job, random), job.last_at.plus(random.below(500))),
        };
        let Some(input) = input else { continue };
        log.extend(advance(&mut job, &input, at).map(|done| done.log).unwrap_or_default());
    }
    if random.one_in(3) {
        let input = Input::Cancel(Requester::NOBODY);
        log.extend(advance(&mut job, &input, now).map(|done| done.log).unwrap_or_default());
    }
    // The first is the same in all.
    serde_json::to_string(&log[1..]).expect("JSON")
}

#[test]
fn a_log_that_cannot_have_happened_is_refused_and_does_no_harm() {
    let logs: Vec<String> = (0..12).map(log).collect();
    let is_long = |log: &&String| log.matches("AttemptStarted").count() > 8;
    assert!(logs.iter().filter(is_long).count() > 6, "they end too soon");
    let begun =
        Some(Job::accepted(&AcceptedJob::new("j".into(), Arc::new(plan())), Timestamp(1000)));
    let mut refused = 0;
    Fuzz::new(Shape::Text, 1500).corpus(&logs).run(|input| {
        let Ok(log) = serde_json::from_slice::<Vec<serde_json::Value>>(input) else { return };
        // Up to one that is no event.
        let log = log.into_iter().map_while(|record| serde_json::from_value(record).ok());
        let log: Vec<RecordedEvent> = log.collect();
        let mut state = begun.clone();
        let illegal = log.iter().find_map(|record| fold(&mut state, record).err());
        refused += u32::from(illegal.is_some());
        let Some(job) = state.filter(|_| illegal.is_none()) else { return };
        // What was not refused can be gone on with.
        let _ = (job.timers(), job.state(), job.is_over());
    });
    assert!(refused > 50 || std::env::var("FUZZ_CASE").is_ok(), "{refused}");
}
