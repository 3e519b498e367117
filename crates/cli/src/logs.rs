//! `steadfast logs`: what the attempts of a job have printed, in the order in which they began.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use steadfast_api::{AttemptName, LogRow};
use steadfast_core::plan::{Action, Plan, Step};

use crate::args::LogsArgs;
use crate::error::CliError;
use crate::source::{Activity, JobSource};
use crate::style::{DIM, paint};
use crate::{Exit, clock};

mod print;

pub(crate) use print::{LastLines, Printer, Times};

/// Bytes in which the last lines are looked for at once.
const TAIL_CHUNK: u64 = 256 << 10;

pub(crate) fn logs(
    source: &mut dyn JobSource,
    id: &str,
    args: &LogsArgs,
) -> Result<Exit, CliError> {
    let since = since_ms(args);
    // How far each log was printed.
    let mut printed: BTreeMap<AttemptName, u64> = BTreeMap::new();
    let mut printer = Printer::new(args);
    loop {
        // Asked before the logs are: what is printed before the end is seen.
        let activity = if args.follow { source.activity(id)? } else { Activity::Over };
        let mut logs = source.logs(id, args.step.as_deref())?;
        logs.retain(|log| args.attempt.is_none_or(|attempt| log.of.attempt == attempt));
        printer.headed |= logs.len() > 1;
        for log in &logs {
            let from = match printed.get(&log.of) {
                Some(from) => *from,
                None => begin(source, id, log, args.tail, since)?,
            };
            let to =
                if log.size > from { copy(source, id, log, from, &mut printer)? } else { from };
            printed.insert(log.of.clone(), to);
        }
        printer.flush()?;
        match activity {
            // Printing is no event, so it is looked for.
            Activity::GoesOn => clock::wait_a_little(),
            Activity::Over => {
                printer.end()?;
                logs.iter().filter(|log| log.arriving).for_each(|log| tell_arriving(&log.name));
                if logs.is_empty()
                    && let Ok((_, plan)) = source.accepted(id)
                {
                    tell_no_log(&plan, args);
                }
                return Ok(Exit::Ok);
            }
            Activity::Rests(why) => {
                printer.end()?;
                anstream::eprintln!("{}", paint(DIM, why));
                return Ok(Exit::Ok);
            }
        }
    }
}

fn tell_arriving(name: &str) {
    let text = format!("the rest of the log {name} has not arrived from its worker yet");
    anstream::eprintln!("{}", paint(DIM, text));
}

/// The moment from which on something counts, if not everything does.
fn since_ms(args: &LogsArgs) -> Option<u64> {
    let ms = args.since?.as_millis().min(u128::from(u64::MAX)) as u64;
    Some(clock::now().0.saturating_sub(ms))
}

/// Whether nothing of a job, or of one of its steps, has a log: services print nothing here.
pub(crate) fn only_calls(plan: &Plan, step: Option<&str>) -> bool {
    let only = step.and_then(|name| plan.select(name).ok()?.step);
    let asked = |other: &&Step| only.is_none_or(|only| plan.step(only).name == other.name);
    let mut actions = plan.steps().iter().filter(asked).flat_map(Step::actions);
    actions.all(|action| matches!(action, Action::Http(_)))
}

/// Beside what is printed, which stays empty: why there is no log.
fn tell_no_log(plan: &Plan, args: &LogsArgs) {
    let step = args.step.as_deref();
    let what = step.map_or_else(|| "this job".to_owned(), |name| format!("`{name}`"));
    let text = match args.attempt {
        _ if only_calls(plan, step) => format!(
            "{what} only calls services, which print nothing here; `steadfast explain` tells how \
             it went"
        ),
        Some(attempt) => format!("no attempt {attempt} of {what} has printed anything"),
        None => format!("{what} has printed nothing"),
    };
    anstream::eprintln!("{}", paint(DIM, text));
}

/// Where printing begins: nothing before the last lines, nor before the moment.
fn begin(
    source: &mut dyn JobSource,
    id: &str,
    log: &LogRow,
    tail: Option<u64>,
    since: Option<u64>,
) -> Result<u64, CliError> {
    let mut from = 0;
    if let Some(since) = since {
        from = source.log_times(id, log)?.since(since).unwrap_or(log.size);
    }
    let Some(lines) = tail else { return Ok(from) };
    let mut last = LastLines::new(lines);
    let mut end = log.size;
    while end > from {
        let start = end.saturating_sub(TAIL_CHUNK).max(from);
        let length = (end - start) as usize;
        let mut bytes = Vec::with_capacity(length);
        // It may have grown since; what is behind the end was seen.
        source.read_log(id, log, start, &mut |chunk| {
            bytes.extend_from_slice(chunk);
            Ok(if bytes.len() < length {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            })
        })?;
        bytes.truncate(length);
        end = start;
        if last.before(start, &bytes) {
            break;
        }
    }
    Ok(from.max(last.begin()))
}

/// Prints what has come since; up to where.
fn copy(
    source: &mut dyn JobSource,
    id: &str,
    log: &LogRow,
    mut from: u64,
    printer: &mut Printer,
) -> Result<u64, CliError> {
    if printer.wants_times() {
        printer.times = source.log_times(id, log)?;
    }
    // Of text for programs a character may come in two pieces.
    let mut held: Vec<u8> = Vec::new();
    source.read_log(id, log, from, &mut |chunk| {
        held.extend_from_slice(chunk);
        let used = printer.piece(&log.of.step, &log.name, from, &held)?;
        held.drain(..used);
        from += used as u64;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(from)
}
