//! `steadfast rehearse`: the job on a virtual clock, decision by decision.

use std::io::Write;
use std::sync::Arc;

use steadfast_core::event::{Event, JobState, StepState};
use steadfast_core::plan::LateResults;
use steadfast_core::time::human_ms;
use steadfast_core::verdict::Cause;
use steadfast_sim::{
    Decision, Options, Recording, Rehearsal, Script, VerdictName, load_script, record, rehearse,
};

use crate::args::{Output, RehearseArgs};
use crate::client::Routing;
use crate::input::Source;
use crate::style::{Align, BAD, BOLD, DIM, GOOD, NOTE, Table, WAIT, paint, state_style};
use crate::{Done, Exit, input, timeline};

/// Rows of the table of decisions; the JSON has them all.
const SHOWN_DECISIONS: usize = 60;
/// A script is a small thing; a larger one is a mistake.
const MAX_SCRIPT_BYTES: usize = 10 << 20;

pub(crate) fn run(args: &RehearseArgs, routing: Routing) -> Done {
    let output = args.common.output;
    let wrong =
        |code: &str, message: &str| input::refuse(code, message, output).map(|()| Exit::Wrong);
    let mut log = Vec::new();
    if let Some(job) = &args.from {
        let read = routing.log(&args.remote, &args.common, job, &mut log)?;
        if read != Exit::Ok {
            return Ok(read);
        }
    }
    let file = match &args.file {
        None => None,
        Some(file) => match input::job(file, output)? {
            None => return Ok(Exit::Wrong),
            file => file,
        },
    };
    let (plan, warned) = match (file, log.first().map(|record| &record.event)) {
        (Some((job, source)), _) => (Arc::new(job.plan), Some((job.warnings, source))),
        (None, Some(Event::JobAccepted(accepted))) => (accepted.plan.clone(), None),
        (None, _) => return wrong("not_found", "the job has no events to rehearse it from"),
    };
    let source = match (&args.from, &args.script) {
        (Some(_), _) => {
            let Recording { text, notes } = record(&log, &plan);
            for note in notes {
                anstream::eprintln!("{}", paint(DIM, format!("note: {note}")));
            }
            if let Some(path) = &args.write_script
                && let Err(error) = std::fs::write(path, &text)
            {
                return wrong("unwritable", &format!("cannot write {}: {error}", path.display()));
            }
            let name = args.write_script.as_ref().map(|path| path.display().to_string());
            let name = name.unwrap_or_else(|| "<what happened>".to_owned());
            Some(Source { name, text: text.into_bytes() })
        }
        (None, Some(path)) => match input::read(path, MAX_SCRIPT_BYTES) {
            Ok(source) => Some(source),
            Err(message) => return wrong("unreadable", &message),
        },
        (None, None) => None,
    };
    let script = match &source {
        None => Script::default(),
        Some(source) => match load_script(&source.name, &source.text, &plan) {
            Ok(script) => script,
            Err(problems) => {
                let (code, shape) = ("invalid_script", input::Shape::Error);
                return input::refuse_file(code, &problems, source, output, shape)
                    .map(|()| Exit::Wrong);
            }
        },
    };
    let options =
        Options { slots: args.slots, max_decisions: args.max_decisions, past_the_end: args.late };
    let rehearsal = match rehearse(plan, &script, &options) {
        Ok(rehearsal) => rehearsal,
        Err(too_many) => {
            return wrong("too_many_decisions", &too_many.to_string());
        }
    };
    match output {
        Output::Json => input::print_json(&rehearsal)?,
        Output::Human => {
            anstream::stdout().lock().write_all(to_text(&rehearsal).as_bytes())?;
            if let Some((warnings, source)) = &warned {
                input::warn(warnings, source);
            }
        }
    }
    Ok(match rehearsal.state {
        JobState::Succeeded => Exit::Ok,
        JobState::Partial => Exit::Partial,
        JobState::Cancelled => Exit::Cancelled,
        _ => Exit::Failed,
    })
}

fn to_text(rehearsal: &Rehearsal) -> String {
    let mut text = format!("{}\n\n", paint(BOLD, rehearsal.plan.name()));
    text.push_str(&timeline::render(rehearsal, 60));
    text.push('\n');
    text.push_str(&decisions(rehearsal));
    text.push('\n');
    text.push_str(&ends(rehearsal));
    text
}

fn decisions(rehearsal: &Rehearsal) -> String {
    let mut table = Table::new(&[
        ("at", Align::Right),
        ("item", Align::Left),
        ("attempt", Align::Right),
        ("outcome", Align::Left),
        ("decision", Align::Left),
        ("why", Align::Left),
    ]);
    let all = &rehearsal.decisions;
    // The beginning and the end of a long one: the middle is more of the same.
    let cut = all.len() > SHOWN_DECISIONS;
    let head = if cut { SHOWN_DECISIONS / 2 } else { all.len() };
    let tail = if cut { all.len() - SHOWN_DECISIONS / 2 } else { all.len() };
    for decision in &all[..head] {
        table.row(row(rehearsal, decision));
    }
    if cut {
        let mut dots = vec![(String::new(), DIM); 6];
        dots[4].0 = format!("… {} more decisions (all with -o json) …", tail - head);
        table.row(dots);
    }
    for decision in &all[tail..] {
        table.row(row(rehearsal, decision));
    }
    table.render("  ")
}

fn row(rehearsal: &Rehearsal, decision: &Decision) -> Vec<(String, anstyle::Style)> {
    let (says, style) = match decision.verdict {
        VerdictName::Complete => ("complete".to_owned(), GOOD),
        VerdictName::Retry { delay_ms: 0, .. } => ("retry at once".to_owned(), WAIT),
        VerdictName::Retry { delay_ms, .. } => (format!("retry in {}", human_ms(delay_ms)), WAIT),
        VerdictName::Stop { reason, .. } => (format!("stop: {reason}"), BAD),
    };
    vec![
        (human_ms(decision.at.0), DIM),
        (rehearsal.plan.item_name(decision.item), BOLD),
        (decision.attempt.to_string(), anstyle::Style::new()),
        (decision.outcome.to_string(), anstyle::Style::new()),
        (says, style),
        (charged(rehearsal, decision), DIM),
    ]
}

/// The account that the decision is about, with its limit.
fn charged(rehearsal: &Rehearsal, decision: &Decision) -> String {
    let accounts = &decision.accounts;
    let of = |count: u32, limit: Option<u32>| match limit {
        Some(limit) => format!("{count} of {limit}"),
        None => count.to_string(),
    };
    match decision.verdict {
        VerdictName::Complete => return String::new(),
        VerdictName::Stop { reason, on } => {
            let spelling = &rehearsal.plan.step(decision.item.step).spelling;
            return spelling.respell(reason.message_on(on));
        }
        VerdictName::Retry { cause: Cause::Preemption, .. } => {
            let mut text =
                format!("preemptions {}", of(accounts.preemptions, accounts.max_preemptions));
            // A budget that counts all.
            if decision.charged.job_retries > 0 {
                text.push_str(&format!(
                    " · job retries {}",
                    of(accounts.job_retries, accounts.job_budget)
                ));
            }
            return text;
        }
        VerdictName::Retry { cause: Cause::Deferral, .. } => {
            return format!("deferrals {}", of(accounts.deferrals, accounts.max_deferrals));
        }
        VerdictName::Retry { cause: Cause::Failure, .. } => {}
    }
    let mut parts = vec![format!("failures {}", of(accounts.failures, accounts.max_attempts))];
    if let Some(budget) = accounts.delay_budget_ms {
        let spent = accounts.delay_spent_ms + accounts.downtime_ms;
        parts.push(format!("delay {} of {}", human_ms(spent), human_ms(budget)));
    }
    if accounts.job_budget.is_some() {
        parts.push(format!("job retries {}", of(accounts.job_retries, accounts.job_budget)));
    }
    if accounts.step_budget.is_some() {
        parts.push(format!("step retries {}", of(accounts.step_retries, accounts.step_budget)));
    }
    parts.join(" · ")
}

fn ends(rehearsal: &Rehearsal) -> String {
    let mut text = String::new();
    for (run, report) in rehearsal.runs.iter().enumerate() {
        if let Some(datacenter) = rehearsal.plan.datacenter(run as u32) {
            let when =
                report.finished_ms.map(|ms| format!(" at {}", human_ms(ms))).unwrap_or_default();
            let state = paint(state_style(report.state), report.state);
            let late = match report.late {
                None => "",
                Some(LateResults::LogOnly) => ", late: only logged",
                Some(LateResults::UpdateResult) => ", late: added to the job's result",
            };
            text.push_str(&format!("  {datacenter}: {state}{when}{late}\n"));
        }
        let left = report
            .steps
            .iter()
            .enumerate()
            .filter(|(_, step)| !matches!(step.state, StepState::Succeeded));
        let left: Vec<String> = left
            .take(8)
            .map(|(i, step)| {
                let why = step.error.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                format!("{} {}{why}", rehearsal.plan.step(i as u32).name, step.state)
            })
            .collect();
        if !left.is_empty() {
            text.push_str(&format!("  {}\n", paint(DIM, left.join(" · "))));
        }
        for hint in report.steps.iter().filter_map(|step| step.hint.as_ref()) {
            text.push_str(&format!("  {}\n", paint(NOTE, hint)));
        }
    }
    let state = paint(state_style(rehearsal.state), rehearsal.state);
    match (rehearsal.finished_ms, rehearsal.completion) {
        (Some(ms), Some(completion)) => {
            let reason = paint(DIM, format!("({})", completion.reason.name()));
            text.push_str(&format!("{state} after {} {reason}\n", human_ms(ms)));
        }
        _ => {
            text.push_str(&format!("{state}: nothing can happen any more, and it has not ended\n"));
        }
    }
    text
}
