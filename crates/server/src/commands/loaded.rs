//! Job files that were read a moment ago.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use steadfast_core::plan::Plan;
use steadfast_jobfile::Warning;

/// The last small job files that were read, by the digest of what was submitted: who submits the same again and again has
/// it read once, and all its jobs share a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded(Arc<Mutex<HashMap<String, LoadedJob>>>);

pub(super) type LoadedJob = (Arc<Plan>, Vec<Warning>);

/// So many of up to [`READ_HERE`](super::READ_HERE) are kept; then all are forgotten.
const LOADED: usize = 256;

impl Loaded {
    pub(super) fn get(&self, digest: &str) -> Option<LoadedJob> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()
    }

    pub(super) fn put(&self, digest: &str, loaded: &LoadedJob) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= LOADED {
            all.clear();
        }
        all.insert(digest.to_owned(), loaded.clone());
    }
}
