//! How a job stands, for people: one view, whether a data folder or a server tells the facts.

use std::fmt;

use serde_json::Value;
use steadfast_api::ShownState;
use steadfast_core::event::{JobState, Requester, StepState};
use steadfast_core::text::shorten;
use steadfast_core::time::{Timestamp, countdown_ms, human_ms};

use crate::style::{BAD, BOLD, DIM, GOOD, Line, WAIT, inert, paint, state_style};
use unicode_width::UnicodeWidthStr;

/// A longer job shows first what did not simply succeed.
const SHOWN_STEPS: usize = 100;
/// Failed items of a step that are shown.
pub(crate) const SHOWN_ITEMS: usize = 3;
/// Characters of what an attempt says about how far it is.
pub(crate) const LONGEST_PROGRESS: usize = 60;
/// Characters of an element of `for_each` beside its number.
const LONGEST_VALUE: usize = 40;
/// Names are lined up to here.
const LONGEST_NAME: usize = 40;

#[derive(Clone, Debug)]
pub(crate) struct JobOverview {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) state: ShownState,
    pub(crate) submitted_ms: u64,
    pub(crate) finished_ms: Option<u64>,
    /// Why it was complete.
    pub(crate) reason: Option<String>,
    pub(crate) steps: Vec<StepFacts>,
    /// How to go on with a job that no process is at.
    pub(crate) rests: Option<String>,
    /// What is wrong with what is stored of a job that is stuck, and what to do.
    pub(crate) damage: Option<String>,
    /// Where to look further once it has ended.
    pub(crate) hints: Vec<String>,
    /// Lines below: see [`notes`].
    pub(crate) notes: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct StepFacts {
    /// With its datacenter.
    pub(crate) name: String,
    pub(crate) state: StepState,
    pub(crate) paused: bool,
    pub(crate) tally: Tally,
    pub(crate) running: u64,
    pub(crate) called: u64,
    pub(crate) backing_off: u64,
    /// Could start, or start again.
    pub(crate) ready: u64,
    /// The latest of its only item.
    pub(crate) attempt: u32,
    /// What that item says about how far it is.
    pub(crate) progress: Option<String>,
    pub(crate) next: Option<NextTry>,
    /// Attempts of all its items, where they are known.
    pub(crate) attempts: Option<u64>,
    pub(crate) fallback: Option<AuxiliaryState>,
    pub(crate) compensation: Option<AuxiliaryState>,
    /// Why there are no items.
    pub(crate) error: Option<String>,
    /// The first few.
    pub(crate) failures: Vec<Failed>,
}

/// The retry that comes next.
#[derive(Clone, Debug)]
pub(crate) struct NextTry {
    pub(crate) due_ms: u64,
    pub(crate) attempt: u32,
    pub(crate) last_error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuxiliaryState {
    UnderWay,
    Succeeded,
    Failed,
    Cancelled,
}

/// An item that was given up.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) name: String,
    pub(crate) why: String,
    /// What its last attempt printed last.
    pub(crate) words: Vec<String>,
}

/// How many items have succeeded, and what became of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) items: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) cancelled: u64,
}

impl Tally {
    pub(crate) fn over(&self) -> u64 {
        self.succeeded + self.failed + self.skipped + self.cancelled
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.items += other.items;
        self.succeeded += other.succeeded;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.cancelled += other.cancelled;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.succeeded, self.items)?;
        let others =
            [(self.failed, "failed"), (self.skipped, "skipped"), (self.cancelled, "cancelled")];
        others.iter().filter(|(n, _)| *n > 0).try_for_each(|(n, word)| write!(f, ", {n} {word}"))
    }
}

/// A run of a job with datacenters.
#[derive(Clone, Debug)]
pub(crate) struct RunFacts {
    pub(crate) datacenter: String,
    pub(crate) state: JobState,
    /// It ended after the job had.
    pub(crate) late: bool,
    /// It is part of the job's result.
    pub(crate) counts: bool,
}

/// What else is worth knowing: whose results count, what came late, and who wanted it so.
pub(crate) fn notes(
    runs: &[RunFacts],
    state: ShownState,
    cancelled: Option<Requester>,
    paused: Option<Requester>,
) -> Vec<String> {
    let mut notes = Vec::new();
    // After a best-effort completion there can be something left to cancel.
    let is_cancelled = state == ShownState::Of(JobState::Cancelled);
    let cancel = if is_cancelled { "cancelled" } else { "the rest was cancelled" };
    for (did, by) in [(cancel, cancelled), ("paused", paused)] {
        let by = by.filter(|by| !by.is_unknown());
        notes.extend(by.map(|by| format!("{did}{by}")));
    }
    let counted: Vec<&str> =
        runs.iter().filter(|run| run.counts).map(|run| run.datacenter.as_str()).collect();
    if state.is_terminal() && !counted.is_empty() {
        notes.push(format!("result: from {}", counted.join(", ")));
    }
    for RunFacts { datacenter, state, counts, .. } in runs.iter().filter(|run| run.late) {
        let what = if *counts { "added to the result" } else { "only logged" };
        notes.push(format!("late: {datacenter} {state}, {what}"));
    }
    notes
}

/// An item with the element of `for_each` that it is for: `archive[1] mail`.
pub(crate) fn labelled(name: String, value: Option<&Value>) -> String {
    match value {
        Some(value) => format!("{name} {}", short_value(value)),
        None => name,
    }
}

/// An element of `for_each`, in few characters.
pub(crate) fn short_value(value: &Value) -> String {
    match value {
        Value::String(text) => shorten(text, LONGEST_VALUE),
        other => shorten(&other.to_string(), LONGEST_VALUE),
    }
}

impl StepFacts {
    pub(crate) fn new(name: String, state: StepState) -> Self {
        Self {
            name,
            state,
            paused: false,
            tally: Tally::default(),
            running: 0,
            called: 0,
            backing_off: 0,
            ready: 0,
            attempt: 0,
            progress: None,
            next: None,
            attempts: None,
            fallback: None,
            compensation: None,
            error: None,
            failures: vec![],
        }
    }

    pub(crate) fn line(&self, longest: usize, now_ms: u64) -> Line {
        let (mark, style) = match self.state {
            StepState::Waiting => ("·", DIM),
            StepState::Running => ("▶", WAIT),
            StepState::Succeeded => ("✓", GOOD),
            StepState::Failed => ("✗", BAD),
            StepState::Skipped | StepState::Cancelled => ("–", DIM),
        };
        let pad = " ".repeat(longest.saturating_sub(self.name.width()));
        let facts = self.facts(now_ms).join(" · ");
        let name = self.name.clone();
        let facts = format!("{pad}  {facts}");
        Line::new(&[(style, format!("  {mark} ")), (BOLD, name), (DIM, facts)])
    }

    /// Nothing of it runs or will by itself: people would wait for it in vain.
    fn is_starved(&self) -> bool {
        self.state == StepState::Running
            && !self.paused
            && self.ready > 0
            && self.running + self.called + self.backing_off == 0
    }

    /// The lower, the earlier a reader wants to see it.
    fn rank(&self) -> u8 {
        let retried = self.attempts.is_some_and(|attempts| attempts > self.tally.items);
        match self.state {
            StepState::Failed => 0,
            _ if self.fallback == Some(AuxiliaryState::UnderWay) => 1,
            _ if self.compensation == Some(AuxiliaryState::UnderWay) => 1,
            StepState::Running if !self.is_starved() => 1,
            StepState::Running | StepState::Skipped | StepState::Cancelled => 2,
            StepState::Succeeded if retried => 3,
            StepState::Waiting => 4,
            StepState::Succeeded => 5,
        }
    }

    fn facts(&self, now_ms: u64) -> Vec<String> {
        let many = self.tally.items > 1;
        let stands = if self.is_starved() {
            "waits for a worker".to_owned()
        } else {
            self.state.to_string()
        };
        let mut facts = vec![stands];
        if many {
            facts.push(self.tally.to_string());
            let told = [(self.running, "running"), (self.called, "waiting for callbacks")];
            let told = told.into_iter().filter(|(n, _)| *n > 0);
            facts.extend(told.map(|(n, word)| format!("{n} {word}")));
        } else {
            if self.called > 0 {
                facts.push(format!("attempt {} waits for its callback", self.attempt));
            } else if self.running > 0 {
                facts.push(format!("attempt {}", self.attempt));
            }
            facts.extend(self.progress.clone());
        }
        match &self.next {
            Some(next) => {
                let left = countdown_ms(next.due_ms.saturating_sub(now_ms));
                facts.push(if many {
                    format!("{} to retry, the next in {left}", self.backing_off)
                } else {
                    format!("attempt {} in {left}", next.attempt)
                });
                facts.extend(next.last_error.clone());
            }
            None if self.backing_off > 0 => facts.push(format!("{} to retry", self.backing_off)),
            None => {}
        }
        if let Some(attempts) = self.attempts.filter(|_| self.state.is_terminal())
            && attempts > 1
            && attempts != self.tally.items
        {
            facts.push(format!("{attempts} attempts"));
        }
        facts.extend(self.fallback.map(|aside| match aside {
            AuxiliaryState::UnderWay => "fallback under way".to_owned(),
            AuxiliaryState::Succeeded => "fallback ran".to_owned(),
            AuxiliaryState::Failed => "fallback failed".to_owned(),
            AuxiliaryState::Cancelled => "fallback cancelled".to_owned(),
        }));
        facts.extend(self.compensation.map(|aside| match aside {
            AuxiliaryState::UnderWay => "being undone".to_owned(),
            AuxiliaryState::Succeeded => "undone".to_owned(),
            AuxiliaryState::Failed => "could not be undone".to_owned(),
            AuxiliaryState::Cancelled => "not undone".to_owned(),
        }));
        facts.extend(self.error.clone());
        facts
    }
}

/// How far the names are lined up.
pub(crate) fn longest<'a>(steps: impl IntoIterator<Item = &'a StepFacts>) -> usize {
    let names = steps.into_iter().map(|step| step.name.width());
    names.max().unwrap_or(0).min(LONGEST_NAME)
}

impl JobOverview {
    /// Of a job whose log cannot be read.
    pub(crate) fn stuck(id: &str, name: String, at: Timestamp, why: &str, purge: &str) -> Self {
        Self {
            id: id.to_owned(),
            name,
            state: ShownState::Stuck,
            submitted_ms: at.0,
            finished_ms: None,
            reason: None,
            steps: vec![],
            rests: None,
            damage: Some(format!(
                "what is stored of it is damaged ({}); nothing of it runs. Restore a backup, or \
                 remove it with `{purge}`",
                inert(why)
            )),
            hints: vec![],
            notes: vec![],
        }
    }

    /// All of it, under its name.
    pub(crate) fn page(&self, now_ms: u64) -> String {
        let heading = paint(BOLD, inert(&self.name)) + "  " + &paint(DIM, inert(&self.id)) + "\n";
        heading
            + &if self.state.is_terminal() { self.ended(now_ms) } else { self.under_way(now_ms) }
    }

    /// Where it stands while it goes on.
    pub(crate) fn under_way(&self, now_ms: u64) -> String {
        let mut text = self.steps(now_ms);
        let state = paint(state_style(self.state), self.state);
        if let Some(damage) = &self.damage {
            return format!("{state}: {damage}\n");
        }
        let since = match self.state {
            // It has not gone on since.
            ShownState::Interrupted => String::new(),
            _ => {
                format!(" for {}", human_ms(now_ms.saturating_sub(self.submitted_ms) / 1000 * 1000))
            }
        };
        let rests = self.rests.as_ref().map(|rests| paint(DIM, format!("; {rests}")));
        text.push_str(&format!("{state}{since}{}\n", rests.unwrap_or_default()));
        text + &self.notes()
    }

    /// How it ended, and where to look.
    pub(crate) fn ended(&self, now_ms: u64) -> String {
        let mut text = self.steps(now_ms);
        let state = paint(state_style(self.state), self.state);
        let end = self.finished_ms.unwrap_or(self.submitted_ms);
        let took = human_ms(end.saturating_sub(self.submitted_ms));
        let reason = self.reason.as_ref().map(|reason| format!("({reason})"));
        let reason = paint(DIM, reason.unwrap_or_default());
        text.push_str(&format!("{state} after {took} {reason}\n"));
        text + &self.notes() + &dim_lines(&self.hints)
    }

    fn notes(&self) -> String {
        dim_lines(&self.notes)
    }

    fn steps(&self, now_ms: u64) -> String {
        let longest = longest(&self.steps);
        let failed = self.steps.iter().filter(|step| step.state == StepState::Failed).count();
        let (shown, rest) = fold(&self.steps, SHOWN_STEPS.max(failed + 1));
        let mut text = String::new();
        for step in shown {
            text.push_str(&format!("{}\n", step.line(longest, now_ms).painted()));
            for failed in &step.failures {
                let (name, why) = (paint(BAD, inert(&failed.name)), inert(&failed.why));
                text.push_str(&format!("    {name} {why}\n"));
                for line in &failed.words {
                    text.push_str(&format!("      {}\n", paint(DIM, inert(line))));
                }
            }
        }
        if let Some(rest) = rest {
            text.push_str(&format!("{}\n", rest.painted()));
        }
        text
    }
}

fn dim_lines(lines: &[String]) -> String {
    lines.iter().map(|line| paint(DIM, inert(line)) + "\n").collect()
}

/// The steps that `rows` lines have room for, in their order, and a line about the others. What failed comes
/// before what goes on, and that before what is dull.
pub(crate) fn fold(steps: &[StepFacts], rows: usize) -> (Vec<&StepFacts>, Option<Line>) {
    if steps.len() <= rows {
        return (steps.iter().collect(), None);
    }
    let mut ranked: Vec<usize> = (0..steps.len()).collect();
    ranked.sort_by_key(|at| steps[*at].rank());
    let (shown, rest) = ranked.split_at(rows.saturating_sub(1));
    let mut shown = shown.to_vec();
    shown.sort_unstable();
    let mut counts: Vec<(String, usize)> = vec![];
    for step in rest.iter().map(|at| &steps[*at]) {
        let starved = "waiting for a worker";
        let word = if step.is_starved() { starved.to_owned() } else { step.state.to_string() };
        match counts.iter_mut().find(|(of, _)| *of == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    let counts: Vec<String> =
        counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
    let rest = format!("  … and {} more: {}", rest.len(), counts.join(", "));
    (shown.into_iter().map(|at| &steps[at]).collect(), Some(Line::new(&[(DIM, rest)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn says(state: StepState, counts: [u64; 5], expected: &str) {
        let [items, succeeded, failed, skipped, cancelled] = counts;
        let tally = Tally { items, succeeded, failed, skipped, cancelled };
        let step = StepFacts { tally, ..StepFacts::new("s".to_owned(), state) };
        assert_eq!(step.line(1, 1000).to_string().trim_start(), expected);
    }

    #[test]
    fn what_did_not_succeed_is_not_counted_as_done() {
        use StepState::{Cancelled, Failed, Succeeded};
        says(Succeeded, [6, 6, 0, 0, 0], "✓ s  succeeded · 6 of 6");
        says(Succeeded, [6, 3, 3, 0, 0], "✓ s  succeeded · 3 of 6, 3 failed");
        says(Failed, [40, 4, 4, 32, 0], "✗ s  failed · 4 of 40, 4 failed, 32 skipped");
        says(Cancelled, [2, 0, 0, 0, 2], "– s  cancelled · 0 of 2, 2 cancelled");
    }

    #[test]
    fn somebody_elses_words_stay_in_their_line() {
        let error = Some("bad\n\x1b[2J".to_owned());
        let step = StepFacts::new("s".to_owned(), StepState::Failed);
        let line = StepFacts { error, ..step }.line(0, 0);
        let (plain, painted) = (line.to_string(), line.painted());
        assert!(!plain.contains(['\n', '\x1b']), "{plain:?}");
        assert!(!painted.contains('\n'), "{painted:?}");
    }

    #[test]
    fn what_failed_is_shown_before_what_is_dull() {
        use StepState::{Failed, Running, Succeeded, Waiting};
        let states = [Succeeded, Succeeded, Running, Succeeded, Failed, Waiting, Waiting];
        let steps: Vec<StepFacts> = states
            .iter()
            .enumerate()
            .map(|(at, state)| StepFacts::new(format!("s{at}"), *state))
            .collect();
        let folded = |rows| {
            let (shown, rest) = fold(&steps, rows);
            let mut lines: Vec<String> = shown.iter().map(|step| step.name.clone()).collect();
            lines.extend(rest.map(|rest| rest.to_string()));
            lines
        };
        assert_eq!(folded(7).len(), 7);
        assert_eq!(folded(4), ["s2", "s4", "s5", "  … and 4 more: 1 waiting, 3 succeeded"]);
        assert_eq!(folded(1), ["  … and 7 more: 1 failed, 1 running, 2 waiting, 3 succeeded"]);
    }
}
