//! Jobs page by page, each in the state that is shown of it.

use steadfast_api::{JobRow, JobsPage, ShownState};
use steadfast_core::event::JobId;
use steadfast_store::{Filter, Reader, Row, StoreError};

/// All that are set must hold.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    pub state: Option<ShownState>,
    pub name: Option<String>,
    pub label: Option<(String, String)>,
}

/// Whether a job is interrupted or stuck is not stored, so what the store finds is looked through, and more is
/// asked for until the page is full.
pub fn list(
    reader: &mut dyn Reader,
    is_run: &dyn Fn(&str) -> bool,
    filter: &JobFilter,
    cursor: Option<&str>,
    limit: usize,
) -> Result<JobsPage, StoreError> {
    let JobFilter { state, name, label } = filter.clone();
    let filter = match state {
        Some(ShownState::Of(state)) => Filter { state: Some(state), ..Filter::default() },
        Some(ShownState::Interrupted) => {
            Filter { local: Some(true), over: Some(false), ..Filter::default() }
        }
        Some(ShownState::Stuck) | None => Filter::default(),
    };
    let filter = Filter { name, label, ..filter };
    let mut jobs: Vec<JobRow> = Vec::new();
    let mut cursor = cursor.map(str::to_owned);
    loop {
        let mut page = reader.list(&filter, cursor.as_deref(), limit.saturating_sub(jobs.len()))?;
        page.check(reader)?;
        let mut damaged = page.damaged;
        let shown = page.jobs.into_iter().map(|row| {
            let damage = damaged.remove(&row.id);
            let sound = || shown_state(&row, is_run);
            let state = damage.as_ref().map_or_else(sound, |_| ShownState::Stuck);
            shown_row(row, state, damage)
        });
        jobs.extend(shown.filter(|job| state.is_none_or(|wanted| job.state == wanted)));
        cursor = page.next;
        if cursor.is_none() || jobs.len() >= limit {
            return Ok(JobsPage { jobs, next: cursor });
        }
    }
}

fn shown_row(row: Row, state: ShownState, reason: Option<String>) -> JobRow {
    let Row { id, name, submitted_at, finished_at, labels, retried_from, .. } = row;
    JobRow {
        id: id.to_string(),
        name,
        state,
        submitted_at_ms: submitted_at,
        finished_at_ms: finished_at,
        labels,
        retried_from: retried_from.map(|id| id.to_string()),
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
