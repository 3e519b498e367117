//! Which items of a job may start, page by page.

use steadfast_api::{ReadinessPage, ReadinessRow};
use steadfast_core::event::{ItemId, Role};
use steadfast_core::job::Job;
use steadfast_core::readiness::readiness as readiness_of;
use steadfast_core::time::Timestamp;

use super::outputs::numbers;
use crate::error::ApiError;

const ROLES: [Role; 3] = [Role::Item, Role::Fallback, Role::Compensation];

/// A cursor is the place of the first row of the next page: its run, step, role and item.
pub fn readiness(
    job: &Job,
    cursor: Option<&str>,
    limit: usize,
    now: Timestamp,
) -> Result<ReadinessPage, ApiError> {
    let from = cursor.map_or(Ok(ItemId::default()), read_cursor)?;
    let mut rows = readiness_of(job, from, now);
    let page = rows.by_ref().take(limit).map(|row| ReadinessRow::new(&job.plan, &row)).collect();
    let next = rows.next().map(|row| {
        let ItemId { run, step, role, index } = row.id;
        format!("{run}.{step}.{}.{index}", role as u32)
    });
    Ok(ReadinessPage { job: job.id.to_string(), at_ms: now, readiness: page, next })
}

fn read_cursor(text: &str) -> Result<ItemId, ApiError> {
    let wrong = || ApiError::BadCursor(text.to_owned());
    let [run, step, role, index] = numbers(text).ok_or_else(wrong)?;
    let role = *ROLES.get(role as usize).ok_or_else(wrong)?;
    Ok(ItemId { run, step, role, index })
}
