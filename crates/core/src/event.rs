//! Recorded facts, in the past tense. The log of a job's events is the truth; its state is their fold.

mod state;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::account::{Accounts, Charges, brief};
use crate::outcome::Outcome;
use crate::plan::Plan;
use crate::ranges::Ranges;
use crate::time::Timestamp;
use crate::verdict::{Cause, StopReason};

pub use state::{CompletionReason, JobState, StepState};

/// Sorts by time. Made by the server or `run`, which accept the job, never here.
pub type JobId = Arc<str>;

/// One attempt, in all crates, on the wire and in names of files: tokens rise over all attempts of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    pub job: JobId,
    /// The fence.
    pub token: u64,
}

impl AttemptId {
    pub fn new(job: impl Into<JobId>, token: u64) -> Self {
        Self { job: job.into(), token }
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.token)
    }
}

/// Which work item: of which run (by index into the datacenters), step, and for what.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct ItemId {
    pub run: u32,
    pub step: u32,
    #[serde(default, skip_serializing_if = "Role::is_item")]
    pub role: Role,
    pub index: u32,
}

impl ItemId {
    /// The same for all attempts of an item of a job, and of no other.
    pub fn idempotency_key(self, job: &str, step: &str) -> String {
        let role = match self.role {
            Role::Item => 'i',
            Role::Fallback => 'f',
            Role::Compensation => 'c',
        };
        format!("{job}-{}-{step}-{role}{}", self.run, self.index)
    }

    /// What [`Self::attempt_name`] made the name of, for a step with that name and place in the plan.
    pub fn read_attempt_name(step: u32, step_name: &str, name: &str) -> Option<(Self, u32)> {
        let (rest, attempt) = name.rsplit_once("_attempt_")?;
        let (rest, index) = rest.rsplit_once('_')?;
        let roles = [
            ("", Role::Item),
            ("_fallback", Role::Fallback),
            ("_compensation", Role::Compensation),
        ];
        let (run, role) = roles.into_iter().find_map(|(suffix, role)| {
            let run = match rest.strip_suffix(suffix)?.strip_suffix(step_name)? {
                "" => 0,
                datacenter => datacenter.strip_prefix("dc")?.strip_suffix('_')?.parse().ok()?,
            };
            Some((run, role))
        })?;
        Some((Self { run, step, role, index: index.parse().ok()? }, attempt.parse().ok()?))
    }

    /// What an attempt's log is called, and mostly its [folder](Plan::folder_name): `index_2_attempt_1`, with the datacenter's place
    /// before it if there are several. A plain file name, because `step` is a checked one.
    pub fn attempt_name(self, step: &str, attempt: u32) -> String {
        let role = match self.role {
            Role::Item => "",
            Role::Fallback => "_fallback",
            Role::Compensation => "_compensation",
        };
        let run = if self.run > 0 { format!("dc{}_", self.run) } else { String::new() };
        format!("{run}{step}{role}_{}_attempt_{attempt}", self.index)
    }
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The work of the step.
    #[default]
    Item,
    /// Its `on_failure`.
    Fallback,
    /// Its `compensate`.
    Compensation,
}

impl Role {
    #[allow(clippy::trivially_copy_pass_by_ref)] // the shape serde wants
    fn is_item(&self) -> bool {
        *self == Self::Item
    }
}

/// An event with its place in the job's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedEvent {
    /// From 1, without gaps.
    pub seq: u64,
    /// Never less than that of the event before it.
    pub at: Timestamp,
    #[serde(flatten)]
    pub event: Event,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event")]
pub enum Event {
    JobAccepted(Box<AcceptedJob>),
    /// `not_before` has come, or there was none.
    JobStarted,
    JobPaused {
        #[serde(default, skip_serializing_if = "Requester::is_unknown")]
        requested: Requester,
    },
    JobResumed {
        #[serde(default, skip_serializing_if = "Requester::is_unknown")]
        requested: Requester,
    },
    /// An operator, or `run` on Ctrl-C, wants it to end; the end itself follows.
    CancelRequested {
        #[serde(default, skip_serializing_if = "Requester::is_unknown")]
        requested: Requester,
    },
    /// Everything the job waits for has been at rest since `down_since`.
    EngineRestarted {
        down_since: Timestamp,
    },

    /// What the step needs is there; its fan-out is known.
    StepReady {
        run: u32,
        step: u32,
        items: u32,
        /// The elements, where they came from an earlier step's output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        values: Option<Arc<[Value]>>,
    },
    AttemptStarted {
        item: ItemId,
        attempt: u32,
        token: u64,
        worker: Arc<str>,
        /// Of the worker, where several servers share a store: whoever takes the job over can tell by it an assignment that never arrived
        /// from one that a life of the worker before has run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        incarnation: Option<Arc<str>>,
    },
    /// How far the attempt is, in its own words.
    AttemptProgressed {
        item: ItemId,
        attempt: u32,
        progress: Arc<Value>,
    },
    /// A service has taken it, and will say how it ended; the worker has nothing more to do with it.
    CallbackAwaited {
        item: ItemId,
        attempt: u32,
        token: u64,
        worker: Arc<str>,
    },
    AttemptEnded {
        item: ItemId,
        attempt: u32,
        token: u64,
        worker: Arc<str>,
        started_at: Timestamp,
        outcome: Outcome,
        /// The service said so itself, by a callback.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_callback: bool,
    },
    /// A service said how an attempt ended that was over already. It changes nothing.
    LateCallback {
        item: ItemId,
        attempt: u32,
        outcome: Outcome,
    },
    ItemSucceeded {
        item: ItemId,
        attempt: u32,
        #[serde(serialize_with = "brief")]
        accounts: Accounts,
    },
    RetryScheduled {
        item: ItemId,
        attempt: u32,
        cause: Cause,
        delay_ms: u64,
        due_at: Timestamp,
        charged: Charges,
        accounts: Accounts,
    },
    RetryDue {
        item: ItemId,
    },
    ItemFailed {
        item: ItemId,
        attempt: u32,
        on: FailedOn,
        reason: StopReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        charged: Charges,
        accounts: Accounts,
    },

    StepSucceeded {
        run: u32,
        step: u32,
    },
    /// An item has failed for good: siblings that do not run are skipped, the fallback may begin.
    StepFailing {
        run: u32,
        step: u32,
        because: StepFailure,
    },
    /// `continues`: what needs it goes on all the same.
    StepFailed {
        run: u32,
        step: u32,
        continues: bool,
    },
    /// Unreachable, because of a step that failed.
    StepSkipped {
        run: u32,
        step: u32,
        because: u32,
    },
    /// A goal is lost: what is left of the run is cancelled, compensations begin.
    RunFailing {
        run: u32,
        because: u32,
    },
    RunEnded {
        run: u32,
        end: RunEnd,
    },
    /// Enough datacenters have succeeded; the job waits for its `grace`.
    MinDatacentersReached,
    JobEnded {
        state: JobState,
        reason: CompletionReason,
        /// Datacenters that succeeded, of how many.
        succeeded: u32,
        of: u32,
    },
    /// A datacenter reported after the job had ended.
    LateDatacenterResult {
        run: u32,
        /// Added to the job's result.
        added: bool,
    },
}

/// `P`: the plan itself, or what a store has in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceptedJob<P = Arc<Plan>> {
    pub id: JobId,
    pub plan: P,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retried_from: Option<JobId>,
    /// Who asked for the retry.
    #[serde(default, skip_serializing_if = "Requester::is_unknown")]
    pub requested: Requester,
    /// What is kept of the job it retries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<KeptStep>,
    /// With a grant, the retries that the job it retries has spent, by step: they go on counting.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spent: Vec<u32>,
    /// The file it was read from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceFile>,
}

/// Who asked for something, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requester {
    /// The name of a token, or [`LOCAL_USER`]. None: a server without tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Arc<str>>,
    /// In their own words: shown as text, never trusted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
}

/// The user who works on a data folder directly, without a server that would know a token.
pub const LOCAL_USER: &str = "local user";
/// Characters of a reason: a sentence or two, because it stays in the log for good.
pub const LONGEST_REASON: usize = 500;

/// A reason that is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reason has 1 to {LONGEST_REASON} characters, not {0}")]
pub struct InvalidReason(usize);

impl Requester {
    /// Not known.
    pub const NOBODY: Self = Self { by: None, reason: None };

    pub fn new(by: Option<&str>, reason: Option<&str>) -> Result<Self, InvalidReason> {
        let reason = reason.map(str::trim);
        match reason.map(|reason| reason.chars().count()) {
            None | Some(1..=LONGEST_REASON) => {}
            Some(length) => return Err(InvalidReason(length)),
        }
        Ok(Self { by: by.map(Into::into), reason: reason.map(Into::into) })
    }

    pub fn local(reason: Option<&str>) -> Result<Self, InvalidReason> {
        Self::new(Some(LOCAL_USER), reason)
    }

    pub fn is_unknown(&self) -> bool {
        self.by.is_none() && self.reason.is_none()
    }
}

/// ` by ci: wrong input`, or as much of it as is known: what follows a verb.
impl fmt::Display for Requester {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(by) = &self.by {
            write!(f, " by {by}")?;
        }
        match &self.reason {
            Some(reason) => write!(f, ": {reason}"),
            None => Ok(()),
        }
    }
}

/// Where a job came from: what `resume` holds against the file of that time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Absolute.
    pub path: String,
    /// Empty: there is no file to hold it against.
    pub digest: String,
}

impl AcceptedJob {
    pub fn new(id: JobId, plan: Arc<Plan>) -> Self {
        let requested = Requester::NOBODY;
        Self { id, plan, retried_from: None, requested, kept: vec![], spent: vec![], source: None }
    }
}

impl<P> AcceptedJob<P> {
    /// The same with this plan.
    pub fn with_plan<Q>(self, plan: Q) -> AcceptedJob<Q> {
        let Self { id, plan: _, retried_from, requested, kept, spent, source } = self;
        AcceptedJob { id, plan, retried_from, requested, kept, spent, source }
    }
}

/// The part of a step that a retried job brings along.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptStep {
    pub run: u32,
    pub step: u32,
    pub items: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<Arc<[Value]>>,
    pub succeeded: Ranges,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<(u32, Value)>,
    /// With a grant, the failures of items go on where they stood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<(u32, u32)>,
}

/// What a final stop was decided on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedOn {
    /// The outcome of an attempt.
    #[default]
    Outcome,
    /// A restart that came too late for the item.
    Restart,
    /// A pause that ended too late for the item.
    Resume,
    /// No worker took it in time.
    NoWorker,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepFailure {
    /// The item that was one too many.
    Item(u32),
    /// The fan-out could not be made of the output it was to come from.
    FanOut(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnd {
    Succeeded,
    /// A goal failed or became unreachable.
    Failed,
    TimedOut,
    /// By a person, or because another run failed the job.
    Cancelled,
}

impl Event {
    /// What it is about: the run, the step, the item, as far as there is one.
    pub const fn place(&self) -> Option<(u32, Option<u32>, Option<ItemId>)> {
        match self {
            Self::AttemptStarted { item, .. }
            | Self::AttemptProgressed { item, .. }
            | Self::CallbackAwaited { item, .. }
            | Self::AttemptEnded { item, .. }
            | Self::LateCallback { item, .. }
            | Self::ItemSucceeded { item, .. }
            | Self::RetryScheduled { item, .. }
            | Self::RetryDue { item }
            | Self::ItemFailed { item, .. } => Some((item.run, Some(item.step), Some(*item))),
            Self::StepReady { run, step, .. }
            | Self::StepSucceeded { run, step }
            | Self::StepFailing { run, step, .. }
            | Self::StepFailed { run, step, .. }
            | Self::StepSkipped { run, step, .. } => Some((*run, Some(*step), None)),
            Self::RunFailing { run, .. }
            | Self::RunEnded { run, .. }
            | Self::LateDatacenterResult { run, .. } => Some((*run, None, None)),
            _ => None,
        }
    }

    pub const fn name(&self) -> &'static str {
        match self {
            Self::JobAccepted(_) => "JobAccepted",
            Self::JobStarted => "JobStarted",
            Self::JobPaused { .. } => "JobPaused",
            Self::JobResumed { .. } => "JobResumed",
            Self::CancelRequested { .. } => "CancelRequested",
            Self::EngineRestarted { .. } => "EngineRestarted",
            Self::StepReady { .. } => "StepReady",
            Self::AttemptStarted { .. } => "AttemptStarted",
            Self::AttemptProgressed { .. } => "AttemptProgressed",
            Self::CallbackAwaited { .. } => "CallbackAwaited",
            Self::AttemptEnded { .. } => "AttemptEnded",
            Self::LateCallback { .. } => "LateCallback",
            Self::ItemSucceeded { .. } => "ItemSucceeded",
            Self::RetryScheduled { .. } => "RetryScheduled",
            Self::RetryDue { .. } => "RetryDue",
            Self::ItemFailed { .. } => "ItemFailed",
            Self::StepSucceeded { .. } => "StepSucceeded",
            Self::StepFailing { .. } => "StepFailing",
            Self::StepFailed { .. } => "StepFailed",
            Self::StepSkipped { .. } => "StepSkipped",
            Self::RunFailing { .. } => "RunFailing",
            Self::RunEnded { .. } => "RunEnded",
            Self::MinDatacentersReached => "MinDatacentersReached",
            Self::JobEnded { .. } => "JobEnded",
            Self::LateDatacenterResult { .. } => "LateDatacenterResult",
        }
    }
}
