//! A few open stores for reading, off the threads that serve.

use std::sync::{Arc, Mutex, PoisonError};

use steadfast_store::{Reader, Storage, StoreError};
use tokio::sync::Semaphore;

use crate::error::ApiError;

#[derive(Clone)]
pub(super) struct Readers {
    storage: Arc<dyn Storage>,
    idle: Arc<Mutex<Vec<Box<dyn Reader>>>>,
    /// As many as there are stores. More wait here, not on threads.
    turns: Arc<Semaphore>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers").field("storage", &self.storage).finish_non_exhaustive()
    }
}

impl Readers {
    pub(super) fn open(storage: Arc<dyn Storage>, count: usize) -> Result<Self, StoreError> {
        let count = count.max(1);
        let idle = (0..count).map(|_| storage.reader()).collect::<Result<_, _>>()?;
        let turns = Arc::new(Semaphore::new(count));
        Ok(Self { storage, idle: Arc::new(Mutex::new(idle)), turns })
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut dyn Reader) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = self.turns.clone().acquire_owned().await.map_err(ApiError::internal)?;
        let Self { storage, idle, .. } = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let reader = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            // One that panicked while it was read is gone: there is a turn for it, so open another.
            let mut reader = match reader {
                Some(reader) => reader,
                None => storage.reader()?,
            };
            let done = read(&mut *reader);
            idle.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
            done
        });
        done.await?
    }
}
