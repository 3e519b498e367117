//! The fold: an event, and the state after it. The same live, recovering and replaying.
//!
//! Each event is checked against the state it meets before anything is touched. An event that does
//! not fit is refused: a log that cannot have happened must not become a state.

mod begin;
mod item;

use std::sync::Arc;

use crate::defects::{Defect, is_on};
use crate::event::{
    Event, ItemId, JobState, RecordedEvent, Requester, Role, RunEnd, StepFailure, StepState,
};
use crate::job::{AuxiliaryItem, CancelRequest, Completion, Job, Phase, Run, StepRun, WorkItem};
use crate::plan::ForEach;
use crate::time::Timestamp;

/// An event that cannot follow what the log says so far.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event {seq} ({event}) cannot have happened: {why}")]
pub struct IllegalEvent {
    pub seq: u64,
    pub event: &'static str,
    pub why: &'static str,
}

/// An attempt that was under way when its item was given up: its worker must be told to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KilledAttempt {
    pub item: ItemId,
    pub attempt: u32,
    pub token: u64,
    pub worker: Arc<str>,
}

/// The state after `record`, and the attempts that it cut off.
pub fn apply(job: &mut Job, record: &RecordedEvent) -> Result<Vec<KilledAttempt>, IllegalEvent> {
    let refuse = |why| IllegalEvent { seq: record.seq, event: record.event.name(), why };
    if record.seq != job.seq + 1 {
        return Err(refuse("its number does not follow the last one"));
    }
    if record.at < job.last_at {
        return Err(refuse("it is older than the event before it"));
    }
    let mut fold = Fold { job, at: record.at, killed: vec![] };
    fold.event(&record.event).map_err(refuse)?;
    let killed = fold.killed;
    job.seq = record.seq;
    job.last_at = record.at;
    Ok(killed)
}

/// Takes the next event of a log to the state so far, which the first event makes.
pub fn fold(state: &mut Option<Job>, record: &RecordedEvent) -> Result<(), IllegalEvent> {
    match state {
        Some(job) => apply(job, record).map(drop),
        None => {
            *state = Some(begin(record)?);
            Ok(())
        }
    }
}

fn begin(first: &RecordedEvent) -> Result<Job, IllegalEvent> {
    match &first.event {
        Event::JobAccepted(accepted) if first.seq == 1 => Ok(Job::accepted(accepted, first.at)),
        event => Err(IllegalEvent {
            seq: first.seq,
            event: event.name(),
            why: "a log begins with JobAccepted, 1",
        }),
    }
}

/// The state that a whole log, or any beginning of it, tells.
pub fn replay<'a>(log: impl IntoIterator<Item = &'a RecordedEvent>) -> Result<Job, IllegalEvent> {
    let mut state = None;
    for record in log {
        fold(&mut state, record)?;
    }
    state.ok_or(IllegalEvent { seq: 1, event: "nothing", why: "the log is empty" })
}

impl StepRun {
    /// Its items that do not run are given up; those that run go on if `finish` says so.
    fn give_up(&mut self, finish_running: bool) -> u32 {
        let before = self.live.len();
        self.live.retain(|_, item| finish_running && item.is_under_way());
        let untouched = (self.next..self.items).filter(|&i| !self.succeeded.contains(i)).count();
        self.next = self.items;
        self.ready.clear();
        (untouched + before - self.live.len()) as u32
    }
}

type Refused = &'static str;

struct Fold<'a> {
    job: &'a mut Job,
    at: Timestamp,
    killed: Vec<KilledAttempt>,
}

impl Fold<'_> {
    fn event(&mut self, event: &Event) -> Result<(), Refused> {
        match event {
            Event::JobAccepted(_) => Err("a job is accepted once"),
            Event::JobStarted => self.job_started(),
            Event::JobPaused { requested } => self.job_paused(requested),
            Event::JobResumed { .. } => self.job_resumed(),
            Event::CancelRequested { requested } => {
                if self.job.is_over() {
                    return Err("nothing of the job is left to cancel");
                }
                self.job.cancel = Some(CancelRequest { at: self.at, requested: requested.clone() });
                Ok(())
            }
            Event::EngineRestarted { down_since } => self.engine_restarted(*down_since),
            Event::StepReady { run, step, items, values } => {
                self.step_in(*run, *step, StepState::Waiting)?;
                let of_plan = match &self.job.plan.step(*step).for_each {
                    ForEach::Once => Some(1),
                    ForEach::List(list) => Some(list.len()),
                    ForEach::Range(count) => Some(*count as usize),
                    ForEach::Output { .. } => values.as_ref().map(|values| values.len()),
                };
                if of_plan != Some(*items as usize) {
                    return Err("it has other items than its plan says");
                }
                let state = self.step(*run, *step)?;
                state.state = StepState::Running;
                state.items = *items;
                state.values.clone_from(values);
                state.next = state.succeeded.next_gap(0);
                self.run(*run)?.unblocked.remove(step);
                self.refresh(*run, *step);
                Ok(())
            }
            Event::AttemptStarted { item, attempt, token, worker, incarnation } => {
                self.attempt_started(*item, *attempt, *token)?;
                let item = self.live(*item)?;
                item.worker = Some(worker.clone());
                item.incarnation.clone_from(incarnation);
                Ok(())
            }
            Event::AttemptProgressed { item, attempt, progress } => {
                self.attempt_progressed(*item, *attempt, progress)
            }
            Event::CallbackAwaited { item, attempt, token, .. } => {
                self.callback_awaited(*item, *attempt, *token)
            }
            Event::LateCallback { .. } => Ok(()),
            Event::AttemptEnded { item, attempt, token, outcome, .. } => {
                self.attempt_ended(*item, *attempt, *token, outcome)
            }
            Event::RetryDue { item } => self.retry_due(*item),
            Event::ItemSucceeded { .. }
            | Event::RetryScheduled { .. }
            | Event::ItemFailed { .. } => self.verdict(event),
            Event::StepSucceeded { run, step } => {
                let state = self.step_in(*run, *step, StepState::Running)?;
                if state.failing() || state.open_items() > 0 {
                    return Err("some of its items have not succeeded");
                }
                state.state = StepState::Succeeded;
                self.run(*run)?.succeeded_in_order.push(*step);
                self.step_over(*run, *step, true)
            }
            Event::StepFailing { run, step, because } => self.step_failing(*run, *step, because),
            Event::StepFailed { run, step, continues } => {
                let state = self.step_in(*run, *step, StepState::Running)?;
                if !state.failing() || matches!(state.fallback, Some(AuxiliaryItem::Live(_))) {
                    return Err("nothing has failed it, or its fallback has not ended");
                }
                state.state = StepState::Failed;
                state.continues = *continues;
                self.step_over(*run, *step, *continues)
            }
            Event::StepSkipped { run, step, because } => {
                self.step(*run, *because)?;
                let state = self.step_in(*run, *step, StepState::Waiting)?;
                state.state = StepState::Skipped;
                state.because = Some(*because);
                self.run(*run)?.doomed.remove(step);
                self.step_over(*run, *step, false)
            }
            Event::RunFailing { run, because } => self.run_failing(*run, *because),
            Event::RunEnded { run, end } => self.run_ended(*run, *end),
            Event::MinDatacentersReached => {
                if self.job.min_reached_at.is_some() || self.job.state != JobState::Running {
                    return Err("the job has ended, or waits for its grace already");
                }
                self.job.min_reached_at = Some(self.at);
                Ok(())
            }
            Event::JobEnded { state, reason, succeeded, of } => {
                if self.job.state.is_terminal() || !state.is_terminal() {
                    return Err("a job ends once");
                }
                self.job.state = *state;
                self.job.finished_at = Some(self.at);
                self.job.completion =
                    Some(Completion { reason: *reason, succeeded: *succeeded, of: *of });
                Ok(())
            }
            Event::LateDatacenterResult { run, added } => {
                if !self.job.state.is_terminal() {
                    return Err("the job has not ended");
                }
                let state = self.run(*run)?;
                if state.late {
                    return Err("this datacenter has reported late before");
                }
                state.late = true;
                state.counted |= *added;
                Ok(())
            }
        }
    }

    fn run(&mut self, run: u32) -> Result<&mut Run, Refused> {
        self.job.runs.get_mut(run as usize).ok_or("there is no such run")
    }

    fn step(&mut self, run: u32, step: u32) -> Result<&mut StepRun, Refused> {
        self.run(run)?.steps.get_mut(step as usize).ok_or("there is no such step")
    }

    /// The step of a live run, in the state it must be in.
    fn step_in(&mut self, run: u32, step: u32, is: StepState) -> Result<&mut StepRun, Refused> {
        if !self.run(run)?.is_live() {
            return Err("the run is not running");
        }
        let state = self.step(run, step)?;
        if state.state == is { Ok(state) } else { Err("the step is not in the state for it") }
    }

    fn live(&mut self, id: ItemId) -> Result<&mut WorkItem, Refused> {
        let step = self.step(id.run, id.step)?;
        let aside = match id.role {
            Role::Item => {
                return step.live.get_mut(&id.index).ok_or("the item is not under way");
            }
            Role::Fallback => step.fallback.as_mut(),
            Role::Compensation => step.compensation.as_mut(),
        };
        match aside {
            Some(AuxiliaryItem::Live(item)) if id.index == 0 => Ok(item),
            _ => Err("the item is not under way"),
        }
    }

    /// Keeps what the step could start, and since when it has not, in line with its items.
    fn refresh(&mut self, run: u32, step: u32) {
        let parallelism = self.job.plan.step(step).parallelism;
        let state = &mut self.job.runs[run as usize];
        let live = state.is_live();
        let step_run = &mut state.steps[step as usize];
        let can_start = live
            && step_run.next_startable(run, step).is_some_and(|id| {
                id.role != Role::Item
                    || parallelism.is_none_or(|most| step_run.in_flight < most)
                    || is_on(Defect::ParallelismIgnored)
            });
        if can_start {
            step_run.starved_since = step_run.starved_since.or(Some(self.at));
            state.startable.insert(step);
        } else {
            step_run.starved_since = None;
            state.startable.remove(&step);
        }
    }

    fn job_started(&mut self) -> Result<(), Refused> {
        if self.job.state != JobState::Pending {
            return Err("the job has started before");
        }
        if self.at < self.job.starts_at {
            return Err("it is too early");
        }
        self.job.state = JobState::Running;
        for run in &mut self.job.runs {
            run.state = JobState::Running;
        }
        Ok(())
    }

    fn job_paused(&mut self, requested: &Requester) -> Result<(), Refused> {
        if self.job.state.is_terminal() || self.job.paused_at.is_some() {
            return Err("the job has ended or is paused");
        }
        self.job.paused_at = Some(self.at);
        self.job.paused_by = requested.clone();
        Ok(())
    }

    fn job_resumed(&mut self) -> Result<(), Refused> {
        let paused_at = self.job.paused_at.take().ok_or("the job is not paused")?;
        self.job.paused_by = Requester::NOBODY;
        let at = self.at;
        self.each_live(|item| {
            let since = item.since.max(paused_at);
            if let Phase::BackingOff { budget_expires_at: Some(expires), .. } = &mut item.phase {
                *expires = expires.plus(at.since(since));
            }
        });
        // Nothing of it could start, so nothing was kept waiting by a lack of workers.
        self.each_starving(|starved| *starved = at);
        Ok(())
    }

    /// While the engine was down the delay budget's clock ran, unless the job was paused.
    fn engine_restarted(&mut self, down_since: Timestamp) -> Result<(), Refused> {
        if down_since > self.at {
            return Err("it went down after it came up");
        }
        let at = self.at;
        if self.job.paused_at.is_none() {
            self.each_live(|item| {
                let down = item.charged_downtime_ms(down_since, at);
                item.history.downtime_ms = item.history.downtime_ms.saturating_add(down);
            });
        }
        // Nor is it the lack of a worker.
        self.each_starving(|starved| *starved = starved.plus(at.since(down_since.max(*starved))));
        Ok(())
    }

    fn each_live(&mut self, mut change: impl FnMut(&mut WorkItem)) {
        for step in self.job.runs.iter_mut().flat_map(|run| &mut run.steps) {
            step.live.values_mut().for_each(&mut change);
            for aside in [&mut step.fallback, &mut step.compensation] {
                if let Some(AuxiliaryItem::Live(item)) = aside {
                    change(item);
                }
            }
        }
    }

    fn each_starving(&mut self, change: impl FnMut(&mut Timestamp)) {
        let steps = self.job.runs.iter_mut().flat_map(|run| &mut run.steps);
        steps.filter_map(|step| step.starved_since.as_mut()).for_each(change);
    }

    fn step_failing(&mut self, run: u32, step: u32, because: &StepFailure) -> Result<(), Refused> {
        if !self.run(run)?.is_live() {
            return Err("the run is not running");
        }
        self.step(run, step)?;
        let fallback =
            self.job.plan.step(step).on_failure.as_ref().is_some_and(|f| f.action.is_some());
        let at = self.at;
        let state = self.step(run, step)?;
        if state.state.is_terminal() || state.failing() {
            return Err("the step has failed or ended before");
        }
        state.state = StepState::Running;
        state.failure = Some(because.clone());
        // What comes next has not waited for a worker yet.
        state.starved_since = None;
        state.skipped += state.give_up(true);
        if fallback {
            state.fallback = Some(AuxiliaryItem::Live(WorkItem::ready(at)));
        }
        self.run(run)?.unblocked.remove(&step);
        self.refresh(run, step);
        Ok(())
    }

    /// A step has ended: what needs it has one thing less to wait for, or waits in vain.
    fn step_over(&mut self, run: u32, step: u32, satisfied: bool) -> Result<(), Refused> {
        self.refresh(run, step);
        let plan = self.job.plan.clone();
        let state = self.run(run)?;
        state.open_steps -= 1;
        if !satisfied && plan.step(step).goal {
            state.lost_goal = state.lost_goal.or(Some(step));
        }
        let cause = state.steps[step as usize].because.unwrap_or(step);
        for &next in &plan.step(step).needed_by {
            let dependant = &mut state.steps[next as usize];
            if dependant.state != StepState::Waiting {
                continue;
            }
            if satisfied {
                dependant.unmet -= 1;
                let is_met = dependant.unmet == 0 || is_on(Defect::NeedsIgnored);
                if is_met && !state.doomed.contains_key(&next) {
                    state.unblocked.insert(next);
                }
            } else {
                state.doomed.entry(next).or_insert(cause);
                state.unblocked.remove(&next);
            }
        }
        Ok(())
    }

    fn run_failing(&mut self, run: u32, because: u32) -> Result<(), Refused> {
        self.step(run, because)?;
        let state = self.run(run)?;
        if !state.is_live() || state.failing.is_some() {
            return Err("the run has failed or ended before");
        }
        state.failing = Some(because);
        self.cancel_rest(run)?;
        self.compensate_next(run);
        Ok(())
    }

    /// The latest succeeded step with something to undo.
    fn compensate_next(&mut self, run: u32) {
        let plan = self.job.plan.clone();
        let at = self.at;
        let state = &mut self.job.runs[run as usize];
        while let Some(step) = state.succeeded_in_order.pop() {
            if plan.step(step).compensate.is_some() {
                state.steps[step as usize].compensation =
                    Some(AuxiliaryItem::Live(WorkItem::ready(at)));
                self.refresh(run, step);
                return;
            }
        }
    }

    /// Whatever of the run waits, backs off or runs is over; its attempts are killed.
    fn cancel_rest(&mut self, run: u32) -> Result<(), Refused> {
        let state = self.job.runs.get_mut(run as usize).ok_or("there is no such run")?;
        for (index, step) in state.steps.iter_mut().enumerate() {
            let asides =
                [(Role::Fallback, &step.fallback), (Role::Compensation, &step.compensation)];
            let asides = asides.into_iter().filter_map(|(role, aside)| match aside {
                Some(AuxiliaryItem::Live(item)) => Some((role, 0, item)),
                _ => None,
            });
            let items = step.live.iter().map(|(&index, item)| (Role::Item, index, item));
            for (role, i, item) in items.chain(asides) {
                if item.phase == Phase::Running
                    && let Some(worker) = item.worker.clone()
                {
                    let item_id = ItemId { run, step: index as u32, role, index: i };
                    let (attempt, token) = (item.history.attempts, item.token);
                    self.killed.push(KilledAttempt { item: item_id, attempt, token, worker });
                }
            }
            step.cancelled += step.give_up(false);
            step.in_flight = 0;
            step.starved_since = None;
            for aside in [&mut step.fallback, &mut step.compensation] {
                if matches!(aside, Some(AuxiliaryItem::Live(_))) {
                    *aside = Some(AuxiliaryItem::Cancelled);
                }
            }
            if !step.state.is_terminal() {
                step.state = StepState::Cancelled;
            }
        }
        state.open_steps = 0;
        state.in_flight = 0;
        state.startable.clear();
        state.unblocked.clear();
        state.doomed.clear();
        Ok(())
    }

    fn run_ended(&mut self, run: u32, end: RunEnd) -> Result<(), Refused> {
        let at = self.at;
        let job_over = self.job.state.is_terminal();
        let state = self.run(run)?;
        if state.state.is_terminal() {
            return Err("the run has ended before");
        }
        match end {
            RunEnd::Succeeded
                if !state.is_live() || state.open_steps > 0 || state.in_flight > 0 =>
            {
                return Err("something of it is left to run");
            }
            RunEnd::Failed if state.failing.is_none() => return Err("no goal of it is lost"),
            _ => {}
        }
        self.cancel_rest(run)?;
        let state = self.run(run)?;
        state.state = match end {
            RunEnd::Succeeded => JobState::Succeeded,
            RunEnd::Failed | RunEnd::TimedOut => JobState::Failed,
            RunEnd::Cancelled => JobState::Cancelled,
        };
        state.counted = end == RunEnd::Succeeded && !job_over;
        state.finished_at = Some(at);
        Ok(())
    }
}
