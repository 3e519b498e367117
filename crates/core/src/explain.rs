//! Why a job is where it is: what each item waits for and until when, which check gave each
//! verdict, and what would have changed it.
//!
//! The log is folded again, so that every verdict is seen with the state it was given on, and
//! [`verdict`] is asked again: what is explained is what decided, never a second opinion. Times in
//! sentences are told from `now`; the fields have them as they are.

mod binding;
mod budget;
mod change;
mod counterfactual;
mod summary;
mod verdicts;
mod waiting;
mod what_if;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::account::{Charges, History, SharedAccounts};
use crate::apply::{IllegalEvent, fold, replay};
use crate::event::{Event, FailedOn, ItemId, RecordedEvent, Role};
use crate::job::{Job, Phase};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::select::ItemSelector;
use crate::time::Timestamp;
use crate::verdict::{Decision, StopReason, Verdict, accounts_after, expired, verdict};

pub use binding::NextLimit;
pub use budget::{AccountUse, BudgetAuditor, BudgetUse, Draw, MOST_DRAWS, StepUse};
pub use change::{Change, WrittenChange};
pub use counterfactual::Counterfactual;
pub use summary::{JobExplanation, StepExplanation};
pub use verdicts::{Account, DecisionSummary, Rule, VerdictExplanation};
pub use waiting::{Waiting, WaitingReason, WaitsFor};
pub(crate) use waiting::{unmet, waits_for};
pub use what_if::{JudgedVerdict, PolicyChange, WhatIf, WhatIfJudge};

use counterfactual::{Case, DecisionBasis, NO_WORKER, Rules};

/// Steps, and things that wait, that are shown.
pub const MOST_SHOWN: usize = 100;
/// Verdicts that are shown of one item, the last of them.
pub const MOST_PER_ITEM: usize = 100;
/// Verdicts that are shown: of too many, successes go first and stops last.
pub const MOST_VERDICTS: usize = 1000;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub job: JobExplanation,
    /// Those that have not simply succeeded.
    pub steps: Vec<StepExplanation>,
    /// What is under way or cannot be yet; what does not run comes first.
    pub waiting: Vec<Waiting>,
    /// In the order they were given.
    pub verdicts: Vec<VerdictExplanation>,
    pub left_out: LeftOut,
}

impl Explanation {
    /// What those who know the workers have to say: by run and step, why nothing of it starts.
    pub fn tell_why_not_running(&mut self, reasons: &[((u32, u32), String)]) {
        for waiting in &mut self.waiting {
            let reason = reasons.iter().find(|(place, _)| *place == waiting.place);
            if let Some((_, because)) = reason {
                waiting.tell(because);
            }
        }
    }
}

/// As a page for people.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.job)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))?;
        self.waiting.iter().try_for_each(|waiting| writeln!(f, "  {waiting}"))?;
        self.verdicts.iter().try_for_each(|verdict| writeln!(f, "  {}", verdict.sentence()))
    }
}

/// What there was too much of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub steps: u64,
    pub waiting: u64,
    pub verdicts: u64,
}

/// A work item, for people and for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemName {
    /// `eu-west/index[2]`, `publish!` for a fallback, `publish~` for a compensation.
    pub name: String,
    pub datacenter: Option<String>,
    pub step: String,
    pub role: Role,
    #[serde(rename = "item")]
    pub index: u32,
    /// The element of `for_each`, where it tells more than its number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    #[serde(skip)]
    pub id: ItemId,
}

impl ItemName {
    fn new(job: &Job, id: ItemId) -> Self {
        let plan = &job.plan;
        Self {
            name: plan.item_name(id),
            datacenter: plan.datacenter(id.run).map(str::to_owned),
            step: plan.step(id.step).name.clone(),
            role: id.role,
            index: id.index,
            value: job.telling_value(id),
            id,
        }
    }
}

impl fmt::Display for ItemName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
    }
}

/// Explains a job, or the part of it that `only` names, from its log.
pub fn explain(
    log: &[RecordedEvent],
    now: Timestamp,
    only: Option<&ItemSelector>,
) -> Result<Explanation, IllegalEvent> {
    let mut explainer = Explainer::new(only.copied().unwrap_or_default());
    log.iter().try_for_each(|record| explainer.see(record))?;
    explainer.explanation(now)
}

/// Explains a job from its log, of which it is shown one event after the other. It keeps the state of the job, and
/// of the log what an explanation shows.
#[derive(Debug)]
pub struct Explainer {
    job: Option<Job>,
    watch: VerdictCollector,
}

impl Explainer {
    pub fn new(only: ItemSelector) -> Self {
        Self { job: None, watch: VerdictCollector { only, ..VerdictCollector::default() } }
    }

    /// The next event of the log.
    pub fn see(&mut self, record: &RecordedEvent) -> Result<(), IllegalEvent> {
        if let Some(job) = &self.job {
            self.watch.look(job, record);
        }
        fold(&mut self.job, record)
    }

    /// Of what was seen.
    pub fn explanation(self, now: Timestamp) -> Result<Explanation, IllegalEvent> {
        let Self { job, watch } = self;
        let job = job.map_or_else(|| replay([]), Ok)?;
        let (now, only) = (now.max(job.last_at), watch.only);
        let (steps, steps_left_out) = summary::steps(&job, only, now);
        let (waiting, waiting_left_out) = waiting::waiting(&job, &watch.charged, only, now);
        let (seen, verdicts_left_out) = watch.most_telling();
        let mut rules = Rules::default();
        let verdicts = seen.iter().map(|seen| seen.explained(&job, &mut rules)).collect();
        let left_out = LeftOut {
            steps: steps_left_out,
            waiting: waiting_left_out,
            verdicts: verdicts_left_out,
        };
        Ok(Explanation { job: summary::job(&job, now), steps, waiting, verdicts, left_out })
    }
}

/// A verdict, with the state it was given on.
#[derive(Debug)]
struct ObservedVerdict {
    record: RecordedEvent,
    on: ObservedState,
}

/// What a verdict is given on.
#[derive(Debug)]
struct ObservedState {
    item: ItemId,
    /// As the verdict saw it.
    history: History,
    /// Before whatever the verdict is about: a downtime counts between the two.
    history_before: History,
    shared: SharedAccounts,
    ground: DecisionBasis<Outcome>,
    items_started: u64,
}

/// Sees of each verdict what it is given on.
#[derive(Debug, Default)]
struct VerdictObserver {
    /// An attempt that has ended; its verdict is the next event.
    ended: Option<ObservedState>,
    /// What items had been through before the engine came back.
    before_restart: BTreeMap<ItemId, History>,
}

/// What is noted while the log is folded.
#[derive(Debug, Default)]
struct VerdictCollector {
    only: ItemSelector,
    observer: VerdictObserver,
    /// What the latest retry of each item was charged.
    charged: BTreeMap<ItemId, Charges>,
    /// Successes, retries, stops.
    kept: [VecDeque<ObservedVerdict>; 3],
    count: u64,
}

impl VerdictObserver {
    /// Looks at an event before it is folded. Of a verdict, what it was given on.
    fn look(&mut self, job: &Job, record: &RecordedEvent) -> Option<ObservedState> {
        match &record.event {
            Event::AttemptEnded { item, attempt, outcome, .. } => {
                let outcome = match outcome {
                    // An output may be large, and decides nothing.
                    Outcome::Succeeded { .. } => Outcome::OK,
                    outcome => outcome.clone(),
                };
                let ground = DecisionBasis::Outcome(outcome);
                self.ended = ObservedState::new(job, *item, *attempt, ground);
            }
            Event::EngineRestarted { .. } => {
                self.before_restart =
                    job.all_live().map(|(item, live)| (item, live.history)).collect();
            }
            Event::ItemSucceeded { .. } | Event::RetryScheduled { .. } => return self.ended.take(),
            Event::ItemFailed { item, on, attempt, .. } => {
                if *on != FailedOn::Outcome {
                    let ground = match job.live(*item).map(|live| live.phase) {
                        Some(Phase::BackingOff { due_at, budget_expires_at, .. }) => {
                            // A pause stops the budget's clock, a downtime does not.
                            let restart = *on == FailedOn::Restart;
                            let budget_expires_at = budget_expires_at.filter(|_| restart);
                            DecisionBasis::Overdue { budget_expires_at, due_at }
                        }
                        _ => DecisionBasis::Overdue { budget_expires_at: None, due_at: record.at },
                    };
                    self.ended = ObservedState::new(job, *item, *attempt, ground);
                    if let (Some(seen), FailedOn::Restart) = (&mut self.ended, on) {
                        let before = self.before_restart.get(item);
                        seen.history_before = before.copied().unwrap_or(seen.history);
                    }
                }
                return self.ended.take();
            }
            _ => {}
        }
        None
    }
}

impl VerdictCollector {
    /// Looks at an event before it is folded.
    fn look(&mut self, job: &Job, record: &RecordedEvent) {
        let seen = self.observer.look(job, record);
        let class = match &record.event {
            Event::ItemSucceeded { item, .. } => {
                self.charged.remove(item);
                0
            }
            Event::RetryScheduled { item, charged, .. } => {
                self.charged.insert(*item, *charged);
                1
            }
            Event::ItemFailed { item, .. } => {
                self.charged.remove(item);
                2
            }
            _ => return,
        };
        if let Some(on) = seen.filter(|seen| self.only.has(seen.item)) {
            self.judged(record, on, class);
        }
    }

    fn judged(&mut self, record: &RecordedEvent, on: ObservedState, class: usize) {
        self.count += 1;
        let kept = &mut self.kept[class];
        if kept.len() == MOST_VERDICTS {
            kept.pop_front();
        }
        kept.push_back(ObservedVerdict { record: record.clone(), on });
    }

    /// In order, and how many others there are.
    fn most_telling(&self) -> (Vec<&ObservedVerdict>, u64) {
        let mut of_item: BTreeMap<ItemId, usize> = BTreeMap::new();
        let mut seen = vec![];
        // Stops first, the latest first.
        for kept in self.kept.iter().rev() {
            for one in kept.iter().rev() {
                let count = of_item.entry(one.on.item).or_default();
                if *count < MOST_PER_ITEM && seen.len() < MOST_VERDICTS {
                    *count += 1;
                    seen.push(one);
                }
            }
        }
        seen.sort_unstable_by_key(|seen| seen.record.seq);
        let left_out = self.count - seen.len() as u64;
        (seen, left_out)
    }
}

impl ObservedState {
    /// None: there is no such item, and the fold will say so.
    fn new(job: &Job, item: ItemId, attempt: u32, ground: DecisionBasis<Outcome>) -> Option<Self> {
        job.step_run(item.run, item.step)?;
        let history = job.live(item).map(|live| live.history).unwrap_or_default();
        let (shared, items_started) = (job.shared(item, attempt), job.items_started);
        Some(Self { item, history, history_before: history, shared, ground, items_started })
    }
}

impl ObservedVerdict {
    fn explained(&self, job: &Job, rules: &mut Rules) -> VerdictExplanation {
        let plan: &Plan = &job.plan;
        let Self { record, on } = self;
        let &ObservedState { item, history, shared, items_started, .. } = on;
        let (history_before, ground) = (&on.history_before, on.ground.as_ref());
        let policy = &plan.step(item.step).policy;
        let outcome = match ground {
            DecisionBasis::Outcome(outcome) => Some(outcome),
            DecisionBasis::Overdue { .. } => None,
        };
        let rule = match outcome {
            Some(Outcome::Failed(failure)) => rules.matching(policy, item.step, failure),
            _ => None,
        };
        let (step, now) = (item.step, record.at);
        let case = Case { plan, step, history, shared, ground, now, items_started, rule };
        let before = accounts_after(policy, history_before, &shared, Charges::default(), 0);
        let (recorded, on, attempt, error) = recorded(&record.event, outcome, before);
        let decision = DecisionSummary::from(recorded.decision);
        let answer = match (ground, on) {
            (DecisionBasis::Outcome(outcome), _) => {
                Some(verdict(policy, &history, &shared, outcome, record.at))
            }
            (_, FailedOn::NoWorker) => None,
            (DecisionBasis::Overdue { budget_expires_at, .. }, _) => {
                let reason = expired(policy, &history, budget_expires_at, record.at);
                reason.map(|reason| Verdict { decision: Decision::Stop { reason }, ..recorded })
            }
        };
        let disagrees = (on != FailedOn::NoWorker && answer != Some(recorded)).then(|| {
            let now = answer
                .map_or("go on".to_owned(), |now| DecisionSummary::from(now.decision).to_string());
            format!("the log says {decision}, the same question now gives {now}")
        });
        let stop = matches!(decision, DecisionSummary::Stop { .. });
        let counterfactual = match on {
            FailedOn::NoWorker => Err(NO_WORKER),
            _ => case.counterfactual(),
        };
        VerdictExplanation {
            seq: record.seq,
            at: record.at,
            item: ItemName::new(job, item),
            attempt,
            on,
            outcome: outcome.map(ToString::to_string),
            error,
            rule: verdicts::rule(&case, on, decision),
            moved: verdicts::moved(&before, &recorded.accounts, decision),
            charged: recorded.charged,
            before,
            after: recorded.accounts,
            nothing_would: counterfactual.as_ref().err().copied().filter(|_| stop).map(Into::into),
            would_change: counterfactual.ok().filter(|_| stop),
            disagrees,
            decision,
        }
    }
}

/// The verdict that an event records, what on, after which attempt, and the error.
fn recorded(
    event: &Event,
    outcome: Option<&Outcome>,
    before: crate::account::Accounts,
) -> (Verdict, FailedOn, u32, Option<String>) {
    let said = match outcome {
        Some(Outcome::Lost { started: false, why: None }) => {
            Some("the worker was lost before it began".to_owned())
        }
        outcome => outcome.and_then(Outcome::error),
    };
    let on = FailedOn::Outcome;
    match event {
        Event::RetryScheduled { attempt, cause, delay_ms, due_at, charged, accounts, .. } => {
            let (cause, delay_ms, due_at) = (*cause, *delay_ms, *due_at);
            let decision = Decision::Retry { cause, delay_ms, due_at };
            (Verdict { decision, charged: *charged, accounts: *accounts }, on, *attempt, said)
        }
        Event::ItemFailed { attempt, on, reason, error, charged, accounts, .. } => {
            let decision = Decision::Stop { reason: *reason };
            let verdict = Verdict { decision, charged: *charged, accounts: *accounts };
            (verdict, *on, *attempt, error.clone().or(said))
        }
        Event::ItemSucceeded { attempt, accounts, .. } => {
            let (decision, charged) = (Decision::Complete, Charges::default());
            (Verdict { decision, charged, accounts: *accounts }, on, *attempt, None)
        }
        // Only verdicts are kept.
        _ => {
            let decision = Decision::Stop { reason: StopReason::Cancelled };
            let charged = Charges::default();
            (Verdict { decision, charged, accounts: before }, on, 0, None)
        }
    }
}
