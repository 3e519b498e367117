//! How often each thing occurred: faults, events, states, reasons, refusals. What never occurs in a large sweep was not tested.

use std::collections::BTreeMap;
use std::fmt;

use steadfast_core::event::{CompletionReason, JobState};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<(&'static str, String), u64>);

impl Counts {
    pub(crate) fn add(&mut self, kind: &'static str, name: &str) {
        if let Some(count) = self.0.get_mut(&(kind, name.to_owned())) {
            *count += 1;
        } else {
            self.0.insert((kind, name.to_owned()), 1);
        }
    }

    pub fn join(&mut self, other: &Self) {
        for (name, count) in &other.0 {
            *self.0.entry(name.clone()).or_default() += count;
        }
    }

    pub fn get(&self, kind: &str, name: &str) -> u64 {
        let mut all = self.0.iter();
        all.find(|((of, it), _)| *of == kind && it == name).map_or(0, |(_, count)| *count)
    }

    /// What must have occurred in a large sweep, and has not.
    pub fn missing(&self) -> Vec<String> {
        let wanted = wanted();
        let missing = wanted.iter().filter(|(kind, name)| self.get(kind, name) == 0);
        missing.map(|(kind, name)| format!("{kind}: {name}")).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for ((kind, name), count) in &self.0 {
            if *kind != last {
                writeln!(f, "{kind}")?;
                last = kind;
            }
            writeln!(f, "  {count:>9}  {name}")?;
        }
        Ok(())
    }
}

pub(crate) const EVENT: &str = "events";
pub(crate) const FAULT: &str = "faults";
pub(crate) const STATE: &str = "job ends";
pub(crate) const REASON: &str = "why jobs end";
pub(crate) const STOP: &str = "stop reasons";
pub(crate) const ON: &str = "stops decided on";
pub(crate) const CAUSE: &str = "retries after";
pub(crate) const SEEN: &str = "seen";
pub(crate) const ANSWER: &str = "answers";

const EVENTS: &[&str] = &[
    "JobAccepted",
    "JobStarted",
    "JobPaused",
    "JobResumed",
    "CancelRequested",
    "EngineRestarted",
    "StepReady",
    "AttemptStarted",
    "AttemptProgressed",
    "CallbackAwaited",
    "AttemptEnded",
    "LateCallback",
    "ItemSucceeded",
    "RetryScheduled",
    "RetryDue",
    "ItemFailed",
    "StepSucceeded",
    "StepFailing",
    "StepFailed",
    "StepSkipped",
    "RunFailing",
    "RunEnded",
    "MinDatacentersReached",
    "JobEnded",
    "LateDatacenterResult",
];

const STOPS: &[&str] = &[
    "step_failed",
    "job_timed_out",
    "not_retryable",
    "preemptions_exhausted",
    "permanent_error",
    "rule_stop",
    "deferrals_exhausted",
    "exit_code_excluded",
    "exit_code_not_listed",
    "attempts_exhausted",
    "job_budget_exhausted",
    "step_budget_exhausted",
    "delay_budget_exhausted",
    "window_expired",
    "unschedulable",
];

const FAULTS: &[&str] = &[
    "server killed",
    "server stopped in order",
    "server paused",
    "server fenced",
    "server cut off from the store",
    "crash before commit",
    "crash in mid group (torn tail)",
    "crash after commit, before the answer",
    "fsync failed",
    "disk full",
    "store locked",
    "store unavailable at commit",
    "commit unknown, was committed",
    "commit unknown, was lost",
    "commit unknown, still under way",
    "store stalled",
    "read failed",
    "reads late",
    "clock set forward",
    "clock set back",
    "worker killed",
    "worker suspended",
    "worker preempted",
    "worker drained",
    "worker gone for good",
    "datacenter lost",
    "partition",
    "one-way partition",
    "sessions broken",
    "message lost",
    "message doubled",
    "message reordered",
    "network slow",
    "store restored",
    "request lost",
    "request doubled",
    "callback repeated",
    "callback overtook its worker",
];

const SEEN_ALL: &[&str] = &[
    "server was taken for dead",
    "write refused: fenced",
    "write refused: key taken",
    "report refused by its fence",
    "worker lost",
    "worker quarantined",
    "worker's lease ended",
    "handed back after waiting for a slot",
    "worker ignored an old epoch",
    "beat left unanswered without a store",
    "worker asked to come in anew",
    "asked another server",
    "attempt adopted by another server",
    "job loaded from a stored state",
    "job slept",
    "read arrived late",
];

const ANSWERS: &[&str] = &["accepted", "known", "conflict", "done", "late", "ended", "again"];

fn wanted() -> Vec<(&'static str, &'static str)> {
    let states = JobState::ALL.iter().filter(|state| state.is_terminal());
    let states = states.map(|state| (STATE, state.name()));
    let reasons = CompletionReason::ALL.iter().map(|reason| (REASON, reason.name()));
    let of = |kind, names: &'static [&'static str]| names.iter().map(move |name| (kind, *name));
    states
        .chain(reasons)
        .chain(of(EVENT, EVENTS))
        .chain(of(STOP, STOPS))
        .chain(of(FAULT, FAULTS))
        .chain(of(SEEN, SEEN_ALL))
        .chain(of(ANSWER, ANSWERS))
        .chain(of(CAUSE, &["failure", "preemption", "deferral"]))
        // What runs out during a pause is nearly always due before it ends; a thousand seeds need not see it.
        .chain(of(ON, &["outcome", "restart", "no worker"]))
        .collect()
}
