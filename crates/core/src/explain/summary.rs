//! Where a job, its steps and its items stand, and why.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::MOST_SHOWN;
use super::waiting::{WaitsFor, all_steps, step_waits, unmet, until_start, untouched, waits_for};
use super::words::{and, count, until};
use crate::event::{CompletionReason, JobId, JobState, Requester, Role, StepFailure, StepState};
use crate::job::{AuxiliaryItem, Job, Phase, Run, StepRun, StoppedItem, Timer, WorkItem};
use crate::plan::{ForEach, Plan};
use crate::select::ItemSelector;
use crate::time::{Timestamp, human_ms};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobExplanation {
    pub id: JobId,
    pub name: String,
    pub state: JobState,
    pub reason: Option<CompletionReason>,
    /// When the job itself ends its waiting: it begins, times out, or takes what there is.
    #[serde(rename = "until_ms")]
    pub until: Option<Timestamp>,
    /// `failed: the goal publish failed, because it stopped: attempts_exhausted (exit code 1)`
    pub sentence: String,
}

impl fmt::Display for JobExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepExplanation {
    /// `eu-west/index`
    pub name: String,
    pub datacenter: Option<String>,
    pub step: String,
    pub state: StepState,
    /// It failed, and its fallback let the job go on.
    pub rescued: bool,
    /// What follows the name.
    pub sentence: String,
}

impl fmt::Display for StepExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.sentence)
    }
}

pub(super) fn job(job: &Job, now: Timestamp) -> JobExplanation {
    let state = job.state();
    let job_deadlines = [Timer::Begin, Timer::JobTimeout, Timer::Deadline, Timer::Grace];
    let until = job_deadlines.iter().filter_map(|timer| job.timer_due(timer)).min();
    let why = match state {
        JobState::Pending if !job.has_begun() => format!("it starts {}", until_start(job, now)),
        JobState::Paused => {
            let running = job.runs.iter().map(|run| u64::from(run.in_flight)).sum();
            let still = match running {
                0 => String::new(),
                n => format!("; {} still", count(n, "attempt runs", "attempts run")),
            };
            let paused = human_ms(now.since(job.paused_at.unwrap_or(now)));
            let by = requested(&job.paused_by, "paused").map(|by| format!("; {by}"));
            let by = by.unwrap_or_default();
            format!("for {paused}, nothing starts until it is resumed{still}{by}")
        }
        JobState::Pending | JobState::Running => running(job, now),
        JobState::Succeeded | JobState::Partial | JobState::Failed | JobState::Cancelled => {
            ended(job)
        }
    };
    JobExplanation {
        id: job.id.clone(),
        name: job.plan.name().to_owned(),
        state,
        reason: job.completion.map(|completion| completion.reason),
        until: until.filter(|_| !state.is_terminal()),
        sentence: format!("{state}: {why}"),
    }
}

fn running(job: &Job, now: Timestamp) -> String {
    let (mut run, mut called, mut backing_off) = (0u64, 0u64, 0u64);
    let mut next = None::<Timestamp>;
    for (_, item) in job.all_live() {
        match item.phase {
            Phase::Running => run += 1,
            Phase::AwaitingCallback => called += 1,
            Phase::BackingOff { due_at, .. } => {
                backing_off += 1;
                next = Some(next.map_or(due_at, |next| next.min(due_at)));
            }
            Phase::Ready => {}
        }
    }
    let (mut for_worker, mut for_turn) = (0u64, 0u64);
    let mut waiting = 0u64;
    let mut needs = BTreeSet::new();
    for (index, step, state) in all_steps(job) {
        if state.state == StepState::Waiting {
            waiting += 1;
            needs.extend(unmet(job, index, step).into_iter().filter(|&need| {
                job.step_run(index, need).is_some_and(|need| need.state == StepState::Running)
            }));
        }
        let is_ready = |item: &&WorkItem| item.phase == Phase::Ready;
        let asides =
            [&state.fallback, &state.compensation].into_iter().filter_map(|aside| match aside {
                Some(AuxiliaryItem::Live(item)) => Some(item),
                _ => None,
            });
        for_worker += asides.filter(is_ready).count() as u64;
        let ready = state.live.values().filter(is_ready).count() as u64;
        let ready = ready + u64::from(untouched(state));
        match waits_for(job, index, step, Role::Item) {
            WaitsFor::Parallelism { .. } => for_turn += ready,
            WaitsFor::Worker | WaitsFor::Resume => for_worker += ready,
        }
    }
    let due = next.map(|at| format!(" (the next is due {})", until(at, now)));
    let mut parts: Vec<String> = vec![];
    for (n, one, many) in [
        (run, "runs", "run"),
        (called, "waits for its callback", "wait for their callbacks"),
        (backing_off, "backs off", "back off"),
        (for_worker, "waits for a worker", "wait for a worker"),
        (for_turn, "waits for its turn", "wait for their turn"),
    ] {
        let due = due.as_deref().filter(|_| many == "back off").unwrap_or_default();
        match (n, parts.is_empty()) {
            (0, _) => {}
            (1, true) => parts.push(format!("1 item {one}{due}")),
            (_, true) => parts.push(format!("{n} items {many}{due}")),
            (_, false) => parts.push(format!("{}{due}", count(n, one, many))),
        }
    }
    if waiting > 0 {
        let names = needs.iter().map(|&need| format!("`{}`", job.plan.step(need).name));
        let names = match needs.len() {
            1..=3 => and(names),
            _ => "others".to_owned(),
        };
        parts.push(format!("{} for {names}", count(waiting, "step waits", "steps wait")));
    }
    let mut text =
        if parts.is_empty() { "nothing is left to start".to_owned() } else { parts.join(", ") };
    for (index, run) in job.runs.iter().enumerate() {
        if let (Some(goal), true) = (run.failing, run.is_live()) {
            let goal = &job.plan.step(goal).name;
            text.push_str(&format!(
                "; the goal `{goal}` is lost{}, what succeeded is undone",
                place(&job.plan, index as u32)
            ));
        }
    }
    if let Some(at) = job.timer_due(&Timer::Grace) {
        text.push_str(&format!("; enough datacenters succeeded, it ends {}", until(at, now)));
    }
    text
}

fn ended(job: &Job) -> String {
    let Some(completion) = job.completion else { return String::new() };
    let plan = &job.plan;
    let of = count(completion.of.into(), "datacenter succeeded", "datacenters succeeded");
    let of = format!("{} of {of}", completion.succeeded);
    let wanted = plan.best_effort().map_or(0, |best| best.min_datacenters);
    let short = if completion.succeeded < wanted {
        format!(", fewer than {} ({wanted})", plan.spelling().key("min_datacenters"))
    } else {
        String::new()
    };
    let failed = || (0..job.runs.len() as u32).find_map(|run| run_failed(job, run));
    match completion.reason {
        CompletionReason::Cancelled => {
            let by = job.cancel.as_ref().and_then(|by| requested(&by.requested, "cancelled"));
            by.unwrap_or_else(|| "somebody cancelled it".to_owned())
        }
        CompletionReason::RunFailed => failed().unwrap_or_else(|| "a run failed".to_owned()),
        CompletionReason::TimedOut => {
            let timeout = human_ms(plan.timeout_ms().unwrap_or(0));
            let best = plan.best_effort().map(|_| format!("; {of}{short}")).unwrap_or_default();
            format!("the job's timeout of {timeout} passed{best}")
        }
        CompletionReason::DeadlineExpired => {
            let deadline = human_ms(plan.best_effort().map_or(0, |best| best.deadline_ms));
            format!("{of}{short} when the deadline of {deadline} passed{}", late(job))
        }
        CompletionReason::MinDatacentersReached => {
            let least = plan.spelling().key("min_datacenters");
            format!("{of}, enough for {least}{}", late(job))
        }
        CompletionReason::AllReported if plan.datacenters().is_empty() && failed().is_none() => {
            goals_reached(job)
        }
        CompletionReason::AllReported => match failed() {
            Some(why) => format!("{of}{short}; {why}"),
            None => of,
        },
    }
}

/// `ci cancelled it: wrong input`; none where nothing is known.
fn requested(requester: &Requester, did: &str) -> Option<String> {
    if requester.is_unknown() {
        return None;
    }
    let by = requester.by.as_deref().unwrap_or("somebody");
    let why = requester.reason.as_ref().map(|reason| format!(": {reason}"));
    Some(format!("{by} {did} it{}", why.unwrap_or_default()))
}

/// `; later ap-south succeeded, added to the result`
fn late(job: &Job) -> String {
    let mut text = String::new();
    let runs = job.runs.iter().enumerate().filter(|(_, run)| run.late);
    for (index, run) in runs {
        let datacenter = job.plan.datacenter(index as u32).unwrap_or_default();
        let added = if run.counted { "added to the result" } else { "only logged" };
        text.push_str(&format!("; later {datacenter} {}, {added}", run.state));
    }
    text
}

/// How the goals of a run that succeeded ended: some may have failed, and been let pass.
fn goals_reached(job: &Job) -> String {
    let goals = job.plan.goals();
    let name = |goal: &u32| format!("`{}`", job.plan.step(*goal).name);
    let let_pass = |goal: &&u32| job.step_run(0, **goal).is_some_and(|step| step.continues);
    let (passed, succeeded): (Vec<&u32>, Vec<&u32>) = goals.iter().partition(let_pass);
    if goals.len() > 3 {
        return match passed.len() {
            0 => format!("all {} goals succeeded", goals.len()),
            n => format!(
                "{} of {} goals succeeded, {n} failed with `then: continue`",
                succeeded.len(),
                goals.len()
            ),
        };
    }
    let mut parts = vec![];
    if !succeeded.is_empty() {
        parts.push(format!("{} succeeded", and(succeeded.into_iter().map(name))));
    }
    for goal in passed {
        let rescued = job.step_run(0, *goal).is_some_and(rescued);
        let how =
            if rescued { "was rescued by its fallback" } else { "is let pass (`then: continue`)" };
        parts.push(format!("{} failed and {how}", name(goal)));
    }
    parts.join("; ")
}

/// The step failed, its fallback did not, and what needs the step goes on.
fn rescued(step: &StepRun) -> bool {
    step.continues && matches!(step.fallback, Some(AuxiliaryItem::Succeeded))
}

/// ` in eu-west`
fn place(plan: &Plan, run: u32) -> String {
    plan.datacenter(run).map(|dc| format!(" in {dc}")).unwrap_or_default()
}

fn run_failed(job: &Job, run: u32) -> Option<String> {
    let goal = job.runs[run as usize].failing?;
    let name = &job.plan.step(goal).name;
    let state = job.step_run(run, goal)?;
    let place = place(&job.plan, run);
    Some(match state.because {
        Some(because) => {
            let cause = &job.plan.step(because).name;
            let why = step_failed(job, run, because);
            format!(
                "the goal `{name}` could not be reached{place}, because `{cause}` failed: {why}"
            )
        }
        None => format!("the goal `{name}` failed{place}, because {}", step_failed(job, run, goal)),
    })
}

fn stopped(stopped: &StoppedItem) -> String {
    match &stopped.error {
        Some(error) => format!("stopped: {} ({error})", stopped.reason),
        None => format!("stopped: {}", stopped.reason),
    }
}

/// What has failed a step.
fn step_failed(job: &Job, run: u32, step: u32) -> String {
    let Some(state) = job.step_run(run, step) else { return String::new() };
    let draft = job.plan.step(step);
    let mut why = match &state.failure {
        None => "nothing has failed it".to_owned(),
        Some(StepFailure::FanOut(text)) => text.clone(),
        Some(StepFailure::Item(index)) => {
            let how = state.failed.get(index).map_or_else(|| "stopped".to_owned(), stopped);
            let tolerated = draft.max_failed.of(state.items);
            match (&draft.for_each, tolerated) {
                (ForEach::Once, _) => format!("it {how}"),
                (_, 0) => format!("item {index} {how}"),
                (_, most) => {
                    let failed = state.failed.len();
                    format!(
                        "{failed} of {} items failed, more than max_failed ({most}); item {index} {how}",
                        state.items
                    )
                }
            }
        }
    };
    match &state.fallback {
        Some(AuxiliaryItem::Failed(fallback)) => {
            why.push_str(&format!("; its fallback {}", self::stopped(fallback)));
        }
        // Of one that rescued it more is said.
        Some(AuxiliaryItem::Succeeded) if !state.continues => {
            why.push_str("; its fallback succeeded, which `then: fail` does not count");
        }
        _ => {}
    }
    why
}

pub(super) fn steps(job: &Job, only: ItemSelector, now: Timestamp) -> (Vec<StepExplanation>, u64) {
    let told = all_steps(job).filter(|(run, step, state)| {
        let smooth = state.state == StepState::Succeeded && state.failed.is_empty();
        only.has_step(*run, *step) && !smooth
    });
    let mut left_out = 0;
    let mut steps = vec![];
    for (run, step, state) in told {
        if steps.len() == MOST_SHOWN {
            left_out += 1;
            continue;
        }
        steps.push(StepExplanation {
            name: job.plan.step_name(run, step),
            datacenter: job.plan.datacenter(run).map(str::to_owned),
            step: job.plan.step(step).name.clone(),
            state: state.state,
            rescued: rescued(state),
            sentence: step_sentence(job, run, step, state, now),
        });
    }
    (steps, left_out)
}

fn step_sentence(job: &Job, run: u32, step: u32, state: &StepRun, now: Timestamp) -> String {
    match state.state {
        StepState::Waiting => step_waits(job, run, step, now),
        StepState::Running if state.failing() => {
            let after = match &state.fallback {
                Some(AuxiliaryItem::Live(_)) => "its fallback is under way",
                _ => "what still runs of it finishes",
            };
            format!("failing because {}; {after}", step_failed(job, run, step))
        }
        StepState::Running => {
            let phase = |is: fn(&Phase) -> bool| {
                state.live.values().filter(|item| is(&item.phase)).count() as u64
            };
            let done = u64::from(state.succeeded.len()) + state.failed.len() as u64;
            let mut text = format!("{done} of {} done", count(state.items.into(), "item", "items"));
            for (n, one, many) in [
                (phase(|p| *p == Phase::Running), "runs", "run"),
                (
                    phase(|p| *p == Phase::AwaitingCallback),
                    "waits for its callback",
                    "wait for their callbacks",
                ),
                (phase(|p| matches!(p, Phase::BackingOff { .. })), "backs off", "back off"),
                (phase(|p| *p == Phase::Ready), "is ready", "are ready"),
                (u64::from(untouched(state)), "has not started", "have not started"),
            ] {
                if n > 0 {
                    text.push_str(&format!(", {}", count(n, one, many)));
                }
            }
            text
        }
        StepState::Succeeded => {
            let failed = count(state.failed.len() as u64, "item", "items");
            format!("succeeded, although {failed} of {} failed: max_failed allows it", state.items)
        }
        StepState::Failed => {
            let goes_on = if rescued(state) {
                "; its fallback rescued it, what needs it goes on"
            } else if state.continues {
                "; what needs it goes on"
            } else {
                ""
            };
            format!("failed because {}{goes_on}", step_failed(job, run, step))
        }
        StepState::Skipped => {
            let because = state.because.map_or("another step", |s| &job.plan.step(s).name);
            format!("skipped because `{because}` failed")
        }
        StepState::Cancelled => cancelled(job, &job.runs[run as usize]),
    }
}

fn cancelled(job: &Job, run: &Run) -> String {
    if let Some(goal) = run.failing {
        return format!("cancelled because the goal `{}` was lost", job.plan.step(goal).name);
    }
    match job.completion.map(|completion| completion.reason) {
        Some(CompletionReason::Cancelled) => "cancelled with the job".to_owned(),
        Some(CompletionReason::TimedOut) => {
            let timeout = human_ms(job.plan.timeout_ms().unwrap_or(0));
            format!("cancelled because the job's timeout of {timeout} passed")
        }
        Some(CompletionReason::RunFailed) => {
            let failed = job.runs.iter().position(|run| run.failing.is_some());
            let place = failed.map(|run| place(&job.plan, run as u32)).unwrap_or_default();
            format!("cancelled because the job failed{place}")
        }
        _ => "cancelled with its run".to_owned(),
    }
}
