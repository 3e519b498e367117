//! `steadfast explain`: why a job is where it is, what would have changed it, and what another policy would have decided.

use serde_json::{Map, Value};
use steadfast_core::duration::duration_text;
use steadfast_core::explain::{
    DecisionSummary, Explanation, ItemName, JudgedVerdict, VerdictExplanation,
};
use steadfast_core::time::{Timestamp, human_ms};
use steadfast_server::queries::WhatIfAnswer;

use crate::Exit;
use crate::args::{ExplainArgs, Output};
use crate::error::CliError;
use crate::jobs;
use crate::source::JobSource;
use crate::style::{BAD, BOLD, DIM, GOOD, NOTE, WAIT, inert, paint, state_style};
use crate::summary::short_value;

/// Verdicts, and what waits, that are told to a person; the JSON has more.
const SHOWN: usize = 20;

pub(crate) fn run(
    source: &mut dyn JobSource,
    id: &str,
    args: &ExplainArgs,
) -> Result<Exit, CliError> {
    if !args.with.is_empty() {
        return what_if(source, id, args);
    }
    let explained = source.explain(id, args.step.as_deref())?;
    match args.common.output {
        Output::Json => explained.print_json()?,
        Output::Human => {
            let (accepted, _) = source.accepted(id)?;
            jobs::print(&to_text(&explained.read()?, accepted))?;
        }
    }
    Ok(Exit::Ok)
}

/// The same outcomes under another policy.
fn what_if(source: &mut dyn JobSource, id: &str, args: &ExplainArgs) -> Result<Exit, CliError> {
    let mut with = Value::Object(Map::new());
    for (key, value) in &args.with {
        put(&mut with, key, value.clone())?;
    }
    let answer = source.what_if(id, args.step.as_deref(), &with)?;
    match args.common.output {
        Output::Json => answer.print_json()?,
        Output::Human => {
            let (accepted, plan) = source.accepted(id)?;
            let name = paint(BOLD, inert(plan.name()));
            let head = format!("{name}  {}\n", paint(DIM, inert(id)));
            jobs::print(&(head + &judged_to_text(&answer.read()?, accepted)))?;
        }
    }
    Ok(Exit::Ok)
}

/// `exit_codes.stop` is `stop` in `exit_codes`.
fn put(to: &mut Value, key: &str, value: Value) -> Result<(), CliError> {
    let twice =
        || CliError::wrong(format!("--with {key}: it is given twice, or inside of another"));
    match key.split_once('.') {
        None => {
            let before = to.as_object_mut().ok_or_else(twice)?.insert(key.to_owned(), value);
            before.map_or(Ok(()), |_| Err(twice()))
        }
        Some((outer, inner)) => {
            let map = to.as_object_mut().ok_or_else(twice)?;
            let block = map.entry(outer).or_insert_with(|| Value::Object(Map::new()));
            put(block, inner, value)
        }
    }
}

fn judged_to_text(answer: &WhatIfAnswer, accepted: Timestamp) -> String {
    let mut text = String::new();
    for (key, change) in &answer.policy {
        let [from, to] = ["from", "to"].map(|end| shown_value(key, &change[end]));
        text.push_str(&format!("with {}: {from} → {to}\n", inert(key)));
    }
    text.push_str(&format!("{}\n", inert(&answer.judged.summary)));
    let differing: Vec<&JudgedVerdict> =
        answer.judged.verdicts.iter().filter(|verdict| verdict.differs).collect();
    let hidden = differing.len().saturating_sub(SHOWN);
    if !differing.is_empty() {
        text.push_str(&format!("\n{}\n", paint(DIM, "decisions that differ")));
    }
    if hidden > 0 {
        text.push_str(&format!("{}\n", paint(DIM, format!("  … {hidden} earlier ones (-o json)"))));
    }
    for verdict in &differing[hidden..] {
        let at = paint(DIM, human_ms(verdict.at.since(accepted)));
        let what = verdict.error.as_ref().or(verdict.outcome.as_ref());
        let what = inert(what.map_or("restart", String::as_str));
        let (name, attempt) = (label(&verdict.item, &verdict.item.name), verdict.attempt);
        let judged = verdict.judged.map_or_else(|| paint(DIM, "not at all"), says);
        let recorded = says(verdict.recorded);
        text.push_str(&format!(
            "  {at}  {name} attempt {attempt}, {what}: {recorded} → {judged}\n"
        ));
        if let Some(note) = &verdict.note {
            text.push_str(&format!("      {}\n", paint(DIM, inert(note))));
        }
    }
    text
}

/// As a job file has it; nothing is no limit.
fn shown_value(key: &str, value: &Value) -> String {
    const TIMES: [&str; 6] =
        ["initial_delay", "max_delay", "increment", "max_retry_after", "delay_budget", "window"];
    match value {
        Value::Null => "none".to_owned(),
        Value::Number(ms) if TIMES.contains(&key) => duration_text(ms.as_u64().unwrap_or(0)),
        Value::Object(budget) => {
            let parts = budget.iter().map(|(part, value)| {
                let value = value.get("requested").unwrap_or(value);
                format!("{part}: {value}")
            });
            inert(&format!("{{ {} }}", parts.collect::<Vec<_>>().join(", "))).into_owned()
        }
        Value::String(text) => inert(text).into_owned(),
        value => inert(&value.to_string()).into_owned(),
    }
}

fn says(decision: DecisionSummary) -> String {
    match decision {
        DecisionSummary::Complete => paint(GOOD, "complete"),
        DecisionSummary::Retry { delay_ms: 0, .. } => paint(WAIT, "retry at once"),
        DecisionSummary::Retry { delay_ms, .. } => {
            paint(WAIT, format!("retry in {}", human_ms(delay_ms)))
        }
        DecisionSummary::Stop { reason } => paint(BAD, format!("stop: {reason}")),
    }
}

/// `archive[1] mail`
fn label(item: &ItemName, name: &str) -> String {
    let value =
        item.value.as_ref().map(|value| format!(" {}", paint(DIM, inert(&short_value(value)))));
    format!("{}{}", paint(BOLD, inert(name)), value.unwrap_or_default())
}

/// The answer first, then what it rests on.
fn to_text(explained: &Explanation, accepted: Timestamp) -> String {
    let job = &explained.job;
    let sentence = inert(&job.sentence);
    let (state, rest) = sentence.split_once(':').unwrap_or((&sentence, ""));
    let colon = if rest.is_empty() { "" } else { ":" };
    let state = paint(state_style(job.state), format!("{state}{colon}"));
    let mut text = format!(
        "{}  {}\n{state}{rest}\n",
        paint(BOLD, inert(&job.name)),
        paint(DIM, inert(&job.id))
    );
    for step in &explained.steps {
        let name = paint(BOLD, format!("{}:", inert(&step.name)));
        text.push_str(&format!("  {name} {}\n", inert(&step.sentence)));
    }
    if !explained.waiting.is_empty() {
        text.push_str(&format!("\n{}\n", paint(DIM, "now")));
        for waiting in explained.waiting.iter().take(SHOWN) {
            let name = match &waiting.item {
                Some(item) => label(item, &waiting.name),
                None => paint(BOLD, inert(&waiting.name)),
            };
            let sentence = inert(&waiting.sentence);
            text.push_str(&format!("  {name}{} {sentence}\n", paint(BOLD, ":")));
        }
    }
    // What went wrong is what one asks about; successes speak for themselves.
    let told: Vec<&VerdictExplanation> = explained
        .verdicts
        .iter()
        .filter(|verdict| !matches!(verdict.decision, DecisionSummary::Complete))
        .collect();
    let hidden = told.len().saturating_sub(SHOWN);
    if !told.is_empty() {
        text.push_str(&format!("\n{}\n", paint(DIM, "decisions")));
    }
    if hidden > 0 {
        text.push_str(&format!("{}\n", paint(DIM, format!("  … {hidden} earlier ones (-o json)"))));
    }
    for verdict in &told[hidden..] {
        text.push_str(&decision(verdict, accepted));
    }
    text
}

fn decision(verdict: &VerdictExplanation, accepted: Timestamp) -> String {
    let says = says(verdict.decision);
    let at = paint(DIM, human_ms(verdict.at.since(accepted)));
    let what = verdict.error.as_ref().or(verdict.outcome.as_ref());
    let what = inert(what.map_or("restart", String::as_str));
    let name = label(&verdict.item, &verdict.item.name);
    let mut text = format!("  {at}  {name} attempt {}, {what}: {says}\n", verdict.attempt);
    text.push_str(&format!("      because {}\n", inert(&verdict.rule.text)));
    let moved: Vec<String> = verdict.moved.iter().map(ToString::to_string).collect();
    if !moved.is_empty() {
        text.push_str(&format!("      {}\n", paint(DIM, inert(&moved.join(" · ")))));
    }
    if let Some(change) = &verdict.would_change {
        text.push_str(&format!("      {}\n", paint(NOTE, inert(&change.text))));
    }
    if let Some(nothing) = &verdict.nothing_would {
        text.push_str(&format!("      {}\n", paint(DIM, inert(nothing))));
    }
    if let Some(disagrees) = &verdict.disagrees {
        text.push_str(&format!("      {}\n", paint(BAD, inert(disagrees))));
    }
    text
}
