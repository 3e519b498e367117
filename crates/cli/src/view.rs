//! What `run` shows while it goes on, and how a job of the data folder stands.

use std::io::Write;

use steadfast_core::event::{
    Event, ItemId, JobState, RecordedEvent, Requester, Role, StepFailure, StepState,
};
use steadfast_core::job::{AuxiliaryItem, Job, Phase, StepRun};
use steadfast_core::outcome::Outcome;
use steadfast_core::text::shorten;
use steadfast_core::time::{Timestamp, human_ms};
use steadfast_store::LogName;

use crate::args::Output;
use crate::data::{Data, JobOwner};
use crate::screen::Screen;
use crate::style::{BAD, BOLD, DIM, GOOD, Line, WAIT, inert, paint, state_style};
use crate::summary::{
    AuxiliaryState, Failed, JobOverview, LONGEST_PROGRESS, NextTry, RunFacts, SHOWN_ITEMS,
    StepFacts, Tally, fold, labelled, longest, notes, short_value,
};

const BAR: usize = 30;
/// Lines of a failed attempt's output in the summary.
const LAST_WORDS: usize = 2;

/// Draws over itself on a terminal, and tells line by line otherwise.
#[derive(Debug)]
pub(crate) struct View {
    screen: Option<Screen>,
    lines: bool,
    /// Below the picture, as long as there is one.
    note: Option<&'static str>,
}

impl View {
    pub(crate) fn new(output: Output) -> Self {
        let human = output == Output::Human;
        let screen = Screen::here().filter(|_| human);
        Self { lines: human && screen.is_none(), screen, note: None }
    }

    pub(crate) fn begin(&self, resumed: bool) {
        if self.lines && resumed {
            println!("resumed");
        }
    }

    /// One event, before it is folded into `job`.
    pub(crate) fn event(&mut self, job: Option<&Job>, record: &RecordedEvent) {
        if self.lines
            && let Some(job) = job
            && let Some(line) = line(job, record)
        {
            let _ = writeln!(anstream::stdout(), "{line}");
        }
    }

    pub(crate) fn draw(&mut self, job: &Job, now: Timestamp) {
        let Some(screen) = &mut self.screen else { return };
        let note = self.note.map(|note| Line::new(&[(WAIT, note.to_owned())]));
        let room = Screen::rows().saturating_sub(usize::from(note.is_some()));
        let mut lines = picture(job, now, room);
        lines.extend(note);
        screen.draw(lines);
    }

    /// A note that stays below the picture from now on.
    pub(crate) fn note(&mut self, note: &'static str) {
        self.note = Some(note);
        if self.screen.is_none() {
            // The terminal may be what went away.
            let _ = writeln!(anstream::stderr(), "{}", paint(DIM, note));
        }
    }

    /// It stopped before its end: how it stands, if that was not told line by line, and how to go on.
    pub(crate) fn interrupted(&self, job: &Job, data: &Data) {
        // The terminal may be what went away.
        let _ = match self.screen {
            Some(_) => {
                let text = overview(job, JobOwner::Run, data).under_way(crate::clock::now().0);
                write!(anstream::stdout(), "{text}")
            }
            None => {
                let hint = paint(BOLD, data.hint("resume", &job.id));
                writeln!(anstream::stderr(), "interrupted; go on with {hint}")
            }
        };
    }

    /// The picture gives way to the summary.
    pub(crate) fn end(&mut self) {
        if let Some(screen) = &mut self.screen {
            screen.erase();
        }
    }
}

/// In at most `rows` lines, but one.
fn picture(job: &Job, now: Timestamp, rows: usize) -> Vec<Line> {
    let mut tally = Tally::default();
    for step in job.runs.iter().flat_map(|run| &run.steps) {
        tally.add(share(step));
    }
    let filled = (tally.over() * BAR as u64 / tally.items.max(1)) as usize;
    let plain = anstyle::Style::new();
    let mut lines = vec![Line::new(&[
        (BOLD, job.plan.name().to_owned()),
        (plain, "  ".into()),
        (GOOD, "█".repeat(filled)),
        (DIM, "░".repeat(BAR - filled)),
        (plain, format!("  {tally}")),
        (DIM, format!("  {}", human_ms(now.since(job.accepted_at) / 1000 * 1000))),
    ])];
    let steps: Vec<StepFacts> =
        places(job).map(|(run, step, state)| step_facts(job, run, step, state)).collect();
    let (shown, rest) = fold(&steps, rows.saturating_sub(1));
    let longest = longest(shown.iter().copied());
    lines.extend(shown.iter().map(|step| step.line(longest, now.0)));
    lines.extend(rest);
    lines
}

fn places(job: &Job) -> impl Iterator<Item = (u32, u32, &StepRun)> {
    job.runs.iter().enumerate().flat_map(|(run, state)| {
        let steps = state.steps.iter().enumerate();
        steps.map(move |(step, state)| (run as u32, step as u32, state))
    })
}

fn tally(step: &StepRun) -> Tally {
    Tally {
        items: u64::from(step.items),
        succeeded: u64::from(step.succeeded.len()),
        failed: step.failed.len() as u64,
        skipped: u64::from(step.skipped),
        cancelled: u64::from(step.cancelled),
    }
}

/// Its part of the job. A step of which no items are known, or never will be, is one thing to do.
fn share(step: &StepRun) -> Tally {
    if step.items > 0 {
        return tally(step);
    }
    let is = |state| u64::from(step.state == state);
    Tally {
        items: 1,
        succeeded: is(StepState::Succeeded),
        failed: is(StepState::Failed),
        skipped: is(StepState::Skipped),
        cancelled: is(StepState::Cancelled),
    }
}

fn step_facts(job: &Job, run: u32, step: u32, state: &StepRun) -> StepFacts {
    let live = || state.live.values();
    let in_phase = |phase| live().filter(|item| item.phase == phase).count() as u64;
    let due = live().filter_map(|item| match item.phase {
        Phase::BackingOff { due_at, .. } => Some((due_at, item)),
        _ => None,
    });
    let untouched = u64::from(state.open_items()).saturating_sub(state.live.len() as u64);
    let only = live().next().filter(|_| state.items <= 1);
    let progress = only.and_then(|item| item.progress.as_ref());
    StepFacts {
        paused: job.paused_at.is_some(),
        tally: tally(state),
        running: in_phase(Phase::Running),
        called: in_phase(Phase::AwaitingCallback),
        backing_off: due.clone().count() as u64,
        ready: in_phase(Phase::Ready) + untouched,
        attempt: only.map_or(0, |item| item.history.attempts),
        progress: progress.map(|it| shorten(&it.said.to_string(), LONGEST_PROGRESS)),
        next: due.min_by_key(|(due_at, _)| *due_at).map(|(due_at, item)| NextTry {
            due_ms: due_at.0,
            attempt: item.history.attempts + 1,
            last_error: item.last_error(),
        }),
        attempts: Some(state.attempts),
        fallback: state.fallback.as_ref().map(auxiliary),
        compensation: state.compensation.as_ref().map(auxiliary),
        error: match &state.failure {
            Some(StepFailure::FanOut(error)) => Some(error.clone()),
            _ => None,
        },
        ..StepFacts::new(job.plan.step_name(run, step), state.state)
    }
}

fn auxiliary(item: &AuxiliaryItem) -> AuxiliaryState {
    match item {
        AuxiliaryItem::Live(_) => AuxiliaryState::UnderWay,
        AuxiliaryItem::Succeeded => AuxiliaryState::Succeeded,
        AuxiliaryItem::Failed(_) => AuxiliaryState::Failed,
        AuxiliaryItem::Cancelled => AuxiliaryState::Cancelled,
    }
}

/// An event as one line, if a person wants to know of it.
pub(crate) fn line(job: &Job, record: &RecordedEvent) -> Option<String> {
    let plan = &job.plan;
    let item_name = |item: ItemId| item_label(job, item);
    let place = |run: u32, step: u32| paint(BOLD, plan.step_name(run, step));
    Some(match &record.event {
        Event::AttemptStarted { item, attempt, .. } => {
            format!("{} attempt {attempt} started", item_name(*item))
        }
        Event::AttemptEnded { item, attempt, outcome, .. } => {
            let how = match outcome {
                Outcome::Succeeded { .. } => return None,
                Outcome::Lost { started: true, .. } => "was lost with its worker".to_owned(),
                Outcome::Lost { started: false, .. } => "had not begun".to_owned(),
                Outcome::Failed(failure) => format!("failed: {}", inert(&failure.describe())),
            };
            format!("{} attempt {attempt} {how}", item_name(*item))
        }
        Event::CallbackAwaited { item, attempt, .. } => {
            format!("{} attempt {attempt} waits for its callback", item_name(*item))
        }
        Event::AttemptProgressed { item, attempt, progress } => {
            let said = shorten(&progress.to_string(), LONGEST_PROGRESS);
            let name = item_name(*item);
            format!("{name} attempt {attempt} says {}", paint(DIM, inert(&said)))
        }
        Event::LateCallback { item, attempt, .. } => {
            format!("{} was called back too late for attempt {attempt}", item_name(*item))
        }
        Event::ItemSucceeded { item, .. } => {
            format!("{} {}", item_name(*item), paint(GOOD, "succeeded"))
        }
        Event::RetryScheduled { item, attempt, delay_ms, .. } => {
            let when = match delay_ms {
                0 => "at once".to_owned(),
                ms => format!("in {}", human_ms(*ms)),
            };
            let next = paint(WAIT, format!("attempt {} {when}", attempt + 1));
            format!("{} {next}", item_name(*item))
        }
        Event::ItemFailed { item, reason, on, .. } => {
            let why = paint(BAD, format!("gave up: {reason}"));
            let told = plan.step(item.step).spelling.respell(reason.message_on(*on));
            format!("{} {why} ({told})", item_name(*item))
        }
        Event::StepFailed { run, step, continues } => {
            let rest = if *continues { ", what needs it goes on" } else { "" };
            format!("{} {}{rest}", place(*run, *step), paint(BAD, "failed"))
        }
        Event::StepSkipped { run, step, because } => {
            let because = inert(&plan.step(*because).name);
            format!("{} skipped, because {because} failed", place(*run, *step))
        }
        Event::CancelRequested { requested } => requested_line("cancel", requested),
        Event::JobPaused { requested } => requested_line("pause", requested),
        Event::JobResumed { requested } => requested_line("resume", requested),
        Event::LateDatacenterResult { run, added } => {
            let state = job.run_state(*run);
            let state = paint(state_style(state), state);
            let what = if *added { "added to the result" } else { "only logged" };
            format!(
                "{} {state} after the job had ended: {what}",
                paint(BOLD, datacenter(job, *run))
            )
        }
        Event::EngineRestarted { down_since } => {
            format!("back after {}", human_ms(record.at.since(*down_since)))
        }
        _ => return None,
    })
}

fn datacenter(job: &Job, run: u32) -> &str {
    job.plan.datacenter(run).unwrap_or("the run")
}

/// `cancelled by ci: wrong input`
fn requested_line(command: &str, requested: &Requester) -> String {
    let done = match command {
        "cancel" => "cancelled",
        "pause" => "paused",
        _ => "resumed",
    };
    let by = requested.to_string();
    format!("{}{}", paint(WAIT, done), inert(&by))
}

/// `archive[1] mail`: an item, and which element of `for_each` it is.
pub(crate) fn item_label(job: &Job, item: ItemId) -> String {
    let name = paint(BOLD, job.plan.item_name(item));
    match job.telling_value(item) {
        Some(value) => format!("{name} {}", paint(DIM, inert(&short_value(&value)))),
        None => name,
    }
}

/// The last lines that an attempt wrote, made harmless.
fn last_words(job: &Job, item: ItemId, attempt: u32, data: &Data) -> Vec<String> {
    let step = &job.plan.step(item.step).name;
    let log = LogName::new(&job.id, step, item, attempt);
    let tail = data.log_tail(&log, 2000).unwrap_or_default();
    let text = String::from_utf8_lossy(&tail);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
    last.iter().map(|line| line.chars().take(160).collect()).collect()
}

/// Where a job that is kept here stands.
pub(crate) fn overview(job: &Job, owner: JobOwner, data: &Data) -> JobOverview {
    let steps = places(job).map(|(run, step, state)| {
        let failures = state.failed.iter().take(SHOWN_ITEMS).map(|(index, stopped)| {
            let id = ItemId { run, step, role: Role::Item, index: *index };
            let error = stopped.error.as_deref().unwrap_or("no worker took it");
            let reason = stopped.reason.message_on(stopped.on);
            let reason = job.plan.step(step).spelling.respell(reason);
            Failed {
                name: labelled(job.plan.item_name(id), job.telling_value(id).as_ref()),
                why: format!("{reason}: {error}"),
                words: last_words(job, id, stopped.history.attempts, data),
            }
        });
        StepFacts { failures: failures.collect(), ..step_facts(job, run, step, state) }
    });
    let mut hints = vec![];
    if data.has_logs(job) {
        hints.push(format!("output: {}", data.hint("logs", &job.id)));
    }
    if job.state() != JobState::Succeeded {
        hints.push(format!("why: {}", data.hint("explain", &job.id)));
    }
    JobOverview {
        id: job.id.to_string(),
        name: job.plan.name().to_owned(),
        damage: None,
        hints,
        state: data.shown_state(job, owner),
        submitted_ms: job.accepted_at.0,
        finished_ms: job.finished_at.map(|at| at.0),
        reason: job.completion.map(|completion| completion.reason.name().to_owned()),
        steps: steps.collect(),
        rests: data.rests(job, owner),
        notes: notes(
            &runs(job),
            data.shown_state(job, owner),
            job.cancel.as_ref().map(|cancel| cancel.requested.clone()),
            job.paused_at.map(|_| job.paused_by.clone()),
        ),
    }
}

fn runs(job: &Job) -> Vec<RunFacts> {
    let runs = job.runs.iter().enumerate().filter_map(|(index, run)| {
        let datacenter = job.plan.datacenter(index as u32)?.to_owned();
        let (state, late, counts) = (job.run_state(index as u32), run.late, run.counted);
        Some(RunFacts { datacenter, state, late, counts })
    });
    runs.collect()
}
