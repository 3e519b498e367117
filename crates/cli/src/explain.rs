//! `steadfast explain`: why a job is where it is, and what would have changed it.

use std::io::Write;

use steadfast_core::event::Recorded;
use steadfast_core::explain::{Decided, Explanation, Select, VerdictExplanation, explain};
use steadfast_core::time::human_ms;

use crate::args::{ExplainArgs, Output};
use crate::paint::{BAD, BOLD, DIM, GOOD, NOTE, WAIT, paint, state_style};
use crate::{Done, Exit, clock, data, input, jobs};

/// Verdicts told to a person; the JSON has more.
const SHOWN: usize = 20;

pub(crate) fn run(args: &ExplainArgs) -> Done {
    jobs::looking(args.common.data.as_deref(), args.common.output, |_, store| {
        let row = data::find(store, &args.job)?;
        let mut log: Vec<Recorded> = Vec::new();
        data::each_event(store, &row.id, 0, |record| {
            log.push(record);
            Ok::<(), String>(())
        })?;
        let select = match &args.step {
            None => None,
            Some(name) => {
                let job = data::state(store, &row.id)?;
                let none = || format!("job {} has no step `{name}`", row.id);
                let step = Some(job.plan.find(name).ok_or_else(none)?);
                Some(Select { step, item: None })
            }
        };
        let explained = explain(&log, clock::now(), select.as_ref());
        let explained = explained.map_err(|error| error.to_string())?;
        match args.common.output {
            Output::Json => input::print_json(&explained).map_err(|error| error.to_string())?,
            Output::Human => {
                let text = to_text(&explained, log[0].at.0);
                let mut out = anstream::stdout().lock();
                out.write_all(text.as_bytes()).map_err(|error| error.to_string())?;
            }
        }
        Ok(Exit::Ok)
    })
}

/// The answer first, then what it rests on.
fn to_text(explained: &Explanation, accepted_ms: u64) -> String {
    let job = &explained.job;
    let (state, rest) = job.sentence.split_once(':').unwrap_or((&job.sentence, ""));
    let colon = if rest.is_empty() { "" } else { ":" };
    let state = paint(state_style(job.state), format!("{state}{colon}"));
    let mut text = format!("{}  {}\n{state}{rest}\n", paint(BOLD, &job.name), paint(DIM, &job.id));
    for step in &explained.steps {
        text.push_str(&format!("  {} {}\n", paint(BOLD, format!("{}:", step.name)), step.sentence));
    }
    if !explained.waiting.is_empty() {
        text.push_str(&format!("\n{}\n", paint(DIM, "now")));
        for waiting in explained.waiting.iter().take(SHOWN) {
            let name = paint(BOLD, format!("{}:", waiting.name));
            text.push_str(&format!("  {name} {}\n", waiting.sentence));
        }
    }
    // What went wrong is what one asks about; successes speak for themselves.
    let told: Vec<&VerdictExplanation> = explained
        .verdicts
        .iter()
        .filter(|verdict| !matches!(verdict.decision, Decided::Complete))
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

fn decision(verdict: &VerdictExplanation, accepted_ms: u64) -> String {
    let says = match &verdict.decision {
        Decided::Complete => paint(GOOD, "complete"),
        Decided::Retry { delay_ms: 0, .. } => paint(WAIT, "retry at once"),
        Decided::Retry { delay_ms, .. } => paint(WAIT, format!("retry in {}", human_ms(*delay_ms))),
        Decided::Stop { reason, .. } => paint(BAD, format!("stop: {reason}")),
    };
    let at = paint(DIM, human_ms(verdict.at.0.saturating_sub(accepted_ms)));
    let what = verdict.error.as_deref().or(verdict.outcome.as_deref()).unwrap_or("restart");
    let name = paint(BOLD, &verdict.item.name);
    let mut text = format!("  {at}  {name} attempt {}, {what}: {says}\n", verdict.attempt);
    text.push_str(&format!("      because {}\n", verdict.rule.text));
    let moved: Vec<String> = verdict.moved.iter().map(ToString::to_string).collect();
    if !moved.is_empty() {
        text.push_str(&format!("      {}\n", paint(DIM, moved.join(" · "))));
    }
    if let Some(change) = &verdict.would_change {
        text.push_str(&format!("      {}\n", paint(NOTE, &change.text)));
    }
    if let Some(nothing) = verdict.nothing_would {
        text.push_str(&format!("      {}\n", paint(DIM, nothing)));
    }
    if let Some(disagrees) = &verdict.disagrees {
        text.push_str(&format!("      {}\n", paint(BAD, disagrees)));
    }
    text
}
