//! `purge`: ended jobs go, with everything that was kept of them; and those that are stuck.

use serde_json::json;
use steadfast_core::time::Timestamp;
use steadfast_server::purge::{purge, remove};
use steadfast_store::{Row, SqliteStore, Store as _};

use crate::args::{Output, PurgeArgs};
use crate::data::{self, Data};
use crate::{Done, Exit, clock, input, jobs};

pub(crate) fn run(args: &PurgeArgs) -> Done {
    jobs::looking(args.common.data.as_deref(), args.common.output, |data, store| {
        let purged = match args.older {
            Some(older) => {
                let older_ms = older.as_millis().min(u128::from(u64::MAX)) as u64;
                let now = clock::now();
                let before = Timestamp(now.0.saturating_sub(older_ms));
                purge(store, &data.folder, before, now).map_err(|error| error.to_string())?
            }
            None => named(&args.jobs, data, store)?,
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

/// All of them or none.
fn named(names: &[String], data: &Data, store: &mut SqliteStore) -> Result<u64, String> {
    let mut rows = Vec::new();
    for name in names {
        let row = data::find(store, name)?;
        may_go(&row, data, store)?;
        rows.push(row);
    }
    let mut purged = 0;
    for row in rows {
        let gone = remove(store, &data.folder, &row.id).map_err(|error| error.to_string())?;
        purged += u64::from(gone);
    }
    Ok(purged)
}

/// A job that is stuck will never be over. A server that read it before it was damaged may still have it:
/// taken away from under it, the job would end the server.
fn may_go(row: &Row, data: &Data, store: &mut SqliteStore) -> Result<(), String> {
    let id = &row.id;
    if row.over {
        return Ok(());
    }
    let stuck = store.damage(id).map_err(|error| error.to_string())?.is_some()
        || steadfast_engine::state(store, id).is_err_and(|why| why.is_of_one_job());
    if !stuck {
        return Err(format!("job {id} has not ended; cancel it first"));
    }
    if data.is_served() || data.is_run(id) {
        return Err(format!(
            "job {id} is stuck, and the process that has this data folder may still hold it; stop \
             that, then purge the job"
        ));
    }
    Ok(())
}
