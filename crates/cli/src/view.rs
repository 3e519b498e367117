//! What `run` shows while it goes on, and the summary at the end.

use std::io::{IsTerminal, Write};

use steadfast_core::event::{Event, ItemId, Recorded, Role, StepState};
use steadfast_core::job::{Aside, Job, Phase, StepRun};
use steadfast_core::outcome::Outcome;
use steadfast_core::text::shorten;
use steadfast_core::time::{Timestamp, human_ms};

use crate::args::Output;
use crate::data::Data;
use crate::paint::{BAD, BOLD, DIM, GOOD, WAIT, inert, paint, state_style};

/// Lines of steps that are drawn; a longer job shows those that are under way.
const SHOWN_STEPS: usize = 20;
const BAR: usize = 30;
/// Characters of what an attempt says about how far it is.
const LONGEST_PROGRESS: usize = 60;
/// Lines of a failed attempt's output in the summary.
const LAST_WORDS: usize = 2;

/// Draws over itself on a terminal, and tells line by line otherwise.
#[derive(Debug)]
pub(crate) struct View {
    drawn: usize,
    live: bool,
    lines: bool,
}

impl View {
    pub(crate) fn new(output: Output) -> Self {
        let human = output == Output::Human;
        let live = human && std::io::stdout().is_terminal();
        Self { drawn: 0, live, lines: human && !live }
    }

    pub(crate) fn begin(&self, resumed: bool) {
        if self.lines && resumed {
            println!("resumed");
        }
    }

    /// One event, before it is folded into `job`.
    pub(crate) fn event(&mut self, job: Option<&Job>, record: &Recorded) {
        if self.lines
            && let Some(job) = job
            && let Some(line) = line(job, record)
        {
            let _ = writeln!(anstream::stdout(), "{line}");
        }
    }

    pub(crate) fn draw(&mut self, job: &Job, now: Timestamp) {
        if !self.live {
            return;
        }
        let width = terminal_width();
        let mut text = String::new();
        if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A\x1b[J", self.drawn));
        }
        let lines = picture(job, now);
        for (plain, painted) in &lines {
            // A line that wraps would be drawn over in the wrong place.
            let fits = plain.chars().count() <= width;
            let cut: String = plain.chars().take(width).collect();
            text.push_str(if fits { painted } else { &cut });
            text.push('\n');
        }
        self.drawn = lines.len();
        let mut out = anstream::stdout().lock();
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
    }

    /// The picture gives way to the summary.
    pub(crate) fn end(&mut self) {
        if self.drawn > 0 {
            let _ = write!(anstream::stdout(), "\x1b[{}A\x1b[J", self.drawn);
            self.drawn = 0;
        }
    }
}

fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(100, |(width, _)| usize::from(width.0))
}

type Line = (String, String);

fn both(parts: &[(anstyle::Style, String)]) -> Line {
    let plain = parts.iter().map(|(_, text)| inert(text)).collect();
    (plain, parts.iter().map(|(style, text)| paint(*style, text)).collect())
}

fn picture(job: &Job, now: Timestamp) -> Vec<Line> {
    let all = || job.runs.iter().flat_map(|run| &run.steps);
    let total: u64 = all().map(|step| u64::from(step.items.max(1))).sum();
    let done: u64 = all().map(|step| u64::from(finished(step))).sum();
    let filled = (done * BAR as u64 / total.max(1)) as usize;
    let plain = anstyle::Style::new();
    let mut lines = vec![both(&[
        (BOLD, job.plan.name().to_owned()),
        (plain, "  ".into()),
        (GOOD, "█".repeat(filled)),
        (DIM, "░".repeat(BAR - filled)),
        (plain, format!("  {done} of {total}")),
        (DIM, format!("  {}", human_ms(now.since(job.accepted_at) / 1000 * 1000))),
    ])];
    let many = job.runs.len() * job.plan.steps().len() > SHOWN_STEPS;
    for (run, state) in job.runs.iter().enumerate() {
        for (step, state) in state.steps.iter().enumerate() {
            let busy = !state.live.is_empty() || state.fallback.is_some();
            if (many && !busy) || lines.len() > SHOWN_STEPS {
                continue;
            }
            lines.push(step_line(job, run as u32, step as u32, state, now));
        }
    }
    lines
}

fn finished(step: &StepRun) -> u32 {
    match step.state {
        StepState::Waiting => 0,
        StepState::Running => {
            step.succeeded.len() + step.failed.len() as u32 + step.skipped + step.cancelled
        }
        _ => step.items.max(1),
    }
}

fn step_line(job: &Job, run: u32, step: u32, state: &StepRun, now: Timestamp) -> Line {
    let plan = &job.plan;
    let dc = plan.datacenter(run).map(|dc| format!("{dc}/")).unwrap_or_default();
    let name = format!("{dc}{}", plan.step(step).name);
    let (mark, style) = match state.state {
        StepState::Waiting => ("·", DIM),
        StepState::Running => ("▶", WAIT),
        StepState::Succeeded => ("✓", GOOD),
        StepState::Failed => ("✗", BAD),
        StepState::Skipped | StepState::Cancelled => ("–", DIM),
    };
    // Nothing of it runs or will by itself: people would wait for it in vain.
    let starved = state.state == StepState::Running
        && !state.failing()
        && state.open_items() > 0
        && state.live.values().all(|item| item.phase == Phase::Ready)
        && job.paused_at.is_none();
    let stands = if starved { "waits for a worker".to_owned() } else { state.state.to_string() };
    let mut facts = vec![stands];
    let many = state.items > 1;
    if many {
        facts.push(format!("{} of {}", finished(state), state.items));
    }
    if !state.failed.is_empty() && state.state == StepState::Running {
        facts.push(format!("{} failed", state.failed.len()));
    }
    let running = state.live.values().filter(|item| item.phase == Phase::Running);
    if many && running.clone().next().is_some() {
        facts.push(format!("{} running", running.clone().count()));
    }
    let called = state.live.values().filter(|item| item.phase == Phase::AwaitingCallback);
    if many && called.clone().next().is_some() {
        facts.push(format!("{} waiting for callbacks", called.clone().count()));
    }
    if let Some(item) = called.clone().next().filter(|_| !many) {
        facts.push(format!("attempt {} waits for its callback", item.history.attempts));
    }
    if let Some(progress) = state.live.values().next().and_then(|item| item.progress.as_ref())
        && !many
    {
        facts.push(inert(&shorten(&progress.said.to_string(), LONGEST_PROGRESS)).to_string());
    }
    if let Some(attempt) = running.map(|item| item.history.attempts).max().filter(|_| !many) {
        facts.push(format!("attempt {attempt}"));
    }
    let due = state.live.values().filter_map(|item| match item.phase {
        Phase::BackingOff { due_at, .. } => Some((due_at, item)),
        _ => None,
    });
    let waiting = due.clone().count();
    if let Some((due_at, item)) = due.min_by_key(|(due_at, _)| *due_at) {
        let left = human_ms(due_at.since(now).div_ceil(1000) * 1000);
        facts.push(if many {
            format!("{waiting} to retry, the next in {left}")
        } else {
            format!("attempt {} in {left}", item.history.attempts + 1)
        });
        facts.extend(item.last_error());
    }
    facts.extend(state.fallback.as_ref().map(|aside| match aside {
        Aside::Live(_) => "fallback under way".to_owned(),
        Aside::Succeeded => "fallback ran".to_owned(),
        Aside::Failed(_) => "fallback failed".to_owned(),
        Aside::Cancelled => "fallback cancelled".to_owned(),
    }));
    facts.extend(state.compensation.as_ref().map(|aside| match aside {
        Aside::Live(_) => "being undone".to_owned(),
        Aside::Succeeded => "undone".to_owned(),
        Aside::Failed(_) => "could not be undone".to_owned(),
        Aside::Cancelled => "not undone".to_owned(),
    }));
    let longest = plan.steps().iter().map(|step| step.name.len()).max().unwrap_or(0);
    let pad = " ".repeat((dc.len() + longest).saturating_sub(name.len()).min(40));
    let facts = facts.join(" · ");
    both(&[(style, format!("  {mark} ")), (BOLD, name), (DIM, format!("{pad}  {facts}"))])
}

/// An event as one line, if a person wants to know of it.
pub(crate) fn line(job: &Job, record: &Recorded) -> Option<String> {
    let plan = &job.plan;
    let place = |run: u32, step: u32| paint(BOLD, plan.step_name(run, step));
    Some(match &record.event {
        Event::AttemptStarted { item, attempt, .. } => {
            format!("{} attempt {attempt} started", paint(BOLD, plan.item_name(*item)))
        }
        Event::AttemptEnded { item, attempt, outcome, .. } => {
            let how = match outcome {
                Outcome::Succeeded { .. } => return None,
                Outcome::Lost { started: true, .. } => "was lost with its worker".to_owned(),
                Outcome::Lost { started: false, .. } => "had not begun".to_owned(),
                Outcome::Failed(failure) => format!("failed: {}", inert(&failure.describe())),
            };
            format!("{} attempt {attempt} {how}", paint(BOLD, plan.item_name(*item)))
        }
        Event::CallbackAwaited { item, attempt, .. } => {
            format!(
                "{} attempt {attempt} waits for its callback",
                paint(BOLD, plan.item_name(*item))
            )
        }
        Event::AttemptProgressed { item, attempt, progress } => {
            let said = shorten(&progress.to_string(), LONGEST_PROGRESS);
            let name = paint(BOLD, plan.item_name(*item));
            format!("{name} attempt {attempt} says {}", paint(DIM, inert(&said)))
        }
        Event::LateCallback { item, attempt, .. } => {
            format!("{} was called back too late for attempt {attempt}", plan.item_name(*item))
        }
        Event::ItemSucceeded { item, .. } => {
            format!("{} {}", paint(BOLD, plan.item_name(*item)), paint(GOOD, "succeeded"))
        }
        Event::RetryScheduled { item, attempt, delay_ms, .. } => {
            let when = match delay_ms {
                0 => "at once".to_owned(),
                ms => format!("in {}", human_ms(*ms)),
            };
            let next = paint(WAIT, format!("attempt {} {when}", attempt + 1));
            format!("{} {next}", paint(BOLD, plan.item_name(*item)))
        }
        Event::ItemFailed { item, reason, .. } => {
            let why = paint(BAD, format!("gave up: {reason}"));
            format!("{} {why} ({})", paint(BOLD, plan.item_name(*item)), reason.message())
        }
        Event::StepFailed { run, step, continues } => {
            let rest = if *continues { ", what needs it goes on" } else { "" };
            format!("{} {}{rest}", place(*run, *step), paint(BAD, "failed"))
        }
        Event::StepSkipped { run, step, because } => {
            let because = inert(&plan.step(*because).name);
            format!("{} skipped, because {because} failed", place(*run, *step))
        }
        Event::EngineRestarted { down_since } => {
            format!("back after {}", human_ms(record.at.since(*down_since)))
        }
        _ => return None,
    })
}

/// Where it stands while it goes on.
pub(crate) fn standing(job: &Job, now: Timestamp) -> String {
    picture(job, now).into_iter().map(|(_, painted)| painted + "\n").collect()
}

/// The last lines that an attempt wrote, made harmless.
fn last_words(job: &Job, item: ItemId, attempt: u32, data: &Data) -> Vec<String> {
    let step = &job.plan.step(item.step).name;
    let path = data.folder.log(&job.id, step, item, attempt);
    let tail = steadfast_worker::tail(&path, 2000).unwrap_or_default();
    let text = String::from_utf8_lossy(&tail);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
    last.iter().map(|line| line.chars().take(160).collect()).collect()
}

/// How it ended, and where to look.
pub(crate) fn summary(job: &Job, data: &Data) -> String {
    let state = paint(state_style(job.state()), job.state());
    let took = job.finished_at.map_or(0, |at| at.since(job.accepted_at));
    let reason = job.completion.map_or("", |completion| completion.reason.name());
    let mut text = String::new();
    for (run, run_state) in job.runs.iter().enumerate() {
        for (step, state) in run_state.steps.iter().enumerate() {
            let (line, painted) = step_line(job, run as u32, step as u32, state, job.last_at);
            let attempts = match state.attempts {
                0 | 1 => String::new(),
                n if n == u64::from(state.items) => String::new(),
                n => format!(" · {n} attempts"),
            };
            if job.plan.steps().len() <= SHOWN_STEPS || state.state != StepState::Succeeded {
                let _ = line;
                text.push_str(&format!("{painted}{}\n", paint(DIM, attempts)));
            }
            for (index, stopped) in state.failed.iter().take(3) {
                let role = Role::Item;
                let id = ItemId { run: run as u32, step: step as u32, role, index: *index };
                let error = stopped.error.as_deref().unwrap_or("no worker took it");
                let why = format!("{}: {}", stopped.reason.message(), inert(error));
                text.push_str(&format!("    {} {why}\n", paint(BAD, job.plan.item_name(id))));
                for line in last_words(job, id, stopped.history.attempts, data) {
                    text.push_str(&format!("      {}\n", paint(DIM, line)));
                }
            }
        }
    }
    text.push_str(&format!(
        "{state} after {} {}\n",
        human_ms(took),
        paint(DIM, format!("({reason})"))
    ));
    if data.folder.logs(&job.id).exists() {
        let hint = format!("output: {}", data.hint("logs", &job.id));
        text.push_str(&format!("{}\n", paint(DIM, hint)));
    }
    if job.state() != steadfast_core::event::JobState::Succeeded {
        let hint = format!("why: {}", data.hint("explain", &job.id));
        text.push_str(&format!("{}\n", paint(DIM, hint)));
    }
    text
}
