//! A server's status of a job, as the facts that people are shown of any job.

use std::collections::BTreeMap;

use steadfast_api::ShownState;
use steadfast_core::event::{JobState, Requester, Role};
use steadfast_core::text::shorten;
use steadfast_core::verdict::StopReason;

use super::api::Client;
use super::logs;
use super::shapes::{AttemptOfJob, Item, Request, Run, Status, Step};
use crate::logs::only_calls;
use crate::style::{DIM, Inert, inert, paint};
use crate::summary::{
    AsideState, Failed, JobOverview, LONGEST_PROGRESS, NextTry, RunFacts, SHOWN_ITEMS, StepFacts,
    Tally, labelled, notes,
};

/// Failed items of a job whose last words are fetched.
const SHOWN_WORDS: usize = 6;
/// Lines of a failed attempt's output.
const LAST_LINES: usize = 2;
const TAIL_BYTES: u64 = 2000;
const LINE_CHARS: usize = 160;

/// What failed attempts wrote last, by run, step and item.
type Words = BTreeMap<(usize, String, u32), Vec<String>>;

/// Where it stands while it goes on.
pub(super) async fn standing(client: &Client, status: &Status, now_ms: u64) -> String {
    let words = last_words(client, status).await;
    of(client, status, &words).under_way(now_ms)
}

/// How it ended, and where to look.
pub(super) async fn summary(client: &Client, status: &Status, now_ms: u64) -> String {
    let words = last_words(client, status).await;
    let mut text = of(client, status, &words).ended(now_ms);
    let id = status.id.as_str();
    if !logs::plan(client, id).await.is_some_and(|plan| only_calls(&plan, None)) {
        let hint = format!("output: {}", client.hint(&format!("logs {id}")));
        text.push_str(&format!("{}\n", paint(DIM, hint)));
    }
    if status.state != JobState::Succeeded {
        let hint = format!("why: {}", client.hint(&format!("explain {id}")));
        text.push_str(&format!("{}\n", paint(DIM, hint)));
    }
    text
}

pub(super) fn heading(status: &Status) -> String {
    crate::summary::heading(status.name.as_str(), status.id.as_str())
}

fn of(client: &Client, status: &Status, words: &Words) -> JobOverview {
    let mut steps = Vec::new();
    for (number, run) in status.runs.iter().enumerate() {
        for (step_name, step) in &run.steps {
            let name = name_of(run, step_name.as_str());
            let failures = failed(step).take(SHOWN_ITEMS).map(|item| {
                let key = (number, step_name.to_string(), item.index);
                let words = words.get(&key).cloned().unwrap_or_default();
                Failed { name: item_name(&name, step, item), why: why(item), words }
            });
            let failures = failures.collect();
            let paused = run.state == JobState::Paused;
            steps.push(StepFacts { paused, failures, ..step_facts(name, step) });
        }
    }
    JobOverview {
        state: status.state,
        submitted_ms: status.submitted_at_ms,
        finished_ms: status.finished_at_ms,
        reason: status.completion.as_ref().map(|completion| completion.reason.to_string()),
        steps,
        rests: (status.state == ShownState::Interrupted)
            .then(|| format!("go on with {}", client.resume_hint(status.id.as_str()))),
        notes: notes(
            &runs(status),
            status.state,
            status.cancel_request.as_ref().map(requester),
            status.pause_request.as_ref().map(requester),
        ),
    }
}

fn runs(status: &Status) -> Vec<RunFacts> {
    let counted = status.result.as_ref().map(|result| &result.datacenters);
    let runs = status.runs.iter().filter_map(|run| {
        let datacenter = run.datacenter.as_ref()?;
        let counts = counted.is_some_and(|counted| counted.contains(datacenter));
        let (datacenter, state, late) = (datacenter.to_string(), run.state, run.late);
        Some(RunFacts { datacenter, state, late, counts })
    });
    runs.collect()
}

fn requester(request: &Request) -> Requester {
    let text = |text: &Option<Inert>| text.as_ref().map(|text| text.as_str().into());
    Requester { by: text(&request.by), reason: text(&request.reason) }
}

fn name_of(run: &Run, step: &str) -> String {
    run.datacenter.as_ref().map_or_else(|| step.to_owned(), |dc| format!("{dc}/{step}"))
}

fn failed(step: &Step) -> impl Iterator<Item = &Item> {
    step.items.iter().filter(|item| item.state.as_str() == "failed")
}

fn item_name(step_name: &str, step: &Step, item: &Item) -> String {
    let of_many = item.value.is_some() || step.counts.values().sum::<u64>() > 1;
    let name = if of_many { format!("{step_name}[{}]", item.index) } else { step_name.to_owned() };
    // Of a range the number tells it.
    labelled(
        name,
        item.value.as_ref().filter(|value| value.as_u64() != Some(u64::from(item.index))),
    )
}

fn why(item: &Item) -> String {
    let reason = item.reason.as_ref().map_or("failed", |reason| reason.as_str());
    let known = serde_json::from_value::<StopReason>(reason.into());
    let reason = known.map_or_else(|_| reason.to_owned(), |reason| reason.message().to_owned());
    let error = item.last_error.as_ref().map_or("no worker took it", |error| error.as_str());
    format!("{reason}: {error}")
}

fn step_facts(name: String, step: &Step) -> StepFacts {
    let count = |state: &str| step.counts.get(state).copied().unwrap_or(0);
    let items: u64 = step.counts.values().sum();
    let last = |item: &Item| item.attempts.last().map_or(0, |attempt| attempt.attempt);
    let due = |item: &&Item| item.retry_available_at_ms;
    let next = step.items.iter().filter(|item| due(item).is_some()).min_by_key(due);
    let only = step.items.first().filter(|_| items <= 1);
    let progress = only.and_then(|item| item.progress.as_ref());
    // Of a large fan-out the rest of the items is only counted.
    let all_shown = step.items.len() as u64 == items;
    StepFacts {
        tally: Tally {
            items,
            succeeded: count("succeeded"),
            failed: count("failed"),
            skipped: count("skipped"),
            cancelled: count("cancelled"),
        },
        running: count("running"),
        called: count("awaiting_callback"),
        backing_off: count("backing_off"),
        ready: count("ready"),
        attempt: only.map_or(0, last),
        progress: progress.map(|it| shorten(&it.said.to_string(), LONGEST_PROGRESS)),
        next: next.map(|item| NextTry {
            due_ms: item.retry_available_at_ms.unwrap_or(0),
            attempt: last(item) + 1,
            last_error: item.last_error.as_ref().map(ToString::to_string),
        }),
        attempts: all_shown.then(|| step.items.iter().map(|item| u64::from(last(item))).sum()),
        fallback: step.fallback.as_ref().map(aside),
        compensation: step.compensation.as_ref().map(aside),
        error: step.error.as_ref().map(ToString::to_string),
        ..StepFacts::new(name, step.state)
    }
}

fn aside(item: &Item) -> AsideState {
    match item.state.as_str() {
        "succeeded" => AsideState::Succeeded,
        "failed" => AsideState::Failed,
        "cancelled" => AsideState::Cancelled,
        _ => AsideState::UnderWay,
    }
}

/// What the failed items wrote last, as far as that can be had; nothing depends on it.
async fn last_words(client: &Client, status: &Status) -> Words {
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
