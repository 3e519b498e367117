//! What one job's events add up to, counted apart from the engine's own fold: an event says what happened, and here is kept what may
//! happen next. Of `core` only the words are used, and no rule.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_core::account::{Accounts, Charges};
use steadfast_core::event::{
    AcceptedJob, CompletionReason, Event, ItemId, JobState, RecordedEvent, Role, RunEnd,
};
use steadfast_core::outcome::Outcome;
use steadfast_core::plan::{BudgetCounts, Plan};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::Cause;

use super::{
    ABSORBING, BEST_EFFORT, BUDGET, CHARGES, Checked, DUE, FENCE, LIMITS, NEEDS,
    NO_START_AFTER_END, SEQUENCE, violated,
};

#[derive(Default)]
struct Item {
    attempts: u32,
    /// The token of the attempt under way.
    token: Option<u64>,
    /// How the last one ended, until it is decided what follows.
    ended: Option<Outcome>,
    due: Option<Timestamp>,
    over: bool,
    failures: u32,
    preemptions: u32,
    deferrals: u32,
    delay_ms: u64,
}

pub(super) struct Ledger {
    plan: Arc<Plan>,
    last_seq: u64,
    last_at: Timestamp,
    begun: bool,
    paused: bool,
    cancelled: bool,
    ended: Option<(JobState, CompletionReason)>,
    runs: BTreeMap<u32, RunEnd>,
    /// Runs that succeeded before the end.
    in_time: u32,
    steps_done: BTreeSet<(u32, u32)>,
    steps_over: BTreeSet<(u32, u32)>,
    items: BTreeMap<ItemId, Item>,
    started: u64,
    last_token: u64,
    retries: u32,
    step_retries: Vec<u32>,
}

impl Ledger {
    pub(super) fn new(accepted: &AcceptedJob, record: &RecordedEvent) -> Self {
        let plan = accepted.plan.clone();
        let mut step_retries = accepted.spent.clone();
        step_retries.resize(plan.steps().len(), 0);
        let mut items = BTreeMap::new();
        let mut steps_done = BTreeSet::new();
        for kept in &accepted.kept {
            let (run, step) = (kept.run, kept.step);
            if kept.succeeded.len() == kept.items {
                steps_done.insert((run, step));
            }
            for (index, failures) in &kept.failures {
                let id = ItemId { run, step, role: Role::Item, index: *index };
                items.insert(id, Item { failures: *failures, ..Item::default() });
            }
        }
        Self {
            plan,
            last_seq: 0,
            last_at: record.at,
            begun: false,
            paused: false,
            cancelled: false,
            ended: None,
            runs: BTreeMap::new(),
            in_time: 0,
            steps_done,
            steps_over: BTreeSet::new(),
            items,
            started: 0,
            last_token: 0,
            retries: step_retries.iter().sum(),
            step_retries,
        }
    }

    pub(super) fn take(&mut self, record: &RecordedEvent) -> Checked {
        let RecordedEvent { seq, at, event } = record;
        if *seq != self.last_seq + 1 || *at < self.last_at {
            let detail =
                format!("after {} at {}, {seq} at {}", self.last_seq, self.last_at.0, at.0);
            return violated(SEQUENCE, detail);
        }
        let before = std::mem::replace(&mut self.last_at, *at);
        self.last_seq = *seq;
        if let Some((run, _, _)) = event.place()
            && let Some(end) = self.runs.get(&run)
            && !matches!(event, Event::LateDatacenterResult { .. } | Event::LateCallback { .. })
        {
            return violated(ABSORBING, format!("run {run} has ended: {end:?}"));
        }
        match event {
            Event::JobAccepted(_)
            | Event::StepReady { .. }
            | Event::MinDatacentersReached
            | Event::AttemptProgressed { .. }
            | Event::StepFailing { .. }
            | Event::RunFailing { .. }
            | Event::LateCallback { .. } => {}
            Event::JobStarted => self.begun = true,
            Event::JobPaused { .. } => self.paused = true,
            Event::JobResumed { .. } => self.paused = false,
            Event::CancelRequested { .. } => self.cancelled = true,
            Event::EngineRestarted { down_since } => {
                if *down_since < before {
                    let detail =
                        format!("down since {}, and decided at {}", down_since.0, before.0);
                    return violated(CHARGES, detail);
                }
            }
            Event::AttemptStarted { item, attempt, token, .. } => {
                self.starts(*item, *attempt, *token, *at)?;
            }
            Event::CallbackAwaited { item, token, .. } => self.is_current(*item, *token)?,
            Event::AttemptEnded { item, token, outcome, .. } => {
                self.is_current(*item, *token)?;
                let item = self.items.entry(*item).or_default();
                (item.token, item.ended) = (None, Some(outcome.clone()));
            }
            Event::ItemSucceeded { item, accounts, .. } => {
                let its = self.items.entry(*item).or_default();
                if !matches!(its.ended, Some(Outcome::Succeeded { .. })) || its.over {
                    return violated(ABSORBING, format!("succeeded after {:?}", its.ended));
                }
                (its.over, its.ended) = (true, None);
                self.adds_up(*item, Charges::default(), accounts)?;
            }
            Event::RetryScheduled { item, cause, delay_ms, due_at, charged, accounts, .. } => {
                self.retries(*item, *cause, *charged, *delay_ms)?;
                self.adds_up(*item, *charged, accounts)?;
                if *due_at != at.plus(*delay_ms) {
                    return violated(DUE, format!("due at {} after {delay_ms} ms", due_at.0));
                }
                self.items.entry(*item).or_default().due = Some(*due_at);
            }
            Event::RetryDue { item } => {
                let due = self.items.entry(*item).or_default().due;
                if due.is_none_or(|due| due > *at) {
                    return violated(DUE, format!("it was due at {due:?}"));
                }
            }
            Event::ItemFailed { item, charged, accounts, .. } => {
                self.fails(*item, *charged)?;
                self.adds_up(*item, *charged, accounts)?;
            }
            Event::StepSucceeded { run, step } => self.step_ends(*run, *step, true)?,
            Event::StepFailed { run, step, continues } => {
                self.step_ends(*run, *step, *continues)?;
            }
            Event::StepSkipped { run, step, .. } => self.step_ends(*run, *step, false)?,
            Event::RunEnded { run, end } => {
                if *end == RunEnd::Succeeded && self.ended.is_none() {
                    self.in_time += 1;
                }
                self.runs.insert(*run, *end);
                for (_, item) in self.items.iter_mut().filter(|(id, _)| id.run == *run) {
                    (item.over, item.token) = (true, None);
                }
            }
            Event::JobEnded { state, reason, succeeded, of } => {
                self.ends(*state, *reason, *succeeded, *of)?;
            }
            Event::LateDatacenterResult { run, .. } => {
                if self.ended.is_none() {
                    return violated(
                        BEST_EFFORT,
                        format!("run {run} is late, and the job goes on"),
                    );
                }
            }
        }
        Ok(())
    }

    fn starts(&mut self, id: ItemId, attempt: u32, token: u64, at: Timestamp) -> Checked {
        let leaves = self.ended.is_none_or(|(_, reason)| reason.leaves_runs());
        if !leaves || self.cancelled || self.paused || !self.begun {
            let detail = format!(
                "ended {:?}, cancelled {}, paused {}, begun {}",
                self.ended, self.cancelled, self.paused, self.begun
            );
            return violated(NO_START_AFTER_END, detail);
        }
        if id.role == Role::Item {
            let names = &self.plan.step(id.step).needs;
            let unmet = names.iter().find(|need| !self.steps_done.contains(&(id.run, **need)));
            if let Some(need) = unmet {
                return violated(NEEDS, format!("{id:?} needs step {need}"));
            }
            let is_sibling = |other: &ItemId| {
                (other.run, other.step, other.role) == (id.run, id.step, Role::Item)
            };
            let under_way =
                self.items.iter().filter(|(other, it)| is_sibling(other) && it.token.is_some());
            let (under_way, most) = (under_way.count(), self.plan.step(id.step).parallelism);
            if most.is_some_and(|most| under_way >= most as usize) {
                return violated(
                    LIMITS,
                    format!("{under_way} of {id:?} are under way, {most:?} may be"),
                );
            }
        }
        let last_token = std::mem::replace(&mut self.last_token, token);
        let item = self.items.entry(id).or_default();
        if item.over || item.ended.is_some() {
            return violated(NO_START_AFTER_END, format!("{id:?} is over"));
        }
        if item.token.is_some() || token <= last_token || attempt != item.attempts + 1 {
            let detail = format!(
                "{id:?} attempt {attempt} token {token} after attempt {} token {last_token}, under way {:?}",
                item.attempts, item.token
            );
            return violated(FENCE, detail);
        }
        if item.due.is_some_and(|due| due > at) || (attempt > 1 && item.due.is_none()) {
            return violated(DUE, format!("{id:?} starts at {}, due {:?}", at.0, item.due));
        }
        if item.attempts == 0 && id.role == Role::Item {
            self.started += 1;
        }
        (item.attempts, item.token, item.due) = (attempt, Some(token), None);
        Ok(())
    }

    fn is_current(&self, id: ItemId, token: u64) -> Checked {
        let current = self.items.get(&id).and_then(|item| item.token);
        if current == Some(token) {
            return Ok(());
        }
        violated(FENCE, format!("{id:?} with token {token}, and {current:?} is under way"))
    }

    fn retries(&mut self, id: ItemId, cause: Cause, charged: Charges, delay_ms: u64) -> Checked {
        let budget = self.plan.budget();
        let item = self.items.entry(id).or_default();
        let ended = item.ended.take();
        let wrong = || format!("{cause:?} charged {charged:?} after {ended:?}");
        let counted = match (&ended, cause) {
            (Some(Outcome::Failed(_)), Cause::Failure) => {
                if (charged.failures, charged.preemptions, charged.deferrals) != (1, 0, 0)
                    || charged.delay_ms != delay_ms
                {
                    return violated(CHARGES, wrong());
                }
                1
            }
            (Some(Outcome::Failed(_)), Cause::Deferral) => {
                if (charged.failures, charged.preemptions, charged.deferrals) != (0, 0, 1) {
                    return violated(CHARGES, wrong());
                }
                0
            }
            (Some(outcome @ Outcome::Lost { started, .. }), Cause::Preemption) => {
                let is_wrong = charged.failures + charged.deferrals > 0
                    || charged.delay_ms > 0
                    || charged.preemptions > 1
                    || (*started && charged.preemptions == 0);
                if is_wrong {
                    return violated(CHARGES, wrong());
                }
                let all = budget.is_some_and(|budget| budget.counts == BudgetCounts::All);
                u32::from(all && !outcome.is_handed_back())
            }
            _ => return violated(CHARGES, wrong()),
        };
        let expected = if budget.is_some() { counted } else { 0 };
        if (charged.job_retries, charged.step_retries) != (expected, expected) {
            return violated(BUDGET, wrong());
        }
        self.retries += counted;
        if let Some(step) = self.step_retries.get_mut(id.step as usize) {
            *step += counted;
        }
        if counted > 0 && budget.is_some() {
            let total = budget.and_then(|budget| budget.total_at(self.started));
            let per_step = budget.and_then(steadfast_core::plan::Budget::per_step);
            let step = self.step_retries[id.step as usize];
            if total.is_some_and(|total| self.retries > total)
                || per_step.is_some_and(|most| step > most)
            {
                let detail =
                    format!("{} retries of {total:?}, {step} of {per_step:?}", self.retries);
                return violated(BUDGET, detail);
            }
        }
        Ok(())
    }

    fn fails(&mut self, id: ItemId, charged: Charges) -> Checked {
        let item = self.items.entry(id).or_default();
        let ended = item.ended.take();
        let failed = matches!(ended, Some(Outcome::Failed(_)));
        let extra =
            charged.preemptions + charged.deferrals + charged.job_retries + charged.step_retries;
        if charged.failures > u32::from(failed) || extra > 0 {
            return violated(CHARGES, format!("{charged:?} after {ended:?}"));
        }
        if item.over || item.token.is_some() || matches!(ended, Some(Outcome::Succeeded { .. })) {
            return violated(ABSORBING, format!("{id:?} failed after {ended:?}"));
        }
        item.over = true;
        Ok(())
    }

    /// What the event says of the accounts is what the events before it add up to.
    fn adds_up(&mut self, id: ItemId, charged: Charges, accounts: &Accounts) -> Checked {
        let item = self.items.entry(id).or_default();
        item.failures += charged.failures;
        item.preemptions += charged.preemptions;
        item.deferrals += charged.deferrals;
        item.delay_ms += charged.delay_ms;
        let own = (item.failures, item.preemptions, item.deferrals, item.delay_ms);
        let said =
            (accounts.failures, accounts.preemptions, accounts.deferrals, accounts.delay_spent_ms);
        let limits = [
            (accounts.failures, accounts.max_attempts),
            (accounts.preemptions, accounts.max_preemptions),
            (accounts.deferrals, accounts.max_deferrals),
        ];
        if own != said || limits.iter().any(|(count, most)| most.is_some_and(|most| *count > most))
        {
            return violated(CHARGES, format!("{id:?}: counted {own:?}, said {accounts:?}"));
        }
        let policy = &self.plan.step(id.step).policy;
        let budget = policy.draft().delay_budget_ms;
        if budget.is_some_and(|budget| item.delay_ms > budget) {
            return violated(CHARGES, format!("{id:?} waited {} ms of {budget:?}", item.delay_ms));
        }
        let step = self.step_retries[id.step as usize];
        if (accounts.job_retries, accounts.step_retries) != (self.retries, step)
            || self.step_retries.iter().sum::<u32>() != self.retries
        {
            let detail = format!("{id:?}: counted {} and {step}, said {accounts:?}", self.retries);
            return violated(BUDGET, detail);
        }
        Ok(())
    }

    fn step_ends(&mut self, run: u32, step: u32, is_done: bool) -> Checked {
        if !self.steps_over.insert((run, step)) {
            return violated(ABSORBING, format!("step {step} of run {run} ends twice"));
        }
        if is_done {
            self.steps_done.insert((run, step));
        }
        Ok(())
    }

    fn ends(
        &mut self,
        state: JobState,
        reason: CompletionReason,
        succeeded: u32,
        of: u32,
    ) -> Checked {
        if let Some(before) = self.ended.replace((state, reason)) {
            return violated(ABSORBING, format!("it had ended: {before:?}"));
        }
        if succeeded != self.in_time || of as usize != self.plan.runs() {
            return violated(
                BEST_EFFORT,
                format!("{succeeded} of {of}, and {} have", self.in_time),
            );
        }
        let enough = match self.plan.best_effort() {
            Some(best_effort) => best_effort.min_datacenters,
            None => self.plan.runs() as u32,
        };
        if state == JobState::Succeeded && succeeded < enough {
            return violated(BEST_EFFORT, format!("succeeded with {succeeded} of {enough}"));
        }
        Ok(())
    }
}
