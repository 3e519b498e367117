//! Job files that were read a moment ago.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_core::plan::Plan;
use steadfast_jobfile::{Operator, RecurringFile, Warning};

/// The last small job files that were read: who submits the same again and again has it read once, and all its jobs
/// share a plan.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded(Arc<Mutex<LoadedFiles>>);

#[derive(Debug, Default)]
struct LoadedFiles {
    /// By the digest of what was submitted.
    same: HashMap<String, LoadedJob>,
    /// Those that may come again with another input, the last ones first.
    recurring: VecDeque<(RecurringFile, Vec<Warning>)>,
}

pub(super) type LoadedJob = (Arc<Plan>, Vec<Warning>);

/// So many of up to [`READ_HERE`](super::READ_HERE) are kept; then all are forgotten.
const LOADED: usize = 256;
/// Each is held against a new file, which costs a comparison of the first few bytes that differ.
const RECURRING: usize = 16;

impl Loaded {
    pub(super) fn get(&self, digest: &str, text: &[u8]) -> Option<LoadedJob> {
        let loaded = self.files();
        let recurs = || {
            let text = str::from_utf8(text).ok()?;
            let mut known = loaded.recurring.iter();
            let found =
                known.find_map(|(file, warnings)| Some((file.plan(text)?, warnings.clone())));
            found.map(|(plan, warnings)| (Arc::new(plan), warnings))
        };
        loaded.same.get(digest).cloned().or_else(recurs)
    }

    pub(super) fn put(&self, digest: &str, text: &[u8], job: &LoadedJob, operator: &Operator) {
        let (plan, warnings) = job;
        let text = str::from_utf8(text).ok();
        let recurring = text.and_then(|text| RecurringFile::of(text, plan, operator));
        let mut loaded = self.files();
        if let Some(file) = recurring {
            loaded.recurring.truncate(RECURRING - 1);
            loaded.recurring.push_front((file, warnings.clone()));
        }
        if loaded.same.len() >= LOADED {
            loaded.same.clear();
        }
        loaded.same.insert(digest.to_owned(), job.clone());
    }

    fn files(&self) -> MutexGuard<'_, LoadedFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
