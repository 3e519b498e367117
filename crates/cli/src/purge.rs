//! `purge`: ended jobs go, with everything that was kept of them, and those that are stuck; interrupted ones
//! if that is said.

use serde_json::json;
use steadfast_api::ShownState;
use steadfast_core::time::Timestamp;
use steadfast_server::purge::{self, purge};
use steadfast_server::queries;
use steadfast_store::{Filter, Journal, Reader, Row};

use crate::args::{Output, PurgeArgs};
use crate::data::{self, Data};
use crate::folder::on_folder;
use crate::input::Wrong;
use crate::{Done, Exit, clock, input};

pub(crate) fn run(args: &PurgeArgs) -> Done {
    let data = Data::of(&args.common).and_then(|data| data.with_blobs(args.blobs.url.as_deref()));
    on_folder(data, args.common.output, |data, store| {
        let now = clock::now();
        let older_ms = args.older.map(|older| older.as_millis().min(u128::from(u64::MAX)) as u64);
        let before = older_ms.map(|older_ms| Timestamp(now.0.saturating_sub(older_ms)));
        let purged = match (before, args.state) {
            (None, _) => named(&args.jobs, data, store)?,
            (Some(before), None) => {
                let mut journal = data.storage.journal().map_err(Wrong::from)?;
                purge(&mut *journal, store, &*data.storage.blobs(), before, now).map_err(text)?
            }
            (Some(before), Some(ShownState::Interrupted)) => interrupted(data, store, before)?,
            (Some(before), Some(ShownState::Of(state))) if state.is_terminal() => {
                let filter = Filter { state: Some(state), over: Some(true), ..Filter::default() };
                ended(data, store, &filter, before)?
            }
            (Some(_), Some(ShownState::Stuck)) => {
                let message = "jobs that are stuck go one by one, when somebody has looked at them: \
                               `steadfast list --state stuck`, then `steadfast purge JOB`";
                return Err(Wrong { code: "usage", message: message.to_owned() }.into());
            }
            (Some(_), Some(state)) => {
                let message = format!(
                    "jobs that are {state} do not go by age; write succeeded, partial, failed, \
                     cancelled or interrupted, or name the job"
                );
                return Err(Wrong { code: "usage", message }.into());
            }
        };
        Ok(tell(purged, args.common.output)?)
    })
}

fn tell(purged: u64, output: Output) -> Done {
    match output {
        Output::Json => input::print_json(&json!({ "purged": purged }))?,
        Output::Human => match purged {
            0 => println!("there was nothing to purge"),
            1 => println!("1 job is gone"),
            many => println!("{many} jobs are gone"),
        },
    }
    Ok(Exit::Ok)
}

/// With what its attempts left on this machine, if it ran here.
fn remove(data: &Data, journal: &mut dyn Journal, job: &str) -> Result<bool, String> {
    let gone = purge::remove(journal, &*data.storage.blobs(), job).map_err(text)?;
    if gone && data.is_database() {
        for left in [data.folder.work(job), data.folder.logs(job)] {
            let _ = std::fs::remove_dir_all(left);
        }
    }
    Ok(gone)
}

fn ended(
    data: &Data,
    store: &mut dyn Reader,
    filter: &Filter,
    before: Timestamp,
) -> Result<u64, String> {
    const AT_ONCE: usize = 1000;
    let mut journal = data.storage.journal().map_err(text)?;
    let (mut purged, mut cursor) = (0, None);
    loop {
        let page = store.list(filter, cursor.as_deref(), AT_ONCE).map_err(text)?;
        for row in page.jobs {
            if row.finished_at.is_some_and(|at| at < before) {
                purged += u64::from(remove(data, &mut *journal, &row.id)?);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(purged);
        }
    }
}

/// Those that stopped before a moment: nothing was written since. A process that resumes one meanwhile has claimed
/// it, and keeps it.
fn interrupted(data: &Data, store: &mut dyn Reader, before: Timestamp) -> Result<u64, String> {
    let mut journal = data.storage.journal().map_err(text)?;
    let place = data.place(None);
    let mut purged = 0;
    for id in queries::interrupted(store, &|job| data.storage.is_run(job)).map_err(text)? {
        let Ok(claim) = place.claim(&id) else { continue };
        // One that cannot be read may have ended as well: it goes only by its name.
        if store.damage(&id).map_err(text)?.is_some() {
            continue;
        }
        let Some((row, seq)) = store.row(&id).map_err(text)? else { continue };
        let last = store.events(&id, seq.saturating_sub(1), 1).map_err(text)?.pop();
        if row.over || last.is_none_or(|last| last.at >= before) {
            continue;
        }
        // What the interrupted run left behind must not write into folders that are gone.
        steadfast_worker::kill_marked("STEADFAST_JOB_ID", &id).map_err(text)?;
        if remove(data, &mut *journal, &id)? {
            place.forget(&claim, &id);
            purged += 1;
        }
    }
    Ok(purged)
}

/// All of them or none.
fn named(names: &[String], data: &Data, store: &mut dyn Reader) -> Result<u64, Wrong> {
    let mut rows = Vec::new();
    for name in names {
        let row = data::find(store, name)?;
        may_go(&row, data, store)?;
        rows.push(row);
    }
    let mut journal = data.storage.journal()?;
    let mut purged = 0;
    for row in rows {
        purged += u64::from(remove(data, &mut *journal, &row.id)?);
    }
    Ok(purged)
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A job that is stuck will never be over. A server that read it before it was damaged may still have it:
/// taken away from under it, the job would end the server.
fn may_go(row: &Row, data: &Data, store: &mut dyn Reader) -> Result<(), String> {
    let id = &row.id;
    if row.over {
        return Ok(());
    }
    let stuck = store.damage(id).map_err(text)?.is_some()
        || steadfast_engine::state(store, id).is_err_and(|why| why.is_of_one_job());
    if !stuck {
        return Err(format!("job {id} has not ended; cancel it first"));
    }
    if data.storage.is_served() || data.storage.is_run(id) {
        return Err(format!(
            "job {id} is stuck, and a process that has this {} may still hold it; stop that, then \
             purge the job",
            data.what()
        ));
    }
    Ok(())
}
