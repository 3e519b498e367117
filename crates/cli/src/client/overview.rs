//! A server's status of a job, as the facts that people are shown of any job.

use std::collections::BTreeMap;

use steadfast_api::{
    AttemptName, ItemState, ItemStatus, JobStatus, RequestInfo, RunStatus, ShownState, StepStatus,
};
use steadfast_core::event::{JobState, Requester, Role};
use steadfast_core::text::shorten;
use steadfast_core::verdict::StopReason;

use super::api::Client;
use super::find;
use crate::logs::only_calls;
use crate::style::inert;
use crate::summary::{
    AuxiliaryState, Failed, JobOverview, LONGEST_PROGRESS, NextTry, RunFacts, SHOWN_ITEMS,
    StepFacts, Tally, labelled, notes,
};

/// Failed items of a job whose last words are fetched.
const SHOWN_WORDS: usize = 6;
/// Lines of a failed attempt's output.
const LAST_LINES: usize = 2;
const TAIL_BYTES: u64 = 2000;
const LINE_CHARS: usize = 160;

/// What failed attempts wrote last, by run, step and item.
type Words = BTreeMap<(usize, String, u32), Vec<String>>;

/// Where a job of a server stands.
pub(super) async fn overview(client: &Client, status: &JobStatus) -> JobOverview {
    let words = last_words(client, status).await;
    let mut hints = vec![];
    if status.state.is_terminal() {
        let id = &status.id;
        let accepted = find::accepted(client, id).await.ok().flatten();
        if !accepted.is_some_and(|(_, plan)| only_calls(&plan, None)) {
            hints.push(format!("output: {}", client.hint(&format!("logs {id}"))));
        }
        if status.state != JobState::Succeeded {
            hints.push(format!("why: {}", client.hint(&format!("explain {id}"))));
        }
    }
    JobOverview { hints, ..of(client, status, &words) }
}

fn of(client: &Client, status: &JobStatus, words: &Words) -> JobOverview {
    let mut steps = Vec::new();
    for (number, run) in status.runs.iter().enumerate() {
        for (step_name, step) in &run.steps.0 {
            let name = name_of(run, step_name);
            let failures = failed(step).take(SHOWN_ITEMS).map(|item| {
                let key = (number, step_name.clone(), item.index);
                let words = words.get(&key).cloned().unwrap_or_default();
                Failed { name: item_name(&name, step, item), why: why(item), words }
            });
            let failures = failures.collect();
            let paused = run.state == JobState::Paused;
            steps.push(StepFacts { paused, failures, ..step_facts(name, step) });
        }
    }
    JobOverview {
        id: status.id.clone(),
        name: status.name.clone(),
        damage: status.reason.clone(),
        hints: vec![],
        state: status.state,
        submitted_ms: status.submitted_at_ms.0,
        finished_ms: status.finished_at_ms.map(|at| at.0),
        reason: status.completion.as_ref().map(|completion| completion.reason.to_string()),
        steps,
        rests: (status.state == ShownState::Interrupted)
            .then(|| format!("go on with {}", client.resume_hint(&status.id))),
        notes: notes(
            &runs(status),
            status.state,
            status.cancel_request.as_ref().map(requester),
            status.pause_request.as_ref().map(requester),
        ),
    }
}

fn runs(status: &JobStatus) -> Vec<RunFacts> {
    let counted = status.result.as_ref().map(|result| &result.datacenters);
    let runs = status.runs.iter().filter_map(|run| {
        let datacenter = run.datacenter.as_ref()?;
        let counts = counted.is_some_and(|counted| counted.contains(datacenter));
        let (datacenter, state, late) = (datacenter.clone(), run.state, run.late);
        Some(RunFacts { datacenter, state, late, counts })
    });
    runs.collect()
}

fn requester(request: &RequestInfo) -> Requester {
    Requester { by: request.by.clone(), reason: request.reason.clone() }
}

fn name_of(run: &RunStatus, step: &str) -> String {
    run.datacenter.as_ref().map_or_else(|| step.to_owned(), |dc| format!("{dc}/{step}"))
}

fn failed(step: &StepStatus) -> impl Iterator<Item = &ItemStatus> {
    step.items.iter().filter(|item| item.state == ItemState::Failed)
}

fn item_name(step_name: &str, step: &StepStatus, item: &ItemStatus) -> String {
    let of_many = item.value.is_some() || total(step) > 1;
    let name = if of_many { format!("{step_name}[{}]", item.index) } else { step_name.to_owned() };
    // Of a range the number tells it.
    labelled(
        name,
        item.value.as_ref().filter(|value| value.as_u64() != Some(u64::from(item.index))),
    )
}

fn why(item: &ItemStatus) -> String {
    let reason = item.reason.map_or("failed", StopReason::message);
    let error = item.last_error.as_deref().unwrap_or("no worker took it");
    format!("{reason}: {error}")
}

fn total(step: &StepStatus) -> u64 {
    step.counts.values().copied().map(u64::from).sum()
}

fn step_facts(name: String, step: &StepStatus) -> StepFacts {
    let count = |state| u64::from(step.count(state));
    let items = total(step);
    let last = |item: &ItemStatus| item.attempts.last().map_or(0, |attempt| attempt.attempt);
    let due = |item: &&ItemStatus| item.retry_available_at_ms;
    let next = step.items.iter().filter(|item| due(item).is_some()).min_by_key(due);
    let only = step.items.first().filter(|_| items <= 1);
    let progress = only.and_then(|item| item.progress.as_ref());
    // Of a large fan-out the rest of the items is only counted.
    let all_shown = step.items.len() as u64 == items;
    StepFacts {
        tally: Tally {
            items,
            succeeded: count(ItemState::Succeeded),
            failed: count(ItemState::Failed),
            skipped: count(ItemState::Skipped),
            cancelled: count(ItemState::Cancelled),
        },
        running: count(ItemState::Running),
        called: count(ItemState::AwaitingCallback),
        backing_off: count(ItemState::BackingOff),
        ready: count(ItemState::Ready),
        attempt: only.map_or(0, last),
        progress: progress.map(|it| shorten(&it.said.to_string(), LONGEST_PROGRESS)),
        next: next.map(|item| NextTry {
            due_ms: item.retry_available_at_ms.unwrap_or_default().0,
            attempt: last(item) + 1,
            last_error: item.last_error.clone(),
        }),
        attempts: all_shown.then(|| step.items.iter().map(|item| u64::from(last(item))).sum()),
        fallback: step.fallback.as_ref().map(auxiliary),
        compensation: step.compensation.as_ref().map(auxiliary),
        error: step.error.clone(),
        ..StepFacts::new(name, step.state)
    }
}

fn auxiliary(item: &ItemStatus) -> AuxiliaryState {
    match item.state {
        ItemState::Succeeded => AuxiliaryState::Succeeded,
        ItemState::Failed => AuxiliaryState::Failed,
        ItemState::Cancelled => AuxiliaryState::Cancelled,
        _ => AuxiliaryState::UnderWay,
    }
}

/// What the failed items wrote last, as far as that can be had; nothing depends on it.
async fn last_words(client: &Client, status: &JobStatus) -> Words {
    let mut words = Words::new();
    for (number, run) in status.runs.iter().enumerate() {
        for (step_name, step) in &run.steps.0 {
            let items: Vec<&ItemStatus> = failed(step).take(SHOWN_ITEMS).collect();
            if items.is_empty() || words.len() >= SHOWN_WORDS {
                continue;
            }
            let query = [("step", step_name.as_str()), ("limit", "1000")];
            let Ok(page) = client.logs(&status.id, &query).await else { return words };
            for item in items {
                let wanted = AttemptName {
                    datacenter: run.datacenter.clone(),
                    step: step_name.clone(),
                    role: Role::Item,
                    item: item.index,
                    attempt: item.attempts.last().map_or(0, |attempt| attempt.attempt),
                };
                let Some(log) = page.logs.iter().find(|log| log.of == wanted) else { continue };
                let from = log.size.saturating_sub(TAIL_BYTES);
                let lines = tail(client, &status.id, &wanted.step, &log.name, from).await;
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
