//! `purge`: ended jobs go, with everything that was kept of them; interrupted ones if that is said.

use std::fs;

use serde_json::json;
use steadfast_api::ShownState;
use steadfast_core::time::Timestamp;
use steadfast_server::archive;
use steadfast_store::{Filter, SqliteStore, Store as _};

use crate::args::{Output, PurgeArgs};
use crate::data::Data;
use crate::input::Wrong;
use crate::{Done, Exit, clock, input, jobs};

pub(crate) fn run(args: &PurgeArgs) -> Done {
    let older_ms = args.older.as_millis().min(u128::from(u64::MAX)) as u64;
    let before = Timestamp(clock::now().0.saturating_sub(older_ms));
    jobs::looking(args.common.data.as_deref(), args.common.output, |data, store| {
        let purged = match args.state {
            None => steadfast_server::purge::purge(store, &data.folder, before)
                .map_err(|error| error.to_string())?,
            Some(ShownState::Interrupted) => interrupted(data, store, before)?,
            Some(ShownState::Of(state)) if state.is_terminal() => {
                let filter = Filter { state: Some(state), over: Some(true), ..Filter::default() };
                ended(data, store, &filter, before)?
            }
            Some(state) => {
                let message = format!(
                    "jobs that are {state} go on, and stay; write succeeded, partial, failed, \
                     cancelled or interrupted"
                );
                return Err(Wrong { code: "usage", message }.into());
            }
        };
        match args.common.output {
            Output::Json => input::print_json(&json!({ "purged": purged }))?,
            Output::Human => match purged {
                0 => println!("there was nothing to purge"),
                1 => println!("1 job is gone"),
                many => println!("{many} jobs are gone"),
            },
        }
        Ok(Exit::Ok)
    })
}

fn ended(
    data: &Data,
    store: &mut SqliteStore,
    filter: &Filter,
    before: Timestamp,
) -> Result<u64, String> {
    const AT_ONCE: usize = 1000;
    let (mut purged, mut cursor) = (0, None);
    loop {
        let page = store.list(filter, cursor.as_deref(), AT_ONCE).map_err(text)?;
        for row in page.jobs {
            if row.finished_at.is_some_and(|at| at < before) {
                purged += u64::from(remove(data, store, &row.id)?);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(purged);
        }
    }
}

/// Those that stopped before a moment: nothing was written since. Whoever resumes one meanwhile has its
/// lock, and keeps it.
fn interrupted(data: &Data, store: &mut SqliteStore, before: Timestamp) -> Result<u64, String> {
    let mut purged = 0;
    for id in archive::interrupted(store, &data.folder).map_err(text)? {
        let Ok(_lock) = data.lock(&id) else { continue };
        let Some((row, seq)) = store.row(&id).map_err(text)? else { continue };
        let last = store.events(&id, seq.saturating_sub(1), 1).map_err(text)?.pop();
        if row.over || last.is_none_or(|last| last.at >= before) {
            continue;
        }
        // What the interrupted run left behind must not write into folders that are gone.
        steadfast_worker::kill_marked("STEADFAST_JOB_ID", &id).map_err(text)?;
        if remove(data, store, &id)? {
            data.forget_lock(&id);
            purged += 1;
        }
    }
    Ok(purged)
}

fn remove(data: &Data, store: &mut SqliteStore, id: &str) -> Result<bool, String> {
    let claimed = store.claim(&[id], "purge").map_err(text)?.pop().flatten();
    let Some(claimed) = claimed else { return Ok(false) };
    let gone = store.remove(id, claimed.epoch).map_err(text)?;
    if gone {
        for folder in [data.folder.logs(id), data.folder.files(id), data.folder.work(id)] {
            // What cannot be removed now goes with the next purge.
            let _ = fs::remove_dir_all(folder);
        }
    }
    Ok(gone)
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn text(error: impl ToString) -> String {
    error.to_string()
}
