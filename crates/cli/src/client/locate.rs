//! Whether a job is a server's or this machine's, where no flag says where to go.
//!
//! A server at the default address mostly has the very folder that `run` keeps its jobs in. It shows them,
//! but only a process here can go on with them.

use steadfast_store::{Filter, Reader as _, Row, SqliteStore};

use super::source::ServerSource;
use crate::data::{self, Data};
use crate::error::CliError;
use crate::style::{DIM, paint};

pub(super) enum JobPlace {
    Folder(String),
    Server(String),
}

/// `unnamed`: the server was found at the default address.
pub(super) fn locate(
    source: &ServerSource,
    name: &str,
    unnamed: bool,
) -> Result<JobPlace, CliError> {
    let found = source.find(name);
    let Some((data, mut store)) = folder().filter(|_| unnamed) else {
        return found.map(JobPlace::Server);
    };
    let is_ours = |row: &Row| row.local || !data.folder.is_served();
    match found {
        Ok(id) => match store.row(&id) {
            Ok(Some((row, _))) if is_ours(&row) => Ok(JobPlace::Folder(id)),
            _ => Ok(JobPlace::Server(id)),
        },
        // The server may have another folder.
        Err(error) => match data::find(&mut store, name) {
            Ok(row) if error.is_no_job() && is_ours(&row) => {
                Ok(JobPlace::Folder(row.id.to_string()))
            }
            _ => Err(error),
        },
    }
}

/// The user's data folder, if there is something in it. What is wrong with it does not matter here: the server
/// answers then.
fn folder() -> Option<(Data, SqliteStore)> {
    let data = Data::at(None).ok()?;
    let store = SqliteStore::open_read_only(&data.folder.database()).ok()?;
    Some((data, store))
}

/// A person who ran a job here looks for it in the list of a server that does not have it.
pub(super) fn tell_of_folder() {
    let Some((data, mut store)) = folder() else { return };
    let page = store.list(&Filter::default(), None, 1);
    if page.is_ok_and(|page| !page.jobs.is_empty()) && !data.folder.is_served() {
        let root = data.folder.root().display();
        let hint = format!("jobs of `run` on this machine: steadfast list --data {root}");
        anstream::eprintln!("{}", paint(DIM, hint));
    }
}
