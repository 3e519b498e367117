//! `purge`: ended jobs go, with everything that was kept of them, and those that are stuck; interrupted ones
//! if that is said.

use serde_json::json;
use steadfast::run::{JobLock, forget_lock};
use steadfast_api::ShownState;
use steadfast_core::time::Timestamp;
use steadfast_server::purge::{purge, remove};
use steadfast_server::queries;
use steadfast_store::{Blobs, Filter, Reader as _, Row, SqliteStore, storage_at};

use crate::args::{Output, PurgeArgs};
use crate::data::{self, Data};
use crate::folder::on_folder;
use crate::input::Wrong;
use crate::serve::with_blobs;
use crate::{Done, Exit, clock, input};

pub(crate) fn run(args: &PurgeArgs) -> Done {
    if let Some(url) = &args.place.store {
        return match in_database(url, args) {
            Ok(purged) => tell(purged, args.common.output),
            Err(wrong) => {
                input::refuse("not_possible", &wrong, args.common.output).map(|()| Exit::Wrong)
            }
        };
    }
    on_folder(&args.common, |data, store| {
        let now = clock::now();
        let blobs = with_blobs(data.folder.storage(), args.blobs.url.as_deref())?.blobs();
        let older_ms = args.older.map(|older| older.as_millis().min(u128::from(u64::MAX)) as u64);
        let before = older_ms.map(|older_ms| Timestamp(now.0.saturating_sub(older_ms)));
        let purged = match (before, args.state) {
            (None, _) => named(&args.jobs, data, store, &*blobs)?,
            (Some(before), None) => {
                purge(&mut data.open()?, store, &*blobs, before, now).map_err(text)?
            }
            (Some(before), Some(ShownState::Interrupted)) => {
                interrupted(data, store, &*blobs, before)?
            }
            (Some(before), Some(ShownState::Of(state))) if state.is_terminal() => {
                let filter = Filter { state: Some(state), over: Some(true), ..Filter::default() };
                ended(store, &*blobs, &filter, before)?
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

/// There are no interrupted jobs: those are of `run`, which has a data folder. One that is stuck may still be in a server's memory.
fn in_database(url: &str, args: &PurgeArgs) -> Result<u64, String> {
    let storage = with_blobs(storage_at(url).map_err(text)?, args.blobs.url.as_deref())?;
    let (mut journal, mut reader) =
        (storage.journal().map_err(text)?, storage.reader().map_err(text)?);
    let blobs = storage.blobs();
    if let Some(older) = args.older {
        if args.state.is_some() {
            return Err("with --store, jobs go by age alone or by name".to_owned());
        }
        let (now, older_ms) = (clock::now(), older.as_millis().min(u128::from(u64::MAX)) as u64);
        let before = Timestamp(now.0.saturating_sub(older_ms));
        return purge(&mut *journal, &mut *reader, &*blobs, before, now).map_err(text);
    }
    let mut purged = 0;
    for name in &args.jobs {
        let row = data::find(&mut *reader, name).map_err(|wrong| wrong.message)?;
        if !row.over {
            return Err(format!("job {} has not ended; cancel it first", row.id));
        }
        purged += u64::from(remove(&mut *journal, &*blobs, &row.id).map_err(text)?);
    }
    Ok(purged)
}

fn ended(
    store: &mut SqliteStore,
    blobs: &dyn Blobs,
    filter: &Filter,
    before: Timestamp,
) -> Result<u64, String> {
    const AT_ONCE: usize = 1000;
    let (mut purged, mut cursor) = (0, None);
    loop {
        let page = store.list(filter, cursor.as_deref(), AT_ONCE).map_err(text)?;
        for row in page.jobs {
            if row.finished_at.is_some_and(|at| at < before) {
                purged += u64::from(remove(store, blobs, &row.id).map_err(text)?);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(purged);
        }
    }
}

/// Those that stopped before a moment: nothing was written since. A process that resumes one meanwhile has its
/// lock, and keeps it.
fn interrupted(
    data: &Data,
    store: &mut SqliteStore,
    blobs: &dyn Blobs,
    before: Timestamp,
) -> Result<u64, String> {
    let mut purged = 0;
    for id in queries::interrupted(store, &|job| data.folder.is_run(job)).map_err(text)? {
        let Ok(_lock) = JobLock::take(&data.folder, &id) else { continue };
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
        if remove(store, blobs, &id).map_err(text)? {
            forget_lock(&data.folder, &id);
            purged += 1;
        }
    }
    Ok(purged)
}

/// All of them or none.
fn named(
    names: &[String],
    data: &Data,
    store: &mut SqliteStore,
    blobs: &dyn Blobs,
) -> Result<u64, Wrong> {
    let mut rows = Vec::new();
    for name in names {
        let row = data::find(store, name)?;
        may_go(&row, data, store)?;
        rows.push(row);
    }
    let mut purged = 0;
    for row in rows {
        let gone = remove(store, blobs, &row.id).map_err(text)?;
        purged += u64::from(gone);
    }
    Ok(purged)
}

#[allow(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A job that is stuck will never be over. A server that read it before it was damaged may still have it:
/// taken away from under it, the job would end the server.
fn may_go(row: &Row, data: &Data, store: &mut SqliteStore) -> Result<(), String> {
    let id = &row.id;
    if row.over {
        return Ok(());
    }
    let stuck = store.damage(id).map_err(text)?.is_some()
        || steadfast_engine::state(store, id).is_err_and(|why| why.is_of_one_job());
    if !stuck {
        return Err(format!("job {id} has not ended; cancel it first"));
    }
    if data.folder.is_served() || data.folder.is_run(id) {
        return Err(format!(
            "job {id} is stuck, and the process that has this data folder may still hold it; stop \
             that, then purge the job"
        ));
    }
    Ok(())
}
