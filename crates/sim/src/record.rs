//! A rehearsal script out of what really happened to a job: for each item its attempts in turn, each with its outcome
//! and how long it took.
//!
//! It knows nothing that the log does not: what was cut off has no outcome, and is `never`.

use std::collections::BTreeMap;

use steadfast_core::event::{Event, ItemId, RecordedEvent, Role};
use steadfast_core::outcome::{
    ErrorText, Failure, FailureKind, Outcome, Permanence, RequestedDelay,
};
use steadfast_core::plan::{ForEach, Plan};
use steadfast_core::time::{Timestamp, human_ms};
use steadfast_jobfile::duration_text;

/// A script, and what of the log it could not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    pub text: String,
    pub notes: Vec<String>,
}

/// Reads a log and writes the script of it, for a job like `target`, which may have changed since: what it does not have
/// any more is left out, and noted.
pub fn record<'a>(log: impl IntoIterator<Item = &'a RecordedEvent>, target: &Plan) -> Recording {
    let mut recorder = Recorder::default();
    let mut plan = None;
    let mut job = String::new();
    for record in log {
        if let Event::JobAccepted(accepted) = &record.event {
            plan = Some(accepted.plan.clone());
            job = accepted.id.to_string();
            recorder.kept = !accepted.kept.is_empty();
        }
        recorder.add(record);
    }
    let Some(plan) = plan else { return Recording::default() };
    recorder.finish(&job, &plan, target)
}

#[derive(Default)]
struct Recorder {
    attempts: BTreeMap<ItemId, Vec<String>>,
    /// Attempts without an outcome so far.
    open: BTreeMap<ItemId, u32>,
    down_ms: u64,
    downs: u32,
    /// A wait that a service asked for is not sayable in a script.
    retry_after: bool,
    /// It retried another job, and kept what had succeeded there.
    kept: bool,
}

impl Recorder {
    fn add(&mut self, record: &RecordedEvent) {
        match &record.event {
            Event::AttemptStarted { item, attempt, .. } => {
                self.open.insert(*item, *attempt);
            }
            Event::AttemptEnded { item, started_at, outcome, .. } => {
                self.open.remove(item);
                self.retry_after |= matches!(
                    outcome,
                    Outcome::Failed(Failure { asked: Some(RequestedDelay::RetryAfterMs(_)), .. })
                );
                let took_ms = took(*started_at, record.at);
                self.attempts.entry(*item).or_default().push(written(outcome, took_ms));
            }
            Event::EngineRestarted { down_since } => {
                self.downs += 1;
                self.down_ms = self.down_ms.saturating_add(record.at.since(*down_since));
            }
            _ => {}
        }
    }

    fn finish(mut self, job: &str, plan: &Plan, target: &Plan) -> Recording {
        let mut notes = Vec::new();
        for (item, attempt) in std::mem::take(&mut self.open) {
            self.attempts.entry(item).or_default().push("never".to_owned());
            notes.push(format!(
                "attempt {attempt} of {} had no outcome: it is `never` in the script",
                plan.item_name(item)
            ));
        }
        if self.downs > 0 {
            let times =
                if self.downs == 1 { "once".to_owned() } else { format!("{} times", self.downs) };
            notes.push(format!(
                "the engine was restarted {times}, and away for {} in all: that is not in the script; write \
                 `down:DUR` between two attempts to play it",
                human_ms(self.down_ms)
            ));
        }
        if self.retry_after {
            notes.push(
                "waits that a service asked for by `Retry-After` are not in the script".to_owned(),
            );
        }
        if self.kept {
            notes.push("what the job kept of the one it retries succeeds at once".to_owned());
        }
        let mut text =
            format!("# What happened to job {job}: every attempt, and how long it took.\n");
        for (key, outcomes) in keys(plan, self.attempts) {
            if let Err(why) = target.select(&key) {
                notes.push(format!("`{key}` is left out: {why}"));
                continue;
            }
            // Names need no quotes; the rest is JSON, which YAML reads as it is.
            let key = if key.ends_with([']', '!', '~']) { quoted(&key) } else { key };
            let outcomes: Vec<String> = outcomes.iter().map(|outcome| quoted(outcome)).collect();
            text.push_str(&format!("{key}: [{}]\n", outcomes.join(", ")));
        }
        Recording { text, notes }
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An item, and the outcomes of its attempts as a script has them.
type Walked = (ItemId, Vec<String>);

/// One key for a step of which every item met the same, else one for each.
fn keys(plan: &Plan, attempts: BTreeMap<ItemId, Vec<String>>) -> Vec<(String, Vec<String>)> {
    let mut by_step = BTreeMap::<(u32, Role), Vec<Walked>>::new();
    for (item, outcomes) in attempts {
        by_step.entry((item.step, item.role)).or_default().push((item, outcomes));
    }
    let mut keys = Vec::new();
    for ((step, role), items) in by_step {
        let draft = plan.step(step);
        let count = match &draft.for_each {
            _ if role != Role::Item => 1,
            ForEach::Once => 1,
            ForEach::List(list) => list.len(),
            ForEach::Range(count) => *count as usize,
            // Only as many as there were.
            ForEach::Output { .. } => usize::MAX,
        };
        let is_all = items.len() == count.saturating_mul(plan.runs());
        let alike = items.windows(2).all(|two| two[0].1 == two[1].1);
        match items.first() {
            Some((_, outcomes)) if is_all && alike => {
                let mark = match role {
                    Role::Item => "",
                    Role::Fallback => "!",
                    Role::Compensation => "~",
                };
                keys.push((format!("{}{mark}", draft.name), outcomes.clone()));
            }
            _ => keys
                .extend(items.into_iter().map(|(item, outcomes)| (plan.item_name(item), outcomes))),
        }
    }
    keys
}

fn took(started_at: Timestamp, ended_at: Timestamp) -> u64 {
    ended_at.since(started_at)
}

/// As a script writes it: `exit:22@5s`, `ok={"rows":3}@40ms`.
fn written(outcome: &Outcome, took_ms: u64) -> String {
    let mut text = match outcome {
        Outcome::Failed(Failure {
            asked: Some(RequestedDelay::DeferMs(ms)),
            kind,
            permanence,
            ..
        }) if *kind == FailureKind::HandlerFailed && *permanence == Permanence::Open => {
            format!("defer:{}", duration_text(*ms))
        }
        _ => outcome.to_string(),
    };
    let argument = match outcome {
        Outcome::Succeeded { output } => output.as_ref().map(ToString::to_string),
        Outcome::Failed(Failure { error, .. }) if !text.starts_with("defer") => {
            error.as_ref().map(error_text)
        }
        Outcome::Failed(_) | Outcome::Lost { .. } => None,
    };
    if let Some(argument) = &argument {
        text.push_str(&format!("={argument}"));
    }
    // After a text always: it could end in something that reads like a duration.
    if took_ms > 0 || argument.is_some() {
        text.push_str(&format!("@{}", duration_text(took_ms)));
    }
    text
}

/// The type of an error as part of its text, where rules look for it too.
fn error_text(error: &ErrorText) -> String {
    match &error.kind {
        Some(kind) => format!("{kind}: {}", error.message),
        None => error.message.clone(),
    }
}
