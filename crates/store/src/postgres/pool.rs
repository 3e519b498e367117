//! A few connections for what is asked now and then, by any thread: settings, files, logs.

use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::connection::{Connection, Database};
use super::fault::Fault;
use crate::StoreError;

/// Beyond that many, callers wait: a database has a hundred for everybody.
const MOST: usize = 8;

pub(super) struct Pool {
    database: Arc<Database>,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    lent: usize,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(database: &Arc<Database>) -> Self {
        let state = Mutex::default();
        Self { database: database.clone(), state, returned: Condvar::new() }
    }

    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn with<T>(
        &self,
        doing: &'static str,
        act: impl FnOnce(&mut Connection) -> Result<T, Fault>,
    ) -> io::Result<T> {
        let failed = |fault: Fault| io_error(fault.at(self.database.place(), doing));
        let mut lent = self.lend().map_err(failed)?;
        act(lent.connection.as_mut().expect("lent")).map_err(failed)
    }

    fn lend(&self) -> Result<Lent<'_>, Fault> {
        let mut state = self.state();
        while state.lent >= MOST {
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.lent += 1;
        let idle = state.idle.pop();
        drop(state);
        // Returned also if there is no connection to be had.
        let mut lent = Lent { pool: self, connection: idle };
        if lent.connection.is_none() {
            lent.connection = Some(Connection::new(&self.database)?);
        }
        Ok(lent)
    }
}

struct Lent<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // It may be in the middle of a transaction.
        let connection = self.connection.take().filter(|_| !std::thread::panicking());
        let mut state = self.pool.state();
        state.lent -= 1;
        state.idle.extend(connection);
        self.pool.returned.notify_one();
    }
}

fn io_error(error: StoreError) -> io::Error {
    let kind = match &error {
        StoreError::Full { .. } => io::ErrorKind::StorageFull,
        StoreError::Unavailable { .. } => io::ErrorKind::NotConnected,
        StoreError::Busy { .. } => io::ErrorKind::ResourceBusy,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
