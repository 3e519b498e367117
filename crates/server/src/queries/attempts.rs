//! All attempts of a job, page by page, from its log.

use std::collections::HashMap;

use steadfast_api::{AttemptRow, AttemptStatus, AttemptsPage, is_process};
use steadfast_core::event::{Event, ItemId, JobId};
use steadfast_core::job::{Job, WorkItem};
use steadfast_core::outcome::{FailureKind, Outcome};
use steadfast_store::Reader;

use super::{CHUNK, each_event, plan_of, state};
use crate::error::ApiError;

/// The number of the event with which the last attempt of a page began.
pub(super) fn read_cursor(cursor: Option<&str>) -> Result<u64, ApiError> {
    let Some(text) = cursor else { return Ok(0) };
    text.parse().map_err(|_| ApiError::BadCursor(text.to_owned()))
}

/// What became of an attempt, for somebody who speaks of it too late.
#[derive(Clone, Debug, Default)]
pub struct AttemptEnd {
    pub how: HowEnded,
    /// With another attempt.
    pub item_goes_on: bool,
    /// That somebody spoke of it too late is recorded.
    pub noted: bool,
    /// The job, if it is over, and the epoch of its last writer.
    pub ended: Option<Job>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum HowEnded {
    /// Which said this.
    ByCallback(Outcome),
    TimedOut,
    /// Or it was cut off, and has no end of its own.
    #[default]
    Otherwise,
}

pub(super) fn end(
    reader: &mut dyn Reader,
    id: &JobId,
    item: ItemId,
    attempt: u32,
) -> Result<AttemptEnd, ApiError> {
    let job = state(reader, id)?;
    let mut end = AttemptEnd { item_goes_on: job.live(item).is_some(), ..AttemptEnd::default() };
    let about = Some((item.run, Some(item.step), Some(item)));
    // From the end back to the attempt: it ended lately, mostly, and the log may be long.
    let (mut last, mut is_found) = (job.seq, false);
    while last > 0 && !is_found {
        let before = last.saturating_sub(CHUNK as u64);
        each_event(reader, id, (before, last), |record| {
            match &record.event {
                event if event.place() != about => {}
                Event::AttemptStarted { attempt: started, .. } => is_found |= *started == attempt,
                Event::AttemptEnded { attempt: ended, by_callback, outcome, .. }
                    if *ended == attempt =>
                {
                    is_found = true;
                    end.how = match outcome {
                        outcome if *by_callback => HowEnded::ByCallback(outcome.clone()),
                        Outcome::Failed(failure) if failure.kind == FailureKind::TimedOut => {
                            HowEnded::TimedOut
                        }
                        _ => HowEnded::Otherwise,
                    };
                }
                Event::LateCallback { attempt: late, .. } => end.noted |= *late == attempt,
                _ => {}
            }
            Ok(())
        })?;
        last = before;
    }
    end.ended = job.is_over().then_some(job);
    Ok(end)
}

pub(super) fn page(
    reader: &mut dyn Reader,
    id: &JobId,
    after: u64,
    limit: usize,
) -> Result<AttemptsPage, ApiError> {
    let first = reader.events(id, 0, 1)?;
    let plan = plan_of(&first).ok_or_else(|| ApiError::no_job(id))?;
    let mut page = AttemptsPage::default();
    // Those of the page that have not ended, by what names them in the log.
    let mut open: HashMap<(ItemId, u32), usize> = HashMap::new();
    let (mut last_start, mut is_asked) = (0, false);
    let mut after = after;
    loop {
        let events = reader.events(id, after, CHUNK)?;
        let Some(last) = events.last() else { return Ok(page) };
        after = last.seq;
        for record in &events {
            match &record.event {
                Event::AttemptStarted { .. } if page.attempts.len() >= limit => {
                    page.next.get_or_insert_with(|| last_start.to_string());
                }
                Event::AttemptStarted { item, attempt, worker, .. } => {
                    last_start = record.seq;
                    open.insert((*item, *attempt), page.attempts.len());
                    page.attempts.push(AttemptRow {
                        datacenter: plan.datacenter(item.run).map(str::to_owned),
                        step: plan.step(item.step).name.clone(),
                        role: item.role,
                        item: item.index,
                        status: AttemptStatus::started(*attempt, worker.clone(), record.at),
                    });
                }
                Event::AttemptEnded { item, attempt, outcome, .. } => {
                    if let Some(place) = open.remove(&(*item, *attempt)) {
                        let process = is_process(plan, *item);
                        page.attempts[place].status.ended(outcome, process, record.at);
                    }
                }
                Event::RunFailing { run, .. } | Event::RunEnded { run, .. } => {
                    open.retain(|(item, _), place| {
                        let cut_off = item.run == *run;
                        if cut_off {
                            page.attempts[*place].status.killed(record.at);
                        }
                        !cut_off
                    });
                }
                _ => {}
            }
        }
        // What is under way now has no end in the log: that is not read to its own for it.
        if page.next.is_some() && !open.is_empty() && !is_asked {
            is_asked = true;
            let job = state(reader, id)?;
            open.retain(|(item, attempt), _| {
                let live = job.live(*item).filter(|live| live.history.attempts == *attempt);
                !live.is_some_and(WorkItem::is_under_way)
            });
        }
        if page.next.is_some() && open.is_empty() {
            return Ok(page);
        }
    }
}
