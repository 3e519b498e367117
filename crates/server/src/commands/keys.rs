//! Idempotency keys of submissions that are not yet durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Held, PoisonError};

use steadfast_engine::CommandError;
use steadfast_store::Refused;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::timeout;

use super::Submitted;
use crate::error::ApiError;
use crate::hand_over::HAND_OVER;

/// Longer keys are somebody's mistake.
const KEY_CHARS: usize = 255;
/// Locks that nobody has any more are looked for when there are so many, and then at every doubling.
const SWEEP: usize = 256;

/// A lock for each key that is being used.
#[derive(Clone, Debug, Default)]
pub(super) struct Keys(Arc<Held<Used>>);

#[derive(Debug, Default)]
struct Used {
    locks: HashMap<String, Arc<Mutex<()>>>,
    sweep_at: usize,
}

impl Keys {
    pub(super) async fn turn(&self, key: &str) -> Result<OwnedMutexGuard<()>, ApiError> {
        let lock = self.of(key);
        if let Ok(turn) = lock.clone().try_lock_owned() {
            return Ok(turn);
        }
        let turn = Box::pin(timeout(HAND_OVER, lock.lock_owned())).await;
        turn.map_err(|_| {
            let why = "another submission with this idempotency key is under way; try again";
            ApiError::Overloaded(why.to_owned())
        })
    }

    fn of(&self, key: &str) -> Arc<Mutex<()>> {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if used.locks.len() >= used.sweep_at.max(SWEEP) {
            used.locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            used.sweep_at = used.locks.len() * 2;
        }
        used.locks.entry(key.to_owned()).or_default().clone()
    }
}

pub(super) fn check_key(key: &str) -> Result<(), ApiError> {
    let fits = (1..=KEY_CHARS).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic());
    if fits {
        return Ok(());
    }
    Err(ApiError::BadRequest(format!(
        "an idempotency key has 1 to {KEY_CHARS} visible ASCII characters"
    )))
}

/// The job that has the key already, if that is why a submission was not taken.
pub(super) fn known_by_key(why: CommandError) -> Result<Submitted, ApiError> {
    match why {
        CommandError::Taken { why: Refused::KeyTaken { job, same_body }, .. } => {
            if same_body {
                Ok(Submitted { id: job, existing: true, warnings: vec![] })
            } else {
                Err(ApiError::IdempotencyConflict { job })
            }
        }
        why => Err(why.into()),
    }
}
