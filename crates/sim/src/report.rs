//! What a rehearsal tells: every decision, and the end. Its JSON is part of the contract.

use std::borrow::Cow;
use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use steadfast_core::account::{Accounts, Charges};
use steadfast_core::event::{
    Event, FailedOn, ItemId, JobState, RecordedEvent, Role, StepFailure, StepState,
};
use steadfast_core::job::{Completion, Job, Phase};
use steadfast_core::outcome::OutcomeLabel;
use steadfast_core::plan::{ForEach, LateResults, Plan};
use steadfast_core::result::JobResult;
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::{Cause, StopReason};

/// The whole rehearsal.
#[derive(Clone, Debug)]
pub struct Rehearsal {
    pub plan: Arc<Plan>,
    pub state: JobState,
    pub finished_ms: Option<u64>,
    pub runs: Vec<RunReport>,
    pub completion: Option<Completion>,
    /// Once it has ended.
    pub result: Option<JobResult>,
    pub decisions: Vec<Decision>,
    /// Attempts under way when it ended, and since when.
    pub unfinished: Vec<(ItemId, Timestamp)>,
}

#[derive(Clone, Debug)]
pub struct RunReport {
    pub state: JobState,
    pub finished_ms: Option<u64>,
    /// It reported after the job had ended, and its result was added or only logged.
    pub late: Option<LateResults>,
    pub steps: Vec<StepReport>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    pub state: StepState,
    pub attempts: u64,
    /// Why it failed without an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What to write into the script so that it has items.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    pub at: Timestamp,
    pub item: ItemId,
    pub attempt: u32,
    /// When that attempt began, for the timeline.
    pub started_at: Option<Timestamp>,
    pub outcome: OutcomeLabel,
    pub verdict: VerdictName,
    pub charged: Charges,
    pub accounts: Accounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictName {
    Complete,
    Retry { cause: Cause, delay_ms: u64, due_at: Timestamp },
    Stop { reason: StopReason, on: FailedOn },
}

impl VerdictName {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Retry { .. } => "retry",
            Self::Stop { .. } => "stop",
        }
    }
}

impl Decision {
    /// The decision that an event records, if it records one. `ended`: the attempt it was made on,
    /// when that began and how it ended.
    pub(crate) fn of(
        record: &RecordedEvent,
        ended: Option<(Timestamp, OutcomeLabel)>,
    ) -> Option<Self> {
        let of_outcome = || ended.map_or(OutcomeLabel::Word(""), |(_, label)| label);
        let (item, attempt, outcome, verdict, charged, accounts) = match &record.event {
            Event::ItemSucceeded { item, attempt, accounts } => {
                let charged = Charges::default();
                (item, attempt, of_outcome(), VerdictName::Complete, charged, accounts)
            }
            Event::RetryScheduled {
                item,
                attempt,
                cause,
                delay_ms,
                due_at,
                charged,
                accounts,
                ..
            } => {
                let verdict =
                    VerdictName::Retry { cause: *cause, delay_ms: *delay_ms, due_at: *due_at };
                (item, attempt, of_outcome(), verdict, *charged, accounts)
            }
            Event::ItemFailed { item, attempt, on, reason, charged, accounts, .. } => {
                let outcome = match on {
                    FailedOn::Outcome => of_outcome(),
                    FailedOn::Restart => OutcomeLabel::Word("restart"),
                    FailedOn::Resume => OutcomeLabel::Word("resume"),
                    FailedOn::NoWorker => OutcomeLabel::Word("no_worker"),
                };
                let verdict = VerdictName::Stop { reason: *reason, on: *on };
                (item, attempt, outcome, verdict, *charged, accounts)
            }
            _ => return None,
        };
        let on_outcome =
            !matches!(&record.event, Event::ItemFailed { on, .. } if *on != FailedOn::Outcome);
        Some(Self {
            at: record.at,
            item: *item,
            attempt: *attempt,
            started_at: ended.filter(|_| on_outcome).map(|(at, _)| at),
            outcome,
            verdict,
            charged,
            accounts: *accounts,
        })
    }
}

impl Rehearsal {
    pub(crate) fn new(job: &Job, decisions: Vec<Decision>) -> Self {
        let runs = (0..job.runs.len() as u32).map(|run| {
            let state = &job.runs[run as usize];
            let steps = state.steps.iter();
            RunReport {
                state: job.run_state(run),
                finished_ms: state.finished_at.map(|at| at.0),
                late: state.late.then_some(if state.counted {
                    LateResults::UpdateResult
                } else {
                    LateResults::LogOnly
                }),
                steps: steps
                    .enumerate()
                    .map(|(index, step)| StepReport {
                        state: step.state,
                        attempts: step.attempts,
                        error: match &step.failure {
                            Some(StepFailure::FanOut(error)) => Some(error.clone()),
                            _ => None,
                        },
                        hint: match &step.failure {
                            Some(StepFailure::FanOut(_)) => items_hint(&job.plan, index as u32),
                            _ => None,
                        },
                    })
                    .collect(),
            }
        });
        Self {
            plan: job.plan.clone(),
            state: job.state(),
            finished_ms: job.finished_at.map(|at| at.0),
            runs: runs.collect(),
            completion: job.completion,
            result: job.result(),
            decisions,
            unfinished: job
                .all_live()
                .filter(|(_, item)| item.phase == Phase::Running)
                .map(|(id, item)| (id, item.since))
                .collect(),
        }
    }

    /// As scripts and decisions write it: `publish`, its fallback `publish!`, its undoing `fetch~`.
    pub fn step_name(&self, item: ItemId) -> Cow<'_, str> {
        let name = self.plan.step(item.step).name.as_str();
        match item.role {
            Role::Item => Cow::Borrowed(name),
            Role::Fallback => Cow::Owned(format!("{name}!")),
            Role::Compensation => Cow::Owned(format!("{name}~")),
        }
    }
}

/// A step whose items are the output of another has none unless the script says what that gives.
fn items_hint(plan: &Plan, step: u32) -> Option<String> {
    let ForEach::Output { step: source, path } = &plan.step(step).for_each else { return None };
    let list = serde_json::json!(["a", "b"]);
    let output = path.iter().rev().fold(list, |inner, key| {
        serde_json::Value::Object([(key.clone(), inner)].into_iter().collect())
    });
    Some(format!("say in the script what `{source}` gives, such as  {source}: ['ok={output}']"))
}

impl Serialize for Rehearsal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct CompletionJson {
            reason: &'static str,
            ratio: f64,
        }
        let completion = self.completion.map(|completion| CompletionJson {
            reason: completion.reason.name(),
            ratio: completion.ratio(),
        });
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", self.state.name())?;
        map.serialize_entry("finished_ms", &self.finished_ms)?;
        map.serialize_entry("runs", &Each(0..self.runs.len(), |run| RunJson(self, run)))?;
        map.serialize_entry("completion", &completion)?;
        map.serialize_entry("result", &self.result)?;
        let decisions = Each(0..self.decisions.len(), |i| DecisionJson(self, &self.decisions[i]));
        map.serialize_entry("decisions", &decisions)?;
        if self.plan.datacenters().is_empty() {
            map.serialize_entry("steps", &StepsJson(self, 0))?;
        }
        map.end()
    }
}

/// A sequence that is made while it is written: a million decisions need no second copy.
struct Each<F>(std::ops::Range<usize>, F);

impl<T: Serialize, F: Fn(usize) -> T> Serialize for Each<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone().map(&self.1))
    }
}

struct RunJson<'a>(&'a Rehearsal, usize);

impl Serialize for RunJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let run = &self.0.runs[self.1];
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("datacenter", &self.0.plan.datacenter(self.1 as u32))?;
        map.serialize_entry("state", run.state.name())?;
        map.serialize_entry("finished_ms", &run.finished_ms)?;
        if let Some(late) = run.late {
            map.serialize_entry("late", &true)?;
            map.serialize_entry("late_result", &late)?;
        }
        map.serialize_entry("steps", &StepsJson(self.0, self.1))?;
        map.end()
    }
}

struct StepsJson<'a>(&'a Rehearsal, usize);

impl Serialize for StepsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let steps = &self.0.runs[self.1].steps;
        serializer.collect_map(
            steps.iter().enumerate().map(|(i, step)| (&self.0.plan.step(i as u32).name, step)),
        )
    }
}

struct DecisionJson<'a>(&'a Rehearsal, &'a Decision);

impl Serialize for DecisionJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(rehearsal, decision) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("at_ms", &decision.at)?;
        map.serialize_entry("datacenter", &rehearsal.plan.datacenter(decision.item.run))?;
        map.serialize_entry("step", &rehearsal.step_name(decision.item))?;
        map.serialize_entry("item", &decision.item.index)?;
        map.serialize_entry("attempt", &decision.attempt)?;
        map.serialize_entry("outcome", &format_args!("{}", decision.outcome))?;
        map.serialize_entry("verdict", decision.verdict.name())?;
        match &decision.verdict {
            VerdictName::Complete => {}
            VerdictName::Retry { cause, delay_ms, due_at } => {
                map.serialize_entry("cause", cause)?;
                map.serialize_entry("delay_ms", delay_ms)?;
                map.serialize_entry("due_ms", due_at)?;
            }
            VerdictName::Stop { reason, on } => {
                map.serialize_entry("reason", reason)?;
                map.serialize_entry("message", reason.message_on(*on))?;
            }
        }
        map.serialize_entry("charged", &decision.charged)?;
        map.serialize_entry("accounts", &decision.accounts)?;
        map.end()
    }
}
