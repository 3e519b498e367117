//! All outputs of a job, page by page: a status shows the first megabyte of them.

use steadfast_api::{OutputRow, OutputsPage};
use steadfast_core::event::{ItemId, Role};
use steadfast_core::job::Job;
use steadfast_core::result::json_bytes;
use steadfast_core::select::ItemSelector;

use crate::error::ApiError;

/// A page ends after so many bytes, however many outputs were asked for; one that is larger is a page of its own.
const PAGE_BYTES: usize = 4 << 20;

/// The run, step and item of the last output of a page.
pub(super) type After = (u32, u32, u32);

pub(super) fn read_cursor(cursor: Option<&str>) -> Result<Option<After>, ApiError> {
    let Some(text) = cursor else { return Ok(None) };
    match numbers(text) {
        Some([run, step, item]) => Ok(Some((run, step, item))),
        None => Err(ApiError::BadCursor(text.to_owned())),
    }
}

/// `0.3.12`
pub(super) fn numbers<const COUNT: usize>(text: &str) -> Option<[u32; COUNT]> {
    let number = |part: &str| {
        let digits = part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse().ok().filter(|_| digits)
    };
    let numbers: Option<Vec<u32>> = text.split('.').map(number).collect();
    numbers?.try_into().ok()
}

/// In the order of runs, steps and items.
pub(super) fn page(
    job: &Job,
    only: ItemSelector,
    after: Option<After>,
    limit: usize,
) -> OutputsPage {
    let mut page = OutputsPage::default();
    let mut bytes = 0;
    let mut last = None;
    let all = job.runs.iter().zip(0..).flat_map(|(run, number)| {
        let steps = run.steps.iter().zip(0..);
        steps.flat_map(move |(step, index)| {
            step.outputs.iter().map(move |(item, output)| ((number, index, *item), output))
        })
    });
    for (place, output) in all.filter(|(place, _)| after.is_none_or(|after| *place > after)) {
        let (run, step, index) = place;
        if !only.has(ItemId { run, step, role: Role::Item, index }) {
            continue;
        }
        bytes += json_bytes(output);
        if page.outputs.len() >= limit || (bytes > PAGE_BYTES && !page.outputs.is_empty()) {
            page.next = last.map(|(run, step, item)| format!("{run}.{step}.{item}"));
            return page;
        }
        last = Some(place);
        page.outputs.push(OutputRow {
            datacenter: job.plan.datacenter(run).map(str::to_owned),
            step: job.plan.step(step).name.clone(),
            item: index,
            output: output.clone(),
        });
    }
    page
}
