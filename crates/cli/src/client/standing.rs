//! A server's status of a job, for people: in the words that a local job is told in.

use std::collections::BTreeMap;

use steadfast_core::event::{JobState, Role, StepState};
use steadfast_core::time::human_ms;
use steadfast_core::verdict::StopReason;

use super::api::Client;
use super::shapes::{AttemptOfJob, Item, Run, Status, Step};
use crate::paint::{BAD, BOLD, DIM, GOOD, WAIT, inert, paint, state_style};

/// A longer job shows what did not simply succeed.
const SHOWN_STEPS: usize = 20;
/// Failed items of a step that are shown.
const SHOWN_ITEMS: usize = 3;
/// Failed items of a job whose last words are fetched.
const SHOWN_WORDS: usize = 6;
/// Lines of a failed attempt's output.
const LAST_LINES: usize = 2;
const TAIL_BYTES: u64 = 2000;
const LINE_CHARS: usize = 160;

/// What failed attempts wrote last, by run, step and item.
pub(super) type Words = BTreeMap<(usize, String, u32), Vec<String>>;

/// Where it stands while it goes on.
pub(super) fn standing(status: &Status, now_ms: u64) -> String {
    let mut text = heading(status);
    text.push_str(&steps(status, now_ms, &Words::new()));
    let state = paint(state_style(status.state), status.state);
    let since = human_ms(now_ms.saturating_sub(status.submitted_at_ms) / 1000 * 1000);
    text.push_str(&format!("{state} for {since}\n"));
    text
}

/// How it ended, and where to look.
pub(super) fn summary(client: &Client, status: &Status, words: &Words) -> String {
    let end = status.finished_at_ms.unwrap_or(status.submitted_at_ms);
    let mut text = steps(status, end, words);
    let state = paint(state_style(status.state), status.state);
    let took = human_ms(end.saturating_sub(status.submitted_at_ms));
    let reason = status.completion.as_ref().map(|completion| format!("({})", completion.reason));
    let reason = paint(DIM, reason.unwrap_or_default());
    text.push_str(&format!("{state} after {took} {reason}\n"));
    let id = status.id.as_str();
    text.push_str(&paint(DIM, format!("output: {}\n", client.hint(&format!("logs {id}")))));
    if status.state != JobState::Succeeded {
        text.push_str(&paint(DIM, format!("why: {}\n", client.hint(&format!("explain {id}")))));
    }
    text
}

pub(super) fn heading(status: &Status) -> String {
    format!("{}  {}\n", paint(BOLD, &status.name), paint(DIM, &status.id))
}

fn steps(status: &Status, now_ms: u64, words: &Words) -> String {
    let total: usize = status.runs.iter().map(|run| run.steps.len()).sum();
    let names = status
        .runs
        .iter()
        .flat_map(|run| run.steps.iter().map(|step| name_of(run, step.0.as_str())));
    let longest = names.map(|name| name.chars().count()).max().unwrap_or(0).min(40);
    let mut text = String::new();
    for (number, run) in status.runs.iter().enumerate() {
        for (step_name, step) in &run.steps {
            if total > SHOWN_STEPS
                && matches!(step.state, StepState::Succeeded | StepState::Waiting)
            {
                continue;
            }
            let name = name_of(run, step_name.as_str());
            text.push_str(&line(&name, longest, step, now_ms));
            for item in failed(step).take(SHOWN_ITEMS) {
                text.push_str(&failure(&name, step, item));
                let key = (number, step_name.to_string(), item.index);
                for line in words.get(&key).into_iter().flatten() {
                    text.push_str(&format!("      {}\n", paint(DIM, line)));
                }
            }
        }
    }
    text
}

fn name_of(run: &Run, step: &str) -> String {
    run.datacenter.as_ref().map_or_else(|| step.to_owned(), |dc| format!("{dc}/{step}"))
}

fn failed(step: &Step) -> impl Iterator<Item = &Item> {
    step.items.iter().filter(|item| item.state.as_str() == "failed")
}

fn line(name: &str, longest: usize, step: &Step, now_ms: u64) -> String {
    let (mark, style) = match step.state {
        StepState::Waiting => ("·", DIM),
        StepState::Running => ("▶", WAIT),
        StepState::Succeeded => ("✓", GOOD),
        StepState::Failed => ("✗", BAD),
        StepState::Skipped | StepState::Cancelled => ("–", DIM),
    };
    let pad = " ".repeat(longest.saturating_sub(name.chars().count()));
    let facts = facts(step, now_ms).join(" · ");
    let (mark, name) = (paint(style, format!("  {mark} ")), paint(BOLD, name));
    format!("{mark}{name}{}\n", paint(DIM, format!("{pad}  {facts}")))
}

fn facts(step: &Step, now_ms: u64) -> Vec<String> {
    let count = |state: &str| step.counts.get(state).copied().unwrap_or(0);
    let total: u64 = step.counts.values().sum();
    let done: u64 = ["succeeded", "failed", "skipped", "cancelled"].into_iter().map(count).sum();
    let many = total > 1;
    let running = step.state == StepState::Running;
    // Nothing of it runs or will by itself: people would wait for it in vain.
    let under_way = ["running", "awaiting_callback", "backing_off"];
    let starved =
        running && count("ready") > 0 && under_way.into_iter().map(count).sum::<u64>() == 0;
    let stands = if starved { "waits for a worker".to_owned() } else { step.state.to_string() };
    let mut facts = vec![stands];
    if many {
        facts.push(format!("{done} of {total}"));
        let told = [
            ("failed", "failed"),
            ("running", "running"),
            ("awaiting_callback", "waiting for callbacks"),
            ("backing_off", "to retry"),
        ];
        let told = told.into_iter().filter(|(state, _)| running && count(state) > 0);
        facts.extend(told.map(|(state, word)| format!("{} {word}", count(state))));
    }
    let last = |item: &Item| item.attempts.last().map_or(0, |attempt| attempt.attempt);
    let due = |item: &&Item| item.retry_available_at_ms;
    match step.items.iter().filter(|item| due(item).is_some()).min_by_key(due) {
        Some(item) if running => {
            let due_ms = item.retry_available_at_ms.unwrap_or(now_ms);
            let left = human_ms(due_ms.saturating_sub(now_ms).div_ceil(1000) * 1000);
            facts.push(if many {
                format!("the next in {left}")
            } else {
                format!("attempt {} in {left}", last(item) + 1)
            });
            facts.extend(item.last_error.as_ref().map(ToString::to_string));
        }
        _ if !many => match step.items.first().map_or(0, last) {
            attempt if running && attempt > 0 => facts.push(format!("attempt {attempt}")),
            attempts if attempts > 1 => facts.push(format!("{attempts} attempts")),
            _ => {}
        },
        _ => {}
    }
    facts.extend(step.fallback.as_ref().map(|item| format!("fallback {}", item.state)));
    facts.extend(step.compensation.as_ref().map(|item| format!("undoing {}", item.state)));
    facts.extend(step.error.as_ref().map(ToString::to_string));
    facts
}

fn failure(name: &str, step: &Step, item: &Item) -> String {
    let one = step.counts.values().sum::<u64>() <= 1;
    let name = if one { name.to_owned() } else { format!("{name}[{}]", item.index) };
    let reason = item.reason.as_ref().map_or("failed", |reason| reason.as_str());
    let known = serde_json::from_value::<StopReason>(reason.into());
    let reason = known.map_or_else(|_| reason.to_owned(), |reason| reason.message().to_owned());
    let error = item.last_error.as_ref().map_or("no worker took it", |error| error.as_str());
    format!("    {} {reason}: {error}\n", paint(BAD, name))
}

/// What the failed items wrote last, as far as that can be had; nothing depends on it.
pub(super) async fn last_words(client: &Client, status: &Status) -> Words {
    let mut words = Words::new();
    for (number, run) in status.runs.iter().enumerate() {
        for (step_name, step) in &run.steps {
            let items: Vec<&Item> = failed(step).take(SHOWN_ITEMS).collect();
            if items.is_empty() || words.len() >= SHOWN_WORDS {
                continue;
            }
            let query = [("step", step_name.as_str()), ("limit", "1000")];
            let Ok(page) = client.logs(status.id.as_str(), &query).await else { return words };
            for item in items {
                let wanted = AttemptOfJob {
                    datacenter: run.datacenter.as_ref().map(ToString::to_string),
                    step: step_name.to_string(),
                    role: Role::Item,
                    item: item.index,
                    attempt: item.attempts.last().map_or(0, |attempt| attempt.attempt),
                };
                let Some(log) = page.logs.iter().find(|log| log.of == wanted) else { continue };
                let from = log.size.saturating_sub(TAIL_BYTES);
                let lines = tail(client, status.id.as_str(), &wanted.step, &log.name, from).await;
                words.insert((number, wanted.step, item.index), lines.unwrap_or_default());
            }
        }
    }
    words
}

async fn tail(client: &Client, id: &str, step: &str, name: &str, from: u64) -> Option<Vec<String>> {
    let mut response = client.log(id, step, name, from).await.ok()?;
    let mut bytes = Vec::new();
    // It may have grown since; the rest is for `logs`.
    while bytes.len() < 2 * TAIL_BYTES as usize {
        match response.chunk().await.ok()? {
            Some(chunk) => bytes.extend_from_slice(&chunk),
            None => break,
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_LINES)..];
    let short =
        |line: &&str| inert(&line.chars().take(LINE_CHARS).collect::<String>()).into_owned();
    Some(last.iter().map(short).collect())
}
