//! What is remembered of a job while it is watched, and what each of its events is worth telling.
//!
//! Only what the events themselves do not carry: names, when something became ready, which attempts
//! are under way. Nothing here decides, and nothing is ever asked of the store.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_core::event::{
    AcceptedJob, Event, FailedOn, ItemId, JobId, JobState, RecordedEvent, Requester, Role, RunEnd,
};
use steadfast_core::job::{AuxiliaryItem, Completion, Job, Phase};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_core::plan::Plan;
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;

use super::log_events::{self, Retry};
use super::metrics::Counters;
use super::per_job::Shown;
use super::recent::{EndedAttempt, RecentActivity};
use super::trace::{Attempt, Spans};

/// Items of one job whose wait is timed; of a fan-out with more in backoff, a sample is enough.
const WAITING: usize = 10_000;

#[derive(Debug)]
pub(super) struct ObservedJob {
    pub(super) id: JobId,
    pub(super) plan: Arc<Plan>,
    pub(super) accepted_at: Timestamp,
    pub(super) retried_from: Option<JobId>,
    ended: bool,
    /// Attempts started, of its items.
    pub(super) attempts: u64,
    /// Retries taken from the budget, and items given up because it was spent.
    pub(super) consumed: u64,
    exhausted: u64,
    pub(super) runs: Vec<JobState>,
    /// Since when items of a step that were never tried could be.
    ready: BTreeMap<(u32, u32), Timestamp>,
    waiting: BTreeMap<ItemId, Waiting>,
    /// As many as the workers have slots, at most.
    running: BTreeMap<ItemId, Running>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Ready since then, or due then.
    at: Timestamp,
    /// The token of the attempt that will be tried again.
    retries: Option<u64>,
}

#[derive(Debug)]
struct Running {
    attempt: u32,
    token: u64,
    worker: Arc<str>,
    since: Timestamp,
    retries: Option<u64>,
}

/// Where it is told.
#[derive(Clone, Copy)]
pub(super) struct Sinks<'a> {
    pub(super) counted: &'a Counters,
    pub(super) spans: Option<&'a Spans>,
    pub(super) recent: &'a RecentActivity,
}

impl ObservedJob {
    pub(super) fn accepted(accepted: &AcceptedJob, at: Timestamp) -> Self {
        let budgeted = accepted.plan.budget().is_some();
        let spent: u64 = accepted.spent.iter().map(|&retries| u64::from(retries)).sum();
        Self {
            id: accepted.id.clone(),
            plan: accepted.plan.clone(),
            accepted_at: at,
            retried_from: accepted.retried_from.clone(),
            ended: false,
            attempts: 0,
            consumed: if budgeted { spent } else { 0 },
            exhausted: 0,
            runs: vec![JobState::Pending; accepted.plan.runs()],
            ready: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
        }
    }

    /// A job that an earlier process left: as if its events had been heard.
    pub(super) fn adopted(job: &Job) -> Self {
        let spent = |reason| {
            matches!(reason, StopReason::JobBudgetExhausted | StopReason::StepBudgetExhausted)
        };
        let exhausted = job.runs.iter().flat_map(|run| &run.steps).flat_map(|step| {
            let auxiliary = [&step.fallback, &step.compensation].into_iter().flatten();
            let auxiliary = auxiliary.filter_map(|item| match item {
                AuxiliaryItem::Failed(stopped) => Some(stopped),
                _ => None,
            });
            step.failed.values().chain(auxiliary).filter(|stopped| spent(stopped.reason))
        });
        let mut watched = Self {
            id: job.id.clone(),
            plan: job.plan.clone(),
            accepted_at: job.accepted_at,
            retried_from: job.retried_from.clone(),
            ended: job.state().is_terminal(),
            attempts: job.runs.iter().flat_map(|run| &run.steps).map(|step| step.attempts).sum(),
            consumed: job.plan.budget().map_or(0, |_| u64::from(job.retries)),
            exhausted: exhausted.count() as u64,
            runs: (0..job.runs.len() as u32).map(|run| job.run_state(run)).collect(),
            ready: BTreeMap::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
        };
        for (run, state) in job.runs.iter().enumerate() {
            let waits = state.steps.iter().enumerate().filter_map(|(step, state)| {
                Some(((run as u32, step as u32), state.waits_since()?))
            });
            watched.ready.extend(waits);
        }
        for (id, item) in job.all_live() {
            let retries = (item.token > 0).then_some(item.token);
            match item.phase {
                Phase::Running | Phase::AwaitingCallback => {
                    let running = Running {
                        attempt: item.history.attempts,
                        token: item.token,
                        worker: item.worker.clone().unwrap_or_default(),
                        since: item.since,
                        retries: None,
                    };
                    watched.running.insert(id, running);
                }
                Phase::BackingOff { due_at, .. } => {
                    watched.wait(id, Waiting { at: due_at, retries });
                }
                Phase::Ready => watched.wait(id, Waiting { at: item.since, retries }),
            }
        }
        watched
    }

    pub(super) fn in_flight(&self) -> usize {
        self.running.len()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Nothing more will be heard of it.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.runs.iter().all(|run| run.is_terminal())
    }

    /// What its own series say now.
    pub(super) fn shown(&self) -> Shown {
        let succeeded = self.runs.iter().filter(|run| **run == JobState::Succeeded).count();
        Shown {
            budget: self.plan.budget().map(|_| (self.consumed, self.exhausted)),
            succeeded: (self.plan.best_effort())
                .map(|_| (succeeded as u32, self.runs.len() as u32)),
        }
    }

    pub(super) fn event(&mut self, record: &RecordedEvent, told: Sinks) {
        let at = record.at;
        match &record.event {
            Event::JobAccepted(accepted) => {
                told.counted.job_accepted();
                told.recent.submitted(at);
                log_events::accepted(accepted);
            }
            Event::JobStarted | Event::MinDatacentersReached => {
                log_events::simple(self, record, &Requester::NOBODY);
            }
            Event::JobPaused { requested }
            | Event::JobResumed { requested }
            | Event::CancelRequested { requested } => log_events::simple(self, record, requested),
            Event::EngineRestarted { down_since } => {
                log_events::restarted(self, at.since(*down_since));
            }
            Event::StepReady { run, step, .. } => {
                self.ready.insert((*run, *step), at);
                log_events::step(self, *run, *step, record.event.name());
            }
            Event::AttemptStarted { item, attempt, token, worker, .. } => {
                let running = Running {
                    attempt: *attempt,
                    token: *token,
                    worker: worker.clone(),
                    since: at,
                    retries: None,
                };
                self.attempt_started(*item, running, told);
            }
            Event::AttemptEnded { item, attempt, token, worker, started_at, outcome, .. } => {
                let known = self.running.remove(item);
                told.counted.items_running.dec_by(i64::from(known.is_some()));
                let running = Running {
                    attempt: *attempt,
                    token: *token,
                    worker: worker.clone(),
                    since: *started_at,
                    retries: known.and_then(|known| known.retries),
                };
                self.attempt_ended(*item, &running, Some(outcome), at, told);
                if !matches!(outcome, Outcome::Succeeded { .. }) {
                    // Until the verdict, which follows, says how long, or that it is over.
                    self.wait(*item, Waiting { at, retries: Some(*token) });
                }
            }
            Event::ItemSucceeded { .. } | Event::AttemptProgressed { .. } => {}
            Event::CallbackAwaited { item, attempt, .. }
            | Event::LateCallback { item, attempt, .. } => {
                log_events::callback(self, *item, *attempt, record.event.name());
            }
            Event::RetryScheduled { item, attempt, cause, delay_ms, due_at, charged, accounts } => {
                told.counted.retry(*cause);
                told.recent.retry((&self.id, self.plan.name()), *cause, accounts, at);
                if charged.job_retries > 0 {
                    self.consumed += u64::from(charged.job_retries);
                    told.counted.budgets.consumed(charged.job_retries);
                }
                if let Some(waiting) = self.waiting.get_mut(item) {
                    waiting.at = *due_at;
                }
                let retry = Retry {
                    attempt: *attempt,
                    cause: *cause,
                    delay_ms: *delay_ms,
                    due_at_ms: due_at.0,
                };
                log_events::retry_scheduled(self, *item, &retry, accounts);
            }
            Event::RetryDue { item } => {
                if let Some(waiting) = self.waiting.get_mut(item) {
                    told.counted.late(at.since(waiting.at));
                    told.recent.late(at, at.since(waiting.at));
                    waiting.at = at;
                }
            }
            Event::ItemFailed { item, attempt, on, reason, error, accounts, .. } => {
                self.waiting.remove(item);
                told.counted.stop(*reason);
                if matches!(
                    reason,
                    StopReason::JobBudgetExhausted | StopReason::StepBudgetExhausted
                ) {
                    self.exhausted += 1;
                    told.counted.budgets.exhausted();
                }
                let stop: (_, FailedOn, _) = (*reason, *on, error.as_deref());
                log_events::item_failed(self, *item, *attempt, stop, accounts);
            }
            Event::StepFailing { run, step, .. } => {
                self.give_up(*run, Some(*step));
                let fallback = ItemId { run: *run, step: *step, role: Role::Fallback, index: 0 };
                self.wait(fallback, Waiting { at, retries: None });
            }
            Event::StepSucceeded { run, step } | Event::StepSkipped { run, step, .. } => {
                self.step_over(*run, *step);
                log_events::step(self, *run, *step, record.event.name());
            }
            Event::StepFailed { run, step, continues } => {
                self.step_over(*run, *step);
                log_events::step_failed(self, *run, *step, *continues);
            }
            Event::RunFailing { run, .. } => self.kill(*run, at, told),
            Event::RunEnded { run, end } => self.run_ended(*run, *end, at, told),
            Event::JobEnded { state, reason, succeeded, of } => {
                let completion = Completion { reason: *reason, succeeded: *succeeded, of: *of };
                self.job_ended(*state, completion, at, told);
            }
            Event::LateDatacenterResult { run, added } => {
                told.counted.late_results.inc();
                log_events::late_result(self, *run, *added);
            }
        }
    }

    fn attempt_started(&mut self, item: ItemId, mut running: Running, told: Sinks) {
        self.attempts += u64::from(item.role == Role::Item);
        told.counted.attempts_started.inc();
        let waited = self.waiting.remove(&item);
        let first = item.role == Role::Item && running.attempt == 1;
        let ready = || self.ready.get(&(item.run, item.step)).copied().filter(|_| first);
        if let Some(ready) = waited.map(|waited| waited.at).or_else(ready) {
            told.counted.queued(running.since.since(ready));
        }
        running.retries = waited.and_then(|waited| waited.retries);
        log_events::attempt_started(self, item, running.attempt, running.token, &running.worker);
        if self.running.insert(item, running).is_none() {
            told.counted.items_running.inc();
        }
    }

    /// `outcome`: none if it was cut off.
    fn attempt_ended(
        &self,
        item: ItemId,
        running: &Running,
        outcome: Option<&Outcome>,
        at: Timestamp,
        told: Sinks,
    ) {
        let name = outcome_name(outcome);
        let took_ms = at.since(running.since);
        told.counted.attempt_ended(name, outcome.map(|_| took_ms));
        let Running { attempt, token, ref worker, since, retries } = *running;
        if let Some(outcome) = outcome {
            let ended =
                EndedAttempt { job: &self.id, plan: &self.plan, item, attempt, worker, outcome };
            told.recent.attempt_ended(ended, at);
        }
        log_events::attempt_ended(self, item, attempt, worker, (name, outcome), took_ms);
        if let Some(spans) = told.spans {
            let attempt =
                Attempt { item, number: attempt, token, worker, since, at, name, outcome, retries };
            spans.attempt(self, &attempt);
        }
    }

    fn wait(&mut self, item: ItemId, waiting: Waiting) {
        if self.waiting.len() < WAITING || self.waiting.contains_key(&item) {
            self.waiting.insert(item, waiting);
        }
    }

    /// Whatever waits in a step, or in all of a run, will not be tried again.
    fn give_up(&mut self, run: u32, step: Option<u32>) {
        let first = ItemId { run, step: step.unwrap_or(0), role: Role::Item, index: 0 };
        let last = ItemId {
            run,
            step: step.unwrap_or(u32::MAX),
            role: Role::Compensation,
            index: u32::MAX,
        };
        let over: Vec<ItemId> = self.waiting.range(first..=last).map(|(&item, _)| item).collect();
        for item in over {
            self.waiting.remove(&item);
        }
        self.ready.retain(|&(of, ready), _| of != run || step.is_some_and(|step| step != ready));
    }

    fn step_over(&mut self, run: u32, step: u32) {
        self.ready.remove(&(run, step));
        self.waiting.remove(&ItemId { run, step, role: Role::Fallback, index: 0 });
    }

    /// The attempts of a run that are under way are cut off; no event says so of each.
    fn kill(&mut self, run: u32, at: Timestamp, told: Sinks) {
        self.give_up(run, None);
        let of_run = |item: &ItemId| item.run == run;
        let killed: Vec<ItemId> = self.running.keys().copied().filter(of_run).collect();
        for item in killed {
            if let Some(running) = self.running.remove(&item) {
                told.counted.items_running.dec();
                self.attempt_ended(item, &running, None, at, told);
            }
        }
    }

    fn run_ended(&mut self, run: u32, end: RunEnd, at: Timestamp, told: Sinks) {
        self.kill(run, at, told);
        if let Some(state) = self.runs.get_mut(run as usize) {
            *state = log_events::run_state(end);
        }
        log_events::run_ended(self, run, end);
    }

    fn job_ended(&mut self, state: JobState, completion: Completion, at: Timestamp, told: Sinks) {
        self.ended = true;
        told.counted.job_ended(state);
        told.recent.job_ended(&self.id, state, at);
        if self.plan.best_effort().is_some() {
            let Completion { reason, succeeded, of } = completion;
            told.counted.best_effort_completed(reason, succeeded, of);
        }
        log_events::job_ended(self, state, completion, at.since(self.accepted_at));
        if let Some(spans) = told.spans {
            spans.job(self, state, completion, at);
        }
    }
}

/// As `status` names it.
fn outcome_name(outcome: Option<&Outcome>) -> &'static str {
    match outcome {
        Some(Outcome::Succeeded { .. }) => "succeeded",
        Some(Outcome::Lost { .. }) => "worker_lost",
        Some(Outcome::Failed(failure)) => match failure.kind {
            FailureKind::TimedOut => "timed_out",
            FailureKind::NotCompleted => "not_completed",
            FailureKind::Exited(_) | FailureKind::Signalled(_) | FailureKind::HandlerFailed => {
                "failed"
            }
        },
        None => "killed",
    }
}
