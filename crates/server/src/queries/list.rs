//! Jobs page by page, each in the state that is shown of it.

use steadfast_api::{JobRow, JobsPage, ShownState};
use steadfast_core::event::{Event, JobId, JobState};
use steadfast_core::time::Timestamp;
use steadfast_core::verdict::StopReason;
use steadfast_store::{Filter, Page, Reader, Row, StoreError};

/// Rows that one request looks through; what it has by then is its answer, with where to go on.
pub const LOOKED_THROUGH: usize = 20_000;
/// Logs that one request opens to see why jobs ended: each costs a read.
pub const LOOKED_INTO: usize = 2_000;
/// Events at the end of a log in which the reason of its end is looked for.
const LAST_EVENTS: u64 = 100;
/// Rows that are asked for at once where most may not fit.
const CHUNK: usize = 500;
/// Jobs are listed in the order of acceptance; of several servers, clocks may differ by so much.
const CLOCKS_DIFFER_MS: u64 = 60_000;

/// All that are set must hold.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Any of them; empty: all.
    pub states: Vec<ShownState>,
    pub name: Option<String>,
    pub label: Option<(String, String)>,
    /// Part of the name, in whatever case, or the beginning of the id.
    pub text: Option<String>,
    /// Submitted then or later.
    pub since: Option<Timestamp>,
    /// Submitted then or sooner.
    pub until: Option<Timestamp>,
    /// Ended for this: why the job did, or why one of its items was given up.
    pub reason: Option<String>,
}

impl JobFilter {
    /// What the store can say by itself.
    fn stored(&self) -> Filter {
        let filter =
            Filter { name: self.name.clone(), label: self.label.clone(), ..Filter::default() };
        match self.states[..] {
            [ShownState::Of(state)] => Filter { state: Some(state), ..filter },
            [ShownState::Interrupted] => Filter { local: Some(true), over: Some(false), ..filter },
            [_, _, ..] if self.states.iter().all(|state| is_open(*state)) => {
                Filter { over: Some(false), ..filter }
            }
            _ => filter,
        }
    }

    /// What the row tells is looked at here.
    fn looks_at_rows(&self) -> bool {
        self.states.len() > 1 || self.text.is_some() || self.since.is_some() || self.until.is_some()
    }

    fn fits_row(&self, row: &Row) -> bool {
        self.text.as_deref().is_none_or(|text| has_text(row, text))
            && self.since.is_none_or(|since| row.submitted_at >= since)
            && self.until.is_none_or(|until| row.submitted_at <= until)
            && (self.reason.is_none() || row.state.is_terminal())
            // Interrupted and stuck are found out later.
            && (self.states.is_empty()
                || self.states.iter().any(|state| match state {
                    ShownState::Of(state) => row.state == *state,
                    ShownState::Interrupted => row.local && !row.state.is_terminal(),
                    ShownState::Stuck => true,
                }))
    }

    /// Nothing that is older can fit.
    fn is_past(&self, row: &Row) -> bool {
        self.since.is_some_and(|since| row.submitted_at.plus(CLOCKS_DIFFER_MS) < since)
    }
}

const fn is_open(state: ShownState) -> bool {
    match state {
        ShownState::Of(state) => !state.is_terminal(),
        ShownState::Interrupted => true,
        ShownState::Stuck => false,
    }
}

fn has_text(row: &Row, text: &str) -> bool {
    let text = text.to_lowercase();
    row.id.starts_with(&text) || row.name.to_lowercase().contains(&text)
}

/// Whether a job is interrupted or stuck is not stored, nor why it ended, so what the store finds is looked through, and more is
/// asked for until the page is full or enough was looked through: then the page may be short, or empty, and says where to go on.
pub fn list(
    reader: &mut dyn Reader,
    is_run: &dyn Fn(&str) -> bool,
    filter: &JobFilter,
    cursor: Option<&str>,
    limit: usize,
) -> Result<JobsPage, StoreError> {
    let stored = filter.stored();
    let mut jobs: Vec<JobRow> = Vec::new();
    let mut cursor = cursor.map(str::to_owned);
    let (mut rows, mut logs) = (0, 0);
    loop {
        let missing = limit.saturating_sub(jobs.len());
        let wide = if filter.looks_at_rows() { missing.max(CHUNK) } else { missing };
        let mut page = reader.list(&stored, cursor.as_deref(), wide)?;
        cut(reader, &stored, cursor.as_deref(), &mut page, |row| filter.fits_row(row), missing)?;
        rows += page.jobs.len();
        let is_past = page.jobs.iter().any(|row| filter.is_past(row));
        page.jobs.retain(|row| filter.fits_row(row));
        page.check(reader)?;
        let mut damaged = page.damaged;
        for row in page.jobs {
            let damage = damaged.remove(&row.id);
            let sound = || shown_state(&row, is_run);
            let state = damage.as_ref().map_or_else(sound, |_| ShownState::Stuck);
            if !filter.states.is_empty() && !filter.states.contains(&state) {
                continue;
            }
            let looks = matches!(row.state, JobState::Failed | JobState::Partial)
                || (filter.reason.is_some() && row.state.is_terminal());
            let reasons = if looks && damage.is_none() {
                logs += 1;
                ended_for(reader, &row.id)?
            } else {
                EndReasons::default()
            };
            if filter.reason.as_deref().is_none_or(|reason| reasons.has(reason)) {
                jobs.push(shown_row(row, state, damage, reasons.main()));
            }
        }
        cursor = if is_past { None } else { page.next };
        let is_enough = rows >= LOOKED_THROUGH || (filter.reason.is_some() && logs >= LOOKED_INTO);
        if cursor.is_none() || jobs.len() >= limit || is_enough {
            return Ok(JobsPage { jobs, next: cursor });
        }
    }
}

/// A page whose `next` is right behind the last row that there is room for. A store's page says where the whole of it ends, so that it
/// is asked for once more, shorter.
fn cut(
    reader: &mut dyn Reader,
    stored: &Filter,
    cursor: Option<&str>,
    page: &mut Page,
    fits: impl Fn(&Row) -> bool,
    most: usize,
) -> Result<(), StoreError> {
    let last =
        page.jobs.iter().enumerate().filter(|(_, row)| fits(row)).nth(most.saturating_sub(1));
    match last.map(|(place, _)| place + 1) {
        Some(taken) if taken < page.jobs.len() => {
            *page = reader.list(stored, cursor, taken)?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Why a job ended, as far as the end of its log tells.
#[derive(Debug, Default)]
struct EndReasons {
    completion: Option<&'static str>,
    /// Of items that were given up, the last first.
    stops: Vec<StopReason>,
}

impl EndReasons {
    fn has(&self, reason: &str) -> bool {
        self.completion == Some(reason) || self.stops.iter().any(|stop| stop.name() == reason)
    }

    /// That others were given up with it explains nothing.
    fn main(&self) -> Option<String> {
        let follows = [StopReason::StepFailed, StopReason::Cancelled];
        let own = self.stops.iter().find(|stop| !follows.contains(stop));
        own.map(|stop| stop.name()).or(self.completion).map(str::to_owned)
    }
}

fn ended_for(reader: &mut dyn Reader, job: &str) -> Result<EndReasons, StoreError> {
    let Some((_, end)) = reader.row(job)? else { return Ok(EndReasons::default()) };
    let last = reader.events(job, end.saturating_sub(LAST_EVENTS), LAST_EVENTS as usize)?;
    let mut reasons = EndReasons::default();
    for record in last.iter().rev() {
        match &record.event {
            Event::JobEnded { reason, .. } => reasons.completion = Some(reason.name()),
            Event::ItemFailed { reason, .. } => reasons.stops.push(*reason),
            _ => {}
        }
    }
    Ok(reasons)
}

fn shown_row(
    row: Row,
    state: ShownState,
    reason: Option<String>,
    stop_reason: Option<String>,
) -> JobRow {
    let Row { id, name, submitted_at, finished_at, labels, retried_from, .. } = row;
    JobRow {
        id: id.to_string(),
        name,
        state,
        submitted_at_ms: submitted_at,
        finished_at_ms: finished_at,
        labels,
        retried_from: retried_from.map(|id| id.to_string()),
        stop_reason,
        reason,
    }
}

/// `is_run`: whether some process runs that job of `run` right now.
pub fn shown_state(row: &Row, is_run: &dyn Fn(&str) -> bool) -> ShownState {
    // Locks are only asked for where the answer can matter.
    let alone = row.local && !row.state.is_terminal() && !is_run(&row.id);
    ShownState::new(row.state, row.local, !alone)
}

/// The jobs of `run` that are not over, and that no process has.
pub fn interrupted(
    reader: &mut dyn Reader,
    is_run: &dyn Fn(&str) -> bool,
) -> Result<Vec<JobId>, StoreError> {
    const AT_ONCE: usize = 1000;
    let filter = Filter { local: Some(true), over: Some(false), ..Filter::default() };
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = reader.list(&filter, cursor.as_deref(), AT_ONCE)?;
        let alone = page.jobs.into_iter().map(|row| row.id).filter(|id| !is_run(id));
        found.extend(alone);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}
