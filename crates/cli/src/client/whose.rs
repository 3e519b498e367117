//! Whether a job is a server's or this machine's, where nobody said where to go.
//!
//! A server at the default address mostly has the very folder that `run` keeps its jobs in. It shows them,
//! but only a process here can go on with them.

use steadfast_store::{Row, SqliteStore, Store as _};

use super::api::Client;
use super::error::ClientError;
use super::queries;
use crate::data::{self, Data};
use crate::style::{DIM, paint};

pub(super) enum JobPlace {
    Here(String),
    There(String),
}

/// `unnamed`: the server was found at the default address.
pub(super) async fn find(
    client: &Client,
    name: &str,
    unnamed: bool,
) -> Result<JobPlace, ClientError> {
    if !unnamed {
        return queries::find(client, name).await.map(JobPlace::There);
    }
    let Some((data, mut store)) = folder() else {
        return queries::find(client, name).await.map(JobPlace::There);
    };
    let is_ours = |row: &Row| row.local || !data.folder.is_served();
    match queries::find(client, name).await {
        Ok(id) => match store.row(&id) {
            Ok(Some((row, _))) if is_ours(&row) => Ok(JobPlace::Here(id)),
            _ => Ok(JobPlace::There(id)),
        },
        // The server may have another folder.
        Err(trouble) => match data::find(&mut store, name) {
            Ok(row) if trouble.is_no_job() && is_ours(&row) => {
                Ok(JobPlace::Here(row.id.to_string()))
            }
            _ => Err(trouble),
        },
    }
}

/// The user's data folder, if there is something in it. What is wrong with it is no matter here: the server
/// answers then.
fn folder() -> Option<(Data, SqliteStore)> {
    let data = Data::at(None).ok()?;
    let store = SqliteStore::open_read_only(&data.folder.database()).ok()?;
    Some((data, store))
}

/// Somebody who ran a job here looks for it in the list of a server that does not have it.
pub(super) fn tell_of_folder() {
    let Some((data, mut store)) = folder() else { return };
    let has_jobs = store
        .list(&steadfast_store::Filter::default(), None, 1)
        .is_ok_and(|page| !page.jobs.is_empty());
    if has_jobs && !data.folder.is_served() {
        let root = data.folder.root().display();
        let hint = format!("jobs of `run` on this machine: steadfast list --data {root}");
        anstream::eprintln!("{}", paint(DIM, hint));
    }
}
