//! A few open stores for reading, off the threads that serve.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_store::{SqliteStore, StoreError};
use tokio::sync::Semaphore;

use crate::error::ApiError;

#[derive(Clone, Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<SqliteStore>>>,
    /// As many as there are stores. More wait here, not on threads.
    turns: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn open(path: PathBuf, count: usize) -> Result<Self, StoreError> {
        let count = count.max(1);
        let idle = (0..count).map(|_| SqliteStore::open(&path)).collect::<Result<_, _>>()?;
        Ok(Self { path, idle: Arc::new(Mutex::new(idle)), turns: Arc::new(Semaphore::new(count)) })
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut SqliteStore) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turns.clone().acquire_owned().await.map_err(ApiError::internal)?;
        let Self { path, idle, .. } = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let store = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            // One that panicked while it was read is gone: there is a turn for it, so open another.
            let mut store = match store {
                Some(store) => store,
                None => SqliteStore::open(&path)?,
            };
            let done = read(&mut store);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(store);
            done
        });
        done.await.map_err(ApiError::internal)?
    }
}
