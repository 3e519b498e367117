//! `steadfast explain`: why a job is where it is, and what would have changed it.

use std::io::Write;

use serde::Deserialize;
use serde_json::Value;
use steadfast_core::event::{JobState, RecordedEvent};
use steadfast_core::explain::explain;
use steadfast_core::time::human_ms;

use crate::args::{ExplainArgs, Output};
use crate::input::Wrong;
use crate::style::{BAD, BOLD, DIM, GOOD, Inert, NOTE, WAIT, inert, paint, state_style};
use crate::summary::short_value;
use crate::{Done, Exit, clock, data, input, jobs};

/// Verdicts told to a person; the JSON has more.
const SHOWN: usize = 20;

pub(crate) fn run(args: &ExplainArgs, job: &str) -> Done {
    jobs::looking(args.common.data.as_deref(), args.common.output, |_, store| {
        let row = data::find(store, job)?;
        let mut log: Vec<RecordedEvent> = Vec::new();
        data::each_event(store, &row.id, 0, |record| {
            log.push(record);
            Ok::<(), String>(())
        })?;
        let select = match &args.step {
            None => None,
            Some(name) => {
                let job = data::state(store, &row.id)?;
                let select = job.plan.select(name);
                let none = |why| Wrong::no_job(format!("job {}: {why}", row.id));
                Some(select.map_err(none)?)
            }
        };
        let explained = explain(&log, clock::now(), select.as_ref());
        let explained = explained.map_err(|error| error.to_string())?;
        match args.common.output {
            Output::Json => input::print_json(&explained)?,
            Output::Human => {
                // Told from what programs get too, so that a server's answer reads the same.
                let shown = serde_json::to_value(&explained).and_then(serde_json::from_value);
                let shown: Explained = shown.map_err(|error| error.to_string())?;
                let mut out = anstream::stdout().lock();
                out.write_all(to_text(&shown, log[0].at.0).as_bytes())?;
            }
        }
        Ok(Exit::Ok)
    })
}

/// What is told of an explanation.
#[derive(Debug, Deserialize)]
pub(crate) struct Explained {
    job: Job,
    steps: Vec<Place>,
    waiting: Vec<Place>,
    verdicts: Vec<Verdict>,
}

#[derive(Debug, Deserialize)]
struct Job {
    id: Inert,
    name: Inert,
    state: JobState,
    sentence: Inert,
}

#[derive(Debug, Deserialize)]
struct Place {
    name: Inert,
    /// Of what waits, if it is about one item.
    #[serde(default)]
    item: Option<Named>,
    sentence: Inert,
}

#[derive(Debug, Deserialize)]
struct Verdict {
    at_ms: u64,
    item: Named,
    attempt: u32,
    outcome: Option<Inert>,
    error: Option<Inert>,
    #[serde(flatten)]
    decided: Decided,
    rule: Text,
    moved: Vec<Account>,
    would_change: Option<Text>,
    nothing_would: Option<Inert>,
    disagrees: Option<Inert>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: Inert,
    /// The element of `for_each`, where it tells more than its number.
    #[serde(default)]
    value: Option<Value>,
}

impl Named {
    /// `archive[1] mail`
    fn label(&self, name: impl std::fmt::Display) -> String {
        let value = self.value.as_ref().map(short_value);
        let value = value.map(|value| format!(" {}", paint(DIM, inert(&value))));
        format!("{}{}", paint(BOLD, name), value.unwrap_or_default())
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
enum Decided {
    Complete,
    Retry { delay_ms: u64 },
    Stop { reason: Inert },
}

#[derive(Debug, Deserialize)]
struct Text {
    text: Inert,
}

#[derive(Debug, Deserialize)]
struct Account {
    name: Inert,
    before: u64,
    after: u64,
    limit: Option<u64>,
}

impl Account {
    /// `failures 1 → 2 of 4`
    fn told(&self) -> String {
        let (name, is_time) = match self.name.as_str().strip_suffix("_ms") {
            Some(name) => (name, true),
            None => (self.name.as_str(), false),
        };
        let say = |n: u64| if is_time { human_ms(n) } else { n.to_string() };
        let mut text = format!("{name} {}", say(self.before));
        if self.after != self.before {
            text.push_str(&format!(" → {}", say(self.after)));
        }
        if let Some(limit) = self.limit {
            text.push_str(&format!(" of {}", say(limit)));
        }
        text
    }
}

/// The answer first, then what it rests on.
pub(crate) fn to_text(explained: &Explained, accepted_ms: u64) -> String {
    let job = &explained.job;
    let sentence = job.sentence.as_str();
    let (state, rest) = sentence.split_once(':').unwrap_or((sentence, ""));
    let colon = if rest.is_empty() { "" } else { ":" };
    let state = paint(state_style(job.state), format!("{state}{colon}"));
    let mut text = format!("{}  {}\n{state}{rest}\n", paint(BOLD, &job.name), paint(DIM, &job.id));
    for step in &explained.steps {
        text.push_str(&format!("  {} {}\n", paint(BOLD, format!("{}:", step.name)), step.sentence));
    }
    if !explained.waiting.is_empty() {
        text.push_str(&format!("\n{}\n", paint(DIM, "now")));
        for waiting in explained.waiting.iter().take(SHOWN) {
            let name = match &waiting.item {
                Some(item) => item.label(&waiting.name),
                None => paint(BOLD, &waiting.name),
            };
            text.push_str(&format!("  {name}{} {}\n", paint(BOLD, ":"), waiting.sentence));
        }
    }
    // What went wrong is what one asks about; successes speak for themselves.
    let told: Vec<&Verdict> = explained
        .verdicts
        .iter()
        .filter(|verdict| !matches!(verdict.decided, Decided::Complete))
        .collect();
    let hidden = told.len().saturating_sub(SHOWN);
    if !told.is_empty() {
        text.push_str(&format!("\n{}\n", paint(DIM, "decisions")));
    }
    if hidden > 0 {
        text.push_str(&format!("{}\n", paint(DIM, format!("  … {hidden} earlier ones (-o json)"))));
    }
    for verdict in &told[hidden..] {
        text.push_str(&decision(verdict, accepted_ms));
    }
    text
}

fn decision(verdict: &Verdict, accepted_ms: u64) -> String {
    let says = match &verdict.decided {
        Decided::Complete => paint(GOOD, "complete"),
        Decided::Retry { delay_ms: 0 } => paint(WAIT, "retry at once"),
        Decided::Retry { delay_ms } => paint(WAIT, format!("retry in {}", human_ms(*delay_ms))),
        Decided::Stop { reason } => paint(BAD, format!("stop: {reason}")),
    };
    let at = paint(DIM, human_ms(verdict.at_ms.saturating_sub(accepted_ms)));
    let what = verdict.error.as_ref().or(verdict.outcome.as_ref());
    let what = what.map_or("restart", Inert::as_str);
    let name = verdict.item.label(&verdict.item.name);
    let mut text = format!("  {at}  {name} attempt {}, {what}: {says}\n", verdict.attempt);
    text.push_str(&format!("      because {}\n", verdict.rule.text));
    let moved: Vec<String> = verdict.moved.iter().map(Account::told).collect();
    if !moved.is_empty() {
        text.push_str(&format!("      {}\n", paint(DIM, moved.join(" · "))));
    }
    if let Some(change) = &verdict.would_change {
        text.push_str(&format!("      {}\n", paint(NOTE, &change.text)));
    }
    if let Some(nothing) = &verdict.nothing_would {
        text.push_str(&format!("      {}\n", paint(DIM, nothing)));
    }
    if let Some(disagrees) = &verdict.disagrees {
        text.push_str(&format!("      {}\n", paint(BAD, disagrees)));
    }
    text
}
