//! Why a job is where it is. Every counterfactual is tried: the same job with the change made, the
//! same outcomes from the beginning, and the item is retried where it had stopped.

mod property;
mod told;
mod what_if;
mod would_change;

use std::sync::Arc;

use steadfast_core::decide::{Input, accept, advance};
use steadfast_core::event::{AcceptedJob, ItemId, RecordedEvent, Requester, Role};
use steadfast_core::explain::{Explanation, VerdictExplanation, explain};
use steadfast_core::job::{Job, Phase, Timer};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::{
    Action, Allowance, Budget, BudgetCounts, Plan, PlanDraft, Ratio, StepDraft,
};
use steadfast_core::policy::{Policy, PolicyDraft};
use steadfast_core::time::Timestamp;

fn step(name: &str, needs: &[&str], policy: PolicyDraft) -> StepDraft {
    let policy = Policy::new(policy).expect("valid");
    let mut step = StepDraft::new(name, Action::Run("true".into()), policy);
    step.needs = needs.iter().map(ToString::to_string).collect();
    step
}

fn one(policy: PolicyDraft) -> PlanDraft {
    PlanDraft::new("j", vec![step("s", &[], policy)])
}

fn defaults() -> PolicyDraft {
    PolicyDraft::default()
}

/// What happens to the only item of a job.
#[derive(Clone, Debug)]
enum Happens {
    /// It runs so long, then this is reported.
    Ends(Outcome, u64),
    /// The engine is down so long.
    Down(u64),
    Paused(u64),
}

fn exits(code: u8) -> Happens {
    Happens::Ends(FailureKind::Exited(code).into(), 0)
}

fn lost() -> Happens {
    Happens::Ends(Outcome::LOST, 0)
}

struct Driven {
    job: Job,
    log: Vec<RecordedEvent>,
    now: Timestamp,
}

impl Driven {
    fn new(draft: PlanDraft) -> Self {
        Self::of(Plan::new(draft).expect("valid"))
    }

    fn of(plan: Plan) -> Self {
        let now = Timestamp(1000);
        let (job, log) = accept(AcceptedJob::new("one".into(), Arc::new(plan)), now);
        Self { job, log, now }
    }

    fn input(&mut self, input: &Input) {
        let advanced = advance(&mut self.job, input, self.now).expect("fits");
        self.log.extend(advanced.log);
    }

    fn item(&self, step: &str, index: u32) -> ItemId {
        let step = self.job.plan.find(step).expect("a step");
        ItemId { run: 0, step, role: Role::Item, index }
    }

    fn start(&mut self, item: ItemId) {
        if self.job.live(item).is_some_and(|live| matches!(live.phase, Phase::BackingOff { .. })) {
            let timer = Timer::Retry(item);
            self.now = self.now.max(self.job.timer_due(&timer).expect("set"));
            self.input(&Input::Fired(timer));
        }
        self.input(&Input::Start { item, worker: "w1".into(), incarnation: None, least_token: 0 });
    }

    fn report(&mut self, item: ItemId, outcome: Outcome) {
        let token = self.job.live(item).expect("under way").token;
        self.input(&Input::Report { item, token, outcome });
    }

    fn run(&mut self, item: ItemId, outcome: Outcome) {
        self.start(item);
        self.report(item, outcome);
    }

    fn happen(&mut self, item: ItemId, what: &Happens) {
        match what {
            Happens::Ends(outcome, ms) => {
                self.start(item);
                self.now = self.now.plus(*ms);
                self.report(item, outcome.clone());
            }
            Happens::Down(ms) => {
                let down_since = self.now;
                self.now = self.now.plus(*ms);
                self.input(&Input::Restarted { down_since });
            }
            Happens::Paused(ms) => {
                self.input(&Input::Pause(Requester::NOBODY));
                self.now = self.now.plus(*ms);
                self.input(&Input::Resume(Requester::NOBODY));
            }
        }
    }

    fn explain(&self) -> Explanation {
        let explanation = explain(&self.log, self.now, None).expect("the log holds");
        for verdict in &explanation.verdicts {
            assert_eq!(verdict.disagrees, None);
        }
        explanation
    }

    fn last_verdict(&self) -> VerdictExplanation {
        self.explain().verdicts.pop().expect("a verdict")
    }
}

fn play(plan: Plan, script: &[Happens]) -> Driven {
    let mut job = Driven::of(plan);
    let item = job.item("s", 0);
    for happens in script {
        job.happen(item, happens);
    }
    job
}

fn budget(total: Option<u32>, per_step: Option<u32>, ratio: Option<Ratio>) -> Budget {
    let allow = |n: u32| Allowance { requested: n, effective: n };
    Budget {
        total: total.map(allow),
        per_step: per_step.map(allow),
        ratio,
        counts: BudgetCounts::Failures,
    }
}
