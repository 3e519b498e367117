//! The recorded outcomes of a job under another policy: each is judged anew by [`verdict`], with the history that its item would
//! have had, and the accounts that it would have shared.
//!
//! What was recorded are facts: which attempts ended how and when. Where the other policy would have tried again after the
//! recorded end, what would have happened then is not known; where it would have stopped sooner, what followed would not have been.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::counterfactual::DecisionBasis;
use super::words::count;
use super::{DecisionSummary, ItemName, MOST_VERDICTS, ObservedState, VerdictObserver, recorded};
use crate::account::{Accounts, Charges, History, SharedAccounts};
use crate::apply::{IllegalEvent, fold, replay};
use crate::event::{Event, FailedOn, ItemId, RecordedEvent, Role};
use crate::job::Job;
use crate::plan::Budget;
use crate::policy::Policy;
use crate::select::ItemSelector;
use crate::time::Timestamp;
use crate::verdict::{
    Decision, StopReason, Verdict, accounts_after, expired, retries_counted, verdict,
};

/// Differences that the summary names.
const NAMED: usize = 3;

/// Policies instead of those that the job has.
#[derive(Clone, Debug, Default)]
pub struct PolicyChange {
    /// By step.
    pub policies: BTreeMap<u32, Policy>,
    /// None: the job's own budget, if it has one.
    pub budget: Option<Budget>,
}

/// What would have been decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIf {
    /// In the order they were given. Of too many, those that differ stay.
    pub verdicts: Vec<JudgedVerdict>,
    /// `2 of 7 decisions differ: fetch attempt 3 retry in 4s instead of stop, attempts_exhausted; …`
    pub summary: String,
    pub differs: u64,
    pub left_out: u64,
}

/// One recorded decision, and what it would have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedVerdict {
    pub seq: u64,
    #[serde(rename = "at_ms")]
    pub at: Timestamp,
    pub item: ItemName,
    /// 0: none had started.
    pub attempt: u32,
    /// As a rehearsal script writes it; none if no attempt gave one.
    pub outcome: Option<String>,
    pub error: Option<String>,
    pub recorded: DecisionSummary,
    /// None: the attempt would not have been.
    pub judged: Option<DecisionSummary>,
    pub differs: bool,
    pub recorded_accounts: Accounts,
    pub judged_accounts: Option<Accounts>,
    pub note: Option<String>,
}

/// An item as it would have been.
#[derive(Clone, Copy, Debug)]
struct AlteredItem {
    history: History,
    /// It would have been given up after this attempt.
    stopped: Option<u32>,
}

/// Judges a log anew, of which it is shown one event after the other.
#[derive(Debug)]
pub struct WhatIfJudge {
    change: PolicyChange,
    only: ItemSelector,
    job: Option<Job>,
    observer: VerdictObserver,
    items: BTreeMap<ItemId, AlteredItem>,
    /// Steps of which an item would have been given up.
    failed: BTreeSet<(u32, u32)>,
    retries: u32,
    step_retries: Vec<u32>,
    /// Those that are as they were, and those that differ.
    kept: [VecDeque<JudgedVerdict>; 2],
    counts: [u64; 2],
}

impl WhatIfJudge {
    /// `only`: what is shown; what differs elsewhere, because of a budget that is shared, is shown as well.
    pub fn new(change: PolicyChange, only: ItemSelector) -> Self {
        Self {
            change,
            only,
            job: None,
            observer: VerdictObserver::default(),
            items: BTreeMap::new(),
            failed: BTreeSet::new(),
            retries: 0,
            step_retries: vec![],
            kept: [VecDeque::new(), VecDeque::new()],
            counts: [0; 2],
        }
    }

    /// The next event of the log.
    pub fn see(&mut self, record: &RecordedEvent) -> Result<(), IllegalEvent> {
        if let Some(job) = self.job.take() {
            if let Some(on) = self.observer.look(&job, record) {
                self.judge(&job, record, &on);
            }
            self.job = Some(job);
            return fold(&mut self.job, record);
        }
        fold(&mut self.job, record)?;
        if let Some(job) = &self.job {
            (self.retries, self.step_retries) = (job.retries, job.step_retries.clone());
        }
        Ok(())
    }

    fn judge(&mut self, job: &Job, record: &RecordedEvent, on: &ObservedState) {
        let item = on.item;
        let own = &job.plan.step(item.step).policy;
        let outcome = match &on.ground {
            DecisionBasis::Outcome(outcome) => Some(outcome),
            DecisionBasis::Overdue { .. } => None,
        };
        let nothing = accounts_after(own, &on.history, &on.shared, Charges::default(), 0);
        let (was, failed_on, attempt, error) = recorded(&record.event, outcome, nothing);
        let new = AlteredItem { history: on.history, stopped: None };
        let mut altered = self.items.remove(&item).unwrap_or(new);
        // What no policy changes.
        altered.history.attempts = on.history.attempts;
        altered.history.downtime_ms = on.history.downtime_ms;
        let judged = match altered.stopped {
            Some(_) => None,
            None => Some(self.verdict(job, record, on, failed_on, was, &altered.history)),
        };
        if let Some(judged) = judged {
            if let Some(outcome) = outcome {
                altered.history.attempt_ended(outcome);
            }
            altered.history.charge(judged.charged, record.at);
            match judged.decision {
                Decision::Complete => {}
                Decision::Retry { cause, delay_ms, .. } => {
                    altered.history.backs_off(cause, delay_ms);
                    // A stop without an attempt that would have been none takes nothing.
                    if outcome.is_some() {
                        let retries = retries_counted(cause, judged.charged);
                        self.retries = self.retries.saturating_add(retries);
                        if let Some(of_step) = self.step_retries.get_mut(item.step as usize) {
                            *of_step = of_step.saturating_add(retries);
                        }
                    }
                }
                Decision::Stop { .. } => {
                    altered.stopped = Some(attempt);
                    if item.role == Role::Item {
                        self.failed.insert((item.run, item.step));
                    }
                }
            }
        }
        let note = note(was.decision, judged.map(|judged| judged.decision), altered.stopped);
        if matches!(record.event, Event::RetryScheduled { .. }) {
            self.items.insert(item, altered);
        }
        let differs = judged.is_none_or(|judged| judged.decision != was.decision);
        if !differs && !self.only.has(item) {
            return;
        }
        let class = usize::from(differs);
        self.counts[class] += 1;
        let kept = &mut self.kept[class];
        if kept.len() == MOST_VERDICTS {
            kept.pop_front();
        }
        kept.push_back(JudgedVerdict {
            seq: record.seq,
            at: record.at,
            item: ItemName::new(job, item),
            attempt,
            outcome: outcome.map(ToString::to_string),
            error,
            recorded: was.decision.into(),
            judged: judged.map(|judged| judged.decision.into()),
            differs,
            recorded_accounts: was.accounts,
            judged_accounts: judged.map(|judged| judged.accounts),
            note,
        });
    }

    fn verdict(
        &self,
        job: &Job,
        record: &RecordedEvent,
        on: &ObservedState,
        failed_on: FailedOn,
        was: Verdict,
        history: &History,
    ) -> Verdict {
        let (item, now) = (on.item, record.at);
        let own = &job.plan.step(item.step).policy;
        let policy = self.change.policies.get(&item.step).unwrap_or(own);
        let shared = self.shared(job, on);
        match &on.ground {
            DecisionBasis::Outcome(outcome) => verdict(policy, history, &shared, outcome, now),
            // No policy has workers.
            DecisionBasis::Overdue { .. } if failed_on == FailedOn::NoWorker => was,
            DecisionBasis::Overdue { budget_expires_at, due_at } => {
                let expires = budget_expires_at
                    .and_then(|at| expiry_under(policy, history, at, (own, &on.history)));
                let (charged, delay_ms) = (Charges::default(), due_at.since(now));
                let cause = crate::verdict::Cause::Failure;
                let goes_on = Decision::Retry { cause, delay_ms, due_at: *due_at };
                let decision = expired(policy, history, expires, now)
                    .map_or(goes_on, |reason| Decision::Stop { reason });
                let accounts = accounts_after(policy, history, &shared, charged, 0);
                Verdict { decision, charged, accounts }
            }
        }
    }

    /// The shared accounts as they would have stood.
    fn shared(&self, job: &Job, on: &ObservedState) -> SharedAccounts {
        let item = on.item;
        let budget = self.change.budget.as_ref().or(job.plan.budget());
        // The sibling that failed the step would not have.
        let is_lifted = on.shared.halted == Some(StopReason::StepFailed)
            && !self.failed.contains(&(item.run, item.step));
        SharedAccounts {
            job_retries: self.retries,
            job_budget: budget.and_then(|budget| budget.total_at(on.items_started)),
            step_retries: self.step_retries.get(item.step as usize).copied().unwrap_or(0),
            step_budget: budget.and_then(Budget::per_step),
            budgeted: budget.map(|budget| budget.counts),
            halted: on.shared.halted.filter(|_| !is_lifted),
            ..on.shared
        }
    }

    /// Of what was seen.
    pub fn what_if(self) -> Result<WhatIf, IllegalEvent> {
        if self.job.is_none() {
            replay([])?;
        }
        let [same, differing] = self.kept;
        let [same_count, differs] = self.counts;
        let total = same_count + differs;
        let room = MOST_VERDICTS.saturating_sub(differing.len());
        let summary = summary(&differing, differs, total);
        let same = same.into_iter().rev().take(room);
        let mut verdicts: Vec<JudgedVerdict> = differing.into_iter().chain(same).collect();
        verdicts.sort_unstable_by_key(|verdict| verdict.seq);
        let left_out = total - verdicts.len() as u64;
        Ok(WhatIf { verdicts, summary, differs, left_out })
    }
}

/// When the delay budget would have run out: later by what the budget is larger, sooner by what more was spent of it before.
fn expiry_under(
    policy: &Policy,
    history: &History,
    recorded: Timestamp,
    (own, own_history): (&Policy, &History),
) -> Option<Timestamp> {
    let spent_before = |history: &History| {
        history.delay_spent_ms.saturating_sub(history.last_delay_ms.unwrap_or(0))
    };
    let later = policy.delay_budget_ms?.saturating_add(spent_before(own_history));
    let sooner = own.delay_budget_ms.unwrap_or(0).saturating_add(spent_before(history));
    Some(Timestamp(recorded.0.saturating_add(later).saturating_sub(sooner)))
}

fn note(was: Decision, judged: Option<Decision>, stopped: Option<u32>) -> Option<String> {
    match (was, judged) {
        (_, None) => {
            let attempt = stopped.unwrap_or(0);
            Some(format!(
                "would not have been: it would have been given up after attempt {attempt}"
            ))
        }
        (Decision::Stop { .. }, Some(Decision::Retry { .. })) => Some(
            "it would have been tried again; what would have happened then is not known".to_owned(),
        ),
        (Decision::Retry { .. }, Some(Decision::Stop { .. })) => {
            Some("its later attempts would not have been".to_owned())
        }
        _ => None,
    }
}

fn summary(differing: &VecDeque<JudgedVerdict>, differs: u64, total: u64) -> String {
    let all = count(total, "decision", "decisions");
    if differs == 0 {
        return format!("none of {all} differs");
    }
    let named = differing.iter().take(NAMED).map(|verdict| {
        let JudgedVerdict { item, attempt, recorded, judged, .. } = verdict;
        match judged {
            Some(judged) => format!("{item} attempt {attempt} {judged} instead of {recorded}"),
            None => format!("{item} attempt {attempt} would not have been"),
        }
    });
    let named: Vec<String> = named.collect();
    let more = if differs > named.len() as u64 { "; …" } else { "" };
    let verb = if differs == 1 { "differs" } else { "differ" };
    format!("{differs} of {all} {verb}: {}{more}", named.join("; "))
}
